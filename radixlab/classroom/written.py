"""`written.csv`: answers in words, with two columns that the teacher fills in.

What is filled in is kept for ever: writing the file again adds what is new, and marks the answers
that have changed since they were graded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from radixlab.classroom.results import SubmissionResult
from radixlab.classroom.sheet import Sheet
from radixlab.classroom.spreadsheet import BadTable, read_csv, spelled, write_csv

COLUMNS = ("student", "question", "points", "max", "comment", "answer", "changed", "version")
EXCERPT = 300
"""How much of an answer the table shows, in characters; `written.html` has all of it."""
EMPTY = "none"
"""The version of an answer that is not there."""

Key = tuple[str, str]
"""Student and question."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One row: points and comment are the teacher's, `version` is a digest of the answer.

    `changed` is "yes" from when the answer changed after it was graded until the teacher, having
    looked again, clears it.
    """

    points: float | None = None
    comment: str = ""
    excerpt: str = ""
    changed: str = ""
    version: str = EMPTY


def read_marks(path: Path, sheet: Sheet) -> dict[Key, Mark]:
    """What was filled in so far; nothing if there is no file. Raises `BadTable`."""
    if not path.exists():
        return {}
    marks: dict[Key, Mark] = {}
    for line, row in enumerate(read_csv(path, COLUMNS), 2):
        key = (row["student"], row["question"])
        if key in marks:
            raise BadTable(path, f"row {line}: {key[0]} has a row for {key[1]} already")
        points = _points(path, line, row, sheet)
        marks[key] = Mark(points, row["comment"], row["answer"], row["changed"], row["version"])
    return marks


def _points(path: Path, line: int, row: dict[str, str], sheet: Sheet) -> float | None:
    text = row["points"].strip()
    if not text:
        return None
    question = sheet.written.get(row["question"])
    most = float("inf") if question is None else question.points
    try:
        points = float(text.replace(",", "."))
    except ValueError:
        points = float("nan")
    if not 0 <= points <= most:
        whose = f"{row['student']} for {row['question']}"
        problem = f"row {line}: points of {whose} must be from 0 to {most:g}, got {text!r}"
        raise BadTable(path, problem)
    return points


def update_marks(
    path: Path, sheet: Sheet, results: Mapping[str, SubmissionResult]
) -> dict[Key, Mark]:
    """Write the file anew, with a row for each student and question, and return all marks."""
    marks = read_marks(path, sheet)
    for student, result in results.items():
        for question in sheet.written:
            key = (spelled(student), question)
            marks[key] = _renewed(marks.get(key), result.written.get(question, ""))
    marks = dict(sorted(marks.items()))
    most = {question.id: question.points for question in sheet.written.values()}
    write_csv(
        path,
        COLUMNS,
        (
            (*key, m.points, most.get(key[1]), m.comment, m.excerpt, m.changed, m.version)
            for key, m in marks.items()
        ),
    )
    return marks


def _renewed(old: Mark | None, answer: str) -> Mark:
    """The mark beside the answer as it is now. No answer is worth 0, until there is one."""
    text = spelled(" ".join(answer.split()))
    excerpt = text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"
    version = f"v{hashlib.sha256(text.encode()).hexdigest()[:8]}" if text else EMPTY
    if old is None or (old.version, old.points, old.comment) in ((EMPTY, 0, ""), (EMPTY, None, "")):
        return Mark(None if text else 0.0, "", excerpt, "", version)
    is_graded = old.points is not None or bool(old.comment)
    changed = "yes" if is_graded and version != old.version else old.changed
    return Mark(old.points, old.comment, excerpt, changed, version)
