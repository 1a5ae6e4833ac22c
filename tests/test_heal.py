"""What a split has cut heals: with the other branch evicted, parts of one leaf are one again.

A match that ends inside an edge cuts it, and many such cuts would leave a chain of one-page nodes
that every later walk pays for. Nothing that anybody can find or hold changes when one goes.
"""

from __future__ import annotations

import itertools
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.cache import CacheHandle, RadixCache
from radixlab.errors import StaleHandle
from radixlab.events import BlockRemoved, CacheEvent
from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.snapshot import diff, take_snapshot
from radixlab.strategies import STRATEGIES, make_strategy
from radixlab.tokens import encode
from tests.serving import serve

IDS = st.lists(st.integers(0, 1), min_size=1, max_size=12)
PAGE_SIZES = st.sampled_from([1, 2, 3])
TURNS = st.lists(st.tuples(IDS, st.sampled_from(["insert", "match", "lock", "evict"])), max_size=30)


def content(cache: RadixCache) -> dict[bytes, list[int]]:
    """Every cached prefix of whole pages, and the slots of its last page."""
    found, size = {}, cache.page_size
    for node in cache.tree.nodes():
        above = b"".join(n._key for n in node.path()[:-1])
        for end in range(size, node.length + 1, size):
            found[above + node._key[: 4 * end]] = node.value[end - size : end].tolist()
    return found


def edges(cache: RadixCache) -> list[list[int]]:
    return [node.key.tolist() for node in cache.tree.nodes() if not node.is_root()]


def insert(cache: RadixCache, ids: list[int], first_slot: int) -> None:
    cache.insert_prefix(ids, array("i", range(first_slot, first_slot + len(ids))))


def hold_on_to(turns: list[tuple[list[int], str]], cache: RadixCache) -> list[CacheHandle]:
    """Play the turns; whatever is evicted, all else stays cached at its slots."""
    locked = []
    for number, (ids, turn) in enumerate(turns):
        if turn == "insert":
            insert(cache, ids, cache.page_size * 16 * number)
        elif turn == "evict" and cache.evictable_size:
            before = content(cache)
            gone = set(cache.evict(1))
            left = {prefix: page for prefix, page in before.items() if gone.isdisjoint(page)}
            assert content(cache) == left
            assert (len(before) - len(left)) * cache.page_size == len(gone)
        else:
            handle = cache.match_prefix(ids)
            if turn == "lock":
                cache.lock(handle)
                locked.append(handle)
        cache.check_integrity(locked)
    return locked


@given(TURNS, st.lists(IDS, min_size=1, max_size=5), PAGE_SIZES, st.sampled_from([*STRATEGIES]))
def test_healing_changes_neither_what_is_cached_where_nor_what_is_found_and_held(
    turns: list[tuple[list[int], str]], asked: list[list[int]], page_size: int, strategy: str
) -> None:
    cache = RadixCache(page_size, make_strategy(strategy))
    locked = hold_on_to(turns, cache)
    known = content(cache)
    for ids in asked:
        key = encode(ids)
        pages = [known.get(key[:end]) for end in range(4 * page_size, len(key) + 1, 4 * page_size)]
        found = itertools.takewhile(lambda page: page is not None, pages)
        slots = [slot for page in found for slot in page or ()]
        assert cache.match_prefix(ids).value.tolist() == slots
    for handle in locked:
        assert len(handle.value) == handle.cached_len
        cache.unlock(handle)
    cache.check_integrity([])


def test_a_chain_of_splits_shrinks_again() -> None:
    """20 requests have left the long prompt one token earlier each, and their own ends there."""
    cache = RadixCache()
    long = list(range(40))
    insert(cache, long, 0)
    for i in range(1, 21):
        assert cache.match_prefix(long, limit=40 - i).cached_len == 40 - i
        insert(cache, [*long[:-i], 100], 100 * i)
    assert len(edges(cache)) == 41
    held = cache.match_prefix(long)  # all parts are used alike again
    cache.lock(held)
    cache.evict(20)
    assert edges(cache) == [long]
    assert held.value.tolist() == long
    cache.unlock(held)
    cache.check_integrity([])


def test_what_was_used_apart_stays_apart() -> None:
    """The upper part was found again since: it would outlive the lower one, and still does."""
    cache = RadixCache()
    insert(cache, [1, 2, 3, 4], 0)
    insert(cache, [1, 2, 9], 10)
    cache.match_prefix([1, 2])
    assert cache.evict(1).tolist() == [2, 3]
    assert edges(cache) == [[1, 2], [9]]
    assert cache.evict(1).tolist() == [12]
    assert edges(cache) == [[1, 2]]


@pytest.mark.parametrize("strategy", ["lfu", "slru", "priority"])
def test_what_was_counted_apart_stays_apart(strategy: str) -> None:
    """Two insertions have passed the upper part, one the lower: a strategy may ask for that."""
    cache = RadixCache(1, make_strategy(strategy))
    insert(cache, [1, 2, 3, 4], 0)
    insert(cache, [1, 2, 9], 10)
    cache.lock(cache.match_prefix([1, 2, 3, 4]))
    assert cache.evict(1).tolist() == [12]
    assert edges(cache) == [[1, 2], [3, 4]]


def test_two_insertions_do_not_become_one() -> None:
    cache = RadixCache()
    insert(cache, [1, 2, 3, 4], 0)
    insert(cache, [1, 2, 9], 10)
    cache.match_prefix([1, 2, 9])
    assert cache.evict(1).tolist() == [2, 3]  # what is left was made at two times
    assert edges(cache) == [[1, 2], [9]]


def test_a_prompt_that_ends_inside_anothers_edge_keeps_its_border() -> None:
    """The border between prompt and output is there for as long as both are."""
    manager = CacheManager(32, checked=True)
    serve(manager, [1, 2, 3, 4, 5, 6])
    serve(manager, [1, 2, 3], [4, 0])  # prompt and output are cached already, as parts of it
    serve(manager, [1, 2, 3, 9])
    found = manager.match(Request([1, 2, 3, 4, 5, 6, 7]))
    manager.cache.lock(found)
    assert manager.evict(1).tolist() == [6]  # the 9
    assert edges(manager.cache) == [[1, 2], [3], [4], [5, 6]]
    manager.cache.unlock(found)


@given(PAGE_SIZES, IDS, IDS, st.lists(st.tuples(IDS, IDS), max_size=5))
def test_an_output_can_always_go_without_its_prompt(
    page_size: int, prompt: list[int], output: list[int], others: list[tuple[list[int], list[int]]]
) -> None:
    manager = CacheManager(100, page_size, checked=True)
    request = serve(manager, prompt, output)
    for other in others:
        serve(manager, *other)
        if manager.cache.evictable_size:
            manager.evict(1)
    end, border = manager.round_down(request.max_len), manager.round_down(request.prompt_len)
    handle = manager.cache.match_prefix(prompt + output[:-1])
    ends = {node.path_len for node in handle.node.path()}
    assert handle.cached_len < end or border == 0 or border in ends


def test_an_unlocked_handle_to_a_part_is_stale_once_it_is_whole_again() -> None:
    cache = RadixCache()
    insert(cache, [1, 2, 3, 4], 0)
    matched = cache.match_prefix([1, 2, 9])
    insert(cache, [1, 2, 9], 10)
    cache.match_prefix([1, 2, 3, 4])
    assert cache.evict(1).tolist() == [12]
    assert edges(cache) == [[1, 2, 3, 4]]
    with pytest.raises(StaleHandle):
        cache.lock(matched)
    assert cache.match_prefix([1, 2, 9]).cached_len == 2


def test_an_observer_hears_of_the_leaf_alone_and_pictures_show_no_more_gone() -> None:
    heard: list[CacheEvent] = []
    manager = CacheManager(16, observer=heard.append, checked=True)
    serve(manager, [1, 2, 3, 4])
    serve(manager, [1, 2, 9])
    manager.match(Request([1, 2, 3, 4, 5]))
    before, (upper, leaf) = take_snapshot(manager), manager.match(Request([1, 2, 9, 9])).node.path()
    manager.match(Request([1, 2, 3, 4, 5]))
    lower = manager.match(Request([1, 2, 3, 4, 5])).node
    heard.clear()
    manager.evict(1)
    assert (
        [len(e.block_hashes) for e in heard if isinstance(e, BlockRemoved)] == [1] == [len(heard)]
    )
    changes = diff(before, take_snapshot(manager))
    assert changes.removed == (leaf.uuid,) and changes.healed == ((upper.uuid, lower.uuid),)
    assert [(move.before, move.after) for move in changes.slots] == [("cached", "free")]
