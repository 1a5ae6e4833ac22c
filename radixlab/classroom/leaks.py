"""What must not get out: lines that are the teacher's alone, in anything that students get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from radixlab.classroom.sheet import TEACHERS, BadSheet, Role, Sheet

SHORTEST = 20
"""A line of fewer characters may stand in any text."""


def refuse_leaks(sheet: Sheet, shown: Any, *, drivers: bool = False) -> None:
    """Raise `BadSheet` if a line of a solution, driver, case, mistake or rubric is shown.

    What is shown is a text, or a notebook or other JSON with texts in it. Lines that stand in the
    page, in given code or in a stub are no secret; nor is what `drivers` say where they are given
    out, as in a pack.
    """
    text = "\n".join(_texts(shown))
    open_code = _sources(sheet, Role.DRIVER) if drivers else []
    secret = TEACHERS - {Role.DRIVER} if drivers else TEACHERS
    solutions = [exercise.solution for exercise in sheet.exercises.values()]
    stubs = [exercise.stub for exercise in sheet.exercises.values()]
    told = _lines(_sources(sheet, Role.PAGE, Role.GIVEN) + stubs)
    for line in sorted(_lines(_sources(sheet, *secret) + solutions) - told):
        if line in text and not any(line in code for code in open_code):
            raise BadSheet(sheet.name, f"students would see a teacher's line: {line!r}")


def _sources(sheet: Sheet, *roles: Role) -> list[str]:
    return [cell.source for cell in sheet.cells if cell.role in roles]


def _lines(sources: list[str]) -> set[str]:
    lines = {line.strip() for source in sources for line in source.splitlines()}
    return {line for line in lines if len(line) >= SHORTEST}


def _texts(value: Any) -> Iterator[str]:
    """All texts within a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
