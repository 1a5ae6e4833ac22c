"""Grades in the forms that Canvas and Moodle import, for the people of a roster.

A submission goes to a person by an equal user name, e-mail address, id or name, or by what Canvas
and Moodle put into the names of downloaded submissions. Whoever fits nobody, or two, is listed.

Canvas takes a gradebook (Student, ID, SIS User ID, SIS Login ID, Section, one assignment) with a
row "Points Possible"; Moodle takes any table and asks what its columns mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from radixlab.classroom.collect import student_key
from radixlab.classroom.gradebook import Gradebook
from radixlab.classroom.spreadsheet import BadTable, Cell, read_csv, write_csv

DOWNLOADED = re.compile(r"(?P<name>.+)_(?P<number>\d+)", re.DOTALL)
"""A student of a download: `doejane_12345` of Canvas, or `Jane Doe_12345` of Moodle."""

COLUMNS = {
    "name": ("student", "name", "full name", "fullname"),
    "first": ("first name", "firstname"),
    "last": ("last name", "lastname", "surname"),
    "id": ("id", "user id", "userid"),
    "idnumber": ("sis user id", "id number", "idnumber"),
    "username": ("sis login id", "username", "user name", "login", "login id"),
    "email": ("email", "email address", "e-mail"),
    "section": ("section",),
    "participant": ("identifier",),
}
"""What is read of a roster, and the names under which Canvas and Moodle export it."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of the roster; what it does not say is ""."""

    name: str = ""
    id: str = ""
    idnumber: str = ""
    username: str = ""
    email: str = ""
    section: str = ""
    participant: str = ""

    @property
    def label(self) -> str:
        """What to call the person."""
        return self.name or self.username or self.email or self.idnumber or self.id

    def is_called(self, name: str) -> bool:
        """Whether this is the name, letters only, in either order: "Doe, Jane" is "janedoe"."""
        last, _, first = self.name.partition(",")
        return bool(_letters(name)) and _letters(name) in map(_letters, (self.name, first + last))

    def is_known_as(self, text: str) -> bool:
        """Whether the text is a user name, an address, an id or the name of this person."""
        names = (self.username, self.email, self.idnumber, self.id)
        return any(_same(text, name) for name in names) or self.is_called(text)


@dataclass(frozen=True, slots=True)
class Matching:
    """Who handed in what: submissions by person, submissions of nobody and why, who has none."""

    people: dict[Person, str] = field(default_factory=dict)
    unmatched: dict[str, str] = field(default_factory=dict)
    missing: list[Person] = field(default_factory=list)


def read_roster(path: Path) -> list[Person]:
    """The people of a roster: a gradebook of Canvas, participants of Moodle, or a table of yours.

    Raises `BadTable` if there is no column that names anybody.
    """
    rows = read_csv(path)
    people = [Person(**person) for row in rows if (person := _person(row))]
    if not any(person.label for person in people):
        known = ", ".join(names[0] for names in COLUMNS.values())
        raise BadTable(path, f"names nobody: it needs columns such as {known}")
    return [person for person in people if person.label]


def _person(row: dict[str, str]) -> dict[str, str] | None:
    by_name = {name.casefold(): cell.strip() for name, cell in row.items()}
    found = {
        what: next((by_name[name] for name in names if by_name.get(name)), "")
        for what, names in COLUMNS.items()
    }
    first, last = found.pop("first"), found.pop("last")
    found["name"] = found["name"] or f"{first} {last}".strip()
    found["participant"] = "".join(re.findall(r"\d+$", found["participant"]))
    return None if found["name"].startswith("Points Possible") else found


def match(students: Iterable[str], roster: Sequence[Person]) -> Matching:
    """Find the person of each submission; nothing is guessed."""
    found = {student: list(_candidates(student, roster)) for student in students}
    taken = [people[0] for people in found.values() if len(people) == 1]
    matching = Matching()
    for student, people in found.items():
        if not people:
            matching.unmatched[student] = "nobody of the roster"
        elif len(people) > 1:
            names = ", ".join(person.label for person in people)
            matching.unmatched[student] = f"fits {len(people)} people: {names}"
        elif taken.count(people[0]) > 1:
            matching.unmatched[student] = f"one of several submissions of {people[0].label}"
        else:
            matching.people[people[0]] = student
    matching.missing.extend(person for person in roster if person not in taken)
    return matching


def _candidates(student: str, roster: Sequence[Person]) -> Iterator[Person]:
    known = [person for person in roster if person.is_known_as(student)]
    if known:
        yield from known
    elif whose := DOWNLOADED.fullmatch(student_key(student)):
        name, number = whose["name"], whose["number"]
        is_canvas = name == _letters(name)
        ids = [person.id if is_canvas else person.participant for person in roster]
        for person, its in zip(roster, ids, strict=True):
            if _same(number, its) if any(ids) else person.is_called(name):
                yield person


def _letters(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _same(one: str, other: str) -> bool:
    return bool(other) and one.strip().casefold() == other.casefold()


def hold_back(book: Gradebook, matching: Matching) -> dict[Person, str]:
    """Take out those whose answers wait for the teacher, and return them."""
    waiting = {p: student for p, student in matching.people.items() if book.ungraded(student)}
    for person in waiting:
        del matching.people[person]
    return waiting


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
