"""Python runs this at its start, if this folder is on PYTHONPATH: some packages are not there."""

import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULES, PACKAGES = (set(names.split(",")) for names in os.environ["RADIXLAB_ABSENT"].split(";"))

FOUND: dict[tuple[Any, ...], list[Any]] = {}


class SomePaths(PathFinder):
    """Finds all others."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for a module that is absent."""
        if name.partition(".")[0] in MODULES:
            return None
        return super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *context: Any) -> list[Any]:
        """The packages, for whoever asks for plugins, without those that are absent."""
        key = tuple((each.name, *each.path) for each in context)
        if key not in FOUND:  # a package's name has to be read; pygments asks at each block of code
            FOUND[key] = [p for p in super().find_distributions(*context) if not _is_absent(p)]
        return FOUND[key]


def _is_absent(package: Any) -> bool:
    return re.sub("[-_.]+", "-", package.name).lower() in PACKAGES


sys.meta_path[sys.meta_path.index(PathFinder)] = SomePaths
