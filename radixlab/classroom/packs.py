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
from radixlab.classroom.outcome import Outcome, call_in_child, watch
from radixlab.classroom.sheet import Exercise, Role, Sheet
from radixlab.classroom.ways import KINDS


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
    return task_of(exercise) | {
        "given": _given_before(sheet, exercise),
        "driver": _drivers(sheet, exercise),
        "cases": [
            {
                "group": c.group,
                "args": c.args,
                "expected": c.expected,
                "kind": kind,
                "inside": inside,
            }
            for c, (kind, inside) in zip(cases, _kinds(sheet, exercise, cases), strict=True)
        ],
        "mistakes": list(_mistakes(sheet, exercise, cases)),
    }


def task_of(exercise: Exercise) -> dict[str, Any]:
    """What to call an exercise's cases and their arguments, part of its pack."""
    return {
        "names": list(exercise.names),
        "entry": exercise.entry,
        "visible": list(exercise.visible),
        "parameters": _parameters(exercise),
    }


def _mistakes(sheet: Sheet, exercise: Exercise, cases: list[Case]) -> Iterator[dict[str, Any]]:
    """The known mistakes that show in the visible cases."""
    for wrong in exercise.wrong:
        outcomes = [_try(sheet, exercise, wrong.source, case) for case in cases]
        if not all(map(is_right, outcomes, cases)):
            yield {"message": wrong.message, "outcomes": [asdict(outcome) for outcome in outcomes]}


def _kinds(sheet: Sheet, exercise: Exercise, cases: list[Case]) -> Iterator[tuple[str, ...]]:
    """The type of what the solution returns in each case, and of what is in it; "" if not told."""
    known = {*KINDS, *_given(sheet.given)}
    others = [e.solution for e in sheet.exercises.values() if e.id != exercise.id]
    source = "\n\n".join([*others, exercise.solution])
    for case in cases:
        returned = _try(sheet, exercise, source, case, kind_only=True).value
        yield tuple(kind if kind in known else "" for kind in returned or ("", ""))


def _try(
    sheet: Sheet, exercise: Exercise, source: str, case: Case, kind_only: bool = False
) -> Outcome:
    """One call of the teacher's own code in a child: no new Python has to start for it.

    With `kind_only` what comes is what `watch` says of it.
    """
    given = _given(sheet.given)

    def work() -> Any:
        names = dict(given)
        exec(compile(source, "<mistake>", "exec", dont_inherit=True), names)
        returned = watch(names, exercise.names[0]) if kind_only else []
        exec(compile(_drivers(sheet, exercise), "<driver>", "exec", dont_inherit=True), names)
        result = names[exercise.entry](*json.loads(json.dumps(case.args)))
        return returned if kind_only else result

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
