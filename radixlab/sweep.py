"""The command `radixlab sweep`: hit rate against capacity, as a table, a curve and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from radixlab.errors import InvalidArgument
from radixlab.simulate import Replay

UNLIMITED = "unlimited"
UNITS = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
# Okabe-Ito, colour-blind safe, and each strategy has a mark of its own besides.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
MARKS = "os^DvPX*"


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


def draw_curve(results: Sequence[Replay], path: str | Path) -> None:
    """Hit rate (of all blocks) against capacity as a picture; the file's suffix names the format.

    The axis of capacities is logarithmic, the best unlimited cache a dashed line. Needs matplotlib
    (extra `sweep`).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for i, name in enumerate(dict.fromkeys(result.eviction for result in results)):
        curve = [r for r in results if r.eviction == name and r.capacity is not None]
        axes.plot(
            [r.capacity or 0 for r in curve],
            [100 * r.block_hit_rate for r in curve],
            color=COLOURS[i % len(COLOURS)],
            marker=MARKS[i % len(MARKS)],
            markersize=max(4, 11 - 2 * i),  # where curves coincide, each is seen around the next
            linewidth=max(1, 4 - i),
            label=name,
        )
    if whole := [100 * r.block_hit_rate for r in results if r.capacity is None]:
        axes.axhline(max(whole), color="#666666", linestyle="--", label=UNLIMITED)
    if any(result.capacity is not None for result in results):
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("capacity in tokens")
    axes.set_ylabel("hit rate in % of all blocks")
    axes.set_title(", ".join(dict.fromkeys(result.trace for result in results)))
    axes.legend()
    figure.savefig(path)
