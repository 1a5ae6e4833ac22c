"""Answers in words, wherever they were typed.

The place for an answer is the cell below its question. But students also type into the question
itself, or into new cells below, and some editors lose what a cell says of itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from radixlab.classroom.build import WORDS, released_cells
from radixlab.classroom.sheet import Role, Sheet
from radixlab.classroom.submission import MOST_WORDS, Submission, TextCell, own_words

ELSEWHERE = (
    "(Written elsewhere? There is no answer below the question, but in the notebook stands:)"
)


@dataclass(frozen=True, slots=True)
class _Released:
    """The texts that every student has: the questions by name, and all of them, spaces aside."""

    title: str
    questions: dict[str, str]
    known: frozenset[str]

    @staticmethod
    def of(sheet: Sheet) -> _Released:
        cells = list(released_cells(sheet))
        questions = {exercise: text for role, exercise, text in cells if role == Role.WRITTEN}
        title, _, rest = cells[0][2].partition("\n")  # a notebook has these as two cells
        known = (_plain(text) for text in (rest, *(text for _, _, text in cells)))
        return _Released(title, questions, frozenset(known))

    def has(self, cell: TextCell) -> bool:
        """Whether it is a cell of the sheet that is not for words."""
        if cell.role:
            return cell.role != WORDS
        is_title = self.title.startswith("# ") and cell.source.startswith(f"{self.title}\n")
        return is_title or (bool(own_words(cell.source)) and _plain(cell.source) in self.known)


def find_answers(sheet: Sheet, submission: Submission) -> dict[str, str]:
    """The answer to each question of the sheet, "" if there is none.

    If a question has none and there are texts that belong to no question, these are given after
    the sentence `ELSEWHERE`: a person has to look.
    """
    if not sheet.written:
        return {}
    released, cells = _Released.of(sheet), submission.texts
    places = {name: _places(name, released, cells) for name in sheet.written}
    taken = {place for found in places.values() for place in found}
    others = [c for i, c in enumerate(cells) if i not in taken and _is_new(c, released)]
    elsewhere = "\n\n".join([ELSEWHERE, *(own_words(cell.source) for cell in others)])
    answers = {}
    for name, found in places.items():
        texts = (_said(name, cells[place], released) for place in found)
        answer = "\n\n".join(text for text in texts if text)
        answers[name] = (answer or (elsewhere if others else ""))[:MOST_WORDS]
    return answers


def _places(name: str, released: _Released, cells: Sequence[TextCell]) -> list[int]:
    """Where an answer may stand: the question, what follows it, and every cell that is for it."""
    found = {i for i, cell in enumerate(cells) if (cell.role, cell.exercise) == (WORDS, name)}
    for start, cell in enumerate(cells):
        if _asks(cell, name, released):
            found |= {start, *_below(name, start + 1, released, cells)}
    return sorted(found)


def _asks(cell: TextCell, name: str, released: _Released) -> bool:
    """Whether a cell is the question; without metadata its text tells."""
    if cell.role:
        return cell.role == Role.WRITTEN and cell.exercise == name
    return not cell.is_code and _plain(released.questions[name]) in _plain(cell.source)


def _below(name: str, start: int, released: _Released, cells: Sequence[TextCell]) -> Iterator[int]:
    """The cells from here to the next one that is the sheet's, or has code."""
    for place in range(start, len(cells)):
        cell = cells[place]
        other = any(_asks(cell, question, released) for question in released.questions)
        if cell.is_code or other or released.has(cell) or (cell.role and cell.exercise != name):
            return
        yield place


def _said(name: str, cell: TextCell, released: _Released) -> str:
    """What the student wrote in a cell: of the question, what was not there before."""
    if not _asks(cell, name, released):
        return own_words(cell.source)
    question = released.questions[name]
    if question in cell.source:
        return own_words(cell.source.replace(question, "", 1))
    old = {_plain(line) for line in question.splitlines()}
    lines = cell.source.splitlines()
    return own_words("\n".join(line for line in lines if _plain(line) not in old))


def _is_new(cell: TextCell, released: _Released) -> bool:
    """Whether it is a text of the student's own."""
    new = not cell.is_code and not cell.role and not released.has(cell)
    return new and bool(own_words(cell.source))


def _plain(text: str) -> str:
    return " ".join(text.split())
