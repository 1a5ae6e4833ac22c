"""The `radixlab` command: typer reads the arguments, rich draws the screen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from os.path import realpath
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
from radixlab._refusals import check_chart, check_file, refusals
from radixlab.classroom import commands as classroom
from radixlab.demo import Growth, ReuseReport, follow_requests, grow_tree, prove_reuse
from radixlab.errors import InvalidArgument
from radixlab.lifecycle import Step
from radixlab.policies import POLICIES
from radixlab.simulate import Replay
from radixlab.snapshot import CACHED, FREE, Snapshot
from radixlab.strategies import STRATEGIES
from radixlab.sweep import POLICIES as SWEPT
from radixlab.sweep import (
    REPLAYED,
    Plan,
    Row,
    draw_curve,
    draw_runs,
    plan_replays,
    plan_simulations,
    run_table,
    text_curve,
)
from radixlab.sweep import rows as sweep_rows
from radixlab.traces import Trace, read_trace
from radixlab.viz import palette
from radixlab.viz.palette import SKY_BLUE, STATES
from radixlab.workloads import WORKLOADS

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="RadixAttention and prefix caching, in code that can be read, run and stepped through.",
)


WIDTH = 80
# Of a slot's state; private ones show whose they are.
MARKS = {palette.FREE: "·", palette.EVICTABLE: "o", palette.PROTECTED: "#"}
# What only one kind of sweep looks at.
OF_TRACES = {"block_size"}
OF_ENGINES = {"policy", "page_size", "arrivals", "cost", "max_running", "seed"}

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
    with refusals() as errors:
        check_file("svg", svg)
        if as_json and svg is not None:
            raise InvalidArgument(
                "--svg", str(svg), "left out beside --json, which shows no screen"
            )
        if as_json and part and set(part) != {3}:
            raise InvalidArgument("--part", part, "left out beside --json, which is of part 3")
        if 1 in parts:
            _show_tree(console)
        if 2 in parts:
            _show_lifecycle(console, policy, eviction)
        if 3 in parts:
            report = _prove(errors, model, device, page_size, exact, eviction)
            if as_json:
                print(json.dumps(report.to_dict(), indent=2))
            else:
                _show_reuse(console, report)
        if svg is not None:
            _save(console, svg)


def _save(console: Console, path: Path) -> None:
    """The screen as a picture, without fonts: they would come from another host."""
    svg = console.export_svg(title="radixlab demo")
    path.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


def _prove(
    errors: Console, model: str, device: str | None, page_size: int, exact: bool, eviction: str
) -> ReuseReport:
    with errors.status("starting ...") as status:
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
    console.print(Rule(f"[bold]{title}", align="left", style=SKY_BLUE))
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
    legend = [f"[{STATES[state].line}]{mark}[/] {state}" for state, mark in MARKS.items()]
    legend.append(f"[{STATES[palette.PRIVATE].line}]1 2[/] private to R1, R2")
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
        if owner == FREE:
            name = palette.FREE
        elif owner == CACHED:
            name = palette.PROTECTED if slot in held else palette.EVICTABLE
        else:
            name = palette.PRIVATE
        strip.append(MARKS.get(name) or owner[-1], STATES[name].line)
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
        text = Text.assemble(f"{i}  ... {p.text}", (p.continuation.replace("\n", " "), SKY_BLUE))
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
    context: typer.Context,
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
        str | None, typer.Option(help=f"Of {', '.join(REPLAYED)}. [lru,belady; lru]")
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens in a block of the trace.")] = 512,
    policy: Annotated[str, typer.Option(help=f"Of {', '.join(SWEPT)}.")] = "fcfs,lpm",
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
    go through the engine on a virtual clock, with every combination of the options. Requests have
    no priority here, so policies and strategies that go by it are left out.
    """
    console = Console(highlight=False)
    with refusals() as errors:
        _check_sweep(context, jobs, csv, chart)
        if trace is not None:
            requests = read_trace(trace, block_size)
            sizes = "1M,3M,10M,30M,unlimited" if capacity is None else capacity
            names = "lru,belady" if eviction is None else eviction
            replays = _run(errors, plan_replays(requests, sizes, names), csv, jobs)
            _show_replays(console, requests, replays)
            if chart is not None:
                draw_curve(replays, chart)
        else:
            plan = plan_simulations(
                workload or "",
                policy,
                "lru" if eviction is None else eviction,
                "8k,unlimited" if capacity is None else capacity,
                page_size,
                arrivals=arrivals,
                cost=cost,
                max_running=max_running,
                seed=seed,
            )
            runs = _run(errors, plan, csv, jobs)
            console.print(run_table(runs), soft_wrap=True)
            if chart is not None:
                draw_runs(runs, chart)


def _check_sweep(context: typer.Context, jobs: int, csv: Path | None, chart: Path | None) -> None:
    """Refuse what is missing, what would be ignored, and what would fail after all runs."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    if ("trace" in given) == ("workload" in given):
        got = [name for name in given if name in ("trace", "workload")]
        raise InvalidArgument("what to sweep", got, "a --trace or a --workload")
    kind, ignored = ("trace", OF_ENGINES) if "trace" in given else ("workload", OF_TRACES)
    for name in (name for name in given if name in ignored):
        allowed = f"left out beside --{kind}, which ignores it"
        raise InvalidArgument(f"--{name.replace('_', '-')}", context.params[name], allowed)
    if jobs == 0:
        raise InvalidArgument("jobs", jobs, "1 or more, or -1 for each core")
    check_file("csv", csv)
    check_chart(chart)
    if csv is not None and chart is not None and realpath(csv) == realpath(chart):
        raise InvalidArgument("chart", str(chart), "another file than csv")


def _run(errors: Console, plan: Plan[Row], csv: Path | None, jobs: int) -> list[Row]:
    """Run a sweep behind a progress bar."""
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("sweep", total=plan.total)
        return plan.run(csv_path=csv, n_jobs=jobs, on_result=lambda _: progress.advance(task))


def _show_replays(console: Console, trace: Trace, replays: Sequence[Replay]) -> None:
    console.print(f"{len(trace.requests)} requests, {trace.prompt_tokens} prompt tokens.")
    console.print("Hit rates in percent of all blocks / of all prompt tokens:\n")
    header, cells = sweep_rows(replays)
    table = Table(*header, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for row in cells:
        table.add_row(*row)
    console.print(table)
    console.print(f"\n{text_curve(replays)}")
