"""Replaying traces: verified once, then timed against each other.

The machine's noise must hit all alike, so implementations take turns, repetition by repetition, in
one process. Every repetition makes the same calls, so the least time of each call over the
repetitions is what it takes when nobody else is at work.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns, process_time_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.bench.adapters import Admitted, Implementation
from tests.bench.traces import Tokens, Trace, TraceRequest, What

Hashes = npt.NDArray[np.uint64]
Make = type[Implementation]

NODES_EVERY = 50
"""The tree's nodes are counted after every so many steps."""
LEAF_LEN = 16
LEAF_COUNTS = (1_000, 10_000, 100_000)
EVICTIONS = 25


@dataclass(frozen=True)
class Survey:
    """What a verified replay has seen."""

    hits: tuple[int, ...]
    peak_nodes: int | None

    @property
    def hits_crc(self) -> str:
        """Equal for two implementations only if each request found equally much in both."""
        return f"{zlib.crc32(np.array(self.hits, np.int64).tobytes()):08x}"


@dataclass(frozen=True)
class Timing:
    """One implementation on one trace; times in microseconds for each request, on average.

    `cpu_us` is taken over whole repetitions: the processor's time for everything, the loop and the
    two clocks included. It tells whether the sum of fastest calls is a fair account.
    """

    implementation: str
    cuts_at_prompt: bool
    trace: str
    page_size: int
    num_requests: int
    prompt_tokens: int
    hit_tokens: int
    hits_crc: str
    peak_nodes: int | None
    admit_us: float
    finish_us: float
    cpu_us: float
    operations_us: dict[str, float] = field(default_factory=dict)

    @property
    def requests_per_s(self) -> float:
        """How many requests the tree and the pool could take through in a second."""
        return 1e6 / (self.admit_us + self.finish_us)


@dataclass(frozen=True)
class Eviction:
    """The median time of evicting one leaf among many, in microseconds."""

    implementation: str
    num_leaves: int
    evict_us: float


@dataclass(frozen=True)
class Memory:
    """What the index holds for each token that it has cached, without the pool's free list."""

    implementation: str
    page_size: int
    cached_tokens: int
    bytes_per_token: float


def prefix_hashes(tokens: Tokens) -> Hashes:
    """For each position, a hash of all tokens up to there: what its KV depends on."""
    with np.errstate(over="ignore"):
        weights = np.cumprod(np.full(len(tokens), 0x9E3779B97F4A7C15, np.uint64))
        terms: Hashes = np.cumsum((tokens.astype(np.uint64) + np.uint64(1)) * weights)
    return terms


def survey(make: Make, trace: Trace, page_size: int) -> Survey:
    """Replay a trace over a pool that holds hashes for KV, and look at every slot.

    Raises AssertionError when a matched slot holds another prefix, a slot is overwritten while its
    request runs, a page is torn, or a slot is leaked.
    """
    world = make(trace.num_slots, page_size)
    num_slots = trace.num_slots // page_size * page_size
    kv = np.zeros(world.first_slot + num_slots, np.uint64)
    running: dict[int, tuple[Admitted, Hashes]] = {}
    prepared = [world.prepare(request) for request in trace.requests]
    hits, peak = [0] * len(trace.requests), -1
    for step, (what, index) in enumerate(trace.order):
        if what is What.ADMIT:
            admitted = world.admit(prepared[index])
            hits[index], hashes = admitted[0], prefix_hashes(trace.requests[index].tokens)
            row = checked_row(world, admitted[1], len(hashes), page_size, len(kv))
            hit = admitted[0]
            right = bool((kv[row[:hit]] == hashes[:hit]).all())
            assert right, f"{make.name}, request {index}: a matched slot holds another prefix"
            kv[row[hit : len(hashes)]] = hashes[hit:]
            running[index] = admitted, hashes
        else:
            admitted, hashes = running.pop(index)
            row = np.array(admitted[1], np.int64)[: len(hashes)]
            kept = bool((kv[row] == hashes).all())
            assert kept, f"{make.name}, request {index}: a slot was overwritten while it ran"
            world.finish(prepared[index], admitted)
            if not running:
                owned = world.free_size + world.evictable_size
                assert owned == num_slots, f"{make.name} has lost {num_slots - owned} slots"
        if step % NODES_EVERY == 0:
            nodes = world.num_nodes()
            peak = peak if nodes is None else max(peak, nodes)
    assert not running
    return Survey(tuple(hits), peak if peak >= 0 else None)


def checked_row(
    world: Implementation, slots: Any, total: int, page_size: int, end: int
) -> npt.NDArray[np.int64]:
    """A request's page table as numbers: long enough, of whole pages, all in the pool."""
    row: npt.NDArray[np.int64] = np.array(slots, np.int64)
    assert len(row) == -(-total // page_size) * page_size
    assert world.first_slot <= row.min() and row.max() < end
    pages = row.reshape(-1, page_size)
    assert not (pages[:, 0] % page_size).any() and (np.diff(pages) == 1).all(), "a page is torn"
    return row


@contextmanager
def no_collector() -> Iterator[None]:
    """Without Python's garbage collector, which would add its pauses to whoever is at work."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def replay(world: Implementation, trace: Trace, prepared: Sequence[Any]) -> list[int]:
    """The time of each step in nanoseconds."""
    running: dict[int, Admitted] = {}
    admit, finish, now, times = world.admit, world.finish, perf_counter_ns, []
    for what, index in trace.order:
        request = prepared[index]
        if what is What.ADMIT:
            start = now()
            running[index] = admit(request)
            times.append(now() - start)
        else:
            admitted = running.pop(index)
            start = now()
            finish(request, admitted)
            times.append(now() - start)
    return times


def replay_operations(world: Implementation, trace: Trace, prepared: Sequence[Any]) -> Counter[str]:
    """The time of each operation in nanoseconds, measured around the calls themselves."""
    spent: Counter[str] = Counter()
    for operation, owner, method in world.operations:
        setattr(owner, method, stopwatch(operation, getattr(owner, method), spent))
    with no_collector():
        replay(world, trace, prepared)
    return spent


def stopwatch(operation: str, call: Callable[..., Any], spent: Counter[str]) -> Callable[..., Any]:
    """`call`, with its time added to what the operation has taken so far."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = perf_counter_ns()
        result = call(*args, **kwargs)
        spent[operation] += perf_counter_ns() - start
        return result

    return timed


def race(
    contestants: Sequence[Make], trace: Trace, page_size: int, reps: int, operations: bool = False
) -> list[Timing]:
    """All implementations on one trace, in turns."""
    surveys = [survey(make, trace, page_size) for make in contestants]
    least: list[Any] = [None] * len(contestants)
    cpu = [sys.maxsize] * len(contestants)
    spent: list[list[Counter[str]]] = [[] for _ in contestants]
    for _ in range(reps):
        for i, make in enumerate(contestants):
            world = make(trace.num_slots, page_size)
            prepared = [world.prepare(request) for request in trace.requests]
            with no_collector():
                start = process_time_ns()
                times = np.array(replay(world, trace, prepared))
                cpu[i] = min(cpu[i], process_time_ns() - start)
            least[i] = times if least[i] is None else np.minimum(least[i], times)
            if operations:
                world = make(trace.num_slots, page_size)
                spent[i].append(replay_operations(world, trace, prepared))
    is_admission = np.array([event.what is What.ADMIT for event in trace.order])
    scale = 1e3 * len(trace.requests)
    return [
        Timing(
            implementation=make.name,
            cuts_at_prompt=make.cuts_at_prompt,
            trace=trace.name,
            page_size=page_size,
            num_requests=len(trace.requests),
            prompt_tokens=trace.prompt_tokens,
            hit_tokens=sum(surveys[i].hits),
            hits_crc=surveys[i].hits_crc,
            peak_nodes=surveys[i].peak_nodes,
            admit_us=float(least[i][is_admission].sum()) / scale,
            finish_us=float(least[i][~is_admission].sum()) / scale,
            cpu_us=cpu[i] / scale,
            operations_us={
                operation: min(run[operation] for run in spent[i]) / scale
                for operation in (spent[i][0] if operations else ())
            },
        )
        for i, make in enumerate(contestants)
    ]


def eviction_times(make: Make, leaf_counts: Sequence[int] = LEAF_COUNTS) -> list[Eviction]:
    """What evicting one leaf of 16 tokens costs, among more and more of them (page size 1)."""
    worlds = [full_of_leaves(make, count) for count in leaf_counts]
    times: list[list[int]] = [[] for _ in worlds]
    with no_collector():
        for _ in range(EVICTIONS):
            for i, world in enumerate(worlds):
                start = perf_counter_ns()
                world.evict(LEAF_LEN)
                times[i].append(perf_counter_ns() - start)
    return [
        Eviction(make.name, count, float(np.median(taken)) / 1e3)
        for count, taken in zip(leaf_counts, times, strict=True)
    ]


def full_of_leaves(make: Make, count: int) -> Implementation:
    """A cache whose root has `count` leaves and nothing else."""
    world = make(count * LEAF_LEN, 1)
    for first in range(count):
        tokens = np.full(LEAF_LEN, first, np.int32)
        prepared = world.prepare(TraceRequest(tokens, LEAF_LEN))
        world.finish(prepared, world.admit(prepared))
    assert world.evictable_size == count * LEAF_LEN
    return world


def memory(make: Make, trace: Trace, page_size: int) -> Memory:
    """Bytes that Python holds for the index once a trace is over, for each token in it.

    The requests themselves are gone by then; what remains of their ids is what the index kept.
    """
    world = make(trace.num_slots, page_size)
    running: dict[int, tuple[Any, Admitted]] = {}
    gc.collect()
    tracemalloc.start()
    for what, index in trace.order:
        if what is What.ADMIT:
            prepared = world.prepare(trace.requests[index])
            running[index] = prepared, world.admit(prepared)
        else:
            world.finish(*running.pop(index))
    del prepared
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    cached = world.evictable_size
    return Memory(make.name, page_size, cached, held / cached)


def use_one_thread() -> None:
    """Let torch, where it is loaded, work on one core as everybody else does."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
