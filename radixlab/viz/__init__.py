"""Pictures that step: trees, pools and lifecycles, drawn from the snapshots and steps of the core.

Names are loaded when they are first used: graphviz, anywidget, ipywidgets and matplotlib are only
needed for what is drawn with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radixlab._lazy import lazy

if TYPE_CHECKING:
    from radixlab.viz.charts import RateTable, count_trees, draw_rates, plot_trees, shared_prompts
    from radixlab.viz.dot import draw_tree, tree_dot
    from radixlab.viz.picture import Picture
    from radixlab.viz.player import StepPlayer, play
    from radixlab.viz.playground import Playground
    from radixlab.viz.poolsvg import draw_pool
    from radixlab.viz.quiz import quiz
    from radixlab.viz.sandbox import Sandbox

_ROOMS = {
    "charts": ("RateTable", "count_trees", "draw_rates", "plot_trees", "shared_prompts"),
    "dot": ("draw_tree", "tree_dot"),
    "picture": ("Picture",),
    "player": ("StepPlayer", "play"),
    "playground": ("Playground",),
    "poolsvg": ("draw_pool",),
    "quiz": ("quiz",),
    "sandbox": ("Sandbox",),
}
__getattr__ = lazy(__name__, _ROOMS, lambda room: "lab")

__all__ = [
    "Picture",
    "Playground",
    "RateTable",
    "Sandbox",
    "StepPlayer",
    "count_trees",
    "draw_pool",
    "draw_rates",
    "draw_tree",
    "play",
    "plot_trees",
    "quiz",
    "shared_prompts",
    "tree_dot",
]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
