"""`radixlab bench`: the benchmarks as tables, JSON and charts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from radixlab._refusals import check_chart, refusals
from radixlab.viz.style import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from radixlab.benchmarks import PrefillReport, ServeReport

Report = TypeVar("Report", "PrefillReport", "ServeReport")

app = typer.Typer(no_args_is_help=True, help="Measure what a cached prefix saves.")

Model = Annotated[str, typer.Option(help='"tiny", "gpt2-random", a folder, or a name on the hub.')]
Device = Annotated[str | None, typer.Option(help='"cpu", "cuda", ...; a GPU if there is one.')]
PageSize = Annotated[int, typer.Option(help="Tokens in a page.")]
Rounds = Annotated[int, typer.Option(min=1, help="The best of so many rounds counts.")]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Threads that torch may use.")]
Exact = Annotated[bool, typer.Option("--exact/--fast", help="Fixed tiles, or fast kernels.")]
Compare = Annotated[bool, typer.Option(help="Time transformers too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Chart = Annotated[Path | None, typer.Option(help="Draw a chart into this file (.svg, .png, .pdf).")]


@app.command()
def prefill(
    model: Model = "gpt2-random",
    tokens: Annotated[
        list[int] | None, typer.Option(help="Length of the prompt; repeat for more. [512 1000]")
    ] = None,
    hit: Annotated[
        list[float] | None, typer.Option(help="Part that is cached, 0 to below 1; repeat for more.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests in the packed pass.")] = 8,
    page_size: PageSize = 1,
    rounds: Rounds = 5,
    threads: Threads = 1,
    device: Device = None,
    exact: Exact = False,
    compare: Compare = True,
    as_json: AsJson = False,
    chart: Chart = None,
) -> None:
    """Time the prefill of a prompt of which 0 to 97 % is cached, beside the ideal."""
    with _progress(threads, chart) as say:
        from radixlab.benchmarks import HITS, bench_prefill

        report = bench_prefill(
            model,
            tokens=tokens or (512, 1000),
            hits=hit or HITS,
            batch_size=batch_size,
            page_size=page_size,
            rounds=rounds,
            compare=compare,
            exact=exact,
            device=device,
            on_progress=say,
        )
    _show(report, as_json, _prefill_table, chart, plot_prefill)


@app.command()
def serve(
    model: Model = "tiny",
    workload: Annotated[
        Path | None, typer.Option(help="Requests as JSON (default: a seeded workload).")
    ] = None,
    page_size: PageSize = 1,
    policy: Annotated[str, typer.Option(help="Which waiting request runs next.")] = "fcfs",
    rounds: Rounds = 3,
    threads: Threads = 1,
    device: Device = None,
    exact: Exact = False,
    compare: Compare = True,
    as_json: AsJson = False,
    chart: Chart = None,
) -> None:
    """Serve 64 prompts with few prefixes: with the cache, without, and as transformers does it."""
    with _progress(threads, chart) as say:
        from radixlab.benchmarks import bench_serve
        from radixlab.prefix_jobs import read_jobs

        report = bench_serve(
            model,
            workload=None if workload is None else read_jobs(workload),
            page_size=page_size,
            rounds=rounds,
            compare=compare,
            exact=exact,
            policy=policy,
            device=device,
            on_progress=say,
        )
    _show(report, as_json, _serve_table, chart, plot_serve)


@contextmanager
def _progress(threads: int, chart: Path | None) -> Iterator[Callable[[str], None]]:
    """A status line and torch's threads, unless something is refused first."""
    with refusals() as errors:
        check_chart(chart)
        with errors.status("loading torch ...") as status:
            import torch

            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                yield lambda message: status.update(f"{message} ...")
            finally:
                torch.set_num_threads(before)


def _show(
    report: Report,
    as_json: bool,
    table: Callable[[Report], Table],
    chart: Path | None,
    plot: Callable[[Report], Figure],
) -> None:
    """Print first: what was measured must not be lost if it can't be drawn."""
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        Console().print(table(report))
    if chart is not None:
        with refusals():
            plot(report).savefig(chart)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        side: Literal["left", "right"] = "right" if i else "left"
        table.add_column(column, justify=side, header_style="dim", vertical="bottom")
    return table


def _prefill_table(report: PrefillReport) -> Table:
    columns = ["tokens", "cached", "ideal", "warm\n/ cold", "cold", "warm"]
    columns += [f"{report.batch_size}\npacked", "trans-\nformers", "copied", "KV", "KV\ncopied"]
    table = _table(f"Prefill, {report.environment['model']}; times in ms, KV in MB", *columns)
    for row in report.rows:
        seconds = (row.cold, row.warm, row.batch, row.full, row.copied)
        table.add_row(
            str(row.tokens),
            str(row.cached),
            f"{row.flop_ratio:.3f}",
            f"{row.warm_ratio:.3f}",
            *("-" if s is None else f"{1000 * s:.1f}" for s in seconds),
            *(f"{size / 1e6:.1f}" for size in (row.kv_bytes, row.kv_bytes_copied)),
        )
    return table


def _serve_table(report: ServeReport) -> Table:
    title = f"{report.requests} requests, {report.prompt_tokens} prompt tokens, all at once"
    table = _table(title, "", "requests/s", "same\ntokens", "cached", "computed", "first\ntoken")
    for row in report.rows:
        first = row.time_to_first_token
        counts = (row.cached_tokens, row.computed_tokens)
        table.add_row(
            row.name,
            f"{row.requests_per_second:.1f}",
            "yes" if row.same_tokens else "no",
            *("-" if count is None else str(count) for count in counts),
            "-" if first is None else f"{1000 * first:.0f} ms",
        )
    return table


def plot_prefill(report: PrefillReport) -> Figure:
    """Prefill time by cached part, as a ratio to our own cold time, one panel for each length."""
    from matplotlib.figure import Figure

    lengths = sorted({row.tokens for row in report.rows})
    with style():
        figure = Figure(figsize=(4.5 * len(lengths), 3.4))
        panels = figure.subplots(1, len(lengths), squeeze=False)[0]
        for axes, length in zip(panels, lengths, strict=True):
            rows = sorted((r for r in report.rows if r.tokens == length), key=lambda r: r.cached)
            x = [100 * row.cached / row.tokens for row in rows]
            axes.plot(x, [row.flop_ratio for row in rows], label="ideal: operations")
            axes.plot(x, [row.warm_ratio for row in rows], label="radixlab")
            one_of_batch = [row.batch / report.batch_size / row.cold for row in rows]
            axes.plot(x, one_of_batch, label=f"radixlab, one of {report.batch_size} packed")
            if all(row.copied is not None for row in rows):
                copied = [(row.copied or 0.0) / row.cold for row in rows]
                axes.plot(x, copied, label="transformers, copied prefix")
            axes.set(title=f"{length} tokens", xlabel="cached, %", ylabel="time / cold time")
            axes.set_ylim(bottom=0)
            axes.legend()
    return figure


def plot_serve(report: ServeReport) -> Figure:
    """Requests per second of each way to serve the workload."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(6, 0.8 + 0.5 * len(report.rows)))
        axes = figure.subplots()
        names = [row.name for row in report.rows]
        bars = axes.barh(names, [row.requests_per_second for row in report.rows])
        axes.bar_label(bars, fmt="%.1f", padding=3)
        axes.invert_yaxis()
        axes.set(xlabel="requests per second", title=f"{report.requests} requests, all at once")
    return figure
