"""The engine on a virtual clock: sums that hold, times worked out by hand, grids that resume."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import joblib
import pytest

from radixlab import virtual
from radixlab.errors import EmptyPrompt, InvalidArgument
from radixlab.policies import POLICIES
from radixlab.scheduler import SchedulerSettings
from radixlab.simulate import optimal_hit_rate
from radixlab.strategies import STRATEGIES
from radixlab.tokens import encode
from radixlab.virtual import CostModel, Simulation, jain_index, percentile, simulate, sweep
from radixlab.workloads import WORKLOADS, Job, batch, closed_loop, no_sharing, poisson

ONE_A_SECOND = CostModel(per_token=1.0, per_step=10.0)


def job(prompt: Sequence[int], new: int = 1, **options: float) -> Job:
    return Job(encode(list(prompt)), encode(list(range(50, 50 + new))), **options)  # type: ignore[arg-type]  # by name


def check(run: Simulation, jobs: Sequence[Job]) -> None:
    """What must hold of every run."""
    assert run.hit_tokens + run.prefilled_tokens == run.prompt_tokens
    assert run.requests == len(jobs)
    if not run.too_long:
        assert run.prompt_tokens == sum(each.prompt_len for each in jobs)
        assert run.output_tokens == sum(each.output_len for each in jobs)
    assert run.decoded_tokens == run.output_tokens - (run.requests - run.too_long)
    assert run.computed_tokens == run.prefilled_tokens + run.decoded_tokens
    assert 0 <= run.hit_rate <= 1
    assert 0 <= run.ttft_p50 <= run.ttft_p95 <= run.ttft_p99 <= run.ttft_max
    assert 1 / max(1, len(jobs)) <= run.fairness <= 1 + 1e-9


# --- sums ---------------------------------------------------------------------------------------
SMALL = {name: make(0)[:12] for name, make in WORKLOADS.items()}
ARRIVALS = (batch, lambda jobs: poisson(jobs, 20.0), lambda jobs: closed_loop(jobs, 4))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("eviction", STRATEGIES)
def test_computed_and_reused_tokens_are_the_prompts_on_every_run(
    policy: str, eviction: str
) -> None:
    """Workloads and arrivals take turns, so that each meets each policy and each strategy."""
    turn = list(POLICIES).index(policy) + 3 * list(STRATEGIES).index(eviction)
    for step in range(2):
        name = list(SMALL)[(turn + step) % len(SMALL)]
        timed = ARRIVALS[(turn + step) % len(ARRIVALS)](SMALL[name])
        run = simulate(timed, policy, eviction, 2000, 16, name=name)
        check(run, timed)
        assert run == simulate(timed, policy, eviction, 2000, 16, name=name), "not deterministic"


@pytest.mark.parametrize("name", ["few-shot", "tree-of-thought", "adversarial"])
def test_with_room_for_all_and_one_at_a_time_every_policy_finds_what_can_be_found(
    name: str,
) -> None:
    """1 - C / sum of lengths, but for the last token of each prompt that was there before.

    Prompts that are continued by nobody's answer: what decode has cached finds no match.
    """
    jobs = [replace(each, output=encode([40_000 + i])) for i, each in enumerate(SMALL[name])]
    best = optimal_hit_rate([each.prompt for each in jobs])
    slack = len(jobs) / sum(each.prompt_len for each in jobs)
    for policy in POLICIES:
        run = simulate(jobs, policy, settings=SchedulerSettings(max_running=1))
        check(run, jobs)
        assert best - slack <= run.hit_rate <= best


def test_no_jobs_take_no_time() -> None:
    run = simulate([])
    assert (run.requests, run.hit_rate, run.duration, run.fairness) == (0, 0.0, 0.0, 1.0)
    assert run.throughput == 0.0


# --- times --------------------------------------------------------------------------------------
def test_times_by_hand() -> None:
    """A: 4 tokens, 3 drawn. B shares 3 of A's and comes a second later: it joins before A goes on.

    t = 4 A's first token, t = 6 B's (2 tokens), 16 and 26 two decode passes.
    """
    jobs = [job([1, 2, 3, 4], 3), job([1, 2, 3, 8, 9], 2, arrival=1.0)]
    run = simulate(jobs, cost=ONE_A_SECOND)
    check(run, jobs)
    assert (run.hit_tokens, run.prefilled_tokens, run.decoded_tokens) == (3, 6, 3)
    assert (run.prefill_passes, run.decode_passes, run.duration) == (2, 2, 26.0)
    assert (run.ttft_p50, run.ttft_max, run.ttft_mean) == (4.0, 5.0, 4.5)
    assert run.throughput == pytest.approx(2 / 26)


def test_whoever_arrives_while_nothing_runs_finds_the_clock_moved_on() -> None:
    run = simulate([job([1], arrival=100.0), job([2], arrival=200.0)], cost=ONE_A_SECOND)
    assert (run.ttft_max, run.duration) == (1.0, 101.0)


def test_in_a_closed_loop_a_client_thinks_after_its_answer() -> None:
    jobs = closed_loop([job([1, 2], 2), job([3], 1), job([4], 1)], clients=1, think_time=5.0)
    run = simulate(jobs, cost=ONE_A_SECOND)
    assert run.duration == 2 + 10 + 5 + 1 + 5 + 1
    assert run.ttft_max == 2.0


def test_a_second_turn_finds_the_first_answer_as_the_workload_has_it() -> None:
    first = job([1, 2], 4)
    second = Job(first.prompt + first.output + encode([7]), encode([8]), after=0)
    run = simulate([first, second])
    assert run.hit_tokens == 2 + 3, "the last token drawn was never computed"


def test_a_request_that_never_fits_is_refused_and_whoever_waits_for_it_comes_all_the_same() -> None:
    jobs = [job(range(30)), job([1, 2], after=0)]
    run = simulate(jobs, capacity=16, page_size=4)
    check(run, jobs)
    assert (run.too_long, run.prompt_tokens, run.output_tokens) == (1, 2, 1)


def test_a_capacity_beyond_all_that_is_ever_needed_costs_nothing() -> None:
    """It was built slot by slot: 10**300 tokens never came to an end."""
    jobs = [job(range(30)), job(range(20), 7), job([1, 2], after=0)]
    beyond = simulate(jobs, capacity=10**300, page_size=4)
    assert beyond.capacity == 10**300
    assert replace(beyond, capacity=None, seconds=0) == replace(
        simulate(jobs, page_size=4), seconds=0
    )


@pytest.mark.parametrize("arrival", [0.0, 1000.0])
def test_who_is_refused_takes_no_time(arrival: float) -> None:
    """Neither the first arrival nor the last token is his."""
    served, refused = job(range(10), arrival=1000.0 - arrival), job(range(500), arrival=arrival)
    run = simulate([served, refused], capacity=64, cost=ONE_A_SECOND)
    assert (run.too_long, run.duration, run.throughput) == (1, 10.0, 0.1)
    assert simulate([refused], capacity=64).duration == 0.0


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([job([1], after=0)], "job 0's after must be the index of a job that arrives, got 0"),
        ([job([1]), job([2], after=2), job([3], after=1)], "job 1's after must be the index"),
        ([job([1], after=-1)], "job 0's after"),
        ([job([1]), job([2], after=7)], "job 1's after .* got 7"),
        ([job([1], arrival=float("nan"))], "job 0's arrival must be seconds, 0 or more, got nan"),
        ([job([1]), job([2], after=0, arrival=float("inf"))], "job 1's arrival"),
        ([job([1], arrival=-1.0)], "job 0's arrival"),
    ],
)
def test_jobs_that_never_arrive_are_refused_before_anything_runs(
    jobs: list[Job], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        simulate(jobs)
    with pytest.raises(InvalidArgument, match=message):
        sweep({"fine": [job([1])], "not": jobs}, on_result=lambda run: pytest.fail("it ran"))


def test_a_page_may_be_as_large_as_the_longest_job_and_a_larger_one_is_refused() -> None:
    """Its pool was built slot by slot: 10**11 tokens ate all memory."""
    jobs = [job([1]), job(range(20), 5)]
    assert simulate(jobs, page_size=25).requests == 2
    message = "page_size must be at most 25, the tokens of the longest job, got {}"
    for size in (26, 10**11):
        with pytest.raises(InvalidArgument, match=message.format(size)):
            simulate(jobs, page_size=size)
        with pytest.raises(InvalidArgument, match=message.format(size)):
            sweep({"w": jobs}, page_sizes=[1, size], on_result=lambda run: pytest.fail("it ran"))
    assert simulate([], page_size=16).requests == 0


def test_percentiles_are_the_nearest_rank() -> None:
    values = list(range(1, 101))
    assert [percentile(values, p) for p in (0, 1, 50, 95, 99, 100)] == [1, 1, 50, 95, 99, 100]
    assert percentile([3.0], 50) == 3.0


def test_jain_s_index_by_hand() -> None:
    assert jain_index([2, 2, 2]) == 1.0
    assert jain_index([1, 0, 0, 0]) == 0.25
    assert jain_index([1, 3]) == pytest.approx(16 / 20)
    assert jain_index([0, 0]) == 1.0


def test_a_cost_model_from_the_benchmark_is_a_line_through_its_warm_prefills(
    tmp_path: Path,
) -> None:
    path = tmp_path / "prefill.json"
    rows = [
        {"tokens": t, "cached": c, "warm": 0.5 + 0.01 * (t - c)} for t, c in ((100, 0), (100, 90))
    ]
    path.write_text(json.dumps({"rows": rows}))
    cost = CostModel.from_bench(path)
    assert (cost.per_token, cost.per_step) == (pytest.approx(0.01), pytest.approx(0.5))
    for text in ("[]", "no json", '{"rows": [{"tokens": 1}]}', json.dumps({"rows": rows[:1]})):
        path.write_text(text)
        with pytest.raises(InvalidArgument, match="cost must be JSON of `radixlab bench prefill`"):
            CostModel.from_bench(path)
    for missing in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(InvalidArgument, match="cost must be JSON of `radixlab bench prefill`"):
            CostModel.from_bench(missing)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "lifo"}, "policy must be one of fcfs"),
        ({"eviction": "belady"}, "eviction must be one of lru"),
        (
            {"capacity": 15, "page_size": 16},
            r"capacity must be whole tokens, 16 \(a page\) or more",
        ),
        ({"capacity": 100.0}, r"capacity must be whole tokens, 1 \(a page\) or more, got 100.0"),
        ({"capacity": float("nan")}, "capacity must be whole tokens, .* got nan"),
        ({"page_size": 0}, "page_size must be whole tokens, 1 or more"),
        ({"page_size": 1.0}, "page_size must be whole tokens, 1 or more, got 1.0"),
    ],
)
def test_impossible_runs_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        simulate([job([1])], **options)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidArgument, match="per_token must be seconds, 0 or more"):
        CostModel(per_token=-1.0)


# --- sweeps -------------------------------------------------------------------------------------
GRID = (
    {name: SMALL[name] for name in ("chat", "rag")},
    ["fcfs", "lpm", "random"],
    ["lru", "lfu"],
    [1500, None],
    [16],
)


def test_a_sweep_is_every_run_of_its_grid_in_order(tmp_path: Path) -> None:
    workloads, *axes = GRID
    expected = [
        simulate(jobs, *point, name=name, seed=3)
        for name, jobs in workloads.items()
        for point in itertools.product(*axes)
    ]
    told: list[Simulation] = []
    assert sweep(*GRID, seed=3, on_result=told.append) == expected == told
    assert sweep(*GRID, seed=3, csv_path=tmp_path / "runs.csv") == expected


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("after", [0, 20])
@pytest.mark.parametrize("torn", ["", "chat,1234abcd,lpm,lru,15"])
def test_an_interrupted_sweep_resumed_equals_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, torn: str
) -> None:
    path, told = tmp_path / "runs.csv", list[Simulation]()

    def stop(run: Simulation) -> None:
        told.append(run)
        if len(told) > after:
            raise Interrupted

    with pytest.raises(Interrupted):
        sweep(*GRID, csv_path=path, on_result=stop)
    with path.open("a") as file:
        file.write(torn)
    runs = 0

    def counting(*arguments: object, **options: object) -> Simulation:
        nonlocal runs
        runs += 1
        return simulate(*arguments, **options)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(virtual, "simulate", counting)
    resumed = sweep(*GRID, csv_path=path)
    assert runs == len(resumed) - after - 1
    monkeypatch.undo()
    assert resumed == sweep(*GRID)
    assert len(path.read_text().splitlines()) == 1 + len(resumed)


def test_other_costs_settings_seeds_and_arrivals_are_other_runs(tmp_path: Path) -> None:
    path, jobs = tmp_path / "runs.csv", SMALL["rag"]
    sweep({"rag": jobs}, csv_path=path)
    sweep({"rag": jobs}, csv_path=path, cost=CostModel(1.0, 1.0))
    sweep({"rag": jobs}, csv_path=path, settings=SchedulerSettings(max_running=2))
    sweep({"rag": jobs}, csv_path=path, seed=1)
    sweep({"rag": poisson(jobs, 1.0)}, csv_path=path)
    sweep({"rag": jobs}, csv_path=path)
    assert len(path.read_text().splitlines()) == 6


def test_a_prompt_is_not_taken_for_another_that_ends_elsewhere(tmp_path: Path) -> None:
    """Prompts and answers were one text: a resumed sweep took another workload's rows."""
    path, sizes = tmp_path / "runs.csv", ((600, 60), (560, 100))
    runs = [
        sweep({"w": no_sharing(0, requests=5, prompt=p, answer=a)}, csv_path=path)[0]
        for p, a in sizes
    ]
    assert [run.prompt_tokens for run in runs] == [3000, 2800]
    assert runs[0].fingerprint != runs[1].fingerprint


def test_a_sweep_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "replays.csv"
    path.write_text("trace,fingerprint\r\n")
    with pytest.raises(InvalidArgument, match="csv_path must be a new file, or one with workload,"):
        sweep(*GRID, csv_path=path)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_sweep_says_why_a_run_was_refused_in_whatever_process_that_was(n_jobs: int) -> None:
    with pytest.raises(EmptyPrompt, match="the prompt has no tokens; at least 1 is needed"):
        sweep({"w": [Job(b"", b"")]}, n_jobs=n_jobs)


def test_a_sweep_in_two_processes_finds_the_same() -> None:
    workloads, *axes = GRID
    few = ({"chat": workloads["chat"]}, *axes)
    assert sweep(*few, n_jobs=2) == sweep(*few)


@pytest.mark.filterwarnings("ignore")  # of Dask's own making
def test_one_line_of_configuration_hands_a_sweep_to_a_dask_cluster(dask_cluster: object) -> None:
    few = ({"chat": SMALL["chat"]}, ["fcfs", "lpm"])
    expected = sweep(*few)
    with joblib.parallel_config("dask"):
        assert sweep(*few) == expected


# --- what went wrong in real systems --------------------------------------------------------------
def test_02_caching_shortens_the_time_to_the_first_token_and_not_decode() -> None:
    """Caching on, same throughput: with long answers nearly all time is decode
    (NVIDIA/TensorRT-LLM#1043)."""
    gain: dict[int, float] = {}
    for answer in (1, 200):
        jobs = closed_loop(WORKLOADS["few-shot"](0)[:20], clients=1)
        jobs = [replace(each, output=encode([5] * answer)) for each in jobs]
        runs = [simulate(jobs, settings=SchedulerSettings(cache=cache)) for cache in (True, False)]
        gain[answer] = runs[1].duration / runs[0].duration
        assert runs[0].ttft_p50 < runs[1].ttft_p50 / 5, "the first token comes sooner either way"
    assert gain[1] > 3
    assert gain[200] < 1.05


def test_11_the_in_batch_check_computes_a_common_prefix_once() -> None:
    """Insertion comes after the pass, so 20 requests at once each compute the prefix
    (sgl-project/sglang#2442)."""
    jobs = batch(WORKLOADS["few-shot"](0)[:20])
    runs = [
        simulate(
            jobs,
            policy,
            settings=SchedulerSettings(prefill_budget=1 << 20, in_batch_check=check),
        )
        for policy in ("fcfs", "lpm")
        for check in (None, -1)
    ]
    assert [run.hit_rate > 0.7 for run in runs] == [True, False, True, False]
    assert [run.hit_tokens for run in runs[1::2]] == [0, 0]


def starving(number: int = 1000) -> list[Job]:
    """One cold request among many of one warm prefix, who come as fast as they can be served."""
    source = random.Random(0)
    warm = source.choices(range(1000), k=400)
    prompts = [[*warm, *source.choices(range(1000), k=20)] for _ in range(number)]
    prompts[5] = source.choices(range(1000), k=420)
    jobs = [job(prompt, 1, arrival=0.002 * i) for i, prompt in enumerate(prompts)]
    return [replace(each, arrival=0.0) if i < 20 else each for i, each in enumerate(jobs)]


def test_19_under_lpm_a_cold_request_starves_and_hrrn_repairs_it() -> None:
    """No age in the key (sgl-project/sglang#31954)."""
    settings = SchedulerSettings(max_running=1)
    runs = {p: simulate(starving(), p, settings=settings) for p in ("lpm", "hrrn")}
    assert runs["lpm"].ttft_max > 1.9, "it waits until nobody else does"
    assert runs["hrrn"].ttft_max < runs["lpm"].ttft_max / 2
    assert runs["hrrn"].fairness > runs["lpm"].fairness
    assert runs["hrrn"].hit_rate == pytest.approx(runs["lpm"].hit_rate, abs=0.01)


def test_21_the_scheduler_groups_what_waits_and_cannot_group_what_has_not_arrived() -> None:
    """ "Must I group my requests by prefix?" (sgl-project/sglang#25)"""
    settings = SchedulerSettings(max_running=1, max_matched=1000)
    grouped = sorted(WORKLOADS["few-shot"](1, requests=60, tasks=12), key=lambda j: j.prompt)
    mixed = random.Random(1).sample(grouped, len(grouped))

    def rate(jobs: list[Job], policy: str) -> float:
        return simulate(jobs, policy, capacity=2000, settings=settings).hit_rate

    assert rate(batch(mixed), "lpm") == pytest.approx(rate(batch(grouped), "lpm"), abs=0.01)
    assert rate(batch(mixed), "fcfs") < rate(batch(mixed), "lpm") - 0.3, "all are there: it can"
    slow = [replace(each, arrival=10.0 * i) for i, each in enumerate(mixed)]
    assert rate(slow, "lpm") == rate(slow, "fcfs") < rate(batch(mixed), "lpm") - 0.3
