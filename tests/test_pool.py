"""The free list: what is handed out, comes back, and is handed out next."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.errors import DoubleFree, InvalidArgument, InvalidPageSize, PoolExhausted
from radixlab.pool import PageAllocator

SIZES = st.tuples(st.integers(1, 12), st.sampled_from([1, 2, 4, 16]))
CALLS = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=30)


@given(SIZES, CALLS, st.booleans())
def test_pages_are_handed_out_like_from_a_list(
    sizes: tuple[int, int], calls: list[tuple[bool, int]], checked: bool
) -> None:
    """The oracle: a list of pages, taken from the front and put back at the front."""
    num_pages, page_size = sizes
    pool = PageAllocator(num_pages, page_size, checked=checked)
    free = list(range(0, num_pages * page_size, page_size))
    blocks: list[array[int]] = []
    for allocate, number in calls:
        if not allocate and blocks:
            block = blocks.pop(number % len(blocks))
            pool.free(block)
            free = block[::page_size].tolist() + free
        elif number > len(free):
            with pytest.raises(PoolExhausted) as refusal:
                pool.allocate(number)
            assert refusal.value.asked == number * page_size
            assert refusal.value.free == len(free) * page_size
        else:
            pages, free = free[:number], free[number:]
            blocks.append(pool.allocate(number))
            assert blocks[-1].tolist() == [p + i for p in pages for i in range(page_size)]
        assert pool.free_list.tolist() == free
        assert pool.free_slots.tolist() == [p + i for p in free for i in range(page_size)]
        assert pool.free_size == len(free) * page_size


def test_a_fresh_pool_gives_ascending_slots() -> None:
    pool = PageAllocator(4, 2)
    assert pool.allocate(2).tolist() == [0, 1, 2, 3]
    assert pool.allocate(2).tolist() == [4, 5, 6, 7]


def test_blocks_are_reused_last_in_first_out_and_each_in_its_own_order() -> None:
    pool = PageAllocator(6)
    pool.allocate(2)
    first, second = pool.allocate(2), pool.allocate(2)
    pool.free(first)
    pool.free(second)
    assert pool.free_list.tolist() == [4, 5, 2, 3]


def test_pages_stay_whole_however_often_they_come_and_go() -> None:
    """mini-sglang#80: tokens and pages mixed up, until pages overlapped."""
    pool = PageAllocator(4, 4, checked=True)
    for _ in range(10):
        one, two = pool.allocate(1), pool.allocate(3)
        pool.free(one)
        pool.free(two)
        assert all(slot % 4 == 0 for slot in pool.free_list)
        assert sorted(pool.free_slots) == list(range(16))


def test_what_was_handed_out_is_a_copy() -> None:
    """mini-sglang commit 94fe255: a slice that aliased changed behind its owner's back."""
    pool = PageAllocator(4)
    mine = pool.allocate(2)
    mine[0] = 99
    pool.free_list[0] = 99
    assert pool.free_slots.tolist() == [2, 3]
    pool.free(array("i", [0, 1]))
    assert pool.free_slots.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "slots",
    [[0, 1, 0, 1], [0, 2], [1, 2], [1, 0], [8, 9], [-2, -1], [4, 5], [0, 1, 2, 3, 4, 5]],
    ids=str,
)
def test_a_checked_pool_takes_back_only_whole_pages_that_are_out(slots: list[int]) -> None:
    """Twice the same page, torn or reversed pages, pages of another pool, pages that are free."""
    pool = PageAllocator(4, 2, checked=True)
    pool.allocate(2)
    before = pool.free_slots
    with pytest.raises(DoubleFree):
        pool.free(array("i", slots))
    assert pool.free_slots == before
    pool.free(array("i", [2, 3, 0, 1]))
    assert pool.free_list.tolist() == [2, 0, 4, 6]


def test_an_unchecked_pool_still_notices_that_the_free_list_overflows() -> None:
    pool = PageAllocator(2)
    slots = pool.allocate(1)
    pool.free(slots)
    with pytest.raises(DoubleFree) as refusal:
        pool.free(slots)
    assert (refusal.value.asked, refusal.value.held) == (1, 0)
    assert pool.free_slots.tolist() == [0, 1]


def test_half_a_page_is_not_taken_back() -> None:
    pool = PageAllocator(2, 4)
    slots = pool.allocate(1)
    with pytest.raises(InvalidArgument):
        pool.free(slots[:3])
    assert pool.free_list.tolist() == [4]


def test_nobody_takes_a_negative_number_of_pages() -> None:
    pool = PageAllocator(2)
    pool.allocate(1)
    with pytest.raises(PoolExhausted):
        pool.allocate(-2)
    assert pool.free_slots.tolist() == [1]


@pytest.mark.parametrize(("pages", "page_size"), [(0, 1), (-1, 2), (4, 0), (4, -1), (1.5, 1)])
def test_a_pool_has_at_least_one_page_of_at_least_one_token(pages: int, page_size: int) -> None:
    with pytest.raises(InvalidPageSize):
        PageAllocator(pages, page_size)
