"""Cases: what the student's code is called with, what must come back, and what mistakes give.

They are made in the trusted process from the teacher's seed; expected values come from the sheet's
reference solution and never enter the sandbox.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from radixlab.classroom.outcome import Json, Mistakes, Outcome, same
from radixlab.classroom.sandbox import Call, run_calls
from radixlab.classroom.sheet import BadSheet, Exercise, Sheet


@dataclass(frozen=True, slots=True)
class Case:
    """One call: the arguments of the exercise's entry, and the value it must give."""

    exercise: str
    group: str
    args: list[Json]
    expected: Json
    visible: bool


def make_cases(sheet: Sheet, exercise: Exercise, seed: str | None = None) -> list[Case]:
    """All cases of an exercise; the same seed gives the same. Without one, the visible ones.

    Raises `BadSheet` if the generator or the reference solution fails.
    """
    rng = random.Random(None if seed is None else f"{seed}/{sheet.name}/{exercise.id}")
    namespace: dict[str, Any] = {"__name__": "cases"}
    exec(compile(exercise.cases, f"<cases of {exercise.id}>", "exec", dont_inherit=True), namespace)
    made: Callable[[random.Random], Iterable[tuple[str, list[Json]]]] = namespace["cases"]
    drawn = [(group, json.loads(json.dumps(args))) for group, args in made(rng)]
    if unknown := {group for group, _ in drawn} ^ set(exercise.points):
        raise BadSheet(sheet.name, f"{exercise.id}: points and cases differ in {sorted(unknown)}")
    if seed is None:
        drawn = [(group, args) for group, args in drawn if group in exercise.visible]
    outcomes = run_trusted(sheet, exercise, exercise.solution, [args for _, args in drawn])
    for (group, _), outcome in zip(drawn, outcomes, strict=True):
        if outcome.status != "ok":
            problem = f"the solution of {exercise.id} fails in {group}: {outcome}"
            raise BadSheet(sheet.name, problem)
    return [
        Case(exercise.id, group, args, outcome.value, group in exercise.visible)
        for (group, args), outcome in zip(drawn, outcomes, strict=True)
    ]


def run_trusted(
    sheet: Sheet, exercise: Exercise, source: str, arguments: Sequence[list[Json]]
) -> list[Outcome]:
    """What the teacher's own code gives; no sandbox, but the same runner and limits.

    `source` may use the solutions of the sheet's other exercises, as a student may use theirs.
    """
    calls = [Call(exercise.id, exercise.entry, args) for args in arguments]
    others = [e.solution for e in sheet.exercises.values() if e.id != exercise.id]
    return run_calls(sheet, [*others, source], calls, unsafe=True).outcomes


def is_right(outcome: Outcome, case: Case) -> bool:
    """Whether the call gave the case's expected value."""
    return outcome.status == "ok" and same(outcome.value, case.expected)


def mistake_outcomes(sheet: Sheet, exercise: Exercise, cases: Sequence[Case]) -> Mistakes:
    """Run the known mistakes of an exercise; whoever grades many submissions keeps the result."""
    args = [case.args for case in cases]
    return [(w.message, run_trusted(sheet, exercise, w.source, args)) for w in exercise.wrong]
