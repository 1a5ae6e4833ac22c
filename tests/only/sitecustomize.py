"""Python runs this at its start, if this folder is on PYTHONPATH: some packages are not there."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULES, PACKAGES = (set(names.split(",")) for names in os.environ["RADIXLAB_ABSENT"].split(";"))


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
    def find_distributions(cls, *context: Any) -> Iterator[Any]:
        """The packages, for whoever asks for plugins, without those that are absent."""
        for package in super().find_distributions(*context):
            if re.sub("[-_.]+", "-", package.name).lower() not in PACKAGES:
                yield package


sys.meta_path[sys.meta_path.index(PathFinder)] = SomePaths
