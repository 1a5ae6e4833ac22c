"""Cases: what the student's code is called with, what must come back, and what mistakes give.

They are made in the trusted process from the teacher's seed; expected values come from the sheet's
reference solution and never enter the sandbox.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from radixlab.classroom.sandbox import Call, Outcome, run_calls
from radixlab.classroom.sheet import BadSheet, Exercise, Sheet

Json = Any
"""What JSON can say: None, bool, int, float, str, lists, dicts with str keys."""

TOLERANCE = 1e-5
"""Floats agree within this part of the larger one, or this much."""


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


def same(got: Json, expected: Json) -> bool:
    """Whether a result is right: equal in type and value, floats within `TOLERANCE`.

    True is not 1 and 1 is not 1.0; lists are compared in order, dictionaries are not. NaN is never
    right.
    """
    if type(got) is not type(expected):
        return False
    if isinstance(expected, float):
        return math.isclose(got, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(expected, list):
        return len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, dict):
        return got.keys() == expected.keys() and all(same(got[k], expected[k]) for k in expected)
    return bool(got == expected)


def is_right(outcome: Outcome, case: Case) -> bool:
    """Whether the call gave the case's expected value."""
    return outcome.status == "ok" and same(outcome.value, case.expected)


def name_mistake(
    sheet: Sheet, exercise: Exercise, cases: Sequence[Case], outcomes: Sequence[Outcome]
) -> str | None:
    """The sentence of the known mistake that gives the student's results in every case.

    None if no mistake does. Each mistake is run with the same cases (in the trusted process).
    """
    return match_mistake(mistake_outcomes(sheet, exercise, cases), outcomes)


Mistakes = Sequence[tuple[str, Sequence[Outcome]]]
"""What known mistakes give in all cases of an exercise, each with its sentence."""


def mistake_outcomes(sheet: Sheet, exercise: Exercise, cases: Sequence[Case]) -> Mistakes:
    """Run the known mistakes of an exercise; whoever grades many submissions keeps the result."""
    args = [case.args for case in cases]
    return [(w.message, run_trusted(sheet, exercise, w.source, args)) for w in exercise.wrong]


def match_mistake(mistakes: Mistakes, outcomes: Sequence[Outcome]) -> str | None:
    """The sentence of the mistake that gives these outcomes, None if no mistake does."""
    return next((told for told, theirs in mistakes if all(map(_alike, outcomes, theirs))), None)


def _alike(got: Outcome, known: Outcome) -> bool:
    if got.status != "ok" or known.status != "ok":
        return (got.status, got.error) == (known.status, known.error)
    return same(got.value, known.value)
