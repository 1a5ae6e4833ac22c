"""Which cached prefix goes first when slots run short (chapter, section 4.2, step 7).

A strategy keeps the unlocked nodes and names the next leaf to evict. The cache tells it three
things: a node may be evicted from now on (`add`), may not any more (`remove`), was used (`touch`).
Here is the one that the chapter describes; the others are in `radixlab.strategies`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol

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
        order = self._order = OrderedDict[RadixTreeNode, None]()
        self.add = order.setdefault  # appends, with the default None
        self.remove = order.__delitem__
        self.touch = order.move_to_end

    def pop(self) -> RadixTreeNode:
        """The least recently used leaf."""
        return self._order.popitem(False)[0]

    def __reduce__(self) -> tuple[type[LRU], tuple[()], list[RadixTreeNode]]:
        return LRU, (), list(self._order)  # the methods above belong to one dictionary

    def __setstate__(self, order: list[RadixTreeNode]) -> None:
        for node in order:
            self.add(node)

    def __iter__(self) -> Iterator[RadixTreeNode]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)
