"""Tables and pages of the classroom, from results made here; no sandbox is needed."""

from __future__ import annotations

import csv
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium, watch
from hypothesis import given
from hypothesis import strategies as st

from radixlab.classroom.exports import assignment_name, write_canvas, write_moodle
from radixlab.classroom.gradebook import Gradebook, read_marks, read_results, update_marks
from radixlab.classroom.outcome import Outcome
from radixlab.classroom.report import advice, feedback_page, statistics_page, write_reports
from radixlab.classroom.results import ExerciseResult, GroupResult, Shown, SubmissionResult
from radixlab.classroom.roster import Person, match, read_roster
from radixlab.classroom.sheet import Sheet, parse_sheet
from radixlab.classroom.spreadsheet import BadTable, harmless, plain, read_csv, write_csv
from radixlab.classroom.summary import Summary

SHEET = """---
radixlab:
  sheet: 09-test
  title: A sheet of two tasks
---

# A sheet of two tasks

```{code-cell} ipython3
---
role: answer
exercise: double
points: {example: 2, links: 3, random: 5}
visible: [example]
---
def double(x):
    ### BEGIN SOLUTION
    return x + x
    ### END SOLUTION
```

+++ {"role": "hint", "exercise": "double"}

How often do you need `x`?

+++

```{code-cell} ipython3
---
role: cases
exercise: double
---
def cases(rng):
    yield "example", [1]
```

+++ {"role": "written", "exercise": "why"}

Why is *twice* more than **once**?

+++ {"role": "rubric", "exercise": "why"}

Two is more than one.

+++
"""
SHEET = SHEET.replace('"exercise": "why"}\n\nWhy', '"exercise": "why", "points": 4}\n\nWhy')
ATTACK = '</pre><script>alert("x")</script><img src=x onerror=alert(1)>'
FORMULA = '=HYPERLINK("http://example.org","x")'
SECRET = "hidden-input-4711"


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return parse_sheet(SHEET, "09-test")


def shown(got: Any = 3, expected: Any = 2, args: Any = 1) -> Shown:
    case = {"group": "example", "args": [args], "expected": expected}
    return Shown(1, case, Outcome("ok", got))


def result(
    student: str, *failed: str, written: str = "Because.", mistake: str = "", **fields: Any
) -> SubmissionResult:
    points = {"example": 2.0, "links": 3.0, "random": 5.0}
    groups = tuple(
        GroupResult(
            name=name,
            visible=name == "example",
            points=0.0 if name in failed else most,
            most=most,
            cases=5,
            failed=(2, 4) if name in failed else (),
            how={"wrong value": 2} if name in failed else {},
            shown=(shown(),) if name in failed else (),
        )
        for name, most in points.items()
    )
    exercises = (ExerciseResult("double", groups, mistake),)
    answer = {"why": written}
    return replace(SubmissionResult(student, "09-test", "key", exercises, answer), **fields)


def save(out: Path, *results: SubmissionResult) -> None:
    (out / "results").mkdir(parents=True, exist_ok=True)
    for each in results:
        each.save(out / "results" / f"{each.student}.json")


def read(sheet: Sheet, out: Path, *results: SubmissionResult) -> Gradebook:
    save(out, *results)
    return Gradebook.read(sheet, out)


def fill(out: Path, whose: str, /, **cells: str) -> None:
    """What a teacher does with written.csv in a spreadsheet."""
    with (out / "written.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["student"] == whose:
            row.update(cells)
    with (out / "written.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def grades(out: Path) -> dict[str, dict[str, str]]:
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


# --- tables --------------------------------------------------------------------------------------


@given(st.text())
def test_a_cell_comes_back_as_it_was_and_never_begins_as_a_formula(cell: str) -> None:
    written = harmless(cell)
    assert isinstance(written, str)
    assert plain(written) == cell
    assert not written.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_numbers_are_no_formulas(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", ["a", "b", "c"], [[-1.5, 2.0, None]])
    assert (tmp_path / "t.csv").read_bytes() == b"a,b,c\r\n-1.5,2,\r\n"


@pytest.mark.parametrize("text", ["a;b\n1;2\n", "a\tb\n1\t2\n", "\ufeffa,b\r\n1,2\r\n\r\n"])
def test_tables_of_every_spreadsheet_are_understood(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text, encoding="utf-8", newline="")
    assert read_csv(tmp_path / "t.csv") == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is empty"), (b"name\nM\xfcller\n", "not in UTF-8"), (b"a,b\n1,2\n", "no column name")],
)
def test_a_table_that_cannot_be_used_says_why(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(BadTable, match=problem):
        read_csv(tmp_path / "t.csv", ["name"])


def test_grades_say_points_and_maximum_of_each_task_and_what_is_open(
    sheet: Sheet, tmp_path: Path
) -> None:
    book = read(sheet, tmp_path, result("ana"), result("bo", "links", "random"))
    book.write_grades(tmp_path / "grades.csv")
    assert grades(tmp_path)["bo"] == {
        "student": "bo",
        "double": "2",
        "double max": "10",
        "why": "",
        "why max": "4",
        "total": "2",
        "max": "14",
        "not graded": "why",
        "problem": "",
    }


def test_hostile_names_are_harmless_in_a_table(sheet: Sheet, tmp_path: Path) -> None:
    book = read(sheet, tmp_path, result("=cmd|' ;C'!A0"), result("\udcff"), result("名前"))
    write_reports(book, tmp_path)
    assert set(grades(tmp_path)) == {"'=cmd|' ;C'!A0", "\\udcff", "名前"}
    assert (tmp_path / "grades.csv").read_bytes().startswith(b"\xef\xbb\xbf")  # for Excel
    assert set(read_marks(tmp_path / "written.csv", sheet)) == {
        ("=cmd|' ;C'!A0", "why"),
        ("\\udcff", "why"),
        ("名前", "why"),
    }


def test_results_of_another_sheet_are_refused(sheet: Sheet, tmp_path: Path) -> None:
    save(tmp_path, result("ana", sheet="02-split"))
    with pytest.raises(BadTable, match="is of sheet 02-split, not of 09-test"):
        read_results(sheet, tmp_path)


def test_a_folder_without_results_is_refused(sheet: Sheet, tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="has no results"):
        read_results(sheet, tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "ana.json").write_text("{}")
    with pytest.raises(BadTable, match="is no result"):
        read_results(sheet, tmp_path)


# --- answers in words ----------------------------------------------------------------------------


def test_what_a_teacher_filled_in_is_kept_and_counted(sheet: Sheet, tmp_path: Path) -> None:
    read(sheet, tmp_path, result("ana", written="Two."), result("bo"))
    fill(tmp_path, "ana", points="3,5", comment="- nice, but why?")
    book = read(sheet, tmp_path, result("ana", "links", written="Two."), result("cy"))
    assert book.mark("ana", "why").points == 3.5
    assert book.mark("ana", "why").comment == "- nice, but why?"
    assert book.total("ana") == 7 + 3.5
    assert book.ungraded("ana") == []
    assert book.ungraded("cy") == ["why"]
    assert book.changed() == []


def test_writing_twice_changes_nothing(sheet: Sheet, tmp_path: Path) -> None:
    read(sheet, tmp_path, result("ana", written=FORMULA), result("bo", written="a\n\n\tb"))
    fill(tmp_path, "ana", points="1", comment=FORMULA)
    Gradebook.read(sheet, tmp_path)
    before = (tmp_path / "written.csv").read_bytes()
    assert Gradebook.read(sheet, tmp_path).mark("ana", "why").comment == FORMULA
    assert (tmp_path / "written.csv").read_bytes() == before


def test_a_changed_answer_keeps_its_mark_and_says_so_until_the_teacher_has_looked(
    sheet: Sheet, tmp_path: Path
) -> None:
    read(sheet, tmp_path, result("ana", written="One."))
    fill(tmp_path, "ana", points="2")
    for _ in range(2):
        book = read(sheet, tmp_path, result("ana", written="One, no: two."))
        assert book.changed() == [("ana", "why")]
        assert book.mark("ana", "why").points == 2
    fill(tmp_path, "ana", changed="")
    assert Gradebook.read(sheet, tmp_path).changed() == []


def test_no_answer_is_worth_nothing_until_there_is_one(sheet: Sheet, tmp_path: Path) -> None:
    assert read(sheet, tmp_path, result("ana", written=" \n")).ungraded("ana") == []
    book = read(sheet, tmp_path, result("ana", written="Two."))
    assert book.ungraded("ana") == ["why"]
    assert book.changed() == []


def test_marks_of_who_is_no_longer_there_are_kept(sheet: Sheet, tmp_path: Path) -> None:
    path = tmp_path / "written.csv"
    update_marks(path, sheet, {"ana": result("ana")})
    fill(tmp_path, "ana", points="4")
    assert update_marks(path, sheet, {"bo": result("bo")})[("ana", "why")].points == 4


@pytest.mark.parametrize("points", ["5", "-1", "nan", "inf", "four", "1.2.3"])
def test_points_that_cannot_be_are_refused_and_nothing_is_lost(
    points: str, sheet: Sheet, tmp_path: Path
) -> None:
    read(sheet, tmp_path, result("ana"), result("bo"))
    fill(tmp_path, "bo", points=points)
    before = (tmp_path / "written.csv").read_bytes()
    with pytest.raises(BadTable, match="row 3: points of bo for why must be from 0 to 4"):
        Gradebook.read(sheet, tmp_path)
    assert (tmp_path / "written.csv").read_bytes() == before


def test_a_student_has_one_row_for_each_question(sheet: Sheet, tmp_path: Path) -> None:
    read(sheet, tmp_path, result("ana"), result("bo"))
    fill(tmp_path, "bo", student="ana")
    with pytest.raises(BadTable, match="row 3: ana has a row for why already"):
        Gradebook.read(sheet, tmp_path)


# --- feedback ------------------------------------------------------------------------------------


def test_feedback_says_what_was_right_what_was_not_and_what_seems_wrong(
    sheet: Sheet, tmp_path: Path
) -> None:
    ana = result("ana", "example", "random", mistake="You add one. Twice means both.")
    page = feedback_page(read(sheet, tmp_path, ana), "ana")
    for text in (
        "<title>Feedback for ana: A sheet of two tasks</title>",
        "double: 3 of 10 points",
        "all 5 right",
        "3 of 5 right: no points, since a group counts as a whole",
        "2 cases: gave another value than the right one",
        "You add one. Twice means both.",
        "case 1</b> <code>double(1)",
        "it gave   3\nexpected  2",
        "How often do you need <code>x</code>?",
        "Mend what the box above says",
        "not graded yet",
    ):
        assert text in page, text


@pytest.mark.parametrize(
    ("failed", "ways", "told"),
    [
        (["example"], {"wrong value": 2}, 'Run check("double") in your notebook'),
        (["random"], {"wrong value": 2}, "think of inputs that they don't have (random)"),
        (["example"], {"missing": 5}, "Write a function of the name double"),
        (["example"], {"NotImplementedError": 5}, "Begin with the first hint"),
    ],
)
def test_feedback_says_what_to_do_next(
    failed: list[str], ways: dict[str, int], told: str, sheet: Sheet
) -> None:
    (exercise,) = result("ana", *failed).exercises
    groups = tuple(replace(g, how=ways if g.failed else {}) for g in exercise.groups)
    steps = list(advice(sheet.exercises["double"], replace(exercise, groups=groups)))
    assert told in steps[0]
    assert steps[1] == "Read the hints again, one at a time."


def test_nothing_is_left_to_do_where_all_is_right(sheet: Sheet) -> None:
    (exercise,) = result("ana").exercises
    assert list(advice(sheet.exercises["double"], exercise)) == []


def test_a_failed_tree_is_drawn_beside_the_expected_one(sheet: Sheet, tmp_path: Path) -> None:
    leaf = {"key": [5], "value": [0], "ref_count": 1, "children": []}
    root = {"key": [], "value": [], "children": [leaf]}
    other = root | {"children": [leaf | {"ref_count": 2}]}
    ana = result("ana", "example")
    (exercise,) = ana.exercises
    first, *others = exercise.groups
    drawn = replace(first, shown=(shown({"tree": other}, {"tree": root}),))
    ana = replace(ana, exercises=(replace(exercise, groups=(drawn, *others)),))
    page = feedback_page(read(sheet, tmp_path, ana), "ana")
    assert "Node [5]: ref_count is 2, expected 1." in page
    assert page.count("<svg") == 2


@pytest.mark.parametrize(
    "tree",
    [
        {"key": [ATTACK], "value": [ATTACK], "ref_count": ATTACK, "children": []},
        {"key": [], "value": [], "children": ATTACK},
        {"key": [[[]]], "value": {}, "children": [[], None, {"key": [1], "value": [1]}]},
        {"key": [], "value": [], "children": [{"key": [], "value": []}] * 400},
    ],
)
def test_a_hostile_tree_harms_no_page(tree: Any, sheet: Sheet, tmp_path: Path) -> None:
    expected = {"key": [], "value": [], "children": [{"key": [1], "value": [2]}]}
    ana = result("ana", "example")
    (exercise,) = ana.exercises
    first, *others = exercise.groups
    hostile = replace(first, shown=(shown(tree, expected),))
    ana = replace(ana, exercises=(replace(exercise, groups=(hostile, *others)),))
    page = feedback_page(read(sheet, tmp_path, ana), "ana")
    assert "<script" not in page
    assert "<img" not in page
    assert len(page) < 100_000


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("timeout", "did not come back within 2 s of computing"),
        ("memory", "wanted more than 512 MiB"),
        ("missing", "there is no function double"),
        ("NotImplementedError", "not written yet"),
        ("ZeroDivisionError", "divided by zero (ZeroDivisionError)"),
        ("PermissionError", "stopped with the exception PermissionError"),
    ],
)
def test_feedback_explains_how_a_case_failed(
    way: str, sentence: str, sheet: Sheet, tmp_path: Path
) -> None:
    ana = result("ana", "random")
    (exercise,) = ana.exercises
    *others, last = exercise.groups
    groups = (*others, replace(last, how={way: 1}))
    ana = replace(ana, exercises=(replace(exercise, groups=groups),))
    assert f"1 case: {sentence}" in feedback_page(read(sheet, tmp_path, ana), "ana")


def test_22_feedback_never_shows_a_hidden_case(sheet: Sheet, tmp_path: Path) -> None:
    """Even if a result held one (jupyter/nbgrader#917)."""
    ana = result("ana", "example", "random")
    (exercise,) = ana.exercises
    leaky = shown(SECRET, SECRET, SECRET)
    groups = tuple(replace(group, shown=(leaky,)) for group in exercise.groups if not group.visible)
    ana = replace(ana, exercises=(replace(exercise, groups=groups),))
    book = read(sheet, tmp_path, ana)
    write_reports(book, tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert len(files) == 5
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


def test_what_a_student_wrote_is_text_and_nothing_else(sheet: Sheet, tmp_path: Path) -> None:
    name = "<script>alert(1)<" + "\u202e"
    ana = result(name, "example", written=ATTACK, problem=ATTACK, cells=((1, ATTACK),))
    (exercise,) = ana.exercises
    first, *others = exercise.groups
    hostile = replace(
        first, how={ATTACK: 1}, shown=(shown({ATTACK: [ATTACK, "\ud800\u202e\x00"]}),)
    )
    ana = replace(ana, exercises=(replace(exercise, groups=(hostile, *others)),))
    book = read(sheet, tmp_path, ana)
    write_reports(book, tmp_path)
    for path in tmp_path.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        assert "<script" not in page
        assert "<img" not in page
        assert "default-src 'none'" in page
        assert "\x00" not in page
    assert ATTACK not in statistics_page(book)


def test_a_page_loads_nothing_and_has_a_language_and_a_title(sheet: Sheet, tmp_path: Path) -> None:
    write_reports(read(sheet, tmp_path, result("ana", "links")), tmp_path)
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) == 3
    for path in pages:
        page = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert '<html lang="en">' in page
        assert page.count("<title>") == page.count("<h1>") == 1
        assert "http" not in page.replace("http-equiv", "")
        assert " src=" not in page
        assert "@import" not in page


def test_the_same_results_give_the_same_bytes(sheet: Sheet, tmp_path: Path) -> None:
    pages = []
    for folder in ("one", "two"):
        results = [result("ana", "links"), result("bo", "example", mistake="No."), result("cy")]
        out = tmp_path / folder
        write_reports(read(sheet, out, *results), out)
        pages.append({p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()})
    assert pages[0] == pages[1]
    assert len(pages[0]) == 3 + 3 + 4


def test_a_submission_that_could_not_be_read_gets_a_page_too(sheet: Sheet, tmp_path: Path) -> None:
    bad = SubmissionResult("ana", "09-test", "key", (), problem="it is no notebook")
    book = read(sheet, tmp_path, bad)
    page = feedback_page(book, "ana")
    assert "could not be graded: it is no notebook</bdi>" in page
    assert "0 of 14 points" in page
    assert "it is no notebook" in statistics_page(book)


def test_long_and_deep_values_are_cut(sheet: Sheet, tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    for value in ("x" * 10**6, deep, [deep] * 1000, {"x" * 10**5: 1}):
        ana = result("ana", "example")
        (exercise,) = ana.exercises
        first, *others = exercise.groups
        groups = (replace(first, shown=(shown(value, [0]), shown(0, value))), *others)
        ana = replace(ana, exercises=(replace(exercise, groups=groups),))
        assert len(feedback_page(read(sheet, tmp_path, ana), "ana")) < 40_000


def test_of_many_failed_cases_some_are_shown_and_the_others_counted(
    sheet: Sheet, tmp_path: Path
) -> None:
    page = feedback_page(read(sheet, tmp_path, result("ana", "example")), "ana")
    assert page.count("<details open>") == 1
    assert "And 1 more." in page  # two failed, one is kept


# --- the class -----------------------------------------------------------------------------------


def test_a_class_in_numbers(sheet: Sheet, tmp_path: Path) -> None:
    results = [
        result("ana"),
        result("bo", "random", mistake="No."),
        result("cy", "random", "example", mistake="No."),
        SubmissionResult("dee", "09-test", "key", (), problem="it is empty"),
    ]
    save(tmp_path, *results)
    Gradebook.read(sheet, tmp_path)
    fill(tmp_path, "ana", points="4")
    summary = Summary.of(Gradebook.read(sheet, tmp_path))
    assert (summary.submissions, summary.problems) == (4, {"dee": "it is empty"})
    double, why, total = summary.tasks
    assert (double.graded, round(double.mean, 2), double.median) == (3, 6.0, 5)
    assert double.shares == (0, 0, 2, 0, 0, 1)
    assert (why.graded, why.shares) == (1, (0, 0, 0, 0, 0, 1))
    assert (total.graded, total.mean, total.most) == (1, 14, 14)
    assert [(f.group, f.number, f.times) for f in summary.failures] == [
        ("random", 2, 2),
        ("random", 4, 2),
        ("example", 2, 1),
        ("example", 4, 1),
    ]
    assert [(m.sentence, m.times) for m in summary.mistakes] == [("No.", 2)]


def test_a_class_of_nobody_and_a_perfect_class_have_a_page(sheet: Sheet, tmp_path: Path) -> None:
    nobody = Gradebook(sheet, {"a": SubmissionResult("a", "09-test", "", (), problem="none")}, {})
    assert "of which 0 could be graded" in statistics_page(nobody)
    perfect = read(sheet, tmp_path, result("ana"))
    assert "None fails." in statistics_page(perfect)


# --- exports -------------------------------------------------------------------------------------

CANVAS_ROSTER = """\
Student,ID,SIS User ID,SIS Login ID,Section,A sheet of two tasks (77),Current Score
    Points Possible,,,,,14,(read only)
"Doe, Jane",101,s1,jane,Mon,,
"Lee, Jan",102,s2,lee,Tue,,
"O'Neil, Áine",103,s3,aine,Tue,,
"""


@pytest.fixture
def roster(tmp_path: Path) -> Path:
    path = tmp_path / "roster.csv"
    path.write_text(CANVAS_ROSTER, encoding="utf-8-sig")
    return path


def test_canvas_gets_its_own_form(sheet: Sheet, tmp_path: Path, roster: Path) -> None:
    names = ["doejane_101_9001_09-test", "leejan_LATE_102_9002_09-test-1", "mallory"]
    book = read(sheet, tmp_path, result(names[0], "links"), result(names[1]), result(names[2]))
    matching = match(book.results, read_roster(roster))
    write_canvas(book, matching, tmp_path / "canvas.csv", assignment_name(book, roster))
    assert (tmp_path / "canvas.csv").read_bytes().decode().split("\r\n") == [
        "Student,ID,SIS User ID,SIS Login ID,Section,A sheet of two tasks (77)",
        "Points Possible,,,,,14",
        '"Doe, Jane",101,s1,jane,Mon,7',
        '"Lee, Jan",102,s2,lee,Tue,10',
        "",
    ]
    assert matching.unmatched == {"mallory": "nobody of the roster"}
    assert [person.name for person in matching.missing] == ["O'Neil, Áine"]


def test_moodle_gets_a_grade_and_feedback_without_a_word_of_the_student(
    sheet: Sheet, tmp_path: Path
) -> None:
    roster = tmp_path / "roster.csv"
    roster.write_text(
        "First name,Surname,Username,ID number,Email address\nJane,Doe,jd,7,j@d.org\n"
    )
    name = "Jane Doe_4711_assignsubmission_file"
    read(sheet, tmp_path, result(name, "links", mistake="You add one.", written=ATTACK))
    fill(tmp_path, name, points="3", comment="Good.")
    book = Gradebook.read(sheet, tmp_path)
    write_moodle(book, match(book.results, read_roster(roster)), tmp_path / "moodle.csv")
    assert (tmp_path / "moodle.csv").read_bytes().decode().split("\r\n") == [
        "username,idnumber,email,grade,feedback",
        "jd,7,j@d.org,10,double: 7 of 10. You add one. why: 3 of 4. Good.",
        "",
    ]


JANE = Person(name="Doe, Jane", id="101", username="jane", email="jane@d.org", participant="4711")
JAN = Person(name="Jan Lee", id="102", username="lee", idnumber="s2", participant="4712")


@pytest.mark.parametrize(
    "student",
    [
        "jane",
        "JANE",
        "jane@d.org",
        "101",
        "Jane Doe",
        "doe_jane",
        "doejane_101_9001_09-test",
        "renamed_LATE_101_9001_a_b_c",
        "Jane Doe_4711_assignsubmission_file",
        "Participant_4711_assignsubmission_file_",
        "Jane Doe_4711_assignsubmission_file_09-test",
    ],
)
def test_a_submission_finds_its_person(student: str) -> None:
    assert match([student], [JANE, JAN]).people == {JANE: student}


@pytest.mark.parametrize(
    ("students", "reason"),
    [
        (["jan"], "nobody"),
        (["doejane_999_9001_x"], "nobody"),  # the roster has ids, and this is none of them
        (["Jane Doe_4799_assignsubmission_file"], "nobody"),
        (["jane", "Jane Doe"], "one of several submissions of Doe, Jane"),
        ([""], "nobody"),
    ],
)
def test_nothing_is_guessed(students: list[str], reason: str) -> None:
    matching = match(students, [JANE, JAN])
    assert not matching.people
    assert all(reason in why for why in matching.unmatched.values())


def test_two_people_of_one_name_are_told_apart_or_not_at_all() -> None:
    twins = [Person(name="Kim Li", username="kl1"), Person(name="Kim Li", username="kl2")]
    assert match(["Kim Li"], twins).unmatched == {"Kim Li": "fits 2 people: Kim Li, Kim Li"}
    assert match(["kl2"], twins).people == {twins[1]: "kl2"}


def test_a_roster_that_names_nobody_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("Colour,Size\nred,3\n")
    with pytest.raises(BadTable, match="names nobody"):
        read_roster(tmp_path / "r.csv")


# --- in a browser --------------------------------------------------------------------------------


@pytest.mark.long
def test_pages_are_clean_accessible_and_fit_every_screen(sheet: Sheet, tmp_path: Path) -> None:
    ana = result("ana" * 40, "example", "random", mistake="You add one.", cells=((3, "NameError"),))
    bad = SubmissionResult("bo", "09-test", "", (), problem="it is empty")
    write_reports(read(sheet, tmp_path, ana, bad), tmp_path)
    with chromium() as browser:
        for path in sorted(tmp_path.rglob("*.html")):
            for width, scheme in itertools.product((360, 1280), ("light", "dark")):
                size = {"width": width, "height": 900}
                with watch(browser, viewport=size, color_scheme=scheme) as watched:
                    watched.page.goto(path.as_uri())
                    watched.page.evaluate(
                        "document.querySelectorAll('details').forEach((e) => { e.open = true; })"
                    )
                    wide = watched.page.evaluate("document.documentElement.scrollWidth")
                    assert wide <= width, path.name
                    watched.assert_clean()
                    watched.assert_accessible()
