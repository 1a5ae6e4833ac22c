"""The oracle: what `CacheManager` should do, by brute force and without a tree.

One dictionary maps every cached prefix, a namespace and whole pages of token ids, to the page that
holds its last tokens. Everything is found by looking at all of it, every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from radixlab.tokens import Namespace


class Prefix(NamedTuple):
    """What a page is found by: all token ids from the first to the page's last."""

    namespace: Namespace | None
    ids: tuple[int, ...]


@dataclass(eq=False)
class Page:
    """The slots of the last page of a prefix.

    `border` is when a match or an insertion has cut an edge of the tree here, 0 if none has;
    `inserted` says that an insertion has ended here. `made` is the insertion that stored it.
    """

    slots: list[int]
    last_use: int = 0
    holders: int = 0
    border: int = 0
    inserted: bool = False
    made: int = 0


class Edge(NamedTuple):
    """A run of pages up to a border: what the tree keeps in one node and evicts as a whole."""

    prefix: Prefix
    slots: list[int]
    holders: int


@dataclass(eq=False)
class Life:
    """What a running request has: its ids so far, its page table, and how much of it is held."""

    ids: list[int]
    prompt_len: int
    max_len: int
    namespace: Namespace | None = None
    table: list[int] = field(default_factory=list)
    held: list[Prefix] = field(default_factory=list)
    held_len: int = 0
    computed_len: int = 0


class Refused(Exception):
    """The oracle says no, and has changed nothing."""


class Reference:
    """`CacheManager` by brute force: the same calls, on `Life` instead of `Request`."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size, self.total_size = page_size, num_pages * page_size
        self.free_slots = list(range(self.total_size))
        self.pages: dict[Prefix, Page] = {}
        self.clock = 0

    # --- sizes and shapes, derived from the dictionary ----------------------------------------
    @property
    def evictable_size(self) -> int:
        return self.page_size * sum(not page.holders for page in self.pages.values())

    @property
    def protected_size(self) -> int:
        return self.page_size * sum(page.holders > 0 for page in self.pages.values())

    def round_up(self, num_tokens: int) -> int:
        return (num_tokens + self.page_size - 1) // self.page_size * self.page_size

    def path(self, ids: Sequence[int], namespace: Namespace | None) -> list[Prefix]:
        """Every prefix of whole pages, the shortest first."""
        ends = range(self.page_size, len(ids) + 1, self.page_size)
        return [Prefix(namespace, tuple(ids[:end])) for end in ends]

    def cached(self, path: list[Prefix]) -> list[Prefix]:
        """The part of a path that is cached: up to the first page that isn't."""
        found = [prefix in self.pages for prefix in path]
        return path[: found.index(False)] if False in found else path

    def slots(self, path: list[Prefix]) -> list[int]:
        return [slot for prefix in path for slot in self.pages[prefix].slots]

    def edges(self) -> list[Edge]:
        """The nodes that a radix tree must have: each border, back to the border before it."""
        edges = []
        for prefix, page in self.pages.items():
            if page.border:
                run = self._run(prefix)
                edges.append(Edge(prefix, self.slots(run), page.holders))
                pages = [self.pages[p] for p in run]
                assert {(p.holders, p.last_use) for p in pages} == {(page.holders, page.last_use)}
        return edges

    def _run(self, prefix: Prefix) -> list[Prefix]:
        path = self.path(prefix.ids, prefix.namespace)
        start = len(path) - 1
        while start and not self.pages[path[start - 1]].border:
            start -= 1
        return path[start:]

    def eviction_order(self) -> list[Prefix]:
        """Ends of the edges that nobody holds, the first to go first.

        The least recently used goes first. Equal times are one path, used as a whole: of a path
        the deepest edge goes first.
        """
        unheld = [e.prefix for e in self.edges() if not e.holders]
        return sorted(unheld, key=lambda prefix: (self.pages[prefix].last_use, -len(prefix.ids)))

    def victim(self) -> Prefix:
        """The least recently used edge that nobody holds and nothing continues."""
        leaves = [
            prefix
            for prefix, page in self.pages.items()
            if not page.holders
            and not any(
                len(other.ids) > len(prefix.ids)
                and other.namespace == prefix.namespace
                and other.ids[: len(prefix.ids)] == prefix.ids
                for other in self.pages
            )
        ]
        return min(leaves, key=lambda prefix: self.pages[prefix].last_use)

    # --- the calls ---------------------------------------------------------------------------
    def match(self, life: Life) -> list[Prefix]:
        """All but the last token may be found: without one to compute there are no logits."""
        found = self.cached(self.path(life.ids[:-1], life.namespace))
        self._use(found)
        return found

    def lock(self, life: Life, found: list[Prefix]) -> None:
        self._hold(found)
        life.held, life.table = found, self.slots(found)
        life.held_len = life.computed_len = len(life.table)

    def admit(self, life: Life, reserved: int = 0) -> bool:
        found = self.match(life)
        self._hold(found)
        missing = self.round_up(life.max_len) - len(found) * self.page_size
        if missing + reserved > len(self.free_slots) + self.evictable_size:
            self._let_go(found)
            return False
        self._let_go(found)
        self.lock(life, found)
        return True

    def allocate(self, life: Life, num_tokens: int) -> list[int]:
        missing = max(0, self.round_up(num_tokens) - len(life.table))
        if missing > len(self.free_slots) + self.evictable_size:
            raise Refused
        self.evict(max(0, missing - len(self.free_slots)))
        slots, self.free_slots = self.free_slots[:missing], self.free_slots[missing:]
        life.table += slots
        return slots

    def evict(self, num_tokens: int) -> list[int]:
        if num_tokens > self.evictable_size:
            raise Refused
        removed: list[int] = []
        while len(removed) < num_tokens:
            run = self._run(self.victim())
            removed += self.slots(run)
            for prefix in run:
                del self.pages[prefix]
            self._heal(run[0])
        self._free(removed)
        return removed

    def _heal(self, gone: Prefix) -> None:
        """A border that only a match has cut is one no more when nothing tells its sides apart.

        That is looked at when an edge has gone that began there, and a single other one goes on.
        """
        above = Prefix(gone.namespace, gone.ids[: -self.page_size])
        if above not in self.pages or self.pages[above].inserted:
            return
        page = self.pages[above]
        longer = len(gone.ids)
        below = [
            self.pages[p]
            for p in self.pages
            if len(p.ids) == longer
            and p.namespace == above.namespace
            and p.ids[: len(above.ids)] == above.ids
        ]
        use = [(p.made, p.last_use, p.holders) for p in below]
        if use == [(page.made, page.last_use, page.holders)]:
            page.border = 0

    def cache_request(self, life: Life) -> int:
        """Returns how many tokens were there before. The prompt's end becomes a border."""
        ends = [life.computed_len]
        border = life.prompt_len - life.prompt_len % self.page_size
        if life.held_len < border < life.computed_len - life.computed_len % self.page_size:
            ends.insert(0, border)
        before = self.cached(self.path(life.ids[: ends[-1]], life.namespace))
        self._free([slot for end in ends for slot in self._insert(life, end)])
        return len(before) * self.page_size

    def _insert(self, life: Life, end: int) -> list[int]:
        """Returns the duplicates."""
        path, size = self.path(life.ids[:end], life.namespace), self.page_size
        found = self.cached(path)
        self._use(found)
        for number, prefix in enumerate(path[len(found) :], len(found)):
            slots = life.table[number * size : (number + 1) * size]
            self.pages[prefix] = Page(slots, made=self.clock)
        self._use(path)
        if path:
            self.pages[path[-1]].inserted = True
        self._hold(path)
        self._let_go(life.held)
        duplicates = life.table[life.held_len : len(found) * size]
        life.table[: len(path) * size] = self.slots(path)
        life.held, life.held_len = path, len(path) * size
        return duplicates

    def unlock(self, life: Life) -> None:
        self._let_go(life.held)
        life.held = []

    def free(self, life: Life) -> list[int]:
        private = life.table[life.held_len :]
        self._free(private)
        return private

    # --- the clock, the counts and the free list ---------------------------------------------
    def _use(self, path: list[Prefix]) -> None:
        self.clock += 1
        for prefix in path:
            if not self.pages[prefix].holders:  # who is held is in no order
                self.pages[prefix].last_use = self.clock
        if path and not self.pages[path[-1]].border:
            self.pages[path[-1]].border = self.clock

    def _hold(self, path: list[Prefix]) -> None:
        for prefix in path:
            self.pages[prefix].holders += 1

    def _let_go(self, path: list[Prefix]) -> None:
        self.clock += 1
        for prefix in path:
            page = self.pages[prefix]
            page.holders -= 1
            if not page.holders:
                page.last_use = self.clock

    def _free(self, slots: list[int]) -> None:
        """Last in, first out; each block in its own order."""
        self.free_slots = slots + self.free_slots
