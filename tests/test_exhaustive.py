"""Every interleaving of every step in a small world, to the very end.

Breadth first: all states that can be reached in one step, in two, and so on, each looked at once.
A state is rebuilt by taking its steps again from the start, so nothing has to be copied.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

import pytest

from radixlab.strategies import STRATEGIES
from radixlab.tokens import Namespace
from tests.world import Prompt, Setting, Step, World

Path = tuple[Step, ...]


class Seen(NamedTuple):
    """How much was looked at: all that takes at most `depth` steps.

    `refused` names the calls that were refused somewhere; `complete` says that nothing is beyond.
    """

    states: int
    steps: int
    depth: int
    complete: bool
    refused: frozenset[str]

    def __str__(self) -> str:
        end = "to the very end" if self.complete else "and it goes on"
        return f"{self.states:,} states, {self.steps:,} steps, {self.depth} deep, {end}"


def explore(setting: Setting, depth: int) -> Seen:
    """Take every step from every state that can be reached in fewer than `depth` steps."""
    start = replay(setting, ())
    start.check()
    seen = {hash(start.canonical())}
    frontier: list[Path] = [()]
    steps, level, refused = 0, 0, set()
    while frontier and level < depth:
        level += 1
        reached: list[Path] = []
        for path in frontier:
            here = replay(setting, path)
            before = here.canonical()
            for step in list(here.steps()):
                state, done = take(setting, path, step, before)
                steps += 1
                if not done:
                    refused.add(step[0])
                if state not in seen:
                    seen.add(state)
                    reached.append((*path, step))
        frontier = reached
    return Seen(len(seen), steps, level, not frontier, frozenset(refused))


def replay(setting: Setting, path: Path) -> World:
    world = World(setting)
    for step in path:
        world.do(step)
    return world


def take(setting: Setting, path: Path, step: Step, before: object) -> tuple[int, bool]:
    """One more step after `path`: the hash of the state it leads to, and whether it was done.

    That state must pass every check, and be the one before if the step was refused. (A refused
    admission has looked for a prefix, which may split an edge and counts as use.)
    """
    world = replay(setting, path)
    try:
        done = world.do(step)
        world.check()
        after = world.canonical()
        assert done or step[0] == "admit" or after == before, "a refused call changed the state"
    except Exception as error:
        error.add_note("after " + ", ".join(map(str, (*path, step))))
        raise
    return hash(after), done


# Two requests with one prompt: the race. Prompts are computed whole or token by token.
TWINS = Setting(4, 1, (Prompt([0, 0, 1]), Prompt([0, 0, 1])))
# A prompt that another's prompt and output may continue, whatever is drawn.
TURNS = Setting(6, 1, (Prompt([0, 0], 2), Prompt([0, 0, 1], 2)), (0, 1), chunked=False)
# Three, of which two are equal.
THREE = Setting(5, 1, (Prompt([0, 0]), Prompt([0, 1]), Prompt([0, 0])), chunked=False)
# Pages of two: tails, borders inside pages, half a page of output.
PAGES = Setting(4, 2, (Prompt([0, 0, 0, 1]), Prompt([0, 0, 0, 0], 2)), (0, 1))
# More than the pool can hold at once.
CROWD = Setting(3, 2, (Prompt([0, 0, 1]), Prompt([0, 0, 0]), Prompt([0, 0])), chunked=False)
# Equal tokens in two namespaces.
TENANTS = Setting(
    5, 1, (Prompt([0, 0]), Prompt([0, 0], 2, Namespace(salt="s")), Prompt([0, 0, 0])), chunked=False
)
# Whoever is admitted has room to the end, as long as all admissions keep to it.
PROMISES = Setting(
    4, 1, (Prompt([0, 0], 2), Prompt([0, 1], 2), Prompt([0, 0])), chunked=False, promised=True
)
# Large: three requests, any token drawn, any chunks.
LARGE = Setting(6, 1, (Prompt([0, 0], 2), Prompt([0, 1, 0]), Prompt([0, 0, 0])), (0, 1))

EVERY_REFUSAL = {"admit", "lock", "allocate", "evict", "clear"}
SMALL = os.environ.get("RADIXLAB_LONG") == "small"
TO_THE_END = 99


class Tour(NamedTuple):
    """How deep to go into a world in `make test`, in CI's long tests and in `make test-long`."""

    setting: Setting
    quick: int
    small: int
    full: int


TOURS = {
    "twins": Tour(TWINS, 9, 12, TO_THE_END),
    "turns": Tour(TURNS, 8, 11, TO_THE_END),
    "three": Tour(THREE, 7, 10, TO_THE_END),
    "pages": Tour(PAGES, 7, 10, TO_THE_END),
    "crowd": Tour(CROWD, 7, TO_THE_END, TO_THE_END),
    "tenants": Tour(TENANTS, 7, 10, TO_THE_END),
    "promises": Tour(PROMISES, 8, 11, TO_THE_END),
    "large": Tour(LARGE, 5, 8, 11),
}


@pytest.mark.parametrize("name", TOURS)
def test_every_interleaving_leaves_the_books_balanced(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = explore(TOURS[name].setting, TOURS[name].quick)
    with capsys.disabled():
        print(f"\n{name}: {seen}", end=" ")
    assert seen.states > 400


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_interleaving_under_each_eviction_strategy(strategy: str) -> None:
    """After each step whoever is evicted first is the unheld leaf that is worth least."""
    assert explore(replace(TURNS, strategy=strategy), 7).states > 400


@pytest.mark.long
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_interleaving_under_each_eviction_strategy_deeper(
    strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = explore(replace(THREE, strategy=strategy), 8 if SMALL else 11)
    with capsys.disabled():
        print(f"\n{strategy}: {seen}", end=" ")
    assert seen.states > 2000


@pytest.mark.long
@pytest.mark.parametrize("name", TOURS)
def test_every_interleaving_to_the_end(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tour = TOURS[name]
    seen = explore(tour.setting, tour.small if SMALL else tour.full)
    with capsys.disabled():
        print(f"\n{name}: {seen}", end=" ")
    assert seen.complete or SMALL or name == "large"


def test_the_small_worlds_are_hard_enough_for_every_refusal() -> None:
    """A world in which nothing is ever short, stale or held would prove little."""
    assert explore(CROWD, 8).refused == EVERY_REFUSAL


def test_a_broken_rule_is_found_and_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unlock that forgets its node leads to a state that fails, a few steps from the start."""
    monkeypatch.setattr(
        "radixlab.cache.RadixCache.unlock", lambda self, handle: setattr(handle, "locked", False)
    )
    with pytest.raises(AssertionError) as failure:
        explore(TWINS, 9)
    assert failure.value.__notes__[-1].startswith("after ('admit', 0), ")
