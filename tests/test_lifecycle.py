"""The seven steps as a generator: whatever happens between two steps, the books balance."""

from __future__ import annotations

import itertools
import json
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.cache import RadixCache
from radixlab.errors import InvalidArgument, PoolExhausted
from radixlab.lifecycle import Recorder, Step, lifecycle
from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.scenarios import SCENARIOS, Scenario
from radixlab.scheduler import Chunk, Matched, NullRunner, fcfs, shortest_prefill_first
from radixlab.snapshot import NodeSnapshot, RequestSnapshot, Snapshot, diff, take_snapshot


def decoding_scenario() -> Scenario:
    """Pages of two, and output that fills pages: splits, races, decode, evictions.

    The pool is too small for all five requests at once.
    """
    manager = CacheManager(8, 2, checked=True)
    requests = [
        Request([1, 2, 3, 4, 5], 4, request_id="D1"),
        Request([1, 2, 3, 4, 6, 7], 3, request_id="D2"),
        Request([1, 2, 9, 9], 6, request_id="D3"),
        Request([1, 2, 3, 4, 5], 2, request_id="D4"),
        Request([8, 8, 8, 8, 8, 8, 8, 8, 8], 3, request_id="D5"),
    ]
    return Scenario(manager, requests, shortest_prefill_first)


ALL = {**SCENARIOS, "decoding": decoding_scenario}
BATCH_SIZES = [1, 2, 3]
CASES = [(name, size) for name in ALL for size in BATCH_SIZES]
ENDED = (RequestState.FINISHED, RequestState.ABORTED)


class RandomRunner:
    """Draws tokens that look random and are always the same; checks what it is given."""

    def __init__(self, manager: CacheManager) -> None:
        self.manager, self.passes, self.computed = manager, 0, 0

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        assert chunks
        for request, start, end in chunks:
            assert start == request.computed_len < end == request.num_tokens
            self.check_slots(request, end)
            self.computed += end - start
        return self.draw(len(chunks))

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        assert requests
        for request in requests:
            assert request.computed_len == request.num_tokens - 1 and not request.is_done
            self.check_slots(request, request.num_tokens)
            self.computed += 1
        return self.draw(len(requests))

    def check_slots(self, request: Request, end: int) -> None:
        """Every position has a slot, and those to be written are nobody else's."""
        assert request.state is RequestState.RUNNING and request.handle is not None
        assert len(request.page_table) >= end
        owners = take_snapshot(self.manager).owners()
        for slot in request.page_table[request.computed_len : end]:
            assert owners[slot] == str(request.request_id)

    def draw(self, number: int) -> list[int]:
        self.passes += 1
        return [(self.passes * 7 + i) % 5 for i in range(number)]


def play(name: str, batch_size: int) -> tuple[Scenario, Iterator[Step]]:
    scenario = ALL[name]()._replace(batch_size=batch_size)
    return scenario, scenario.steps(RandomRunner(scenario.manager))


def assert_at_rest(manager: CacheManager) -> None:
    manager.check_integrity()
    assert not manager.running and not manager.cache.protected_size
    assert manager.pool.free_size + manager.cache.evictable_size == manager.pool.total_size


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_every_request_finishes_and_the_pool_is_free_or_evictable(
    name: str, batch_size: int
) -> None:
    scenario, steps = play(name, batch_size)
    for _ in steps:
        scenario.manager.check_integrity()
    assert_at_rest(scenario.manager)
    for request in scenario.requests:
        assert request.state is RequestState.FINISHED
        assert len(request.output) == request.max_new_tokens
        assert request.computed_len == request.max_len


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_any_request_may_be_aborted_at_any_step(name: str, batch_size: int) -> None:
    """Each request at each step of each scenario; the others finish all the same."""
    number_of_steps = sum(1 for _ in play(name, batch_size)[1])
    for stop in range(number_of_steps):
        for victim in range(len(ALL[name]().requests)):
            scenario, steps = play(name, batch_size)
            request = scenario.requests[victim]
            for index, _ in enumerate(steps):
                if index == stop and request.state not in ENDED:
                    scenario.manager.release(request)
                    assert request.state in ENDED
                if index >= stop:
                    scenario.manager.check_integrity()
            assert_at_rest(scenario.manager)
            others = [r for r in scenario.requests if r is not request]
            assert all(r.state is RequestState.FINISHED for r in others), (stop, victim)
            assert request.state in ENDED


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_all_requests_may_be_aborted_at_any_step(name: str, batch_size: int) -> None:
    for stop in range(sum(1 for _ in play(name, batch_size)[1])):
        scenario, steps = play(name, batch_size)
        for index, _ in enumerate(steps):
            if index == stop:
                for request in scenario.requests:
                    if request.state not in ENDED:
                        scenario.manager.release(request)
                assert_at_rest(scenario.manager)
        assert_at_rest(scenario.manager)


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_a_generator_that_is_closed_early_lets_go_of_everything(name: str, batch_size: int) -> None:
    for stop in range(sum(1 for _ in play(name, batch_size)[1])):
        scenario, steps = play(name, batch_size)
        for _ in range(stop + 1):
            next(steps)
        steps.close()  # type: ignore[attr-defined]
        assert_at_rest(scenario.manager)
        assert RequestState.RUNNING not in {r.state for r in scenario.requests}


@pytest.mark.parametrize("name", ALL)
def test_the_cache_may_be_emptied_between_any_two_steps(name: str) -> None:
    """Somebody else's eviction may take what was matched and not yet held, never what is held."""
    for stop in range(sum(1 for _ in play(name, 2)[1])):
        scenario, steps = play(name, 2)
        for index, _ in enumerate(steps):
            if index == stop:
                scenario.manager.evict(scenario.manager.cache.evictable_size)
            scenario.manager.check_integrity()
        assert_at_rest(scenario.manager)
        assert all(r.state is RequestState.FINISHED for r in scenario.requests)


def test_requests_of_others_are_left_alone() -> None:
    manager = CacheManager(8, checked=True)
    other = Request([1, 2, 3])
    assert manager.admit(other)
    steps = lifecycle(manager, [Request([4, 5])])
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert list(manager.running) == [other]


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_has_room_for_at_least_one_request(batch_size: int) -> None:
    request = Request([1])
    with pytest.raises(InvalidArgument) as refusal:
        next(lifecycle(CacheManager(2), [request], batch_size=batch_size))
    assert (refusal.value.name, refusal.value.got) == ("batch_size", batch_size)
    assert request.state is RequestState.WAITING


def test_a_request_that_no_eviction_can_make_room_for_ends_the_play_with_the_numbers() -> None:
    manager = CacheManager(6)
    holder = Request([1, 2, 3])
    manager.admit(holder)
    manager.allocate(holder, 3)
    request = Request([4, 5, 6, 7])
    with pytest.raises(PoolExhausted) as refusal:
        list(lifecycle(manager, [request]))
    assert (refusal.value.asked, refusal.value.free, refusal.value.evictable) == (4, 3, 0)
    assert request.state is RequestState.WAITING
    manager.check_integrity()


def test_the_slots_that_others_were_promised_are_left_to_them() -> None:
    """Otherwise they would run out in the middle of the play."""
    manager = CacheManager(6)
    holder = Request([1, 2, 3], 3)
    assert manager.admit(holder)
    steps = lifecycle(manager, [Request([4, 5])])
    with pytest.raises(PoolExhausted) as refusal:
        list(steps)
    assert (refusal.value.asked, refusal.value.free, refusal.value.promised) == (2, 6, 5)


def test_a_policy_may_name_a_request_twice_or_one_that_does_not_wait() -> None:
    stranger, requests = Request([9]), [Request([1]), Request([2])]
    policy = lambda waiting, running: [stranger, *waiting, *waiting]  # noqa: E731 - it is one
    steps = list(lifecycle(CacheManager(4), requests, policy=policy, batch_size=2))
    assert [step.name for step in steps].count("lock") == 2
    assert {request.state for request in requests} == {RequestState.FINISHED}
    assert stranger.state is RequestState.WAITING


def test_a_policy_that_names_nobody_ends_the_play() -> None:
    turns = itertools.chain([1], itertools.repeat(0))
    requests = [Request([1]), Request([2])]
    steps = lifecycle(
        CacheManager(4), requests, policy=lambda waiting, running: list(waiting)[: next(turns)]
    )
    with pytest.raises(InvalidArgument, match="policy must be one that names somebody who waits"):
        list(itertools.islice(steps, 99))
    assert [request.state for request in requests] == [RequestState.FINISHED, RequestState.WAITING]


@pytest.mark.parametrize("name", ["free", "cached"])
def test_a_request_by_the_name_of_a_state_owns_its_slots_all_the_same(name: str) -> None:
    manager = CacheManager(8, checked=True)
    for _ in lifecycle(manager, [Request([7, 7])]):
        pass
    before = take_snapshot(manager)
    request = Request([1, 2, 3], request_id=name)
    assert manager.admit(request)
    manager.allocate(request, 3)
    owners = list(take_snapshot(manager).owners().values())
    assert [owners.count(owner) for owner in ("free", "cached", f"'{name}'")] == [3, 2, 3]
    (move,) = diff(before, take_snapshot(manager)).slots
    assert (move.before, move.after) == ("free", f"'{name}'")


def test_a_runner_that_forgets_a_request_ends_the_play_and_nothing_is_left_held() -> None:
    class Forgetful(NullRunner):
        def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
            return super().prefill(chunks)[1:]

    scenario = SCENARIOS["race"]()
    with pytest.raises(ValueError, match="shorter"):
        list(scenario.steps(Forgetful()))
    assert_at_rest(scenario.manager)


def test_the_null_runner_counts_what_a_model_would_compute() -> None:
    """Each position once, but for those that were found in the cache."""
    runner = NullRunner()
    scenario = decoding_scenario()
    list(scenario.steps(runner))
    hits = sum(request.cache_hit_len for request in scenario.requests)
    assert runner.prefilled_tokens == sum(r.prompt_len for r in scenario.requests) - hits
    assert runner.decoded_tokens == sum(r.max_new_tokens - 1 for r in scenario.requests)


def test_more_requests_in_a_batch_means_fewer_hits_when_they_are_alike() -> None:
    """sglang#2442: what is admitted together can't find each other's work."""
    hits = []
    for batch_size in (1, 2):
        scenario = SCENARIOS["race"]()._replace(batch_size=batch_size)
        list(scenario.steps())
        hits.append([request.cache_hit_len for request in scenario.requests])
    assert hits == [[0, 4], [0, 0]]


# --- who goes first -----------------------------------------------------------------------------
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8)), max_size=8))
def test_policies_order_by_what_is_left_to_compute_and_then_by_arrival(
    sizes: list[tuple[int, int]],
) -> None:
    cache = RadixCache()
    cache.insert_prefix([0] * 8, array("i", range(8)))
    waiting = [
        Matched(Request([0] * length), cache.match_prefix([0] * length, limit=min(hit, length)))
        for length, hit in sizes
    ]
    assert fcfs(waiting) == waiting
    ordered = shortest_prefill_first(waiting)
    keys = [max(1, len(m.request.prompt) // 4 - m.handle.cached_len) for m in ordered]
    assert keys == sorted(keys)
    for key in set(keys):
        assert [m for m, k in zip(ordered, keys, strict=True) if k == key] == [
            m for m in waiting if max(1, m.uncached_len) == key
        ]


@pytest.mark.parametrize("name", ALL)
def test_the_schedule_step_says_the_order_and_what_is_left_to_compute(name: str) -> None:
    scenario = ALL[name]()
    for step in scenario.steps():
        if step.number == 2:
            said = re.findall(r"(\w+) \((\d+)\)", step.caption)
            assert tuple(who for who, _ in said) == step.snapshot.waiting
        elif step.name == "lock":
            assert (who := said.pop(0))[0] == step.request_id
            computed = {r.request_id: r.computed_len for r in step.snapshot.requests}
            prompts = {r.request_id: len(r.prompt) for r in step.snapshot.requests}
            assert prompts[who[0]] - computed[who[0]] == int(who[1])


# --- what a step says ---------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_each_step_is_json_and_the_last_snapshot_is_the_manager_s(
    name: str, batch_size: int
) -> None:
    scenario, steps = play(name, batch_size)
    by_id = {str(request.request_id): request for request in scenario.requests}
    for step in steps:
        shown = [by_id[r.request_id] for r in step.snapshot.requests]
        assert len(shown) == len(by_id) and step.snapshot == take_snapshot(scenario.manager, shown)
        assert tuples(json.loads(json.dumps(step.to_dict()))) == tuples(step.to_dict())
        assert step.caption.endswith(".") and 1 <= step.number <= 7


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_changes_are_what_differs_between_two_snapshots(name: str, batch_size: int) -> None:
    scenario = ALL[name]()._replace(batch_size=batch_size)
    before = take_snapshot(scenario.manager, scenario.requests)
    for step in scenario.steps(RandomRunner(scenario.manager)):
        after, changes = step.snapshot, step.changes
        old, new = _nodes(before), _nodes(after)
        assert set(changes.created) == new.keys() - old.keys()
        absorbed = {upper for upper, _ in changes.healed}
        assert set(changes.removed) | absorbed == old.keys() - new.keys()
        assert absorbed.isdisjoint(changes.removed)
        for uuid, was, now in changes.ref_counts:
            assert was == (old[uuid].ref_count if uuid in old else 0) != now == new[uuid].ref_count
        for upper, lower in changes.split:
            assert new[lower].parent == upper
            assert old[lower].key == new[upper].key + new[lower].key
            assert old[lower].value == new[upper].value + new[lower].value
        cut = {uuid for uuid in old.keys() & new.keys() if old[uuid].key != new[uuid].key}
        assert cut == {lower for _, lower in (*changes.split, *changes.healed)}
        for lower in {lower for _, lower in changes.healed}:
            parts = [lower, *(upper for upper, grown in changes.healed if grown == lower)][::-1]
            assert new[lower].key == sum((old[part].key for part in parts), ())
            assert new[lower].value == sum((old[part].value for part in parts), ())
        owners = before.owners()
        for move in changes.slots:
            assert {owners.pop(slot) for slot in move.slots} == {move.before}
            assert {after.owners()[slot] for slot in move.slots} == {move.after}
        assert all(after.owners()[slot] == owner for slot, owner in owners.items())
        before = after


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_every_number_in_a_caption_follows_from_the_snapshots(name: str, batch_size: int) -> None:
    scenario = ALL[name]()._replace(batch_size=batch_size)
    before = take_snapshot(scenario.manager, scenario.requests)
    for step in scenario.steps(RandomRunner(scenario.manager)):
        if step.name not in ("schedule", "fcfs"):
            assert numbers(step.caption) == expected_numbers(step, before), step.caption
        before = step.snapshot


def tuples(value: Any) -> Any:
    """JSON has lists where a snapshot has tuples."""
    if isinstance(value, dict):
        return {key: tuples(item) for key, item in value.items()}
    return tuple(tuples(item) for item in value) if isinstance(value, list | tuple) else value


def test_a_step_in_which_a_node_is_split_twice_names_both_splits() -> None:
    manager = CacheManager(16, checked=True)
    for _ in lifecycle(manager, [Request([1, 2, 3, 4, 5, 6])]):
        pass
    request = Request([1, 2], 9)
    recorder = Recorder(manager, [request])
    manager.admit(request)
    manager.allocate(request, 5)
    request.output.extend([3, 4, 9])
    request.computed_len = 5
    recorder.record(4, manager.allocate, "Prompt and output are computed.")
    manager.cache_request(request)
    step = recorder.record(5, manager.cache_request, "Prompt and output are in the tree.")
    uuids = {node.key: node.uuid for node in step.snapshot.nodes}
    old = uuids[5, 6]
    assert set(step.changes.split) == {(uuids[2,], old), (uuids[3, 4], old)}


def numbers(caption: str) -> list[int]:
    """All numbers and slots of a caption, in order; names of requests like R1 are not numbers."""
    return [int(number) for number in re.findall(r"\bp?(\d+)\b", caption)]


def expected_numbers(step: Step, before: Snapshot) -> list[int]:
    after, old, new = step.snapshot, _nodes(before), _nodes(step.snapshot)
    was = {r.request_id: r for r in before.requests}
    now = {r.request_id: r for r in after.requests}
    path = [new[uuid] for uuid in step.nodes if uuid in new]
    request = now[step.request_id] if step.request_id else None
    match step.name:
        case "match":
            assert request is not None
            slots = [slot for node in path for slot in node.value]
            return [len(slots), len(request.prompt) + len(request.output), *slots]
        case "lock":
            assert request is not None
            counts = [count for node in path for count in (node.ref_count - 1, node.ref_count)]
            return [*request.page_table, *counts]
        case "allocate":
            assert request is not None
            have = len(was[request.request_id].page_table)
            return _shown([*request.page_table[have:]]) + _shown([*request.page_table])
        case "evict":
            gone = [old[uuid].key for uuid in old if uuid not in new]
            freed = len(after.free_list) - len(before.free_list)
            slots = [s for p in after.free_list[:freed] for s in range(p, p + after.page_size)]
            asked = numbers(step.caption)[0]
            assert asked > before.free_size
            ids = [i for key in gone for i in _shown([*key])]
            return [asked, before.free_size, *ids, *_shown(slots)]
        case "prefill":
            parts = []
            for name, r in now.items():
                if r.computed_len > was[name].computed_len:
                    start = was[name].computed_len
                    parts += [r.computed_len - start, start, r.output[-1]]
            return parts
        case "insert":
            assert request is not None
            return _insert_numbers(was[request.request_id], request, before)
        case "decode":
            parts = []
            for name, r in now.items():
                if len(r.output) > len(was[name].output):
                    end = r.computed_len
                    parts += [end - 1, r.page_table[end - 1], r.output[-1]]
            return parts
        case "unlock":
            counts = [count for node in path for count in (node.ref_count + 1, node.ref_count)]
            cached = after.evictable_size + after.protected_size
            return [*counts, after.evictable_size, cached]
        case "free":
            assert request is not None
            private = was[request.request_id]
            return _shown([*private.page_table[private.cached_len :]])
    raise AssertionError(f"a step without a check: {step.name}")


def _insert_numbers(was: RequestSnapshot, now: RequestSnapshot, before: Snapshot) -> list[int]:
    """Found: as far as the tree before had the ids; the rest is new."""
    ids = (was.prompt + was.output)[: now.cached_len]
    found = max([was.cached_len, *(_agreement(ids, key) for key in _paths(before))])
    found -= found % before.page_size
    parts: list[int] = []
    if found > was.cached_len:
        parts += _shown([*ids[was.cached_len : found]])
        parts += _shown([*was.page_table[was.cached_len : found]])
        parts += _shown([*now.page_table[was.cached_len : found]])
    if now.cached_len > found:
        parts += _shown([*ids[found:]]) + _shown([*now.page_table[found : now.cached_len]])
    return parts


def _shown(numbers: list[int]) -> list[int]:
    """A long list shows its first four, its length and its last two."""
    return numbers if len(numbers) <= 8 else [*numbers[:4], len(numbers), *numbers[-2:]]


def _paths(snapshot: Snapshot) -> list[tuple[int, ...]]:
    paths: dict[int | None, tuple[int, ...]] = {None: ()}
    for node in snapshot.nodes:
        paths[node.uuid] = paths[node.parent] + node.key
    return [*paths.values()]


def _agreement(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def _nodes(snapshot: Snapshot) -> dict[int, NodeSnapshot]:
    return {node.uuid: node for node in snapshot.nodes}
