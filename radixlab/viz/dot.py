"""Radix trees as DOT, the language of Graphviz, and as the pictures that it draws of them.

What a step did to a node is told three times: by colour, by border, and by a word.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from radixlab.cache import RadixCache
from radixlab.lifecycle import Step
from radixlab.manager import CacheManager
from radixlab.snapshot import NodeSnapshot, Snapshot, snapshot_tree
from radixlab.tree import RadixTree
from radixlab.viz import palette
from radixlab.viz.fold import Branch, fold
from radixlab.viz.marks import Mark, mark_nodes, node_state, with_removed
from radixlab.viz.palette import EVENTS, STATES
from radixlab.viz.picture import Picture
from radixlab.viz.treetext import tree_text, tree_title, tree_told
from radixlab.viz.words import Decode, escape, show_slots, show_tokens, show_use

if TYPE_CHECKING:
    from graphviz import Digraph

Drawable = RadixTree | RadixCache | CacheManager | Snapshot | Step
"""Whatever has a radix tree that can be drawn."""

FONT = "Helvetica"
WIDE = 5
"""A tree with more leaves than this grows from left to right instead of downwards."""

MAX_NODES = 24
"""A tree of more nodes is folded."""

BORDERS = {
    palette.MATCHED: {"style": "filled", "peripheries": "2"},
    palette.CREATED: {"style": "filled,bold", "penwidth": "3"},
    palette.SPLIT: {"style": "filled,dashed", "penwidth": "2"},
    palette.LOCKED: {"style": "filled,diagonals", "penwidth": "2"},
    palette.UNLOCKED: {"style": "filled,rounded", "penwidth": "2"},
    palette.EVICTED: {"style": "filled,dotted", "penwidth": "2"},
}
"""The border of each event: double, thick, dashed, cut corners, round corners, dotted."""

NO_DOT = (
    "To see a picture instead of text, install Graphviz (the program dot), "
    "or: pip install graphviz graphviz-pure"
)


def tree_dot(
    drawn: Drawable,
    *,
    before: Snapshot | None = None,
    decode: Decode | None = None,
    max_nodes: int = MAX_NODES,
    rankdir: str | None = None,
) -> Digraph:
    """The DOT graph of a radix tree; `str()` of it is the source.

    A `Step` has what it did marked; with the snapshot `before` it, evicted nodes are shown as well.
    `decode` gives the text of a token id, to be shown instead of the id. Subtrees past `max_nodes`
    are folded into stubs that count them. `rankdir` is "TB" (downwards), "LR" (to the right), or
    None: whichever fits.
    """
    import graphviz

    nodes, marks = _nodes_and_marks(drawn, before)
    branches = fold(nodes, marks, max_nodes).walk()
    if rankdir is None:
        leaves = sum(not b.children for b in branches) + sum(b.stub is not None for b in branches)
        rankdir = "LR" if leaves > WIDE else "TB"
    graph = graphviz.Digraph(
        "radix_tree",
        graph_attr={"rankdir": rankdir, "bgcolor": "transparent", "ranksep": "0.35"},
        node_attr={"shape": "box", "fontname": FONT, "fontsize": "11", "margin": "0.14,0.08"},
        edge_attr={"arrowsize": "0.6", "color": "#57606a"},
    )
    for branch in branches:
        _add(graph, branch, marks.get(branch.node.uuid), decode)
    return graph


def draw_tree(drawn: Drawable, **options: Any) -> Picture:
    """A picture of a radix tree; `options` are those of `tree_dot`.

    Without Graphviz it is the text tree, with a sentence on what to install.
    """
    nodes, marks = _nodes_and_marks(drawn, options.get("before"))
    decode = options.get("decode")
    text = tree_text(nodes, marks, decode)
    try:
        graph = tree_dot(drawn, **options)
        svg = render(graph.source)
    except (ImportError, FileNotFoundError):
        return Picture("", text, NO_DOT)
    told = tree_told(fold(nodes, marks, options.get("max_nodes", MAX_NODES)), marks, decode)
    return Picture(_accessible(svg, tree_title(nodes), told), text, source=graph.source)


def render(source: str) -> str:
    """DOT to SVG by `dot` of the system, else by the package graphviz-pure.

    Raises `FileNotFoundError` if there is neither.
    """
    import graphviz
    from graphviz.backend import dot_command

    system = dot_command.DOT_BINARY
    if shutil.which("dot") is None:
        if (packaged := _packaged_dot()) is None:
            raise FileNotFoundError(NO_DOT)
        dot_command.DOT_BINARY = packaged
    try:
        return str(graphviz.Source(source).pipe("svg", encoding="utf-8", quiet=True))
    finally:
        dot_command.DOT_BINARY = system


def _nodes_and_marks(
    drawn: Drawable, before: Snapshot | None
) -> tuple[Sequence[NodeSnapshot], dict[int, Mark]]:
    if isinstance(drawn, Step):
        return with_removed(drawn, before), mark_nodes(drawn, before)
    if isinstance(drawn, Snapshot):
        return drawn.nodes, {}
    if isinstance(drawn, CacheManager):
        drawn = drawn.cache
    return snapshot_tree(drawn if isinstance(drawn, RadixTree) else drawn.tree), {}


def _add(graph: Digraph, branch: Branch, mark: Mark | None, decode: Decode | None) -> None:
    node, name = branch.node, f"n{branch.node.uuid}"
    if node.parent is None:
        graph.node(name, "root", shape="ellipse", **{"class": "root"})
    else:
        state = node_state(node)
        look = EVENTS[mark.event] if mark else STATES[state]
        border = BORDERS[mark.event] if mark else {"style": "filled"}
        css = f"{state} {mark.event}" if mark else state
        colours = {"color": look.line, "fillcolor": look.light, "class": css}
        graph.node(name, _label(node, mark, decode), **border, **colours)
        graph.edge(f"n{node.parent}", name)
    if branch.stub is not None:
        stub = f"{name}_stub"
        graph.node(stub, str(branch.stub), shape="box", style="dotted", **{"class": "stub"})
        graph.edge(name, stub, style="dotted", arrowhead="none")


def _label(node: NodeSnapshot, mark: Mark | None, decode: Decode | None) -> str:
    """An HTML-like label of Graphviz: token ids, slots, counts, and what has happened."""
    lines = [f"<b>{escape(show_tokens(node.key, decode))}</b>", escape(show_slots(node.value))]
    lines.append(f'<font point-size="9">{show_use(node)}</font>')
    if node.namespace:
        lines.append(f'<font point-size="9">{escape(node.namespace)}</font>')
    if mark:
        lines.append(f"<i>{escape(mark.words)}</i>")
    label = "<br/>".join(lines).replace("\\", r"\\")  # else \N, say, is the node's name
    return f"<{label}>"


def _packaged_dot() -> str | None:
    """The program of graphviz-pure: on the PATH, or beside this Python."""
    import sysconfig

    name = "graphviz-pure"
    return shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))


def _accessible(svg: str, label: str, told: str) -> str:
    """Graphviz's SVG as one labelled image, without ids that would meet on a page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\s*|<title>.*?</title>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[^"]*"', "", svg)
    head = f'<svg role="img" class="rl-dot" aria-label="{escape(label)}"'
    title = f"<title>{escape(label)}</title><desc>{escape(told)}</desc>"
    return svg.replace("<svg", head, 1).replace(">", f">{title}", 1).strip()
