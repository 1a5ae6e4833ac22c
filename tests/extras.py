"""The environment as it is where less is installed than `make test` installs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_profile(name: str) -> str:
    """The extras that a target of the Makefile installs, such as "model,lab,sweep"."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (extras,) = re.findall(rf"^{name}_EXTRAS := (\S+)$", makefile, re.MULTILINE)
    return str(extras)


def needs(name: str, extra: str) -> Iterable[Requirement]:
    """What a package asks for: ours by pyproject.toml, others by what is installed of them."""
    if name == PROJECT["name"]:
        lines = PROJECT["optional-dependencies"].get(extra, [])
    else:
        try:
            lines = requires(name) or []
        except PackageNotFoundError:  # for another system
            lines = []
    asked = map(Requirement, lines)
    return [r for r in asked if r.marker is None or r.marker.evaluate({"extra": extra})]


def closure(extras: str) -> set[str]:
    """All packages that `pip install radixlab[EXTRAS]` brings."""
    seen: set[tuple[str, str]] = set()
    asked = [Requirement(f"{PROJECT['name']}[{extras}]")]
    while asked:
        requirement = asked.pop()
        name = canonicalize_name(requirement.name)
        new = {(name, extra) for extra in {"", *requirement.extras}} - seen
        seen |= new
        asked += [each for name, extra in new for each in needs(name, extra)]
    return {name for name, _ in seen}


def only(extras: str) -> dict[str, str]:
    """What to add to a command's environment: it finds nothing but what those extras install."""
    absent = closure("all") - closure(extras)
    modules = [
        module
        for module, owners in packages_distributions().items()
        if absent.issuperset(map(canonicalize_name, owners))
    ]
    hidden = f"{','.join(modules)};{','.join(absent)}"
    return {"PYTHONPATH": str(ROOT / "tests/only"), "RADIXLAB_ABSENT": hidden}
