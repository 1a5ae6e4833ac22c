"""Grades and feedback go back to people: a roster, Moodle, Canvas, and a class of ten."""

from __future__ import annotations

import csv
import json
import sys
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jupytext", reason="needs radixlab[classroom]")

import nbformat
from test_classroom_mess import RIGHT, SOURCE, hand_in, run

from radixlab.classroom.collect import find_submissions
from radixlab.classroom.give_back import feedback_text, write_zips
from radixlab.classroom.gradebook import Gradebook
from radixlab.classroom.results import SubmissionResult
from radixlab.classroom.roster import Person, match, read_roster
from radixlab.classroom.sheet import Sheet, parse_sheet
from radixlab.classroom.spreadsheet import BadTable, read_csv
from radixlab.errors import InvalidArgument

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox runs on Linux")

NAME = "05-double"
CLASS = [
    ("Jörg", "Müller", "j.mueller@uni.example", "0711001"),
    ("Åsa", "Ångström", "asa@uni.example", "0711002"),
    ("Zoë", "van der Berg", "zoe@uni.example", "0711003"),
    ("Jean-Luc", "D'Été", "jean@uni.example", "0711004"),
    ("Ana María", "García López", "ana@uni.example", "0711005"),
    ("Weiß", "Groß", "weiss@uni.example", "0711006"),
    ("太郎", "山田", "taro@uni.example", "0711007"),
    ("Ólafur", "Þórsson", "olafur@uni.example", "0711008"),
    ("Kim", "Li", "kim1@uni.example", "0711009"),
    ("Łukasz", "Żółć", "lukasz@uni.example", "0711010"),
]
ABSENT = ("Nora", "Niemand", "nora@uni.example", "0711011")
WRONG = "def double(number):\n    print(2 * number)"


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return parse_sheet(SOURCE.format(name=NAME), NAME)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / f"{NAME}.md"
    path.write_text(SOURCE.format(name=NAME), encoding="utf-8")
    return path


def moodle_folder(sheet: Sheet, folder: Path) -> None:
    """Ten people: the first is wrong, the last sent an empty file, one is unpacked by macOS."""
    for number, (first, last, *_) in enumerate(CLASS):
        name = f"{first} {last}_{4700 + number}_assignsubmission_file"
        name = unicodedata.normalize("NFD", name) if number == 1 else name
        name += "_" if number % 2 else ""  # Moodle before 4.1
        hand_in(sheet, folder / name / f"{NAME}.ipynb", WRONG if number == 0 else RIGHT)
    (folder / name / f"{NAME}.ipynb").write_text("")
    text = folder / f"{first} {last}_4709_assignsubmission_onlinetext_"
    text.mkdir()
    (text / "onlinetext.html").write_text("hello")


def canvas_folder(sheet: Sheet, folder: Path) -> None:
    """The same ten: the second handed in again, too late; the third a script; the last nothing."""
    for number, (first, last, *_) in enumerate(CLASS):
        who = "".join(c for c in f"{last}{first}".lower() if c.isalnum())
        code = WRONG if number == 0 else RIGHT
        hand_in(sheet, folder / f"{who}_{100 + number}_{9000 + number}_{NAME}.ipynb", code)
        if number == 1:
            late = f"{who}_LATE_{100 + number}_{9100 + number}_{NAME}-1.ipynb"
            hand_in(sheet, folder / late, RIGHT)
        if number == 2:
            (folder / f"{who}_102_9002_{NAME}.ipynb").unlink()
            (folder / f"{who}_102_9002_{NAME}.py").write_text(RIGHT)
    (folder / f"{who}_109_9009_{NAME}.ipynb").write_text("")


def excel(path: Path) -> Path:
    """The list of a teacher, as Excel saves it in Europe."""
    lines = [
        "ID;Name;E-Mail",
        *(f"{n};{last}, {f};{mail}" for f, last, mail, n in [*CLASS, ABSENT]),
    ]
    path.write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n").encode())
    return path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def unzipped(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def taken_by_moodle(name: str) -> tuple[int, str]:
    """Whose file a name says it is, and what Moodle calls it, as its importer does."""
    _, number, plugin, kind, rest = name.rpartition("/")[2].split("_", 4)
    assert (plugin, kind) == ("assignsubmission", "file")
    return int(number), rest


def taken_by_canvas(name: str) -> tuple[int, int]:
    """User and attachment, as Canvas finds them: the first two parts of digits alone."""
    user, attachment = [int(part) for part in name.split("_") if part.isdigit()][:2]
    return user, attachment


# --- a class of ten ------------------------------------------------------------------------------


@linux
def test_a_class_from_moodle_gets_grades_with_names_and_feedback_back(
    source: Path, sheet: Sheet, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    moodle_folder(sheet, folder)
    roster = excel(tmp_path / "people.csv")
    said = run("grade", source, folder, out, "--roster", roster)
    assert "10 named; 1 handed in nothing:\nNiemand, Nora" in said
    rows = {row["id"]: row for row in table(out / "grades.csv")}
    assert len(rows) == 11
    for first, last, mail, number in CLASS:
        assert rows[number]["name"] == f"{last}, {first}"
        assert rows[number]["email"] == mail
        assert unicodedata.normalize("NFC", rows[number]["student"]).startswith(f"{first} {last}_")
    assert [rows[CLASS[i][3]]["total"] for i in (0, 1, 9)] == ["0", "4", "0"]
    assert rows[CLASS[9][3]]["problem"] == "The file is empty: hand in the notebook itself."
    missing = rows[ABSENT[3]]
    assert (missing["student"], missing["total"], missing["max"]) == ("", "0", "6")
    assert (missing["double"], missing["double max"], missing["problem"]) == ("0", "4", "missing")

    assert str(out / "feedback-moodle.zip") in run("give-back", source, out)
    files = unzipped(out / "feedback-moodle.zip")
    taken = {taken_by_moodle(name): page for name, page in files.items()}
    assert set(taken) == {(4700 + i, f"{NAME}.html") for i in range(10)}
    assert "and should return a whole number" in taken[4700, f"{NAME}.html"]
    assert "could not be graded" in taken[4709, f"{NAME}.html"]
    assert not (out / "feedback-canvas.zip").exists()
    before = (out / "feedback-moodle.zip").read_bytes()
    run("give-back", source, out)
    assert (out / "feedback-moodle.zip").read_bytes() == before


@linux
def test_a_class_from_canvas_gets_files_of_the_same_names_that_open_as_what_they_are(
    source: Path, sheet: Sheet, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    canvas_folder(sheet, folder)
    said = run("grade", source, folder, out, "--roster", excel(tmp_path / "people.csv"))
    assert "10 named; 1 handed in nothing:\nNiemand, Nora" in said
    written = out / "written.csv"  # in a script it is the teacher who tells what is an answer
    written.write_bytes(written.read_bytes().replace(b",why,,2,", b",why,0,2,"))
    run("give-back", source, out)
    files = unzipped(out / "feedback-canvas.zip")
    handed_in = {path.name for path in folder.iterdir()}
    assert set(files) < handed_in
    latest = {100 + i: 9000 + i for i in range(10)} | {101: 9101}
    assert dict(map(taken_by_canvas, files)) == latest
    for name, content in files.items():
        if name.endswith(".py"):
            assert all(line.startswith("#") for line in content.splitlines())
            compile(content, name, "exec")
        else:
            notebook = nbformat.reads(content, as_version=4)
            nbformat.validate(notebook)
            assert notebook.cells[0].source.startswith("# Feedback: Double\n")
    (wrong,) = (content for name, content in files.items() if "_100_" in name)
    text = json.loads(wrong)["cells"][0]["source"]
    assert "double returned None".replace("double", "`double`") in "".join(text)


# --- feedback that goes back ---------------------------------------------------------------------


def book(sheet: Sheet, *came_as: str, **fields: Any) -> Gradebook:
    results = {
        name: SubmissionResult(name, NAME, "", (), came_as=name, **fields) for name in came_as
    }
    return Gradebook(sheet, results, {})


def test_who_came_from_neither_is_named_and_if_all_did_nothing_is_written(
    sheet: Sheet, tmp_path: Path
) -> None:
    mixed = book(
        sheet, "ana.ipynb", "doe_1_2_05-double.ipynb", "J D_3_assignsubmission_file_a.ipynb"
    )
    paths, others = write_zips(mixed, tmp_path, mixed.results)
    assert [path.name for path in paths] == ["feedback-canvas.zip", "feedback-moodle.zip"]
    assert others == ["ana.ipynb"]
    assert set(unzipped(paths[1])) == {"J D_3_assignsubmission_file_05-double.html"}
    neither = book(sheet, "ana.ipynb", "ben", "folder_1_2_x")  # a folder is not Canvas's
    with pytest.raises(InvalidArgument, match=r"so hand out the pages in .*none"):
        write_zips(neither, tmp_path / "none", neither.results)
    assert not (tmp_path / "none").exists()


@linux
def test_feedback_goes_back_when_all_answers_have_points_or_without_those_people(
    source: Path, sheet: Sheet, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(sheet, folder / "doeann_1_11_05-double.ipynb", RIGHT, "Because.")
    hand_in(sheet, folder / "roeben_2_12_05-double.ipynb", RIGHT)
    run("grade", source, folder, out)
    assert "Unfinished: 1 answer waits for points" in run("give-back", source, out, code=2)
    assert not (out / "feedback-canvas.zip").exists()
    said = run("give-back", source, out, "--partial")
    assert "not given back: doeann_1: has answers without points" in said
    assert set(unzipped(out / "feedback-canvas.zip")) == {"roeben_2_12_05-double.ipynb"}


def test_whatever_a_student_wrote_stays_within_its_fence(sheet: Sheet, tmp_path: Path) -> None:
    from dataclasses import replace

    from test_classroom_report import result, shown

    evil = "```\n# mine ````` <script>"
    (exercise,) = result("ana", "example").exercises
    first, *others = exercise.groups
    groups = (replace(first, shown=(shown([evil, f"{evil} {evil}"], []),)), *others)
    ana = SubmissionResult(
        "ana", NAME, "", (replace(exercise, exercise="double", groups=groups),), {"why": evil}
    )
    text = feedback_text(Gradebook(sheet, {"ana": ana}, {}), "ana")
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(text)
    assert not any(token.type == "html_block" for token in tokens)
    assert [
        token.content for token in tokens if token.type == "inline" and "mine" in token.content
    ] == []


def test_the_latest_of_several_files_is_what_canvas_knows(sheet: Sheet, tmp_path: Path) -> None:
    hand_in(sheet, tmp_path / "doe_1_11_05-double.ipynb", RIGHT)
    hand_in(sheet, tmp_path / "doe_LATE_1_12_05-double-1.ipynb")  # as it was handed out
    (found,) = find_submissions(tmp_path, NAME)
    assert (found.path.name, found.came_as) == (
        "doe_1_11_05-double.ipynb",
        "doe_LATE_1_12_05-double-1.ipynb",
    )


# --- the roster ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffid;name;e-mail\r\n7;Müller, Ana;a@b\r\n",
        "sep=;\r\nid;name;e-mail\r\n7;Müller, Ana;a@b\r\n",
        '"id"\t"name"\t"e-mail"\n"7"\t"Müller, Ana"\t"a@b"\n',
        '"Note, if any",ID,Name,E-Mail Address\n,7,"Müller, Ana",a@b\n',
        '"Notes, a, b";ID;Name;Mail\n;7;"Müller, Ana";a@b\n',
        "Student ID,First name,Last name,Email\n7,Ana,Müller,a@b\n",
    ],
)
def test_every_list_of_people_is_understood(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(text, encoding="utf-8", newline="")
    (person,) = read_roster(tmp_path / "p.csv")
    assert (person.number, person.email) == ("7", "a@b")
    for student in ("Ana Müller", "müllerana_4711", "Ana Mu\u0308ller_99", "A@B", "7"):
        assert match([student], [person]).people, student


def test_a_table_without_people_says_what_it_has_and_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("Colour;Size\nred;3\n")
    with pytest.raises(BadTable, match="it has Colour, Size, and needs columns such as student, "):
        read_roster(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text("name;id\n")
    with pytest.raises(BadTable, match="it has no rows, and needs"):
        read_roster(tmp_path / "p.csv")
    assert read_csv(tmp_path / "p.csv") == []


def test_an_id_of_the_school_is_not_taken_for_one_of_canvas(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,name\n101,Eve Roe\n102,Jane Doe\n")
    people = read_roster(tmp_path / "p.csv")
    assert match(["doejane_101"], people).people == {people[1]: "doejane_101"}
    (tmp_path / "c.csv").write_text('Student,ID\n"Roe, Eve",101\n"Doe, Jane",102\n')
    people = read_roster(tmp_path / "c.csv")
    assert match(["doejane_101"], people).people == {people[0]: "doejane_101"}


def test_whose_submission_is_not_clear_is_not_missing() -> None:
    twins = [Person(name="Kim Li", username="k1"), Person(name="Kim Li", username="k2")]
    matching = match(["Kim Li_7"], [*twins, Person(name="Jo")])
    assert matching.unmatched == {"Kim Li_7": "fits 2 people: Kim Li, Kim Li"}
    assert [person.name for person in matching.missing] == ["Jo"]
    assert match(["kimli"], [Person(name="Kim Li")]).people


@linux
def test_a_roster_is_kept_for_later_and_a_bad_one_stops_before_anything_is_graded(
    source: Path, sheet: Sheet, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(sheet, folder / "ana.ipynb", RIGHT)
    hand_in(sheet, folder / "mallory.ipynb", RIGHT)
    bad = tmp_path / "bad.csv"
    bad.write_text("Colour\nred\n")
    assert "BadTable" in run("grade", source, folder, out, "--roster", bad, code=2)
    assert not out.exists()
    run("grade", source, folder, out)
    assert "name" not in table(out / "grades.csv")[0]
    said = run("export", source, out, code=2)
    assert "--roster" in said and "has none from before" in said
    good = tmp_path / "good.csv"
    good.write_text("name;username\nAna A;ana\nZoe Z;zoe\n")
    said = run("feedback", source, out, "--roster", good)
    assert "not named: mallory: nobody of the roster" in said
    assert "1 named; 1 handed in nothing:\nZoe Z" in said
    rows = table(out / "grades.csv")
    assert [(row["student"], row["name"], row["id"], row["problem"]) for row in rows] == [
        ("ana", "Ana A", "ana", ""),
        ("mallory", "", "", "nobody of the roster"),
        ("", "Zoe Z", "zoe", "missing"),
    ]
    before = (out / "roster.csv").read_bytes()
    assert "BadTable" in run("feedback", source, out, "--roster", bad, code=2)
    assert (out / "roster.csv").read_bytes() == before == good.read_bytes()
    assert "1 exported" in run("export", source, out, "--for", "moodle")
