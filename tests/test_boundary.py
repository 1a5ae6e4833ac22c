"""The border between prompt and output: both are cached, and the output can go first.

A request leaves its prompt and its output in the tree, with a border of nodes at the prompt's last
whole page (chapter, the note at the end of section 4.2). Others ask for the same prompt more often
than for the same answer.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.tree import RadixTreeNode
from tests.serving import compute, decode_on, finish, hit, serve, start

PAGE_SIZES = st.sampled_from([1, 2, 3, 4, 16])
IDS = st.lists(st.integers(0, 1), min_size=1, max_size=20)
OUTPUT = st.lists(st.integers(0, 1), min_size=1, max_size=20)
WHEN_CACHED = st.sampled_from(["at the end only", "after prefill", "after every pass"])


def pool(page_size: int) -> CacheManager:
    return CacheManager(256 // page_size + 1, page_size, checked=True)


def serve_and_cache(
    manager: CacheManager, prompt: list[int], output: list[int], when: str
) -> Request:
    request = start(manager, prompt, len(output))
    compute(request, output[0])
    if when != "at the end only":
        manager.cache_request(request)
    for token in output[1:]:
        decode_on(manager, request, [token])
        if when == "after every pass":
            manager.cache_request(request)
    finish(manager, request)
    return request


def borders(manager: CacheManager, ids: list[int]) -> set[int]:
    """How many tokens lie above each border of nodes on the path of `ids`."""
    node: RadixTreeNode | None = manager.cache.match_prefix(ids).node
    ends = set()
    while node is not None:
        ends.add(node.path_len)
        node = node.parent
    return ends


@given(PAGE_SIZES, IDS, OUTPUT, WHEN_CACHED)
def test_prompt_and_output_are_cached_with_a_border_between_them(
    page_size: int, prompt: list[int], output: list[int], when: str
) -> None:
    manager = pool(page_size)
    request = serve_and_cache(manager, prompt, output, when)
    border = manager.round_down(len(prompt))
    end = manager.round_down(request.max_len)
    assert manager.cache.total_size == end
    found = borders(manager, prompt + output)
    assert {0, border, end} <= found
    if when != "after every pass":
        assert found == {0, border, end}
    manager.check_integrity()


@given(PAGE_SIZES, IDS, OUTPUT, IDS, OUTPUT, WHEN_CACHED)
def test_the_border_is_there_whatever_else_is_cached(
    page_size: int,
    before: list[int],
    answer: list[int],
    prompt: list[int],
    output: list[int],
    when: str,
) -> None:
    """Also when the prompt ends inside an edge that others have left."""
    manager = pool(page_size)
    serve(manager, before, answer)
    request = serve_and_cache(manager, prompt, output, when)
    ids = prompt + output[:-1]
    assert manager.cache.match_prefix(ids).cached_len == manager.round_down(request.max_len)
    border, end = manager.round_down(len(prompt)), manager.round_down(request.max_len)
    assert {border, end} <= borders(manager, ids)
    manager.check_integrity()


@given(PAGE_SIZES, IDS, OUTPUT, WHEN_CACHED)
def test_the_output_goes_first(
    page_size: int, prompt: list[int], output: list[int], when: str
) -> None:
    manager = pool(page_size)
    request = serve_and_cache(manager, prompt, output, when)
    border, end = manager.round_down(len(prompt)), manager.round_down(request.max_len)
    assume(border < end)
    manager.evict(end - border)
    assert manager.cache.total_size == border
    assert hit(manager, [*prompt, 9]) == border


@given(PAGE_SIZES, IDS, OUTPUT, IDS)
def test_the_next_turn_finds_all_that_was_computed(
    page_size: int, prompt: list[int], output: list[int], question: list[int]
) -> None:
    """What has K and V is the prompt and all drawn tokens but the last."""
    manager = pool(page_size)
    serve(manager, prompt, output)
    turn = [*prompt, *output, *question]
    computed = len(prompt) + len(output) - 1
    assert hit(manager, turn) == manager.round_down(computed)
    again = serve(manager, turn, [1, 0])
    assert again.cache_hit_len == manager.round_down(computed)


@given(PAGE_SIZES, IDS, st.lists(st.tuples(IDS, OUTPUT), min_size=1, max_size=4))
def test_a_conversation_computes_each_token_at_most_once_and_a_page(
    page_size: int, system: list[int], turns: list[tuple[list[int], list[int]]]
) -> None:
    """Each turn starts from the last whole page of the turn before."""
    manager = pool(page_size)
    history, computed = list(system), 0
    for question, answer in turns:
        history += question
        request = serve(manager, history, answer)
        assert request.cache_hit_len >= manager.round_down(computed)
        history += answer
        computed = request.max_len


@pytest.mark.parametrize(
    ("page_size", "border", "end"), [(1, 5, 8), (2, 4, 8), (4, 4, 8), (8, 0, 8)]
)
def test_the_border_is_at_the_prompt_s_last_whole_page(
    page_size: int, border: int, end: int
) -> None:
    """A prompt of 5 and an output of 4, of which 3 are computed."""
    manager = pool(page_size)
    serve_and_cache(manager, [1, 2, 3, 4, 5], [6, 7, 8, 9], "at the end only")
    assert borders(manager, [1, 2, 3, 4, 5, 6, 7, 8]) == {0, border, end}
    assert len(manager.evict(1)) == end - border


def test_a_prompt_that_others_share_outlives_every_answer() -> None:
    """Ten answers to one prompt: room is made from the answers alone, the oldest first."""
    manager = CacheManager(40, checked=True)
    prompt = [1, 2, 3, 4, 5]
    for number in range(10):
        serve(manager, prompt, [100 + number] * 4)
    for left in range(9, -1, -1):
        assert len(manager.evict(1)) == 3
        assert manager.cache.total_size == 5 + 3 * left
        assert hit(manager, [*prompt, 6]) == 5


def test_an_aborted_request_leaves_what_it_had_made_findable() -> None:
    """The prompt was cached after prefill; the output was private and is freed."""
    manager = CacheManager(16, 2, checked=True)
    request = start(manager, [1, 2, 3, 4, 5], new=6)
    compute(request, 6)
    manager.cache_request(request)
    decode_on(manager, request, [7, 8, 9])
    manager.release(request)
    assert manager.cache.total_size == 4
    assert manager.pool.free_size == 32 - 4
    assert hit(manager, [1, 2, 3, 4, 5, 6, 7]) == 4


def test_a_prompt_computed_in_chunks_has_its_border_at_its_end_too() -> None:
    """Cached between chunks, the prompt has borders there as well, and one where it ends."""
    manager = CacheManager(16, 2, checked=True)
    request = start(manager, [1, 2, 3, 4, 5, 6, 7], new=4)
    for computed in (2, 5):
        request.computed_len = computed
        manager.cache_request(request)
        manager.check_integrity()
    compute(request, 8)
    decode_on(manager, request, [9, 10, 11])
    finish(manager, request)
    assert borders(manager, list(range(1, 12))) == {0, 2, 4, 6, 10}
