"""The source of the function that ran a step, and in it the line that did the step's work.

Read with `inspect` from the code that runs, so that it can't drift. `KEY_LINES` names the line by a
short piece of it; a test asks that each piece stands in its function exactly once.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from functools import cache
from typing import Any, NamedTuple

from radixlab.lifecycle import Step
from radixlab.viz import palette
from radixlab.viz.marks import main_event

KEY_LINES = {
    "radixlab.cache.RadixCache.evict": "self.tree.remove_leaf(leaf)",
    "radixlab.cache.RadixCache.insert_prefix": "self.tree.add_leaf(",
    "radixlab.cache.RadixCache.lock": "self._hold(",
    "radixlab.cache.RadixCache.match_prefix": "self.tree.walk(",
    "radixlab.cache.RadixCache.unlock": "node.ref_count -= 1",
    "radixlab.manager.CacheManager.allocate": "self.pool.allocate(",
    "radixlab.manager.CacheManager.free": "self.pool.free(",
    "radixlab.manager.CacheManager.match": "self.cache.match_prefix(",
    "radixlab.policies.dfs_weight": "return sorted(",
    "radixlab.policies.hrrn": "return sorted(",
    "radixlab.policies.lof": "return sorted(",
    "radixlab.policies.lpm": "return sorted(",
    "radixlab.policies.priority": "by_priority(",
    "radixlab.policies.priority_lof": "by_priority(",
    "radixlab.policies.routing_key": "return sorted(",
    "radixlab.scheduler.NullRunner.decode": "self.decoded_tokens +=",
    "radixlab.scheduler.NullRunner.prefill": "self.prefilled_tokens +=",
    "radixlab.scheduler.fcfs": "return list(",
    "radixlab.scheduler.shortest_prefill_first": "return sorted(",
    "radixlab.tree.RadixTree.walk": "child.split_at(",
}
"""The line to be marked, by a piece of it, for each function that a step may name."""

FOUND = {"radixlab.cache.RadixCache.insert_prefix": "self.tree.walk("}
"""The line to be marked instead when all that was to be inserted is in the tree already."""

SPLIT_IN = "radixlab.tree.RadixTree.walk"
"""Where a match or an insert cuts an edge: shown besides, when it did."""


class Line(NamedTuple):
    """A line of a file: its number there, and its text."""

    number: int
    text: str


class Listing(NamedTuple):
    """A function without its docstring."""

    name: str
    file: str
    lines: tuple[Line, ...]

    def find(self, piece: str) -> list[int]:
        """The numbers of the lines that hold `piece`."""
        return [line.number for line in self.lines if piece in line.text]


class Marked(NamedTuple):
    """A listing and the line of it that is marked, with the event that gives the colour."""

    listing: Listing
    line: int | None
    event: str


def executed(step: Step) -> list[Marked]:
    """What ran: the step's function, and where an edge was cut the line that cut it."""
    event, cut = main_event(step), bool(step.changes.split)
    shown = [_mark(step, step.function, palette.MATCHED if cut and _found(step) else event)]
    if cut:
        shown.append(_mark(step, SPLIT_IN, palette.SPLIT))
    return [marked for marked in shown if marked is not None]


@cache
def read_source(function: str) -> Listing | None:
    """The listing of a function by its dotted name; None where its source can't be had."""
    found = _resolve(function)
    try:
        source, first = inspect.getsourcelines(found)
    except (OSError, TypeError):
        return None
    text = textwrap.dedent("".join(source))
    hidden = _docstring_lines(text)
    lines = [
        Line(first + i, line)
        for i, line in enumerate(text.splitlines())
        if i not in hidden and not line.startswith("@")
    ]
    module = found.__module__.replace(".", "/")
    return Listing(found.__qualname__, f"{module}.py", tuple(lines))


def _mark(step: Step, function: str, event: str) -> Marked | None:
    listing = read_source(function)
    if listing is None:
        return None
    piece = KEY_LINES.get(function)
    if function in FOUND and not set(step.changes.created) - {u for u, _ in step.changes.split}:
        piece = FOUND[function]
    numbers = listing.find(piece) if piece else []
    return Marked(listing, numbers[0] if numbers else None, event)


def _found(step: Step) -> bool:
    """Whether the step only looked: a match."""
    return step.name.startswith("match")


def _resolve(function: str) -> Any:
    """The object of a dotted name: the longest importable part is the module."""
    parts = function.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name, None)
        return found
    return None


def _docstring_lines(text: str) -> set[int]:
    """Which lines of a function's source are its docstring, counted from 0."""
    body = ast.parse(text).body[0]
    if not isinstance(body, ast.FunctionDef) or ast.get_docstring(body) is None:
        return set()
    doc = body.body[0]
    return set(range(doc.lineno - 1, doc.end_lineno or doc.lineno))
