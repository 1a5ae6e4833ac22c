"""How trees, caches, managers and steps show themselves in a notebook.

IPython is given a function for each class by the class's name, so that the core knows nothing of
pictures and nothing is drawn, or imported, before something is shown.
"""

from __future__ import annotations

from typing import Any

SHOWN = (
    ("radixlab.tree", "RadixTree"),
    ("radixlab.cache", "RadixCache"),
    ("radixlab.manager", "CacheManager"),
    ("radixlab.snapshot", "Snapshot"),
    ("radixlab.lifecycle", "Step"),
)
"""Module and class of everything that has a picture."""


def register(shell: Any) -> None:
    """Tell IPython's `shell` how to show radixlab's classes."""
    formatter = shell.display_formatter.mimebundle_formatter
    for module, name in SHOWN:
        formatter.for_type_by_name(module, name, show)
    # IPython shows charts once pyplot is imported, and we draw without it.
    png = shell.display_formatter.formatters["image/png"]
    png.for_type_by_name("matplotlib.figure", "Figure", show_chart)


def show(shown: Any) -> dict[str, str]:
    """The MIME bundle of a tree, a cache, a manager, a snapshot or a step: picture and text."""
    from radixlab.viz.notebook import mime_bundle

    return mime_bundle(shown)


def show_chart(figure: Any) -> Any:
    """A chart as PNG for screens of high resolution: its data, and its width and height."""
    from IPython.core import pylabtools

    draw: Any = pylabtools.print_figure
    return draw(figure, fmt="retina", base64=True)
