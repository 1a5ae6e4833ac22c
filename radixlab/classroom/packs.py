"""The visible checks of a sheet as a pack: the file that lies beside a notebook."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

from radixlab.classroom.cases import Case, is_right, make_cases
from radixlab.classroom.leaks import refuse_leaks
from radixlab.classroom.outcome import Outcome, call_in_child
from radixlab.classroom.sheet import Exercise, Role, Sheet


def visible_pack(sheet: Sheet, only: str | None = None) -> dict[str, Any]:
    """What `check` needs: drivers, visible cases, and what known mistakes give in them, as JSON.

    Holds no solution and no hidden case; with `only` it holds that exercise alone. Raises
    `BadSheet` if the reference solution fails, or if a line that is the teacher's alone is in it.
    """
    pack = {
        "sheet": sheet.name,
        "title": sheet.title,
        "seconds": sheet.seconds,
        "memory": sheet.memory,
        "preload": list(sheet.preload),
        "order": list(sheet.exercises),
        "exercises": {
            name: _pack(sheet, each)
            for name, each in sheet.exercises.items()
            if only in (None, name)
        },
    }
    refuse_leaks(sheet, pack, drivers=True)
    return pack


def _pack(sheet: Sheet, exercise: Exercise) -> dict[str, Any]:
    cases = make_cases(sheet, exercise)
    return {
        "given": _given_before(sheet, exercise),
        "names": list(exercise.names),
        "entry": exercise.entry,
        "driver": _drivers(sheet, exercise),
        "parameters": _parameters(exercise),
        "cases": [{"group": c.group, "args": c.args, "expected": c.expected} for c in cases],
        "mistakes": list(_mistakes(sheet, exercise, cases)),
    }


def _mistakes(sheet: Sheet, exercise: Exercise, cases: list[Case]) -> Iterator[dict[str, Any]]:
    """The known mistakes that show in the visible cases."""
    for wrong in exercise.wrong:
        outcomes = [_try(sheet, exercise, wrong.source, case) for case in cases]
        if not all(map(is_right, outcomes, cases)):
            yield {"message": wrong.message, "outcomes": [asdict(outcome) for outcome in outcomes]}


def _try(sheet: Sheet, exercise: Exercise, source: str, case: Case) -> Outcome:
    """One call of the teacher's own code in a child: no new Python has to start for it."""
    given = _given(sheet.given)

    def work() -> Any:
        names = dict(given)
        for part in (source, _drivers(sheet, exercise)):
            exec(compile(part, "<mistake>", "exec", dont_inherit=True), names)
        return names[exercise.entry](*json.loads(json.dumps(case.args)))

    return call_in_child(work, sheet.seconds, sheet.memory)[0]


@cache
def _given(source: str) -> dict[str, Any]:
    """The names that the given code defines."""
    names: dict[str, Any] = {"__name__": "given"}
    exec(compile(source, "<given>", "exec", dont_inherit=True), names)
    return names


def _given_before(sheet: Sheet, exercise: Exercise) -> list[str]:
    """What the given cells above its answer define."""
    names: list[str] = []
    for cell in sheet.cells:
        if cell.role is Role.ANSWER and cell.exercise == exercise.id:
            break
        if cell.role is Role.GIVEN:
            names += top_names(cell.source)
    return names


def _drivers(sheet: Sheet, exercise: Exercise) -> str:
    """Its driver after those of the exercises before it, whose helpers it may use."""
    ids = list(sheet.exercises)
    before = ids[: ids.index(exercise.id) + 1]
    return "\n\n".join(sheet.exercises[name].driver for name in before)


def _parameters(exercise: Exercise) -> list[str]:
    """The names of the entry's parameters; the driver's, or the student's where it is the entry."""
    for node in [*ast.parse(exercise.driver).body, *ast.parse(exercise.stub).body]:
        if isinstance(node, ast.FunctionDef) and node.name == exercise.entry:
            return [argument.arg for argument in node.args.args]
    return []


def top_names(source: str) -> list[str]:
    """The functions, classes and constants that a source defines, in order."""
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [t.id for t in node.targets if isinstance(t, ast.Name)]
    return names
