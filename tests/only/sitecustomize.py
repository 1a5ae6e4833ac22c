"""Python runs this at its start, if this folder is on PYTHONPATH: some packages are not there."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

ABSENT = set(os.environ["RADIXLAB_ABSENT"].split(","))


class SomePaths(PathFinder):
    """Finds all others."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for what is absent."""
        if name.partition(".")[0] in ABSENT:
            return None
        return super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = SomePaths
