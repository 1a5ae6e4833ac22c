"""Grades in the forms that Canvas and Moodle import, for the people of a roster.

Canvas takes a gradebook (Student, ID, SIS User ID, SIS Login ID, Section, one assignment) with a
row "Points Possible"; Moodle takes any table and asks what its columns mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from radixlab.classroom.gradebook import Gradebook
from radixlab.classroom.roster import Matching
from radixlab.classroom.spreadsheet import Cell, read_csv, write_csv


def write_canvas(book: Gradebook, matching: Matching, path: Path, assignment: str) -> None:
    """Write what Canvas imports under Grades, Import; `assignment` is the column's name."""
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment]
    possible: list[Cell] = ["Points Possible", "", "", "", "", book.sheet.total]
    rows: list[list[Cell]] = [
        [p.name, p.id, p.idnumber, p.username, p.section, book.total(student)]
        for p, student in matching.people.items()
    ]
    write_csv(path, header, [possible, *rows])


def assignment_name(book: Gradebook, roster: Path) -> str:
    """The assignment's column in a gradebook of Canvas, or the sheet's title if it has none."""
    title = re.escape(book.sheet.title)
    names = [name for row in read_csv(roster)[:1] for name in row]
    return next((n for n in names if re.fullmatch(rf"{title}( \(\d+\))?", n)), book.sheet.title)


def write_moodle(book: Gradebook, matching: Matching, path: Path) -> None:
    """Write what Moodle imports under Grades, Import, CSV file."""
    rows: list[list[Cell]] = [
        [p.username, p.idnumber, p.email, book.total(student), comment(book, student)]
        for p, student in matching.people.items()
    ]
    write_csv(path, ["username", "idnumber", "email", "grade", "feedback"], rows)


def comment(book: Gradebook, student: str) -> str:
    """The feedback in a few words. Nothing of it is the student's: Moodle may show it as HTML."""
    return " ".join(_remarks(book, student))


def _remarks(book: Gradebook, student: str) -> Iterator[str]:
    if book.results[student].problem:
        yield "The file could not be graded."
        return
    for task, most in book.tasks().items():
        points = book.points(student, task)
        given = "not graded yet" if points is None else f"{points:g} of {most:g}"
        result = book.result(student, task)
        remark = result.mistake if result else book.mark(student, task).comment
        yield f"{task}: {given}. {remark}".strip()
