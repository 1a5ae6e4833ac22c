"""Which of a student's files is graded, and that whoever reads the grade is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="needs radixlab[classroom]")

from test_classroom_mess import RIGHT, SOURCE, found_in, hand_in, run

from radixlab.classroom.collect import ignored_files
from radixlab.classroom.sheet import Sheet, parse_sheet

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox runs on Linux")

NAME = "05-double"
BROKEN = {"empty": b"", "not JSON": b'{"cells": [', "not text": b"\xff\xfe\x00"}


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return parse_sheet(SOURCE.format(name=NAME), NAME)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / f"{NAME}.md"
    path.write_text(SOURCE.format(name=NAME), encoding="utf-8")
    return path


# --- several that could be meant -----------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
def test_of_a_file_and_a_folder_of_one_student_it_is_said_which_was_graded(
    sheet: Sheet, tmp_path: Path, bare: bool
) -> None:
    hand_in(sheet, tmp_path / "ben.ipynb", RIGHT, bare=bare)
    hand_in(sheet, tmp_path / "ben" / f"{NAME}.ipynb", RIGHT, bare=bare)
    ben = found_in(tmp_path)["ben"]
    assert ben.path == tmp_path / "ben" / f"{NAME}.ipynb"
    assert ben.note == (
        "There are several files of this sheet: ben/05-double.ipynb was graded, not ben.ipynb."
    )


@pytest.mark.parametrize("bare", [False, True])
def test_of_a_script_and_a_notebook_of_one_student_it_is_said_which_was_graded(
    sheet: Sheet, tmp_path: Path, bare: bool
) -> None:
    (tmp_path / "ana.py").write_text(RIGHT)
    hand_in(sheet, tmp_path / "ana.ipynb", RIGHT, bare=bare)
    ana = found_in(tmp_path)["ana"]
    assert ana.path.name == "ana.ipynb"
    assert ana.note == "There are several files of this sheet: ana.ipynb was graded, not ana.py."


@linux
def test_the_teachers_table_and_the_students_page_say_which_of_two_files_was_graded(
    source: Path, sheet: Sheet, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(sheet, folder / "ana.ipynb", RIGHT)
    (folder / "ana.py").write_text(RIGHT)
    note = "There are several files of this sheet: ana.ipynb was graded, not ana.py."
    assert f"ana: {note}" in run("grade", source, folder, out)
    assert note in (out / "feedback" / "ana.html").read_text(encoding="utf-8")


def test_a_file_of_another_sheet_does_not_hide_the_one_in_the_folder(
    sheet: Sheet, tmp_path: Path
) -> None:
    other = parse_sheet(SOURCE.format(name="03-other"), "03-other")
    hand_in(other, tmp_path / "ben.ipynb", RIGHT)
    hand_in(sheet, tmp_path / "ben" / f"{NAME}.ipynb", RIGHT)
    ben = found_in(tmp_path)["ben"]
    assert (ben.path.parent.name, ben.note) == ("ben", "")
    assert found_in(tmp_path, "03-other")["ben"].path.name == "ben.ipynb"


def test_files_of_one_name_are_told_apart_by_their_folders(sheet: Sheet, tmp_path: Path) -> None:
    for place in ("week 1", "week 2"):
        hand_in(sheet, tmp_path / "ana" / place / f"{NAME}.ipynb", RIGHT)
    hand_in(sheet, tmp_path / "ben" / f"{NAME}.ipynb", RIGHT)
    hand_in(sheet, tmp_path / "ben" / "old" / f"{NAME}.ipynb", RIGHT)
    found = found_in(tmp_path)
    assert "week 2/05-double.ipynb was graded, not week 1/05-double.ipynb." in found["ana"].note
    assert "05-double.ipynb was graded, not old/05-double.ipynb." in found["ben"].note


def test_a_later_upload_to_canvas_takes_the_place_of_an_earlier_one_without_a_word(
    sheet: Sheet, tmp_path: Path
) -> None:
    hand_in(sheet, tmp_path / "doe_1_9_05-double.ipynb", RIGHT)
    hand_in(sheet, tmp_path / "doe_LATE_1_11_05-double-1.ipynb", RIGHT)
    doe = found_in(tmp_path)["doe_1"]
    assert (doe.path.name, doe.note) == ("doe_LATE_1_11_05-double-1.ipynb", "")
    hand_in(sheet, tmp_path / "doe_LATE_1_12_05-double-2.ipynb")  # as it was handed out
    doe = found_in(tmp_path)["doe_1"]
    assert doe.path.name == "doe_LATE_1_11_05-double-1.ipynb"
    assert doe.note == (
        "doe_LATE_1_11_05-double-1.ipynb was graded; "
        "nobody has written in doe_LATE_1_12_05-double-2.ipynb."
    )


# --- some that can't be read ---------------------------------------------------------------------


@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
def test_an_upload_that_cannot_be_read_does_not_take_the_place_of_an_earlier_one(
    sheet: Sheet, tmp_path: Path, broken: bytes
) -> None:
    hand_in(sheet, tmp_path / "doe_1_11_05-double.ipynb", RIGHT)
    (tmp_path / "doe_1_12_05-double-1.ipynb").write_bytes(broken)
    doe = found_in(tmp_path)["doe_1"]
    assert doe.path.name == "doe_1_11_05-double.ipynb"
    assert doe.came_as == "doe_1_12_05-double-1.ipynb"  # which Canvas wants feedback for
    assert doe.note == (
        "doe_1_11_05-double.ipynb was graded; doe_1_12_05-double-1.ipynb can't be read."
    )
    hand_in(sheet, tmp_path / "doe_1_13_05-double-2.ipynb", RIGHT)  # mended, so all is plain
    assert found_in(tmp_path)["doe_1"].note == ""


def test_in_a_folder_too_a_file_that_can_be_read_goes_first(sheet: Sheet, tmp_path: Path) -> None:
    hand_in(sheet, tmp_path / "ana" / "05-double (1).ipynb", RIGHT)
    (tmp_path / "ana" / "05-double.ipynb").write_text("{")
    ana = found_in(tmp_path)["ana"]
    assert ana.path.name == "05-double (1).ipynb"
    assert ana.note == "05-double (1).ipynb was graded; 05-double.ipynb can't be read."


def test_an_empty_script_does_not_take_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "doe_1_11_05-double.py").write_text(RIGHT)
    (tmp_path / "doe_1_12_05-double-1.py").write_text("\n")
    doe = found_in(tmp_path)["doe_1"]
    assert doe.path.name == "doe_1_11_05-double.py"
    assert "nobody has written in doe_1_12_05-double-1.py" in doe.note


def test_a_file_that_cannot_be_read_goes_before_one_that_is_as_it_was_handed_out(
    sheet: Sheet, tmp_path: Path
) -> None:
    (tmp_path / "doe_1_11_05-double.ipynb").write_text("{")
    hand_in(sheet, tmp_path / "doe_1_12_05-double-1.ipynb")
    doe = found_in(tmp_path)["doe_1"]
    assert doe.path.name == "doe_1_11_05-double.ipynb"
    assert "nobody has written in doe_1_12_05-double-1.ipynb" in doe.note


# --- names ---------------------------------------------------------------------------------------


def test_a_notebook_may_end_in_capitals(sheet: Sheet, tmp_path: Path) -> None:
    hand_in(sheet, tmp_path / "upper.IPYNB", RIGHT)
    hand_in(sheet, tmp_path / "ana" / "05-double.Ipynb", RIGHT)
    hand_in(sheet, tmp_path / "ben" / "week 1" / "05-double.IPYNB", RIGHT)
    hand_in(sheet, tmp_path / "doe_1_11_05-double.IPYNB", RIGHT)
    found = found_in(tmp_path)
    assert set(found) == {"upper", "ana", "ben", "doe_1"}
    assert all(each.path.is_file() and not each.note for each in found.values())
    assert ignored_files(tmp_path) == []
