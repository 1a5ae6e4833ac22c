"""Matched, locked, inserted, evicted: what each call promises, and what others got wrong."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.cache import RadixCache
from radixlab.errors import InvalidArgument, PoolExhausted, StaleHandle, WrongState
from radixlab.events import AllBlocksCleared, BlockRemoved, BlockStored, CacheEvent, page_hashes
from radixlab.eviction import LRU
from radixlab.lifecycle import lifecycle
from radixlab.manager import CacheManager
from radixlab.pool import PageAllocator
from radixlab.request import Request
from radixlab.snapshot import take_snapshot
from radixlab.strategies import make_strategy
from radixlab.tokens import Namespace, encode

IDS = st.lists(st.integers(0, 1), max_size=12)
PAGE_SIZES = st.sampled_from([1, 2, 4])


def insert(cache: RadixCache, ids: list[int], first_slot: int = 0) -> int:
    """Insert ids with ascending slots; returns how many were there before."""
    slots = array("i", range(first_slot, first_slot + len(ids)))
    return cache.insert_prefix(ids, slots).cached_len


def cached(cache: RadixCache) -> list[list[int]]:
    """The edges, each before those below it."""
    return [node.key.tolist() for node in cache.tree.nodes() if not node.is_root()]


def prefill(manager: CacheManager, request: Request) -> Request:
    """Admit, compute all tokens so far, and make them findable; the request keeps running."""
    assert manager.admit(request)
    manager.allocate(request, request.num_tokens)
    request.computed_len = request.num_tokens
    manager.cache_request(request)
    return request


def serve(manager: CacheManager, *prompts: list[int]) -> None:
    for prompt in prompts:
        manager.release(prefill(manager, Request(prompt)))


# --- match --------------------------------------------------------------------------------------
@given(PAGE_SIZES, st.lists(IDS, max_size=6), IDS, st.none() | st.integers(0, 14))
def test_a_match_finds_the_longest_cached_prefix_in_whole_pages(
    page_size: int, inserted: list[list[int]], ids: list[int], limit: int | None
) -> None:
    """The oracle: every prefix of whole pages that was inserted, and the page that came first."""
    cache, next_slot = RadixCache(page_size), 0
    page_of: dict[tuple[int, ...], range] = {}
    for sequence in inserted:
        insert(cache, sequence, next_slot)
        for end in range(page_size, len(sequence) + 1, page_size):
            page = range(next_slot + end - page_size, next_slot + end)
            page_of.setdefault(tuple(sequence[:end]), page)
        next_slot += 16
    handle = cache.match_prefix(ids, limit=limit)
    ends = range(page_size, len(ids[:limit]) + 1, page_size)
    found = [tuple(ids[:end]) for end in ends if tuple(ids[:end]) in page_of]
    assert handle.value.tolist() == [slot for prefix in found for slot in page_of[prefix]]
    assert handle.cached_len == len(found) * page_size
    cache.check_integrity([])


@given(PAGE_SIZES, IDS.filter(len))
def test_one_token_is_always_left_to_compute(page_size: int, ids: list[int]) -> None:
    """nano-vllm#144: a full hit left an empty query, and no logits to draw from."""
    manager = CacheManager(16, page_size, checked=True)
    serve(manager, ids)
    handle = manager.match(Request(ids))
    assert handle.cached_len == (len(ids) - 1) // page_size * page_size
    whole = len(ids) // page_size * page_size
    assert manager.cache.match_prefix(ids).cached_len == whole


@pytest.mark.parametrize(("page_size", "hit"), [(1, 240), (16, 240), (32, 224), (256, 0)])
def test_only_whole_pages_are_shared(page_size: int, hit: int) -> None:
    """vllm#54607: no hit at all on 240 shared tokens, with pages of 256."""
    manager = CacheManager(1024 // page_size, page_size)
    shared = list(range(240))
    serve(manager, [*shared, *[7] * 100])
    assert manager.match(Request([*shared, *[8] * 100])).cached_len == hit


def test_a_match_may_split_a_node_but_changes_no_content() -> None:
    cache = RadixCache()
    insert(cache, [1, 2, 3, 4])
    assert cache.match_prefix([1, 2, 9]).value.tolist() == [0, 1]
    assert cached(cache) == [[1, 2], [3, 4]]
    assert cache.match_prefix([1, 2, 3, 4]).value.tolist() == [0, 1, 2, 3]
    assert cache.total_size == 4


def test_a_match_refreshes_what_it_matched_and_nothing_else() -> None:
    """[1, 2] is matched, but its rest [3, 4] is the oldest and goes first."""
    cache = RadixCache()
    insert(cache, [1, 2, 3, 4])
    insert(cache, [5, 6], 4)
    cache.match_prefix([1, 2, 9])
    assert cache.evict(1).tolist() == [2, 3]
    assert cache.evict(1).tolist() == [4, 5]
    assert cache.evict(1).tolist() == [0, 1]


def test_equal_first_pages_are_not_enough() -> None:
    """vllm#15297: a weak hash served the wrong KV. Here tokens are compared, all of them."""
    cache = RadixCache(2)
    insert(cache, [1, 2, 3, 4, 5, 6])
    for ids, hit in (([1, 2, 3, 4, 5, 7], 4), ([1, 2, 4, 3], 2), ([2, 1], 0)):
        assert cache.match_prefix(ids).cached_len == hit


# --- namespaces ---------------------------------------------------------------------------------
SPACES = [None, *(Namespace(**{part: "x"}) for part in ("adapter", "salt", "tenant"))]
SPACES += [Namespace(), Namespace("x", "x"), Namespace("xx"), Namespace("x", "", "x")]


def test_equal_tokens_in_different_namespaces_share_nothing() -> None:
    """vllm#44701, #30931: another adapter's KV, since two strings ran together into one."""
    cache = RadixCache()
    for number, space in enumerate(SPACES):
        assert cache.match_prefix([1, 2, 3], namespace=space).cached_len == 0
        slots = array("i", range(3 * number, 3 * number + 3))
        cache.insert_prefix([1, 2, 3], slots, namespace=space)
    for number, space in enumerate(SPACES):
        handle = cache.match_prefix([1, 2, 3], namespace=space)
        assert handle.value.tolist() == [3 * number, 3 * number + 1, 3 * number + 2]
    cache.check_integrity([])


def test_an_equal_salt_still_hits() -> None:
    """vllm#53347: a salt hides prompts from others, not from those who have the same."""
    manager = CacheManager(8)
    manager.release(prefill(manager, Request([1, 2, 3], namespace=Namespace(salt="s"))))
    assert manager.match(Request([1, 2, 4], namespace=Namespace(salt="s"))).cached_len == 2
    assert manager.match(Request([1, 2, 4], namespace=Namespace(salt="t"))).cached_len == 0
    assert manager.match(Request([1, 2, 4])).cached_len == 0


# --- lock and unlock ----------------------------------------------------------------------------
def test_a_lock_holds_the_whole_path() -> None:
    """mini-sglang#52: a matched node was not locked, and was evicted under a running request."""
    cache = RadixCache()
    insert(cache, [1, 2, 3, 4])
    insert(cache, [1, 2, 5], 10)
    handle = cache.match_prefix([1, 2, 3, 4])
    cache.lock(handle)
    assert [node.ref_count for node in handle.node.path()] == [1, 1]
    assert (cache.evictable_size, cache.protected_size) == (1, 4)
    assert cache.evict(1).tolist() == [12]
    with pytest.raises(PoolExhausted):
        cache.evict(1)
    cache.unlock(handle)
    assert (cache.evictable_size, cache.protected_size) == (4, 0)


def test_the_root_may_be_locked_and_unlocked() -> None:
    """mini-sglang#46: a request that matched nothing has the root for its handle."""
    cache = RadixCache()
    handle = cache.match_prefix([1, 2])
    assert handle.cached_len == 0 and not handle.value
    cache.lock(handle)
    assert insert(cache, [5]) == 0 and cache.evict(1).tolist() == [0]
    cache.unlock(handle)
    cache.check_integrity([])


def test_each_holder_counts_and_the_last_one_to_go_makes_it_evictable() -> None:
    cache = RadixCache()
    insert(cache, [1, 2])
    handles = [cache.match_prefix([1, 2]) for _ in range(3)]
    for count, handle in enumerate(handles, 1):
        cache.lock(handle)
        assert handle.node.ref_count == count
        cache.check_integrity(handles[:count])
    for count, handle in enumerate(handles, 1):
        assert cache.evictable_size == 0
        cache.unlock(handle)
        cache.check_integrity(handles[count:])
    assert cache.evictable_size == 2


def test_a_split_below_a_holder_is_held_on_both_sides() -> None:
    cache = RadixCache()
    insert(cache, [1, 2, 3, 4])
    handle = cache.match_prefix([1, 2, 3, 4])
    cache.lock(handle)
    cache.match_prefix([1, 2])
    assert [node.ref_count for node in handle.node.path()] == [1, 1]
    assert (handle.cached_len, handle.value.tolist()) == (4, [0, 1, 2, 3])
    assert cache.protected_size == 4
    cache.unlock(handle)
    assert cache.evictable_size == 4


def test_matched_is_not_yet_held() -> None:
    cache = RadixCache()
    insert(cache, [1, 2])
    handle = cache.match_prefix([1, 2])
    cache.evict(2)
    insert(cache, [1, 2], 10)
    with pytest.raises(StaleHandle):
        cache.lock(handle)
    cache.lock(cache.match_prefix([1, 2]))


# --- insert -------------------------------------------------------------------------------------
def test_the_tree_keeps_its_own_copy_of_the_slots() -> None:
    """mini-sglang commit 94fe255: the tree aliased a page table that changed later."""
    cache = RadixCache()
    slots = array("i", [4, 5, 6])
    handle = cache.insert_prefix([1, 2, 3], slots).handle
    slots[:] = array("i", [0, 0, 0])
    handle.value[0] = 9
    assert handle.value.tolist() == [4, 5, 6]


@given(PAGE_SIZES, IDS, IDS)
def test_inserting_again_finds_everything_and_adds_nothing(
    page_size: int, one: list[int], other: list[int]
) -> None:
    cache = RadixCache(page_size)
    insert(cache, one)
    insert(cache, other, 16)
    before = [(node.key.tolist(), node.value) for node in cache.tree.nodes()]
    assert insert(cache, one, 32) == len(one) // page_size * page_size
    assert [(node.key.tolist(), node.value) for node in cache.tree.nodes()] == before


@given(IDS, IDS, PAGE_SIZES, st.integers(0, 40), st.integers(0, 40))
def test_a_limit_and_a_border_are_two_insertions_of_less(
    before: list[int], ids: list[int], page_size: int, limit: int, border: int
) -> None:
    """At a border as if one insertion ended there and another went on; at a limit both end."""
    limit = min(limit, len(ids))
    slots = array("i", range(1000 * page_size, 1000 * page_size + len(ids) + 7))
    one, two = RadixCache(page_size), RadixCache(page_size)
    for cache in (one, two):
        insert(cache, before)
    first = two.insert_prefix(ids[: min(border, limit)], slots[: min(border, limit)])
    second = two.insert_prefix(ids[:limit], slots[:limit])
    whole = one.insert_prefix(ids, slots, limit=limit, border=border)
    assert cached(one) == cached(two)
    assert whole.handle.value == second.handle.value
    missing = first.cached_len < first.handle.cached_len
    assert whole.cached_len == (first if missing else second).cached_len
    one.check_integrity()


@given(PAGE_SIZES, IDS, IDS, st.integers(0, 12))
def test_inserting_below_a_held_prefix_is_inserting_from_the_root(
    page_size: int, there: list[int], ids: list[int], held_len: int
) -> None:
    """The handle saves the walk and changes nothing else."""
    results = []
    for use_handle in (False, True):
        cache = RadixCache(page_size)
        insert(cache, there)
        handle = cache.match_prefix(ids, limit=held_len)
        cache.lock(handle)
        slots = array("i", range(16, 16 + len(ids)))
        held = handle if use_handle else None
        result = cache.insert_prefix(ids, slots, held=held)
        results.append((result.cached_len, result.handle.value, str(cache), cache.evictable_size))
        cache.check_integrity([handle])
    assert results[0] == results[1]


def test_the_same_prompt_twice_at_once_is_computed_twice_and_kept_once() -> None:
    """nano-vllm#219: insertion comes after the forward pass, so neither finds the other."""
    manager = CacheManager(8, checked=True)
    twins = [Request([1, 2, 3]), Request([1, 2, 3])]
    for request in twins:
        manager.admit(request)
        manager.allocate(request, 3)
        request.computed_len = 3
    assert [r.page_table.tolist() for r in twins] == [[0, 1, 2], [3, 4, 5]]
    assert [manager.cache_request(r).cached_len for r in twins] == [0, 3]
    assert [r.page_table.tolist() for r in twins] == [[0, 1, 2], [0, 1, 2]]
    assert manager.pool.free_list.tolist() == [3, 4, 5, 6, 7]
    manager.check_integrity()


def test_the_second_turn_finds_prompt_and_output() -> None:
    """sglang#16521: the key was taken before decode, so the next turn hit the prompt only."""
    manager = CacheManager(16, checked=True)
    request = prefill(manager, Request([1, 2, 3], 3))
    request.output.append(7)
    for token in (8, 9):
        manager.allocate(request, request.num_tokens)
        request.computed_len = request.num_tokens
        request.output.append(token)
    manager.cache_request(request)
    manager.release(request)
    assert manager.match(Request([1, 2, 3, 7, 8, 9, 4])).cached_len == 5


def test_a_request_that_has_drawn_tokens_before_it_starts_matches_those_too() -> None:
    """As after a retraction: what it had computed may still be there, but for one token."""
    manager = CacheManager(8)
    serve(manager, [1, 2, 3, 7, 8, 9])
    request = Request([1, 2, 3], 9)
    request.output.extend([7, 8])
    assert manager.match(request).cached_len == 4


def test_the_last_drawn_token_is_not_cached_because_its_kv_was_never_written() -> None:
    """nano-vllm#30: tokens drawn are one more than K and V written."""
    manager = CacheManager(8)
    request = prefill(manager, Request([1, 2, 3]))
    request.output.append(7)
    assert (request.num_tokens, request.computed_len, request.max_len) == (4, 3, 3)
    manager.cache_request(request)
    manager.release(request)
    assert manager.cache.match_prefix([1, 2, 3, 7]).cached_len == 3


# --- evict --------------------------------------------------------------------------------------
def test_leaves_go_first_and_the_least_recently_used_of_them() -> None:
    """LMCache#443: a block in the middle was evicted, and all behind it was held in vain."""
    cache = RadixCache()
    insert(cache, [1, 2])
    insert(cache, [1, 2, 3])
    insert(cache, [1, 2, 4], 10)
    insert(cache, [5], 20)
    cache.match_prefix([1, 2, 3])
    gone = [cache.evict(1).tolist() for _ in range(4)]
    assert gone == [[12], [20], [2], [0, 1]]
    assert cached(cache) == [] and cache.total_size == 0


def test_a_leaf_goes_whole_even_if_less_was_asked_for() -> None:
    cache = RadixCache(2)
    insert(cache, [1, 2, 3, 4, 5, 6])
    assert cache.evict(1).tolist() == [0, 1, 2, 3, 4, 5]
    assert cache.evict(0).tolist() == []


def test_unlocking_counts_as_use() -> None:
    cache = RadixCache()
    insert(cache, [1])
    handle = cache.match_prefix([1])
    cache.lock(handle)
    insert(cache, [2], 1)
    cache.unlock(handle)
    assert cache.evict(1).tolist() == [1]


def test_cached_is_evictable_and_not_free_until_somebody_needs_it() -> None:
    """sglang#6778: 'GPU memory is not released' after all requests have ended."""
    manager = CacheManager(4, checked=True)
    serve(manager, [1, 2, 3])
    assert (manager.pool.free_size, manager.cache.evictable_size) == (1, 3)
    assert manager.available_size == manager.pool.total_size
    serve(manager, [5, 6, 7, 8])
    assert cached(manager.cache) == [[5, 6, 7, 8]]


def test_an_admission_does_not_count_on_evicting_what_it_holds_itself() -> None:
    """mini-SGLang's PrefillAdder asks twice: what is held is no longer there to be evicted."""
    manager = CacheManager(4, checked=True)
    serve(manager, [1, 2])
    assert manager.available_size == 4
    request = Request([1, 2, 3], 2)
    assert not manager.admit(request, reserved=1)
    assert manager.available_size == 4
    assert manager.admit(request) and manager.available_size == 2


def test_clear_forgets_everything() -> None:
    manager = CacheManager(8, checked=True)
    serve(manager, [1, 2, 3], [1, 2, 4])
    manager.clear()
    assert cached(manager.cache) == [] and manager.pool.free_size == 8
    manager.check_integrity()


# --- events -------------------------------------------------------------------------------------
def test_an_observer_hears_what_is_stored_and_removed_and_nothing_of_splits() -> None:
    events: list[CacheEvent] = []
    cache = RadixCache(2, observer=events.append)
    insert(cache, [1, 2, 3, 4])
    cache.match_prefix([1, 2])
    insert(cache, [1, 2, 5, 6], 10)
    first, second = page_hashes(encode([1, 2, 3, 4]), 2)
    third = page_hashes(encode([1, 2, 5, 6]), 2)[1]
    assert events == [
        BlockStored((first, second), None, (1, 2, 3, 4), 2, None),
        BlockStored((third,), first, (5, 6), 2, None),
    ]
    cache.evict(1)
    assert events[2:] == [BlockRemoved((second,))]
    cache.clear()
    assert events[3:] == [AllBlocksCleared()]


def test_a_page_s_hash_stands_for_the_whole_prefix() -> None:
    """Equal pages behind different ones, or in different namespaces, have different hashes."""
    one, other = page_hashes(encode([1, 5]), 1), page_hashes(encode([2, 5]), 1)
    assert one[1] != other[1]
    assert one == page_hashes(encode([1, 5]), 1) == page_hashes(encode([1, 5, 6]), 1)[:2]
    spaces = [page_hashes(encode([1, 5]), 1, space)[1] for space in SPACES]
    assert len(set(spaces)) == len(SPACES)
    assert page_hashes(encode([1, 2, 3]), 2) == page_hashes(encode([1, 2]), 2)


# --- check_integrity really checks --------------------------------------------------------------
def tampered() -> CacheManager:
    """[1, 2] held, [3, 4] and [5, 6] below it unheld, one request with private slots."""
    manager = CacheManager(8, 2, checked=True)
    serve(manager, [1, 2, 3, 4], [1, 2, 5, 6])
    request = Request([1, 2, 7])
    assert manager.admit(request)
    manager.allocate(request, 3)
    manager.check_integrity()
    return manager


def a_count_too_many(manager: CacheManager) -> None:
    next(iter(manager.running)).handle.node.ref_count += 1  # type: ignore[union-attr]


def a_lost_holder(manager: CacheManager) -> None:
    manager.running.clear()


def a_wrong_size(manager: CacheManager) -> None:
    manager.cache.evictable_size += 2


def a_node_that_the_strategy_forgot(manager: CacheManager) -> None:
    manager.cache.strategy.remove(next(iter(manager.cache.strategy)))


def a_wrong_order(manager: CacheManager) -> None:
    manager.cache.strategy.touch(next(iter(manager.cache.strategy)))


def a_parent_before_its_child(manager: CacheManager) -> None:
    manager.release(next(iter(manager.running)))
    for node in list(manager.cache.strategy):
        node.timestamp = 0
        if not node.is_leaf():
            for other in list(manager.cache.strategy):
                if other is not node:
                    manager.cache.strategy.touch(other)


def a_slot_in_two_nodes(manager: CacheManager) -> None:
    one, other = manager.cache.strategy
    one.value[:] = other.value


def a_torn_page(manager: CacheManager) -> None:
    node = next(iter(manager.cache.strategy))
    node.value.reverse()


def a_gap_in_a_path(manager: CacheManager) -> None:
    next(iter(manager.cache.strategy)).end += 4


def a_link_that_leads_elsewhere(manager: CacheManager) -> None:
    node = next(iter(manager.cache.strategy))
    node.parent = manager.cache.tree.root


def a_page_that_nobody_owns(manager: CacheManager) -> None:
    manager.pool.allocate(1)


def a_page_with_two_owners(manager: CacheManager) -> None:
    request = next(iter(manager.running))
    request.page_table.extend(manager.pool.free_slots[:2])


def a_page_table_that_left_the_tree(manager: CacheManager) -> None:
    next(iter(manager.running)).page_table[0] += 1


def more_computed_than_there_are_slots(manager: CacheManager) -> None:
    next(iter(manager.running)).computed_len = 5


@pytest.mark.parametrize(
    "tamper",
    [
        a_count_too_many,
        a_lost_holder,
        a_wrong_size,
        a_node_that_the_strategy_forgot,
        a_wrong_order,
        a_parent_before_its_child,
        a_slot_in_two_nodes,
        a_torn_page,
        a_gap_in_a_path,
        a_link_that_leads_elsewhere,
        a_page_that_nobody_owns,
        a_page_with_two_owners,
        a_page_table_that_left_the_tree,
        more_computed_than_there_are_slots,
    ],
    ids=lambda function: function.__name__,
)
def test_check_integrity_notices(tamper: Callable[[CacheManager], None]) -> None:
    manager = tampered()
    tamper(manager)
    with pytest.raises(AssertionError):
        manager.check_integrity()


def test_check_integrity_accepts_what_happens_between_unlock_and_free() -> None:
    """Unlocked, a prefix may be evicted although its request has not ended yet."""
    manager = CacheManager(4, 2, checked=True)
    request = prefill(manager, Request([1, 2, 3]))
    manager.unlock(request)
    assert manager.evict(2).tolist() == [0, 1]
    manager.check_integrity()
    assert manager.free(request).tolist() == [2, 3]
    assert take_snapshot(manager).free_list == (2, 0, 4, 6)
    manager.check_integrity()


def test_a_deep_copy_of_a_manager_lives_a_life_of_its_own() -> None:
    manager = CacheManager(8, checked=True)
    for prompt in ([1, 2, 3], [1, 2, 4], [5, 6]):
        for _ in lifecycle(manager, [Request(prompt)]):
            pass
    copied = deepcopy(manager)
    for each in (copied, manager):
        assert list(each.evict(1)) == [2], "the least recently used leaf, in both"
        each.check_integrity()


COPIES: list[Callable[[Any], Any]] = [deepcopy, lambda it: pickle.loads(pickle.dumps(it))]


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("strategy", ["lru", "slru"])
def test_a_deep_copy_of_a_long_chat_needs_no_deep_stack(
    strategy: str, copied: Callable[[Any], Any]
) -> None:
    """A path of several hundred nodes, and some of the requests still run."""
    manager = CacheManager(2000, strategy=make_strategy(strategy), checked=True)
    kept = []
    for turn in range(1, 400):
        request = prefill(manager, Request(range(2 * turn), namespace=Namespace(salt="s")))
        request.output.append(0)
        manager.match(Request([*range(2 * turn - 1), -turn % 7, 0], namespace=request.namespace))
        if turn % 100:
            manager.release(request)
        else:
            kept.append(request)
    two, runs = copied((manager, kept))
    assert list(two.running) == runs and take_snapshot(two) == take_snapshot(manager)
    for one in (two, manager):
        for request in list(one.running):
            one.release(request)
        one.check_integrity()
    assert two.evict(500) == manager.evict(500)
    assert take_snapshot(two) == take_snapshot(manager)
    two.check_integrity()


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle"])
def test_a_deep_copy_of_a_handle_brings_its_cache_along(copied: Callable[[Any], Any]) -> None:
    manager = CacheManager(16, 2)
    serve(manager, [1, 2, 3, 4], [1, 2, 5, 6])
    handle, stale = manager.match(Request([1, 2, 3, 4, 0])), manager.match(Request([1, 2, 5, 6, 0]))
    manager.match(Request([1, 2, 3, 4, 0]))
    assert manager.evict(1)[0] == stale.node.value[0]
    twin, old = copied((handle, stale))
    assert twin.cache is old.cache is not manager.cache and twin.value == handle.value
    twin.cache.lock(twin)
    twin.cache.check_integrity([twin])
    with pytest.raises(StaleHandle):
        twin.cache.lock(old)


def test_a_manager_prints_its_tree_and_who_has_the_slots() -> None:
    manager = CacheManager(8, 2)
    serve(manager, [1, 2, 3, 4, 5])
    request = Request([1, 2, 9, 9, 9])
    assert manager.admit(request)
    manager.allocate(request, 5)
    assert str(manager).splitlines() == [
        "root",
        "└── [1, 2] -> [p0, p1]  ref_count 1",
        "    └── [3, 4] -> [p2, p3]",
        "8 free, 2 evictable, 2 protected, 4 private",
    ]


def test_a_strategy_serves_one_cache() -> None:
    strategy = LRU()
    RadixCache(strategy=strategy).insert_prefix([1, 2], array("i", [0, 1]))
    with pytest.raises(InvalidArgument, match="strategy must be one that no other cache uses"):
        RadixCache(strategy=strategy)


def test_a_stale_handle_has_no_slots() -> None:
    cache = RadixCache()
    handle = cache.insert_prefix([1, 2], array("i", [0, 1])).handle
    cache.evict(2)
    with pytest.raises(StaleHandle):
        handle.value  # noqa: B018


def test_an_unlocked_request_gets_no_slots() -> None:
    manager = CacheManager(8)
    request = Request([1, 2, 3])
    assert manager.admit(request)
    manager.unlock(request)
    with pytest.raises(WrongState, match="it is unlocked, and must be locked"):
        manager.allocate(request, 3)
    manager.free(request)
    manager.check_integrity()


def test_a_refused_free_marks_nothing() -> None:
    pool = PageAllocator(4, checked=True)
    slots = pool.allocate(2)
    with pytest.raises(TypeError):
        pool.free(array("q", slots))  # type: ignore[arg-type]
    pool.free(slots)
    assert pool.free_size == 4


def test_every_request_has_a_number_of_its_own() -> None:
    assert len({Request([1]).request_id for _ in range(5)}) == 5
