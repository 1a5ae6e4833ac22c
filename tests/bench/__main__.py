"""`python -m tests.bench`, or `make bench BENCH_ARGS="..."`.

SGLang's Python cache and its default one join in when SGLANG_DIR names an unpacked wheel of it
(`tests/bench/sglang_peers.py` tells how to get one).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from radixlab import __version__, cache
from tests.bench import sglang_peers
from tests.bench.adapters import OWN, Implementation, Trie
from tests.bench.bars import Bar, bars
from tests.bench.harness import (
    Eviction,
    Memory,
    Timing,
    eviction_times,
    memory,
    race,
    survey,
    use_one_thread,
)
from tests.bench.traces import TRACES, Trace

PARTS = ("speed", "eviction", "memory")
PEERS = ("sglang", "sglang-rust")


@dataclass
class Report:
    """All that one run has measured."""

    timings: list[Timing] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)

    @property
    def hits_agree(self) -> bool:
        """Whether all that cut alike found equally much for each request of each trace."""
        checksums: dict[tuple[str, int], set[str]] = {}
        for t in self.timings:
            if not t.cuts_at_prompt:
                checksums.setdefault((t.trace, t.page_size), set()).add(t.hits_crc)
        return all(len(found) == 1 for found in checksums.values())

    def ratio(self, timing: Timing, peer: str) -> float | None:
        """How many times as many requests a second as the peer on the same trace."""
        for other in self.timings:
            same = (other.trace, other.page_size) == (timing.trace, timing.page_size)
            if same and other.implementation == peer:
                return timing.requests_per_s / other.requests_per_s
        return None

    def as_json(self, command: str) -> dict[str, Any]:
        """The report with what it takes to repeat it."""
        return {
            "command": command,
            "versions": versions(),
            "machine": machine(),
            "hits_agree": self.hits_agree,
            "timings": [
                asdict(t)
                | {"requests_per_s": t.requests_per_s}
                | {f"times_{peer}": self.ratio(t, peer) for peer in PEERS}
                for t in self.timings
            ],
            "evictions": [asdict(eviction) for eviction in self.evictions],
            "memory": [asdict(measured) for measured in self.memories],
            "bars": [
                asdict(bar) | {"holds": bar.holds} for bar in bars(self.timings, self.evictions)
            ],
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 unless a bar fails, a slot is wrong or hits differ."""
    options = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 150)
    available = {make.name: make for make in OWN}
    if folder := os.environ.get("SGLANG_DIR"):
        available |= {make.name: make for make in sglang_peers.load(Path(folder))}
    use_one_thread()
    names = options.only or list(available)
    if unknown := [name for name in names if name not in available]:
        console.print(f"{', '.join(unknown)}: not here; SGLang's need SGLANG_DIR.", style="red")
        return 2
    contestants = [available[name] for name in names]
    traces = [TRACES[name]() for name in options.traces]
    if options.requests is not None:
        traces = [trace.head(options.requests) for trace in traces]
    if options.check:
        return check(contestants, traces, options.pages, console)
    report = measure(contestants, traces, options, console)
    if options.json is not None:
        command = shlex.join(["python", "-m", "tests.bench", *(argv or sys.argv[1:])])
        options.json.write_text(json.dumps(report.as_json(command), indent=1) + "\n")
    if options.bars:
        judged = bars(report.timings, report.evictions)
        console.print(bars_table(judged))
        return int(not (report.hits_agree and all(bar.holds for bar in judged)))
    return int(not report.hits_agree)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", help="cache manager lists trie sglang sglang-rust")
    add("--traces", nargs="+", choices=TRACES, default=list(TRACES))
    add("--pages", nargs="+", type=int, default=[1, 16], metavar="TOKENS", help="page sizes")
    add("--reps", type=int, default=5, help="repetitions; each call counts with its fastest")
    add("--requests", type=int, metavar="N", help="only the first N requests of each trace")
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    add("--operations", action="store_true", help="also time match, lock, ... on their own")
    add("--check", action="store_true", help="only verify every slot and look for leaks")
    add("--bars", action="store_true", help="what is promised, and whether it holds")
    add("--json", type=Path, metavar="FILE", help="write everything to a file, too")
    return parser.parse_args(argv)


def check(
    contestants: Sequence[type[Implementation]],
    traces: Sequence[Trace],
    pages: Sequence[int],
    console: Console,
) -> int:
    """Verify every slot of every request, and that all found equally much."""
    agree = True
    for trace in traces:
        for page_size in pages:
            found = {make.name: survey(make, trace, page_size).hits_crc for make in contestants}
            same = len({found[m.name] for m in contestants if not m.cuts_at_prompt}) <= 1
            agree &= same
            hits = "equal hits" if same else f"DIFFERENT hits: {found}"
            console.print(
                f"{trace.name}, page size {page_size}: {len(trace.requests)} requests, "
                f"{', '.join(found)}: every slot right, none lost, {hits}"
            )
    return int(not agree)


def measure(
    contestants: Sequence[type[Implementation]],
    traces: Sequence[Trace],
    options: argparse.Namespace,
    console: Console,
) -> Report:
    """Measure part by part, and print each as soon as it is there."""
    report = Report()
    if "speed" in options.parts:
        for trace in traces:
            for page_size in options.pages:
                new = race(contestants, trace, page_size, options.reps, options.operations)
                report.timings += new
                console.print(speed_table(report, new))
                if options.operations:
                    console.print(operations_table(new))
        equal = "equal" if report.hits_agree else "NOT EQUAL"
        console.print(f"Hit lengths are {equal} (the manager's, which cuts more, set aside).")
    if "eviction" in options.parts:
        for make in contestants:
            if make is not Trie:  # millions of nodes, and the same scan as the other baseline's
                report.evictions += eviction_times(make)
        console.print(eviction_table(report.evictions))
    if "memory" in options.parts:
        for make in contestants:
            if make.name not in PEERS:  # tracemalloc does not see what torch and Rust allocate
                report.memories += [memory(make, TRACES["chat"](), p) for p in options.pages]
        console.print(memory_table(report.memories))
    return report


def speed_table(report: Report, timings: Sequence[Timing]) -> Table:
    """All implementations on one trace."""
    first = timings[0]
    table = Table(
        title=f"{first.trace}, page size {first.page_size}: {first.num_requests} requests, "
        f"{first.hit_tokens / first.prompt_tokens:.1%} of the prompt tokens found",
        title_justify="left",
    )
    table.add_column("implementation")
    for heading in (
        "requests/s",
        "times SGLang, Python",
        "times SGLang, default",
        "admit us",
        "finish us",
        "CPU us",
        "peak nodes",
        "hits",
    ):
        table.add_column(heading, justify="right")
    for timing in timings:
        ratios = [report.ratio(timing, peer) for peer in PEERS]
        table.add_row(
            timing.implementation,
            f"{timing.requests_per_s:,.0f}",
            *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            f"{timing.admit_us:.2f}",
            f"{timing.finish_us:.2f}",
            f"{timing.cpu_us:.2f}",
            "-" if timing.peak_nodes is None else f"{timing.peak_nodes:,}",
            timing.hits_crc,
        )
    return table


def operations_table(timings: Sequence[Timing]) -> Table:
    """The calls inside admit and finish; each includes some 0.1 us of stopwatch."""
    table = Table(title="us for each request, by operation", title_justify="left")
    table.add_column("implementation")
    table.add_column("operations")
    for timing in timings:
        spent = "  ".join(f"{name} {us:.2f}" for name, us in timing.operations_us.items())
        table.add_row(timing.implementation, spent)
    return table


def eviction_table(evictions: Sequence[Eviction]) -> Table:
    """One row for each implementation, one column for each number of leaves."""
    counts = sorted({eviction.num_leaves for eviction in evictions})
    table = Table(title="Evicting one leaf, us", title_justify="left")
    table.add_column("implementation")
    for count in counts:
        table.add_column(f"of {count:,}", justify="right")
    for name in dict.fromkeys(eviction.implementation for eviction in evictions):
        times = [e.evict_us for e in evictions if e.implementation == name]
        table.add_row(name, *(f"{us:,.2f}" for us in times))
    return table


def memory_table(memories: Sequence[Memory]) -> Table:
    """One row for each implementation and page size."""
    table = Table(title="Index of a full cache (chat)", title_justify="left")
    for heading in ("implementation", "page size", "cached tokens", "bytes/token"):
        table.add_column(heading, justify="left" if heading == "implementation" else "right")
    for m in memories:
        row = (str(m.page_size), f"{m.cached_tokens:,}", f"{m.bytes_per_token:.1f}")
        table.add_row(m.implementation, *row)
    return table


def bars_table(judged: Sequence[Bar]) -> Table:
    """What is promised, what was measured."""
    table = Table(title="Bars", title_justify="left")
    for heading in ("promise", "measured", "at worst", ""):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for bar in judged:
        measured = "-" if bar.measured is None else f"{bar.measured:.2f}"
        verdict = "[green]holds[/]" if bar.holds else "[red]fails[/]"
        table.add_row(bar.promise, measured, bar.where, verdict)
    return table


def versions() -> dict[str, str]:
    """Python and the packages that matter; SGLang's is its wheel's."""
    compiled = not str(cache.__file__).endswith(".py")
    found = {"python": platform.python_version(), "radixlab": __version__}
    found["core"] = "compiled by mypyc" if compiled else "interpreted"
    for package in ("numpy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if folder := os.environ.get("SGLANG_DIR"):
        found["sglang"] = sglang_peers.version(Path(folder))
    return found


def machine() -> dict[str, str | int | None]:
    """Where the figures come from."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform()}


if __name__ == "__main__":
    sys.exit(main())
