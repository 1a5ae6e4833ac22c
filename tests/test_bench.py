"""The benchmark itself: the same workloads everywhere, and no figures of a cache that errs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.bench.__main__ import main
from tests.bench.adapters import OWN, Admitted, Core, Implementation, Lists, Manager, Trie
from tests.bench.bars import bars
from tests.bench.harness import Eviction, Timing, eviction_times, memory, survey
from tests.bench.traces import (
    TRACES,
    Trace,
    chat,
    few_shot,
    no_sharing,
    splits,
    tree_of_thought,
)

SMALL: dict[str, Callable[[], Trace]] = {
    "fewshot": lambda: few_shot(120, num_slots=20_000),
    "chat": lambda: chat(num_sessions=15, num_active=10, num_slots=20_000),
    "tree": lambda: tree_of_thought(num_questions=2, depth=3, num_slots=8_192),
    "random": lambda: no_sharing(60, num_slots=8_192),
    "splits": lambda: splits(120, num_slots=4_096),
}
"""The five workloads, short, over pools so small that much is evicted."""


@pytest.mark.parametrize(
    ("name", "checksum"),
    [
        ("fewshot", 0x3705D2E9),
        ("chat", 0x12931300),
        ("tree", 0x0BA00CA1),
        ("random", 0x36ADB6CE),
        ("splits", 0x4B5790E1),
    ],
)
def test_a_workload_is_the_same_on_every_machine(name: str, checksum: int) -> None:
    assert TRACES[name]().checksum == checksum


@pytest.mark.parametrize("make_trace", TRACES.values(), ids=TRACES)
def test_a_workload_starts_and_ends_each_request_once(make_trace: Callable[[], Trace]) -> None:
    trace = make_trace()
    seen: list[list[str]] = [[] for _ in trace.requests]
    for what, index in trace.order:
        seen[index].append(what)
    assert all(steps == ["admit", "finish"] for steps in seen)
    assert all(0 < prompt_len < len(tokens) for tokens, prompt_len in trace.requests)


def test_a_thought_starts_after_the_one_it_builds_on() -> None:
    trace = tree_of_thought(num_questions=1)
    finished: set[bytes] = set()
    for what, index in trace.order:
        tokens, prompt_len = trace.requests[index]
        if what == "finish":
            finished.add(tokens.tobytes())
        elif prompt_len > 256:
            assert tokens[:prompt_len].tobytes() in finished


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("make_trace", SMALL.values(), ids=SMALL)
def test_every_slot_is_right_and_all_find_equally_much(
    make_trace: Callable[[], Trace], page_size: int
) -> None:
    trace = make_trace()
    surveys = {make.name: survey(make, trace, page_size) for make in OWN}
    assert surveys["cache"].hits == surveys["lists"].hits == surveys["trie"].hits
    assert surveys["cache"].peak_nodes <= surveys["lists"].peak_nodes  # fewer where splits heal
    assert surveys["manager"].hits == survey(Bordered, trace, page_size).hits


class Bordered(Lists):
    """What the manager does, by textbook: the prompt's whole pages end in a border of their own."""

    cuts_at_prompt = True

    def finish(self, prepared: tuple[list[int], int, int], admitted: Admitted) -> None:
        tokens, limit, _ = prepared
        held, row, node = admitted
        prompt_len = limit + 1
        border = prompt_len - prompt_len % self.page_size
        found = border
        if held < border < len(tokens) - len(tokens) % self.page_size:
            found, _ = self.tree.insert(tokens[:border], row[:border])
        whole, end = self.tree.insert(tokens, row)
        self.tree.unlock(node)
        self.free(row[held : found if found < border else whole])
        self.free(row[end.depth :])


class Sharer(Core):
    """Wrong: pages of finished requests are handed out again while the tree still names them."""

    def finish(self, prepared: tuple[bytes, int, int], admitted: Admitted) -> None:
        super().finish(prepared, admitted)
        self.pool._top -= 1


class Leaker(Core):
    """Wrong: some pages are allocated for nobody."""

    def admit(self, prepared: tuple[bytes, int, int]) -> Admitted:
        admitted = super().admit(prepared)
        if self.pool.free_size > 19_000:
            self.pool.allocate(16)
        return admitted


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [(Sharer, "holds another prefix|overwritten|has lost"), (Leaker, "has lost")],
)
def test_an_implementation_that_errs_is_found_out(
    wrong: type[Implementation], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        survey(wrong, SMALL["chat"](), 1)


def test_check_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--requests", "20", "--traces", "fewshot", "--only", *NAMES]) == 0
    assert capsys.readouterr().out.count("every slot right, none lost, equal hits") == 2


NAMES = [make.name for make in OWN]


def test_json_has_what_it_takes_to_repeat_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bench.json"
    arguments = ["--requests", "8", "--reps", "1", "--pages", "16", "--parts", "speed"]
    assert main([*arguments, "--only", *NAMES, "--operations", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["command"].startswith("python -m tests.bench --requests 8")
    assert {"python", "radixlab", "numpy"} <= set(report["versions"])
    assert {"cpu", "cores", "system"} <= set(report["machine"])
    assert report["hits_agree"]
    rows = {(t["trace"], t["implementation"]): t for t in report["timings"]}
    assert set(rows) == {(trace, name) for trace in TRACES for name in NAMES}
    for row in rows.values():
        assert row["requests_per_s"] == pytest.approx(1e6 / (row["admit_us"] + row["finish_us"]))
        assert row["page_size"] == 16 and row["num_requests"] == 8
        assert {"insert", "allocate"} <= set(row["operations_us"])
    assert not any(bar["holds"] for bar in report["bars"]), "nothing was measured against SGLang"
    assert "requests/s" in capsys.readouterr().out


def test_an_implementation_that_is_not_here_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "cache", "vllm"]) == 2
    assert "vllm" in capsys.readouterr().out


def test_bars_take_the_worst_case() -> None:
    def timing(name: str, trace: str, us: float) -> Timing:
        return Timing(name, False, trace, 1, 1, 1, 1, "", None, us / 2, us / 2, us)

    timings = [
        *(timing(name, "chat", us) for name, us in [("cache", 1), ("sglang-rust", 20)]),
        *(timing(name, "random", us) for name, us in [("cache", 2), ("sglang-rust", 22)]),
        *(timing(name, "splits", us) for name, us in [("cache", 10), ("sglang-rust", 50)]),
    ]
    evictions = [Eviction("cache", 1_000, 1.0), Eviction("cache", 100_000, 4.0)]
    judged = {bar.promise: bar for bar in bars(timings, evictions)}
    rust = judged["cache is 10 times sglang-rust (but splits at page size 1)"]
    assert rust.measured == pytest.approx(11) and rust.where == "random, page size 1" and rust.holds
    assert judged["cache is 4 times sglang-rust, splits at page size 1"].holds
    assert not judged["cache is 15 times sglang"].holds, "it was not measured"
    scaling = next(bar for promise, bar in judged.items() if promise.startswith("cache evicts"))
    assert scaling.measured == pytest.approx(4) and not scaling.holds


@pytest.mark.parametrize("make", [Core, Manager, Lists, Trie])
def test_memory_and_eviction_are_measured_for_each(make: type[Implementation]) -> None:
    small = memory(make, SMALL["chat"](), 16)
    assert 0 < small.bytes_per_token < 1_000 and small.cached_tokens > 10_000
    assert [e.num_leaves for e in eviction_times(make, [50, 100])] == [50, 100]


def test_prefixes_that_differ_anywhere_hash_differently() -> None:
    from tests.bench.harness import prefix_hashes

    one, other = np.array([5, 6, 7, 8], np.int32), np.array([5, 9, 7, 8], np.int32)
    assert (prefix_hashes(one) == prefix_hashes(other)).tolist() == [True, False, False, False]
