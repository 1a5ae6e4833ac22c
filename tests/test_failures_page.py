"""The page that lists what went wrong in real systems agrees with the tests that keep it away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "book/failures.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def named_tests(entry: str) -> set[tuple[str, str]]:
    """(file, test) of all tests that an entry names."""
    found, file = set(), ""
    for name in re.findall(r"`(test_\w+(?:\.py)?)`", entry):
        if name.endswith(".py"):
            file = name
        else:
            found.add((file, name))
    return found


def written_tests(number: str) -> set[tuple[str, str]]:
    """(file, test) of all tests that carry the number in their name."""
    test = re.compile(rf"^def (test_{int(number):02}_\w+)", re.MULTILINE)
    files = Path(__file__).parent.glob("test_*.py")
    return {(file.name, name) for file in files for name in test.findall(file.read_text("utf-8"))}


def anchors(page: str) -> set[str]:
    """What a link into the page may end with, as GitHub and the site make it from a heading."""
    headings = re.findall(r"^#+ (.*)", (ROOT / "book" / page).read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_has_all_24() -> None:
    assert list(ENTRIES) == [f"{number}" for number in range(1, 25)]


@pytest.mark.parametrize("number", [f"{number}" for number in range(1, 25)])
def test_an_entry_names_its_source_its_rule_and_all_its_tests(number: str) -> None:
    entry = ENTRIES[number]
    assert "](https://github.com/" in entry
    assert "**Rule.**" in entry
    assert named_tests(entry) == written_tests(number) != set()


def test_every_link_of_the_page_leads_to_a_heading() -> None:
    for page, anchor in re.findall(r"\]\(([\w/-]*(?:\.md)?)#([\w-]+)\)", PAGE):
        assert anchor in anchors(page or "failures.md"), f"{page}#{anchor}"
