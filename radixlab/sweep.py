"""The command `radixlab sweep`: what its options mean, and results as tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from radixlab import policies, simulate, strategies, virtual
from radixlab.errors import InvalidArgument
from radixlab.scheduler import SchedulerSettings
from radixlab.simulate import Replay
from radixlab.traces import Trace
from radixlab.virtual import CostModel, Simulation
from radixlab.viz.palette import GREY
from radixlab.viz.style import style
from radixlab.workloads import WORKLOADS, Job, batch, closed_loop, poisson

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNLIMITED = "unlimited"
UNITS = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def _without_priority(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith("priority")]


# What can be named. A job has no priority: to go by it is fcfs, lof or lru under another name.
POLICIES = _without_priority(policies.POLICIES)
EVICTIONS = _without_priority(strategies.STRATEGIES)
REPLAYED = _without_priority(simulate.EVICTIONS)

Row = TypeVar("Row", Replay, Simulation)


class Plan(NamedTuple, Generic[Row]):
    """A sweep whose options are all understood: how many runs it has, and what runs them.

    `run` takes the options of `Grid.run`.
    """

    total: int
    run: Callable[..., list[Row]]


def plan_replays(trace: Trace, capacity: str, eviction: str) -> Plan[Replay]:
    """A trace through the cache alone; raises `InvalidArgument` for an option it can't read."""
    sizes = parse_capacities(capacity)
    names = parse_names("eviction", eviction, REPLAYED)
    return Plan(len(sizes) * len(names), partial(simulate.sweep, [trace], sizes, names))


def plan_simulations(
    workload: str,
    policy: str,
    eviction: str,
    capacity: str,
    page_size: str,
    *,
    arrivals: str = "batch",
    cost: str = "1e-4,0.02",
    max_running: int = 256,
    seed: int = 0,
) -> Plan[Simulation]:
    """Workloads through the engine; raises `InvalidArgument` for an option it can't read."""
    arrive = parse_arrivals(arrivals, seed)
    names = parse_names("workload", workload, WORKLOADS)
    axes = (
        {name: arrive(WORKLOADS[name](seed)) for name in names},
        parse_names("policy", policy, POLICIES),
        parse_names("eviction", eviction, EVICTIONS),
        parse_capacities(capacity),
        parse_pages(page_size),
    )
    settings = SchedulerSettings(max_running=max_running)
    run = partial(virtual.sweep, *axes, cost=parse_cost(cost), settings=settings, seed=seed)
    return Plan(math.prod(map(len, axes)), run)


def parse_capacities(text: str) -> list[int | None]:
    """Capacities in tokens from "500k,1M,2.5M,unlimited", each once, the smallest first.

    None stands for unlimited. Raises `InvalidArgument` for a part that is no such size.
    """
    sizes = {_size(part.strip()) for part in text.split(",")}
    return sorted(sizes, key=lambda size: float("inf") if size is None else size)


def _size(text: str) -> int | None:
    if text == UNLIMITED:
        return None
    unit = UNITS.get(text[-1:], 1)
    try:
        size = round(float(text if unit == 1 else text[:-1]) * unit)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise InvalidArgument("capacity", text, f'tokens such as 4096, 500k, 2.5M or "{UNLIMITED}"')
    return size


def size_name(capacity: int | None) -> str:
    """1000000 -> "1M"; None -> "unlimited"."""
    if capacity is None:
        return UNLIMITED
    for name, unit in reversed(UNITS.items()):
        if capacity >= unit:
            return f"{capacity / unit:g}{name}"
    return str(capacity)


def parse_names(option: str, text: str, known: Iterable[str]) -> list[str]:
    """The names in "lru, lfu", each once; raises `InvalidArgument` for one that is not `known`."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in known:
            raise InvalidArgument(option, name, f"one of {', '.join(known)}")
    return names


def parse_pages(text: str) -> list[int]:
    """Page sizes in tokens from "1,16", each once; raises `InvalidArgument` for no number."""
    try:
        return list(dict.fromkeys(map(int, text.split(","))))
    except ValueError:
        raise InvalidArgument("page_size", text, 'tokens such as "1,16"') from None


def parse_arrivals(text: str, seed: int = 0) -> Callable[[Sequence[Job]], list[Job]]:
    """When jobs arrive: "batch", "poisson:RATE" (per second), "closed:CLIENTS[:THINK SECONDS]".

    `seed` is of the random gaps. Raises `InvalidArgument` for anything else.
    """
    kind, *numbers = text.split(":")
    try:
        if kind == "batch" and not numbers:
            return batch
        if kind == "poisson":
            (rate,) = map(float, numbers)
            return partial(poisson, rate=rate, seed=seed)
        if kind == "closed":
            clients, think = numbers if len(numbers) != 1 else (*numbers, "0")
            return partial(closed_loop, clients=int(clients), think_time=float(think))
    except ValueError:
        pass
    raise InvalidArgument("arrivals", text, '"batch", "poisson:RATE" or "closed:CLIENTS[:SECONDS]"')


def parse_cost(text: str) -> CostModel:
    """Seconds per computed token and per decode step, as "1e-4,0.02", or a file of `bench prefill`.

    Raises `InvalidArgument`.
    """
    try:
        seconds = [float(part) for part in text.split(",")]
    except ValueError:
        return CostModel.from_bench(text)
    if len(seconds) != 2:
        raise InvalidArgument("cost", text, "two numbers of seconds, or a file")
    return CostModel(*seconds)


def rows(results: Sequence[Replay]) -> tuple[list[str], list[list[str]]]:
    """A table, as its header and its rows: capacities down, strategies across.

    The cells are hit rates in percent of all blocks / of all prompt tokens.
    """
    strategies = list(dict.fromkeys(result.eviction for result in results))
    found = {(result.capacity, result.eviction): result for result in results}
    table = []
    for capacity in dict.fromkeys(result.capacity for result in results):
        cells = [found.get((capacity, name)) for name in strategies]
        rates = [
            "" if r is None else f"{100 * r.block_hit_rate:.1f} / {100 * r.token_hit_rate:.1f}"
            for r in cells
        ]
        table.append([size_name(capacity), *rates])
    return ["tokens", *strategies], table


def text_curve(results: Sequence[Replay], width: int = 60) -> str:
    """The hit rates of all blocks as letters on a line for each capacity; + where they coincide."""
    strategies = list(dict.fromkeys(result.eviction for result in results))
    letters = dict(zip(strategies, "abcdefghijklmnopqrstuvwxyz", strict=False))
    end = max(0.05, max(result.block_hit_rate for result in results))
    margin = max(len(size_name(result.capacity)) for result in results)
    axis = f"0 %{100 * end:{width - 4}.1f} %"
    lines = [" " * (margin + 2) + axis]
    for capacity in dict.fromkeys(result.capacity for result in results):
        line = ["·"] * (width + 1)
        for result in results:
            if result.capacity == capacity:
                place = round(result.block_hit_rate / end * width)
                line[place] = letters[result.eviction] if line[place] == "·" else "+"
        lines.append(f"{size_name(capacity):>{margin}}  {''.join(line)}")
    legend = "  ".join(f"{letter} {name}" for name, letter in letters.items())
    return "\n".join([*lines, " " * (margin + 2) + legend])


HEADER = "workload policy eviction tokens page hits,% computed evicted p50,s p95,s p99,s fair req/s"


def run_table(runs: Sequence[Simulation]) -> str:
    """Simulations as a table, a run a line; p50 to p99 are times to first token in seconds."""
    table = [HEADER.split(), *map(_cells, runs)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        [f"{cell:<{w}}" if i < 3 else f"{cell:>{w}}" for i, (cell, w) in enumerate(pairs)]
        for pairs in (zip(row, widths, strict=True) for row in table)
    )
    return "\n".join("  ".join(line) for line in lines)


def _cells(run: Simulation) -> list[str]:
    return [
        *(run.workload, run.policy, run.eviction, size_name(run.capacity), str(run.page_size)),
        *(f"{100 * run.hit_rate:.1f}", str(run.computed_tokens), str(run.evicted_tokens)),
        *(f"{time:.2f}" for time in (run.ttft_p50, run.ttft_p95, run.ttft_p99)),
        *(f"{run.fairness:.2f}", f"{run.throughput:.1f}"),
    ]


def draw_runs(runs: Sequence[Simulation], path: str | Path) -> None:
    """Hit rate and time to first token of simulations as a picture; the suffix names the format.

    A row of panels for each workload; over capacities if there are several, else over page sizes.
    A line for each policy and strategy. Needs matplotlib (extra `sweep`).
    """
    from matplotlib.figure import Figure

    workloads = list(dict.fromkeys(run.workload for run in runs))
    with style():
        figure = Figure(figsize=(9, 0.6 + 2.8 * len(workloads)))
        panels = figure.subplots(len(workloads), 2, squeeze=False)
        for (left, right), workload in zip(panels, workloads, strict=True):
            mine = [run for run in runs if run.workload == workload]
            _draw_lines(left, mine, lambda run: 100 * run.hit_rate)
            _draw_lines(right, mine, lambda run: run.ttft_p95)
            left.set_title(workload, parse_math=False)
            left.set(ylabel="hit rate in % of prompt tokens")
            right.set(ylabel="p95 time to first token, seconds")
        panels[0][1].legend(fontsize="small")
        figure.savefig(path)


def _draw_lines(
    axes: Axes, runs: Sequence[Simulation], height: Callable[[Simulation], float]
) -> None:
    """A line for each policy, strategy, and what else differs besides the horizontal axis."""
    by_size = len({run.capacity for run in runs}) == 1
    for name in dict.fromkeys(_series(run, by_size) for run in runs):
        mine = [run for run in runs if _series(run, by_size) == name]
        names = [str(run.page_size) if by_size else size_name(run.capacity) for run in mine]
        axes.plot(names, list(map(height, mine)), label=", ".join(name))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("page size in tokens" if by_size else "capacity in tokens")


def _series(run: Simulation, by_size: bool) -> tuple[str, ...]:
    name = run.policy, run.eviction
    return name if by_size else (*name, f"pages of {run.page_size}")


def draw_curve(results: Sequence[Replay], path: str | Path) -> None:
    """Hit rate (of all blocks) against capacity as a picture; the file's suffix names the format.

    The axis of capacities is logarithmic, the best unlimited cache a dashed line. Needs matplotlib
    (extra `sweep`).
    """
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(7, 4.2))
        axes = figure.subplots()
        for i, name in enumerate(dict.fromkeys(result.eviction for result in results)):
            curve = [r for r in results if r.eviction == name and r.capacity is not None]
            axes.plot(
                [r.capacity or 0 for r in curve],
                [100 * r.block_hit_rate for r in curve],
                markersize=max(
                    4, 11 - 2 * i
                ),  # where curves coincide, each is seen around the next
                linewidth=max(1, 4 - i),
                label=name,
            )
        if whole := [100 * r.block_hit_rate for r in results if r.capacity is None]:
            axes.axhline(max(whole), color=GREY, linestyle="--", marker="", label=UNLIMITED)
        if any(result.capacity is not None for result in results):
            axes.set_xscale("log")
        axes.set_title(", ".join(dict.fromkeys(r.trace for r in results)), parse_math=False)
        axes.set(ylim=(0, None), xlabel="capacity in tokens", ylabel="hit rate in % of all blocks")
        axes.legend()
        figure.savefig(path)
