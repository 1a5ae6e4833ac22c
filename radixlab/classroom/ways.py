"""In plain words: how a call failed, what kind of thing came, what was wanted, what to do next.

`check` in a notebook and the pages of feedback both take their words from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from radixlab.classroom.imports import what_is_there

if TYPE_CHECKING:
    from radixlab.classroom.outcome import Outcome

WAYS = {
    "timeout": "did not come back within {seconds:g} s of computing: look for a loop without end; "
    "while grading, all cells are run for each call, so what they compute outside of functions "
    "counts too",
    "memory": "wanted more than {memory} MiB of memory: look for what grows without end",
    "ended": "ended Python itself, by an exit or a crash",
    "too big": "gave back far too much",
    "long": "gave back more than can be shown",
    "not json": "gave back something other than numbers, texts, lists and dictionaries of these",
    "wrong value": "gave another value than the right one",
    "missing": "there is no function {exercise}: was it renamed or deleted?",
    "NotImplementedError": "not written yet: NotImplementedError is still raised there",
}
"""How a case failed, by `Outcome.status` and by the keys of `GroupResult.how`."""

EXCEPTIONS = {
    "AttributeError": "asked an object for something that it does not have",
    "EOFError": "asked for input, and nobody answers an `input()` here",
    "IndexError": "asked a list for a place that it does not have",
    "KeyError": "asked a dictionary for a key that it does not have",
    "ModuleNotFoundError": "needs another module: graded code may import {imports}",
    "NameError": "used a name that is not defined",
    "NotImplementedError": "is not written yet",
    "RecursionError": "called itself without an end",
    "SystemExit": "ended itself: leave out `exit()`, and give back a value",
    "TypeError": "used a value of the wrong kind, or too many or few arguments",
    "UnboundLocalError": "used a name of its own before it got a value",
    "ZeroDivisionError": "divided by zero",
}
"""What a call did that raised, by the name of the exception."""

KINDS = {
    "NoneType": "None",
    "bool": "True or False",
    "int": "a whole number",
    "float": "a float",
    "str": "a text",
    "list": "a list",
    "tuple": "a tuple",
    "dict": "a dictionary",
    "set": "a set",
    "frozenset": "a frozenset",
    "bytes": "bytes",
    "bytearray": "a bytearray",
    "array": "an array",
    "ndarray": "an array of NumPy",
    "Tensor": "a tensor of torch",
    "deque": "a deque",
    "range": "a range",
    "generator": "a generator",
    "map": "a map",
    "filter": "a filter",
    "zip": "a zip",
    "dict_keys": "the keys of a dictionary",
    "dict_values": "the values of a dictionary",
    "dict_items": "the items of a dictionary",
    "function": "a function",
    "type": "a class",
    "raise": "an exception",
    "complex": "a complex number",
    "nan": "a NaN or an infinity",
    "key": "a dictionary with keys that are no texts",
}
"""What to call a value, by the name of its type; of a sandboxed value no other name is believed."""

LAZY = ("generator", "map", "filter", "zip")
NUMBERS = ("int", "float", "bool")
ROWS = ("list", "tuple", "bytes", "bytearray", "set", "frozenset", "deque", "range")
"""Each is made of any other of its row by calling it."""

LOOK = "Look at the last of these lines: what do its names hold? A `print` before it shows you."


class Limits(NamedTuple):
    """What a call may take and import: CPU seconds, MiB, and modules beside Python's own."""

    seconds: float
    memory: int
    preload: Sequence[str] = ()


def tell(way: str, exercise: str, limits: Limits) -> str:
    """How cases failed, as the end of a sentence; a `way` that is not known stands for itself."""
    if way in WAYS:
        return WAYS[way].format(exercise=exercise, seconds=limits.seconds, memory=limits.memory)
    if way in EXCEPTIONS:
        return f"{_clause(way, limits)} ({way})"
    return f"stopped with the exception {way}" if way.isidentifier() else way


def problem(outcome: Outcome, exercise: str, limits: Limits, message: str = "") -> str:
    """Why a call gave nothing, in sentences; "" if a value came.

    `message` is what an exception says of itself, where it can be known.
    """
    if outcome.status == "ok":
        return ""
    if outcome.status == "missing":
        return f"There is no `{outcome.error}`: was it renamed or deleted?"
    if outcome.status == "error":
        raised = f"It raised {message or outcome.error}".rstrip(".") + "."
        is_known = outcome.error in EXCEPTIONS
        return f"{raised} It {_clause(outcome.error, limits)}." if is_known else raised
    inside = f": there is {kind_name(outcome.kind)} in it" if outcome.kind else ""
    return f"It {tell(outcome.status, exercise, limits)}{inside}."


def wrong_kind(function: str, came: str, wanted: str) -> str:
    """What to tell whoever gave back a value of another kind; "" if it's the same, or not known.

    `came` and `wanted` are names of types.
    """
    if came == "raise":
        return f"`{function}` returned an exception: it should `raise` it."
    if not came or not wanted or came == wanted:
        return ""
    said = f"`{function}` returned {kind_name(came)}, and should return {kind_name(wanted)}."
    if wanted == "NoneType":
        next_step = "So it changes what it is given, or has nothing to give in this case."
    elif came == "NoneType":
        next_step = "Is there a `return` on each way through it? `print` only shows a value."
    elif came in LAZY and wanted not in ROWS:
        next_step = "It has computed nothing yet, and is many values: `return` the one."
    elif came in LAZY:
        next_step = "It has computed nothing yet: put it into `list(…)`, or fill a list."
    elif came in ("function", "type"):
        next_step = "Did you forget the parentheses that call it?"
    elif any(came in row and wanted in row for row in (NUMBERS, ROWS)):
        next_step = f"`{wanted}(…)` makes one of it, if what is in it is right."
    else:
        next_step = "Read in its docstring what it gives."
    return f"{said} {next_step}"


def wrong_inside(function: str, came: str, wanted: str) -> str:
    """What to tell whoever gave back other things in a list or a tuple than were asked for."""
    if not came or not wanted or came == wanted:
        return ""
    where = f"where {kind_name(wanted)} should be"
    return f"There is {kind_name(came)} in what `{function}` returned, {where}."


def kind_name(kind: str) -> str:
    """A type's name in words."""
    return KINDS.get(kind, f"a value of the type `{kind}`")


def _clause(exception: str, limits: Limits) -> str:
    return EXCEPTIONS[exception].format(imports=what_is_there(limits.preload))
