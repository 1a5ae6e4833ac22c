"""A manager, the requests on their way through it, and whose K and V stand in each slot.

No tensor is needed to know what attention would read: a slot's content is named by a hash of the
namespace and all tokens up to its position. Computing a position writes that name; whoever reads
another name there would have used another prefix's KV.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from radixlab.cache import CacheHandle
from radixlab.errors import PoolExhausted, StaleHandle, StillLocked
from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.strategies import KEYS, make_strategy
from radixlab.tokens import Namespace, decode
from radixlab.tree import RadixTreeNode

WAITING, RUNNING = RequestState.WAITING, RequestState.RUNNING


class Prompt(NamedTuple):
    """What one request asks for."""

    ids: Sequence[int]
    new: int = 1
    namespace: Namespace | None = None


def fingerprints(namespace: Namespace | None, ids: Sequence[int]) -> list[int]:
    """For each position, a number that stands for all tokens up to there."""
    before, prints = hash(namespace), []
    for token in ids:
        before = hash((before, token))
        prints.append(before)
    return prints


@dataclass(frozen=True)
class Setting:
    """A small world before anything happens.

    `draws` are the tokens that a forward pass may draw, `chunked` whether prompts may be computed
    piece by piece, `promised` whether admission keeps the room of those already admitted.
    """

    num_pages: int
    page_size: int
    prompts: tuple[Prompt, ...]
    draws: tuple[int, ...] = (0,)
    chunked: bool = True
    promised: bool = False
    strategy: str = "lru"


Step = tuple[Any, ...]
"""What happens: a method of `World` and its arguments."""


@dataclass
class World:
    """The state, the steps that may follow, and the rules that must hold after each."""

    setting: Setting
    manager: CacheManager = field(init=False)
    requests: list[Request] = field(init=False)
    matched: dict[int, CacheHandle] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        setting = self.setting
        strategy = make_strategy(setting.strategy)
        self.manager = CacheManager(
            setting.num_pages, setting.page_size, strategy=strategy, checked=True
        )
        self.requests = [
            Request(p.ids, p.new, request_id=i, namespace=p.namespace)
            for i, p in enumerate(setting.prompts)
        ]

    # --- which steps may follow ----------------------------------------------------------------
    def steps(self) -> Iterator[Step]:
        """Every step of every request that makes sense now, an abort of each, and the pool's."""
        for i, request in enumerate(self.requests):
            if request.state is WAITING:
                yield from self._steps_of_waiting(i)
            elif request.state is RUNNING:
                yield from self._steps_of_running(i, request)
        yield ("evict",)
        yield ("clear",)

    def _steps_of_waiting(self, i: int) -> Iterator[Step]:
        yield ("release", i)
        yield ("admit", i)
        if not self.setting.promised:
            yield ("match", i)
        if i in self.matched:
            yield ("lock", i)

    def _steps_of_running(self, i: int, request: Request) -> Iterator[Step]:
        assert request.handle is not None
        yield ("release", i)
        if not request.handle.locked:
            yield ("free", i)
            return
        yield ("unlock", i)
        yield ("cache", i)
        page, table = self.setting.page_size, len(request.page_table)
        end = min(request.num_tokens, request.max_len)
        if table < end:
            yield ("allocate", i, end)
            if self.setting.chunked and table + page < end:
                yield ("allocate", i, table + page)
        ready = min(table, end) - request.computed_len
        if ready > 0:
            draws = self.setting.draws
            for token in draws if min(table, end) == request.num_tokens else draws[:1]:
                yield ("compute", i, ready, token)
            if self.setting.chunked and ready > 1:
                yield ("compute", i, 1, 0)

    # --- the steps; each says whether it was right to be refused ---------------------------------
    def do(self, step: Step) -> bool:
        """Take a step; False if it was refused, which must have been right."""
        name, *arguments = step
        return bool(getattr(self, name)(*arguments))

    def match(self, i: int) -> bool:
        self.matched[i] = self.manager.match(self.requests[i])
        return True

    def lock(self, i: int) -> bool:
        handle = self.matched[i]
        there = any(node is handle.node for node in self.manager.cache.tree.nodes())
        try:
            self.manager.lock(self.requests[i], handle)
        except StaleHandle:
            assert not there, "a prefix that is still cached counts as stale"
            return False
        assert there, "a prefix that is gone was locked"
        del self.matched[i]
        return True

    def admit(self, i: int) -> bool:
        manager, request = self.manager, self.requests[i]
        promised = self.setting.promised
        reserved = sum(map(manager.remaining_size, manager.running)) if promised else 0
        admitted = manager.admit(request, reserved)
        if admitted:
            self.matched.pop(i, None)
        handle = request.handle or manager.match(request)
        path = set(handle.node.path())
        unheld = sum(n.length for n in self._nodes() if not n.ref_count and n not in path)
        missing = manager.round_up(request.max_len) - handle.cached_len + reserved
        assert admitted == (missing <= manager.pool.free_size + unheld), "admission miscounts"
        return admitted

    def allocate(self, i: int, num_tokens: int) -> bool:
        manager, request = self.manager, self.requests[i]
        missing = manager.round_up(num_tokens) - len(request.page_table)
        unheld = sum(node.length for node in self._nodes() if not node.ref_count)
        enough = missing <= manager.pool.free_size + unheld
        try:
            manager.allocate(request, num_tokens)
        except PoolExhausted:
            assert not enough, "allocation refused what there was"
            assert not self.setting.promised, "an admitted request found no room"
        else:
            assert enough
        return enough

    def compute(self, i: int, count: int, token: int) -> bool:
        """Write K and V for `count` positions more; after the last one a token is drawn."""
        request = self.requests[i]
        start, end = request.computed_len, request.computed_len + count
        prints = fingerprints(request.namespace, decode(request.tokens))
        for position in range(start, end):
            self.written[request.page_table[position]] = prints[position]
        request.computed_len = end
        if end == request.num_tokens and not request.is_done:
            request.output.append(token)
        return True

    def cache(self, i: int) -> bool:
        request = self.requests[i]
        result = self.manager.cache_request(request)
        covered = self.manager.round_down(request.computed_len)
        assert result.handle.cached_len == covered and result.cached_len <= covered
        return True

    def unlock(self, i: int) -> bool:
        self.manager.unlock(self.requests[i])
        return True

    def free(self, i: int) -> bool:
        self.manager.free(self.requests[i])
        return True

    def release(self, i: int) -> bool:
        self.matched.pop(i, None)
        self.manager.release(self.requests[i])
        return True

    def evict(self, num_tokens: int = 1) -> bool:
        """Take leaves out; who goes first is decided here, by looking at the whole tree."""
        unheld = [n for n in self._nodes() if not n.ref_count]
        leaves = [n for n in unheld if n.is_leaf()]
        worth = KEYS[self.setting.strategy]
        least = min(map(worth, leaves), default=())
        victims = {n.value[0] for n in leaves if worth(n) == least}
        try:
            slots = self.manager.evict(num_tokens)
        except PoolExhausted:
            assert sum(n.length for n in unheld) < num_tokens
            return False
        assert not len(slots) or slots[0] in victims, (
            "not the least valuable unheld leaf went first"
        )
        return True

    def clear(self) -> bool:
        held = any(node.ref_count for node in self._nodes())
        try:
            self.manager.clear()
        except StillLocked:
            assert held
            return False
        assert not held and self.manager.cache.tree.root.is_leaf()
        return True

    # --- what must hold in every state -----------------------------------------------------------
    def check(self) -> None:
        """The books balance, and every slot that anyone would read holds what it should."""
        self.manager.check_integrity()
        stack = [(self.manager.cache.tree.root, 0)]
        while stack:
            node, before = stack.pop()
            for child in node.children.values():
                start = hash(child.namespace) if node.is_root() else before
                stack.append((child, self._check_edge(child, start)))
        for request in self.manager.running:
            if request.handle is not None and request.handle.locked:
                self._check_table(request)

    def _check_edge(self, node: RadixTreeNode, before: int) -> int:
        for token, slot in zip(node.key, node.value, strict=True):
            before = hash((before, token))
            assert self.written.get(slot) == before, f"{node} serves another prefix's KV"
        return before

    def _check_table(self, request: Request) -> None:
        prints = fingerprints(request.namespace, decode(request.tokens))
        for slot, name in zip(request.page_table[: request.computed_len], prints, strict=False):
            assert self.written.get(slot) == name, f"{request} reads another prefix's KV"

    # --- the state as a value, the same for all states that behave the same ----------------------
    def canonical(self) -> tuple[Any, ...]:
        """Everything that decides what can happen next.

        Pages are renamed in the order in which they are met here: which number a page has makes no
        difference to anything. Nor do node ids, nor ticks beyond the order that they give.
        """
        names: dict[int, int] = {}
        page = self.setting.page_size
        place: dict[RadixTreeNode, int] = {}
        tree: list[tuple[Any, ...]] = []
        stack = [self.manager.cache.tree.root]
        while stack:
            node = stack.pop()
            place[node] = len(place)
            for slot in node.value[::page]:
                names[slot] = len(names)
            if node.parent is not None:
                alike = (
                    node.created == node.parent.created,
                    node.timestamp == node.parent.timestamp,
                )
                about = (node.child_key, node._key, node.ref_count, node.border, *alike)
                tree.append((place[node.parent], *about))
            children = node.children
            stack.extend(children[k] for k in sorted(children, key=str, reverse=True))
        if self.setting.strategy == "lru":
            order = tuple(place.get(node, -1) for node in self.manager.cache.strategy)
        else:
            order = _order_of(list(place))
        people = tuple(
            (
                request.state,
                _where(request.handle, place),
                _where(self.matched.get(i), place),
                request.computed_len,
                request.output.tobytes(),
                tuple(names.setdefault(s, len(names)) for s in request.page_table[::page]),
            )
            for i, request in enumerate(self.requests)
        )
        free = tuple(names.setdefault(s, len(names)) for s in self.manager.pool.free_list)
        return tuple(tree), order, people, free

    def _nodes(self) -> Iterator[RadixTreeNode]:
        nodes = self.manager.cache.tree.nodes()
        next(nodes)  # the root
        return nodes


def _order_of(nodes: list[RadixTreeNode]) -> tuple[Any, ...]:
    """All that a strategy may look at; of times, only which is earlier."""
    used = sorted({node.timestamp for node in nodes})
    made = sorted({node.created for node in nodes})
    return tuple(
        (used.index(node.timestamp), made.index(node.created), node.hits, node.priority)
        for node in nodes
    )


def _where(
    handle: CacheHandle | None, place: dict[RadixTreeNode, int]
) -> tuple[int, int, bool] | None:
    if handle is None:
        return None
    return place.get(handle.node, -1), handle.cached_len, handle.locked
