"""The soak test (`tests/soak.py`) does what it says, and notices what it is there to notice."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from radixlab.engine import Engine, Record
from radixlab.gpt2 import load_gpt2
from radixlab.manager import CacheManager
from radixlab.pool import PageAllocator
from radixlab.request import Request
from radixlab.serving import few_threads
from tests import soak, soak_round

EVENTS = (
    "aborted between chunks",
    "aborted in decode",
    "aborted waiting",
    "evicted tokens",
    "failed in decode",
    "failed in prefill",
    "finished",
    "prompts cut into chunks",
    "refused as too long",
)


def play(number: int, steps: int = 300) -> Counter[str]:
    """A round of so many steps after the warm-up: the same each time."""
    counts: Counter[str] = Counter()
    plan = soak_round.make_plan(number)
    model = load_gpt2("tiny", device="cpu") if plan.gpt2 else None
    game = soak_round.Round(plan, counts, model)
    game.run(lambda: game.steps < soak_round.WARM_STEPS + steps)
    assert counts["added"] == sum(soak.sum_of(counts, how) for how in soak.ENDS)
    return counts


def test_each_kind_of_event_happens() -> None:
    counts = sum((play(number, 500) for number in (1, 5, 6, 7)), Counter[str]())
    assert not [event for event in EVENTS if counts[event] < 3]
    assert counts["integrity checks"] > counts["steps"] / soak_round.CHECK_EVERY
    assert 0 < counts["cached tokens"] < counts["prompt tokens"]


def test_it_runs_with_a_model_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_round, "WARM_STEPS", 20)
    monkeypatch.setattr(soak_round, "FAULT_RATE", 0.1)
    with few_threads(load_gpt2("tiny", device="cpu")):
        counts = play(0, 120)
    assert counts["finished"] > 10 and counts["faults raised"] and counts["cached tokens"]


def test_the_plans_take_everything_in_turn() -> None:
    plans = [soak_round.make_plan(number) for number in range(90)]
    seen = {(p.policy, p.strategy) for p in plans} | {(p.page_size, p.workload) for p in plans}
    assert len(seen) > 60 + 20 and sum(plan.gpt2 for plan in plans) == 10
    assert plans == [soak_round.make_plan(number) for number in range(90)]
    assert plans != [soak_round.make_plan(number, seed=1) for number in range(90)]


def drop_a_page(free: Callable[[PageAllocator, array[int]], None]) -> Callable[..., None]:
    return lambda pool, slots: free(pool, slots[pool.page_size :])


def test_a_page_that_does_not_come_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageAllocator, "free", drop_a_page(PageAllocator.free))
    with pytest.raises(AssertionError, match="slots are owned"):
        play(1)


def test_requests_that_are_kept_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, add = [], Engine.add

    def keep(engine: Engine, request: Request) -> Record:
        kept.append(request)
        return add(engine, request)

    monkeypatch.setattr(Engine, "add", keep)
    with pytest.raises(AssertionError, match="has grown by"):
        play(6)


def test_the_kv_of_another_namespace_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    match = CacheManager.match

    def confuse(manager: CacheManager, request: Request) -> object:
        request.namespace = None
        return match(manager, request)

    monkeypatch.setattr(CacheManager, "match", confuse)
    with pytest.raises(AssertionError, match="reads another prefix's KV"):
        play(1)


def test_the_report_says_what_ran_and_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "soak.json"
    command = ["--minutes", "0.01", "--first", "1", "--json", str(path)]
    assert soak.main(command) == 0
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["ok"] and result["rounds"] >= 1 and result["counts"]["finished"]
    assert str(path) in result["command"] and result["versions"]["python"] and result["date"]
    assert result["resident_mib"]["at_rest"] and "min  " in capsys.readouterr().out
    monkeypatch.setattr(PageAllocator, "free", drop_a_page(PageAllocator.free))
    assert soak.main(command) == 1
    assert "slots are owned" in json.loads(path.read_text(encoding="utf-8"))["failures"][0]


def test_a_process_that_grows_from_cycle_to_cycle_is_noticed() -> None:
    run = soak.Soak(minutes=0)
    cycle = soak_round.CYCLE
    for growth, ok in ((0, True), (soak.RSS_GROWTH + 1, False)):
        run.rest = [2**28] * 2 * cycle + [2**28 + growth] * cycle
        assert run.report()["ok"] is ok
