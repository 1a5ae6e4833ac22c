"""The style sheet of all pictures: colours from the palette, light and dark.

Follows the reader's system, and where there is one the switch of JupyterLab
(`data-jp-theme-light`) or of the site (`data-theme`, pydata-sphinx-theme).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from radixlab.viz.palette import EVENTS, STATES, Look

_TEXT = {
    "fg": ("#1f2328", "#e8eaed"),
    "muted": ("#57606a", "#a9b1ba"),
    "line": ("#c3cad2", "#48505a"),
    "card": ("#ffffff", "#14171b"),
    "soft": ("#f3f5f7", "#1f242a"),
    "accent": ("#0063a0", "#7cc4f5"),
}


def read_static(name: str) -> str:
    """The text of a file in `radixlab/viz/static`."""
    return (files("radixlab.viz") / "static" / name).read_text(encoding="utf-8")


@cache
def style_sheet(*, player: bool = False) -> str:
    """CSS for pictures, and with `player` for the step player too."""
    names = ["picture.css", "player.css"] if player else ["picture.css"]
    return "\n".join([_variables(), *_classes(), *map(read_static, names)])


def _variables() -> str:
    looks: dict[str, Look] = STATES | EVENTS
    pairs = {f"{name}-fill": (look.light, look.dark) for name, look in looks.items()} | _TEXT
    lines = [f"--rl-{name}:light-dark({light},{dark});" for name, (light, dark) in pairs.items()]
    lines += [f"--rl-{name}-line:{look.line};" for name, look in looks.items()]
    return f""".radixlab{{color-scheme:light dark;{"".join(lines)}}}
[data-theme=light] .radixlab,[data-jp-theme-light=true] .radixlab{{color-scheme:light}}
[data-theme=dark] .radixlab,[data-jp-theme-light=false] .radixlab{{color-scheme:dark}}"""


def _classes() -> list[str]:
    """Each state and event as a class that says how it is filled and lined."""
    return [
        f".radixlab .{name}{{--fill:var(--rl-{name}-fill);--line:var(--rl-{name}-line)}}"
        for name in STATES | EVENTS
    ]
