"""Which cell defined what is checked, and whether a later cell meant to and did not.

IPython keeps the text of all cells that were run, also of those that failed, in the list `In`; and
for each function that a cell defined `linecache` has the text of that cell. Where either is
missing, as outside of notebooks, nothing is known and nothing is said.
"""

from __future__ import annotations

import ast
import linecache
import re
import warnings
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from radixlab.classroom.imports import own_names

CLOSE = 0.7
"""So alike are two names of which one may be the other, renamed or mistyped."""


class Origin(NamedTuple):
    """The number of the cell that a function is from, 0 if not known; why it is not the last one.

    `stale` is a sentence, "" if nothing speaks against it.
    """

    cell: int = 0
    stale: str = ""


def origin(name: str, namespace: dict[str, Any], known: Collection[str]) -> Origin:
    """Where the function or class of this name is from. `known` are names that a sheet asks for."""
    cells = namespace.get("In")
    if type(cells) is not list or not all(type(cell) is str for cell in cells):
        return Origin()
    cells = [cell.strip() for cell in cells]
    own = _cell_of(name, namespace, cells)
    last = max((i for i, cell in enumerate(cells) if _defines(cell, name)), default=0)
    if own < last and (error := _syntax_error(cells[last])):
        return Origin(own, f"{_last(last)} did not run: {error}. {_still(name, own)}")
    if not own or _rebinds(cells[last], name):
        return Origin(own)
    if own < last and cells[own] != cells[last]:
        why = f"{_last(last)} stopped before it came to `{name}`"
        return Origin(own, f"{why}. {_still(name, own)}")
    later = [n for n in own_names(namespace) if _cell_of(n, namespace, cells) > own]
    if alike := get_close_matches(name, [n for n in later if n not in known], 1, CLOSE):
        hint = f"If that is it, call it `{name}`; if not, run cell [{own}] again"
        return Origin(own, f"you have defined `{alike[0]}` since. {_still(name, own)} {hint}.")
    return Origin(own)


def _last(number: int) -> str:
    return f"your last cell with it, [{number}],"


def _still(name: str, own: int) -> str:
    return f"What is there is still the `{name}` of cell [{own}]." if own else ""


def _cell_of(name: str, namespace: dict[str, Any], cells: list[str]) -> int:
    """The last cell with the very text that defined it; 0 if it is from elsewhere."""
    for code in _codes(namespace.get(name), name):
        source = "".join(linecache.getlines(code.co_filename)).strip()
        if source:
            return max((i for i, cell in enumerate(cells) if cell == source), default=0)
    return 0


def _codes(value: object, name: str) -> Iterator[CodeType]:
    """The code of a function of this name, and of a class's methods: no wrapper's."""
    if isinstance(value, FunctionType) and value.__code__.co_name == name:
        yield value.__code__
    elif isinstance(value, type) and value.__name__ == name:
        for part in vars(value).values():
            if isinstance(part, FunctionType):
                yield part.__code__


def _defines(cell: str, name: str) -> bool:
    return bool(re.search(rf"^(?:(?:async )?def|class) +{name}\b", cell, re.M)) or _rebinds(
        cell, name
    )


def _rebinds(cell: str, name: str) -> bool:
    """Whether the name gets a value that is no definition; then no text can tell."""
    return bool(
        re.search(rf"^{name} *(?::[^=\n]*)?=(?!=)|^(?:from|import) .*\b{name}\b", cell, re.M)
    )


def _syntax_error(cell: str) -> str:
    """Why no line of a cell can have been run, "" if nothing speaks against it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(cell, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        return f"{type(error).__name__} in its line {error.lineno}"
    except ValueError as error:  # a null byte
        return type(error).__name__
    return ""
