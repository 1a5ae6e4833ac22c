"""Packages whose names are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy(
    package: str, rooms: Mapping[str, Sequence[str]], extra: Callable[[str], str]
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: imports the room in which the name is, and keeps the name.

    `extra` names what pip has to install when that room lacks a library.
    """
    room_of = {name: room for room, names in rooms.items() for name in names}

    def find(name: str) -> Any:
        if name not in room_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            room = importlib.import_module(f"{package}.{room_of[name]}")
        except ModuleNotFoundError as error:
            wanted = f"pip install 'radixlab[{extra(room_of[name])}]'"
            hint = f"{package}.{name} needs {error.name}: {wanted}"
            raise ModuleNotFoundError(hint, name=error.name) from error
        value = getattr(room, name)
        setattr(sys.modules[package], name, value)
        return value

    return find
