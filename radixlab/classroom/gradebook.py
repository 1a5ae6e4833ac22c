"""The gradebook of one sheet: results of the grader, points of the teacher, and their sums.

Answers in words stand in `written.csv`, with two columns that the teacher fills in. What is filled
in is kept for ever: writing the file again adds what is new, and marks the answers that have
changed since they were graded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from radixlab.classroom.results import ExerciseResult, SubmissionResult
from radixlab.classroom.roster import Matching
from radixlab.classroom.sheet import Sheet
from radixlab.classroom.spreadsheet import BadTable, Cell, read_csv, spelled, write_csv

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


@dataclass(frozen=True, slots=True)
class Gradebook:
    """All results of a sheet by student, and what the teacher gave for written answers."""

    sheet: Sheet
    results: dict[str, SubmissionResult]
    marks: dict[Key, Mark]

    @staticmethod
    def read(sheet: Sheet, out: Path) -> Gradebook:
        """The gradebook of a folder that `radixlab classroom grade` wrote.

        Brings `written.csv` up to date. Raises `BadTable` for files that can't be used.
        """
        results = read_results(sheet, out)
        path = out / "written.csv"
        marks = update_marks(path, sheet, results) if sheet.written else read_marks(path, sheet)
        return Gradebook(sheet, results, marks)

    def result(self, student: str, exercise: str) -> ExerciseResult | None:
        """What the grader found; None if it never ran the exercise."""
        return self.results[student].find(exercise)

    def mark(self, student: str, question: str) -> Mark:
        """What the teacher gave."""
        return self.marks.get((spelled(student), question), Mark())

    def points(self, student: str, name: str) -> float | None:
        """Points for an exercise or a question; None if the teacher has not graded it yet."""
        if name in self.sheet.written:
            return self.mark(student, name).points
        result = self.result(student, name)
        return result.points if result else 0.0

    def total(self, student: str) -> float:
        """All points so far."""
        return sum(self.points(student, name) or 0.0 for name in self.tasks())

    def tasks(self) -> dict[str, float]:
        """Points that can be had, by exercise and then by question."""
        exercises = {e.id: e.total for e in self.sheet.exercises.values()}
        return exercises | {w.id: w.points for w in self.sheet.written.values()}

    def ungraded(self, student: str) -> list[str]:
        """Questions whose answers wait for the teacher."""
        return [name for name in self.tasks() if self.points(student, name) is None]

    def changed(self) -> list[Key]:
        """Whose answers have changed since the teacher graded them."""
        return [key for key, mark in self.marks.items() if mark.changed]

    def write_grades(self, path: Path, matching: Matching | None = None) -> None:
        """One row for each student: points and maximum of each task, total, what is open.

        With people of a roster each row says who it is, and whoever handed in nothing has a row
        with 0 points and the problem "missing".
        """
        tasks = self.tasks()
        header = ["student", *(("name", "id", "email") if matching else ())]
        header += [name for task in tasks for name in (task, f"{task} max")]
        rows: list[list[Cell]] = []
        for student, result in self.results.items():
            pairs = [(self.points(student, task), most) for task, most in tasks.items()]
            sums = [self.total(student), self.sheet.total]
            waiting, problem = " ".join(self.ungraded(student)), result.problem
            who: list[Cell] = []
            if matching:
                person = matching.person_of(student)
                who = [person.name, person.number, person.email]
                problem = f"{problem} {matching.unmatched.get(student, '')}".strip()
            rows.append([student, *who, *(x for p in pairs for x in p), *sums, waiting, problem])
        for person in matching.missing if matching else ():
            nothing = [x for most in (*tasks.values(), self.sheet.total) for x in (0, most)]
            who = [person.name, person.number, person.email]
            rows.append(["", *who, *nothing, "", "missing"])
        write_csv(path, [*header, "total", "max", "not graded", "problem"], rows)


def read_results(sheet: Sheet, out: Path) -> dict[str, SubmissionResult]:
    """What `radixlab classroom grade` left in a folder, by student."""
    results = {}
    for path in sorted((out / "results").glob("*.json")):
        try:
            result = SubmissionResult.load(path)
        except (ValueError, KeyError, TypeError):
            raise BadTable(path, "is no result: delete it and grade again") from None
        if result.sheet != sheet.name:
            raise BadTable(path, f"is of sheet {result.sheet}, not of {sheet.name}")
        results[path.stem] = result
    if not results:
        raise BadTable(out, f"has no results: radixlab classroom grade {sheet.name} ... {out}")
    return results


# --- written.csv ---------------------------------------------------------------------------------


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
