"""Two textbook prefix caches to compare with: a trie, and a radix tree with Python lists.

Both keep what a first implementation keeps: token ids and slots in lists, a time stamp on each
node, the set of leaves, and a heap of all of them whenever something must go.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator


class Node:
    """Some tokens, their slots, and what follows them.

    `border` says that a match or an insertion has ended here: from border to border a path is
    evicted as a whole.
    """

    __slots__ = ("border", "children", "depth", "parent", "ref_count", "slots", "time", "tokens")

    def __init__(self, parent: Node | None, tokens: list[int], slots: list[int]) -> None:
        self.parent, self.tokens, self.slots = parent, tokens, slots
        self.depth: int = len(tokens) + (0 if parent is None else parent.depth)
        self.children: dict[Hashable, Node] = {}
        self.ref_count = self.time = 0
        self.border = False


class Textbook(ABC):
    """What both have in common; sizes in tokens."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.root = Node(None, [], [])
        self.root.border = True
        self.leaves: set[Node] = set()
        self.now = 0

    @abstractmethod
    def walk(self, tokens: list[int], end: int) -> Node:
        """The node at which the agreement with `tokens[:end]` ends, in whole pages."""

    @abstractmethod
    def grow(self, node: Node, tokens: list[int], slots: list[int]) -> Node:
        """Hang tokens below a node; the last new node."""

    def match(self, tokens: list[int], limit: int) -> Node:
        """The longest cached prefix of the first `limit` tokens."""
        node = self.walk(tokens, limit)
        node.border = True
        self.touch(node)
        return node

    def insert(self, tokens: list[int], slots: list[int]) -> tuple[int, Node]:
        """Cache the whole pages; how many tokens were there before, and where they end."""
        end = len(tokens) - len(tokens) % self.page_size
        node = self.walk(tokens, end)
        node.border = True
        found = node.depth
        if found < end:
            self.leaves.discard(node)
            node = self.grow(node, tokens[found:end], slots[found:end])
            node.border = True
            self.leaves.add(node)
        self.touch(node)
        return found, node

    def lock(self, node: Node) -> None:
        """Protect a path."""
        for part in self.upwards(node):
            part.ref_count += 1

    def unlock(self, node: Node) -> None:
        """Let go of a path, which counts as used now."""
        for part in self.upwards(node):
            part.ref_count -= 1
        self.touch(node)

    def evict(self, num_tokens: int) -> list[int]:
        """The slots of the unlocked edges used longest ago, at least `num_tokens`."""
        heap = [(leaf.time, leaf.depth, leaf) for leaf in self.leaves if not leaf.ref_count]
        heapq.heapify(heap)
        slots: list[int] = []
        while len(slots) < num_tokens:
            node = heapq.heappop(heap)[-1]
            self.leaves.remove(node)
            removed: list[list[int]] = []
            while True:
                parent = node.parent
                assert parent is not None
                removed.append(node.slots)
                del parent.children[self.child_key(node.tokens, 0)]
                node = parent
                if node.border:
                    break
            for part in reversed(removed):
                slots += part
            if node is not self.root and not node.children:
                self.leaves.add(node)
                if not node.ref_count:
                    heapq.heappush(heap, (node.time, node.depth, node))
        return slots

    def child_key(self, tokens: list[int], start: int) -> Hashable:
        """What a node is found by below its parent: the page of tokens that begins at `start`."""
        if self.page_size == 1:
            return tokens[start]
        return tuple(tokens[start : start + self.page_size])

    def path_slots(self, node: Node) -> list[int]:
        """The slots from the root to a node."""
        slots: list[int] = []
        for part in reversed(list(self.upwards(node))):
            slots += part.slots
        return slots

    def touch(self, node: Node) -> None:
        """Stamp a path with the present time."""
        self.now += 1
        for part in self.upwards(node):
            part.time = self.now

    def upwards(self, node: Node) -> Iterator[Node]:
        """A node and those above it, without the root."""
        while node.parent is not None:
            yield node
            node = node.parent

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()


class TokenTrie(Textbook):
    """One node for each token (each page, if pages are larger)."""

    def walk(self, tokens: list[int], end: int) -> Node:
        node, page_size = self.root, self.page_size
        for start in range(0, end - page_size + 1, page_size):
            child = node.children.get(self.child_key(tokens, start))
            if child is None:
                break
            node = child
        return node

    def grow(self, node: Node, tokens: list[int], slots: list[int]) -> Node:
        for start in range(0, len(tokens), self.page_size):
            page = slice(start, start + self.page_size)
            child = Node(node, tokens[page], slots[page])
            node.children[self.child_key(tokens, start)] = child
            node = child
        return node


class ListRadixTree(Textbook):
    """One node for each run of tokens without a branch."""

    def walk(self, tokens: list[int], end: int) -> Node:
        node, page_size = self.root, self.page_size
        while node.depth + page_size <= end:
            child = node.children.get(self.child_key(tokens, node.depth))
            if child is None:
                break
            agree = self.agreement(child.tokens, tokens[node.depth : end])
            agree -= agree % page_size
            if agree < len(child.tokens):
                return self.split(child, agree)
            node = child
        return node

    def grow(self, node: Node, tokens: list[int], slots: list[int]) -> Node:
        leaf = Node(node, tokens, slots)
        node.children[self.child_key(tokens, 0)] = leaf
        return leaf

    def agreement(self, edge: list[int], tokens: list[int]) -> int:
        """How many tokens are equal before the first that differs."""
        count = 0
        for mine, yours in zip(edge, tokens, strict=False):
            if mine != yours:
                break
            count += 1
        return count

    def split(self, lower: Node, position: int) -> Node:
        """Cut an edge; the upper node."""
        assert lower.parent is not None
        upper = Node(lower.parent, lower.tokens[:position], lower.slots[:position])
        upper.ref_count, upper.time = lower.ref_count, lower.time
        lower.parent.children[self.child_key(lower.tokens, 0)] = upper
        lower.tokens, lower.slots = lower.tokens[position:], lower.slots[position:]
        lower.parent = upper
        upper.children[self.child_key(lower.tokens, 0)] = lower
        return upper
