"""SGLang's eviction strategies by name: what a cached prefix is worth, as a key to sort by.

The core has LRU, in O(1) for each call (`radixlab.eviction`). All others are one heap with another
key. Belady's, which needs to know the future, evicts single pages: see `radixlab.simulate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

from radixlab.errors import InvalidArgument
from radixlab.eviction import LRU, EvictionStrategy
from radixlab.tree import RadixTreeNode

EvictionKey = Callable[[RadixTreeNode], tuple[int, ...]]
"""What a node is worth; of all unlocked leaves the one with the smallest key goes first."""

KEYS: dict[str, EvictionKey] = {
    "lru": lambda node: (node.timestamp,),
    "lfu": lambda node: (node.hits, node.timestamp),
    "fifo": lambda node: (node.created,),
    "filo": lambda node: (-node.created,),
    "mru": lambda node: (-node.timestamp,),
    "slru": lambda node: (node.hits >= 2, node.timestamp),  # on probation, or protected
    "priority": lambda node: (node.priority, node.timestamp),
}
"""The keys of SGLang's `evict_policy.py`, but for tlru, which guesses what a next turn adds."""


class SmallestKey:
    """The leaf with the smallest key first: a heap with stale entries in it, O(log n) on average.

    A leaf is pushed whenever its key may have changed, and a parent when it becomes a leaf. What a
    pop finds is good if it still is what was pushed: an unlocked leaf with that key.
    """

    counts_hits = True

    def __init__(self, key: EvictionKey) -> None:
        self._key = key
        self._nodes: dict[RadixTreeNode, None] = {}
        self._heap: list[tuple[tuple[int, ...], int, RadixTreeNode]] = []

    def __getstate__(self) -> dict[str, Any]:
        """A key of `KEYS` travels by its name: a lambda can't be pickled."""
        names = {key: name for name, key in KEYS.items()}
        return {**self.__dict__, "_key": names.get(self._key, self._key)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _key=KEYS.get(state["_key"], state["_key"]))

    def add(self, node: RadixTreeNode) -> None:
        """From now on the node may go, once it is a leaf."""
        self._nodes[node] = None
        self.touch(node)

    def remove(self, node: RadixTreeNode) -> None:
        """Its entries in the heap are stale now."""
        del self._nodes[node]

    def touch(self, node: RadixTreeNode) -> None:
        """Its key may be another; entries under the old one are stale now."""
        if not node.children:
            heappush(self._heap, self._entry(node))
            self._forget_stale()

    def pop(self) -> RadixTreeNode:
        """The unlocked leaf with the smallest key; of equal ones the node that was made first."""
        while True:
            entry = heappop(self._heap)
            node = entry[2]
            if node in self._nodes and not node.children and entry == self._entry(node):
                break
        del self._nodes[node]
        self._forget_stale()  # before the parent is pushed: it has this child until we return
        parent = node.parent
        if parent in self._nodes and len(parent.children) == 1:
            heappush(self._heap, self._entry(parent))
        return node

    def _forget_stale(self) -> None:
        """Make the heap anew once most of it is stale: such entries keep evicted nodes alive."""
        if len(self._heap) > 2 * len(self._nodes) + 16:
            self._heap = [self._entry(n) for n in self._nodes if not n.children]
            heapify(self._heap)

    def _entry(self, node: RadixTreeNode) -> tuple[tuple[int, ...], int, RadixTreeNode]:
        return self._key(node), node.uuid, node

    def __iter__(self) -> Iterator[RadixTreeNode]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


STRATEGIES: dict[str, Callable[[], EvictionStrategy]] = {
    name: LRU if name == "lru" else partial(SmallestKey, key) for name, key in KEYS.items()
}
"""How to make each strategy, by its name in SGLang."""


def make_strategy(name: str) -> EvictionStrategy:
    """A new strategy for one cache; raises `InvalidArgument` for a name not in `STRATEGIES`."""
    if name not in STRATEGIES:
        raise InvalidArgument("eviction", name, f"one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]()
