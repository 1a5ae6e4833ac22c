"""What is made of a sheet: notebooks, pages, packs, and nothing that is the teacher's in them."""

from __future__ import annotations

import dataclasses
import json
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from jupytext.cli import jupytext

from radixlab.classroom import build
from radixlab.classroom.cases import is_right, make_cases, mistake_outcomes
from radixlab.classroom.packs import visible_pack
from radixlab.classroom.release import write_student_files
from radixlab.classroom.sheet import (
    BEGIN,
    TEACHERS,
    BadSheet,
    Role,
    Sheet,
    find_sheets,
    parse_sheet,
)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
OURS = [path.stem for path in find_sheets()]
SHEET = Path(__file__).with_name("classroom_sheet.md").read_text(encoding="utf-8")
"""A sheet with everything: see tests/classroom_sheet.md."""


def small(text: str = SHEET) -> Sheet:
    return parse_sheet(text, "classroom_sheet")


def ours(name: str) -> Sheet:
    return Sheet.read(next(path for path in find_sheets() if path.stem == name))


def roles(notebook: Any) -> list[str]:
    return [cell.metadata["radixlab"]["role"] for cell in notebook.cells]


def by_role(notebook: Any, role: str, exercise: str = "") -> Any:
    return next(
        cell
        for cell in notebook.cells
        if cell.metadata["radixlab"]["role"] == role
        and exercise in ("", cell.metadata["radixlab"]["exercise"])
    )


def secret_lines(sheet: Sheet) -> set[str]:
    """Whole lines of what is the teacher's, those left out that students are given as well."""
    teachers = [cell.source for cell in sheet.cells if cell.role in TEACHERS]
    teachers += [exercise.solution for exercise in sheet.exercises.values()]
    given = [c.source for c in sheet.cells if c.role in (Role.PAGE, Role.GIVEN)]
    given += [exercise.stub for exercise in sheet.exercises.values()]

    def lines(sources: list[str]) -> set[str]:
        return {line.strip() for source in sources for line in source.splitlines()}

    return {line for line in lines(teachers) - lines(given) if len(line) > 15}


# --- the student's notebook ----------------------------------------------------------------------


def test_the_students_notebook_has_these_cells_in_this_order() -> None:
    notebook = build.student_notebook(small())
    assert roles(notebook) == [
        *("page", "page", "page", "given", "page", "answer", "check", "hint", "hint"),
        *("page", "answer", "check", "written", "written-answer"),
    ]
    nbformat.validate(notebook)
    assert notebook.metadata["radixlab"]["sheet"] == "classroom_sheet"
    assert all(c.metadata["radixlab"]["sheet"] == "classroom_sheet" for c in notebook.cells)
    assert by_role(notebook, "check", "double").source == 'check("double")'
    assert not any(c.get("outputs") or c.get("execution_count") for c in notebook.cells)


def test_the_stub_fails_loudly_and_can_be_defined() -> None:
    stub = by_role(build.student_notebook(small()), "answer", "double").source
    names: dict[str, Any] = {}
    exec(stub, names)
    with pytest.raises(NotImplementedError, match="write double"):
        names["double"](2)


def test_the_first_cell_says_that_hidden_cases_exist_and_what_to_hand_in() -> None:
    first = build.student_notebook(small()).cells[0].source
    assert first.startswith("# A small sheet\n")
    assert "hidden" in first and "`classroom_sheet.ipynb`" in first
    assert "8 points: 2 for `double`, 3 for `total_of_doubles`, 3 for an answer in words" in first


@pytest.mark.parametrize("name", OURS)
def test_22_no_check_is_an_empty_cell(name: str) -> None:
    """Cells with nothing but hidden tests looked empty (jupyter/nbgrader#1471): here each exercise
    has visible cases, and a cell that says which check it runs."""
    sheet = ours(name)
    notebook = build.student_notebook(sheet)
    checks = [c.source for c in notebook.cells if c.metadata["radixlab"]["role"] == "check"]
    assert checks == [f'check("{exercise}")' for exercise in sheet.exercises]
    assert all(task["cases"] for task in visible_pack(sheet)["exercises"].values())


def test_hints_are_folded_and_numbered_per_exercise() -> None:
    notebook = build.student_notebook(small())
    hints = [cell.source for cell in notebook.cells if cell.metadata["radixlab"]["role"] == "hint"]
    assert [hint.splitlines()[:2] for hint in hints] == [
        ["<details>", f"<summary>Hint {i} of 2 for double</summary>"] for i in (1, 2)
    ]
    assert all(hint.endswith("\n\n</details>") for hint in hints)


@pytest.mark.parametrize("name", OURS)
def test_our_sheets_make_the_same_bytes_twice_and_tell_no_secret(name: str) -> None:
    sheet = ours(name)
    notebook = build.student_notebook(sheet)
    text = build.notebook_text(notebook)
    assert text == build.notebook_text(build.student_notebook(ours(name)))
    nbformat.validate(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    page = build.book_page(sheet)
    shown = {line.strip() for cell in notebook.cells for line in cell.source.splitlines()}
    shown |= {line.strip() for line in page.splitlines()}
    secrets = secret_lines(sheet)
    assert len(secrets) > 20 and not secrets & shown
    assert BEGIN not in text and BEGIN not in page
    assert {cell.metadata["radixlab"]["role"] for cell in notebook.cells} <= {
        *("page", "given", "answer", "check", "hint", "written", "written-answer")
    }


def test_a_cells_id_does_not_change_when_another_exercise_changes() -> None:
    before = build.student_notebook(small())
    after = build.student_notebook(small(SHEET.replace("return 2 * x", "return x + x")))
    assert [cell.id for cell in before.cells] == [cell.id for cell in after.cells]


# --- what is refused -----------------------------------------------------------------------------


def with_hint(text: str) -> Sheet:
    return small(SHEET.replace("Look at the sign.", text))


def test_a_hint_that_shows_a_line_of_the_solution_is_refused() -> None:
    sheet = with_hint("Write `total = 2 * sum(numbers)` here.")
    for make in (build.student_notebook, build.book_page):
        with pytest.raises(BadSheet, match=r"teacher's line: 'total = 2"):
            make(sheet)


def test_a_question_that_quotes_its_rubric_is_refused() -> None:
    rubric = "Two points for the sum, one for the reason why."
    sheet = small(SHEET.replace("Why does it work?", f"Why?\n\n{rubric}"))
    with pytest.raises(BadSheet, match="Two points for the sum"):
        build.student_notebook(sheet)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (":::{note}\nLook.\n:::", "a colon fence"),
        ("```{note}\nLook.\n```", "a directive"),
        ("See {doc}`../02-radix-tree`.", "a role"),
        ("(label)=\nLook.", "a label"),
    ],
)
def test_what_only_the_site_can_show_is_refused_in_a_notebook(text: str, named: str) -> None:
    with pytest.raises(BadSheet, match=named):
        build.student_notebook(with_hint(text))


def test_code_in_a_text_may_look_like_anything() -> None:
    sheet = with_hint("```\n:::{note}\n(label)=\n```\n")
    assert "(label)=" in build.notebook_text(build.student_notebook(sheet))


def test_a_link_to_a_page_of_the_book_becomes_its_words() -> None:
    sheet = with_hint("See [the tree](../02-radix-tree.md#it) and [all](https://example.org/a.md).")
    text = build.notebook_text(build.student_notebook(sheet))
    assert "See *the tree* and [all](https://example.org/a.md)." in text


def test_a_sheet_without_a_title_or_without_check_is_refused() -> None:
    with pytest.raises(BadSheet, match="title"):
        build.student_notebook(small(SHEET.replace("# A small sheet", "Text")))
    with pytest.raises(BadSheet, match="imports check"):
        text = SHEET.replace("from radixlab.classroom import check", "import math")
        build.student_notebook(small(text))


# --- the teacher's notebook, and nbgrader's ------------------------------------------------------


def test_the_teachers_notebook_has_everything_and_runs() -> None:
    sheet = small()
    notebook = build.teacher_notebook(sheet)
    text = "\n".join(cell.source for cell in notebook.cells)
    for exercise in sheet.exercises.values():
        assert exercise.solution in text and exercise.driver in text and exercise.cases in text
        assert all(w.message in text and w.source in text for w in exercise.wrong)
    assert sheet.written["why"].rubric in text
    names: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and "check" not in cell.source:
            exec(cell.source, names)
    assert names["total_of_doubles"]([1, 2]) == 6


def test_nbgrader_finds_valid_metadata_and_clears_every_solution() -> None:
    pytest.importorskip("nbgrader")
    from nbgrader.nbgraderformat import MetadataValidator
    from nbgrader.preprocessors import ClearSolutions

    sheet = small()
    notebook = build.nbgrader_notebook(sheet)
    MetadataValidator().validate_nb(notebook)
    marks = {
        c.metadata["nbgrader"]["grade_id"]: c for c in notebook.cells if "nbgrader" in c.metadata
    }
    assert list(marks) == [
        *("given-1", "double", "double-check", "total_of_doubles", "total_of_doubles-check"),
        *("why-question", "why"),
    ]
    points = {i: c.metadata["nbgrader"].get("points") for i, c in marks.items()}
    assert points["double-check"] == 2 and points["total_of_doubles-check"] == 3
    assert points["why"] == 3 and points["double"] is None
    assert "Two points" in marks["why"].source
    notebook, _ = ClearSolutions().preprocess(notebook, {})
    text = build.notebook_text(notebook)
    assert not [line for line in secret_lines(sheet) if json.dumps(line)[1:-1] in text]
    assert "def double(x):" in marks["double"].source
    assert "raise NotImplementedError" in marks["double"].source


# --- the page ------------------------------------------------------------------------------------


def test_a_page_has_stubs_and_hints_and_runs_no_check() -> None:
    page = build.book_page(small())
    assert page.startswith("---\n") and "format_name: myst" in page
    assert ":tags: [skip-execution]\n\ncheck(" in page
    assert "::::{dropdown} Hint 2 of 2\nLook at the sign.\n::::" in page
    assert "(3 points, graded by a person)" in page
    assert page.count('raise NotImplementedError("write double")') == 1


def test_a_stub_that_fails_when_it_is_run_is_not_run() -> None:
    text = SHEET.replace(
        "def double(x):\n", "x = 1\n### BEGIN SOLUTION\ny = 2\n### END SOLUTION\n\ndef double(x):\n"
    )
    page = build.book_page(small(text))
    assert page.count("skip-execution") == 3


def test_only_a_private_page_shows_solutions_and_says_so() -> None:
    page = build.book_page(small(), with_solutions=True)
    assert "private build" in page and "{dropdown} Solution of double" in page
    assert "{dropdown} Rubric of why" in page and "total = 2 * sum(numbers)" in page
    assert "private build" not in build.book_page(small())


def app(**config: Any) -> Any:
    """As much of Sphinx as the extension looks at."""
    settings = {"radixlab_solutions": False, "radixlab_repository": "", "html_copy_source": False}
    return SimpleNamespace(config=SimpleNamespace(**(settings | config)))


def test_a_build_that_is_to_be_published_refuses_to_show_solutions() -> None:
    errors = pytest.importorskip("sphinx.errors")
    from exercise_pages import refuse_to_publish

    refuse_to_publish(app())
    refuse_to_publish(app(radixlab_solutions=True))
    with pytest.raises(errors.ExtensionError, match="private"):
        refuse_to_publish(app(radixlab_solutions=True, radixlab_repository="https://x/y/z"))
    with pytest.raises(errors.ExtensionError, match="html_copy_source"):
        refuse_to_publish(app(html_copy_source=True))


def test_sphinx_reads_the_page_in_place_of_the_source(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    from exercise_pages import is_sheet, notebook_of, read_sheet

    sphinx = app()
    sphinx.outdir = tmp_path / "html"
    source = [(ROOT / "book/exercises/02-split.md").read_text(encoding="utf-8")]
    read_sheet(sphinx, "exercises/02-split", source)
    assert source[0] == build.book_page(ours("02-split"))
    student = build.notebook_text(build.student_notebook(ours("02-split")))
    assert notebook_of(sphinx, "02-split").read_text(encoding="utf-8") == student
    assert not is_sheet("02-radix-tree") and not is_sheet("exercises/index")


# --- packs and files -----------------------------------------------------------------------------


def test_22_a_pack_has_the_visible_cases_and_nothing_hidden() -> None:
    """An `assert` that students can read tells the answer (jupyter/nbgrader#869)."""
    sheet = small()
    pack = visible_pack(sheet)
    assert pack["order"] == ["double", "total_of_doubles"]
    task = pack["exercises"]["double"]
    assert [case["args"] for case in task["cases"]] == [[2], [-3]]
    assert [case["expected"] for case in task["cases"]] == [4, -6]
    assert task["parameters"] == ["x"] and task["given"] == ["ZERO", "Pair"]
    assert pack["exercises"]["total_of_doubles"]["parameters"] == ["numbers"]
    text = json.dumps(pack)
    assert all(exercise.solution not in text for exercise in sheet.exercises.values())
    assert "total = 2 * sum(numbers)" not in text and "rng" not in text
    assert list(visible_pack(sheet, only="double")["exercises"]) == ["double"]


def test_visible_cases_may_be_written_as_they_stand_in_the_pack() -> None:
    """A line of numbers is no secret only because the pack's JSON looks like it."""
    text = SHEET.replace("[[5]]", "[[\n1001, 1002, 1003, 1004,\n1005]]")
    cases = visible_pack(small(text))["exercises"]["total_of_doubles"]["cases"]
    assert cases[-1]["args"] == [[1001, 1002, 1003, 1004, 1005]]


def test_the_mistakes_of_a_pack_are_those_that_the_grader_knows() -> None:
    sheet = small()
    exercise = sheet.exercises["double"]
    cases = make_cases(sheet, exercise)
    wanted = [
        {"message": message, "outcomes": [dataclasses.asdict(outcome) for outcome in outcomes]}
        for message, outcomes in mistake_outcomes(sheet, exercise, cases)
        if not all(map(is_right, outcomes, cases))
    ]
    assert visible_pack(sheet)["exercises"]["double"]["mistakes"] == wanted
    assert [mistake["outcomes"][0]["status"] for mistake in wanted] == ["ok", "error"]


def test_files_are_written_and_a_notebook_with_answers_in_it_is_kept(tmp_path: Path) -> None:
    sheet = small()
    names = ["classroom_sheet.check.json", "classroom_sheet.ipynb"]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / names[0]).write_text("{}")  # where it lay before
    assert [p.name for p in write_student_files(sheet, tmp_path / "new")] == names
    there = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert there == [".checks", names[1]], "nothing but notebooks is seen in the folder"
    notebook = tmp_path / "new/classroom_sheet.ipynb"
    assert not build.written_in(notebook)
    assert [p.name for p in write_student_files(sheet, tmp_path / "new")] == names

    answered = nbformat.read(notebook, as_version=4)
    by_role(answered, "answer").source = "def double(x):\n    return x + x"
    nbformat.write(answered, notebook)
    kept = notebook.read_bytes()
    assert build.written_in(notebook)
    written = write_student_files(sheet, tmp_path / "new", with_solutions=True)
    assert [p.name for p in written] == [names[0], "classroom_sheet.solutions.ipynb"]
    assert notebook.read_bytes() == kept


def test_a_notebook_says_what_jupyterlab_would_write_into_it(tmp_path: Path) -> None:
    """Else one that was only opened is marked as changed."""
    kernel = pytest.importorskip("ipykernel.ipkernel").IPythonKernel
    spec = pytest.importorskip("ipykernel.kernelspec").get_kernel_dict()
    write_student_files(small(), tmp_path)
    notebook = nbformat.read(tmp_path / "classroom_sheet.ipynb", as_version=4)
    assert notebook.metadata["language_info"] == kernel.language_info
    name = {"display_name": spec["display_name"], "language": spec["language"], "name": "python3"}
    assert notebook.metadata["kernelspec"] == name
    for path in find_sheets():
        assert f"\n  display_name: {spec['display_name']}\n" in path.read_text(encoding="utf-8")


def test_outputs_alone_are_no_work_and_a_broken_file_is(tmp_path: Path) -> None:
    path = tmp_path / "classroom_sheet.ipynb"
    notebook = build.student_notebook(small())
    by_role(notebook, "check").outputs = [nbformat.v4.new_output("stream", text="...")]
    nbformat.write(notebook, path)
    assert not build.written_in(path)
    path.write_text("{", encoding="utf-8")
    assert build.written_in(path)
    assert not build.written_in(tmp_path / "nothing.ipynb")


def test_the_built_in_sheets_are_put_into_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"book/exercises": "radixlab/classroom/sheets"}


@pytest.mark.parametrize("place", ["exercises", "notebooks/exercises", "book/exercises"])
def test_no_notebook_is_ever_written_back_into_its_sheet(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In JupyterLab jupytext saves a notebook and its pair: a sheet must have none."""
    for name in ("jupytext.toml", "book/exercises/jupytext.toml"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    path = tmp_path / "book/exercises/classroom_sheet.md"
    path.write_text(SHEET, encoding="utf-8")
    if not place.startswith("book"):
        path = tmp_path / place / "classroom_sheet.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(build.notebook_text(build.student_notebook(small())), encoding="utf-8")
    jupytext(["--paired-paths", str(path)])
    assert capsys.readouterr() == ("", "")


def test_a_chapter_is_a_pair(capsys: pytest.CaptureFixture[str]) -> None:
    jupytext(["--paired-paths", str(ROOT / "notebooks/00-start.ipynb")])
    assert capsys.readouterr().out.strip().endswith("book/00-start.md")
