"""The gradebook of one sheet: results of the grader, points of the teacher, and their sums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from radixlab.classroom.results import ExerciseResult, SubmissionResult
from radixlab.classroom.sheet import Sheet
from radixlab.classroom.spreadsheet import BadTable, Cell, spelled, write_csv
from radixlab.classroom.written import Key, Mark, read_marks, update_marks


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
        exercises = self.results[student].exercises
        return next((e for e in exercises if e.exercise == exercise), None)

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

    def write_grades(self, path: Path) -> None:
        """One row for each student: points and maximum of each task, total, what is open."""
        tasks = self.tasks()
        header = [name for task in tasks for name in (task, f"{task} max")]
        rows: list[list[Cell]] = []
        for student, result in self.results.items():
            pairs = [(self.points(student, task), most) for task, most in tasks.items()]
            sums = [self.total(student), self.sheet.total]
            waiting = " ".join(self.ungraded(student))
            rows.append([student, *(x for p in pairs for x in p), *sums, waiting, result.problem])
        write_csv(path, ["student", *header, "total", "max", "not graded", "problem"], rows)


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
