"""The classroom: exercise sheets, instant checks, and a grader that trusts nobody's code.

Students need two names, `check` and `show`; teachers the command `radixlab classroom`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radixlab.classroom.checks import check
    from radixlab.classroom.picture import show

_ROOM_OF = {"check": "checks", "show": "picture"}

__all__ = ["check", "show"]

SEED = "RADIXLAB_CLASSROOM_SEED"
"""The environment variable that holds the teacher's secret, from which hidden cases are made."""


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'radixlab.classroom' has no attribute {name!r}")
    try:
        room = importlib.import_module(f"radixlab.classroom.{_ROOM_OF[name]}")
    except ModuleNotFoundError as error:
        extra = "pip install 'radixlab[classroom,lab]'"
        hint = f"radixlab.classroom.{name} needs {error.name}: {extra}"
        raise ModuleNotFoundError(hint, name=error.name) from error
    value = getattr(room, name)
    globals()[name] = value
    return value
