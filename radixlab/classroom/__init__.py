"""The classroom: exercise sheets, instant checks, and a grader that trusts nobody's code.

Students need two names, `check` and `show`; teachers the command `radixlab classroom`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radixlab._lazy import lazy

if TYPE_CHECKING:
    from radixlab.classroom.checks import check
    from radixlab.classroom.picture import show

_ROOMS = {"checks": ("check",), "picture": ("show",)}
__getattr__ = lazy(__name__, _ROOMS, lambda room: "classroom,lab")

__all__ = ["check", "show"]

SEED = "RADIXLAB_CLASSROOM_SEED"
"""The environment variable that holds the teacher's secret, from which hidden cases are made."""
