"""`radixlab classroom`, command by command, with a small sheet and real submissions."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import typer
from click import Group
from typer.testing import CliRunner, Result

from radixlab.classroom.build import notebook_text, student_notebook
from radixlab.classroom.cases import make_cases
from radixlab.classroom.leaks import refuse_leaks
from radixlab.classroom.packs import visible_pack
from radixlab.classroom.sandbox import SandboxUnavailable
from radixlab.classroom.sheet import BadSheet, Sheet, find_sheets, load_sheet
from radixlab.cli import app

BOOK = Path(__file__).resolve().parents[1] / "book"
SOLUTION = "    return sum([number, number])"
SOURCE = '''---
radixlab:
  sheet: 09-twice
  title: Twice
  seconds: 0.3
---

# Twice

```{code-cell} ipython3
from radixlab.classroom import check
```

```{code-cell} ipython3
---
role: answer
exercise: twice
points: {example: 1, random: 3}
visible: [example]
---
def twice(number):
    """Two times a number."""
    ### BEGIN SOLUTION
    return sum([number, number])
    ### END SOLUTION
```

+++ {"role": "hint", "exercise": "twice"}

Once, and once more.

+++

```{code-cell} ipython3
---
role: cases
exercise: twice
---
def cases(rng):
    yield "example", [1]
    yield "example", [2]
    for _ in range(4):
        yield "random", [rng.randrange(1000, 10**9)]
```

```{code-cell} ipython3
---
role: wrong
exercise: twice
---
# You square. Two times three is six.
def twice(number):
    return number * number
```

+++ {"role": "written", "exercise": "why", "points": 2}

Why twice?

+++ {"role": "rubric", "exercise": "why"}

Two points for knowing that once is not enough.

+++
'''


ANSWERS = {
    "ana": "def twice(number):\n    return number + number",
    "ben": "def twice(number):\n    return number**2",
    "cleo": "def twice(number):\n    while True:\n        pass",
    "dora": "twice = 2 / 0",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "09-twice.md"
    path.write_text(SOURCE, encoding="utf-8")
    return path


@pytest.fixture
def sheet(source: Path) -> Sheet:
    return load_sheet(source)


@pytest.fixture
def submissions(tmp_path: Path, sheet: Sheet) -> Path:
    """Two of them."""
    folder = tmp_path / "submissions"
    folder.mkdir()
    hand_in(folder, sheet, "ana", ANSWERS["ana"], "Because.")
    hand_in(folder, sheet, "ben", ANSWERS["ben"])
    return folder


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with five submissions and, in `out`, their grades; and what grading says."""
    folder = tmp_path_factory.mktemp("graded")
    source = folder / "09-twice.md"
    source.write_text(SOURCE, encoding="utf-8")
    submissions = folder / "submissions"
    submissions.mkdir()
    for student, code in ANSWERS.items():
        words = "Because." if student == "ana" else ""
        hand_in(submissions, load_sheet(source), student, code, words)
    (submissions / "emil.ipynb").write_text("{")
    return folder, grade(source, submissions, folder / "out", "--workers", 2).output


def hand_in(folder: Path, sheet: Sheet, student: str, code: str, words: str = "") -> None:
    notebook = student_notebook(sheet)
    for cell in notebook.cells:
        if cell.metadata["radixlab"]["role"] == "answer":
            cell.source = code
        if cell.metadata["radixlab"]["role"] == "written-answer" and words:
            cell.source = words
    (folder / f"{student}.ipynb").write_text(notebook_text(notebook), encoding="utf-8")


def run(*arguments: object, code: int = 0, **environment: str) -> Result:
    without = {"RADIXLAB_CLASSROOM_SEED": "", "COLUMNS": "120"} | environment
    result = CliRunner().invoke(app, ["classroom", *map(str, arguments)], env=without)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def grade(source: Path, submissions: Path, out: Path, *options: object, code: int = 0) -> Result:
    seed = {"RADIXLAB_CLASSROOM_SEED": "secret"}
    return run("grade", source, submissions, out, *options, code=code, **seed)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


# --- what is needed for what ---------------------------------------------------------------------


def test_help_lists_the_classroom_and_loads_nothing_of_it() -> None:
    code = """
import sys
from radixlab.cli import app
try:
    app(["classroom", "--help"])
except SystemExit:
    heavy = {"jupytext", "nbformat", "nbgrader", "jinja2", "matplotlib"}
    sys.exit(str(sorted(heavy & set(sys.modules))))
"""
    answer = python(code)
    assert answer.stderr.strip() == "[]"
    names = ("build", "release", "grade", "feedback", "export", "audit", "list", "nbgrader")
    for command in names:
        assert re.search(rf"\b{command}\b", answer.stdout), command


@pytest.mark.parametrize("missing", ["jupytext", "nbformat"])
def test_a_missing_package_is_named_with_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from radixlab.cli import app; app()"
    answer = subprocess.run(
        [sys.executable, "-c", code, "classroom", "build", "02"], capture_output=True, text=True
    )
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1 and missing in answer.stderr
    assert answer.stderr.endswith(": pip install 'radixlab[classroom]'\n")


def test_the_list_has_every_sheet() -> None:
    output = run("list").output
    for path in find_sheets():
        assert path.stem in output


def test_an_unknown_sheet_is_refused_with_the_names_of_those_there_are() -> None:
    output = run("build", "nothing", code=2).output
    assert "InvalidArgument: sheet must be one of" in output
    assert "02-split" in output


# --- build and release ---------------------------------------------------------------------------


def test_build_never_overwrites_what_a_student_wrote(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "work"
    assert "jupyter lab" in run("build", source, "--out", out).output
    assert run("build", source, "--out", out, "--quiet").output == ""
    notebook = nbformat.read(out / "09-twice.ipynb", as_version=4)
    notebook.cells[-1].source = "my own words"
    nbformat.write(notebook, out / "09-twice.ipynb")
    for quiet in ([], ["--quiet"]):
        assert "was left as it is" in run("build", source, "--out", out, *quiet).output
    assert "my own words" in (out / "09-twice.ipynb").read_text(encoding="utf-8")
    run("build", source, "--out", out, "--force")
    assert "my own words" not in (out / "09-twice.ipynb").read_text(encoding="utf-8")
    assert "my own words" in (out / "09-twice.ipynb.bak").read_text(encoding="utf-8")


def test_solutions_are_built_on_request_only(source: Path, tmp_path: Path) -> None:
    for options, expected in ([], False), (["--with-solutions"], True):
        out = tmp_path / str(expected)
        run("build", source, "--out", out, *options)
        texts = [path.read_text(encoding="utf-8") for path in out.rglob("*") if path.is_file()]
        assert any(SOLUTION.strip() in text for text in texts) is expected


def test_a_release_has_notebook_checks_and_how_to_begin_and_nothing_else(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "week1"
    run("release", source, "--out", out, "--zip")
    names = [".checks/09-twice.check.json", "09-twice.ipynb", "README.txt"]
    files = [path for path in out.rglob("*") if path.is_file()]
    assert sorted(path.relative_to(out).as_posix() for path in files) == names
    with zipfile.ZipFile(tmp_path / "week1.zip") as archive:
        assert archive.namelist() == [f"week1/{name}" for name in names]
    first = (tmp_path / "week1.zip").read_bytes()
    readme = (out / "README.txt").read_text(encoding="utf-8")
    assert 'pip install "radixlab[lab]"' in readme
    assert "Hand in: 09-twice.ipynb" in readme
    assert "The folder .checks" in readme
    for path in files:
        text = path.read_text(encoding="utf-8")
        for secret in (SOLUTION.strip(), "randrange", "number * number", "once is not enough"):
            assert secret not in text, (path.name, secret)
        path.unlink()
    run("release", source, "--out", out, "--zip")
    assert (tmp_path / "week1.zip").read_bytes() == first


def test_a_release_refuses_what_is_there_and_what_breaks_a_rule(
    source: Path, tmp_path: Path
) -> None:
    run("release", source, "--out", tmp_path / "a")
    assert "already" in run("release", source, "--out", tmp_path / "a", code=2).output
    source.write_text(SOURCE.replace("Once, and once more.", SOLUTION), encoding="utf-8")
    output = run("release", source, "--out", tmp_path / "b", code=2).output
    assert "BadSheet: sheet 09-twice: " in output
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    "line", [SOLUTION, "        yield 'x', 1", "Two points for knowing that once is not enough."]
)
def test_a_pack_with_a_line_of_the_teacher_is_refused(line: str, sheet: Sheet) -> None:
    if "yield" in line:
        line = '        yield "random", [rng.randrange(1000, 10**9)]'
    pack = visible_pack(sheet)
    refuse_leaks(sheet, pack, drivers=True)
    pack["exercises"]["twice"]["driver"] += f"\nx = 1\n{line}\n"
    with pytest.raises(BadSheet, match="students would see a teacher's line"):
        refuse_leaks(sheet, pack, drivers=True)


# --- grade, feedback, export ---------------------------------------------------------------------


def test_grading_gives_tables_and_pages(graded: tuple[Path, str]) -> None:
    out, output = graded[0] / "out", graded[1]
    table = [line.split() for line in output.splitlines()]
    assert ["ana", "4", "open", "4"] in table
    assert ["ben", "0", "0", "0"] in table
    assert "emil: The file is not a notebook" in output
    assert {row["student"]: (row["twice"], row["total"]) for row in rows(out / "grades.csv")} == {
        "ana": ("4", "4"),
        "ben": ("0", "0"),
        "cleo": ("0", "0"),
        "dora": ("0", "0"),
        "emil": ("0", "0"),
    }
    told = {p.stem: p.read_text(encoding="utf-8") for p in (out / "feedback").iterdir()}
    assert "You square. Two times three is six." in told["ben"]
    assert "look for a loop without end" in told["cleo"]
    assert "stops with ZeroDivisionError" in told["dora"]
    assert "There is no <code>twice</code>: was it renamed or deleted?" in told["dora"]
    assert "could not be graded" in told["emil"]
    assert {path.name for path in out.iterdir()} == {
        "feedback",
        "grades.csv",
        "results",
        "statistics.html",
        "written.csv",
        "written.html",
    }


def test_no_hidden_input_or_result_is_in_any_file(sheet: Sheet, graded: tuple[Path, str]) -> None:
    out = graded[0] / "out"
    hidden = [c for c in make_cases(sheet, sheet.exercises["twice"], "secret") if not c.visible]
    assert len(hidden) == 4
    for path in out.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        for case in hidden:
            assert str(case.args[0]) not in text, path
            assert str(case.expected) not in text, path
        assert "secret" not in text


def test_grading_again_gives_the_same_bytes_and_keeps_what_the_teacher_wrote(
    source: Path, submissions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    grade(source, submissions, out)
    text = (out / "written.csv").read_bytes().replace(b"ana,why,,2,,", b"ana,why,1.5,2,Why?,")
    (out / "written.csv").write_bytes(text)
    run("feedback", source, out)
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    grade(source, submissions, out, "--again")
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before
    (ana,) = (row for row in rows(out / "grades.csv") if row["student"] == "ana")
    assert (ana["why"], ana["total"]) == ("1.5", "5.5")
    assert "Why?" in (out / "feedback" / "ana.html").read_text(encoding="utf-8")


def test_grading_again_also_grades_what_has_not_changed(
    source: Path, submissions: Path, tmp_path: Path
) -> None:
    grade(source, submissions, tmp_path / "out")
    ben = tmp_path / "out" / "results" / "ben.json"
    right = ben.read_text(encoding="utf-8")
    ben.write_text(right.replace("You square", "You cube"), encoding="utf-8")
    grade(source, submissions, tmp_path / "out")
    assert "You cube" in ben.read_text(encoding="utf-8")
    grade(source, submissions, tmp_path / "out", "--again")
    assert ben.read_text(encoding="utf-8") == right


@pytest.mark.parametrize("cause", ["no submissions", "no sandbox", "a bad sheet"])
def test_grading_again_loses_nothing_if_it_cannot_grade(
    source: Path, submissions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    def refuse() -> None:
        raise SandboxUnavailable("bubblewrap is not installed")

    out = tmp_path / "out"
    grade(source, submissions, out)
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    if cause == "no submissions":
        for path in submissions.iterdir():
            path.unlink()
    elif cause == "no sandbox":
        monkeypatch.setattr("radixlab.classroom.grade.check_sandbox", refuse)
    else:
        source.write_text(SOURCE.replace(SOLUTION, "    return 1 / 0"), encoding="utf-8")
    said = grade(source, submissions, out, "--again", code=2).output
    assert re.search("InvalidArgument|SandboxUnavailable|BadSheet", said)
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before


def test_who_has_taken_a_submission_back_is_named(
    source: Path, submissions: Path, tmp_path: Path
) -> None:
    grade(source, submissions, tmp_path / "out")
    (submissions / "ben.ipynb").unlink()
    output = grade(source, submissions, tmp_path / "out").output
    assert "but not handed in (any more): ben" in output


def test_without_a_seed_nothing_is_graded(source: Path, submissions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    output = run("grade", source, submissions, out, code=2).output
    assert "NoSeed: there is no secret seed in $RADIXLAB_CLASSROOM_SEED" in output
    assert 'python -c "import secrets; print(secrets.token_hex(16))"' in output
    (tmp_path / "seed.txt").write_text("\n")
    output = run("grade", source, submissions, out, "--seed-file", tmp_path / "seed.txt", code=2)
    assert "NoSeed" in output.output
    assert not out.exists()


def test_a_seed_file_is_as_good_as_the_environment(
    source: Path, submissions: Path, graded: tuple[Path, str], tmp_path: Path
) -> None:
    (tmp_path / "seed.txt").write_text("secret\n")
    run("grade", source, submissions, tmp_path / "out", "--seed-file", tmp_path / "seed.txt")
    ours, theirs = (folder / "out/results/ana.json" for folder in (tmp_path, graded[0]))
    assert ours.read_bytes() == theirs.read_bytes()


def test_without_a_sandbox_nothing_is_graded(
    source: Path, submissions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise SandboxUnavailable("bubblewrap is not installed")

    monkeypatch.setattr("radixlab.classroom.grade.check_sandbox", refuse)
    result = CliRunner().invoke(
        app,
        ["classroom", "grade", str(source), str(submissions), str(tmp_path / "out")],
        env={"RADIXLAB_CLASSROOM_SEED": "secret"},
    )
    assert result.exit_code == 2
    assert (
        f"SandboxUnavailable: {SandboxUnavailable('bubblewrap is not installed')}" in result.output
    )
    assert not (tmp_path / "out" / "grades.csv").exists()


def test_an_empty_folder_of_submissions_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    output = run(
        "grade", source, tmp_path / "empty", tmp_path / "out", code=2, RADIXLAB_CLASSROOM_SEED="x"
    ).output
    assert "a folder with STUDENT.ipynb" in output
    output = run(
        "grade", source, tmp_path / "none", tmp_path / "out", code=2, RADIXLAB_CLASSROOM_SEED="x"
    ).output
    assert "a folder that is there" in output


@pytest.mark.parametrize("place", [".", "results", "ana/results"])
def test_results_that_would_be_taken_for_submissions_are_refused(
    source: Path, submissions: Path, place: str
) -> None:
    before = sorted(submissions.rglob("*"))
    output = grade(source, submissions, submissions / place, code=2).output
    assert "InvalidArgument: OUT must be outside of the folder of submissions" in output
    assert sorted(submissions.rglob("*")) == before


def test_results_may_lie_around_the_submissions_but_not_among_them(
    source: Path, submissions: Path, tmp_path: Path
) -> None:
    grade(source, submissions, tmp_path)
    grade(source, submissions, tmp_path)
    assert [row["student"] for row in rows(tmp_path / "grades.csv")] == ["ana", "ben"]
    assert "OUT must be outside" in grade(source, tmp_path / "results", tmp_path, code=2).output


def test_a_file_in_the_place_of_a_folder_is_said_to_be_one(
    source: Path, submissions: Path, tmp_path: Path
) -> None:
    file = submissions / "ana.ipynb"
    text = file.read_bytes()
    for said, command in {
        "submissions": ("grade", source, file, tmp_path / "out"),
        "OUT": ("grade", source, submissions, file),
        "--out": ("build", source, "--out", file),
        "COURSE": ("nbgrader", file, source),
    }.items():
        output = run(*command, code=2, RADIXLAB_CLASSROOM_SEED="secret").output
        assert f"InvalidArgument: {said} must be a folder ({file} is a file), got" in output
    output = run("release", source, "--out", file / "week1", code=2).output
    assert f"--out must be a folder ({file} is a file), got '{file / 'week1'}'" in output
    assert file.read_bytes() == text and not (tmp_path / "out").exists()


def test_the_help_of_grade_says_that_downloads_of_canvas_and_moodle_are_understood() -> None:
    help_text = " ".join(re.findall(r"[\w./]+", run("grade", "--help").output))
    assert "or an unpacked download of Canvas or Moodle." in help_text


def test_an_export_lists_who_fits_nobody(
    source: Path, graded: tuple[Path, str], tmp_path: Path
) -> None:
    out = shutil.copytree(graded[0] / "out", tmp_path / "out")
    roster = tmp_path / "roster.csv"
    roster.write_text("name,username\nAna A,ana\nBen B,ben\nCleo C,cleo\nZoe Z,zoe\n")
    (out / "written.csv").write_bytes(
        (out / "written.csv").read_bytes().replace(b"ana,why,,2", b"ana,why,1,2")
    )
    output = run("export", source, out, "--roster", roster, "--for", "moodle").output
    assert "not exported: dora: nobody of the roster" in output
    assert "Zoe Z" in output
    assert [row["username"] for row in rows(out / "moodle.csv")] == ["ana", "ben", "cleo"]
    assert not (out / "canvas.csv").exists()
    run("export", source, out, "--roster", roster, "--assignment", "Sheet 9 (77)")
    assert "Sheet 9 (77)" in rows(out / "canvas.csv")[0]
    roster.write_text("name\nNobody\n")
    assert "nobody in it fits" in run("export", source, out, "--roster", roster, code=2).output


def test_a_name_cannot_steer_the_terminal(source: Path, sheet: Sheet, tmp_path: Path) -> None:
    folder = tmp_path / "submissions"
    folder.mkdir()
    hand_in(folder, sheet, "[red]ana", "def twice(number):\n    return number + number")
    hand_in(folder, sheet, "\x1b[2Jben", "twice = None")
    output = grade(source, folder, tmp_path / "out").output
    assert "[red]ana" in output
    assert "\x1b[2J" not in output


# --- audit, nbgrader -----------------------------------------------------------------------------


def test_audit_says_what_is_wrong_and_fails(source: Path) -> None:
    assert "09-twice: keeps every rule" in run("audit", source).output
    source.write_text(SOURCE.replace("Once, and once more.", SOLUTION), encoding="utf-8")
    assert "hint 1 says a line of the solution" in run("audit", source, code=1).output


def test_a_course_for_nbgrader_is_made(source: Path, tmp_path: Path) -> None:
    run("nbgrader", tmp_path / "course", source)
    assert (tmp_path / "course" / "nbgrader_config.py").is_file()
    notebook = tmp_path / "course" / "source" / "09-twice" / "09-twice.ipynb"
    assert json.loads(notebook.read_text(encoding="utf-8"))["cells"]


# --- the guide -----------------------------------------------------------------------------------


def guide_commands() -> Iterator[str]:
    for page in ("teach", "grading", "nbgrader"):
        text = (BOOK / f"{page}.md").read_text(encoding="utf-8")
        yield from re.findall(r"^\$ (?:\w+=\S+ )*radixlab classroom (.*?)(?: +#.*)?$", text, re.M)


def test_the_guide_has_commands() -> None:
    assert len(set(guide_commands())) > 8


@pytest.mark.parametrize("line", sorted(set(guide_commands())))
def test_every_command_of_the_guide_is_understood(line: str) -> None:
    command: Any = typer.main.get_command(app)
    arguments = ["classroom", *shlex.split(line)]
    while isinstance(command, Group) or hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(command.name, list(arguments))


def test_the_guide_tells_whoever_copies_the_template_to_write_the_new_name_into_it() -> None:
    text = (BOOK / "teach.md").read_text(encoding="utf-8")
    before, _, after = text.partition("$ cp book/exercises/_template.md ")
    name = after.partition(".md\n")[0]
    assert f"**write `sheet: {name}` in the place of `sheet: _template`**" in before


def test_the_plan_of_two_weeks_has_every_sheet_with_its_points_and_minutes() -> None:
    text = (BOOK / "teach.md").read_text(encoding="utf-8")
    table = re.findall(r"\| \[(.+?)\]\(exercises/(.+?)\.md\) \| (\d+) \| (\d+) \|", text)
    plan = {name: (title, float(points)) for title, name, _, points in table}
    sheets = [load_sheet(path) for path in find_sheets()]
    assert plan == {sheet.name: (sheet.title, sheet.total) for sheet in sheets}
    for _, name, minutes, _ in table:
        said = re.search(r"^\*(\d+) minutes\b", load_sheet(name).text, re.MULTILINE)
        assert said is not None
        assert said[1] == minutes, name
    assert f"{sum(sheet.total for sheet in sheets):g} points" in text
