"""Outcomes: what came of a call, read from a child that nobody trusts, and compared."""

from __future__ import annotations

import builtins
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal, cast

from radixlab.classroom import runner
from radixlab.classroom.ways import KINDS

Json = Any
"""What JSON can say: None, bool, int, float, str, lists, dicts with str keys."""
Status = Literal[
    "ok", "error", "timeout", "memory", "ended", "too big", "long", "not json", "missing"
]

SAID = ("ok", "error", "memory", "missing", "not json", "too big")
"""What a child can say of itself."""
MOST_NESTED = 100
"""Lists and dictionaries within each other that it may give back."""
TOLERANCE = 1e-5
"""Floats agree within this part of the larger one, or this much."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call: a value that JSON can say, or how it failed.

    `error` is the name of the builtin exception that was raised (or of its nearest base), never a
    message; for "missing" it is the name that the student has not defined. `kind` is for "not json"
    the name of the type that JSON does not have, "" if not known. "long" is nothing that happened:
    the value was too long to be kept.
    """

    status: Status
    value: Json = None
    error: str = ""
    kind: str = field(default="", compare=False)


# --- making and reading them ---------------------------------------------------------------------


def call_in_child(
    function: Callable[[], object], seconds: float, memory_mib: int | None
) -> tuple[Outcome, str]:
    """Call a function in a fork that may use so much CPU time and so much more memory.

    Returns what came of it and what it printed; this process stays as it was. Where there are no
    forks (Windows, a browser) the function is called right here, without limits.
    """

    def work() -> bytes:
        return runner.report(function, [])

    status, raw, printed = runner.fork(work, seconds, memory_mib, locked_up=False)
    return understand(status, raw.decode("utf-8", "replace"))[0], printed


def watch(names: dict[str, Any], name: str) -> list[str]:
    """Put a function that is watched in the place of the one of this name.

    The list that comes back holds the type of what it returned last, and the type of the first
    value in that, if it is a list or a tuple; nothing while it runs, or if it raised. The type of
    an exception that was returned, not raised, is called "raise".
    """
    returned: list[str] = []
    function = names.get(name)
    if isinstance(function, FunctionType):

        def watched(*args: Any, **named: Any) -> Any:
            returned.clear()
            value = function(*args, **named)
            is_error = isinstance(value, BaseException)
            is_error |= isinstance(value, type) and issubclass(value, BaseException)
            returned.append("raise" if is_error else type(value).__name__)
            returned.append(_inside(value))
            return value

        names[name] = watched
    return returned


def _inside(value: object) -> str:
    """The type of the first value within lists and tuples; "" if there is none."""
    for _ in range(MOST_NESTED):
        if type(value) not in (list, tuple):
            return ""
        first = next(iter(cast(Sequence[object], value)), None)
        if type(first) not in (list, tuple):
            return "" if first is None else type(first).__name__
        value = first
    return ""


def understand(status: str, raw: str) -> tuple[Outcome, list[tuple[int, str]]]:
    """What a child says, with everything in it checked: the outcome, and which cells failed.

    Whatever it says, this raises nothing.
    """
    if status != "ok":
        return Outcome(cast(Status, status)), []
    try:
        said = json.loads(raw)
        if not _is_shallow(said):
            return Outcome("too big"), []
        json.dumps(said, allow_nan=False, ensure_ascii=False).encode()  # no half surrogate pairs
    except RecursionError:
        return Outcome("too big"), []
    except ValueError:
        return Outcome("not json"), []
    if type(said) is not dict or said.get("status") not in SAID:
        return Outcome("not json"), []
    return _outcome(said), _failed_cells(said.get("cells"))


def _is_shallow(value: object, room: int = MOST_NESTED) -> bool:
    parts = value.values() if type(value) is dict else value if type(value) is list else ()
    return room > 0 and all(_is_shallow(part, room - 1) for part in parts)


def _outcome(said: dict[str, Json]) -> Outcome:
    status, error = said["status"], said.get("error")
    if status == "ok":
        return Outcome("ok", said.get("value"))
    if status == "missing":
        return Outcome("missing", None, str(error))
    if status == "not json":
        kind = said.get("kind")
        return Outcome(status, kind=kind if type(kind) is str and kind in KINDS else "")
    return Outcome(status, None, _known_exception(error) if status in ("error", "memory") else "")


def _failed_cells(said: Json) -> list[tuple[int, str]]:
    return [
        (cell[0], _known_exception(cell[1]))
        for cell in (said if type(said) is list else ())
        if type(cell) is list and len(cell) == 2 and type(cell[0]) is int
    ]


def _known_exception(name: object) -> str:
    kind = vars(builtins).get(name) if type(name) is str else None
    known = isinstance(kind, type) and issubclass(kind, BaseException)
    return str(name) if known else "Exception"


# --- comparing them ------------------------------------------------------------------------------


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


def alike(one: Outcome, other: Outcome) -> bool:
    """Whether two calls gave the same value, or failed in the same way."""
    if (one.status, one.error) != (other.status, other.error):
        return False
    return one.status != "ok" or same(one.value, other.value)


Mistakes = Sequence[tuple[str, Sequence[Outcome]]]
"""What known mistakes give in all cases of an exercise, each with its sentence."""


def mistakes_made(known: Mistakes, outcomes: Sequence[Outcome]) -> list[str]:
    """The sentences of the known mistakes that give just these outcomes."""
    return [
        sentence
        for sentence, theirs in known
        if len(theirs) == len(outcomes) and all(map(alike, theirs, outcomes))
    ]
