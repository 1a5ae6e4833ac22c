"""Grading: files of all kinds come in, the same points come out each time."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="needs radixlab[classroom]")

from radixlab.classroom import check, grade
from radixlab.classroom.collect import find_submissions, ignored_files, safe_name
from radixlab.classroom.grade import AnswerKey, grade_all, grade_cells, grade_submission
from radixlab.classroom.outcome import Outcome
from radixlab.classroom.packs import visible_pack
from radixlab.classroom.report import failed_cases
from radixlab.classroom.results import SubmissionResult
from radixlab.classroom.sandbox import SandboxUnavailable
from radixlab.classroom.sheet import Sheet, Written, parse_sheet
from radixlab.classroom.submission import (
    MOST_BYTES,
    MOST_WORDS,
    Submission,
    read_submission,
)
from radixlab.classroom.words import find_answers

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox runs on Linux")

SEED = "a seed of the teacher"
SHEET = """\
---
radixlab:
  sheet: 99-digits
  seconds: 1
---

```{code-cell} ipython3
---
role: answer
exercise: digits
points: {few: 2, many: 3}
visible: [few]
---
def digits(number):
    ### BEGIN SOLUTION
    return len(str(abs(number)))
    ### END SOLUTION
```

```{code-cell} ipython3
---
role: cases
exercise: digits
---
def cases(rng):
    yield "few", [7]
    yield "few", [12]
    for _ in range(3):
        yield "many", [-rng.randrange(10**9, 10**12)]
```

```{code-cell} ipython3
---
role: wrong
exercise: digits
---
# The sign is counted as a digit.
def digits(number):
    return len(str(number))
```

```{code-cell} ipython3
---
role: answer
exercise: Counter
points: {one: 1, more: 1}
visible: [one]
entry: count
---
class Counter:
    ### BEGIN SOLUTION
    n = 0

    def up(self):
        self.n += 1
    ### END SOLUTION
```

```{code-cell} ipython3
---
role: driver
exercise: Counter
---
def count(times):
    counter = Counter()
    for _ in range(times):
        counter.up()
    return {"n": counter.n}
```

```{code-cell} ipython3
---
role: cases
exercise: Counter
---
def cases(rng):
    yield "one", [1]
    yield "one", [0]
    yield "more", [rng.randrange(9, 99)]
    yield "more", [rng.randrange(100, 200)]
```

+++ {"role": "written", "exercise": "why", "points": 4}

Why?

+++ {"role": "rubric", "exercise": "why"}

Because.
"""

RIGHT = "def digits(number):\n    return len(str(number).lstrip('-'))"
COUNTER = "class Counter:\n    n = 0\n    def up(self): self.n += 1"


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return parse_sheet(SHEET, "99-digits")


@pytest.fixture(scope="module")
def key(sheet: Sheet) -> AnswerKey:
    return AnswerKey.make(sheet, SEED)


def cell(source: str | list[str], role: str = "", exercise: str = "", kind: str = "code") -> dict:
    about = {"radixlab": {"role": role, "exercise": exercise}} if role else {}
    return {"cell_type": kind, "source": source, "metadata": about}


def notebook(*cells: dict, sheet: str = "99-digits") -> str:
    metadata = {"radixlab": {"sheet": sheet}}
    return json.dumps({"nbformat": 4, "metadata": metadata, "cells": cells})


def points(result: SubmissionResult) -> list[list[float]]:
    return [[group.points for group in exercise.groups] for exercise in result.exercises]


# --- judging -------------------------------------------------------------------------------------


@linux
def test_all_right_earns_all_points(key, tmp_path):
    path = tmp_path / "anna.ipynb"
    path.write_text(
        notebook(
            cell("1 / 0", "given"),
            cell(RIGHT, "answer", "digits"),
            cell("1 / 0", "check", "digits"),
            cell(COUNTER.splitlines(keepends=True)),
            cell("Because it is so.", "written-answer", "why", "markdown"),
            cell("No question.", "written-answer", "nothing", "markdown"),
        )
    )
    result = grade_submission(key, "anna", path)
    assert points(result) == [[2, 3], [1, 1]] and result.points == 7
    assert result.written == {"why": "Because it is so."}
    assert (result.student, result.sheet, result.problem, result.cells) == (
        "anna",
        "99-digits",
        "",
        (),
    )
    assert [e.mistake for e in result.exercises] == ["", ""]


@linux
def test_22_a_deleted_check_cell_changes_no_grade(key, tmp_path):
    """It meant "needs manual grading" for ever (jupyter/nbgrader#1682): a check is the student's
    own affair, and what is graded is the answer."""
    answers = [cell(RIGHT, "answer", "digits"), cell(COUNTER, "answer", "Counter")]
    checks = [cell(f'check("{name}")', "check", name) for name in ("digits", "Counter")]
    whole, without = tmp_path / "whole.ipynb", tmp_path / "without.ipynb"
    whole.write_text(notebook(answers[0], checks[0], answers[1], checks[1]))
    without.write_text(notebook(*answers))
    first, second = (grade_submission(key, "anna", path) for path in (whole, without))
    assert points(first) == points(second) == [[2, 3], [1, 1]]
    assert not first.problem and not second.problem and first.written == second.written


@linux
def test_a_group_counts_as_a_whole_and_a_known_mistake_is_named(key):
    (digits, _), failed = grade_cells(key, ["def digits(n): return len(str(n))"])
    few, many = digits.groups
    assert (few.points, few.failed, few.how, few.shown) == (2, (), {}, ())
    assert (many.points, many.most, many.cases, many.failed) == (0, 3, 3, (1, 2, 3))
    assert (many.how, many.shown) == ({"wrong value": 3}, ())
    assert digits.mistake == "The sign is counted as a digit."
    assert failed == []


@linux
def test_another_mistake_is_not_that_one(key):
    (digits, _), _ = grade_cells(
        key, ["def digits(n): return 1 if n == 7 else len(str(n)) + (n == 12)"]
    )
    assert (digits.points, digits.mistake) == (0, "")
    (shown,) = digits.groups[0].shown
    assert (shown.number, shown.case["args"], shown.case["expected"]) == (2, [12], 2)
    assert shown.outcome == Outcome("ok", 3)


@linux
def test_what_is_missing_is_said_plainly(key):
    (digits, counter), _ = grade_cells(key, ["class Counter: up = None"])
    assert [group.how for group in digits.groups] == [{"missing": 2}, {"missing": 3}]
    assert all(s.outcome == Outcome("missing", None, "digits") for s in digits.groups[0].shown)
    assert [group.how for group in counter.groups] == [
        {"AttributeError": 1, "TypeError": 1},
        {"TypeError": 2},
    ]
    (_, counter), _ = grade_cells(key, [])
    assert all(s.outcome == Outcome("missing", None, "Counter") for s in counter.groups[0].shown)


@linux
def test_failing_cells_are_named_by_their_number_in_the_notebook(key, tmp_path):
    path = tmp_path / "anna.ipynb"
    path.write_text(notebook(cell("pass", "page"), cell("# text", kind="markdown"), cell("1 / 0")))
    assert grade_submission(key, "anna", path).cells == ((2, "ZeroDivisionError"),)


@linux
def test_a_huge_value_is_not_shown(key):
    (digits, _), _ = grade_cells(key, ["def digits(n): return [7] * 10 ** 5"])
    assert all(shown.outcome == Outcome("long") for shown in digits.groups[0].shown)


@linux
def test_a_visible_case_is_told_as_check_tells_it(key, sheet, tmp_path, monkeypatch):
    """The page had words of its own."""
    for code in ("return str(number)", "return (number,)", "return [][number]", "print(number)"):
        code = f"def digits(number):\n    {code}"
        (digits, _), _ = grade_cells(key, [code])
        told = failed_cases(digits.groups[0], sheet.exercises["digits"], sheet)
        (tmp_path / "99-digits.check.json").write_text(json.dumps(visible_pack(sheet)))
        monkeypatch.chdir(tmp_path)
        names = {"__name__": "__main__", "check": check}
        exec(f"{code}\nresult = check('digits')", names)
        for mine, theirs in zip(told, names["result"].cases, strict=True):
            hidden = {"where": (), "hint": "", "printed": ""}  # only a notebook knows these
            message = theirs.problem.replace(": list index out of range", "")
            told_there = replace(theirs, **hidden, problem=message)
            assert replace(mine, hint="") == told_there
            assert mine.hint in ("", theirs.hint)


@linux
def test_no_hidden_input_gets_into_a_result(key, tmp_path):
    # It remembers what it was called with, wherever it can, and tells it whenever it can.
    (tmp_path / "eve.py").write_text(
        """\
import os

def digits(number):
    with open("/tmp/seen", "a") as file:
        file.write(f"{number} ")
    os.mkdir("/tmp/a folder")
    seen = open("/tmp/seen").read()
    raise type(seen, (ValueError,), {})(seen)

class Counter:
    def up(self):
        pass
    @property
    def n(self):
        return os.listdir("/tmp")
"""
    )
    result = grade_submission(key, "eve", tmp_path / "eve.py")
    result.save(tmp_path / "eve.json")
    told = (tmp_path / "eve.json").read_text()
    hidden = [c.args[0] for cases in key.cases.values() for c in cases if not c.visible]
    digits, counter = result.exercises
    assert [shown.outcome.value for shown in counter.groups[0].shown] == [{"n": []}] * 2
    assert digits.groups[1].how == {"ValueError": 3}
    assert len(hidden) == 5 and not any(f"{number}" in told for number in hidden if number < 0)


def test_cases_and_keys_follow_the_seed(sheet, key):
    again, other = AnswerKey.make(sheet, SEED), AnswerKey.make(sheet, "another seed")
    assert (again.cases, again.digest) == (key.cases, key.digest)
    assert other.digest != key.digest
    assert other.cases["digits"][:2] == key.cases["digits"][:2]
    assert other.cases["digits"][2:] != key.cases["digits"][2:]


# --- reading -------------------------------------------------------------------------------------


def test_a_script_has_one_cell_or_more(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("a = 1\n# %% [markdown]\n# text\n# %%\nb = 2\n#%% name\nc = 3\n")
    submission = read_submission(path)
    found = [(cell.number, cell.source.strip()) for cell in submission.cells]
    assert found == [(1, "a = 1"), (2, "b = 2"), (3, "c = 3")]


def test_words_are_cut_and_cleaned(sheet, tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(
        notebook(
            cell("*Your answer here*\n", "written-answer", "left", "markdown"),
            cell("a\ud800\0b", "written-answer", "odd", "markdown"),
            cell("x" * 30_000, "written-answer", "long", "raw"),
            cell("one", "written-answer", "twice", "markdown"),
            cell("two", "written-answer", "twice", "markdown"),
        )
    )
    questions = {name: Written(name, 1, "", "") for name in ("left", "odd", "long", "twice")}
    written = find_answers(replace(sheet, written=sheet.written | questions), read_submission(path))
    assert len(written.pop("long")) == MOST_WORDS
    assert written == {"why": "", "left": "", "odd": "a?b", "twice": "one\n\ntwo"}


NO_NOTEBOOKS = {
    "nothing": "",
    "half": '{"nbformat": 4, "cells": [',
    "deep": "[" * 10**5,
    "a list": "[]",
    "many digits": '{"nbformat": 4, "cells": [], "a": ' + "1" * 10**4 + "}",
    "format 3": '{"nbformat": 3, "worksheets": []}',
    "format true": '{"nbformat": true, "cells": []}',
    "no cells": '{"nbformat": 4}',
    "cells": '{"nbformat": 4, "cells": {"a": 1}}',
    "a cell": '{"nbformat": 4, "cells": [7]}',
    "a source": '{"nbformat": 4, "cells": [{"cell_type": "code", "source": {"a": 1}}]}',
    "no source": '{"nbformat": 4, "cells": [{"cell_type": "code"}]}',
    "a line": '{"nbformat": 4, "cells": [{"cell_type": "code", "source": ["a", 7]}]}',
    "many cells": '{"nbformat": 4, "cells": [' + "7," * 600 + "7]}",
}


@pytest.mark.parametrize("text", NO_NOTEBOOKS.values(), ids=NO_NOTEBOOKS)
def test_what_is_no_notebook_is_said_to_be_none(text, tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(text)
    submission = read_submission(path)
    assert submission.problem.startswith("The file ") and submission.problem.endswith(".")
    assert submission == Submission(digest=submission.digest, problem=submission.problem)


ODD_CELLS = [
    {"cell_type": ["code"], "source": "a = 1", "metadata": {"radixlab": 7}},
    {"cell_type": "code", "source": "a = 1", "metadata": 7},
    {"cell_type": "code", "source": "a = 1", "metadata": {"radixlab": {"role": ["given"]}}},
    {
        "cell_type": "code",
        "source": [],
        "metadata": {"radixlab": {"role": "answer", "exercise": 7}},
    },
    {"source": "a", "metadata": {"radixlab": {"role": "written-answer", "exercise": ["why"]}}},
]


@pytest.mark.parametrize("odd", ODD_CELLS)
def test_odd_metadata_stops_nothing(odd, tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(notebook(odd, cell(RIGHT)))
    submission = read_submission(path)
    assert submission.cells[-1].source == RIGHT and not submission.problem


def test_only_plain_files_are_read(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("the solution")
    (tmp_path / "link.py").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.py").write_text("#" * (MOST_BYTES + 1))
    problems = {
        name: read_submission(tmp_path / f"{name}.py").problem
        for name in ("link", "pipe", "folder", "bytes", "huge", "nowhere")
    }
    assert problems == {
        "link": "The file is a link to another one: hand in the file itself.",
        "pipe": "It is not a plain file.",
        "folder": "There is no notebook in the folder, or there are several.",
        "bytes": "The file is not text (UTF-8).",
        "huge": "The file has more than 20000000 bytes: clear all outputs.",
        "nowhere": "The file can't be read: No such file or directory.",
    }


def test_students_are_found_by_file_or_folder(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = tmp_path / "submissions"
    for name in (
        "anna.ipynb",
        "bob.py",
        "bob.ipynb",
        "carl/02-split.ipynb",
        "carl/draft.ipynb",
        "dora/any.py",
        "dora/.ipynb_checkpoints/any.py",
        "emil/a.ipynb",
        "emil/b.ipynb",
        "fritz/read.me",
        "doejane_12345_100_02-split.ipynb",
        "doejane_LATE_12345_99_02-split.ipynb",
        "roejim_LATE_7_8_02-split-1.py",
        "Jane Doe_12345_assignsubmission_file/x.ipynb",
        "Jane Doe_12345_assignsubmission_onlinetext/x.html",
        "Jim Roe_7_assignsubmission_file_x.ipynb",
        ".hidden.ipynb",
        "__MACOSX/a.ipynb",
        "grades.csv",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "gus").symlink_to(elsewhere)
    there = find_submissions(folder, "02-split")
    found = {each.student: str(each.path.relative_to(folder)) for each in there}
    assert found == {
        "Jane Doe_12345": "Jane Doe_12345_assignsubmission_file/x.ipynb",
        "Jim Roe_7": "Jim Roe_7_assignsubmission_file_x.ipynb",
        "anna": "anna.ipynb",
        "bob": "bob.ipynb",
        "carl": "carl/02-split.ipynb",
        "doejane_12345": "doejane_12345_100_02-split.ipynb",
        "dora": "dora/any.py",
        "emil": "emil",
        "fritz": "fritz",
        "gus": "gus",
        "roejim_7": "roejim_LATE_7_8_02-split-1.py",
    }
    assert ignored_files(folder) == [
        "Jane Doe_12345_assignsubmission_onlinetext",
        "grades.csv",
    ]
    assert {each.student: each.problem for each in there if each.problem} == {
        "emil": "Which file counts? None of a.ipynb, b.ipynb is called 02-split.ipynb.",
        "fritz": "There is no notebook in the folder, only read.me: hand in 02-split.ipynb.",
    }
    assert read_submission(folder / "gus").problem.startswith("The file is a link")


@pytest.mark.parametrize(
    "name", ["anna", "Zoë O’Neil-Müller", "李雷", "a.b@c.org", "Doe, Jane (2)"]
)
def test_a_plain_name_stays(name):
    assert safe_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../x",
        "a/b",
        "a\\b",
        "-rf",
        "~",
        "a\nb",
        "a\x1b[2J",
        "\udcff",
        "\u202eabc",
        "a ",
        "x" * 200,
        "",
    ],
)
def test_an_odd_name_becomes_a_plain_and_unique_one(name):
    assert safe_name(name) != safe_name(name + "_")
    assert safe_name(safe_name(name)) == safe_name(name) != name
    assert not set("/\\\n\x1b") & set(safe_name(name)) and not safe_name(name).startswith(
        (".", "-", "~")
    )


# --- a class -------------------------------------------------------------------------------------


@pytest.fixture
def submissions(tmp_path: Path) -> Path:
    folder = tmp_path / "submissions"
    folder.mkdir()
    (folder / "anna.ipynb").write_text(notebook(cell(RIGHT), cell(COUNTER)))
    (folder / "bob.py").write_text("def digits(n): return len(str(n))")
    (folder / "eve.py").write_text("import os\nos._exit(0)")
    (folder / "max.ipynb").write_text("no notebook")
    (folder / "odd\nname.py").write_text(RIGHT)
    (folder / "other.ipynb").write_text(notebook(cell(RIGHT), sheet="01-match"))
    (folder / "sneak.py").symlink_to(folder / "anna.ipynb")
    return folder


def texts(out: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((out / "results").iterdir())}


@linux
def test_the_same_seed_gives_the_same_files(sheet, submissions, tmp_path):
    told = []
    results = grade_all(
        sheet, submissions, tmp_path / "a", SEED, workers=2, on_progress=lambda *p: told.append(p)
    )
    assert [(r.student, r.points) for r in results] == [
        ("anna", 7),
        ("bob", 2),
        ("eve", 0),
        ("max", 0),
        (safe_name("odd\nname"), 5),
        ("other", 0),
        ("sneak", 0),
    ]
    assert [r.problem[:30] for r in results] == [
        *("", "", "", "The file is not a notebook: it", ""),
        *("The notebook belongs to the sh", "The file is a link to another "),
    ]
    assert [(done, of) for done, of, _ in told] == [(n, 7) for n in range(1, 8)]
    grade_all(sheet, submissions, tmp_path / "b", SEED, workers=1)
    assert texts(tmp_path / "a") == texts(tmp_path / "b")
    assert SEED not in str(texts(tmp_path / "a"))
    assert results == [SubmissionResult.load(p) for p in sorted((tmp_path / "a/results").iterdir())]


@linux
def test_only_what_changed_is_graded_again(sheet, submissions, tmp_path, monkeypatch):
    graded = []
    real = grade._grade
    monkeypatch.setattr(grade, "_grade", lambda *a: graded.append(a[1]) or real(*a))

    def again(seed: str = SEED, **options) -> list[str]:
        graded.clear()
        grade_all(sheet, submissions, tmp_path / "out", seed, workers=1, **options)
        return sorted(graded)

    everyone = again()
    assert len(everyone) == 7 and again() == []
    (submissions / "bob.py").write_text(RIGHT)
    (tmp_path / "out/results/eve.json").write_text("[]")
    (tmp_path / "out/results/anna.json").write_text('{"exercises": 7}')
    assert again() == ["anna", "bob", "eve"]
    assert again("another seed") == everyone == again(unsafe=True)


@linux
def test_a_failure_of_our_own_stops_nobody_and_is_mended_later(
    sheet, submissions, tmp_path, monkeypatch
):
    real = grade._grade

    def fail(key, student, *rest):
        if student == "bob":
            raise RuntimeError("the hidden input is 7")
        return real(key, student, *rest)

    monkeypatch.setattr(grade, "_grade", fail)
    results = {r.student: r for r in grade_all(sheet, submissions, tmp_path / "out", SEED)}
    assert results["anna"].points == 7 and results["bob"].points == 0
    problem = "The grader itself failed, which is not the student's fault: RuntimeError"
    assert (results["bob"].problem, results["bob"].key) == (problem, "")
    monkeypatch.undo()
    results = {r.student: r for r in grade_all(sheet, submissions, tmp_path / "out", SEED)}
    assert (results["bob"].problem, results["bob"].points) == ("", 2)


def test_without_a_sandbox_nothing_is_graded(sheet, submissions, tmp_path, monkeypatch):
    def refuse() -> None:
        raise SandboxUnavailable("a test")

    monkeypatch.setattr(grade, "check_sandbox", refuse)
    with pytest.raises(SandboxUnavailable):
        grade_all(sheet, submissions, tmp_path / "out", SEED)
    assert not (tmp_path / "out").exists()
    (result,) = grade_all(
        sheet, one(submissions, "anna.ipynb"), tmp_path / "out", SEED, unsafe=True
    )
    assert result.points == 7


def one(submissions: Path, name: str) -> Path:
    folder = submissions.parent / "one"
    folder.mkdir()
    (submissions / name).rename(folder / name)
    return folder


@linux
def test_results_beside_the_submissions_are_no_submission(sheet, submissions):
    out = submissions / "out"
    first = grade_all(sheet, submissions, out, SEED)
    assert grade_all(sheet, submissions, out, SEED) == first
    assert "out" not in [result.student for result in first]
