"""Every number in a caption, computed once more from the snapshots before and after the step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from viz_world import lives

from radixlab.lifecycle import Step
from radixlab.scenarios import SCENARIOS
from radixlab.snapshot import RequestSnapshot, Snapshot, take_snapshot
from radixlab.tokens import brief


def request_of(snapshot: Snapshot, request_id: str | None) -> RequestSnapshot:
    return next(r for r in snapshot.requests if r.request_id == request_id)


def tokens_of(request: RequestSnapshot) -> tuple[int, ...]:
    return request.prompt + request.output


def cached_len(snapshot: Snapshot, tokens: Sequence[int]) -> int:
    """The longest cached prefix in whole pages, found by comparing with every path."""
    paths: dict[int, tuple[int, ...]] = {}
    longest = 0
    for node in snapshot.nodes:
        paths[node.uuid] = path = paths.get(node.parent if node.parent is not None else -1, ())
        paths[node.uuid] = path = path + node.key
        agree = next(
            (i for i, (a, b) in enumerate(zip(path, tokens, strict=False)) if a != b), None
        )
        agree = min(len(path), len(tokens)) if agree is None else agree
        longest = max(longest, agree - agree % snapshot.page_size)
    return longest


def slots(values: Sequence[int]) -> str:
    return brief(list(values), "p")


def round_up(number: int, page: int) -> int:
    return -(-number // page) * page


def path_slots(step: Step) -> list[int]:
    nodes = {node.uuid: node for node in step.snapshot.nodes}
    return [slot for uuid in step.nodes for slot in nodes[uuid].value]


def counts(step: Step, before: Snapshot) -> list[int]:
    """ref_count before and after along the path."""
    old = {node.uuid: node.ref_count for node in before.nodes}
    new = {node.uuid: node.ref_count for node in step.snapshot.nodes}
    halves = {upper: lower for upper, lower in step.changes.split}
    return [n for u in step.nodes for n in (old[halves.get(u, u)], new[u])]


def match(step: Step, before: Snapshot) -> list[object]:
    request = request_of(before, step.request_id)
    tokens = tokens_of(request)
    hit = cached_len(before, tokens[:-1])
    assert len(path_slots(step)) == hit
    return [hit, len(tokens), *([slots(path_slots(step))] if hit else [])]


def schedule(step: Step, before: Snapshot) -> list[object]:
    waiting = [request_of(before, each) for each in step.snapshot.waiting]
    return [len(tokens_of(r)) - cached_len(before, tokens_of(r)[:-1]) for r in waiting]


def lock(step: Step, before: Snapshot) -> list[object]:
    table = request_of(step.snapshot, step.request_id).page_table
    assert list(table) == path_slots(step)
    return [slots(table), *counts(step, before)] if table else []


def allocate(step: Step, before: Snapshot) -> list[object]:
    old = request_of(before, step.request_id).page_table
    new = request_of(step.snapshot, step.request_id).page_table
    assert new[: len(old)] == old
    assert before.free_list[: (len(new) - len(old)) // before.page_size] == tuple(
        new[len(old) :: before.page_size]
    )
    return [slots(new[len(old) :]), slots(new)]


def evict(step: Step, before: Snapshot) -> list[object]:
    request = request_of(before, step.request_id)
    needed = round_up(len(tokens_of(request)), before.page_size) - len(request.page_table)
    gone = [node for node in before.nodes if node.uuid in step.changes.removed]
    freed = {s for s, owner in before.owners().items() if owner == "cached"}
    freed &= {s for s, owner in step.snapshot.owners().items() if owner == "free"}
    assert freed == {slot for node in gone for slot in node.value}
    shown = [int(n) for n in re.findall(r"p(\d+)", step.caption)]  # the order is the strategy's
    assert set(shown) == freed if len(freed) <= 8 else set(shown) < freed
    keys = [brief(node.key) for node in gone]
    in_all = [len(freed)] if len(freed) > 8 else []
    return [needed, before.free_size, *keys, *shown, *in_all]


def prefill(step: Step, before: Snapshot) -> list[object]:
    numbers: list[object] = []
    for request in step.snapshot.requests:
        start = request_of(before, request.request_id).computed_len
        if request.computed_len > start:
            numbers += [request.computed_len - start, start, request.output[-1]]
    return numbers


def insert(step: Step, before: Snapshot) -> list[object]:
    old, new = (request_of(state, step.request_id) for state in (before, step.snapshot))
    held, cached, tokens = old.cached_len, new.cached_len, tokens_of(new)
    found = max(held, min(cached, cached_len(before, tokens[:cached])))
    numbers: list[object] = []
    if found > held:
        numbers += [brief(tokens[held:found]), slots(old.page_table[held:found])]
        numbers += [slots(new.page_table[held:found])]
    if cached > found:
        numbers += [brief(tokens[found:cached]), slots(new.page_table[found:cached])]
    return numbers


def decode(step: Step, before: Snapshot) -> list[object]:
    numbers: list[object] = []
    for request in step.snapshot.requests:
        position = request_of(before, request.request_id).computed_len
        if request.computed_len > position:
            numbers += [position, request.page_table[position], request.output[-1]]
    return numbers


def unlock(step: Step, before: Snapshot) -> list[object]:
    state = step.snapshot
    cached = sum(len(node.key) for node in state.nodes)
    evictable = sum(len(node.key) for node in state.nodes if not node.ref_count)
    return [*counts(step, before), evictable, cached]


def free(step: Step, before: Snapshot) -> list[object]:
    request = request_of(before, step.request_id)
    private = request.page_table[request.cached_len :]
    assert {step.snapshot.owners()[slot] for slot in private} == {"free"}
    return [slots(private)]


RECOMPUTE: dict[str, Callable[[Step, Snapshot], list[object]]] = {
    each.__name__: each
    for each in (match, schedule, lock, allocate, evict, prefill, insert, decode, unlock, free)
}


def assert_captions_are_true(start: Snapshot, steps: Sequence[Step]) -> None:
    before = start
    for step in steps:
        numbers = RECOMPUTE[step.name](step, before)
        expected = re.findall(r"\d+", " ".join(map(str, numbers)))
        caption = step.caption.removeprefix(f"{step.request_id}: ")
        assert sorted(re.findall(r"\b[p]?(\d+)", caption)) == sorted(expected), (
            step.caption,
            numbers,
        )
        before = step.snapshot


@given(lives())
def test_every_number_in_a_caption_follows_from_the_snapshots(
    life: tuple[Snapshot, list[Step]],
) -> None:
    assert_captions_are_true(*life)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_chapters_captions_are_true(name: str) -> None:
    scenario = SCENARIOS[name]()
    start = take_snapshot(scenario.manager, scenario.requests)
    steps = list(scenario.steps())
    for step in steps:  # the ids R1 and T2 have digits
        assert step.request_id is None or step.caption.startswith(f"{step.request_id}: ")
    letters = [step for step in steps if not re.search(r"[A-Z]\d", step.caption[4:])]
    assert letters
    before = start
    for step in steps:
        if step in letters:
            assert_captions_are_true(before, [step])
        before = step.snapshot
