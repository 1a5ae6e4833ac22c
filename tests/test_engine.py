"""The engine with a runner that computes names instead of tensors: who is found, held, freed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.engine import Engine
from radixlab.errors import (
    DoubleFree,
    InvalidArgument,
    InvalidTokenId,
    PoolExhausted,
    RequestTooLong,
    WrongState,
)
from radixlab.manager import CacheManager
from radixlab.policies import POLICIES
from radixlab.request import Request, RequestState, Sampling
from radixlab.scheduler import (
    Chunk,
    NullRunner,
    SchedulerSettings,
    shortest_prefill_first,
)
from radixlab.tokens import Namespace, decode
from tests.world import fingerprints

ALPHABET = 3


def continuation(namespace: Namespace | None, prompt: Sequence[int], new: int) -> list[int]:
    """What the naming runner writes after a prompt, recomputed from scratch for each token."""
    ids = list(prompt)
    for _ in range(new):
        ids.append(fingerprints(namespace, ids)[-1] % ALPHABET)
    return ids[len(prompt) :]


class NamingRunner:
    """Writes each position's name to its slot, and insists that all before it have theirs.

    `before_pass` may raise, as a model may.
    """

    def __init__(self) -> None:
        self.written: dict[int, int] = {}
        self.before_pass: Callable[[Sequence[Chunk]], None] = lambda chunks: None
        self.passes: list[list[Chunk]] = []

    def prefill(self, chunks: Sequence[Chunk]) -> list[int]:
        self.passes.append(list(chunks))
        self.before_pass(chunks)
        return [self._compute(*chunk) for chunk in chunks]

    def decode(self, requests: Sequence[Request]) -> list[int]:
        return self.prefill([Chunk(r, r.num_tokens - 1, r.num_tokens) for r in requests])

    def _compute(self, request: Request, start: int, end: int) -> int:
        assert request.state is RequestState.RUNNING and start == request.computed_len
        names = fingerprints(request.namespace, decode(request.tokens)[:end])
        for slot, name in zip(request.page_table[:start], names, strict=False):
            assert self.written[slot] == name, "another prefix's K and V stand in this slot"
        self.written.update(zip(request.page_table[start:end], names[start:], strict=True))
        return names[-1] % ALPHABET


class HitOracle:
    """All that was ever inserted, as plain lists: what an endless cache would find."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.inserted: list[tuple[Namespace | None, list[int]]] = []

    def hit(self, request: Request) -> int:
        ids = decode(request.prompt)[:-1]
        best = 0
        for namespace, known in self.inserted:
            if namespace == request.namespace:
                pairs = zip(ids, known, strict=False)
                best = max(best, len(list(itertools.takewhile(lambda p: p[0] == p[1], pairs))))
        return best - best % self.page_size

    def insert(self, request: Request, count: int) -> None:
        count -= count % self.page_size
        self.inserted.append((request.namespace, decode(request.tokens)[:count]))


def idle(engine: Engine) -> None:
    """Nothing runs, nothing has leaked."""
    manager = engine.manager
    manager.check_integrity()
    assert not manager.running and not engine.busy
    assert manager.pool.free_size + manager.cache.evictable_size == manager.pool.total_size


def check_outcome(engine: Engine, request: Request, poisoned: bool) -> None:
    """Finished with the oracle's tokens, each computed once; or aborted with some of them."""
    prompt, record = decode(request.prompt), engine.records[request]
    expected = continuation(request.namespace, prompt, request.max_new_tokens)
    stops = [i for i, token in enumerate(expected) if token in request.stop_token_ids]
    expected = expected[: stops[0] + 1] if stops else expected
    output = request.output.tolist()
    assert output == expected[: len(output)]
    if request.state is RequestState.FINISHED:
        assert output == expected and record.error is None and not poisoned
        computed = request.prompt_len + len(output) - 1 - record.cached_tokens
        assert record.computed_tokens == computed
    else:
        assert request.state is RequestState.ABORTED
        assert record.error is None or poisoned


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=14)
requests_to_make = st.lists(
    st.tuples(
        prompts,
        st.integers(1, 5),
        st.sampled_from([None, Namespace(salt="s")]),
        st.sampled_from([None, 0, 2]),
    ),
    min_size=1,
    max_size=8,
)


@given(
    making=requests_to_make,
    page_size=st.sampled_from([1, 2, 4]),
    spare_pages=st.integers(0, 60),
    settings=st.builds(
        SchedulerSettings,
        prefill_budget=st.integers(1, 20),
        max_running=st.integers(1, 8),
        max_matched=st.integers(1, 8),
        in_batch_check=st.sampled_from([None, -1, 2]),
        in_batch_defer=st.integers(1, 6),
        cache=st.sampled_from([True, True, True, False]),
    ),
    policy=st.sampled_from(list(POLICIES.values())),
    data=st.data(),
)
def test_whatever_happens_hits_and_tokens_are_those_of_an_oracle(
    making, page_size, spare_pages, settings, policy, data
) -> None:
    """Requests come, are aborted and fail at any time; the rest notices nothing."""
    longest = max(-(-(len(ids) + new - 1) // page_size) for ids, new, _, _ in making)
    manager = CacheManager(longest + spare_pages, page_size, checked=True)
    runner, oracle = NamingRunner(), HitOracle(page_size)
    engine = Engine(manager, runner, policy=policy, settings=settings)
    to_come = [
        Request(ids, new, namespace=namespace, stop_token_ids=() if stop is None else [stop])
        for ids, new, namespace, stop in making
    ]
    poisoned = {r for r in to_come if data.draw(st.integers(0, 9)) == 0}

    def fail(chunks: Sequence[Chunk]) -> None:
        if any(chunk.request in poisoned for chunk in chunks):
            raise RuntimeError("poison")

    runner.before_pass = fail
    known: list[Request] = []
    while engine.busy or to_come:
        while to_come and (data.draw(st.booleans()) or not engine.busy):
            known.append(to_come.pop())
            engine.add(known[-1])
        victim = data.draw(st.sampled_from(known)) if data.draw(st.integers(0, 9)) == 0 else None
        if victim is not None and victim.state in (RequestState.WAITING, RequestState.RUNNING):
            engine.abort(victim)
        waiting = {r: oracle.hit(r) for r in engine.scheduler.waiting}
        engine.step()
        manager.check_integrity()
        for request, expected in waiting.items():
            if (record := engine.records[request]).admitted is not None:
                assert record.cached_tokens <= expected
                assert record.cached_tokens == expected or engine.totals.evicted_tokens
        for request in known if settings.cache else ():
            if request.output:
                oracle.insert(request, request.prompt_len)
            if request.state is RequestState.FINISHED:
                oracle.insert(request, request.num_tokens - 1)
    for request in known:
        check_outcome(engine, request, request in poisoned)
    idle(engine)


def new_engine(slots: int = 64, page_size: int = 1, **settings) -> Engine:
    manager = CacheManager(slots // page_size, page_size, checked=True)
    return Engine(manager, NamingRunner(), settings=SchedulerSettings(**settings))


def run(engine: Engine, *requests: Request) -> list[list[int]]:
    for request in requests:
        engine.add(request)
    for _ in engine.stream():
        engine.manager.check_integrity()
    return [request.output.tolist() for request in requests]


LONG = [i % 2 for i in range(40)]


# --- sharing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_11_identical_prompts_that_arrive_together_are_computed_once(page_size: int) -> None:
    engine = new_engine(256, page_size)
    twins = [Request(LONG, 3) for _ in range(4)]
    outputs = run(engine, *twins)
    assert outputs == [continuation(None, LONG, 3)] * 4
    found = 39 - 39 % page_size
    assert [engine.records[r].cached_tokens for r in twins] == [0, found, found, found]
    assert engine.totals.prefilled_tokens == 40 + 3 * (40 - found)
    idle(engine)


def test_11_followers_wait_while_the_first_is_in_the_middle_of_its_prompt() -> None:
    engine = new_engine(256, prefill_budget=16)
    twins = [Request(LONG, 1), Request([*LONG, 1, 1], 1)]
    run(engine, *twins)
    assert engine.records[twins[1]].cached_tokens == 40
    assert engine.totals.prefill_passes == 4


def test_11_without_the_check_twins_are_computed_twice_and_their_duplicates_freed() -> None:
    engine = new_engine(256, in_batch_check=-1)
    run(engine, Request(LONG, 2), Request(LONG, 2))
    assert engine.totals.cached_tokens == 0
    assert engine.manager.cache.total_size == 41
    idle(engine)


def test_the_check_counts_what_would_be_gained_and_sglang_s_threshold_is_a_setting() -> None:
    """40 tokens cached, 60 more in common: SGLang asks only those with at most 32 cached."""
    for check, cached in ((None, [40, 100]), (32, [40, 40])):
        engine = new_engine(512, in_batch_check=check)
        run(engine, Request(LONG))
        pair = [Request([*LONG, *(2 for _ in range(60)), last], 1) for last in (0, 1)]
        run(engine, *pair)
        assert [engine.records[r].cached_tokens for r in pair] == cached


def test_other_namespaces_have_nothing_to_wait_for() -> None:
    engine = new_engine(256)
    run(engine, *(Request(LONG, namespace=Namespace(tenant=t)) for t in "ab"))
    assert engine.totals.prefill_passes == 1
    assert engine.totals.cached_tokens == 0


def test_twins_of_one_namespace_share() -> None:
    engine = new_engine(256)
    run(engine, *(Request(LONG, namespace=Namespace(tenant="a")) for _ in range(2)))
    assert engine.totals.cached_tokens == 39


def test_nobody_waits_for_the_last_token_which_is_never_cached_for_him() -> None:
    for defer, cached in ((39, 39), (40, 0)):
        engine = new_engine(256, in_batch_defer=defer)
        run(engine, Request(LONG), Request(LONG))
        assert engine.totals.cached_tokens == cached


def test_a_long_queue_falls_back_to_the_order_of_arrival() -> None:
    for window, order in ((3, [2, 1, 0]), (2, [0, 2, 1])):
        manager = CacheManager(256, checked=True)
        settings = SchedulerSettings(max_running=1, max_matched=window)
        engine = Engine(manager, NamingRunner(), policy=shortest_prefill_first, settings=settings)
        requests = [Request([i, *LONG[: 9 - 3 * i]]) for i in range(3)]
        run(engine, *requests)
        assert [requests.index(chunks[0].request) for chunks in engine.runner.passes] == order


def test_12_a_second_turn_finds_prompt_and_output() -> None:
    engine = new_engine(256)
    first = Request(LONG, 6)
    (answer,) = run(engine, first)
    second = Request([*LONG, *answer, 0, 1], 1)
    run(engine, second)
    assert engine.records[second].cached_tokens == 40 + 5, "all but the last, never computed token"


def test_without_a_cache_nothing_is_found_and_nothing_is_kept() -> None:
    engine = new_engine(256, cache=False)
    run(engine, *(Request(LONG, 2) for _ in range(3)))
    assert engine.totals.hit_rate == 0
    assert engine.totals.prefill_passes == 1
    assert engine.manager.pool.free_size == 256


def test_without_a_cache_nothing_is_found_that_another_engine_has_left() -> None:
    """The control group is cold, whatever the manager has cached."""
    warm = new_engine(256)
    run(warm, Request(LONG, 2))
    cold = Engine(warm.manager, warm.runner, settings=SchedulerSettings(cache=False))
    before = warm.manager.cache.total_size
    (output,) = run(cold, Request([*LONG, 1], 3))
    assert output == continuation(None, [*LONG, 1], 3)
    assert (cold.totals.cached_tokens, cold.totals.prefilled_tokens) == (0, 41)
    assert warm.manager.cache.total_size == before
    idle(cold)


# --- chunks, order, continuous batching -------------------------------------------------------


def test_a_chunked_request_goes_on_first_and_draws_nothing_until_its_prompt_is_done() -> None:
    engine = new_engine(256, prefill_budget=16)
    long, short = Request(LONG, 2), Request([1, 1, 1], 2)
    engine.add(long)
    engine.add(short)
    assert engine.step() == [] and engine.scheduler.chunked is long
    assert engine.step() == [] and long.computed_len == 32
    assert short.state is RequestState.WAITING
    assert [token.request for token in engine.step()] == [long, short]
    chunks = [[(c.request, c.start, c.end) for c in each] for each in engine.runner.passes]
    assert chunks == [
        [(long, 0, 16)],
        [(long, 16, 32)],
        [(long, 32, 40), (short, 0, 3)],
    ]


def test_requests_join_a_batch_that_is_decoding() -> None:
    engine = new_engine(256)
    first, second = Request([0, 1], 6), Request([1, 0], 2)
    engine.add(first)
    engine.step()
    engine.step()
    engine.add(second)
    assert [token.request for token in engine.step()] == [second], "prefill comes before decode"
    assert [token.request for token in engine.step()] == [first, second]
    assert [token.request for token in engine.step()] == [first]


def test_a_request_that_does_not_fit_waits_and_nobody_is_thrown_out() -> None:
    engine = new_engine(12)
    big, next_one = Request([0, 1, 0, 1], 6), Request([1, 1, 1, 1], 4)
    run(engine, big, next_one)
    first, second = (engine.records[r] for r in (big, next_one))
    assert second.admitted >= first.last_token
    assert engine.totals.peak_slots <= 12 and engine.totals.evicted_tokens > 0
    idle(engine)


def test_no_more_than_max_running_run_together() -> None:
    engine = new_engine(256, max_running=2)
    run(engine, *(Request([i % 2, i // 2 % 2], 3) for i in range(5)))
    assert max(len(chunks) for chunks in engine.runner.passes) == 2


def test_19_a_cold_request_starves_behind_short_ones_but_not_for_longer_than_the_window() -> None:
    """Shortest prefill first has no age in its key; whom `max_matched` lets through is fcfs."""
    waits = {}
    for window in (2, 128):
        manager = CacheManager(512, checked=True)
        settings = SchedulerSettings(max_running=4, max_matched=window)
        engine = Engine(manager, NamingRunner(), policy=shortest_prefill_first, settings=settings)
        engine.add(Request([2, 2], 1))
        cold = Request(LONG, 1)
        engine.add(cold)
        for i in range(40):
            for k in range(4):
                engine.add(Request([2, 2, (i >> k) % 2, k % 2], 1))
            engine.step()
        waits[window] = engine.records[cold].admitted
    assert waits[2] is not None, "two wait at most before it"
    assert waits[128] is None, "forty passes, and never its turn"


# --- ends -------------------------------------------------------------------------------------


def test_04_the_last_token_is_drawn_and_never_computed() -> None:
    engine = new_engine(8)
    request = Request([0, 1, 0, 1], 5)
    run(engine, request)
    assert len(request.output) == 5
    assert engine.totals.computed_tokens == engine.manager.cache.total_size == 8


def test_a_stop_token_ends_a_request_and_is_kept() -> None:
    expected = continuation(None, [1, 0], 20)
    stop = expected[5]
    request = Request([1, 0], 20, stop_token_ids=[stop])
    (output,) = run(new_engine(), request)
    assert output == expected[: expected.index(stop) + 1]
    assert request.state is RequestState.FINISHED


@pytest.mark.parametrize("steps", range(6))
def test_abort_at_any_step_frees_all_and_leaves_the_others_alone(steps: int) -> None:
    """Waiting, in the middle of a chunked prefill, between decode passes."""
    engine = new_engine(64, prefill_budget=16)
    victim, other = Request(LONG, 4), Request([1, 1, 0], 4)
    engine.add(victim)
    engine.add(other)
    for _ in range(steps):
        engine.step()
        engine.manager.check_integrity()
    engine.abort(victim)
    engine.manager.check_integrity()
    assert victim.state is RequestState.ABORTED
    for _ in engine.stream():
        engine.manager.check_integrity()
    assert other.output.tolist() == continuation(None, [1, 1, 0], 4)
    with pytest.raises(DoubleFree):
        engine.abort(victim)
    idle(engine)


def test_whoever_reads_the_stream_may_abort_and_add_in_between() -> None:
    engine = new_engine()
    first, second, third = (Request([0, 1, i], 3) for i in range(3))
    engine.add(first)
    engine.add(second)
    heard = []
    for token in engine.stream():
        heard.append(token.request)
        if len(heard) == 3:
            engine.abort(second)
            engine.add(third)
    assert [heard.count(r) for r in (first, second, third)] == [3, 1, 3]
    idle(engine)


def test_whoever_stops_reading_the_stream_finds_the_rest_in_the_next_one() -> None:
    """A step has drawn for the whole pass."""
    engine = new_engine()
    requests = [Request([i, 1], 3) for i in range(3)]
    for request in requests:
        engine.add(request)
    heard: list[tuple[Request, int]] = []
    for _ in range(9):
        heard.append(next(engine.stream()))
    assert list(engine.stream()) == []
    for request in requests:
        assert [token for who, token in heard if who is request] == request.output.tolist()


def test_what_was_not_read_of_a_request_that_is_aborted_meanwhile_is_not_streamed() -> None:
    engine = new_engine()
    first, second = Request([0, 1], 2), Request([1, 1], 2)
    engine.add(first)
    engine.add(second)
    assert next(engine.stream()).request is first
    engine.abort(second)
    assert [token.request for token in engine.stream()] == [first]


def test_an_exception_ends_the_request_it_is_about_and_no_other() -> None:
    engine = new_engine(256)
    bad, good = Request([0, 0, 1], 4), Request([1, 1, 0], 4)

    def fail(chunks: Sequence[Chunk]) -> None:
        if any(c.request is bad and c.start >= 4 for c in chunks):
            raise RuntimeError("no such kernel")

    engine.runner.before_pass = fail
    run(engine, bad, good)
    assert good.output.tolist() == continuation(None, [1, 1, 0], 4)
    assert len(bad.output) == 2 and bad.state is RequestState.ABORTED
    assert str(engine.records[bad].error) == "no such kernel"
    idle(engine)


def test_a_runner_that_is_interrupted_can_go_on() -> None:
    engine = new_engine()
    request = Request([0, 1], 3)
    engine.add(request)
    engine.step()

    def interrupt(chunks: Sequence[Chunk]) -> None:
        engine.runner.before_pass = lambda chunks: None
        raise KeyboardInterrupt

    engine.runner.before_pass = interrupt
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    engine.manager.check_integrity()
    assert len(list(engine.stream())) == 2
    assert request.output.tolist() == continuation(None, [0, 1], 3)


class Stopwatch:
    """A clock that is interrupted at its nth reading."""

    def __init__(self, fatal: int) -> None:
        self.readings, self.fatal = 0, fatal

    def __call__(self) -> float:
        self.readings += 1
        if self.readings == self.fatal:
            raise KeyboardInterrupt
        return float(self.readings)


@pytest.mark.parametrize("fatal", range(3, 38))
def test_ctrl_c_anywhere_in_a_step_forgets_nobody(fatal: int) -> None:
    """The clock is read at the step's start, at admission, around the model, at each token."""
    manager = CacheManager(64, checked=True)
    settings = SchedulerSettings(prefill_budget=8)
    engine = Engine(manager, NamingRunner(), settings=settings, clock=Stopwatch(fatal))
    requests = [Request([0, 1] * 10, 3), Request([1, 0], 4)]
    for request in requests:
        engine.add(request)
    with pytest.raises(KeyboardInterrupt):
        for _ in engine.stream():
            pass
        raise KeyboardInterrupt  # it had all been done before
    manager.check_integrity()
    assert set(manager.running) <= {engine.scheduler.chunked, *engine.decoding}
    list(engine.stream())
    assert {r.state for r in requests} <= {RequestState.FINISHED, RequestState.ABORTED}
    for request in requests:
        if request.state is RequestState.FINISHED:
            assert request.output.tolist() == continuation(
                None, decode(request.prompt), request.max_new_tokens
            )
    idle(engine)


def test_a_policy_that_raises_leaves_a_prompt_in_the_middle_of_its_chunks() -> None:
    moods = iter([None, RuntimeError("not today"), None, None])

    def moody(waiting: Sequence[Request], running: Collection[Request]) -> list[Request]:
        if (mood := next(moods)) is not None:
            raise mood
        return list(waiting)

    manager = CacheManager(64, checked=True)
    settings = SchedulerSettings(prefill_budget=30)
    engine = Engine(manager, NullRunner(), policy=moody, settings=settings)
    long = Request(LONG, 2)
    engine.add(long)
    engine.step()
    with pytest.raises(RuntimeError, match="not today"):
        engine.step()
    assert engine.scheduler.chunked is long and long.computed_len == 30
    assert len(list(engine.stream())) == 2


@pytest.mark.parametrize(("steps", "cached"), [(2, 0), (4, 32), (8, 32)])
def test_an_abort_leaves_the_prompt_cached_if_it_was_computed_to_the_end(
    steps: int, cached: int
) -> None:
    """In the middle of its chunks; after prefill; in decode, with a page of output computed."""
    engine = new_engine(128, 4, prefill_budget=16)
    request = Request(LONG[:34], 20)
    engine.add(request)
    for _ in range(steps):
        engine.step()
    engine.abort(request)
    assert engine.manager.cache.total_size == cached
    idle(engine)


# --- refusals ---------------------------------------------------------------------------------


def test_prompts_longer_than_context_or_pool_are_refused_with_both_numbers() -> None:
    manager = CacheManager(16, checked=True)
    engine = Engine(manager, NullRunner(), context=10)
    with pytest.raises(RequestTooLong, match=r"needs 17 slots; the pool has 16"):
        engine.add(Request([0] * 12, 6))
    with pytest.raises(RequestTooLong, match=r"needs 11 positions; the context has 10") as caught:
        engine.add(Request([0] * 10, 2))
    assert (caught.value.needed, caught.value.limit) == (11, 10)
    engine.add(Request([0] * 10, 1))
    assert len(engine.records) == 1


def test_a_request_is_added_once_and_only_while_it_waits() -> None:
    engine = new_engine()
    request = Request([0, 1], 1)
    engine.add(request)
    with pytest.raises(WrongState, match="in the queue"):
        engine.add(request)
    list(engine.stream())
    with pytest.raises(WrongState, match="finished"):
        engine.add(request)


def test_a_pool_that_somebody_else_holds_is_an_error_and_not_an_endless_loop() -> None:
    engine = new_engine(16)
    outsider = Request([0] * 12, 1)
    engine.manager.admit(outsider)
    engine.manager.allocate(outsider, 12)
    engine.add(Request([1] * 8, 1))
    with pytest.raises(PoolExhausted, match="asked for 8 slots; 4 are free and 0 evictable"):
        engine.step()
    engine.manager.release(outsider)
    assert len(list(engine.stream())) == 1


@pytest.mark.parametrize("name", ["prefill_budget", "max_running", "max_matched"])
def test_settings_below_one_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be an integer, 1 or more, got 0"):
        SchedulerSettings(**{name: 0})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0}, "temperature must be a number above 0"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p must be above 0 and at most 1, got 0"),
        ({"top_p": 1.5}, "top_p"),
        ({"seed": 0.5}, "seed must be an integer"),
    ],
)
def test_sampling_out_of_range_is_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Sampling(**wrong)
    with pytest.raises(InvalidArgument, match="sampling must be a Sampling"):
        Request([1], sampling="temperature 1")


# --- records and the clock --------------------------------------------------------------------


class Clockwork(NullRunner):
    """A cost model: prefill takes 1 s for 10 tokens, a decode pass 2 s."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        self.now += sum(c.end - c.start for c in chunks) / 10
        return super().prefill(chunks)

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        self.now += 2
        return super().decode(requests)


def test_with_a_null_runner_and_a_clock_the_engine_is_a_simulator() -> None:
    runner = Clockwork()
    settings = SchedulerSettings(prefill_budget=20)
    engine = Engine(CacheManager(256), runner, settings=settings, clock=lambda: runner.now)
    first = engine.add(Request(range(40), 3))
    runner.now += 1
    second = engine.add(Request([*range(35), 99], 1))
    list(engine.stream())
    assert (first.arrival, first.queue_time, first.time_to_first_token) == (0, 1, 5)
    assert first.time_per_output_token == pytest.approx((5.1 - 5 + 4) / 2)
    assert (second.queue_time, second.cached_tokens) == (4, 35)
    assert second.time_to_first_token == pytest.approx(4.1)
    assert second.time_per_output_token is None
    totals = engine.totals
    assert (totals.prompt_tokens, totals.cached_tokens, totals.output_tokens) == (76, 35, 4)
    assert (totals.prefilled_tokens, totals.decoded_tokens) == (41, 2)
    assert (runner.prefilled_tokens, runner.decoded_tokens) == (41, 2)
    assert totals.hit_rate == 35 / 76
    assert (totals.step_seconds, totals.tree_share) == (pytest.approx(8.1), 0)


def test_evictions_are_counted_for_the_engine_in_whose_steps_they_happen() -> None:
    manager = CacheManager(8, checked=True)
    first, second = Engine(manager, NullRunner()), Engine(manager, NullRunner())
    for engine, prompt in ((first, range(8)), (second, range(100, 108)), (first, [5])):
        engine.add(Request(prompt))
        list(engine.stream())
    manager.evict(1)
    evicted = first.totals.evicted_tokens, second.totals.evicted_tokens
    assert evicted == (8, 8) and manager.evicted_tokens == 17


def test_02_caching_saves_prefill_only() -> None:
    """The same throughput with caching on: look at the time to the first token, output length 1."""
    waits, decoded = [], []
    for cache in (False, True):
        runner = Clockwork()
        engine = Engine(
            CacheManager(512),
            runner,
            settings=SchedulerSettings(cache=cache),
            clock=lambda runner=runner: runner.now,
        )
        run(engine, Request(range(100), 1))
        record = engine.add(Request(range(100), 8))
        list(engine.stream())
        waits.append(record.time_to_first_token)
        decoded.append(engine.totals.decoded_tokens)
    assert waits == [pytest.approx(10), pytest.approx(0.1)]
    assert decoded == [7, 7]


# --- what anybody may do between and within steps ------------------------------------------------


def test_a_policy_that_raises_or_aborts_loses_nobody() -> None:
    """It is asked before anything is admitted."""
    manager = CacheManager(32, checked=True)
    first, second = Request([1, 2, 3], 2), Request([4, 5, 6], 2)

    def moody(waiting: Sequence[Request], running: Collection[Request]) -> list[Request]:
        if second.state is RequestState.WAITING:
            engine.abort(second)
        if not seen:
            seen.append(True)
            raise RuntimeError("not today")
        return list(waiting)

    seen: list[bool] = []
    engine = Engine(manager, NullRunner(), policy=moody)
    engine.add(first)
    engine.add(second)
    with pytest.raises(RuntimeError, match="not today"):
        engine.step()
    assert len([token for token in engine.stream() if token.request is first]) == 2
    assert second.state is RequestState.ABORTED and not manager.running
    manager.check_integrity()


@pytest.mark.parametrize("when", ["waiting", "decoding"])
def test_a_request_that_is_released_elsewhere_wedges_nobody(when: str) -> None:
    manager = CacheManager(32, checked=True)
    engine = Engine(manager, NullRunner())
    first, second = Request([1, 2, 3], 4), Request([4, 5, 6], 4)
    engine.add(first)
    engine.add(second)
    if when == "decoding":
        engine.step()
    manager.release(second)
    assert sum(token.request is first for token in engine.stream()) == 4 - (when == "decoding")
    assert not engine.busy and not manager.running
    manager.check_integrity()


@pytest.mark.parametrize("when", ["prefill", "decode"])
def test_ctrl_c_in_the_model_leaks_nothing(when: str) -> None:
    class Interrupted(NullRunner):
        armed = True

        def _stop(self, name: str) -> None:
            if self.armed and name == when:
                self.armed = False
                raise KeyboardInterrupt

        def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
            self._stop("prefill")
            return super().prefill(chunks)

        def decode(self, requests: Sequence[Request]) -> Sequence[int]:
            self._stop("decode")
            return super().decode(requests)

    manager = CacheManager(32, checked=True)
    engine = Engine(manager, Interrupted())
    request = Request([1, 2, 3], 3)
    engine.add(request)
    with pytest.raises(KeyboardInterrupt):
        list(engine.stream())
    rest = list(engine.stream())
    wanted = RequestState.ABORTED if when == "prefill" else RequestState.FINISHED
    assert request.state is wanted and len(rest) == (0 if when == "prefill" else 2)
    assert not manager.running
    manager.check_integrity()


def test_a_runner_that_draws_no_token_fails_for_its_request_alone() -> None:
    class Silent(NullRunner):
        def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
            return [None if c.request is bad else 0 for c in chunks]  # type: ignore[misc]  # that

    manager = CacheManager(32, checked=True)
    engine = Engine(manager, Silent())
    bad, good = Request([1, 2, 3], 2), Request([4, 5, 6], 2)
    engine.add(bad)
    engine.add(good)
    list(engine.stream())
    assert isinstance(engine.records[bad].error, InvalidTokenId)
    assert good.state is RequestState.FINISHED and bad.state is RequestState.ABORTED
    manager.check_integrity()


# --- who owns a request between two lists -----------------------------------------------------


def three(engine: Engine) -> list[Request]:
    requests = [Request([i, 1, 2], 3) for i in range(3)]
    for request in requests:
        engine.add(request)
    return requests


def nothing_is_left(engine: Engine) -> bool:
    manager = engine.manager
    manager.check_integrity()
    return not engine.busy and not manager.running and manager.available_size == 64


def test_ctrl_c_while_a_failed_pass_is_tried_one_by_one_ends_all_of_it() -> None:
    runner, calls = NamingRunner(), itertools.count()

    def fail_then_stop(chunks: Sequence[Chunk]) -> None:
        number = next(calls)
        if number == 0:
            raise ArithmeticError
        if number == 2:
            raise KeyboardInterrupt

    runner.before_pass = fail_then_stop
    engine = Engine(CacheManager(64), runner)
    requests = three(engine)
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert {request.state for request in requests} == {RequestState.ABORTED}
    assert nothing_is_left(engine)


@pytest.mark.parametrize("token", [1 << 31, -1])
def test_a_token_that_is_none_ends_the_request_that_drew_it_and_no_other(token: int) -> None:
    class Odd(NullRunner):
        def prefill(self, chunks: Sequence[Chunk]) -> list[int]:
            return [token if chunk.request is requests[0] else 7 for chunk in chunks]

    engine = Engine(CacheManager(64), Odd())
    requests = three(engine)
    drawn = [each.request for each in engine.stream()]
    assert [drawn.count(request) for request in requests] == [0, 3, 3]
    assert str(token) in str(engine.records[requests[0]].error)
    assert nothing_is_left(engine)


def test_a_policy_may_name_a_request_twice_or_one_that_does_not_wait() -> None:
    stranger = Request([9, 9])

    def twice(waiting: Sequence[Request], running: Collection[Request] = ()) -> list[Request]:
        return [*waiting, stranger, *waiting]

    engine = Engine(CacheManager(64), NullRunner(), policy=twice)
    requests = three(engine)
    assert len(list(engine.stream())) == 9
    assert {request.state for request in requests} == {RequestState.FINISHED}
    assert stranger.state is RequestState.WAITING and nothing_is_left(engine)


def test_a_runner_that_ends_a_request_and_fails_takes_nobody_along() -> None:
    class Ends(NullRunner):
        def prefill(self, chunks: Sequence[Chunk]) -> list[int]:
            if requests[0].state is RequestState.RUNNING:
                engine.manager.release(requests[0])
                raise ArithmeticError
            return super().prefill(chunks)

    engine = Engine(CacheManager(64), Ends())
    requests = three(engine)
    drawn = [each.request for each in engine.stream()]
    assert [drawn.count(request) for request in requests] == [0, 3, 3]
    assert nothing_is_left(engine)


@pytest.mark.parametrize("name", ["prefill_budget", "max_running", "max_matched"])
def test_settings_are_whole_numbers(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be an integer"):
        SchedulerSettings(**{name: 2.5})
