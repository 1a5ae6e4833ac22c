"""The prefix cache: a radix tree whose nodes are matched, locked, inserted and evicted.

This is the tree at work (chapter, section 4.2); it knows slots only as numbers. The rules are those
of mini-SGLang's RadixPrefixCache: evicted slots are returned, and the caller frees them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from operator import attrgetter
from typing import Final

from radixlab.errors import (
    AlreadyLocked,
    ForeignHandle,
    InvalidArgument,
    LengthMismatch,
    NotLocked,
    PoolExhausted,
    StaleHandle,
    StillLocked,
)
from radixlab.events import AllBlocksCleared, BlockRemoved, BlockStored, Observer, page_hashes
from radixlab.eviction import LRU, EvictionStrategy
from radixlab.tokens import TOKEN_BYTES, Namespace, TokenIds, encode
from radixlab.tree import RadixTree, RadixTreeNode


class CacheHandle:
    """The key to a cached prefix: which node it ends at and how many tokens it covers.

    It protects nothing until it is locked, and holds at most one lock. `inserted` says that it came
    from an insertion, which has counted its path as hit.
    """

    __slots__ = ("cache", "cached_len", "inserted", "locked", "node")

    def __init__(self, cache: RadixCache, node: RadixTreeNode, inserted: bool = False) -> None:
        self.cache, self.node, self.inserted = cache, node, inserted
        self.cached_len = node.end // TOKEN_BYTES
        self.locked = False

    @property
    def value(self) -> array[int]:
        """The prefix's token slots, gathered along the path from the root (a copy).

        Raises `StaleHandle` when the prefix was evicted since the match.
        """
        parts, node = [], self.node
        while (parent := node.parent) is not None:
            parts.append(node.value)
            node = parent
        if node is not self.cache.tree.root:
            raise StaleHandle(self.cached_len)
        if len(parts) < 2:
            return parts[0][:] if parts else array("i")
        parts.reverse()
        return array("i", b"".join(parts))

    def __repr__(self) -> str:
        state = "locked" if self.locked else "not locked"
        return f"<CacheHandle of {self.cached_len} tokens at node {self.node.uuid}, {state}>"


class InsertResult:
    """How many tokens were in the tree already, and a handle to all that is there now."""

    __slots__ = ("cached_len", "handle")

    def __init__(self, cached_len: int, handle: CacheHandle) -> None:
        self.cached_len, self.handle = cached_len, handle

    def __repr__(self) -> str:
        return f"<InsertResult: {self.cached_len} tokens were there, {self.handle}>"


_USE: Final = attrgetter("timestamp", "ref_count", "hits", "priority")
"""How a node has been used since it was created: what a split copies and a heal compares."""


class RadixCache:
    """A radix tree with path locks, sizes and an eviction order.

    `page_size` in tokens; only whole pages are cached. `strategy` decides what goes first (LRU).
    Token ids are whatever `radixlab.tokens.encode` takes; a `Namespace` keeps equal ids apart. An
    `observer` is told what is stored and removed (`radixlab.events`).
    """

    def __init__(
        self,
        page_size: int = 1,
        strategy: EvictionStrategy | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.tree = RadixTree(page_size)
        self.tree.on_split = self._split
        self.page_size = page_size
        self.strategy: EvictionStrategy = LRU() if strategy is None else strategy
        if len(self.strategy):
            raise InvalidArgument("strategy", strategy, "one that no other cache uses")
        self._counts_hits = self.strategy.counts_hits
        self.observer = observer
        self.evictable_size = 0
        """Cached tokens that nobody holds."""
        self.protected_size = 0
        """Cached tokens on a locked path."""
        self.tick = 0
        """The logical time: how often anything was matched, inserted or unlocked."""

    @property
    def total_size(self) -> int:
        """All cached tokens."""
        return self.evictable_size + self.protected_size

    def match_prefix(
        self, token_ids: TokenIds, *, limit: int | None = None, namespace: Namespace | None = None
    ) -> CacheHandle:
        """Find the longest cached prefix of the first `limit` ids, in whole pages (step 1).

        The answer is a candidate, not a promise: until its handle is locked it may be evicted.
        A match changes the tree: when it ends inside an edge, the edge is split there, and the
        matched path (never an unmatched rest) counts as just used.
        """
        key = token_ids if type(token_ids) is bytes else encode(token_ids)
        end = len(key) if limit is None else limit * TOKEN_BYTES
        node = self.tree.walk(key, end, self.tree.root, namespace)
        self._touch(node)
        return CacheHandle(self, node)

    def lock(self, handle: CacheHandle) -> None:
        """Protect the handle's prefix from eviction (step 3).

        Adds 1 to `ref_count` on every node of the path; where it was 0, the node's tokens move
        from `evictable_size` to `protected_size`. Raises `AlreadyLocked`, `StaleHandle` when the
        prefix was evicted since the match, `ForeignHandle`.
        """
        if handle.cache is not self:
            raise ForeignHandle(handle.cached_len)
        if handle.locked:
            raise AlreadyLocked(handle.cached_len)
        if handle.node.parent is None and handle.node is not self.tree.root:
            raise StaleHandle(handle.cached_len)
        self._hold(handle.node, self.tree.root)
        handle.locked = True

    def unlock(self, handle: CacheHandle) -> None:
        """Give the handle's lock back (step 6); raises `NotLocked`, `ForeignHandle`.

        Takes 1 from `ref_count` on every node of the path. A node that drops to 0 is evictable from
        now on, and counts as just used; it stays in the tree.
        """
        if handle.cache is not self or not handle.locked:
            raise _not_held("unlock", handle, self)
        handle.locked = False
        tick = self.tick = self.tick + 1
        node, add, released = handle.node, self.strategy.add, 0
        while (parent := node.parent) is not None:
            node.ref_count -= 1
            if not node.ref_count:
                node.timestamp = tick
                add(node)
                released += len(node.value)
            node = parent
        self.protected_size -= released
        self.evictable_size += released

    def move_lock(self, old: CacheHandle, new: CacheHandle) -> None:
        """Lock `new`, whose path continues `old`'s, and unlock `old`: only the difference moves."""
        if old.cache is not self or not old.locked:
            raise _not_held("move the lock", old, self)
        if new.cache is not self:
            raise ForeignHandle(new.cached_len)
        if new.locked:
            raise AlreadyLocked(new.cached_len)
        node: RadixTreeNode | None = new.node
        while node is not None and node.end > old.node.end:
            node = node.parent
        if node is not old.node:
            raise InvalidArgument("new", new, "a handle on the path of the old one")
        self._hold(new.node, old.node)
        old.locked, new.locked = False, True

    def insert_prefix(
        self,
        token_ids: TokenIds,
        value: array[int],
        *,
        limit: int | None = None,
        border: int | None = None,
        held: CacheHandle | None = None,
        namespace: Namespace | None = None,
        priority: int = 0,
    ) -> InsertResult:
        """Make the slots `value` of the ids findable, in whole pages (step 5).

        With a `limit` only so many ids and slots count, of however many there are. At a `border`
        (floored to whole pages) an edge ends, so that what follows can be evicted first; ends of
        insertions never heal. Only what is missing becomes a new leaf, with a copy of its slots.
        `cached_len` tokens were there before: of those the tree keeps its own slots, and the
        caller's are duplicates. A locked handle `held` on the same path saves the walk over what it
        covers (of which only the last page is compared: for the rest the caller answers). Where the
        strategy wants to know, each node of the path counts one hit more (but once per request: not
        again above a handle that an insertion has returned) and is worth `priority` at least.
        Raises `LengthMismatch`, `NotLocked`, `ForeignHandle`, `InvalidArgument`.
        """
        key = token_ids if type(token_ids) is bytes else encode(token_ids)
        end = self._checked_end(key, value, limit)
        node = self.tree.root if held is None else self._held_node(held, key)
        before = self.evictable_size
        for stop in (end,) if border is None else self._stops(node.end, border, end):
            node = self.tree.walk(key, stop, node, namespace)
            if node.end < stop:
                slots = value[node.end // TOKEN_BYTES : stop // TOKEN_BYTES]
                node = self.tree.add_leaf(node, key[node.end : stop], slots, namespace)
                self.strategy.add(node)
                self.evictable_size += len(slots)
            node.border = True
        return self._inserted(node, self.evictable_size - before, held, priority)

    def evict(self, num_tokens: int) -> array[int]:
        """Remove unlocked leaves, the least valuable first, until `num_tokens` are gone (step 7).

        Leaves go whole, so more may go than was asked. A parent that loses its last child is a leaf
        then. One with a single child left heals: two parts of one leaf, cut by a match and never
        used apart, are one edge again. No token goes with that, but the upper node does: an
        unlocked handle that ends there is as stale as one to an evicted leaf. Returns the removed
        slots, which the caller puts on the free list. Raises `PoolExhausted`, before anything is
        removed, when fewer tokens are evictable.
        """
        if num_tokens > self.evictable_size:
            raise PoolExhausted(num_tokens, None, self.evictable_size)
        slots, events = array("i"), []
        while len(slots) < num_tokens:
            leaf = self.strategy.pop()
            if self.observer is not None:
                events.append(BlockRemoved(_stored(leaf, self.page_size).block_hashes))
            parent = self.tree.remove_leaf(leaf)
            slots.extend(leaf.value)
            if len(parent.children) == 1 and not parent.border:
                self._heal(parent)
        self.evictable_size -= len(slots)
        if self.observer is not None:
            for event in events:
                self.observer(event)
        return slots

    def clear(self) -> array[int]:
        """Forget everything; returns all slots. Raises `StillLocked` if anybody holds a prefix."""
        if self.protected_size:
            raise StillLocked(self.protected_size)
        observer, self.observer = self.observer, None
        slots = self.evict(self.evictable_size)
        self.observer = observer
        if observer is not None:
            observer(AllBlocksCleared())
        return slots

    def check_integrity(self, handles: Collection[CacheHandle] | None = None) -> None:
        """Raise AssertionError unless links, lengths, counts, sizes, slots and order all agree.

        Given all locked `handles`, every `ref_count` must be exactly the number that pass there.
        """
        root, *nodes = self.tree.nodes()
        for node in (root, *nodes):
            self._check_links(node)
        held = Counter(node for handle in handles or () for node in handle.node.path())
        for node in nodes if handles is not None else ():
            assert node.ref_count == held[node], f"{node} is held by {held[node]} handles"
        slots = [slot for node in nodes for slot in node.value]
        assert len(set(slots)) == len(slots), "a slot stands in the tree twice"
        unlocked = {node for node in nodes if not node.ref_count}
        assert unlocked == set(self.strategy), "the strategy does not hold just the unlocked nodes"
        sizes = sum(node.length for node in unlocked), len(slots)
        assert sizes == (self.evictable_size, self.total_size), f"{sizes}: evictable, in all"
        order = list(self.strategy) if isinstance(self.strategy, LRU) else []
        times = [node.timestamp for node in order]
        assert times == sorted(times), "the eviction order contradicts the timestamps"
        place = {node: i for i, node in enumerate(order)}
        for node in order:
            above = node.parent
            assert above not in place or place[node] < place[above], "a parent before its child"

    def _check_links(self, node: RadixTreeNode) -> None:
        page, held_below = self.page_size, 0
        for index, child in node.children.items():
            assert child.parent is node and child.child_key == index, "a link leads elsewhere"
            assert child.end == node.end + len(child._key), "a path has a gap"
            assert child.length > 0 and len(child._key) == child.length * TOKEN_BYTES
            assert child.length % page == 0, "an edge ends inside a page"
            pages = zip(child.value[::page], child.value[page - 1 :: page], strict=True)
            assert all(a % page == 0 and b == a + page - 1 for a, b in pages), "a page is torn"
            held_below += child.ref_count
        assert node.is_root() or node.ref_count >= held_below, "a child is held, its parent is not"

    def __str__(self) -> str:
        return str(self.tree)

    def _split(self, upper: RadixTreeNode) -> None:
        """A walk has made a node; an unlocked one may be evicted like any other."""
        if not upper.ref_count:
            self.strategy.add(upper)

    def _heal(self, upper: RadixTreeNode) -> None:
        """Undo a split of which no other branch is left, if nothing tells the parts apart."""
        (lower,) = upper.children.values()
        if upper.created == lower.created and _USE(upper) == _USE(lower):
            lower.absorb_parent()
            if not upper.ref_count:
                self.strategy.remove(upper)

    def _checked_end(self, key: bytes, value: array[int], limit: int | None) -> int:
        """Where an insertion's whole pages end, in bytes; ids and slots must reach so far."""
        if type(value) is not array or value.typecode != "i":
            raise InvalidArgument("value", value, "an array of type 'i', one slot for each token")
        end, slots_end = len(key), len(value) * TOKEN_BYTES
        if limit is not None:
            end, slots_end = limit * TOKEN_BYTES, min(end, slots_end, limit * TOKEN_BYTES)
        if end != slots_end or end < 0:
            raise LengthMismatch(end // TOKEN_BYTES, slots_end // TOKEN_BYTES)
        return end - end % self.tree.page_bytes

    def _stops(self, start: int, border: int, end: int) -> tuple[int, ...]:
        """Where an insertion ends an edge, in bytes: at a border on its way, and at its end."""
        cut = border * TOKEN_BYTES
        cut -= cut % self.tree.page_bytes
        return (cut, end) if start < cut < end else (end,)

    def _inserted(
        self, node: RadixTreeNode, added: int, held: CacheHandle | None, priority: int
    ) -> InsertResult:
        """The path to `node` was used; `added` tokens at its end are new."""
        if self._counts_hits:
            self._count_hit(node, held, priority)
        self._touch(node)
        cached_len = node.end // TOKEN_BYTES - added
        if added and self.observer is not None:
            for leaf in [n for n in node.path() if n.path_len > cached_len]:
                self.observer(_stored(leaf, self.page_size))
        return InsertResult(cached_len, CacheHandle(self, node, True))

    def _touch(self, node: RadixTreeNode) -> None:
        """Mark the path as just used, from the bottom up to the first locked node."""
        tick = self.tick = self.tick + 1
        touch = self.strategy.touch
        while not node.ref_count and (parent := node.parent) is not None:
            node.timestamp = tick
            touch(node)
            node = parent

    def _count_hit(self, node: RadixTreeNode, held: CacheHandle | None, priority: int) -> None:
        stop = self.tree.root if held is None or not held.inserted else held.node
        while node is not stop and (parent := node.parent) is not None:
            node.priority = max(node.priority, priority) if node.hits else priority
            node.hits += 1
            node = parent

    def _hold(self, node: RadixTreeNode, stop: RadixTreeNode) -> None:
        """Count one more holder on each node of the path, up to `stop` and without it."""
        remove, newly_held = self.strategy.remove, 0
        while node is not stop and (parent := node.parent) is not None:
            if not node.ref_count:
                remove(node)
                newly_held += len(node.value)
            node.ref_count += 1
            node = parent
        self.evictable_size -= newly_held
        self.protected_size += newly_held

    def _held_node(self, held: CacheHandle, key: bytes) -> RadixTreeNode:
        if held.cache is not self or not held.locked:
            raise _not_held("insert below", held, self)
        node, page_bytes = held.node, self.tree.page_bytes
        if not key.startswith(node._key[-page_bytes:], node.end - page_bytes):
            raise InvalidArgument("held", held, "a handle on the path of the token ids")
        return node


def _not_held(action: str, handle: CacheHandle, cache: RadixCache) -> NotLocked | ForeignHandle:
    length = handle.cached_len
    return NotLocked(action, length) if handle.cache is cache else ForeignHandle(length)


def _stored(node: RadixTreeNode, page_size: int) -> BlockStored:
    """The event that tells of a node's pages, hashed along the whole path."""
    key = b"".join(n._key for n in node.path())
    hashes = page_hashes(key, page_size, node.namespace)
    before = len(hashes) - node.length // page_size
    parent = hashes[before - 1] if before else None
    return BlockStored(tuple(hashes[before:]), parent, tuple(node.key), page_size, node.namespace)
