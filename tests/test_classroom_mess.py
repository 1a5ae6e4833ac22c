"""What really lies in a teacher's folder: two sheets, late files, answers typed anywhere."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("jupytext", reason="needs radixlab[classroom]")

from radixlab.classroom.build import notebook_text, student_notebook
from radixlab.classroom.collect import Found, find_submissions, student_key
from radixlab.classroom.grade import AnswerKey, grade_submission, own_cells
from radixlab.classroom.imports import missing_imports, what_is_there
from radixlab.classroom.release import write_release
from radixlab.classroom.results import SubmissionResult
from radixlab.classroom.roster import Person, match
from radixlab.classroom.sheet import Sheet, load_sheet, parse_sheet
from radixlab.classroom.submission import read_submission
from radixlab.classroom.ways import tell
from radixlab.classroom.words import ELSEWHERE, find_answers
from radixlab.cli import app

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox runs on Linux")

SOURCE = '''---
radixlab:
  sheet: {name}
  title: Double
---

# Double

Two texts stand here.

```{{code-cell}} ipython3
from radixlab.classroom import check
```

```{{code-cell}} ipython3
---
role: answer
exercise: double
points: {{example: 1, random: 3}}
visible: [example]
---
def double(number):
    """Two times a number."""
    ### BEGIN SOLUTION
    return sum([number, number])
    ### END SOLUTION
```

```{{code-cell}} ipython3
---
role: cases
exercise: double
---
def cases(rng):
    yield "example", [1]
    yield "example", [2]
    for _ in range(4):
        yield "random", [rng.randrange(1000, 10**9)]
```

+++ {{"role": "hint", "exercise": "double"}}

Once, and once more.

+++ {{"role": "written", "exercise": "why", "points": 2}}

Why do we double?

Say it in a sentence.

+++ {{"role": "rubric", "exercise": "why"}}

Two points for knowing that once is not enough.

+++

The end.
'''
RIGHT = "def double(number):\n    return number + number"


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return parse_sheet(SOURCE.format(name="05-double"), "05-double")


def hand_in(sheet: Sheet, path: Path, code: str = "", words: str = "", bare: bool = False) -> Any:
    """Write a student's notebook; without code it is as it was handed out."""
    notebook = student_notebook(sheet)
    for cell in notebook.cells:
        role = cell.metadata["radixlab"]["role"]
        if role == "answer" and code:
            cell.source = code
        if role == "written-answer" and words:
            cell.source = words
    if bare:
        notebook.metadata.pop("radixlab")
        for cell in notebook.cells:
            cell.metadata.pop("radixlab")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook_text(notebook), encoding="utf-8")
    return notebook


def found_in(folder: Path, sheet: str = "05-double") -> dict[str, Found]:
    return {each.student: each for each in find_submissions(folder, sheet)}


# --- whose file, and which -----------------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
def test_two_sheets_in_one_folder_are_told_apart(sheet: Sheet, tmp_path: Path, bare: bool) -> None:
    other = parse_sheet(SOURCE.format(name="03-other"), "03-other")
    hand_in(sheet, tmp_path / "mullerana_4711_900001_05-double.ipynb", RIGHT, bare=bare)
    hand_in(other, tmp_path / "mullerana_4711_900002_03-other.ipynb", RIGHT, bare=bare)
    hand_in(other, tmp_path / "onlyother_4712_900003_03-other.ipynb", RIGHT, bare=bare)
    for name, file in (("05-double", "900001_05-double"), ("03-other", "900002_03-other")):
        found = found_in(tmp_path, name)
        assert found["mullerana_4711"].path.name == f"mullerana_4711_{file}.ipynb"
        assert found["onlyother_4712"].path.name == "onlyother_4712_900003_03-other.ipynb"


def test_a_notebook_says_more_than_its_name(sheet: Sheet, tmp_path: Path) -> None:
    other = parse_sheet(SOURCE.format(name="03-other"), "03-other")
    hand_in(sheet, tmp_path / "ana_1_1_mine.ipynb", RIGHT)
    hand_in(other, tmp_path / "ana_1_2_05-double.ipynb", RIGHT)
    assert found_in(tmp_path)["ana_1"].path.name == "ana_1_1_mine.ipynb"


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("ngcleo_LATE_4713_900099_05-evict-1.ipynb", "ngcleo_4713"),
        ("ngcleo_4713_900001_05-evict.ipynb", "ngcleo_4713"),
        ("Cleo Ng_77_assignsubmission_file", "Cleo Ng_77"),
        ("Cleo Ng_77_assignsubmission_file_a_b.ipynb", "Cleo Ng_77"),
        ("cleo.py", "cleo"),
        ("cleo_ng", "cleo_ng"),
    ],
)
def test_a_student_stays_the_same_from_attempt_to_attempt(name: str, student: str) -> None:
    assert student_key(name) == student_key(student) == student


def test_downloads_of_canvas_and_moodle_find_their_person() -> None:
    canvas = Person(name="Ng, Cleo", id="4713")
    assert match(["ngcleo_4713"], [canvas]).people == {canvas: "ngcleo_4713"}
    assert not match(["ngcleo_4714"], [canvas]).people
    moodle = Person(name="Cleo Ng", participant="77")
    assert match(["Cleo Ng_77"], [moodle]).people == {moodle: "Cleo Ng_77"}
    assert match(["Cleo Ng_77"], [Person(name="Cleo Ng")]).people
    assert not match(["Cleo Ng_78"], [moodle]).people


def test_of_two_notebooks_the_one_with_work_in_it_counts(sheet: Sheet, tmp_path: Path) -> None:
    hand_in(sheet, tmp_path / "ana" / "05-double.ipynb")
    hand_in(sheet, tmp_path / "ana" / "05-double (1).ipynb", RIGHT)
    hand_in(sheet, tmp_path / "ben" / "05-double.ipynb", RIGHT)
    hand_in(sheet, tmp_path / "ben" / "05-double (1).ipynb", RIGHT + "  # again")
    hand_in(sheet, tmp_path / "cleo_1_1_05-double.ipynb", RIGHT)
    hand_in(sheet, tmp_path / "cleo_1_2_05-double.ipynb")
    found = found_in(tmp_path)
    assert found["ana"].path.name == "05-double (1).ipynb"
    assert found["ana"].note == (
        "05-double (1).ipynb was graded; nobody has written in 05-double.ipynb."
    )
    assert found["ben"].path.name == "05-double.ipynb"
    assert found["ben"].note == (
        "There are several files of this sheet: 05-double.ipynb was graded, "
        "not 05-double (1).ipynb."
    )
    assert found["cleo_1"].path.name == "cleo_1_1_05-double.ipynb"
    assert "nobody has written in cleo_1_2" in found["cleo_1"].note


def test_a_notebook_one_folder_down_is_found_and_a_folder_without_one_is_told(
    sheet: Sheet, tmp_path: Path
) -> None:
    hand_in(sheet, tmp_path / "ana" / "week 1" / "05-double.ipynb", RIGHT)
    (tmp_path / "ben").mkdir()
    (tmp_path / "ben" / "x.zip").write_text("")
    (tmp_path / "cleo").mkdir()
    (tmp_path / "dan").mkdir()
    (tmp_path / "dan" / "link").symlink_to(tmp_path / "ana" / "week 1")
    found = found_in(tmp_path)
    assert found["ana"].path == tmp_path / "ana" / "week 1" / "05-double.ipynb"
    assert found["ben"].problem == (
        "There is no notebook in the folder, only x.zip: hand in 05-double.ipynb."
    )
    assert found["cleo"].problem == "There is nothing in the folder: hand in 05-double.ipynb."
    assert "only link" in found["dan"].problem


# --- answers in words ----------------------------------------------------------------------------


def answer(sheet: Sheet, path: Path, change: Any, bare: bool = False) -> str:
    notebook = hand_in(sheet, path, RIGHT, bare=bare)
    change(notebook.cells)
    path.write_text(notebook_text(notebook), encoding="utf-8")
    return find_answers(sheet, read_submission(path))["why"]


def place(cells: list[Any], text: str) -> int:
    return next(i for i, cell in enumerate(cells) if text in cell.source)


def new_cell(source: str, kind: str = "markdown") -> Any:
    import nbformat

    make: Any = nbformat.v4  # type: ignore[attr-defined]
    return make.new_markdown_cell(source) if kind == "markdown" else make.new_code_cell(source)


def in_the_placeholder(cells: list[Any]) -> None:
    cells[place(cells, "*Your answer here*")].source = "Because."


def after_the_placeholder(cells: list[Any]) -> None:
    cells[place(cells, "*Your answer here*")].source += "\n\nBecause."


def in_a_new_cell(cells: list[Any]) -> None:
    cells.insert(place(cells, "*Your answer here*") + 1, new_cell("Because."))


def above_the_placeholder(cells: list[Any]) -> None:
    cells.insert(place(cells, "*Your answer here*"), new_cell("Because."))


def in_the_question(cells: list[Any]) -> None:
    cells[place(cells, "Why do we")].source += "\n\nBecause."


def within_the_question(cells: list[Any]) -> None:
    cell = cells[place(cells, "Why do we")]
    cell.source = cell.source.replace("double?", "double?\n\nBecause.")


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        in_the_placeholder,
        after_the_placeholder,
        in_a_new_cell,
        above_the_placeholder,
        in_the_question,
    ],
)
def test_an_answer_is_found_wherever_it_was_typed(
    sheet: Sheet, tmp_path: Path, change: Any, bare: bool
) -> None:
    assert answer(sheet, tmp_path / "a.ipynb", change, bare) == "Because."


def test_an_answer_within_the_question_is_found(sheet: Sheet, tmp_path: Path) -> None:
    assert answer(sheet, tmp_path / "a.ipynb", within_the_question) == "Because."


@pytest.mark.parametrize("bare", [False, True])
def test_who_wrote_nothing_has_no_answer(sheet: Sheet, tmp_path: Path, bare: bool) -> None:
    assert answer(sheet, tmp_path / "a.ipynb", lambda cells: None, bare) == ""


@pytest.mark.parametrize("bare", [False, True])
def test_words_far_from_the_question_are_shown_to_the_teacher(
    sheet: Sheet, tmp_path: Path, bare: bool
) -> None:
    def change(cells: list[Any]) -> None:
        cells.append(new_cell("1", "code"))
        cells.append(new_cell("Because."))

    assert answer(sheet, tmp_path / "a.ipynb", change, bare) == f"{ELSEWHERE}\n\nBecause."

    def both(cells: list[Any]) -> None:
        in_the_placeholder(cells)
        cells.append(new_cell("Thanks!"))

    assert answer(sheet, tmp_path / "a.ipynb", both, bare).startswith("Because.")


def comment_in_a_code_cell(cells: list[Any]) -> None:
    cells.insert(place(cells, "*Your answer here*"), new_cell("# Because.\n#\n# So.", "code"))


@pytest.mark.parametrize("bare", [False, True])
def test_a_comment_in_a_code_cell_of_its_own_is_an_answer(
    sheet: Sheet, tmp_path: Path, bare: bool
) -> None:
    path = tmp_path / "a.ipynb"
    assert answer(sheet, path, comment_in_a_code_cell, bare) == "Because.\n\nSo."

    def far(cells: list[Any]) -> None:
        cells.insert(2, new_cell("# Because.", "code"))

    assert answer(sheet, path, far, bare) == f"{ELSEWHERE}\n\nBecause."


QUESTION = "# Why do we double?\n#\n# Say it in a sentence.\n#\n# (2 points, graded by a person)\n"
SCRIPTS = {
    "below the question": (
        f"{RIGHT}\n\n# %% [markdown]\n{QUESTION}\n# %% [markdown]\n# Because.\n",
        "Because.",
    ),
    "from nbconvert": (
        f"#!/usr/bin/env python\n# coding: utf-8\n\n# In[3]:\n\n\n{RIGHT}\n\n\n{QUESTION}\n"
        "# Because.\n",
        "Because.",
    ),
    "in quotes": (f'{RIGHT}\n# %% [markdown]\n"""\nBecause.\n"""', f"{ELSEWHERE}\n\nBecause."),
    "a comment": (f"{RIGHT}\n# Because.", f"{ELSEWHERE}\n\nBecause."),
    "code alone": (f'{RIGHT}\n"""Because."""', f'{ELSEWHERE}\n\n{RIGHT}\n"""Because."""'),
    "left out": (
        f"# ---\n# jupyter:\n#   a: b\n# ---\n\n# %%\n{RIGHT}\n# %% [markdown]\n{QUESTION}"
        "\n# %% [markdown]\n# *Your answer here*\n",
        "",
    ),
    "nothing": ("\n", ""),
}


@pytest.mark.parametrize(("text", "words"), SCRIPTS.values(), ids=SCRIPTS)
def test_an_answer_in_a_script_is_found_or_waits(
    sheet: Sheet, tmp_path: Path, text: str, words: str
) -> None:
    """It was worth nothing, at once."""
    (tmp_path / "a.py").write_text(text)
    assert find_answers(sheet, read_submission(tmp_path / "a.py")) == {"why": words}


def test_a_script_of_the_whole_notebook_has_no_words_but_the_students(
    sheet: Sheet, tmp_path: Path
) -> None:
    import jupytext

    notebook = hand_in(sheet, tmp_path / "a.ipynb", RIGHT)
    (tmp_path / "a.py").write_text(jupytext.writes(notebook, fmt="py:percent"))
    assert find_answers(sheet, read_submission(tmp_path / "a.py")) == {"why": ""}
    notebook = hand_in(sheet, tmp_path / "a.ipynb", RIGHT, "Because.\n\nSo.")
    (tmp_path / "a.py").write_text(jupytext.writes(notebook, fmt="py:percent"))
    assert find_answers(sheet, read_submission(tmp_path / "a.py")) == {"why": "Because.\n\nSo."}


# --- code, wherever it was typed -----------------------------------------------------------------

BOX = '''---
radixlab:
  sheet: 07-box
  title: Box
---

# Box

```{code-cell} ipython3
import radixlab
from radixlab.classroom import check
from radixlab.scenarios import race_scenario
```

```{code-cell} ipython3
---
role: given
---
class Full(Exception):
    """There is no room."""


class Box:
    def __init__(self, items):
        self.items = items


def first(box):
    return box.items[0]
```

```{code-cell} ipython3
Box([7])
```

```{code-cell} ipython3
---
role: answer
exercise: fill
points: {example: 1, random: 9}
visible: [example]
entry: run_fill
---
def fill(box, items):
    """Put them into the box, which has a list of its own; raise `Full` if there are none."""
    ### BEGIN SOLUTION
    if not items:
        raise Full
    assert isinstance(box, Box)
    box.items = sorted(items)
    ### END SOLUTION
```

```{code-cell} ipython3
---
role: driver
exercise: fill
---
def run_fill(items):
    box, row = Box([]), list(items)
    try:
        fill(box, row)
    except Full:
        return "full"
    row[:] = [-1] * len(row)
    return [box.items, first(box)]
```

```{code-cell} ipython3
---
role: cases
exercise: fill
---
def cases(rng):
    yield "example", [[]]
    yield "example", [[2, 1]]
    for _ in range(4):
        yield "random", [[rng.randrange(10**9) for _ in range(3)]]
```

+++ {"role": "hint", "exercise": "fill"}

Sort.
'''
FILL = """
def fill(box, items):
    if not items:
        raise Full
    assert isinstance(box, Box)
    box.items = %s
"""


@pytest.fixture(scope="module")
def key() -> AnswerKey:
    return AnswerKey.make(parse_sheet(BOX, "07-box"), "secret seed")


def grade_typed(
    key: AnswerKey, path: Path, typed: dict[str, str], bare: bool = False
) -> SubmissionResult:
    """Grade a notebook with this typed into cells by their roles; CELL is what stood there."""
    notebook = student_notebook(key.sheet)
    for cell in notebook.cells:
        role = cell.metadata["radixlab"]["role"]
        if cell.cell_type == "code" and role in typed:
            cell.source = typed.pop(role).replace("CELL", cell.source)
        if bare:
            cell.metadata.pop("radixlab")
    notebook.cells += [new_cell(source, "code") for source in typed.values()]
    path.write_text(notebook_text(notebook), encoding="utf-8")
    return grade_submission(key, "ana", path)


TYPED = {
    "an import above": {
        "page": "import math\nCELL",
        "answer": FILL % "math.pi and sorted(items)",
    },
    "a helper in a given cell": {
        "given": "CELL\n\ndef ordered(items):\n    return sorted(items)",
        "answer": FILL % "ordered(items)",
    },
    "a method in a given class": {
        "given": "CELL\n\nclass Box(Box):\n    size = 1\n    def ordered(self, items):\n"
        "        return sorted(items)",
        "answer": FILL % "box.size and box.ordered(items)",
    },
    "a given class of slots": {
        "given": "class Full(Exception): pass\nclass Box:\n    __slots__ = ('items',)\n"
        "    def __init__(self, items): self.items = items\n"
        "    @property\n    def size(self): return len(self.items)",
        "answer": FILL % "sorted(items)[box.size:]",
    },
    "a given class written anew, with more in it": {
        "answer": "class Box:\n    def __init__(self, items):\n"
        "        self.items, self.filled = items, 0\n"
        + FILL % "sorted(items)"
        + "    box.filled += 1\n",
    },
    "a given class with a base of its own": {
        "answer": "class Box(Box):\n    def __init__(self, *items):\n"
        "        super().__init__(*items)\n        self.filled = 0\n"
        + FILL % "sorted(items)"
        + "    box.filled += 1\n",
    },
    "a given exception that says more": {
        "answer": "class Full(Exception):\n    def __init__(self):\n"
        "        super().__init__('nothing to put in')\n" + FILL % "sorted(items)",
    },
    "a class as a default": {
        "given": "CELL\n",
        "answer": FILL.replace("(box, items)", "(box, items, kind=Box)").replace(
            "isinstance(box, Box)", "isinstance(box, kind)"
        )
        % "sorted(items)",
    },
    "an exit above an old attempt": {
        "answer": FILL % "sorted(items)" + "raise SystemExit\n" + FILL % "items",
    },
    "annotations of an earlier cell's future": {
        "page": "CELL\nfrom __future__ import annotations",
        "answer": FILL.replace("items)", "items: List[int])") % "sorted(items)",
    },
    "all in the check's cell": {"check": FILL % "sorted(items)" + "\nCELL"},
    "all in the page's cell": {"page": "CELL\n" + FILL % "sorted(items)", "answer": ""},
    "a name of Python's": {"new": "list = [1]\nany = 7", "answer": FILL % "sorted(items)"},
    "a name of the driver's": {
        "answer": "def first(items):\n    return sorted(items)\n" + FILL % "first(items)"
    },
}


@linux
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED)
def test_right_code_earns_its_points_in_whichever_cell_it_was_typed(
    key: AnswerKey, tmp_path: Path, typed: dict[str, str], bare: bool
) -> None:
    """Code in the sheet's own cells was left out, and a right solution had no points."""
    assert grade_typed(key, tmp_path / "a.ipynb", dict(typed), bare).points == 10


HOSTILE = {
    "another driver": "CELL\n\ndef run_fill(items): return [sorted(items), min(items)]",
    "another exception": "CELL\n\nFull = BaseException",
    "another first": "CELL\n\ndef first(box): return 1",
    "another list": "CELL\n\ndef list(items): return Row(sorted(items))\n"
    "class Row(type([])):\n    def __setitem__(self, *_): pass",
    "other builtins": "CELL\n\n__builtins__ = {}",
}


@linux
@pytest.mark.parametrize("given", HOSTILE.values(), ids=HOSTILE)
def test_who_rewrites_what_is_given_gets_nothing_for_a_wrong_solution(
    key: AnswerKey, tmp_path: Path, given: str
) -> None:
    typed = {"given": given, "answer": FILL % "items  # which are not its own"}
    groups = grade_typed(key, tmp_path / "a.ipynb", typed).exercises[0].groups
    assert [group.points for group in groups] == [0, 0]


@linux
@pytest.mark.parametrize("bare", [False, True])
def test_lines_of_the_sheet_that_need_radixlab_are_no_mistake_of_the_student(
    key: AnswerKey, tmp_path: Path, bare: bool
) -> None:
    typed = {"page": f"import math\nCELL\n{FILL % 'sorted(items)'}", "answer": "1 / 0"}
    result = grade_typed(key, tmp_path / "a.ipynb", typed, bare)
    assert (result.points, result.cells) == (10, ((4, "ZeroDivisionError"),))


@linux
def test_errors_of_the_sheets_own_cells_are_not_the_students(
    key: AnswerKey, tmp_path: Path
) -> None:
    typed = {"page": "import math\nCELL", "check": "1 / 0", "answer": FILL % "sorted(items)"}
    assert grade_typed(key, tmp_path / "a.ipynb", dict(typed)).cells == ()
    result = grade_typed(key, tmp_path / "a.ipynb", typed | {"new": "1 / 0"})
    assert (result.points, result.cells) == (10, ((6, "ZeroDivisionError"),))


@linux
def test_what_is_as_it_was_handed_out_is_not_run(key: AnswerKey, tmp_path: Path) -> None:
    """In a script each cell has comments around it."""
    notebook = student_notebook(key.sheet)
    path = tmp_path / "a.py"
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    code.append(FILL % "sorted(items)")
    path.write_text("\n".join(f"# In[ ]:\n\n\n{source}\n\n\n# # Text\n" for source in code))
    stub, own = own_cells(key.sheet, read_submission(path))
    assert "NotImplementedError" in stub.source and "sorted" in own.source


def test_a_script_of_jupyterlab_has_its_cells(tmp_path: Path) -> None:
    """It was one cell, in which one slip took everything with it."""
    path = tmp_path / "a.py"
    text = "# coding: utf-8\n\n# # Title\n\n# In[1]:\n\n\na = 1\n\n# In[ ]:\n\nb = = 2\n\n"
    text += "# In[12]:\nc = 3"
    path.write_bytes(text.replace("\n", "\r\n").encode())
    cells = [cell.source.strip() for cell in read_submission(path).cells]
    assert cells == ["# # Title", "a = 1", "b = = 2", "c = 3"]


def test_pictures_do_not_make_a_notebook_too_large(sheet: Sheet, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    notebook = hand_in(sheet, path, RIGHT)
    for megabytes, problem in ((15, ""), (50, "The file has more than 20000000 bytes")):
        notebook.metadata["picture"] = "x" * megabytes * 10**6
        path.write_text(json.dumps(notebook))
        assert read_submission(path).problem.startswith(problem)
        assert bool(read_submission(path).problem) == bool(problem)
    hand_in(sheet, path, "x = 1\n" * 400_000)
    assert read_submission(path).problem == "The file has more than 2000000 characters of code."
    (tmp_path / "a.py").write_text("x = 1\n" * 400_000)
    assert "2000000 characters" in read_submission(tmp_path / "a.py").problem


def test_a_loop_outside_of_functions_is_thought_of(sheet: Sheet) -> None:
    told = tell("timeout", "double", sheet.limits)
    assert "what they compute outside of functions counts too" in told


# --- imports -------------------------------------------------------------------------------------


def test_imports_that_the_grader_lacks_are_found_wherever_they_are() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    code = """
import jinja2, math
from jupytext import reads
def inside(): import numpy.linalg
def uses(): return jinja2.Template, math.pi
def named(): return reads
def helper(): return uses()
def nested(): return [lambda: inside() for _ in range(2)]
def clean(): return math.pi
class Box:
    @staticmethod
    def put(): return jinja2
"""
    exec(code, space)
    expected = {
        "inside": ["numpy"],
        "uses": ["jinja2"],
        "named": ["jupytext"],
        "helper": ["jinja2"],
        "nested": ["numpy"],
        "clean": [],
        "Box": ["jinja2"],
        "nothing": [],
    }
    assert {name: missing_imports(space, [name], ()) for name in expected} == expected
    assert missing_imports(space, ["inside", "uses"], ["numpy"]) == ["jinja2"]


def test_what_may_be_imported_is_said_in_the_notebook_and_in_the_feedback(sheet: Sheet) -> None:
    only = "Python's standard library only"
    assert (what_is_there(()), what_is_there(["torch"])) == (only, f"{only}, and torch")
    assert only in student_notebook(sheet).cells[0].source
    assert tell("ModuleNotFoundError", "double", sheet.limits) == (
        f"needs another module: graded code may import {only} (ModuleNotFoundError)"
    )


def test_check_warns_of_an_import(
    sheet: Sheet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from radixlab.classroom.release import write_student_files

    write_student_files(sheet, tmp_path)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("from radixlab.classroom import check\nimport jinja2\n" + RIGHT, space)
    assert not eval('check("double")', space).warning
    exec("def double(number):\n    jinja2.Template\n    return 2 * number", space)
    result = eval('check("double")', space)
    assert result and result.warning.startswith("Your code uses `jinja2`.")
    assert "Careful: Your code uses" in str(result)
    assert "<b>Careful:</b> Your code uses <code>jinja2</code>" in result._repr_html_()


# --- commands ------------------------------------------------------------------------------------


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(
        app,
        ["classroom", *map(str, arguments)],
        env={"RADIXLAB_CLASSROOM_SEED": "secret seed", "COLUMNS": "200"},
    )
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "05-double.md"
    path.write_text(SOURCE.format(name="05-double"), encoding="utf-8")
    return path


@linux
def test_a_late_file_takes_the_place_of_the_first_and_keeps_points(
    source: Path, tmp_path: Path
) -> None:
    sheet, folder, out = load_sheet(source), tmp_path / "in", tmp_path / "out"
    hand_in(sheet, folder / "ngcleo_4713_900001_05-double.ipynb", RIGHT, "Because.")
    assert "1 answer in words waits for points" in run("grade", source, folder, out)
    written = out / "written.csv"
    text = written.read_bytes().replace(b"ngcleo_4713,why,,2,,", b"ngcleo_4713,why,1,2,Hm,")
    written.write_bytes(text)
    late = folder / "ngcleo_LATE_4713_900099_05-double-1.ipynb"
    hand_in(sheet, late, RIGHT, "Because once is not enough.")
    assert "has changed the answer" in run("grade", source, folder, out)
    with written.open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["points"], row["comment"], row["changed"]) == ("1", "Hm", "yes")
    assert [path.name for path in (out / "results").iterdir()] == ["ngcleo_4713.json"]
    roster = tmp_path / "roster.csv"
    roster.write_text('Student,ID\n"Ng, Cleo",4713\n')
    assert "1 exported" in run("export", source, out, "--roster", roster)


@linux
def test_another_sheet_in_the_same_folder_is_refused_before_anything_is_lost(
    source: Path, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(load_sheet(source), folder / "ana.ipynb", RIGHT)
    run("grade", source, folder, out)
    before = (out / "results" / "ana.json").read_bytes()
    other = tmp_path / "06-other.md"
    other.write_text(SOURCE.format(name="06-other"), encoding="utf-8")
    said = run("grade", other, folder, out, "--again", code=2)
    assert "a folder of its own, such as results/06-other: it has 05-double" in said
    assert (out / "results" / "ana.json").read_bytes() == before


@linux
def test_files_that_are_no_notebook_are_named(source: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("x.zip", "ben.ipynb.txt", ".hidden"):
        (folder / name).write_text("")
    said = run("grade", source, folder, out, code=2)
    assert "not graded: x.zip (hand in 05-double.ipynb)" in said
    hand_in(load_sheet(source), folder / "ana" / "05-double.ipynb")
    hand_in(load_sheet(source), folder / "ana" / "05-double (1).ipynb", RIGHT)
    said = run("grade", source, folder, out)
    assert "not graded: ben.ipynb.txt (hand in 05-double.ipynb)" in said
    assert "not graded: x.zip" in said and ".hidden" not in said
    note = "05-double (1).ipynb was graded; nobody has written in 05-double.ipynb."
    assert f"ana: {note}" in said
    assert note in (out / "feedback" / "ana.html").read_text(encoding="utf-8")
    assert json.loads((out / "results" / "ana.json").read_text())["note"] == note


@linux
def test_an_import_that_is_not_there_is_named_in_the_feedback(source: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(load_sheet(source), folder / "ana.ipynb", f"import jinja2\n{RIGHT}")
    run("grade", source, folder, out)
    page = (out / "feedback" / "ana.html").read_text(encoding="utf-8")
    assert "stops with ModuleNotFoundError" in page
    assert "standard library only" in page


@linux
def test_unfinished_grades_leave_the_house_only_on_request(source: Path, tmp_path: Path) -> None:
    sheet, folder, out = load_sheet(source), tmp_path / "in", tmp_path / "out"
    hand_in(sheet, folder / "ana.ipynb", RIGHT, "Because.")
    hand_in(sheet, folder / "ben.ipynb", RIGHT)
    run("grade", source, folder, out)
    roster = tmp_path / "roster.csv"
    roster.write_text("name,username\nAna,ana\nBen,ben\n")
    assert "1 answer waits for points" in run("export", source, out, "--roster", roster, code=2)
    assert not (out / "moodle.csv").exists()
    said = run("export", source, out, "--roster", roster, "--partial")
    assert "not exported: ana: has answers without points" in said
    text = (out / "moodle.csv").read_text(encoding="utf-8")
    assert "ben" in text and "ana" not in text


def test_a_missing_path_and_a_short_seed_are_said_plainly(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "seed").write_text("short")
    said = run("grade", source, folder, tmp_path / "o", "--seed-file", tmp_path / "seed", code=2)
    assert "the seed has 5 characters: easy to guess" in said
    said = run("grade", source, folder, tmp_path / "o", "--seed-file", tmp_path / "no", code=2)
    assert "there is no such file" in said
    assert "there is no " in run("audit", tmp_path / "none.md", code=2)


def test_a_sheet_is_known_by_its_number_alone() -> None:
    assert load_sheet("5") == load_sheet("05")


def test_a_release_says_how_to_install(source: Path, tmp_path: Path) -> None:
    run("release", source, "--out", tmp_path / "a")
    readme = (tmp_path / "a" / "README.txt").read_text(encoding="utf-8")
    assert 'pip install "radixlab[lab]"' in readme and 'pip install -e ".[lab]"' in readme
    run("release", source, "--out", tmp_path / "b", "--install", "open our hub")
    readme = (tmp_path / "b" / "README.txt").read_text(encoding="utf-8")
    assert "    open our hub\n" in readme and "pip install" not in readme


def test_a_release_installs_what_its_sheets_preload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radixlab.classroom.release.audit", lambda sheet: [])  # takes seconds
    write_release([load_sheet("01"), load_sheet("08")], tmp_path)
    readme = (tmp_path / "README.txt").read_text(encoding="utf-8")
    assert '    python -m pip install "radixlab[lab]" safetensors torch\n' in readme
    assert '    python -m pip install -e ".[lab]" safetensors torch\n' in readme
