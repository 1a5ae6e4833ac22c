"""The `radixlab` command: typer reads the arguments, rich draws the screen."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import Progress
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from radixlab import __version__, bench
from radixlab.classroom import commands as classroom
from radixlab.demo import Growth, ReuseReport, follow_requests, grow_tree, prove_reuse
from radixlab.errors import InvalidArgument, RadixLabError
from radixlab.lifecycle import Step
from radixlab.policies import POLICIES
from radixlab.scheduler import SchedulerSettings
from radixlab.simulate import EVICTIONS, Replay
from radixlab.simulate import sweep as sweep_trace
from radixlab.snapshot import CACHED, FREE, Snapshot
from radixlab.strategies import STRATEGIES
from radixlab.sweep import (
    draw_curve,
    draw_runs,
    make_jobs,
    parse_arrivals,
    parse_capacities,
    parse_cost,
    parse_names,
    parse_pages,
    run_table,
    text_curve,
)
from radixlab.sweep import rows as sweep_rows
from radixlab.traces import Trace, read_trace
from radixlab.virtual import sweep as sweep_engine
from radixlab.workloads import WORKLOADS

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="RadixAttention and prefix caching, in code that can be read, run and stepped through.",
)


WIDTH = 80
# Colour-blind safe (Okabe-Ito), and each state has a mark of its own besides.
MARKS = {"free": ("·", "#999999"), "evictable": ("o", "#009E73"), "protected": ("#", "#56B4E9")}
PRIVATE = "#D55E00"
app.add_typer(bench.app, name="bench")
app.add_typer(classroom.app, name="classroom")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"radixlab {__version__}")
        raise typer.Exit


Version = typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")


@app.callback()
def every_command(version: Annotated[bool, Version] = False) -> None:
    """What comes before the name of a command."""


@app.command()
def demo(
    model: Annotated[
        str, typer.Option(help='"tiny", "gpt2-random", a folder, or a name on the hub.')
    ] = "tiny",
    device: Annotated[
        str | None, typer.Option(help='"cpu", "cuda", ...; a GPU if there is one.')
    ] = None,
    page_size: Annotated[int, typer.Option(help="Tokens in a page, for the model's pool.")] = 1,
    exact: Annotated[
        bool, typer.Option("--exact/--fast", help="Fixed tiles (identical bits), or fast kernels.")
    ] = True,
    policy: Annotated[
        str, typer.Option(help=f"Who goes first in part 2: {', '.join(POLICIES)}.")
    ] = "shortest-prefill-first",
    eviction: Annotated[
        str, typer.Option(help=f"What is evicted first: {', '.join(STRATEGIES)}.")
    ] = "lru",
    part: Annotated[
        list[int] | None, typer.Option(min=1, max=3, help="Only this part; may be repeated.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Only the model's part, as radixlab.demo.ReuseReport.")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Also save the screen as a picture in this file.")
    ] = None,
) -> None:
    """Show the chapter in three parts: the tree, the life of a request, and GPT-2 as the proof."""
    console = Console(width=WIDTH, record=svg is not None, highlight=False)
    parts = [3] if as_json else part or [1, 2, 3]
    if 1 in parts:
        _show_tree(console)
    if 2 in parts:
        with _refusals(Console(stderr=True)):
            _show_lifecycle(console, policy, eviction)
    if 3 in parts:
        report = _prove(model, device, page_size, exact, eviction)
        if as_json:
            print(json.dumps(report.to_dict(), indent=2))
        else:
            _show_reuse(console, report)
    if svg is not None:
        fonts = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # they would come from another host
        svg.write_text(fonts.sub("", console.export_svg(title="radixlab demo")), encoding="utf-8")


def _prove(
    model: str, device: str | None, page_size: int, exact: bool, eviction: str
) -> ReuseReport:
    errors = Console(stderr=True)
    with _refusals(errors), errors.status("starting ...") as status:
        return prove_reuse(
            model,
            device=device,
            page_size=page_size,
            exact=exact,
            eviction=eviction,
            on_progress=lambda message: status.update(f"{message} ..."),
        )


def _heading(console: Console, title: str, question: str) -> None:
    console.print()
    console.print(Rule(f"[bold]{title}", align="left", style="#56B4E9"))
    console.print(question, style="italic")


def _show_tree(console: Console) -> None:
    _heading(
        console,
        "1  A tree that grows: what do three prompts share?",
        "An edge holds token ids -> the slots (p0, p1, ...) where the pool keeps their K and V.",
    )
    for growth in grow_tree():
        _show_growth(console, growth)


def _show_growth(console: Console, growth: Growth) -> None:
    console.print(f'\n[bold]insert {growth.name}[/]  "{growth.text}"  {growth.token_ids}')
    console.print(Padding(growth.caption, (0, 0, 0, 2)))
    console.print(Padding(Text(growth.tree), (0, 0, 0, 2)))


def _show_lifecycle(console: Console, policy: str, eviction: str) -> None:
    steps = follow_requests(policy, eviction)
    _heading(
        console,
        "2  The life of a request: who owns which slot?",
        "R1 and R2 both begin with S = [900, 10, 11, 12]; the pool has 8 slots, p0 to p7.",
    )
    legend = [f"[{colour}]{mark}[/] {name}" for name, (mark, colour) in MARKS.items()]
    legend.append(f"[{PRIVATE}]1 2[/] private to R1, R2")
    console.print("One mark a slot:  " + "   ".join(legend) + "\n")
    for step in steps:
        _show_step(console, step)


def _show_step(console: Console, step: Step) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=12, no_wrap=True)
    grid.add_column()
    name = Text.assemble((f"{step.number} ", "dim"), (step.name, "bold"))
    grid.add_row(name, escape(step.caption))
    if step.name not in ("match", "schedule", "prefill"):
        grid.add_row("", Text.assemble(_pool(step.snapshot), "   ", _counters(step.snapshot)))
    console.print(grid)


def _pool(state: Snapshot) -> Text:
    """The pool as one mark for each slot."""
    held = {slot for node in state.nodes if node.ref_count for slot in node.value}
    strip = Text("")
    for slot, owner in sorted(state.owners().items()):
        if owner not in (FREE, CACHED):
            strip.append(owner[-1], PRIVATE)
            continue
        name = "free" if owner == FREE else "protected" if slot in held else "evictable"
        strip.append(*MARKS[name])
    return strip


def _counters(state: Snapshot) -> Text:
    sizes = {
        "free": state.free_size,
        "evictable": state.evictable_size,
        "protected": state.protected_size,
        "private": state.private_size,
    }
    return Text("  ".join(f"{name} {size}" for name, size in sizes.items()), "dim")


def _show_reuse(console: Console, report: ReuseReport) -> None:
    mode = "exact" if report.exact else "fast"
    _heading(
        console,
        "3  The proof: does GPT-2 notice that its prefix came from the cache?",
        f"Three prompts with one system prompt, on {report.model}, {report.device}, in {mode} mode,"
        f" page_size {report.page_size}.\nCold: each alone. Warm: one after another, one cache.",
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("prompt")
    for column in ("tokens", "reused", "computed", "prefill cold", "warm"):
        table.add_column(column, justify="right")
    for i, p in enumerate(report.prompts, 1):
        times = (f"{p.cold_prefill_ms:.1f} ms", f"{p.warm_prefill_ms:.1f} ms")
        counts = (str(p.prompt_tokens), str(p.reused_tokens), str(p.computed_tokens))
        table.add_row(str(i), *counts, *times)
    console.print()
    console.print(table)
    console.print()
    for i, p in enumerate(report.prompts, 1):
        text = Text.assemble(f"{i}  ... {p.text}", (p.continuation.replace("\n", " "), "#56B4E9"))
        console.print(text)
    console.print()
    for line in _verdict(report):
        console.print(line)


def _verdict(report: ReuseReport) -> Iterator[str]:
    total = report.reused_tokens + report.computed_tokens
    same = "the same" if report.same_continuations else "[bold]different[/]"
    yield (
        f"[bold]{report.reused_tokens} of {total} tokens[/] were reused; prefill took "
        f"[bold]{report.prefill_ratio:.2f}[/] of the cold time (best of 5, fast mode)."
    )
    yield (
        f"KV held: [bold]{report.kv_bytes / 1e6:.2f} MB[/]; without sharing "
        f"{report.kv_bytes_unshared / 1e6:.2f} MB."
    )
    yield f"Cold and warm draw {same} tokens. The largest difference of their logits:"
    yield f"  cold against warm                           [bold]{report.max_logit_difference:g}[/]"
    yield f"  with one cached slot overwritten, to check  [bold]{report.control_difference:.2g}[/]"


@app.command()
def sweep(
    trace: Annotated[
        Path | None, typer.Option(help="A block-hash trace: JSON lines with hash_ids.")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help=f"Or, served by the engine, of {', '.join(WORKLOADS)}.")
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(help='Tokens: "500k,unlimited". [1M,3M,10M,30M,unlimited; 8k,unlimited]'),
    ] = None,
    eviction: Annotated[
        str | None, typer.Option(help=f"Of {', '.join(EVICTIONS)}. [lru,belady; lru]")
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens in a block of the trace.")] = 512,
    policy: Annotated[str, typer.Option(help=f"Of {', '.join(POLICIES)}.")] = "fcfs,lpm",
    page_size: Annotated[str, typer.Option(help='Tokens in a page: "1,16,64".')] = "16",
    arrivals: Annotated[
        str, typer.Option(help='"batch", "poisson:RATE", "closed:CLIENTS[:THINK SECONDS]".')
    ] = "batch",
    cost: Annotated[
        str, typer.Option(help='Seconds per token and decode step, or JSON of "bench prefill".')
    ] = "1e-4,0.02",
    max_running: Annotated[int, typer.Option(min=1, help="Requests that run together.")] = 256,
    seed: Annotated[int, typer.Option(help="Of workloads, arrivals and the random policy.")] = 0,
    csv: Annotated[
        Path | None, typer.Option(help="Keep the results here; go on with what is there.")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Draw the results into this file (.svg, .png, .pdf).")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1: one for each core.")] = 1,
) -> None:
    """Try many caches: what strategies find in a trace, what policies do to a workload.

    A trace is replayed at the level of the cache (--capacity, --eviction, --block-size). Workloads
    go through the engine on a virtual clock, with every combination of the options.
    """
    console, errors = Console(highlight=False), Console(stderr=True)
    with _refusals(errors):
        if (trace is None) == (workload is None):
            raise InvalidArgument("what to sweep", [trace, workload], "a --trace or a --workload")
        if trace is not None:
            requests = read_trace(trace, block_size)
            sizes = parse_capacities(capacity or "1M,3M,10M,30M,unlimited")
            names = parse_names(eviction or "lru,belady")
            with _bar(errors, len(sizes) * len(names)) as advance:
                replays = sweep_trace(
                    [requests], sizes, names, csv_path=csv, n_jobs=jobs, on_result=advance
                )
            _show_replays(console, requests, replays)
            if chart is not None:
                draw_curve(replays, chart)
        else:
            make = parse_arrivals(arrivals, seed)
            served = {name: make(make_jobs(name, seed)) for name in parse_names(workload or "")}
            policies, names = parse_names(policy), parse_names(eviction or "lru")
            sizes, pages = parse_capacities(capacity or "8k,unlimited"), parse_pages(page_size)
            total = math.prod(map(len, (served, policies, names, sizes, pages)))
            with _bar(errors, total) as advance:
                runs = sweep_engine(
                    served,
                    policies,
                    names,
                    sizes,
                    pages,
                    cost=parse_cost(cost),
                    settings=SchedulerSettings(max_running=max_running),
                    seed=seed,
                    csv_path=csv,
                    n_jobs=jobs,
                    on_result=advance,
                )
            console.print(run_table(runs), soft_wrap=True)
            if chart is not None:
                draw_runs(runs, chart)


@contextmanager
def _refusals(errors: Console) -> Iterator[None]:
    """One line for whatever is refused, instead of a traceback."""
    try:
        yield
    except ModuleNotFoundError as error:
        hint = "" if "pip install" in str(error) else ": pip install 'radixlab[model]'"
        errors.print(f"[red]{type(error).__name__}[/]: {escape(str(error) + hint)}")
        raise typer.Exit(2) from None
    except (RadixLabError, OSError, UnicodeDecodeError) as error:
        errors.print(f"[red]{type(error).__name__}[/]: {escape(str(error))}")
        raise typer.Exit(2) from None


@contextmanager
def _bar(errors: Console, total: int) -> Iterator[Callable[[object], None]]:
    """A progress bar; yields what moves it on by one result."""
    with Progress(console=errors) as progress:
        task = progress.add_task("sweep", total=total)
        yield lambda result: progress.advance(task)


def _show_replays(console: Console, trace: Trace, replays: Sequence[Replay]) -> None:
    console.print(f"{len(trace.requests)} requests, {trace.prompt_tokens} prompt tokens.")
    console.print("Hit rates in percent of all blocks / of all prompt tokens:\n")
    header, cells = sweep_rows(replays)
    table = Table(*header, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for row in cells:
        table.add_row(*row)
    console.print(table)
    console.print(f"\n{text_curve(replays)}")
