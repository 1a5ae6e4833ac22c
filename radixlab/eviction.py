"""Which cached prefix goes first when slots run short (chapter, section 4.2, step 7).

A strategy keeps the unlocked nodes and names the next leaf to evict. The cache tells it three
things: a node may be evicted from now on (`add`), may not any more (`remove`), was used (`touch`).
`STRATEGIES` lists what SGLang has, by its names. (Belady's, which needs to know the future, evicts
single pages: see `radixlab.simulate`.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Protocol

from radixlab.errors import InvalidArgument
from radixlab.tree import RadixTreeNode


class EvictionStrategy(Protocol):
    """The unlocked nodes of one cache; the cache adds and touches a child before its parent."""

    @property
    def counts_hits(self) -> bool:
        """Whether the cache keeps `hits` and `priority` of its nodes: one more walk per insert."""

    def add(self, node: RadixTreeNode, /) -> object:
        """The node is held by nobody from now on."""

    def remove(self, node: RadixTreeNode, /) -> object:
        """The node is held again."""

    def touch(self, node: RadixTreeNode, /) -> object:
        """An unlocked node was matched or inserted again."""

    def pop(self) -> RadixTreeNode:
        """Give up the least valuable unlocked leaf."""

    def __contains__(self, node: object, /) -> bool: ...

    def __iter__(self) -> Iterator[RadixTreeNode]: ...

    def __len__(self) -> int: ...


class LRU:
    """Least recently used first, in O(1) for each call.

    One ordered dictionary in which a child always precedes its parent, because paths are added and
    touched from the bottom up. Its first entry is therefore always a leaf, and the one whose last
    use is longest ago: no heap, no clock, no walk over the tree.
    """

    counts_hits = False

    def __init__(self) -> None:
        order: OrderedDict[RadixTreeNode, None] = OrderedDict()
        self._order = order
        self.add = order.setdefault  # appends, with the default None
        self.remove = order.__delitem__
        self.touch = order.move_to_end

    def pop(self) -> RadixTreeNode:
        """The least recently used leaf."""
        return self._order.popitem(last=False)[0]

    def __deepcopy__(self, memo: dict[int, object]) -> LRU:
        copied = memo[id(self)] = LRU()  # the methods above belong to one dictionary
        for node in self._order:
            copied.add(deepcopy(node, memo))
        return copied

    def __contains__(self, node: object) -> bool:
        return node in self._order

    def __iter__(self) -> Iterator[RadixTreeNode]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


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
"""The keys of SGLang's `evict_policy.py`."""


class SmallestKey:
    """The leaf with the smallest key first, in O(log n): a heap with stale entries in it.

    A leaf is pushed whenever its key may have changed, and a parent when it becomes a leaf. What a
    pop finds is good if it still is what was pushed: an unlocked leaf with that key.
    """

    counts_hits = True

    def __init__(self, key: EvictionKey) -> None:
        self._key = key
        self._nodes: dict[RadixTreeNode, None] = {}
        self._heap: list[tuple[tuple[int, ...], int, RadixTreeNode]] = []

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
            if len(self._heap) > 2 * len(self._nodes) + 16:
                self._heap = [self._entry(n) for n in self._nodes if not n.children]
                heapify(self._heap)

    def pop(self) -> RadixTreeNode:
        """The unlocked leaf with the smallest key; of equal ones the node that was made first."""
        while True:
            entry = heappop(self._heap)
            node = entry[2]
            if node in self._nodes and not node.children and entry == self._entry(node):
                break
        del self._nodes[node]
        parent = node.parent
        if parent in self._nodes and len(parent.children) == 1:
            heappush(self._heap, self._entry(parent))
        return node

    def _entry(self, node: RadixTreeNode) -> tuple[tuple[int, ...], int, RadixTreeNode]:
        return self._key(node), node.uuid, node

    def __contains__(self, node: object) -> bool:
        return node in self._nodes

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
