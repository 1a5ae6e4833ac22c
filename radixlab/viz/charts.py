"""Tables of rates in colour; and charts that say why a radix tree and no trie.

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
from radixlab.viz.theme import style_sheet
from radixlab.viz.words import escape

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
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter("{x:,.0f}")
            axes.legend()
    return figure


@dataclass(frozen=True, slots=True)
class RateTable:
    """What `draw_rates` gives: a table for a page, and as text for all others."""

    rates: Mapping[str, Mapping[str, float]]
    last_is_best: bool = True

    def is_near_best(self, row: str, column: str) -> bool:
        """Whether a rate comes within half a percent of the last row's."""
        best = self.rates[list(self.rates)[-1]]
        return self.last_is_best and self.rates[row][column] >= best[column] - 0.005

    def _repr_html_(self) -> str:
        columns = next(iter(self.rates.values()))
        heads = "".join(f'<th scope="col"><span>{escape(column)}</span></th>' for column in columns)
        rows = "".join(
            f'<tr><th scope="row">{escape(row)}</th>'
            + "".join(self._cell(row, column) for column in columns)
            + "</tr>"
            for row in self.rates
        )
        best = " rl-best" * self.last_is_best
        return f"""<div class="radixlab rl-figure"><style>{style_sheet()}{RATES}</style>
<table class="rl-rates{best}"><thead><tr><td></td>{heads}</tr></thead>
<tbody>{rows}</tbody></table></div>"""

    def _cell(self, row: str, column: str) -> str:
        rate = self.rates[row][column]
        text = f"{100 * rate:.0f}&nbsp;%"
        shown = f"<b>{text}</b>" if self.is_near_best(row, column) else text
        return f'<td style="--rate:{100 * rate:.0f}">{shown}</td>'

    def __str__(self) -> str:
        columns = list(next(iter(self.rates.values())))
        first = max(map(len, self.rates))
        lines = [" " * first + "".join(f"  {column}" for column in columns)]
        for row, rates in self.rates.items():
            cells = (f"  {f'{100 * rates[column]:.0f} %':>{len(column)}}" for column in columns)
            lines.append(f"{row:{first}}" + "".join(cells))
        return "\n".join(lines)

    __repr__ = __str__


RATES = """
.radixlab .rl-rates { border-collapse: collapse; margin: 0; text-align: center; }
.radixlab .rl-rates :is(td, th) { padding: .3em .5em; border: 0; text-align: inherit; }
.radixlab .rl-rates th { font-weight: 400; }
.radixlab .rl-rates th[scope=row] { text-align: left; }
.radixlab .rl-rates tbody tr { background: none; }
.radixlab .rl-rates td[style] {
  background: color-mix(in srgb, var(--rl-accent) calc(var(--rate) * .4%), transparent);
}
.radixlab .rl-rates.rl-best tbody tr:last-child > * { border-top: 2px solid var(--rl-muted); }
.radixlab .rl-rates b { font-weight: 700; }
@media (max-width: 40rem) {
  .radixlab .rl-rates { font-size: .75rem; }
  .radixlab .rl-rates :is(td, th) { padding: .25em .15em; }
  .radixlab .rl-rates thead th { vertical-align: bottom; }
  .radixlab .rl-rates thead span { display: block; writing-mode: vertical-rl; rotate: 180deg; }
}
"""
"""How such a table looks; on a phone its columns' names stand upright, so that it fits."""


def draw_rates(rates: Mapping[str, Mapping[str, float]], last_is_best: bool = True) -> RateTable:
    """Rates from 0 to 1 as a coloured table, in percent: rates[row][column].

    With `last_is_best` the last row is set off as what the others are measured by; whoever comes
    within half a percent of it is set in bold.
    """
    return RateTable(rates, last_is_best)


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
