"""Which leaf goes first, under each strategy: by hand, and against a brute-force reference."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.cache import CacheHandle, RadixCache
from radixlab.errors import InvalidArgument
from radixlab.eviction import LRU
from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.strategies import KEYS, STRATEGIES, SmallestKey, make_strategy
from radixlab.tokens import decode
from radixlab.tree import RadixTreeNode


class Cache:
    """A cache in which every token gets a slot of its own, and evictions are read as token ids."""

    def __init__(self, name: str, page_size: int = 1) -> None:
        self.cache = RadixCache(page_size, make_strategy(name))
        self.slots = 0

    def insert(self, ids: Sequence[int], priority: int = 0) -> None:
        """What one request does: match, lock, insert, unlock."""
        handle = self.cache.match_prefix(ids)
        self.cache.lock(handle)
        row = handle.value + self.new_slots(len(ids) - handle.cached_len)
        self.cache.insert_prefix(ids, row, held=handle, priority=priority)
        self.cache.unlock(handle)

    def new_slots(self, number: int) -> array[int]:
        """Whole pages, of which the last may be used in part."""
        first = self.slots
        self.slots += -(-number // self.cache.page_size) * self.cache.page_size
        return array("i", range(first, first + number))

    def evict_all(self) -> list[list[int]]:
        """The victims' edges, the first to go first."""
        victims = []
        while self.cache.evictable_size:
            before = {node: list(node.key) for node in self.cache.tree.nodes()}
            self.cache.evict(1)
            left = set(self.cache.tree.nodes())
            victims += [key for node, key in before.items() if node not in left]
            self.cache.check_integrity()
        return victims


A, B, C, D = [10, 11], [20, 21], [30, 31], [40, 41]
ORDERS = {
    # Inserted A, B, C, D, of which B three times in all and A twice; then C and A are matched.
    "lru": [D, B, C, A],
    "mru": [A, C, B, D],
    "fifo": [A, B, C, D],
    "filo": [D, C, B, A],
    "lfu": [D, C, A, B],
    "slru": [D, C, B, A],
    "priority": [D, B, C, A],
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_victims_of_four_separate_prompts_worked_by_hand(name: str) -> None:
    """The last uses are D, B, C, A in this order; A has 2 hits, B 3, C and D 1; all priority 0."""
    cache = Cache(name)
    for ids in (A, B, C, A, B, D, B):
        cache.insert(ids)
    for ids in (C, A):
        cache.cache.match_prefix(ids)
    assert cache.evict_all() == ORDERS[name]


def test_a_higher_priority_stays_longer_and_the_last_use_decides_between_equals() -> None:
    cache = Cache("priority")
    for ids, priority in ((A, 1), (B, 0), (C, 1), (D, -1), (A, 0)):
        cache.insert(ids, priority)
    assert cache.evict_all() == [D, B, C, A]  # A is still worth what its first request was


def test_priority_is_handed_down_from_the_request() -> None:
    manager = CacheManager(8, strategy=make_strategy("priority"), checked=True)
    for ids, priority in ((A, 1), (B, 0)):
        request = Request(ids, priority=priority)
        manager.admit(request)
        manager.allocate(request, 2)
        request.computed_len = 2
        manager.cache_request(request)
        manager.release(request)
    manager.evict(1)
    assert [list(node.key) for node in manager.cache.tree.nodes()][1:] == [A]
    manager.check_integrity()


def nodes(cache: RadixCache) -> dict[tuple[int, ...], RadixTreeNode]:
    return {tuple(node.key): node for node in cache.tree.nodes() if not node.is_root()}


def test_a_match_never_counts_a_hit_and_an_insert_counts_one_for_each_node() -> None:
    cache = Cache("lfu")
    cache.insert([1, 2, 3, 4])
    cache.cache.match_prefix([1, 2, 3, 4])
    cache.cache.match_prefix([1, 2])
    assert {key: n.hits for key, n in nodes(cache.cache).items()} == {(1, 2): 1, (3, 4): 1}
    cache.insert([1, 2, 5])
    hits = {key: n.hits for key, n in nodes(cache.cache).items()}
    assert hits == {(1, 2): 2, (3, 4): 1, (5,): 1}


@pytest.mark.parametrize("page_size", [1, 2])
def test_a_request_that_inserts_after_prefill_and_at_its_end_counts_once(page_size: int) -> None:
    manager = CacheManager(32, page_size, strategy=make_strategy("lfu"), checked=True)
    for _ in range(2):
        request = Request([1, 2, 3, 4, 5, 6], 5)
        manager.admit(request)
        manager.allocate(request, request.num_tokens)
        request.computed_len = request.num_tokens
        request.output.append(7)
        manager.cache_request(request)
        for _ in range(4):
            manager.allocate(request, request.num_tokens)
            request.computed_len = request.num_tokens
            request.output.append(7)
            manager.cache_request(request)
        manager.release(request)
        manager.check_integrity()
    assert {node.hits for node in nodes(manager.cache).values()} == {2}


def test_insertions_without_a_held_handle_count_the_whole_path() -> None:
    cache = RadixCache(strategy=make_strategy("slru"))
    for _ in range(3):
        cache.insert_prefix([1, 2], array("i", [0, 1]))
    assert nodes(cache)[1, 2].hits == 3


def test_a_split_copies_hits_priority_and_age_to_the_new_upper_node() -> None:
    cache = Cache("lfu")
    for _ in range(3):
        cache.insert([1, 2, 3, 4], priority=5)
    cache.cache.match_prefix([1, 2, 9])
    upper, lower = nodes(cache.cache)[1, 2], nodes(cache.cache)[3, 4]
    assert upper.uuid > lower.uuid
    for node in (upper, lower):
        assert (node.hits, node.priority, node.created) == (3, 5, lower.created)


@pytest.mark.parametrize(("name", "order"), [("fifo", [[3, 4], [1, 2], A]), ("filo", [A])])
def test_a_split_does_not_make_a_prefix_younger(name: str, order: list[list[int]]) -> None:
    cache = Cache(name)
    cache.insert([1, 2, 3, 4])
    cache.insert(A)
    cache.cache.match_prefix([1, 2, 9])
    assert cache.evict_all()[: len(order)] == order


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_prefix_that_is_held_again_is_no_candidate(name: str) -> None:
    cache = Cache(name)
    for ids in (A, B, C):
        cache.insert(ids)
    handles = [cache.cache.match_prefix(ids) for ids in (A, C)]
    for handle in handles:
        cache.cache.lock(handle)
    cache.cache.evict(1)
    assert set(nodes(cache.cache)) == {tuple(A), tuple(C)}
    assert cache.cache.evictable_size == 0
    for handle in handles:
        cache.cache.unlock(handle)
    assert sorted(cache.evict_all()) == [A, C]


@pytest.mark.parametrize("name", STRATEGIES)
def test_leaves_go_before_their_parents_whatever_the_key_says(name: str) -> None:
    cache = Cache(name)
    for ids in ([1, 2, 3], [1, 2, 4], [1, 2, 4, 5]):
        cache.insert(ids)
    victims = cache.evict_all()
    assert victims.index([1, 2]) == len(victims) - 1
    assert victims.index([5]) < victims.index([4])


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"one of lru, lfu, .* got 'arc'"):
        make_strategy("arc")


def test_every_strategy_is_made_anew_for_each_cache() -> None:
    for name in STRATEGIES:
        assert make_strategy(name) is not make_strategy(name)
    assert isinstance(make_strategy("lru"), LRU)


IDS = st.lists(st.integers(0, 2), min_size=1, max_size=8)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), IDS, st.integers(-1, 1)),
        st.tuples(st.just("match"), IDS),
        st.tuples(st.just("lock"), IDS),
        st.tuples(st.just("grow"), st.integers(0, 5), IDS),
        st.tuples(st.just("unlock"), st.integers(0, 5)),
        st.tuples(st.just("evict"), st.integers(1, 6)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("page_size", [1, 2])
@pytest.mark.parametrize("name", STRATEGIES)
@given(calls=CALLS)
def test_the_victim_is_always_the_unlocked_leaf_with_the_smallest_key(
    name: str, page_size: int, calls: list[tuple]
) -> None:
    """Every victim, against a look at all the nodes; the key is engines' own, the tie the age."""
    own = Cache(name, page_size)
    cache, held = own.cache, list[CacheHandle]()
    pop = cache.strategy.pop

    def checked_pop() -> RadixTreeNode:
        leaves = [n for n in cache.tree.nodes() if n.is_leaf() and not n.ref_count]
        expected = min(leaves, key=lambda n: (KEYS[name](n), n.uuid))
        victim = pop()
        assert victim is expected
        return victim

    cache.strategy.pop = checked_pop
    for what, *arguments in calls:
        if what == "insert":
            own.insert(*arguments)
        elif what == "match":
            cache.match_prefix(*arguments)
        elif what == "lock":
            held.append(cache.match_prefix(*arguments))
            cache.lock(held[-1])
        elif what == "grow" and held:
            _grow(own, held, *arguments)
        elif what == "unlock" and held:
            cache.unlock(held.pop(arguments[0] % len(held)))
        elif what == "evict":
            cache.evict(min(arguments[0], cache.evictable_size))
        cache.check_integrity(held)


def _grow(own: Cache, held: list[CacheHandle], which: int, more: list[int]) -> None:
    """A running request inserts below what it holds and holds that instead."""
    which %= len(held)
    old = held[which]
    key = b"".join(node._key for node in old.node.path())
    ids = decode(key) + more * own.cache.page_size
    row = old.value + own.new_slots(len(ids) - old.cached_len)
    new = own.cache.insert_prefix(ids, row, held=old).handle
    own.cache.move_lock(old, new)
    held[which] = new


@given(calls=CALLS)
def test_lru_without_a_heap_evicts_what_its_key_says(calls: list[tuple]) -> None:
    """The ordered dictionary and a heap over last uses agree, victim by victim."""
    one, other = Cache("lru"), Cache("lru")
    other.cache = RadixCache(1, SmallestKey(KEYS["lru"]))
    for what, *arguments in calls:
        for own in (one, other):
            if what == "insert":
                own.insert(*arguments)
            elif what == "match":
                own.cache.match_prefix(*arguments)
    assert one.evict_all() == other.evict_all()


def test_the_heap_does_not_grow_with_the_number_of_uses() -> None:
    cache = Cache("lfu")
    for ids in (A, B, C):
        cache.insert(ids)
    for _ in range(1000):
        cache.cache.match_prefix(A)
    strategy = cache.cache.strategy
    assert isinstance(strategy, SmallestKey)
    assert len(strategy._heap) < 50
    assert cache.evict_all() == [B, C, A]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_what_was_evicted_is_forgotten(name: str) -> None:
    """An hour's soak found emptied engines that still held thousands of evicted nodes."""

    def alive() -> int:
        gc.collect()
        return sum(type(each) is RadixTreeNode for each in gc.get_objects())

    before, cache = alive(), RadixCache(strategy=make_strategy(name))
    for i in range(400):
        cache.insert_prefix([i, 1], array("i", [2 * i, 2 * i + 1]))
    for i in range(390):
        cache.match_prefix([i, 1])
    cache.evict(800)
    assert alive() - before <= 1 + 16  # the root, and what the heap may keep


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_parent_that_becomes_a_leaf_is_not_forgotten(name: str) -> None:
    cache = RadixCache(strategy=make_strategy(name))
    for i in range(40):
        for ids in ([i, 1], [i, 1, 2], [i, 1, 2, 3]):
            held = len(ids) - 1 if len(ids) > 2 else 0
            slots = array("i", range(3 * i, 3 * i + len(ids)))
            assert cache.insert_prefix(ids, slots).cached_len == held
    for i in range(195):
        cache.match_prefix([i % 40, 1, 2, 3])
    while cache.evictable_size:  # each node goes, though most entries are stale
        cache.evict(1)
    assert len(cache.strategy) == 0
