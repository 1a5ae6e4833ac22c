"""The radix tree: token ids on compressed edges, token slots beside them (chapter, section 3).

A node's edge is a run of token ids (`key`) and the slots of the KV cache pool that hold their K and
V (`value`), one slot per id. The whole sequence of a node is the concatenation of the keys from the
root down. Nothing here knows of requests, locks' owners or tensors.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator
from operator import itemgetter

from radixlab.errors import InvalidArgument, InvalidPageSize, LengthMismatch
from radixlab.tokens import TOKEN_BYTES, Namespace, brief

KeyFn = Callable[[bytes], bytes]
"""From a key to the index under which its node hangs: the first page of token ids."""

ChildKey = bytes | tuple[Namespace, bytes]
"""A first page; below the root together with the namespace, if there is one."""


class RadixTreeNode:
    """One compressed edge and the subtree below it (chapter, section 3.2).

    `ref_count` counts the holders of the path through this node; `timestamp` is the logical time of
    its last use; `end` is where the edge ends in a full key, in bytes; `child_key` is the index
    under which the parent holds it; `border` says that an insertion has ended here. `hits`,
    `priority` and `created` (a logical time, the same in all parts of a leaf that was split) are
    what eviction strategies may ask for. Key and value are set later, by `set_key_value`.
    """

    __slots__ = (
        "_key",
        "border",
        "child_key",
        "children",
        "counter",
        "created",
        "end",
        "hits",
        "key_fn",
        "parent",
        "priority",
        "ref_count",
        "timestamp",
        "uuid",
        "value",
    )

    _key: bytes
    value: array[int]
    child_key: ChildKey

    def __init__(self, key_fn: KeyFn, counter: Iterator[int]) -> None:
        self.key_fn, self.counter = key_fn, counter
        self.uuid = self.created = next(counter)
        self.children: dict[ChildKey, RadixTreeNode] = {}
        self.parent: RadixTreeNode | None = None
        self.border = False
        self.ref_count = self.timestamp = self.hits = self.priority = self.end = 0

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """For copies: all but the way up, on which each node would take along all the others."""
        return None, {name: getattr(self, name) for name in self.__slots__} | {"parent": None}

    @property
    def key(self) -> memoryview:
        """The edge's token ids: an int32 view over the stored bytes, without a copy."""
        return memoryview(self._key).cast("i")

    @property
    def length(self) -> int:
        """Tokens on the edge, as many as slots."""
        return len(self.value)

    @property
    def path_len(self) -> int:
        """Tokens from the root to the end of this edge."""
        return self.end // TOKEN_BYTES

    @property
    def namespace(self) -> Namespace | None:
        """What the path is shared within; None unless a namespace was given on insertion."""
        top = (self.path() or [self])[0]
        return top.child_key[0] if isinstance(top.child_key, tuple) else None

    def is_root(self) -> bool:
        """Whether this is the root, or a node that was taken out of its tree."""
        return self.parent is None

    def is_leaf(self) -> bool:
        """Whether no longer sequence continues here."""
        return not self.children

    def set_key_value(self, key: bytes, value: array[int]) -> None:
        """Give the edge its token ids (int32 bytes) and their slots; one slot for each id."""
        if len(key) != len(value) * TOKEN_BYTES:
            raise LengthMismatch(len(key) // TOKEN_BYTES, len(value))
        self._key, self.value = key, value

    def set_parent(self, parent: RadixTreeNode, namespace: Namespace | None = None) -> None:
        """Hang the node below `parent`; a namespace becomes part of the child key."""
        page = self.key_fn(self._key)
        self.child_key = page if namespace is None else (namespace, page)
        self.end = parent.end + len(self._key)
        self.parent = parent
        parent.children[self.child_key] = self

    def get_match_len(self, key: bytes, start: int = 0, end: int | None = None) -> int:
        """How many tokens of this edge agree with `key[start:end]` (positions in bytes).

        Halves the distance until the first difference is found: `low` tokens agree, `high` don't.
        """
        edge = self._key
        available = (len(key) if end is None else end) - start
        low, high = 0, min(len(edge), available) // TOKEN_BYTES + 1
        while high - low > 1:
            middle = (low + high) // 2
            part = edge[low * TOKEN_BYTES : middle * TOKEN_BYTES]
            if key.startswith(part, start + low * TOKEN_BYTES):
                low = middle
            else:
                high = middle
        return low

    def split_at(self, position: int) -> RadixTreeNode:
        """Cut the edge after `position` tokens and return the new upper node (section 3.3).

        The upper node takes the first part and this node's place below the parent; this node keeps
        the rest, its uuid and its children, so whoever holds it still holds the same tokens. Only
        metadata moves: every token keeps its slot. The upper node is held by the same requests,
        and as old, as used and as important as this one.
        """
        if not 0 < position < self.length:
            raise InvalidArgument("position", position, f"from 1 to {self.length - 1}")
        parent, cut = self.parent, position * TOKEN_BYTES
        assert parent is not None, "the root has no edge"
        upper = RadixTreeNode(self.key_fn, self.counter)
        upper.set_key_value(self._key[:cut], self.value[:position])
        upper.ref_count, upper.timestamp = self.ref_count, self.timestamp
        upper.hits, upper.priority, upper.created = self.hits, self.priority, self.created
        upper.parent, upper.child_key, upper.end = parent, self.child_key, parent.end + cut
        parent.children[upper.child_key] = upper
        self.set_key_value(self._key[cut:], self.value[position:])
        self.set_parent(upper)
        return upper

    def absorb_parent(self) -> None:
        """Undo a split: this only child takes the tokens and the place of its parent.

        The parent is out of the tree then; whoever holds this node still holds the same tokens.
        """
        upper = self.parent
        assert upper is not None and upper.parent is not None, "the root is never absorbed"
        self._key, self.value = upper._key + self._key, upper.value + self.value
        self.parent, self.child_key, upper.parent = upper.parent, upper.child_key, None
        self.parent.children[self.child_key] = self

    def path(self) -> list[RadixTreeNode]:
        """The nodes from below the root down to this one."""
        nodes: list[RadixTreeNode] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def __repr__(self) -> str:
        return f"<RadixTreeNode {self.uuid}: {self.length} tokens, ref_count {self.ref_count}>"


class RadixTree:
    """A compressed prefix tree over token ids; edges are cut at page borders only.

    The root is empty, stores nothing and is never removed. `page_size` is in tokens.
    """

    def __init__(self, page_size: int = 1) -> None:
        if type(page_size) is not int or page_size < 1:
            raise InvalidPageSize(page_size)
        self.page_size, self.page_bytes = page_size, page_size * TOKEN_BYTES
        self.on_split: Callable[[RadixTreeNode], object] = id  # nobody wants to know
        self._key_fn: KeyFn = itemgetter(slice(self.page_bytes))  # a lambda can't be pickled
        self._counter = iter(range(sys.maxsize))  # itertools.count can't be copied in Python 3.14
        self.root = RadixTreeNode(self._key_fn, self._counter)
        self.root.set_key_value(b"", array("i"))
        self.root.child_key = b""
        self.root.ref_count, self.root.border = 1, True  # never evicted, nor absorbed

    def __getstate__(self) -> tuple[list[RadixTreeNode], dict[str, object]]:
        """For copies: a node after its children, so that none takes a stack as deep as its path."""
        return [*self.nodes()][::-1], {**self.__dict__}

    def __setstate__(self, state: tuple[list[RadixTreeNode], dict[str, object]]) -> None:
        nodes, self.__dict__ = state
        for node in nodes:
            for child in node.children.values():
                child.parent = node

    def walk(
        self, key: bytes, end: int, start: RadixTreeNode, namespace: Namespace | None = None
    ) -> RadixTreeNode:
        """Follow `key[:end]` (bytes) from the node `start` down; return where the agreement ends.

        If that is inside an edge, the edge is split there, at the last whole page, and `on_split`
        is told of the new upper node.
        """
        node, pos, page_bytes = start, start.end, self.page_bytes
        page = key[pos : pos + page_bytes]
        index: ChildKey = page
        if namespace is not None and start is self.root:
            index = (namespace, page)
        last_page = end - page_bytes
        while pos <= last_page and (child := node.children.get(index)) is not None:
            # an edge of one page is its child key, which has been compared
            if child.end - pos > page_bytes and not key.startswith(child._key, pos, end):
                agree = child.get_match_len(key, pos, end)
                upper = child.split_at(agree - agree % self.page_size)
                self.on_split(upper)
                return upper
            node, pos = child, child.end
            index = key[pos : pos + page_bytes]
        return node

    def add_leaf(
        self, parent: RadixTreeNode, key: bytes, value: array[int], namespace: Namespace | None
    ) -> RadixTreeNode:
        """A new leaf below `parent`; the namespace counts only below the root."""
        leaf = RadixTreeNode(self._key_fn, self._counter)
        leaf._key, leaf.value = key, value
        leaf.parent, leaf.end = parent, parent.end + len(key)
        page = key[: self.page_bytes]
        leaf.child_key = page if namespace is None or parent is not self.root else (namespace, page)
        parent.children[leaf.child_key] = leaf
        return leaf

    def remove_leaf(self, leaf: RadixTreeNode) -> RadixTreeNode:
        """Take a leaf out of the tree, and return its parent; `parent` None marks it as gone."""
        parent = leaf.parent
        assert parent is not None, "the root is never removed"
        del parent.children[leaf.child_key]
        leaf.parent = None
        return parent

    def nodes(self) -> Iterator[RadixTreeNode]:
        """All nodes, the root first, each before its children, children in order of insertion."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def __str__(self) -> str:
        lines, stack = ["root"], _below(self.root, "")
        while stack:
            node, indent, last = stack.pop()
            held = f"  ref_count {node.ref_count}" if node.ref_count else ""
            space = f"  namespace {node.namespace}" if isinstance(node.child_key, tuple) else ""
            arrow = f"{brief(node.key)} -> {brief(node.value, 'p')}"
            lines.append(f"{indent}{'└── ' if last else '├── '}{arrow}{held}{space}")
            stack += _below(node, indent + ("    " if last else "│   "))
        return "\n".join(lines)


def _below(node: RadixTreeNode, indent: str) -> list[tuple[RadixTreeNode, str, bool]]:
    """The children with their indent, the last one first, and which one that is."""
    return [(child, indent, i == 0) for i, child in enumerate(reversed(node.children.values()))]
