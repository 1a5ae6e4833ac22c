"""The manager against the oracle: any sequence of calls leaves both in the same state.

After each call everything is compared: free list, nodes with their slots and counts, the order of
eviction, page tables, sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from radixlab.cache import CacheHandle
from radixlab.errors import (
    DoubleFree,
    NotLocked,
    PoolExhausted,
    RequestTooLong,
    StaleHandle,
    StillLocked,
    WrongState,
)
from radixlab.events import AllBlocksCleared, BlockRemoved, BlockStored, CacheEvent, page_hashes
from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.tokens import Namespace, decode, encode
from radixlab.tree import RadixTreeNode
from tests.reference import Life, Page, Prefix, Reference, Refused


class Served(NamedTuple):
    """A request and its image in the oracle."""

    request: Request
    life: Life


class Waiting(NamedTuple):
    """A request that was matched some time ago, and what the oracle found for it then."""

    request: Request
    life: Life
    handle: CacheHandle
    found: list[Prefix]
    last: Page | None
    border: int


class Ids(NamedTuple):
    """Token ids in relative terms: an earlier sequence, cut short, then runs of equal tokens."""

    ago: int
    dropped: int
    runs: list[tuple[int, int]]


IDS = st.builds(
    Ids,
    st.sampled_from(range(5)),
    st.sampled_from([0, 1, 2, 3, 4, 6, 9, 12]),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(range(1, 9))), max_size=2),
)
NAMESPACES = st.sampled_from([None, None, None, Namespace(tenant="t")])
NEW = st.sampled_from([1, 2, 3, 5])
ONE = st.sampled_from(range(6))


class ManagerMachine(RuleBasedStateMachine):
    """Several requests at different points of their lives, over a pool that is too small."""

    @initialize(
        page_size=st.sampled_from([1, 2, 4, 16]),
        num_pages=st.sampled_from([1, 3, 5, 8, 12, 16, 24]),
    )
    def start(self, page_size: int, num_pages: int) -> None:
        self.page_size = page_size
        self.manager = CacheManager(num_pages, page_size, observer=self.hear, checked=True)
        self.reference = Reference(num_pages, page_size)
        self.running: list[Served] = []
        self.waiting: list[Waiting] = []
        self.ended: list[Request] = []
        self.past: list[list[int]] = [[]]
        self.heard: set[bytes] = set()

    def hear(self, event: CacheEvent) -> None:
        """What a router knows of the cache: the hashes of its pages."""
        match event:
            case BlockStored(hashes, parent):
                assert (parent is None or parent in self.heard) and self.heard.isdisjoint(hashes)
                self.heard.update(hashes)
            case BlockRemoved(hashes):
                assert self.heard.issuperset(hashes)
                self.heard.difference_update(hashes)
            case AllBlocksCleared():
                self.heard.clear()

    # --- arrivals -------------------------------------------------------------------------------
    @rule(ids=IDS, new=NEW, reserved=st.sampled_from([0, 0, 0, 2, 9]), space=NAMESPACES)
    def admit(self, ids: Ids, new: int, reserved: int, space: Namespace | None) -> None:
        self.try_to_admit(ids, new, space, reserved)

    @rule(ids=IDS, new=NEW, space=NAMESPACES)
    def admit_and_prefill(self, ids: Ids, new: int, space: Namespace | None) -> None:
        if served := self.try_to_admit(ids, new, space):
            self.prefill_and_cache(*served)

    @rule(
        ids=IDS,
        outputs=st.lists(st.integers(0, 1), min_size=1, max_size=6),
        space=NAMESPACES,
        cache_prompt=st.booleans(),
    )
    def serve_from_arrival_to_end(
        self, ids: Ids, outputs: list[int], space: Namespace | None, cache_prompt: bool
    ) -> None:
        """Either prompt and output go into the tree one after the other, or both at the end."""
        if served := self.try_to_admit(ids, len(outputs), space):
            if cache_prompt:
                self.prefill_and_cache(*served)
            else:
                self.prefill_whole(*served)
            for token in outputs:
                self.decode(-1, token)
            self.finish(-1)

    @rule(ids=IDS, new=NEW, space=NAMESPACES)
    def start_without_room(self, ids: Ids, new: int, space: Namespace | None) -> None:
        """Matched and locked, without asking whether its slots can be had."""
        self.match_and_wait(ids, new, space)
        self.lock_what_was_matched_earlier(-1)

    @rule(ids=IDS, new=NEW, space=NAMESPACES)
    def match_and_wait(self, ids: Ids, new: int, space: Namespace | None) -> None:
        request, life = self.arrival(ids, new, space)
        handle, found = self.manager.match(request), self.reference.match(life)
        assert handle.cached_len == len(found) * self.page_size
        assert handle.value.tolist() == self.reference.slots(found)
        last = self.reference.pages[found[-1]] if found else None
        border = last.border if last else 0
        self.waiting.append(Waiting(request, life, handle, found, last, border))

    @precondition(lambda self: self.waiting)
    @rule(which=ONE)
    def lock_what_was_matched_earlier(self, which: int) -> None:
        request, life, handle, found, last, border = self.waiting.pop(which % len(self.waiting))
        if self.reference.round_up(life.max_len) > self.reference.total_size:
            with pytest.raises(RequestTooLong):
                self.manager.lock(request, handle)
        elif last and (self.reference.pages.get(found[-1]) is not last or last.border != border):
            with pytest.raises(StaleHandle):
                self.manager.lock(request, handle)
        else:
            self.manager.lock(request, handle)
            self.reference.lock(life, found)
            self.running.append(Served(request, life))

    @precondition(lambda self: self.waiting)
    @rule(which=ONE)
    def release_before_it_runs(self, which: int) -> None:
        request = self.waiting.pop(which % len(self.waiting)).request
        self.manager.release(request)
        assert request.state is RequestState.ABORTED
        self.ended.append(request)

    # --- a running request ----------------------------------------------------------------------
    @precondition(lambda self: self.running)
    @rule(which=ONE, more=st.integers(0, 20))
    def allocate(self, which: int, more: int) -> None:
        request, life = self.pick(which)
        self.give(request, life, min(life.computed_len + more, life.max_len))

    @precondition(lambda self: self.running)
    @rule(which=ONE, share=st.sampled_from([1, 2, 4, 4]))
    def prefill(self, which: int, share: int) -> None:
        """Compute a part of what has slots."""
        request, life = self.pick(which)
        end = min(len(life.table), len(life.ids))
        life.computed_len += max(0, end - life.computed_len) * share // 4
        request.computed_len = life.computed_len

    @precondition(lambda self: self.running)
    @rule(which=ONE)
    def cache_request(self, which: int) -> None:
        self.cache(*self.pick(which))

    @precondition(lambda self: self.running)
    @rule(which=ONE)
    def prefill_whole_and_cache(self, which: int) -> None:
        self.prefill_and_cache(*self.pick(which))

    @precondition(lambda self: self.running)
    @rule(which=ONE, token=st.integers(0, 1))
    def decode(self, which: int, token: int) -> None:
        """Compute the last token and draw one more, if there may be more."""
        request, life = self.pick(which)
        if len(life.ids) - life.computed_len > 1 or request.is_done:
            return
        if self.prefill_whole(request, life):
            request.output.append(token)
            life.ids.append(token)

    @precondition(lambda self: self.running)
    @rule(which=ONE)
    def finish(self, which: int) -> None:
        request, life = self.pick(which)
        self.cache(request, life)
        self.release(which)

    @precondition(lambda self: self.running)
    @rule(which=ONE)
    def release(self, which: int) -> None:
        """Also an abort: at whatever point the request is."""
        request, life = self.running.pop(which % len(self.running))
        done = request.is_done
        self.manager.release(request)
        if life.held_len == 0 or life.held:
            self.reference.unlock(life)
        self.reference.free(life)
        assert request.state is (RequestState.FINISHED if done else RequestState.ABORTED)
        assert request.handle is None and not request.page_table
        self.ended.append(request)

    @precondition(lambda self: self.running)
    @rule(which=ONE)
    def unlock_and_linger(self, which: int) -> None:
        """Step 6 without step 7: the private slots are still held, the prefix isn't."""
        request, life = self.pick(which)
        assert request.handle is not None
        if request.handle.locked:
            self.manager.unlock(request)
            self.reference.unlock(life)
        else:
            with pytest.raises(NotLocked):
                self.manager.unlock(request)

    @precondition(lambda self: self.ended)
    @rule(which=ONE)
    def release_again(self, which: int) -> None:
        with pytest.raises(DoubleFree):
            self.manager.release(self.ended[which % len(self.ended)])

    # --- the pool -------------------------------------------------------------------------------
    @rule(num_tokens=st.sampled_from([0, 1, 2, 3, 5, 9, 17, 64]))
    def evict(self, num_tokens: int) -> None:
        free, evictable = self.manager.pool.free_size, self.manager.cache.evictable_size
        try:
            expected = self.reference.evict(num_tokens)
        except Refused:
            with pytest.raises(PoolExhausted) as refusal:
                self.manager.evict(num_tokens)
            assert (refusal.value.asked, refusal.value.evictable) == (num_tokens, evictable)
        else:
            assert self.manager.evict(num_tokens).tolist() == expected
            assert self.manager.pool.free_size == free + len(expected)

    @rule()
    def clear(self) -> None:
        if protected := self.reference.protected_size:
            with pytest.raises(StillLocked) as refusal:
                self.manager.clear()
            assert refusal.value.protected == protected
        else:
            self.manager.clear()
            self.reference.evict(self.reference.evictable_size)

    # --- what holds after every call ------------------------------------------------------------
    @invariant()
    def all_is_as_the_oracle_says(self) -> None:
        self.manager.check_integrity()
        self.check_sizes_and_free_list()
        self.check_nodes_slots_and_counts()
        self.check_order_of_eviction()
        self.check_page_tables()
        self.check_what_a_router_knows()

    def check_sizes_and_free_list(self) -> None:
        cache, reference = self.manager.cache, self.reference
        assert self.manager.pool.free_slots.tolist() == reference.free_slots
        assert cache.evictable_size == reference.evictable_size
        assert cache.protected_size == reference.protected_size
        if not self.running:
            assert len(reference.free_slots) + cache.evictable_size == reference.total_size

    def check_nodes_slots_and_counts(self) -> None:
        nodes = [node for node in self.manager.cache.tree.nodes() if not node.is_root()]
        expected = {edge.prefix: (edge.slots, edge.holders) for edge in self.reference.edges()}
        assert {prefix_of(n): (n.value.tolist(), n.ref_count) for n in nodes} == expected
        assert len(nodes) == len(expected)

    def check_order_of_eviction(self) -> None:
        order = [prefix_of(node) for node in self.manager.cache.strategy]
        assert order == self.reference.eviction_order()

    def check_page_tables(self) -> None:
        assert list(self.manager.running) == [served.request for served in self.running]
        for request, life in self.running:
            assert request.page_table.tolist() == life.table
            assert decode(request.tokens) == life.ids
            assert request.handle is not None and request.handle.cached_len == life.held_len

    def check_what_a_router_knows(self) -> None:
        assert self.heard == {
            page_hashes(encode(prefix.ids), self.page_size, prefix.namespace)[-1]
            for prefix in self.reference.pages
        }

    def teardown(self) -> None:
        """Let all end, then evict leaf by leaf: each victim is the oracle's."""
        if not hasattr(self, "manager"):
            return
        while self.running:
            self.release(0)
        while self.manager.cache.evictable_size:
            self.evict(1)
            self.all_is_as_the_oracle_says()
        assert self.manager.pool.free_size == self.manager.pool.total_size

    # --- helpers --------------------------------------------------------------------------------
    def arrival(self, ids: Ids, new: int, space: Namespace | None) -> Served:
        past = self.past[-1 - ids.ago % len(self.past)]
        prompt = past[: len(past) - len(past) * ids.dropped // 12]
        for token, length in ids.runs:
            prompt = prompt + [token] * max(1, length * self.page_size // 4)
        prompt = prompt or [0]
        self.past = [*self.past[-7:], prompt]
        request = Request(prompt, new, namespace=space)
        return Served(request, Life([*prompt], len(prompt), len(prompt) + new - 1, space))

    def try_to_admit(
        self, ids: Ids, new: int, space: Namespace | None, reserved: int = 0
    ) -> Served | None:
        request, life = self.arrival(ids, new, space)
        if self.reference.round_up(life.max_len) > self.reference.total_size:
            with pytest.raises(RequestTooLong):
                self.manager.admit(request, reserved)
            return None
        admitted = self.reference.admit(life, reserved)
        assert self.manager.admit(request, reserved) == admitted
        if not admitted:
            assert request.state is RequestState.WAITING and not request.page_table
            return None
        assert request.cache_hit_len == life.held_len
        self.running.append(Served(request, life))
        return self.running[-1]

    def pick(self, which: int) -> Served:
        return self.running[which % len(self.running)]

    def give(self, request: Request, life: Life, num_tokens: int) -> bool:
        """Slots for so many positions; whether there were enough."""
        free, evictable = len(self.reference.free_slots), self.reference.evictable_size
        assert request.handle is not None
        if not request.handle.locked:
            with pytest.raises(WrongState):
                self.manager.allocate(request, num_tokens)
            return False
        try:
            expected = self.reference.allocate(life, num_tokens)
        except Refused:
            with pytest.raises(PoolExhausted) as refusal:
                self.manager.allocate(request, num_tokens)
            asked = self.reference.round_up(num_tokens) - len(life.table)
            numbers = (refusal.value.asked, refusal.value.free, refusal.value.evictable)
            assert numbers == (asked, free, evictable)
            return False
        assert self.manager.allocate(request, num_tokens).tolist() == expected
        return True

    def prefill_whole(self, request: Request, life: Life) -> bool:
        if enough := self.give(request, life, len(life.ids)):
            request.computed_len = life.computed_len = len(life.ids)
        return enough

    def prefill_and_cache(self, request: Request, life: Life) -> None:
        if self.prefill_whole(request, life):
            self.cache(request, life)

    def cache(self, request: Request, life: Life) -> None:
        assert request.handle is not None
        if not request.handle.locked:
            with pytest.raises(NotLocked):
                self.manager.cache_request(request)
            return
        result = self.manager.cache_request(request)
        assert result.cached_len == self.reference.cache_request(life)
        self.past = [*self.past[-7:], life.ids[:]]


def prefix_of(node: RadixTreeNode) -> Prefix:
    return Prefix(node.namespace, tuple(i for part in node.path() for i in part.key))


TestManager = ManagerMachine.TestCase
TestManager.settings = settings(
    settings.get_profile("ci"), max_examples=500, stateful_step_count=40
)


class LongManagerMachine(ManagerMachine):
    """The same, for minutes."""


TestManagerForLong = pytest.mark.long(LongManagerMachine.TestCase)
TestManagerForLong.settings = settings(settings.get_profile("long"), stateful_step_count=80)
