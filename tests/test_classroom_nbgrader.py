"""nbgrader's whole cycle with our sandbox in it, in a course with one small sheet.

The submissions try what a notebook can try: none of it may change a grade, and nothing of it runs
anywhere but in the sandbox.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest

pytest.importorskip("nbgrader")

from bs4 import BeautifulSoup
from nbconvert.exporters import HTMLExporter
from nbgrader.api import Gradebook

from radixlab.classroom.build import nbgrader_notebook
from radixlab.classroom.grade import AnswerKey, grade_submission
from radixlab.classroom.nbgrader import (
    CUT,
    BadCourse,
    fill,
    odd_files,
    shown_safely,
    write_course,
)
from radixlab.classroom.sheet import parse_sheet
from radixlab.classroom.submission import CodeCell, read_submission
from radixlab.classroom.words import find_answers

SHEET = """\
---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
radixlab: {sheet: 91-sums, title: Two sums, seconds: 0.3}
---

# Two sums

```{code-cell} ipython3
from radixlab.classroom import check
```

```{code-cell} ipython3
---
role: given
---
START = 0
```

```{code-cell} ipython3
---
role: answer
exercise: add_all
points: {seen: 2.5, hidden: 4}
visible: [seen]
---
def add_all(numbers):
    "The sum of a list."
    ### BEGIN SOLUTION
    return START + sum(the_number for the_number in numbers)
    ### END SOLUTION
```

```{code-cell} ipython3
---
role: cases
exercise: add_all
---
def cases(rng):
    yield "seen", [[1, 2, 3]]
    yield "seen", [[]]
    for _ in range(4):
        yield "hidden", [[rng.randrange(70_000, 80_000) for _ in range(3)]]
```

```{code-cell} ipython3
---
role: wrong
exercise: add_all
---
# The first number is left out. Where does a list begin?
def add_all(numbers):
    return sum(numbers[1:])
```

```{code-cell} ipython3
---
role: answer
exercise: largest
points: {seen: 1, hidden: 2}
visible: [seen]
entry: run_largest
---
def largest(numbers):
    "The largest of a list."
    ### BEGIN SOLUTION
    return max(each_number for each_number in numbers)
    ### END SOLUTION
```

```{code-cell} ipython3
---
role: driver
exercise: largest
---
def run_largest(numbers):
    return {"largest": largest(numbers)}
```

```{code-cell} ipython3
---
role: cases
exercise: largest
---
def cases(rng):
    yield "seen", [[1, 3, 2]]
    yield "seen", [[5]]
    for _ in range(4):
        yield "hidden", [[rng.randrange(70_000, 80_000) for _ in range(3)]]
```

+++ {"role": "written", "exercise": "why", "points": 4}

Why is a sum of nothing zero?

+++ {"role": "rubric", "exercise": "why"}

Adding nothing to a sum must leave it as it is: 4 points.

+++
"""
NAME = "91-sums"
SEED = "the seed of a test, which nobody else has"
HIDDEN = re.compile(r"\b7\d{4}\b|\b2[1-3]\d{4}\b")
"""Hidden inputs, and the sums that they give."""

ADD_ALL = "def add_all(numbers):\n    return sum(numbers)"
LARGEST = "def largest(numbers):\n    return max(numbers)"
FIRST_LEFT_OUT = "def add_all(numbers):\n    return sum(numbers[1:])"
SCRIPT = "Nothing added.\n\n<img src=x onerror=\"document.title='mine'\"> and $a<b$, `list<int>`"

Notebook = Any
_v4: Any = nbformat.v4


def cell(notebook: Notebook, role: str, exercise: str = "") -> Notebook:
    """The cell of a released notebook that is for this."""
    says = {"role": role, "exercise": exercise, "sheet": NAME}
    (found,) = (c for c in notebook.cells if c.metadata.get("radixlab") == says)
    return found


def answer(notebook: Notebook, add_all: str = ADD_ALL, largest: str = LARGEST) -> None:
    cell(notebook, "answer", "add_all").source = add_all
    cell(notebook, "answer", "largest").source = largest


def right(notebook: Notebook) -> None:
    answer(notebook)
    cell(notebook, "written-answer", "why").source = SCRIPT


def words_elsewhere(notebook: Notebook) -> None:
    answer(notebook)
    notebook.cells.append(_v4.new_code_cell("1"))
    notebook.cells.append(_v4.new_markdown_cell("Nothing added, far away."))


def words_in_the_question(notebook: Notebook) -> None:
    answer(notebook)
    cell(notebook, "written", "why").source += "\n\nNothing added, in the question."


def untouched(notebook: Notebook) -> None:
    pass


def mistaken(notebook: Notebook) -> None:
    answer(notebook, FIRST_LEFT_OUT)


def shown_only(notebook: Notebook) -> None:
    answer(notebook, "def add_all(numbers):\n    return {3: 6, 0: 0}.get(len(numbers))")


def endless(notebook: Notebook) -> None:
    loop = "try:\n            while True: pass\n        except BaseException: pass"
    answer(notebook, largest=f"def largest(numbers):\n    while True:\n        {loop}")


def deleted_cells(notebook: Notebook) -> None:
    answer(notebook)
    gone = [cell(notebook, *of) for of in (("check", "add_all"), ("answer", "add_all"), ("given",))]
    notebook.cells = [c for c in notebook.cells if not any(c is g for g in gone)]


def edited_checks(notebook: Notebook) -> None:
    answer(notebook, FIRST_LEFT_OUT)
    check = cell(notebook, "check", "add_all")
    check.source = "6.5"
    check.metadata["nbgrader"] |= {"points": 1000.0, "locked": False, "solution": True}
    cell(notebook, "check", "largest").metadata["nbgrader"]["grade"] = False
    cell(notebook, "given").source = "START = 10"


def doubled_cells(notebook: Notebook) -> None:
    answer(notebook, FIRST_LEFT_OUT)
    for of in (("check", "largest"), ("answer", "add_all")):
        notebook.cells.append(nbformat.from_dict(json.loads(json.dumps(cell(notebook, *of)))))
    notebook.cells[-1].source = ADD_ALL  # the last definition counts, as it does in Python


def forged_outputs(notebook: Notebook) -> None:
    answer(notebook, FIRST_LEFT_OUT)
    for c in notebook.cells:
        if c.cell_type == "code":
            c.outputs = [_v4.new_output("execute_result", {"text/plain": "6.5"})]


def odd_metadata(notebook: Notebook) -> None:
    answer(notebook)
    for c in notebook.cells[2:]:
        c.metadata = {"nbgrader": "all of it"} | {"radixlab": c.metadata["radixlab"]}
    notebook.metadata = {"radixlab": [], "kernelspec": {"name": "no such kernel"}}


def another_sheet(notebook: Notebook) -> None:
    answer(notebook)
    notebook.metadata["radixlab"] = {"sheet": "02-split"}


def no_metadata(notebook: Notebook) -> None:
    right(notebook)
    for c in notebook.cells:
        c.metadata = {}


def own_cells(notebook: Notebook) -> None:
    answer(notebook, "def add_all(numbers):\n    return helper(numbers)")
    helper = "%time\n!touch magic\ndef helper(numbers):\n    return sum(numbers)"
    place = notebook.cells.index(cell(notebook, "answer", "add_all"))
    notebook.cells.insert(place, _v4.new_code_cell(helper))
    notebook.cells.append(_v4.new_code_cell("this is no Python"))


def typed_elsewhere(notebook: Notebook) -> None:
    answer(notebook, "", "def largest(numbers):\n    return top(numbers) or math.inf")
    first = next(c for c in notebook.cells if c.cell_type == "code")
    first.source = "import nowhere\nimport math"
    cell(notebook, "given").source += "\n\ndef top(numbers):\n    return max(numbers)"
    cell(notebook, "check", "add_all").source = ADD_ALL


def writes_a_file(notebook: Notebook) -> None:
    write = "import pathlib\npathlib.Path('MARKER').write_text('ran')"
    tried = "import pathlib\ntry:\n    pathlib.Path('MARKER').write_text('')\nexcept OSError: pass"
    answer(notebook, f"{tried}\n{ADD_ALL}")
    cell(notebook, "check", "largest").source = write
    notebook.cells.append(_v4.new_code_cell(write))


def half_characters(notebook: Notebook) -> None:
    answer(notebook, largest="def largest(numbers):\n    return '\\ud800'")
    notebook.cells.append(_v4.new_code_cell("'\ud800'"))
    cell(notebook, "written-answer", "why").source = "\ud800"


SUBMISSIONS = {
    right: 9.5,
    words_elsewhere: 9.5,
    words_in_the_question: 9.5,
    untouched: 0.0,
    mistaken: 3.0,
    shown_only: 5.5,
    endless: 6.5,
    deleted_cells: 3.0,
    edited_checks: 3.0,
    doubled_cells: 9.5,
    forged_outputs: 3.0,
    odd_metadata: 9.5,
    another_sheet: 0.0,
    no_metadata: 9.5,
    own_cells: 9.5,
    typed_elsewhere: 9.5,
    writes_a_file: 9.5,
    half_characters: 6.5,
}
"""Each with the points that it must get, answers in words not counted."""
FILES = {
    "not_json": b"%PDF-1.7 this is no notebook",
    "no_cells": b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": 5}',
    "no_file": b"",
}


class Course(NamedTuple):
    """A course after one whole cycle, and what nbgrader said on the way."""

    folder: Path
    marker: Path
    logs: dict[str, str]

    def feedback(self, student: str) -> str:
        path = self.folder / "feedback" / student / NAME / f"{NAME}.html"
        return path.read_text(encoding="utf-8")

    def points(self, student: str) -> dict[str, float | None]:
        """By cell, as in the gradebook; None where a person has to grade."""
        with Gradebook(f"sqlite:///{self.folder / 'gradebook.db'}") as gradebook:
            grades = gradebook.find_submission_notebook(NAME, NAME, student).grades
            return {g.name: None if g.needs_manual_grade else g.score for g in grades}


def nbgrader(folder: Path, *words: str, seed: str = SEED) -> str:
    """Run nbgrader as a teacher does whose PATH does not have its programs."""
    home = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "RADIXLAB_CLASSROOM_SEED": seed}
    command = [sys.executable, "-m", "nbgrader", *words]
    done = subprocess.run(command, cwd=folder, env=home, capture_output=True, text=True)
    return done.stdout + done.stderr


def release_of(folder: Path) -> Notebook:
    return nbformat.read(folder / "release" / NAME / f"{NAME}.ipynb", as_version=4)


def submit(folder: Path, student: str, data: bytes) -> None:
    path = folder / "submitted" / student / NAME / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    folder = tmp_path_factory.mktemp("course")
    marker = tmp_path_factory.mktemp("elsewhere") / "marker"
    write_course(folder, [parse_sheet(SHEET, NAME)])
    (folder / "source" / NAME / "my-solutions.md").write_text("all of them", encoding="utf-8")
    logs = {"generate": nbgrader(folder, "generate_assignment", NAME)}
    for change in SUBMISSIONS:
        notebook = release_of(folder)
        change(notebook)
        data = json.dumps(notebook).replace("MARKER", str(marker)).encode()
        submit(folder, change.__name__, data)
    for student, data in FILES.items():
        submit(folder, student, data)
    links = {"a_link": folder / "source" / NAME / f"{NAME}.ipynb", "zero.txt": Path("/dev/zero")}
    submit(folder, "links", json.dumps(release_of(folder)).encode())
    for name, target in links.items():
        (folder / "submitted" / "links" / NAME / name).symlink_to(target)
    for step in ("autograde", "generate_feedback"):
        logs[step] = nbgrader(folder, step, NAME)
    return Course(folder, marker, logs)


@pytest.fixture(scope="module")
def answer_key() -> AnswerKey:
    return AnswerKey.make(parse_sheet(SHEET, NAME), SEED)


@pytest.mark.long
def test_the_release_has_neither_solutions_nor_hidden_cases_nor_what_lies_beside(course):
    release = course.folder / "release" / NAME
    assert sorted(p.name for p in release.iterdir()) == [f"{NAME}.check.json", f"{NAME}.ipynb"]
    notebook = (release / f"{NAME}.ipynb").read_text(encoding="utf-8")
    both = notebook + (release / f"{NAME}.check.json").read_text(encoding="utf-8")
    teachers = ("the_number", "each_number", "rng", "must leave it", "SOLUTION", SEED)
    assert [word for word in teachers if word in both] == []
    assert "run_largest" not in notebook
    assert notebook.count("NotImplementedError(") == 2


@pytest.mark.long
@pytest.mark.parametrize("change", SUBMISSIONS, ids=lambda change: change.__name__)
def test_each_submission_gets_what_it_deserves(course, change):
    points = course.points(change.__name__)
    assert (points["add_all-check"] or 0) + (points["largest-check"] or 0) == SUBMISSIONS[change]


@pytest.mark.long
@pytest.mark.parametrize("student", [*(c.__name__ for c in SUBMISSIONS), *FILES, "links"])
def test_grades_are_those_of_the_plain_path(course, answer_key, student):
    path = course.folder / "submitted" / student / NAME / f"{NAME}.ipynb"
    result = grade_submission(answer_key, student, path)
    plain = {f"{exercise.exercise}-check": exercise.points for exercise in result.exercises}
    points = course.points(student)
    assert {name: points[name] for name in ("add_all-check", "largest-check")} == (
        plain or {"add_all-check": 0, "largest-check": 0}
    )


@pytest.mark.long
def test_an_answer_in_words_waits_for_a_person_and_no_answer_is_worth_nothing(course):
    assert course.points("right")["why"] is None
    assert course.points("untouched")["why"] == 0
    assert course.points("not_json")["why"] == 0


@pytest.mark.long
@pytest.mark.long
@pytest.mark.parametrize("student", ["words_elsewhere", "words_in_the_question"])
def test_an_answer_is_found_where_the_plain_path_finds_it(course, student):
    """An answer beside its cell counted as none."""
    sheet = parse_sheet(SHEET, NAME)
    (path,) = (course.folder / "submitted" / student / NAME).glob("*.ipynb")
    answers = find_answers(sheet, read_submission(path))
    graded = nbformat.read(course.folder / "autograded" / student / NAME / path.name, as_version=4)
    place = cell(graded, "written-answer", "why")
    assert "Nothing added" in answers["why"] and place.source == shown_safely(answers["why"])
    assert course.points(student)["why"] is None


@pytest.mark.long
def test_nothing_ran_outside_of_the_sandbox(course):
    assert not course.marker.exists()
    assert "kernel" not in course.logs["autograde"].lower()


@pytest.mark.long
def test_feedback_names_the_mistake_and_shows_visible_cases_only(course):
    feedback = course.feedback("mistaken")
    assert "The first number is left out. Where does a list begin?" in feedback
    assert "add_all([1, 2, 3])" in feedback
    for student in [*(change.__name__ for change in SUBMISSIONS), *FILES]:
        page = course.feedback(student)
        page = re.sub(r"<style.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)
        assert not HIDDEN.search(page)
        assert [word for word in ("Traceback", "the_number", SEED) if word in page] == []


@pytest.mark.long
def test_a_file_that_is_no_notebook_is_told_so(course):
    assert "The file is not a notebook: it is not JSON." in course.feedback("not_json")
    assert "belongs to the sheet 02-split" in course.feedback("another_sheet")


@pytest.mark.long
def test_forged_outputs_and_odd_metadata_do_not_reach_the_teacher(course):
    for student in ("forged_outputs", "edited_checks", "doubled_cells", "odd_metadata"):
        path = course.folder / "autograded" / student / NAME / f"{NAME}.ipynb"
        graded, release = nbformat.read(path, as_version=4), release_of(course.folder)
        assert graded.metadata == release.metadata
        shown = [(c.metadata.get("nbgrader"), c.source) for c in graded.cells]
        for kept in (("given",), ("check", "add_all"), ("check", "largest")):
            of_release = cell(release, *kept)
            assert shown.count((of_release.metadata["nbgrader"], of_release.source)) == 1
        outputs = [output for c in graded.cells if c.cell_type == "code" for output in c.outputs]
        assert len(outputs) == 2 and all("<table" in o.data["text/html"] for o in outputs)


@pytest.mark.long
def test_cells_of_their_own_are_shown_where_they_were(course):
    path = course.folder / "autograded" / "own_cells" / NAME / f"{NAME}.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    sources = [c.source for c in cells]
    helper = next(i for i, source in enumerate(sources) if "def helper" in source)
    assert "return helper(numbers)" in sources[helper + 1]
    assert sources[-1] == "this is no Python"
    assert "stops with SyntaxError" in cells[-1].outputs[0].text


@pytest.mark.long
def test_code_in_cells_that_are_not_for_it_is_shown_and_theirs_are_as_released(course):
    path = course.folder / "autograded" / "typed_elsewhere" / NAME / f"{NAME}.ipynb"
    graded, release = nbformat.read(path, as_version=4), release_of(course.folder)
    sources = [c.source for c in graded.cells]
    assert [c.source for c in release.cells if c.source not in sources] == [
        cell(release, "answer", of).source for of in ("add_all", "largest")
    ]
    own = [c for c in graded.cells if c.id.startswith("own-")]
    assert ["nowhere" in own[0].source, "def top" in own[1].source, own[2].source] == [
        *(True, True),
        ADD_ALL,
    ]
    assert not any(c.outputs for c in own)


@pytest.mark.long
def test_html_in_an_answer_is_text_in_what_formgrader_shows(course):
    for step in ("autograded", "feedback"):
        (path,) = (course.folder / step / "right" / NAME).glob(f"{NAME}.[hi]*")
        assert "<img src=x" not in path.read_text(encoding="utf-8")
        assert "&lt;img src=x" in path.read_text(encoding="utf-8")


@pytest.mark.long
def test_links_are_dropped_before_what_they_point_to_is_copied(course):
    names = [f.name for f in course.folder.glob(f"*/links/{NAME}/*") if f.suffix != ".html"]
    assert set(names) == {f"{NAME}.ipynb", f"{NAME}.check.json"}


@pytest.mark.long
def test_links_are_not_collected(course):
    nbgrader(course.folder, "release_assignment", NAME)
    inbound = course.folder / "exchange" / course.folder.name / "inbound"
    for student, name in (("plain", "new.ipynb"), ("linked", f"{NAME}.ipynb")):
        folder = inbound / f"{student}+{NAME}+2030-01-01 00:00:00 UTC"
        folder.mkdir()
        if student == "linked":
            (folder / name).symlink_to(course.folder / "source" / NAME / name)
        else:
            (folder / name).write_text("{}", encoding="utf-8")
    log = nbgrader(course.folder, "collect", NAME)
    assert (course.folder / "submitted" / "plain" / NAME / "new.ipynb").exists()
    assert not (course.folder / "submitted" / "linked" / NAME).exists()
    assert "Not collected" in log


@pytest.mark.long
def test_without_a_seed_nothing_is_graded_and_nothing_forgotten(course):
    before = course.points("right")
    log = nbgrader(course.folder, "autograde", NAME, "--student=right", "--force", seed="")
    assert "set RADIXLAB_CLASSROOM_SEED" in log
    assert course.points("right") == before
    nbgrader(course.folder, "autograde", NAME, "--student=right", "--force")
    assert course.points("right") == before


@pytest.mark.long
def test_the_course_is_brought_up_to_date_and_its_settings_are_left_alone(course):
    config = course.folder / "nbgrader_config.py"
    config.write_text(config.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    write_course(course.folder, [parse_sheet(SHEET.replace("a list", "the list"), NAME)])
    assert config.read_text(encoding="utf-8").endswith("# mine\n")
    text = (course.folder / "sheets" / f"{NAME}.md").read_text(encoding="utf-8")
    assert "The sum of the list." in text


@pytest.mark.long
def test_a_sheet_that_is_no_longer_the_released_one_grades_nothing(course):
    before = course.points("own_cells")
    write_course(course.folder, [parse_sheet(SHEET.replace("hidden: 4", "hidden: 5"), NAME)])
    log = nbgrader(course.folder, "autograde", NAME, "--student=own_cells", "--force")
    write_course(course.folder, [parse_sheet(SHEET, NAME)])
    assert "other exercises or points than the release" in log
    assert course.points("own_cells") == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("nbgrader_config.py", "import os", "import os os", "SyntaxError"),
        ("nbgrader_config.json", "radixlab.classroom.nbgrader", "radixlab.gone", "'radixlab.gone'"),
    ],
)
def test_broken_settings_do_not_switch_the_sandbox_off(course, name, old, new, told):
    settings, before = course.folder / name, course.points("writes_a_file")
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace(old, new), encoding="utf-8")
    log = nbgrader(course.folder, "autograde", NAME, "--student=writes_a_file", "--force")
    settings.write_text(text, encoding="utf-8")
    assert told in log
    assert not course.marker.exists()
    assert course.points("writes_a_file") == before


def test_a_course_with_other_settings_is_refused(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()", encoding="utf-8")
    with pytest.raises(BadCourse, match="would run without a sandbox"):
        write_course(tmp_path, [parse_sheet(SHEET, NAME)])
    assert [path.name for path in tmp_path.iterdir()] == ["nbgrader_config.py"]


@pytest.mark.long
def test_validate_fails_in_one_line_for_a_wrong_answer_and_passes_a_right_one(course):
    said = {}
    for change in (mistaken, right):
        folder = course.folder / "student" / change.__name__
        folder.mkdir(parents=True)
        notebook = release_of(course.folder)
        change(notebook)
        nbformat.write(notebook, folder / f"{NAME}.ipynb")
        pack = course.folder / "release" / NAME / f"{NAME}.check.json"
        (folder / pack.name).write_bytes(pack.read_bytes())
        said[change] = nbgrader(folder, "validate", f"{NAME}.ipynb")
    assert "VALIDATION FAILED ON 2 CELL(S)" in said[mistaken]  # one is the answer in words
    assert "    ChecksFailed: ✗ add_all fails in 1 of 2 visible cases.\n" in said[mistaken]
    assert "Traceback" not in said[mistaken]
    assert "Success! Your notebook passes all the tests." in said[right]


def test_links_and_pipes_are_odd_and_plain_files_are_not(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "plain").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "plain")
    (tmp_path / "folder" / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert sorted(p.name for p in odd_files(tmp_path)) == ["link", "loop", "pipe"]


BAD = {
    "tag": "<img src=x onerror=alert()>",
    "script": "<script>\n\nalert()\n\n</script>",
    "link": "[a](javascript:alert()) [b]\n\n[b]: javascript:alert()",
    "attachment": "![a](attachment:none.png) ![b](&#97;ttachment:none.png)",
    "fence": "</div>\n\n```\n</code><b>\n\n```\n\n<b>",
    "math": "$$\n<b>\n$$\n\n\\begin{x}<b>\\end{x} $<b>$",
}
ALLOWED = {"div", "p", "pre", "code", "a"}


@pytest.mark.parametrize("kind", BAD)
def test_an_answer_in_words_is_shown_without_any_html_of_the_student(kind):
    notebook = _v4.new_notebook(cells=[_v4.new_markdown_cell(shown_safely(BAD[kind]))])
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    shown = BeautifulSoup(page, "html.parser").select_one(".jp-RenderedHTMLCommon, .rendered_html")
    assert shown is not None
    assert {tag.name for tag in shown.find_all()} <= ALLOWED
    assert not any(str(link["href"]).startswith("javascript") for link in shown.find_all("a"))


def test_markdown_of_an_answer_is_still_markdown():
    page = shown_safely("It is *so*, since $a_1$:\n\n* one\n* two")
    for part in ("<em>so</em>", "<li>one</li>", "&#36;a_1&#36;"):
        assert part in page


def test_the_release_is_filled_with_sources_alone():
    release = nbgrader_notebook(parse_sheet(SHEET, NAME))
    before = json.loads(json.dumps(release))
    long = "x = 1\n" * 10_000
    cells = (CodeCell(1, "own = 1", "nothing"), CodeCell(4, ADD_ALL, "add_all"), CodeCell(9, long))
    filled = fill(release, cells, {"why": "*so*", "odd": "no"})
    own = [c for c in filled.cells if c.id.startswith("own-")]
    assert [c.id for c in own] == ["own-1", "own-9"]
    assert own[1].source.endswith(CUT) and len(own[1].source) < 21_000
    place = filled.cells.index(own[0])
    assert filled.cells[place + 1].source == ADD_ALL
    assert cell_ids(filled, own) == [c["id"] for c in before["cells"]]


def cell_ids(notebook: Notebook, without: list[Notebook]) -> list[str]:
    return [c.id for c in notebook.cells if not any(c is w for w in without)]
