"""The real engine on a virtual clock: what a policy and a strategy do to those who wait.

Nothing is computed: the runner draws the answers that the workload prescribes, and a `CostModel`
says how long each pass would have taken. Everything else, from the scheduler to the pool, is what
serves a model. `simulate` is one run, `sweep` a grid of them.
"""

from __future__ import annotations

import json
import math
import statistics
import time
import zlib
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import product
from numbers import Integral
from pathlib import Path
from typing import Any

from radixlab.engine import Engine, Record
from radixlab.errors import InvalidArgument, RequestTooLong
from radixlab.grid import Grid
from radixlab.manager import CacheManager
from radixlab.policies import make_policy
from radixlab.request import Request, RequestState
from radixlab.scheduler import Chunk, NullRunner, SchedulerSettings
from radixlab.strategies import make_strategy
from radixlab.workloads import Job


@dataclass(frozen=True, slots=True)
class CostModel:
    """What computing takes.

    A prefill pass takes `per_token` seconds for each token that it computes, a decode pass
    `per_step` seconds, whoever is in it. The defaults are round numbers of the size of a model of 8
    billion parameters on one data-centre GPU, and nothing more: `from_bench` takes your own. Raises
    `InvalidArgument` for a negative time.
    """

    per_token: float = 1e-4
    per_step: float = 0.02

    def __post_init__(self) -> None:
        for name in ("per_token", "per_step"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidArgument(name, getattr(self, name), "seconds, 0 or more")

    @classmethod
    def from_bench(cls, path: str | Path) -> CostModel:
        """Fitted to what `radixlab bench prefill --json` has printed into a file.

        A line through the times of its warm prefills: the slope is the time for a token, and what a
        pass would take that computes none, that for a decode step. Raises `InvalidArgument`, also
        where there is no such file.
        """
        try:
            rows = json.loads(Path(path).read_text(encoding="utf-8"))["rows"]
            computed = [row["tokens"] - row["cached"] for row in rows]
            line = statistics.linear_regression(computed, [row["warm"] for row in rows])
        except (OSError, ValueError, KeyError, TypeError, statistics.StatisticsError) as error:
            allowed = f"JSON of `radixlab bench prefill`, at least two rows ({error!r})"
            raise InvalidArgument("cost", str(path), allowed) from error
        return cls(max(0.0, line.slope), max(0.0, line.intercept))


@dataclass(frozen=True, slots=True)
class Simulation:
    """What one run has found. Sizes in tokens, times in virtual seconds; `capacity` None: no limit.

    `ttft` is the time to first token, from arrival. `fairness` is Jain's index of these times,
    (sum x)^2 / (n sum x^2): 1 if all wait equally long, 1/n if one waits for all others.
    `duration` is from the first arrival to the last token. A request that the pool or the capacity
    can never hold is refused, and counted in `requests` and `too_long` alone.
    """

    workload: str
    fingerprint: str
    policy: str
    eviction: str
    capacity: int | None
    page_size: int
    requests: int
    too_long: int
    prompt_tokens: int
    hit_tokens: int
    prefilled_tokens: int
    decoded_tokens: int
    output_tokens: int
    evicted_tokens: int
    prefill_passes: int
    decode_passes: int
    ttft_mean: float
    ttft_p50: float
    ttft_p95: float
    ttft_p99: float
    ttft_max: float
    fairness: float
    duration: float
    seconds: float = field(compare=False)

    @property
    def hit_rate(self) -> float:
        """Of all prompt tokens, the part that was found in the cache."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def computed_tokens(self) -> int:
        """Positions that a model would have computed, in prefill and decode."""
        return self.prefilled_tokens + self.decoded_tokens

    @property
    def throughput(self) -> float:
        """Requests that were served per virtual second of the `duration`."""
        return (self.requests - self.too_long) / self.duration if self.duration else 0.0


class Clock:
    """Virtual seconds: the time is what it was set to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class ScriptedRunner(NullRunner):
    """Draws the answer that each request is to get, and moves the clock on by what that costs."""

    def __init__(self, cost: CostModel, clock: Clock) -> None:
        super().__init__()
        self.cost, self.clock = cost, clock
        self.answers: dict[Request, array[int]] = {}

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        """A pass over the chunks."""
        self.clock.now += self.cost.per_token * sum(end - start for _, start, end in chunks)
        super().prefill(chunks)
        return [self.answers[chunk.request][0] for chunk in chunks]

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        """A pass over the last tokens."""
        self.clock.now += self.cost.per_step
        super().decode(requests)
        return [self.answers[request][len(request.output)] for request in requests]


class _Traffic:
    """Jobs that arrive at an engine: at their time, or some time after another's end."""

    def __init__(self, jobs: Sequence[Job], engine: Engine, runner: ScriptedRunner) -> None:
        self.jobs, self.engine, self.runner = jobs, engine, runner
        self.followers = _followers(jobs)
        self.due = [(jobs[i].arrival, i) for i in self.followers.get(None, ())]
        heapify(self.due)
        self.numbers: dict[Request, int] = {}
        self.too_long = 0

    def run(self) -> None:
        """Until everybody has arrived and been served."""
        clock, engine = self.runner.clock, self.engine
        while self.due or engine.busy:
            if not engine.busy:
                clock.now = max(clock.now, self.due[0][0])
            while self.due and self.due[0][0] <= clock.now:
                self._arrive(*heappop(self.due))
            for request, _ in engine.step() if engine.busy else ():
                if request.state is RequestState.FINISHED:
                    self._follow(self.numbers[request], clock.now)

    def _arrive(self, moment: float, number: int) -> None:
        job = self.jobs[number]
        answer = array("i", job.output or bytes(4))
        request = Request(job.prompt, len(answer), routing_key=str(job.session))
        try:
            record = self.engine.add(request)
        except RequestTooLong:
            self.too_long += 1
            self._follow(number, moment)
            return
        record.arrival = moment  # maybe in the middle of a pass
        self.runner.answers[request], self.numbers[request] = answer, number

    def _follow(self, number: int, moment: float) -> None:
        for i in self.followers.get(number, ()):
            heappush(self.due, (moment + self.jobs[i].arrival, i))


def simulate(
    jobs: Sequence[Job],
    policy: str = "fcfs",
    eviction: str = "lru",
    capacity: int | None = None,
    page_size: int = 1,
    *,
    name: str = "workload",
    cost: CostModel | None = None,
    settings: SchedulerSettings | None = None,
    seed: int = 0,
) -> Simulation:
    """Serve jobs through a pool of `capacity` tokens (None: as large as all of them together).

    `policy` is one of `radixlab.policies.POLICIES`, `eviction` of `radixlab.strategies.STRATEGIES`;
    `seed` is the random policy's. Raises `InvalidArgument` for others, for a capacity of less than
    one page, for pages larger than every job, and for jobs of which some never arrive.
    """
    started, clock = time.perf_counter(), Clock()
    cost, settings = cost or CostModel(), settings or SchedulerSettings()
    _check(policy, eviction, capacity, page_size)
    _check_jobs(jobs, page_size)
    runner = ScriptedRunner(cost, clock)
    engine = Engine(
        CacheManager(
            _num_pages(jobs, capacity, page_size), page_size, strategy=make_strategy(eviction)
        ),
        runner,
        policy=make_policy(policy, seed),
        settings=settings,
        clock=clock,
    )
    traffic = _Traffic(jobs, engine, runner)
    traffic.run()
    totals, waits = engine.totals, sorted(map(_wait, engine.records.values())) or [0.0]
    arrivals = [record.arrival for record in engine.records.values()]
    ends = [record.last_token or 0.0 for record in engine.records.values()]
    return Simulation(
        workload=name,
        fingerprint=fingerprint(jobs, cost, settings, seed),
        policy=policy,
        eviction=eviction,
        capacity=capacity,
        page_size=page_size,
        requests=len(jobs),
        too_long=traffic.too_long,
        prompt_tokens=totals.prompt_tokens,
        hit_tokens=totals.cached_tokens,
        prefilled_tokens=totals.prefilled_tokens,
        decoded_tokens=totals.decoded_tokens,
        output_tokens=totals.output_tokens,
        evicted_tokens=totals.evicted_tokens,
        prefill_passes=totals.prefill_passes,
        decode_passes=totals.decode_passes,
        ttft_mean=statistics.fmean(waits),
        ttft_p50=percentile(waits, 50),
        ttft_p95=percentile(waits, 95),
        ttft_p99=percentile(waits, 99),
        ttft_max=waits[-1],
        fairness=jain_index(waits),
        duration=max(ends, default=0.0) - min(arrivals, default=0.0),
        seconds=round(time.perf_counter() - started, 3),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the sorted values do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def jain_index(values: Iterable[float]) -> float:
    """Jain's fairness index, from 1/n to 1; 1 where all are 0 (Jain, Chiu and Hawe 1984)."""
    values = list(values)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def fingerprint(
    jobs: Sequence[Job], cost: CostModel, settings: SchedulerSettings, seed: int
) -> str:
    """Eight hexadecimal digits that tell a run's jobs, costs and settings from others."""
    code = zlib.crc32(repr((cost, settings, seed)).encode())
    for job in jobs:
        code = zlib.crc32(job.prompt + job.output, code)
        rest = job.prompt_len, job.session, job.arrival, job.after
        code = zlib.crc32(repr(rest).encode(), code)
    return f"{code:08x}"


def _wait(record: Record) -> float:
    assert record.time_to_first_token is not None
    return record.time_to_first_token


def _num_pages(jobs: Sequence[Job], capacity: int | None, page_size: int) -> int:
    """Never more than all jobs fill together: what lies beyond is never used."""
    needed = sum(-(-(job.prompt_len + job.output_len) // page_size) for job in jobs) or 1
    return needed if capacity is None else min(capacity // page_size, needed)


def _check(policy: str, eviction: str, capacity: int | None, page_size: int) -> None:
    make_policy(policy)
    make_strategy(eviction)
    if not isinstance(page_size, Integral) or page_size < 1:
        raise InvalidArgument("page_size", page_size, "whole tokens, 1 or more")
    if capacity is not None and (not isinstance(capacity, Integral) or capacity < page_size):
        raise InvalidArgument("capacity", capacity, f"whole tokens, {page_size} (a page) or more")


def _check_jobs(jobs: Sequence[Job], page_size: int) -> None:
    """A larger page than all jobs is never filled, but its pool is built slot by slot.

    Whoever comes after a job that never comes would never come, and time must be a number.
    """
    lengths = [job.prompt_len + max(job.output_len, 1) for job in jobs]
    longest = max(lengths, default=page_size)
    if page_size > longest:
        allowed = f"at most {longest}, the tokens of the longest job"
        raise InvalidArgument("page_size", page_size, allowed)
    followers, coming = _followers(jobs), set[int]()
    due = followers.get(None, [])
    while due:
        coming.add(number := due.pop())
        due += followers.get(number, ())
    for i, job in enumerate(jobs):
        if i not in coming:
            raise InvalidArgument(f"job {i}'s after", job.after, "the index of a job that arrives")
        if not 0 <= job.arrival < math.inf:
            raise InvalidArgument(f"job {i}'s arrival", job.arrival, "seconds, 0 or more")


def _followers(jobs: Sequence[Job]) -> dict[int | None, list[int]]:
    """Which jobs come after which; after None those that wait for nobody."""
    followers: dict[int | None, list[int]] = {}
    for i, job in enumerate(jobs):
        followers.setdefault(job.after, []).append(i)
    return followers


def sweep(
    workloads: Mapping[str, Sequence[Job]],
    policies: Sequence[str] = ("fcfs",),
    evictions: Sequence[str] = ("lru",),
    capacities: Sequence[int | None] = (None,),
    page_sizes: Sequence[int] = (1,),
    *,
    cost: CostModel | None = None,
    settings: SchedulerSettings | None = None,
    seed: int = 0,
    csv_path: str | Path | None = None,
    n_jobs: int | None = None,
    on_result: Callable[[Simulation], object] = lambda result: None,
) -> list[Simulation]:
    """Simulate every combination, the last varying fastest, and return the runs in that order.

    The options from `csv_path` on are those of `Grid.run`: an interrupted sweep goes on where it
    was. Raises what that raises, and `InvalidArgument`, before anything runs, for what `simulate`
    refuses.
    """
    cost, settings = cost or CostModel(), settings or SchedulerSettings()
    prints = {name: fingerprint(jobs, cost, settings, seed) for name, jobs in workloads.items()}
    calls: dict[Hashable, tuple[Callable[..., Simulation], tuple[Any, ...]]] = {}
    points = list(product(policies, evictions, capacities, page_sizes))
    for point in points:
        _check(*point)
    for jobs in workloads.values():
        _check_jobs(jobs, max(page_sizes, default=1))
    for name, point in product(workloads, points):
        run = partial(simulate, name=name, cost=cost, settings=settings, seed=seed)
        calls[name, prints[name], *point] = run, (workloads[name], *point)
    return Grid(Simulation, _point).run(
        calls, csv_path=csv_path, n_jobs=n_jobs, on_result=on_result
    )


def _point(run: Simulation) -> Hashable:
    where = run.workload, run.fingerprint
    return *where, run.policy, run.eviction, run.capacity, run.page_size
