"""What grading a submission gives: plain data, one JSON file for each student.

No hidden input stands here: for hidden groups there are counts and kinds of failure only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from radixlab.classroom.outcome import Json, Outcome
from radixlab.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Shown:
    """A visible case that failed, and what came of it: `check` shows the same.

    `number` counts the exercise's visible cases from 1; `case` has `group`, `args` and `expected`.
    """

    number: int
    case: dict[str, Json]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class GroupResult:
    """A group of cases: all right, or no points. `failed` are the numbers of the failed cases.

    `how` counts the ways in which cases failed: "wrong value", "NameError", "timeout", ...
    """

    name: str
    visible: bool
    points: float
    most: float
    cases: int
    failed: tuple[int, ...] = ()
    how: dict[str, int] = field(default_factory=dict)
    shown: tuple[Shown, ...] = ()


@dataclass(frozen=True, slots=True)
class ExerciseResult:
    """One exercise; `mistake` is the sentence of the known mistake that it makes, "" if none."""

    exercise: str
    groups: tuple[GroupResult, ...]
    mistake: str = ""

    @property
    def points(self) -> float:
        """What it earned."""
        return sum(group.points for group in self.groups)


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """One submission. `problem` says why it could not be read, "" if it could.

    `key` is a digest of submission, sheet, seed and version: with the same key nothing is graded
    again. `cells` names the cells that failed as (number, builtin exception). `written` has the
    answers in words, by question; `note` says which of several files was taken, and why. `came_as`
    is the name of the file or folder that was handed in, as Moodle and Canvas know it.
    """

    student: str
    sheet: str
    key: str
    exercises: tuple[ExerciseResult, ...]
    written: dict[str, str] = field(default_factory=dict)
    cells: tuple[tuple[int, str], ...] = ()
    problem: str = ""
    note: str = ""
    came_as: str = ""

    @property
    def points(self) -> float:
        """What the exercises earned, written answers not counted."""
        return sum(exercise.points for exercise in self.exercises)

    def find(self, exercise: str) -> ExerciseResult | None:
        """What came of an exercise; None if it was never run."""
        return next((each for each in self.exercises if each.exercise == exercise), None)

    def save(self, path: Path) -> None:
        """Write it as JSON, at once or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        part.replace(path)

    @staticmethod
    def load(path: Path) -> SubmissionResult:
        """Read what `save` wrote; raises ValueError, KeyError or TypeError for anything else."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return SubmissionResult(
            **data
            | {
                "exercises": tuple(map(_exercise, data["exercises"])),
                "cells": tuple((int(number), str(name)) for number, name in data["cells"]),
            }
        )


def _exercise(data: dict[str, Any]) -> ExerciseResult:
    return ExerciseResult(**data | {"groups": tuple(map(_group, data["groups"]))})


def _group(data: dict[str, Any]) -> GroupResult:
    shown = tuple(Shown(**one | {"outcome": Outcome(**one["outcome"])}) for one in data["shown"])
    return GroupResult(**data | {"failed": tuple(data["failed"]), "shown": shown})


def refuse_other_sheets(sheet: str, out: Path) -> None:
    """Raise `InvalidArgument` if a folder holds results of another sheet; it would lose them."""
    for path in sorted((out / "results").glob("*.json")):
        try:
            other = SubmissionResult.load(path).sheet
        except (OSError, ValueError, KeyError, TypeError):
            continue  # no result, which is said or mended elsewhere
        if other != sheet:
            raise InvalidArgument(
                "OUT", str(out), f"a folder of its own, such as results/{sheet}: it has {other}"
            )
