"""`python tests/licences.py`: write the table of dependencies into book/licences.md.

Listed is what the extras of pyproject.toml name, in the versions of constraints.txt, which must be
installed. The licence is what a package's own metadata says of it.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "book/licences.md"
MARKS = ("<!-- dependencies -->\n\n", "\n\n<!-- end of dependencies -->")
HOMES = ("homepage", "source", "sourcecode", "sources", "repository", "github", "documentation")
"""What packages call the address of their home, the best first."""


def read_uses() -> dict[str, list[str]]:
    """Each direct dependency, in the order of the alphabet, and the extras that name it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    uses: dict[str, list[str]] = {}
    for extra, lines in project["optional-dependencies"].items():
        for name in (Requirement(line).name for line in lines):
            uses.setdefault(name, []).append(extra)
    del uses[project["name"]]
    return dict(sorted(uses.items()))


def read_pins() -> dict[str, str]:
    """The version of each."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w-]+)==(.+)$", text, re.MULTILINE))


def find_licence(package: Distribution) -> str:
    """The SPDX expression; else a name of one line, the classifiers, the head of the text."""
    told: dict[str, Any] = package.metadata.json
    said: str = told.get("license_expression") or told.get("license") or ""
    if said and "\n" not in said:
        return said
    named = [each.split(" :: ")[-1] for each in told.get("classifier", []) if "License" in each]
    if named:
        return ", ".join(named)
    texts = [each for each in package.files or () if each.name.startswith("LICENSE")]
    return texts[0].read_text(encoding="utf-8").splitlines()[0]


def find_home(package: Distribution) -> str:
    """An address where the package's makers tell of it."""
    told: dict[str, Any] = package.metadata.json
    labelled = (line.split(", ", 1) for line in told.get("project_url", []))
    urls = {re.sub(r"[\W_]", "", label).lower(): url for label, url in labelled}
    return str(told.get("home_page") or next(urls[label] for label in HOMES if label in urls))


def write_row(name: str, version: str, extras: list[str]) -> str:
    """A package's line, from what is installed of it."""
    package = distribution(name)
    home, licence = find_home(package), find_licence(package)
    return f"| [{name}]({home}) | {version} | {', '.join(extras)} | {licence} |"


def main() -> None:
    """Write all lines anew."""
    pins = read_pins()
    rows = [write_row(name, pins[name], extras) for name, extras in read_uses().items()]
    table = "\n".join(["| package | version | extras | licence |", "|---|---|---|---|", *rows])
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    PAGE.write_text(before + MARKS[0] + table + MARKS[1] + after, encoding="utf-8")


if __name__ == "__main__":
    main()
