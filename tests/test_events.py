"""Events are enough to know what is cached: a mirror that hears nothing else keeps up."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from radixlab.cache import RadixCache
from radixlab.errors import PoolExhausted, StillLocked
from radixlab.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    CacheEvent,
    page_hashes,
)
from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.tokens import Namespace, encode
from tests.serving import compute, decode_on

Prefix = tuple[Namespace | None, tuple[int, ...]]
"""A page, named by its namespace and all tokens up to its end."""


class Page(NamedTuple):
    """What a listener knows of a page."""

    parent: bytes | None
    tokens: tuple[int, ...]
    namespace: Namespace | None


class Mirror:
    """Another machine's idea of a cache: it never sees the tree, only what the cache tells."""

    def __init__(self) -> None:
        self.pages: dict[bytes, Page] = {}
        self.events: list[CacheEvent] = []

    def __call__(self, event: CacheEvent) -> None:
        self.events.append(event)
        match event:
            case BlockStored():
                self.store(event)
            case BlockRemoved():
                self.remove(event)
            case AllBlocksCleared():
                self.pages.clear()

    def store(self, event: BlockStored) -> None:
        size, parent = event.page_size, event.parent_hash
        assert event.block_hashes and len(event.token_ids) == size * len(event.block_hashes)
        assert parent is None or self.pages[parent].namespace == event.namespace
        for number, block in enumerate(event.block_hashes):
            assert block not in self.pages, "a page is stored twice"
            tokens = event.token_ids[number * size : (number + 1) * size]
            self.pages[block] = Page(parent, tokens, event.namespace)
            parent = block

    def remove(self, event: BlockRemoved) -> None:
        assert event.block_hashes
        for block in event.block_hashes:
            del self.pages[block]
        left = {page.parent for page in self.pages.values()}
        assert left.isdisjoint(event.block_hashes), "what continues a page outlives it"

    def prefix(self, block: bytes) -> Prefix:
        tokens: tuple[int, ...] = ()
        page: Page | None = self.pages[block]
        while page is not None:
            tokens, namespace = page.tokens + tokens, page.namespace
            page = None if page.parent is None else self.pages[page.parent]
        return namespace, tokens

    def prefixes(self) -> set[Prefix]:
        found = [self.prefix(block) for block in self.pages]
        assert len(set(found)) == len(found), "two hashes for one prefix"
        return set(found)

    def longest(self, ids: Sequence[int], page_size: int, namespace: Namespace | None) -> int:
        """What a router does with it: how much of a prompt that server has."""
        length = 0
        for block in page_hashes(encode(ids), page_size, namespace):
            if block not in self.pages:
                break
            length += page_size
        return length


def content(cache: RadixCache) -> set[Prefix]:
    """Every cached page, read from the tree."""
    found: set[Prefix] = set()
    for node in cache.tree.nodes():
        ids = [token for part in node.path() for token in part.key]
        first = len(ids) - node.length + cache.page_size
        ends = range(first, len(ids) + 1, cache.page_size)
        found |= {(node.namespace, tuple(ids[:end])) for end in ends}
    return found


IDS = st.lists(st.integers(0, 1), min_size=1, max_size=14)
NAMESPACES = st.sampled_from([None, None, Namespace(tenant="t"), Namespace(salt="t")])


class MirrorMachine(RuleBasedStateMachine):
    """Requests come and go over a small pool, while somebody listens."""

    @initialize(page_size=st.sampled_from([1, 2, 4]), num_pages=st.integers(4, 12))
    def start(self, page_size: int, num_pages: int) -> None:
        self.mirror = Mirror()
        self.manager = CacheManager(num_pages, page_size, observer=self.mirror, checked=True)
        self.running: list[Request] = []

    @rule(prompt=IDS, new=st.integers(1, 4), namespace=NAMESPACES)
    def arrive(self, prompt: list[int], new: int, namespace: Namespace | None) -> None:
        request = Request(prompt, new, namespace=namespace)
        reserved = sum(map(self.manager.remaining_size, self.running))
        if self.manager.round_up(request.max_len) > self.manager.pool.total_size:
            return
        if self.manager.admit(request, reserved):
            self.manager.allocate(request, request.num_tokens)
            self.running.append(request)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), token=st.integers(0, 1), cache=st.booleans())
    def go_on(self, which: int, token: int, cache: bool) -> None:
        request = self.running[which % len(self.running)]
        if not request.output:
            compute(request, token)
        elif not request.is_done:
            decode_on(self.manager, request, [token])
        if cache:
            self.manager.cache_request(request)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), cache=st.booleans())
    def end(self, which: int, cache: bool) -> None:
        request = self.running.pop(which % len(self.running))
        if cache:
            self.manager.cache_request(request)
        self.manager.release(request)

    @rule(ids=IDS, namespace=NAMESPACES)
    def look_up(self, ids: list[int], namespace: Namespace | None) -> None:
        """A match may split an edge, of which nobody is told."""
        told = len(self.mirror.events)
        found = self.manager.cache.match_prefix(ids, namespace=namespace).cached_len
        assert len(self.mirror.events) == told
        assert found == self.mirror.longest(ids, self.manager.page_size, namespace)

    @rule(num_tokens=st.integers(0, 12))
    def evict(self, num_tokens: int) -> None:
        told = len(self.mirror.events)
        try:
            self.manager.evict(num_tokens)
        except PoolExhausted:
            assert len(self.mirror.events) == told

    @rule()
    def clear(self) -> None:
        told = len(self.mirror.events)
        try:
            self.manager.clear()
        except StillLocked:
            assert len(self.mirror.events) == told
        else:
            assert self.mirror.events[told:] == [AllBlocksCleared()]

    @invariant()
    def the_mirror_shows_the_tree(self) -> None:
        assert self.mirror.prefixes() == content(self.manager.cache)
        size = self.manager.page_size * len(self.mirror.pages)
        assert size == self.manager.cache.total_size

    @invariant()
    def nothing_else_is_disturbed(self) -> None:
        self.manager.check_integrity()


class TestMirror(MirrorMachine.TestCase):
    settings = settings(settings.get_profile("ci"), stateful_step_count=40)


@pytest.mark.long
class TestMirrorForLong(MirrorMachine.TestCase):
    settings = settings(
        settings.get_profile("long"),
        max_examples=settings.get_profile("long").max_examples // 10,
        stateful_step_count=80,
    )


@given(IDS, st.sampled_from([1, 2, 4]), NAMESPACES)
def test_one_hash_stands_for_all_tokens_up_to_its_page(
    ids: list[int], page_size: int, namespace: Namespace | None
) -> None:
    hashes = page_hashes(encode(ids), page_size, namespace)
    assert len(hashes) == len(ids) // page_size == len(set(hashes))
    assert all(len(block) == 32 for block in hashes)
    longer = page_hashes(encode([*ids, 7, 8, 9, 9]), page_size, namespace)
    assert longer[: len(hashes)] == hashes
    other = page_hashes(encode([2, *ids[1:]]), page_size, namespace)
    assert set(other).isdisjoint(hashes)


def test_without_a_namespace_the_hash_is_plain_to_recompute() -> None:
    """Another program, in another language, must get the same: SHA-256 over the page before and
    this page's int32 ids."""
    start = hashlib.sha256(b"namespace None").digest()
    first = hashlib.sha256(start + array("i", [5, 6]).tobytes()).digest()
    second = hashlib.sha256(first + array("i", [7, 8]).tobytes()).digest()
    assert page_hashes(encode([5, 6, 7, 8, 9]), 2) == [first, second]


def test_what_two_requests_compute_at_once_is_told_once() -> None:
    mirror = Mirror()
    manager = CacheManager(8, observer=mirror, checked=True)
    twins = [Request([1, 2, 3]), Request([1, 2, 3])]
    for request in twins:
        assert manager.admit(request)
        manager.allocate(request, 3)
        compute(request, 0)
    for request in twins:
        manager.cache_request(request)
    assert [type(event) for event in mirror.events] == [BlockStored]
    assert mirror.prefixes() == {(None, (1,)), (None, (1, 2)), (None, (1, 2, 3))}


def test_an_observer_may_look_at_the_cache_it_hears_of() -> None:
    """It is told after the fact: what is stored can be found, and the books balance."""
    cache = RadixCache(2)

    def look(event: CacheEvent) -> None:
        cache.check_integrity()
        if isinstance(event, BlockStored):
            assert content(cache) >= {(None, (1, 2))}

    cache.observer = look
    cache.insert_prefix([1, 2, 3, 4], array("i", range(4)))
    cache.insert_prefix([1, 2, 5, 6], array("i", [0, 1, 4, 5]))
    cache.evict(1)
    cache.clear()
