"""What went wrong in real systems, each with the value that is right.

The number is the failure's in the list that this project started from; the sentence is its lesson,
and the thread it comes from is named so that you can read it.
"""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections.abc import Sequence

import pytest

from radixlab.cache import RadixCache
from radixlab.errors import DoubleFree, WrongState
from radixlab.events import BlockStored, page_hashes
from radixlab.lifecycle import lifecycle
from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.scenarios import race_scenario
from radixlab.scheduler import Chunk, NullRunner
from radixlab.snapshot import take_snapshot
from radixlab.tokens import Namespace, decode, encode
from tests.serving import compute, decode_on, finish, hit, serve, start


class Watcher(NullRunner):
    """Counts like `NullRunner` and remembers what it was asked to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[tuple[int, int]] = []

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        self.chunks += [(start, end) for _, start, end in chunks]
        return super().prefill(chunks)


def run(manager: CacheManager, requests: Sequence[Request], batch_size: int = 1) -> Watcher:
    watcher = Watcher()
    for _ in lifecycle(manager, requests, runner=watcher, batch_size=batch_size):
        manager.check_integrity()
    return watcher


@pytest.mark.parametrize(
    ("page_size", "found"), [(1, 7), (2, 6), (3, 6), (4, 4), (7, 7), (8, 0), (16, 0)]
)
def test_03_a_prompt_that_is_cached_whole_still_computes_its_last_token(
    page_size: int, found: int
) -> None:
    """Nothing left to compute means no logits, so at most all but one token are taken from the
    cache, and then whole pages only (GeeeekExplorer/nano-vllm#144)."""
    manager = CacheManager(8, page_size, checked=True)
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    serve(manager, prompt)
    assert hit(manager, prompt) == found
    assert run(manager, [Request(prompt)]).chunks == [(found, 8)]


def test_03_a_prompt_of_one_token_is_never_a_hit() -> None:
    """Its only token is the last one (GeeeekExplorer/nano-vllm#144)."""
    manager = CacheManager(4, checked=True)
    serve(manager, [1], [2, 3])
    assert manager.cache.total_size == 2
    assert hit(manager, [1]) == 0


def test_04_a_drawn_token_needs_its_slot_one_pass_later() -> None:
    """A sampled token exists before its K and V are written, so the fifth token of pages of four
    asks for a page only when it is computed, and the last one never does
    (GeeeekExplorer/nano-vllm#30)."""
    manager = CacheManager(4, 4, checked=True)
    request = start(manager, [1, 2, 3, 4], new=6)
    compute(request, 5)
    seen = [(request.num_tokens, request.computed_len, len(request.page_table) // 4)]
    for token in (6, 7, 8, 9, 10):
        decode_on(manager, request, [token])
        seen.append((request.num_tokens, request.computed_len, len(request.page_table) // 4))
    assert seen == [(5, 4, 1), (6, 5, 2), (7, 6, 2), (8, 7, 2), (9, 8, 2), (10, 9, 3)]
    assert request.is_done and request.computed_len == request.max_len == 9


@pytest.mark.parametrize(
    ("page_size", "found"), [(1, 240), (16, 240), (32, 224), (64, 192), (128, 128), (256, 0)]
)
def test_05_only_whole_pages_are_shared(page_size: int, found: int) -> None:
    """240 shared tokens are no hit at all when a page holds 256 (vllm-project/vllm#54607)."""
    manager = CacheManager(1024 // page_size, page_size, checked=True)
    shared = list(range(240))
    serve(manager, [*shared, *[1000] * 60])
    assert hit(manager, [*shared, *[2000] * 60]) == found


@pytest.mark.parametrize("page_size", [1, 2, 8, 16])
def test_05_the_mean_loss_is_half_a_page_less_half_a_token(page_size: int) -> None:
    """Over all lengths of the shared part (page - 1) / 2 tokens are lost
    (vllm-project/vllm#3942)."""
    losses = []
    for shared in range(64, 64 + page_size):
        manager = CacheManager(256 // page_size, page_size, checked=True)
        serve(manager, [*range(shared), *[1000] * page_size])
        losses.append(shared - hit(manager, [*range(shared), *[2000] * page_size]))
    assert sum(losses) / len(losses) == (page_size - 1) / 2


def test_06_after_eviction_pages_are_still_whole_and_apart() -> None:
    """Eviction counted tokens and allocation pages, and two requests got overlapping pages; here
    one evicted token frees the whole page, and a page starts at a multiple of its size
    (sgl-project/mini-sglang#80)."""
    manager = CacheManager(6, 4, checked=True)
    for first in (10, 20, 30):
        serve(manager, [first, 1, 2, 3, 4, 5])  # one page cached, one half full and freed
    assert manager.evict(1).tolist() == [0, 1, 2, 3]
    one, two = start(manager, [1] * 5), start(manager, [2] * 9)
    assert [len(one.page_table), len(two.page_table)] == [8, 12]
    assert sorted([*one.page_table, *two.page_table]) == [*range(8), *range(12, 24)]
    for request in (one, two):
        assert [slot % 4 for slot in request.page_table] == [
            position % 4 for position in range(len(request.page_table))
        ]
    manager.check_integrity()


def test_07_a_lock_holds_the_whole_path() -> None:
    """The lock skipped a matched node and a running request lost its first tokens; every node
    from the match up to the root is held (sgl-project/mini-sglang#52)."""
    manager = CacheManager(16, checked=True)
    serve(manager, [1, 2, 3, 4, 5, 6])
    serve(manager, [1, 2, 9])
    serve(manager, [1, 2, 3, 4, 8])
    request = Request([1, 2, 3, 4, 5, 6, 7])
    assert manager.admit(request) and request.handle is not None
    path = request.handle.node.path()
    assert [node.key.tolist() for node in path] == [[1, 2], [3, 4], [5, 6]]
    assert [node.ref_count for node in path] == [1, 1, 1]
    assert len(manager.evict(manager.cache.evictable_size)) == 2  # [9] and [8]
    assert request.handle.value == request.page_table
    assert decode(b"".join(n._key for n in request.handle.node.path())) == [1, 2, 3, 4, 5, 6]


def test_07_a_handle_that_is_the_root_holds_nothing_and_harms_nothing() -> None:
    """No hit is a handle too: at the root, which is never evicted and never counted
    (sgl-project/mini-sglang#46)."""
    manager = CacheManager(8, checked=True)
    serve(manager, [1, 2, 3])
    request = Request([7, 8])
    assert manager.admit(request) and request.handle is not None
    assert request.handle.node.is_root() and request.handle.cached_len == 0
    assert manager.cache.protected_size == 0
    assert len(manager.evict(3)) == 3
    manager.release(request)
    assert manager.pool.free_size == 8 and manager.cache.tree.root.is_leaf()


def test_08_what_is_cached_is_evictable_and_not_free() -> None:
    """Memory was "not released" after the last request: it is cached, and given up as soon as
    somebody needs it; so show free, cached and in use (sgl-project/sglang#6778)."""
    manager = CacheManager(8, checked=True)

    def sizes() -> tuple[int, int, int]:
        state = take_snapshot(manager)
        cached = state.evictable_size + state.protected_size
        return state.free_size, cached, state.private_size

    request = start(manager, [1, 2, 3, 4], new=2)
    assert sizes() == (4, 0, 4)
    compute(request, 5)
    manager.cache_request(request)
    decode_on(manager, request, [6])
    assert sizes() == (3, 4, 1)
    finish(manager, request)
    assert sizes() == (3, 5, 0) and manager.cache.evictable_size == 5
    assert manager.available_size == 8
    start(manager, [7] * 8)
    assert sizes() == (0, 0, 8)


def test_09_a_request_gives_its_slots_back_once() -> None:
    """Two paths released the same slots, the one that finishes and the one that aborts; here the
    request's state refuses the second (sgl-project/sglang-jax#982)."""
    manager = CacheManager(8, checked=True)
    request = serve(manager, [1, 2, 3])
    aborted = start(manager, [4, 5])
    manager.release(aborted)
    for ended in (request, aborted):
        free = manager.pool.free_slots
        with pytest.raises(DoubleFree):
            manager.release(ended)
        with pytest.raises(WrongState):
            manager.free(ended)
        assert manager.pool.free_slots == free
    assert (request.state, aborted.state) == (RequestState.FINISHED, RequestState.ABORTED)


@pytest.mark.parametrize("checked", [True, False])
def test_09_a_full_free_list_takes_nothing_more(checked: bool) -> None:
    """Also without an owner for each page, more than the pool can't be free
    (sgl-project/sglang-jax#982)."""
    manager = CacheManager(4, checked=checked)
    request = start(manager, [1, 2])
    table = request.page_table[:]
    manager.release(request)
    with pytest.raises(DoubleFree):
        manager.pool.free(table)
    assert manager.pool.free_size == 4


def test_10_the_tree_keeps_its_own_slots() -> None:
    """The tree stored a slice of the page table, and changed when the table was reused; a value is
    copied on insertion, and a handle hands out copies
    (sgl-project/mini-sglang, commit 94fe255)."""
    cache = RadixCache(2)
    slots = array("i", [6, 7, 2, 3])
    handle = cache.insert_prefix([1, 2, 3, 4], slots).handle
    for changed in (slots, handle.value):
        changed[:] = array("i", [0, 1, 0, 1])
        assert cache.match_prefix([1, 2, 3, 4]).value.tolist() == [6, 7, 2, 3]
    manager = CacheManager(8, checked=True)
    request = start(manager, [1, 2])
    compute(request, 0)
    found = manager.cache_request(request).handle
    request.page_table[0] = 5
    assert found.value.tolist() == [0, 1]


@pytest.mark.parametrize(("batch_size", "computed"), [(1, 5 + 1), (2, 5 + 5)])
def test_11_two_equal_prompts_in_one_step_are_computed_twice(
    batch_size: int, computed: int
) -> None:
    """Insertion comes after the forward pass, so in one batch neither finds the other: 10 tokens
    are computed where 6 would do, and the scheduler has to look for it
    (GeeeekExplorer/nano-vllm#219, sgl-project/sglang#2442)."""
    scenario = race_scenario()
    watcher = run(scenario.manager, scenario.requests, batch_size)
    assert watcher.prefilled_tokens == computed
    assert [r.cache_hit_len for r in scenario.requests] == [0, 10 - computed]
    assert scenario.manager.cache.total_size == 5
    assert scenario.manager.pool.free_size == 12 - 5


def test_11_the_slower_twin_gives_its_duplicates_back_and_reads_the_tree_s() -> None:
    """What was computed twice is kept once: insert says that 5 tokens were there, and the page
    table leaves the freed slots at once (GeeeekExplorer/nano-vllm#219)."""
    manager = CacheManager(12, checked=True)
    first, second = start(manager, [7, 8, 9, 10, 11]), start(manager, [7, 8, 9, 10, 11])
    assert second.page_table.tolist() == [5, 6, 7, 8, 9]
    compute(first, 0)
    compute(second, 0)
    assert manager.cache_request(first).cached_len == 0
    assert manager.cache_request(second).cached_len == 5
    assert second.page_table == first.page_table == array("i", [0, 1, 2, 3, 4])
    assert manager.pool.free_list.tolist() == [5, 6, 7, 8, 9, 10, 11]
    assert hit(manager, [7, 8, 9, 10, 11, 12]) == 5


@pytest.mark.parametrize(("page_size", "found"), [(1, 8), (2, 8), (4, 8), (3, 6), (16, 0)])
def test_12_the_second_turn_finds_prompt_and_output(page_size: int, found: int) -> None:
    """The key was taken before decode, so the second turn found the prompt alone; what is inserted
    at the end is prompt + output, 6 + 2 here, for the third token drawn was never computed
    (sgl-project/sglang#16521)."""
    manager = CacheManager(16, page_size, checked=True)
    serve(manager, [1, 2, 3, 4, 5, 6], [101, 102, 103])
    assert hit(manager, [1, 2, 3, 4, 5, 6, 101, 102, 103, 7, 8]) == found


def test_13_what_a_template_drops_is_a_dead_branch() -> None:
    """The next turn leaves out what was only thought, and finds the first question alone; the
    branch is held, but nobody comes back to it, and it is the first to go
    (sgl-project/sglang#22617)."""
    manager = CacheManager(32, checked=True)
    asked, thought, said = [1, 2, 3], [91, 92, 93, 94], [4, 5]
    serve(manager, asked, [*thought, *said])
    assert manager.cache.total_size == 3 + 4 + 1
    assert hit(manager, [*asked, *thought, *said, 6]) == 8
    assert hit(manager, [*asked, *said, 6]) == 3
    serve(manager, [*asked, *said, 6])
    assert manager.evict(1).tolist() == [3, 4, 5, 6, 7]
    assert hit(manager, [*asked, *said, 6, 7]) == 6


def test_15_what_is_computed_starts_where_the_cache_ends() -> None:
    """Log-probabilities were expected for the whole prompt, but cached tokens have no logits: a
    pass computes positions 4 and 5 of 6 (vllm-project/vllm#3251)."""
    manager = CacheManager(8, checked=True)
    serve(manager, [900, 10, 11, 12])
    request = Request([900, 10, 11, 12, 31, 32])
    watcher = run(manager, [request])
    assert watcher.chunks == [(4, 6)]
    assert watcher.prefilled_tokens == request.prompt_len - request.cache_hit_len == 2


NAMESPACES = [
    None,
    Namespace(),
    Namespace(adapter="a"),
    Namespace(salt="a"),
    Namespace(tenant="a"),
    Namespace(adapter="a", salt="b"),
    Namespace(adapter="ab"),
    Namespace(adapter="a|b"),
    Namespace(adapter="a', salt='b"),
    Namespace(adapter=""),
    Namespace(adapter="None"),
]


def test_16_no_two_namespaces_run_together_into_one() -> None:
    """Adapter and salt were joined to one string, and "a" + "bc" met "ab" + "c"; the parts are
    compared one by one (vllm-project/vllm#44701, #30931)."""
    manager = CacheManager(64, 2, checked=True)
    for namespace in NAMESPACES:
        assert hit(manager, [1, 2, 3], namespace) == 0
        serve(manager, [1, 2, 3], namespace=namespace)
    assert [hit(manager, [1, 2, 3], namespace) for namespace in NAMESPACES] == [2] * 11
    assert manager.cache.total_size == 2 * len(NAMESPACES)
    hashes = {page_hashes(encode([1, 2]), 2, namespace)[0] for namespace in NAMESPACES}
    assert len(hashes) == len(NAMESPACES)
    manager.check_integrity()


def test_17_a_salt_hides_a_prompt_and_still_hits_for_its_owner() -> None:
    """The time to the first token told one tenant what another had asked; under another salt
    nothing is found, under the same salt everything (vllm-project/vllm#17045, #53347)."""
    manager = CacheManager(32, checked=True)
    prompt = [1, 2, 3, 4]
    serve(manager, prompt, namespace=Namespace(salt="mine"))
    assert hit(manager, prompt, Namespace(salt="yours")) == 0
    assert hit(manager, prompt) == 0
    assert hit(manager, prompt, Namespace(salt="mine")) == 3


def test_18_a_hit_is_decided_by_the_tokens_and_not_by_their_hash() -> None:
    """A weak hash took one prompt for another and served its KV; here all 120 orders of the same
    five tokens, equal under any sum or xor, share exactly their common prefix
    (vllm-project/vllm#15297)."""
    manager = CacheManager(1024, checked=True)
    done: list[tuple[int, ...]] = []
    for prompt in itertools.permutations([1, 2, 3, 4, 5]):
        common = [sum(1 for _ in _agreement(prompt, other)) for other in done]
        assert hit(manager, [*prompt, 6]) == max(common, default=0)
        serve(manager, prompt)
        done.append(prompt)
    assert manager.cache.total_size == 5 + 20 + 60 + 120 + 120


def _agreement(one: Sequence[int], other: Sequence[int]) -> object:
    return itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True))


def test_18_what_leaves_the_cache_as_a_hash_is_a_sha_256_of_all_before_it() -> None:
    """Others compare pages by their hash alone, so it is a strong one, chained from the first
    page on: the same page after another prefix has another hash (vllm-project/vllm#15297)."""
    stored: list[BlockStored] = []
    cache = RadixCache(2, observer=stored.append)
    cache.insert_prefix([1, 2, 9, 9], array("i", range(4)))
    cache.insert_prefix([3, 4, 9, 9], array("i", range(4, 8)))
    start = hashlib.sha256(b"namespace None").digest()
    first = hashlib.sha256(start + encode([1, 2])).digest()
    assert stored[0].block_hashes == (first, hashlib.sha256(first + encode([9, 9])).digest())
    assert len({h for event in stored for h in event.block_hashes}) == 4


def test_20_what_is_cached_can_always_be_reached() -> None:
    """A block in the middle went first, and its suffix was held though nobody could find it; the
    oldest leaf goes, never what others continue (LMCache/LMCache#443)."""
    manager = CacheManager(16, checked=True)
    chains = [[1, 2, 3, 4], [1, 2, 5, 6], [1, 2, 3, 4, 7, 8]]
    for chain in chains:
        serve(manager, chain)
    manager.match(Request([1, 2, 3, 0]))  # [1, 2] and [3] are the youngest now
    gone = []
    while manager.cache.evictable_size:
        gone.append(len(manager.evict(1)))
        reached = {tuple(c[:n]) for c in chains for n in range(1, 1 + _cached(manager, c))}
        assert len(reached) == manager.cache.total_size
    assert gone == [2, 2, 1, 1, 2]  # [5, 6], [7, 8], [4], [3], [1, 2]


def _cached(manager: CacheManager, ids: list[int]) -> int:
    return manager.cache.match_prefix(ids).cached_len
