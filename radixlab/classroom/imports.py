"""What code imports that is not there when it is graded, found before it costs points."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

LIBRARY = "Python's standard library only"


def packages_of(modules: Iterable[str]) -> list[str]:
    """The packages that these modules belong to."""
    return sorted({name.partition(".")[0] for name in modules})


def what_is_there(preload: Iterable[str]) -> str:
    """What graded code may import, in words; `preload` are the modules that a sheet names."""
    more = packages_of(preload)
    return f"{LIBRARY}, and {', '.join(more)}" if more else LIBRARY


def missing_imports(
    namespace: dict[str, Any], names: Sequence[str], preload: Iterable[str]
) -> list[str]:
    """The packages that these functions and classes use, and that the grader does not have.

    Looks into the functions of the same namespace that they call, too.
    """
    there = {*sys.stdlib_module_names, "__main__", *packages_of(preload)}
    used = {name for code in _codes(namespace, names) for name in _packages(code, namespace)}
    return sorted(used - there)


def own_names(namespace: dict[str, Any]) -> list[str]:
    """The functions and classes that the namespace's own code has defined, in order."""
    own = [name for name, value in namespace.items() if any(_code_of(value, namespace))]
    return [name for name in own if not name.startswith("_")]


def _codes(namespace: dict[str, Any], names: Sequence[str]) -> Iterator[CodeType]:
    """The code of functions and classes, and of all of the namespace that it mentions."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for code in _code_of(namespace.get(name), namespace):
            yield code
            waiting += code.co_names


def _code_of(value: object, namespace: dict[str, Any]) -> Iterator[CodeType]:
    """A function's code with the functions in it; of a class, that of its methods."""
    if isinstance(value, FunctionType) and value.__globals__ is namespace:
        yield from _nested(value.__code__)
    elif isinstance(value, type) and value.__module__ == namespace.get("__name__"):
        for part in vars(value).values():
            yield from _code_of(getattr(part, "__func__", part), namespace)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _packages(code: CodeType, namespace: dict[str, Any]) -> Iterator[str]:
    """What is imported in a function, and the modules whose names it uses."""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            yield str(step.argval).partition(".")[0]
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = namespace.get(step.argval)
            home = value.__name__ if isinstance(value, ModuleType) else _home(value)
            yield home.partition(".")[0] or "builtins"


def _home(value: object) -> str:
    """The module that a function or a class is from."""
    home = getattr(value, "__module__", "") if callable(value) else ""
    return home if isinstance(home, str) else ""
