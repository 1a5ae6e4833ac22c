"""Charts of the book: tables of rates in colour; and why a radix tree and no trie.

The trie is the plain one of the chapter (section 3.1): one node for each token, its children in a
dictionary. Both trees are built of the same prompts, and counted.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from radixlab.cache import RadixCache
from radixlab.tokens import encode
from radixlab.tree import RadixTree
from radixlab.viz.style import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(slots=True)
class TrieNode:
    """One token of one path: its slot, and the tokens that follow."""

    slot: int = -1
    children: dict[int, TrieNode] = field(default_factory=dict)


class TreeCounts(NamedTuple):
    """A trie and a radix tree of the same prompts, counted.

    Look-ups are those in dictionaries that it takes to find the last prompt again; bytes are those
    of nodes, keys, slots and dictionaries.
    """

    prompt_len: int
    trie_nodes: int
    radix_nodes: int
    trie_lookups: int
    radix_lookups: int
    trie_bytes: int
    radix_bytes: int


def shared_prompts(length: int, count: int = 8) -> list[list[int]]:
    """`count` prompts of `length` tokens; neighbours share all but the last quarter, or half."""
    prompts = []
    for i in range(count):
        shared = length // 2 if i % 2 else length * 3 // 4
        prompts.append([*range(shared), *(1_000_000 * (i + 1) + k for k in range(length - shared))])
    return prompts


def count_trees(prompts: Sequence[Sequence[int]]) -> TreeCounts:
    """Build both trees of the prompts and count."""
    trie, cache, slot = TrieNode(), RadixCache(), 0
    for prompt in prompts:
        node = trie
        for token in prompt:
            if token not in node.children:
                node.children[token] = TrieNode(slot)
            node, slot = node.children[token], slot + 1
        cache.insert_prefix(prompt, array("i", range(slot - len(prompt), slot)))
    path = cache.match_prefix(prompts[-1]).node.path()
    nodes = list(_trie_nodes(trie))
    return TreeCounts(
        prompt_len=len(prompts[-1]),
        trie_nodes=len(nodes) - 1,
        radix_nodes=sum(1 for _ in cache.tree.nodes()) - 1,
        trie_lookups=len(prompts[-1]),
        radix_lookups=len(path),
        trie_bytes=sum(sys.getsizeof(n) + sys.getsizeof(n.children) for n in nodes),
        radix_bytes=_radix_bytes(cache.tree),
    )


def plot_trees(lengths: Iterable[int] = (8, 16, 32, 64, 128, 256, 512, 1024)) -> Figure:
    """Nodes, look-ups and bytes of a trie and of a radix tree, as prompts grow.

    Eight prompts that share half or three quarters of their tokens; both axes are logarithmic.
    """
    from matplotlib.figure import Figure

    counts = [count_trees(shared_prompts(length)) for length in lengths]
    x = [each.prompt_len for each in counts]
    panels = [("nodes", "nodes"), ("lookups", "look-ups for one prompt"), ("bytes", "bytes")]
    with style():
        figure = Figure(figsize=(9, 3))
        for axes, (name, title) in zip(figure.subplots(1, 3), panels, strict=True):
            for tree in ("trie", "radix"):
                y = [getattr(each, f"{tree}_{name}") for each in counts]
                axes.plot(x, y, label="trie" if tree == "trie" else "radix tree")
            axes.set(xscale="log", yscale="log", title=title, xlabel="tokens in a prompt")
            axes.legend()
    return figure


def plot_rates(rates: Mapping[str, Mapping[str, float]], last_is_best: bool = True) -> Figure:
    """Rates from 0 to 1 as a coloured table, in percent: rates[row][column].

    With `last_is_best` the last row is set off as what the others are measured by; whoever comes
    within half a percent of it is set in bold.
    """
    from matplotlib.figure import Figure

    rows, columns = list(rates), list(next(iter(rates.values())))
    best = rates[rows[-1]] if last_is_best else {}
    with style():
        figure = Figure(figsize=(2 + 1.05 * len(columns), 0.9 + 0.36 * len(rows)))
        axes = figure.subplots()
        values = [[rates[row][column] for column in columns] for row in rows]
        axes.imshow(values, cmap="Blues", vmin=0, vmax=1.6, aspect="auto")
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                near = column in best and rates[row][column] >= best[column] - 0.005
                text = f"{100 * rates[row][column]:.0f} %"
                axes.text(x, y, text, ha="center", va="center", weight="bold" if near else None)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        if last_is_best:
            axes.axhline(len(rows) - 1.5, color="#57606a", linewidth=1.5, marker="", linestyle="-")
    return figure


def _trie_nodes(root: TrieNode) -> Iterable[TrieNode]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += node.children.values()


def _radix_bytes(tree: RadixTree) -> int:
    """Node, key, slots, and the dictionary of children with its keys."""
    total = 0
    for node in tree.nodes():
        total += sys.getsizeof(node) + sys.getsizeof(node.children)
        total += sys.getsizeof(encode(node.key)) + sys.getsizeof(node.value)
        total += sum(sys.getsizeof(key) for key in node.children)
    return total
