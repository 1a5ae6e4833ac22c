"""The page of licences lists what radixlab builds on, as the packages themselves say it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

import licences

TABLE = licences.PAGE.read_text(encoding="utf-8").split(licences.MARKS[0])[1]
ROWS = re.findall(r"^\| \[.+$", TABLE.split(licences.MARKS[1])[0], re.MULTILINE)
USES, PINS = licences.read_uses(), licences.read_pins()
ANEW = "run `python tests/licences.py`"


def is_installed(name: str) -> bool:
    """Whether the pinned version is here, of whatever build; in CI every one is."""
    try:
        return version(name).partition("+")[0] == PINS[name]
    except PackageNotFoundError:
        return False


def test_every_dependency_is_listed_with_its_version_and_its_extras() -> None:
    listed = [
        re.match(r"\| \[(.+)\]\(https?://.+\) \| (.+) \| (.+) \| .+ \|$", row) for row in ROWS
    ]
    wanted = [(name, PINS[name], ", ".join(extras)) for name, extras in USES.items()]
    assert [each and each.groups() for each in listed] == wanted, ANEW


def test_each_line_says_what_the_installed_package_says() -> None:
    for row, (name, extras) in zip(ROWS, USES.items(), strict=True):
        if is_installed(name):
            assert row == licences.write_row(name, PINS[name], extras), ANEW
