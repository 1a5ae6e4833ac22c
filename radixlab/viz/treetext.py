"""A radix tree in words: what is printed where nothing can be drawn, and what a picture is called.

A screen reader reads a picture's description in one breath, so there a level's number stands for
the indent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from radixlab.snapshot import NodeSnapshot
from radixlab.viz.fold import Branch, fold
from radixlab.viz.marks import Mark
from radixlab.viz.words import Decode, count, show_slots, show_tokens, show_use


def tree_title(nodes: Sequence[NodeSnapshot]) -> str:
    """The name of a tree's picture."""
    return f"Radix tree, {count(len(nodes) - 1, 'node')} below the root"


def tree_text(
    nodes: Sequence[NodeSnapshot], marks: Mapping[int, Mark], decode: Decode | None = None
) -> str:
    """The whole tree in lines of text, marks included."""
    lines = _lines(fold(nodes, marks, len(nodes)), marks, decode)
    return "\n".join(["root", *("  " * depth + words for depth, words in lines)])


def tree_told(root: Branch, marks: Mapping[int, Mark], decode: Decode | None = None) -> str:
    """What is drawn of a tree, as the description of its picture."""
    return " ".join(f"Level {depth}: {words}." for depth, words in _lines(root, marks, decode))


def _lines(
    root: Branch, marks: Mapping[int, Mark], decode: Decode | None
) -> Iterator[tuple[int, str]]:
    """Depth (the root has 0) and words of each node but the root, parents first."""
    depth = {root.node.uuid: 0}
    for branch in root.walk():
        node = branch.node
        if node.parent is not None:
            depth[node.uuid] = depth[node.parent] + 1
            yield depth[node.uuid], _words(node, marks.get(node.uuid), decode)
        if branch.stub is not None:
            yield depth[node.uuid] + 1, str(branch.stub)


def _words(node: NodeSnapshot, mark: Mark | None, decode: Decode | None) -> str:
    parts = [f"{show_tokens(node.key, decode)} -> {show_slots(node.value)}", show_use(node)]
    parts += [f"namespace {node.namespace}"] if node.namespace else []
    parts += [mark.words] if mark else []
    return "; ".join(parts)
