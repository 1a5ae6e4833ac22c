"""Whose submission is it? The people of a course, and which of them handed in what.

A submission goes to a person by an equal user name, e-mail address, id or name, or by what Canvas
and Moodle put into the names of downloaded submissions. Whoever fits nobody, or two, is listed:
nothing is guessed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from radixlab.classroom.collect import student_key
from radixlab.classroom.spreadsheet import BadTable, read_csv

DOWNLOADED = re.compile(r"(?P<name>.+)_(?P<number>\d+)", re.DOTALL)
"""A student of a download: `doejane_12345` of Canvas, or `Jane Doe_12345` of Moodle."""

COLUMNS = {
    "name": ("student", "name", "full name", "fullname"),
    "first": ("first name", "firstname"),
    "last": ("last name", "lastname", "surname"),
    "id": ("id", "user id", "userid"),
    "idnumber": ("sis user id", "id number", "idnumber", "student id", "matriculation number"),
    "username": ("sis login id", "username", "user name", "login", "login id"),
    "email": ("email", "e-mail", "mail", "email address", "e-mail address"),
    "section": ("section",),
    "participant": ("identifier",),
}
"""What is read of a roster, and the names under which Canvas, Moodle and teachers have it."""
CANVAS_ONLY = "student"
"""The column of Canvas's own gradebook; in any other table an `id` is not Canvas's."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of the roster; what it does not say is "".

    `id` is Canvas's number, `participant` Moodle's, `idnumber` the school's.
    """

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

    @property
    def number(self) -> str:
        """What the school calls the person, or else the system."""
        return self.idnumber or self.id or self.username

    def is_called(self, name: str) -> bool:
        """Whether this is the name, letters only: "Doe, Jane" and "Jane Doe" are "janedoe".

        The last name may come first, as Canvas has it: "doejane".
        """
        words = self.name.replace(",", " ").split()
        turned = ("".join(words[i:] + words[:i]) for i in range(len(words)))
        return bool(_letters(name)) and _letters(name) in map(_letters, turned)

    def is_known_as(self, text: str) -> bool:
        """Whether the text is a user name, an address, an id or the name of this person."""
        names = (self.username, self.email, self.idnumber, self.id)
        return any(_same(text, name) for name in names) or self.is_called(text)


@dataclass(frozen=True, slots=True)
class Matching:
    """Who handed in what: submissions by person, submissions of nobody and why, who has none.

    Of whom it is not clear is in none of them.
    """

    people: dict[Person, str] = field(default_factory=dict)
    unmatched: dict[str, str] = field(default_factory=dict)
    missing: list[Person] = field(default_factory=list)

    def person_of(self, student: str) -> Person:
        """Whose submission it is; somebody without a name if nobody's."""
        return next((p for p, whose in self.people.items() if whose == student), Person())


def read_roster(path: Path) -> list[Person]:
    """The people of a roster: a gradebook of Canvas, participants of Moodle, or a table of yours.

    Raises `BadTable` if there is no column that names anybody.
    """
    rows = read_csv(path)
    people = [Person(**person) for row in rows if (person := _person(row))]
    if not any(person.label for person in people):
        known = ", ".join(names[0] for names in COLUMNS.values())
        there = ", ".join(rows[0]) if rows else "no rows"
        raise BadTable(path, f"names nobody: it has {there}, and needs columns such as {known}")
    return list(dict.fromkeys(person for person in people if person.label))


def _person(row: dict[str, str]) -> dict[str, str] | None:
    by_name = {name.casefold(): cell.strip() for name, cell in row.items()}
    found = {
        what: next((by_name[name] for name in names if by_name.get(name)), "")
        for what, names in COLUMNS.items()
    }
    first, last = found.pop("first"), found.pop("last")
    found["name"] = found["name"] or f"{first} {last}".strip()
    if CANVAS_ONLY not in by_name:
        found["idnumber"], found["id"] = found["idnumber"] or found["id"], ""
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
    perhaps = {person for people in found.values() for person in people}
    matching.missing.extend(person for person in roster if person not in perhaps)
    return matching


def _candidates(student: str, roster: Sequence[Person]) -> Iterator[Person]:
    known = [person for person in roster if person.is_known_as(student)]
    if known:
        yield from known
    elif whose := DOWNLOADED.fullmatch(student_key(student)):
        name, number = whose["name"], whose["number"]
        is_canvas = _composed(name) == _letters(name)
        ids = [person.id if is_canvas else person.participant for person in roster]
        for person, its in zip(roster, ids, strict=True):
            if _same(number, its) if any(ids) else person.is_called(name):
                yield person


def _letters(name: str) -> str:
    return "".join(character for character in _folded(name) if character.isalnum())


def _same(one: str, other: str) -> bool:
    return bool(other) and _folded(one) == _folded(other)


def _folded(text: str) -> str:
    return _composed(text).strip().casefold()


def _composed(text: str) -> str:
    """The text with umlauts of one character; macOS makes two of them in the names of files."""
    return unicodedata.normalize("NFC", text)
