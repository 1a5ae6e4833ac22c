"""Replays against brute force, Belady against the exhaustive optimum, sweeps, the theorem."""

from __future__ import annotations

import dataclasses
import itertools
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab import simulate
from radixlab.errors import InvalidArgument
from radixlab.simulate import (
    EVICTIONS,
    ORDERS,
    Replay,
    batch_hit_rate,
    optimal_hit_rate,
    replay,
    sweep,
)
from radixlab.tokens import encode
from radixlab.traces import Trace, read_trace, to_trace
from radixlab.workloads import WORKLOADS, Job

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=12)


def trace_of(prompts: list[list[int]], page_size: int = 1, name: str = "made") -> Trace:
    return to_trace([Job(encode(ids), encode([0])) for ids in prompts], page_size, name)


def check(result: Replay) -> None:
    """What must hold of every run."""
    assert result.computed_tokens + result.hit_tokens == result.prompt_tokens
    assert 0 <= result.hit_blocks <= result.prompt_blocks
    if result.capacity is None:
        assert result.evicted_blocks == result.too_long == 0


# --- replays ------------------------------------------------------------------------------------
@given(prompts=PROMPTS, page_size=st.integers(1, 3))
def test_an_unlimited_cache_finds_every_page_that_was_there_before(
    prompts: list[list[int]], page_size: int
) -> None:
    seen: set[tuple[int, ...]] = set()
    hits = 0
    for ids in prompts:
        ends = range(page_size, len(ids) + 1, page_size)
        pages = [tuple(ids[:end]) for end in ends]
        hits += sum(page in seen for page in pages)
        seen.update(pages)
    for eviction in EVICTIONS:
        result = replay(trace_of(prompts, page_size), None, eviction)
        check(result)
        assert result.hit_blocks == hits
        assert result.hit_tokens == hits * page_size


def test_the_last_block_of_a_published_trace_may_be_partial(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    row = '{"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [0, 1]}\n'
    path.write_text(row * 2)
    result = replay(read_trace(path))
    check(result)
    assert (result.hit_blocks, result.hit_tokens, result.computed_tokens) == (2, 700, 700)
    assert (result.block_hit_rate, result.token_hit_rate) == (0.5, 0.5)


@given(prompts=PROMPTS, capacity=st.integers(1, 12))
def test_no_strategy_finds_more_than_the_one_that_knows_the_future(
    prompts: list[list[int]], capacity: int
) -> None:
    trace = trace_of(prompts)
    best = replay(trace, capacity, "belady")
    check(best)
    assert best.hit_blocks <= replay(trace).hit_blocks
    for eviction in EVICTIONS:
        result = replay(trace, capacity, eviction)
        check(result)
        assert result.hit_blocks <= best.hit_blocks
        assert result.too_long == sum(len(ids) > capacity for ids in prompts)


@given(prompts=PROMPTS, capacity=st.integers(5, 8))
def test_belady_finds_the_exhaustive_optimum(prompts: list[list[int]], capacity: int) -> None:
    assert replay(trace_of(prompts), capacity, "belady").hit_blocks == optimum(prompts, capacity)


def optimum(prompts: list[list[int]], capacity: int) -> int:
    """The most hits over all ways to evict any pages, whatever that does to the rest of a path.

    States are the sets that may be cached after a request: all its pages, and any of the others.
    """
    best: dict[frozenset[tuple[int, ...]], int] = {frozenset(): 0}
    for ids in prompts:
        pages = [tuple(ids[: end + 1]) for end in range(len(ids))]
        after: dict[frozenset[tuple[int, ...]], int] = {}
        for cached, hits in best.items():
            found = sum(1 for _ in itertools.takewhile(cached.__contains__, pages))
            others = cached - set(pages)
            room = min(len(others), capacity - len(pages))
            # Dropping more than is needed never helps: whoever keeps more can do all the same.
            for kept in itertools.combinations(sorted(others), room):
                state = frozenset(kept) | frozenset(pages)
                after[state] = max(after.get(state, 0), hits + found)
        best = after
    return max(best.values())


def test_a_loop_a_little_larger_than_the_cache_is_where_lru_finds_nothing() -> None:
    trace = to_trace(WORKLOADS["adversarial"](0), 16)
    rates = {e: replay(trace, 19 * 400, e).block_hit_rate for e in ("lru", "mru", "belady")}
    assert rates["lru"] == 0
    assert 0.8 < rates["mru"] <= rates["belady"] < 0.9


@pytest.mark.parametrize("name", WORKLOADS)
def test_computed_and_reused_tokens_add_up_to_the_prompts(name: str) -> None:
    trace = to_trace(WORKLOADS[name](1), 16, name)
    for eviction in EVICTIONS:
        for capacity in (1500, 6000, None):
            check(replay(trace, capacity, eviction))


def test_a_request_longer_than_the_cache_is_computed_without_it() -> None:
    result = replay(trace_of([[1, 2], [1, 2, 3], [1, 2]]), 2)
    check(result)
    assert (result.too_long, result.hit_blocks, result.computed_tokens) == (1, 2, 5)


@pytest.mark.parametrize(
    ("capacity", "eviction", "message"),
    [(15, "lru", r"capacity must be whole tokens, 16 \(a block\) or more, got 15"),
     (10000.0, "lru", "capacity must be whole tokens, .* got 10000.0"),
     (float("nan"), "lru", "capacity must be whole tokens, .* got nan"),
     (None, "clock", "eviction must be one of lru, .*, belady, got 'clock'")],
)  # fmt: skip
def test_impossible_runs_are_refused(capacity: Any, eviction: str, message: str) -> None:
    trace = trace_of([[1] * 20], 16)
    for run in (replay, lambda t, c, e: sweep([t], [c], [e])):
        with pytest.raises(InvalidArgument, match=message):
            run(trace, capacity, eviction)


@pytest.mark.skipif("RADIXLAB_TRACE" not in os.environ, reason="RADIXLAB_TRACE names no trace")
def test_the_published_conversation_trace() -> None:
    """The Mooncake conversation trace (FAST 2025), counted directly: 36.6 and 37.4 %."""
    trace = read_trace(os.environ["RADIXLAB_TRACE"])
    assert len(trace.requests) == 12_031
    result = replay(trace)
    check(result)
    assert round(100 * result.block_hit_rate, 1) == 36.6
    assert round(100 * result.token_hit_rate, 1) == 37.4
    for eviction in EVICTIONS:
        limited = replay(trace, 3_000_000, eviction)
        check(limited)
        assert limited.seconds < 60


# --- sweeps -------------------------------------------------------------------------------------
TRACES = [to_trace(WORKLOADS[n](0)[:60], 16, n) for n in ("chat", "rag")]
GRID = (TRACES, [2000, 8000, None], ["lru", "lfu", "belady"])


def test_a_sweep_is_every_run_of_its_grid_in_order(tmp_path: Path) -> None:
    expected = [replay(*run) for run in itertools.product(*GRID)]
    told: list[Replay] = []
    assert sweep(*GRID, on_result=told.append) == expected == told
    assert sweep(*GRID, csv_path=tmp_path / "runs.csv") == expected


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 7])
@pytest.mark.parametrize("torn", ["", "chat,1234abcd,lru,20"])
def test_an_interrupted_sweep_resumed_equals_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, torn: str
) -> None:
    """Interrupted after some runs, perhaps while a row was being written."""
    path, told = tmp_path / "runs.csv", list[Replay]()

    def stop(result: Replay) -> None:
        told.append(result)
        if len(told) > after:
            raise Interrupted

    with pytest.raises(Interrupted):
        sweep(*GRID, csv_path=path, on_result=stop)
    with path.open("a") as file:
        file.write(torn)
    runs: list[tuple[object, ...]] = []
    monkeypatch.setattr(simulate, "replay", lambda *run: runs.append(run) or replay(*run))
    told.clear()
    resumed = sweep(*GRID, csv_path=path, on_result=told.append)
    assert len(runs) == len(resumed) - after - 1
    assert sorted(told, key=str) == sorted(resumed, key=str)
    monkeypatch.undo()
    assert resumed == sweep(*GRID) == sweep(*GRID, csv_path=path)
    assert len(path.read_text().splitlines()) == 1 + len(resumed)


def test_one_file_keeps_the_results_of_several_grids_and_traces(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    sweep(TRACES, [2000], ["lru"], csv_path=path)
    other = to_trace(WORKLOADS["chat"](1)[:60], 16, "chat")  # the same name, another content
    assert sweep([other], [2000], ["lru"], csv_path=path) == [replay(other, 2000)]
    assert len(path.read_text().splitlines()) == 4


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.csv"
    path.write_text("name,grade\nAda,1\n")
    with pytest.raises(InvalidArgument, match="csv_path must be a new file, or one with trace,"):
        sweep(*GRID, csv_path=path)
    assert path.read_text() == "name,grade\nAda,1\n"


SHORT = (TRACES[:1], [2000, 8000], ["lru"])


def edited(tmp_path: Path, edit: Callable[[bytes], bytes]) -> Path:
    """The results of a sweep in a file that something else has worked on."""
    path = tmp_path / "runs.csv"
    sweep(*SHORT, csv_path=path)
    path.write_bytes(edit(path.read_bytes()))
    return path


@pytest.mark.parametrize(
    "line", [b"garbage", b"a,b", b"chat,1,lru,many,1,1,1,1,1,1,1,1,1.0", b'"open', b"\xff\x00"]
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_damaged_line_is_named_and_the_file_left_alone(
    tmp_path: Path, line: bytes, end: bytes
) -> None:
    path = edited(tmp_path, lambda data: data.replace(b"\r\n", b"\r\n" + line + end, 1) + b"torn")
    damaged = path.read_bytes()
    with pytest.raises(InvalidArgument, match=r"runs.csv, line 2 must be a row of trace,finger.*"):
        sweep(*SHORT, csv_path=path)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.replace(b"\r\n", b"\n"),
        lambda data: data.replace(b"\r\n", b"\r\n\r\n"),
        lambda data: data.replace(b"\r\n", b"\n") + b"chat,12",
    ],
)
def test_a_file_with_other_line_ends_or_empty_lines_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: Callable[[bytes], bytes]
) -> None:
    path = edited(tmp_path, edit)
    kept = sweep(*SHORT)
    monkeypatch.setattr(simulate, "replay", lambda *run: pytest.fail("it ran again"))
    assert sweep(*SHORT, csv_path=path) == kept
    monkeypatch.undo()
    assert len(sweep(*SHORT[:2], ["lru", "lfu"], csv_path=path)) == 4
    assert len(sweep(*SHORT[:2], ["lru", "lfu"], csv_path=path)) == 4


def test_a_header_that_was_cut_short_is_written_again(tmp_path: Path) -> None:
    for torn in ("", "tra", HEADER, f"{HEADER}\r"):
        path = tmp_path / "runs.csv"
        path.write_text(torn, newline="")
        sweep(*SHORT, csv_path=path)
        assert path.read_text().splitlines()[0] == HEADER


HEADER = ",".join(field.name for field in dataclasses.fields(Replay))


@pytest.mark.parametrize("name", ["a\u2028b", "a\nb", "a\r\nb", 'a"\n"b', "a,\x85b\x1c"])
def test_whatever_a_trace_is_called_its_sweep_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, trace = tmp_path / "runs.csv", dataclasses.replace(TRACES[0], name=name)
    first = sweep([trace], *SHORT[1:], csv_path=path)
    monkeypatch.setattr(simulate, "replay", lambda *run: pytest.fail("it ran again"))
    assert sweep([trace], *SHORT[1:], csv_path=path) == first


def test_a_sweep_in_two_processes_finds_the_same() -> None:
    assert sweep(*GRID, n_jobs=2) == sweep(*GRID)


@pytest.mark.filterwarnings("ignore")  # of Dask's own making
def test_one_line_of_configuration_hands_a_sweep_to_a_dask_cluster(
    dask_cluster: object, tmp_path: Path
) -> None:
    expected = sweep(*GRID)
    with joblib.parallel_config("dask"):
        assert sweep(*GRID, csv_path=tmp_path / "runs.csv") == expected


# --- the theorem --------------------------------------------------------------------------------
TREES = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=2, max_size=20
).flatmap(st.permutations)


@given(prompts=TREES, seed=st.integers(0, 3))
def test_depth_first_and_longest_prefix_first_find_all_that_can_be_found(
    prompts: list[list[int]], seed: int
) -> None:
    """1 - C / sum of lengths, with a cache of the longest prompt; no order exceeds it."""
    distinct = {tuple(ids[:end]) for ids in prompts for end in range(1, len(ids) + 1)}
    bound = 1 - len(distinct) / sum(map(len, prompts))
    assert optimal_hit_rate(prompts) == pytest.approx(bound)
    for eviction in EVICTIONS[:-1]:
        assert batch_hit_rate(prompts, "dfs", eviction=eviction) == pytest.approx(bound)
    assert batch_hit_rate(prompts, "lpm") == pytest.approx(bound)
    for order in ("fcfs", "random"):
        assert batch_hit_rate(prompts, order, seed=seed) <= bound + 1e-9


def random_batch(seed: int) -> list[bytes]:
    """A shuffled batch of thoughts below a few problems."""
    jobs = WORKLOADS["tree-of-thought"](seed)
    picked = simulate.random.Random(seed).sample(jobs, 40)
    return [job.prompt[: 4 * (40 + 3 * i)] for i, job in enumerate(picked)]


def test_the_other_orders_fall_short_in_the_mean() -> None:
    rates = {
        order: statistics.mean(batch_hit_rate(random_batch(s), order, seed=s) for s in range(20))
        for order in ORDERS
    }
    best = statistics.mean(optimal_hit_rate(random_batch(s)) for s in range(20))
    assert rates["dfs"] == pytest.approx(best) == rates["lpm"]
    assert rates["fcfs"] < best - 0.1 > rates["random"]


@pytest.mark.parametrize("prompts", [[], [[]], [[], []]])
def test_of_no_tokens_nothing_can_be_found(prompts: list[list[int]]) -> None:
    assert optimal_hit_rate(prompts) == 0.0
    assert [batch_hit_rate(prompts, order) for order in ORDERS] == [0.0] * len(ORDERS)


def test_with_a_smaller_cache_than_the_longest_prompt_there_is_no_batch() -> None:
    with pytest.raises(InvalidArgument, match="at least the longest prompt, 3, got 2"):
        batch_hit_rate([[1, 2, 3], [1]], capacity=2)
    with pytest.raises(InvalidArgument, match="order must be one of dfs, lpm, fcfs, random"):
        batch_hit_rate([[1, 2, 3], [1]], "lifo")
