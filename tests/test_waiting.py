"""Who does not fit waits: it costs the others nothing, nobody is forgotten, refusals are true."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.engine import Engine
from radixlab.errors import InvalidArgument, PoolExhausted, RadixLabError
from radixlab.manager import CacheManager
from radixlab.policies import POLICIES
from radixlab.request import Request, RequestState
from radixlab.scheduler import NullRunner, Scheduler, SchedulerSettings

WAITING = RequestState.WAITING


class Eager(Scheduler):
    """Asks everybody in every pass, whatever has changed: the oracle."""

    def _state(self) -> tuple[object, ...]:
        return (object(),)


def serving(slots: int, policy: str = "fcfs", page_size: int = 1, **settings: int) -> Engine:
    manager = CacheManager(slots // page_size, page_size, checked=True)
    return over(manager, policy, SchedulerSettings(**settings))


def over(
    manager: CacheManager, policy: str = "fcfs", settings: SchedulerSettings | None = None
) -> Engine:
    return Engine(manager, NullRunner(), policy=POLICIES[policy], settings=settings)


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Every request that any manager matches, in order."""
    seen: list[Request] = []
    match = CacheManager.match
    monkeypatch.setattr(CacheManager, "match", lambda m, r: seen.append(r) or match(m, r))
    return seen


# --- what it costs -------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", ["fcfs", "lpm", "lof", "hrrn"])
def test_decode_passes_match_nobody_while_nothing_changes(
    policy: str, matched: list[Request]
) -> None:
    engine = serving(64, policy)
    engine.add(Request(range(20), 40))
    engine.step()
    crowd = [Request(range(100 * i, 100 * i + 30), 10) for i in range(1, 20)]
    for request in crowd:
        engine.add(request)
    engine.step()
    assert set(matched) >= set(crowd), "each was looked at once"
    matched.clear()
    for _ in range(30):
        assert len(engine.step()) == 1
    assert matched == []
    for _ in engine.stream():
        pass
    assert {request.state for request in crowd} == {RequestState.FINISHED}


def test_who_waits_does_not_keep_his_prefix_young() -> None:
    engine = serving(30)
    engine.add(Request([1, 2, 3, 4]))
    list(engine.stream())
    engine.add(Request(range(100, 110), 12))
    engine.step()
    engine.add(Request([1, 2, 3, 4, *range(200, 220)], 2))
    engine.step()
    tick = engine.manager.cache.tick
    for _ in range(5):
        engine.step()
    assert engine.manager.cache.tick == tick


# --- what opens the door again -------------------------------------------------------------------
def end_by_engine(engine: Engine, running: Request, head: Request) -> None:
    engine.abort(running)


def end_by_manager(engine: Engine, running: Request, head: Request) -> None:
    engine.manager.release(running)


def head_gives_up(engine: Engine, running: Request, head: Request) -> None:
    engine.manager.release(head)


def somebody_small_comes(engine: Engine, running: Request, head: Request) -> None:
    engine.add(Request([7], 1))


def another_engine_ends(engine: Engine, running: Request, head: Request) -> None:
    other = next(r for r in engine.manager.running if r not in engine.records)
    engine.manager.release(other)


def another_engine_frees(engine: Engine, running: Request, head: Request) -> None:
    """Between unlock and free the promise still counts."""
    other = next(r for r in engine.manager.running if r not in engine.records)
    engine.manager.unlock(other)
    assert [token.request for token in engine.step()] == [running]
    engine.manager.free(other)


def another_engine_inserts(engine: Engine, running: Request, head: Request) -> None:
    """The head finds most of its prompt then, held by somebody else: it needs little more."""
    other = next(r for r in engine.manager.running if r not in engine.records)
    manager = engine.manager
    manager.allocate(other, other.num_tokens)
    other.computed_len = other.num_tokens
    manager.cache_request(other)


@pytest.mark.parametrize(
    ("change", "policy"),
    [
        (end_by_engine, "fcfs"),
        (end_by_manager, "fcfs"),
        (head_gives_up, "fcfs"),
        (somebody_small_comes, "shortest-prefill-first"),
        (another_engine_ends, "fcfs"),
        (another_engine_frees, "fcfs"),
        (another_engine_inserts, "fcfs"),
    ],
)
def test_a_change_by_anybody_s_hand_has_all_asked_again(
    change: Callable[[Engine, Request, Request], None], policy: str
) -> None:
    """44 slots: 10 are `running`'s, 21 another engine's request's; the head wants 22."""
    engine = serving(44, policy)
    running, head, next_one = Request([1] * 5, 6), Request([*range(20), 90], 2), Request([8] * 30)
    assert engine.manager.admit(Request(range(20), 2))
    engine.add(running)
    engine.step()
    engine.add(head)
    if change is head_gives_up:
        next_one = Request([8])
    engine.add(next_one)
    for _ in range(2):
        assert [token.request for token in engine.step()] == [running]
    assert engine.scheduler.refused is head and {head.state, next_one.state} == {WAITING}
    change(engine, running, head)
    drawn = {token.request for token in engine.step()}
    assert drawn and running not in drawn, "a prefill pass, at once"


def test_whoever_has_started_may_change_the_order_of_the_others() -> None:
    """Without a cache nothing is inserted; who runs is what this policy looks at."""
    engine = serving(20, "routing-key", cache=False)
    keys = {"x": Request([1] * 4, 5, routing_key="x"), "y": Request([2] * 18, routing_key="y")}
    small = Request([3] * 4, routing_key="x")
    for request in (*keys.values(), small):
        engine.add(request)
    assert [token.request for token in engine.step()] == [keys["x"]], "the next one is too long"
    assert [token.request for token in engine.step()] == [small], "the key that runs comes first"


# --- nobody is forgotten -------------------------------------------------------------------------
requests_to_make = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(1, 8)),
    min_size=2,
    max_size=9,
)
some_settings = st.builds(
    SchedulerSettings,
    prefill_budget=st.integers(1, 20),
    max_running=st.integers(1, 5),
    max_matched=st.integers(1, 6),
    in_batch_check=st.sampled_from([None, -1]),
    in_batch_defer=st.integers(1, 6),
    cache=st.sampled_from([True, True, False]),
)


@given(
    making=requests_to_make,
    arrivals=st.lists(st.integers(0, 6), min_size=9, max_size=9),
    aborts=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 8)), max_size=3),
    page_size=st.sampled_from([1, 2, 4]),
    spare_pages=st.integers(0, 8),
    settings=some_settings,
    policy=st.sampled_from([name for name in POLICIES if name != "random"]),
)
def test_it_is_as_if_all_were_asked_in_every_pass(
    making: list[tuple[list[int], int]],
    arrivals: list[int],
    aborts: list[tuple[int, int]],
    page_size: int,
    spare_pages: int,
    settings: SchedulerSettings,
    policy: str,
) -> None:
    """The same requests in the same passes with the same hits, as long as nothing is evicted.

    (An eviction may reorder those who wait, and does not have them asked again.) And all end.
    """
    longest = max(-(-(len(ids) + new - 1) // page_size) for ids, new in making)
    worlds = []
    for scheduler in (Scheduler, Eager):
        manager = CacheManager(longest + spare_pages, page_size, checked=True)
        engine = Engine(manager, NullRunner())
        engine.scheduler = scheduler(manager, POLICIES[policy], settings)
        requests = [Request(ids, new, request_id=i) for i, (ids, new) in enumerate(making)]
        worlds.append((engine, requests))
    for step in range(400):
        seen = []
        for engine, requests in worlds:
            for request, arrival in zip(requests, arrivals, strict=False):
                if arrival == step:
                    engine.add(request)
            for moment, which in aborts:
                victim = requests[which % len(requests)]
                if moment == step and victim in engine.records and victim.state not in ENDED:
                    engine.manager.release(victim)
            drawn = [token.request.request_id for token in engine.step()] if engine.busy else []
            hits = [(r.request_id, r.state, r.cache_hit_len) for r in requests]
            seen.append((drawn, hits))
            engine.manager.check_integrity()
        if any(engine.manager.evicted_tokens for engine, _ in worlds):
            break
        assert seen[0] == seen[1]
    for engine, requests in worlds:
        for request in requests:
            if request not in engine.records:
                engine.add(request)
        for _ in range(400):
            if not engine.busy:
                break
            engine.step()
        assert {request.state for request in requests} <= ENDED, "somebody is stuck"


ENDED = {RequestState.FINISHED, RequestState.ABORTED}


@given(seed=st.integers(0, 1 << 32))
def test_whoever_shares_a_manager_all_requests_end(seed: int) -> None:
    """Up to three engines, every policy, and hands that release and evict.

    An engine that is refused lets the others go on, and one of them always can.
    """
    rng = random.Random(seed)
    page_size, policies = rng.choice([1, 2, 4]), list(POLICIES)
    to_come = [
        Request(rng.choices(range(2), k=rng.randint(1, 12)), rng.randint(1, 8))
        for _ in range(rng.randint(2, 12))
    ]
    requests, longest = list(to_come), max(-(-r.max_len // page_size) for r in to_come)
    manager = CacheManager(longest + rng.randint(0, 10), page_size, checked=True)
    settings = [
        SchedulerSettings(
            prefill_budget=rng.choice([1, 3, 20]),
            max_running=rng.randint(1, 5),
            max_matched=rng.randint(1, 6),
            in_batch_check=rng.choice([None, -1]),
            in_batch_defer=rng.randint(1, 6),
            cache=rng.random() < 0.8,
        )
        for _ in range(rng.randint(1, 3))
    ]
    engines = [over(manager, rng.choice(policies), each) for each in settings]
    idle_rounds = 0
    while to_come or any(engine.busy for engine in engines):
        went_on = False
        for engine in engines:
            if to_come and rng.random() < 0.5:
                engine.add(to_come.pop())
            if rng.random() < 0.05:
                manager.evict(manager.cache.evictable_size)
            if rng.random() < 0.05 and (known := [r for r in requests if r in engine.records]):
                victim = rng.choice(known)
                if victim.state not in ENDED:
                    manager.release(victim)
            if engine.busy:
                try:
                    engine.step()
                    went_on = True
                except RadixLabError:
                    assert manager.running, "with nobody else there the head always fits"
            manager.check_integrity()
        idle_rounds = 0 if went_on or to_come else idle_rounds + 1
        assert idle_rounds < 20, "a deadlock: more refusals than there are requests to release"
    assert {request.state for request in requests} <= ENDED
    assert manager.available_size == manager.pool.total_size


# --- why nothing can run -------------------------------------------------------------------------
def test_slots_that_were_promised_are_a_number_of_the_refusal() -> None:
    manager = CacheManager(8, checked=True)
    first, second = over(manager), over(manager)
    first.add(Request([1, 2, 3], 6))
    first.step()
    second.add(Request([7, 8, 9], 2))
    with pytest.raises(PoolExhausted, match="4 slots; 5 are free and 0 evictable, 5 of") as caught:
        second.step()
    assert (caught.value.asked, caught.value.free, caught.value.promised) == (4, 5, 5)
    list(first.stream())
    assert len(list(second.stream())) == 2


def test_the_refusal_is_about_whoever_the_policy_puts_first_in_whole_pages() -> None:
    manager = CacheManager(4, 4, checked=True)
    assert manager.admit(Request(range(4), 1))
    engine = over(manager, "lof")
    engine.add(Request([1] * 13, 1))
    engine.add(Request([2] * 10, 4))
    with pytest.raises(PoolExhausted, match=r"asked for 16 slots; 16 are free and .* 4 of them"):
        engine.step()


def test_others_who_fill_max_running_are_the_refusal() -> None:
    manager = CacheManager(100, checked=True)
    first, second = (over(manager, settings=SchedulerSettings(max_running=1)) for _ in range(2))
    first.add(Request([1, 2, 3], 5))
    first.step()
    second.add(Request([7, 8, 9], 1))
    with pytest.raises(InvalidArgument, match="max_running must be above the 1 that run elsewhere"):
        second.step()
    list(first.stream())
    assert len(list(second.stream())) == 1


def nobody(waiting: Sequence[Request], running: Collection[Request]) -> list[Request]:
    return []


def strangers(waiting: Sequence[Request], running: Collection[Request]) -> list[Request]:
    return [Request([1])]


@pytest.mark.parametrize("policy", [nobody, strangers])
def test_a_policy_that_names_nobody_is_the_refusal(policy: Callable[..., list[Request]]) -> None:
    engine = Engine(CacheManager(8), NullRunner(), policy=policy)
    engine.add(Request([1, 2, 3]))
    with pytest.raises(InvalidArgument, match="policy must be one that names somebody who waits"):
        engine.step()


def test_a_policy_that_ends_all_who_wait_is_no_reason_to_refuse() -> None:
    manager = CacheManager(8)

    def end(waiting: Sequence[Request], running: Collection[Request]) -> list[Request]:
        for request in waiting:
            manager.release(request)
        return []

    engine = Engine(manager, NullRunner(), policy=end)
    engine.add(Request([1, 2, 3]))
    assert engine.step() == [] and not engine.busy


def test_after_a_refusal_all_are_asked_again() -> None:
    """A policy may think otherwise the next time, though nothing that it looks at has changed."""
    manager = CacheManager(10, checked=True)
    assert manager.admit(Request(range(6)))
    big, small = Request([1] * 8), Request([2])
    turns = iter([[big], [small], [big]])
    engine = Engine(manager, NullRunner(), policy=lambda waiting, running: next(turns))
    engine.add(big)
    engine.add(small)
    with pytest.raises(PoolExhausted, match="asked for 8"):
        engine.step()
    assert [token.request for token in engine.step()] == [small]


@pytest.mark.parametrize("policy", ["lpm", None, 7])
def test_a_policy_is_a_function(policy: object) -> None:
    with pytest.raises(InvalidArgument, match="policy must be a function"):
        Engine(CacheManager(8), NullRunner(), policy=policy)  # type: ignore[arg-type]  # on purpose


def test_whoever_has_ended_is_not_kept_alive_by_the_memory_of_a_refusal() -> None:
    engine = Engine(CacheManager(8), NullRunner())
    requests = [Request(range(first, first + 6), max_new_tokens=3) for first in (10, 20, 30)]
    for request in requests:
        engine.add(request)
    engine.step()
    engine.step()
    assert engine.scheduler.refused is requests[1]  # it waits for the first one's slots
    for request in requests:
        engine.abort(request)
    engine.records.clear()
    gone = [weakref.ref(request) for request in requests]
    del request, requests
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
