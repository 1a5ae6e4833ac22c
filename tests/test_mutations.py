"""The tests notice when a rule of the core is broken."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.mutations import MORE_TESTS, MUTATIONS, QUICK_TESTS, ROOT, Mutation, apply, check

SMALL = os.environ.get("RADIXLAB_LONG") == "small"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_each_rule_can_still_be_broken(mutation: Mutation, tmp_path: Path) -> None:
    """The text of the rule is where it was, and what is put there is Python."""
    module = shutil.copy(ROOT / "radixlab" / f"{mutation.module}.py", tmp_path)
    apply(mutation, tmp_path)
    compile(Path(module).read_text(encoding="utf-8"), module, "exec")


def test_two_broken_rules_are_noticed_at_once() -> None:
    """No lock on the path, and a page table that keeps the freed duplicates."""
    broken = [m for m in MUTATIONS if "holds the whole path" in m.rule or "the race" in m.rule]
    assert all(result.caught for result in check(broken[:2], ["test_failures"]))


@pytest.mark.long
def test_every_broken_rule_is_noticed() -> None:
    results = check(MUTATIONS, QUICK_TESTS if SMALL else (*QUICK_TESTS, *MORE_TESTS))
    missed = [m.rule for m, result in zip(MUTATIONS, results, strict=True) if not result.caught]
    assert not missed
