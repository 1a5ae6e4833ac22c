"""One style for every chart: the house palette, few lines, readable at the width of a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from radixlab.viz.palette import CYCLE

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


def rc() -> dict[str, Any]:
    """Matplotlib's settings: each line has a colour, a dash and a marker of its own.

    From the eighth line on all come again, but markers one place further, and dashes two.
    On a phone the site shows 11 points as 8 pixels, and up to 6 inches without scrolling.
    """
    from cycler import cycler

    markers, dashes = MARKERS + MARKERS[1:] + MARKERS[:1], DASHES + DASHES[2:] + DASHES[:2]
    lines = cycler(color=CYCLE * 2) + cycler(marker=markers) + cycler(linestyle=dashes)
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": "#57606a",
        "axes.grid": True,
        "axes.labelcolor": "#1f2328",
        "axes.prop_cycle": lines,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 12,
        "figure.constrained_layout.use": True,
        "figure.dpi": 110,
        "figure.facecolor": "white",
        "font.family": "sans-serif",
        "font.size": 11,
        "grid.color": "#e3e6ea",
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "svg.hashsalt": "radixlab",
        "text.color": "#1f2328",
        "xtick.color": "#57606a",
        "ytick.color": "#57606a",
    }


@contextmanager
def style() -> Iterator[None]:
    """Draw everything in a `with` block in the house style."""
    import matplotlib

    with matplotlib.rc_context(cast(Any, rc())):  # matplotlib lists its settings by name
        yield
