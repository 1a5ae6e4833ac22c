"""Hostile input: each is refused by the library, in its own words, and the state is as before."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest

from radixlab.cache import CacheHandle, RadixCache
from radixlab.errors import (
    AlreadyLocked,
    DoubleFree,
    EmptyPrompt,
    ForeignHandle,
    InvalidArgument,
    InvalidPageSize,
    InvalidTokenId,
    LengthMismatch,
    NotLocked,
    PoolExhausted,
    RadixLabError,
    RequestTooLong,
    StaleHandle,
    WrongState,
)
from radixlab.manager import CacheManager
from radixlab.pool import PageAllocator
from radixlab.request import Request
from radixlab.snapshot import Snapshot, take_snapshot
from radixlab.tokens import Namespace, decode, encode
from radixlab.tree import RadixTree
from tests.serving import compute, finish, hit, serve, start

LARGEST = 2**31 - 1


def unchanged(manager: CacheManager, call: Callable[[], object], *errors: type[Exception]) -> str:
    """The call raises one of `errors` and leaves everything as it was; returns the message."""
    before = state(manager)
    with pytest.raises(errors) as refusal:
        call()
    assert isinstance(refusal.value, RadixLabError)
    assert state(manager) == before
    manager.check_integrity()
    return str(refusal.value)


def state(manager: CacheManager) -> tuple[Snapshot, list[int]]:
    order = [node.uuid for node in manager.cache.strategy]
    return take_snapshot(manager), order


@pytest.fixture
def manager() -> CacheManager:
    """[1, 2, 3, 4] cached, [1, 2] of it held by a request that has half computed its own part."""
    manager = CacheManager(16, 2, checked=True)
    serve(manager, [1, 2, 3, 4])
    start(manager, [1, 2, 9, 9, 9], new=3).computed_len = 3
    return manager


# --- token ids ------------------------------------------------------------------------------------
def vectors() -> Iterator[Any]:
    """Good ids in every form that the field uses; the ids are 5, 6, 7."""
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        yield numpy.array([5, 6, 7], dtype)
        yield torch.tensor([5, 6, 7]).to(getattr(torch, dtype))
    yield numpy.arange(14, dtype="int32")[::-1][8:5:-1]  # strides below zero
    yield numpy.array([[5, 0], [6, 0], [7, 0]])[:, 0]  # not contiguous
    yield numpy.array([5, 6, 7], ">i4")  # the other byte order
    yield torch.tensor([[5, 6, 7], [0, 0, 0]]).T[:, 0]
    yield torch.tensor([5, 0, 6, 0, 7])[::2]
    yield [numpy.int64(5), torch.tensor(6), 7]
    yield from ((5, 6, 7), range(5, 8), iter([5, 6, 7]), {5: "", 6: "", 7: ""})
    yield (i for i in (5, 6, 7))
    yield from (array("q", [5, 6, 7]), memoryview(array("i", [5, 6, 7])), encode([5, 6, 7]))


def test_token_ids_come_in_many_forms() -> None:
    for ids in vectors():
        assert decode(Request(ids).prompt) == [5, 6, 7], f"{type(ids)}: {ids!r}"


def bad_ids() -> list[Any]:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    return [
        *([5, bad] for bad in (-1, 2**31, 2**63, -(2**31), 10**30, 1.0, float("nan"), 1j, "7")),
        *([5, bad] for bad in (None, [7], (7,), b"7", Fraction(7), object(), Ellipsis, int)),
        *([True, False], [5, True], numpy.array([True, False]), torch.tensor([True])),
        *("text", "7", {"a": 1}, [""]),
        *(5, 5.0, None, True, object(), int),
        *(numpy.int32(5), numpy.array(5), torch.tensor(5), numpy.float32(5)),
        *(numpy.array([5.0]), torch.tensor([5.0]), numpy.array([5, -1]), torch.tensor([2**31])),
        *(numpy.array([[5, 6], [7, 8]]), torch.tensor([[5, 6], [7, 8]]), numpy.zeros((2, 0))),
        *(numpy.array(["5"]), numpy.array([5], object) * 1.5, torch.tensor([5], dtype=torch.half)),
        *([numpy.float64(5)], [torch.tensor(5.0)], [torch.tensor([5, 6])], [numpy.bool_(True)]),
        *([[]], [[5]], [5, numpy.int64(-1)], array("f", [5.0]), array("q", [-1])),
    ]


@pytest.mark.parametrize("number", range(54))
def test_what_is_no_token_ids_is_refused_everywhere(number: int, manager: CacheManager) -> None:
    ids = bad_ids()[number]
    refused = (InvalidTokenId, InvalidArgument)
    for call in (
        lambda: Request(ids),
        lambda: manager.cache.match_prefix(ids),
        lambda: manager.cache.insert_prefix(ids, array("i", [0, 1])),
    ):
        message = unchanged(manager, call, *refused)
        assert len(message) < 300


@pytest.mark.parametrize("length", [1, 2, 3, 5, 4097])
def test_bytes_that_are_not_whole_tokens_make_no_request_and_no_node(
    length: int, manager: CacheManager
) -> None:
    ids, slots = bytes(length), array("i", range(length // 4))
    unchanged(manager, lambda: Request(ids), InvalidArgument)
    insert = manager.cache.insert_prefix
    unchanged(manager, lambda: insert(ids, slots), InvalidArgument, LengthMismatch)


def test_all_bad_ids_were_tried() -> None:
    assert len(bad_ids()) == 54


@pytest.mark.parametrize(
    "empty", [list, tuple, str, bytes, dict, lambda: iter(()), lambda: range(0)]
)
def test_an_empty_prompt_is_refused(empty: Callable[[], Any], manager: CacheManager) -> None:
    unchanged(manager, lambda: Request(empty()), EmptyPrompt)
    assert manager.cache.match_prefix(empty()).cached_len == 0
    assert manager.cache.insert_prefix(empty(), array("i")).cached_len == 0
    manager.check_integrity()


def test_an_error_inside_a_generator_is_the_generator_s_own(manager: CacheManager) -> None:
    def broken() -> Iterator[int]:
        yield 5
        raise ConnectionError("the tokenizer has gone")

    before = state(manager)
    with pytest.raises(ConnectionError):
        Request(broken())
    assert state(manager) == before


@pytest.mark.parametrize("page_size", [1, 2, 4])
def test_ids_at_the_edges_of_int32_are_tokens_like_any_other(page_size: int) -> None:
    manager = CacheManager(32, page_size, checked=True)
    edges = [LARGEST, 0, LARGEST, LARGEST - 1, 0, 0, 2**24, 2**16, 255, 256, 128, 127]
    serve(manager, edges, [LARGEST, 0])
    serve(manager, [LARGEST] * 9, [0, LARGEST])
    assert hit(manager, [*edges, LARGEST, 1]) == manager.round_down(13)
    assert hit(manager, [*edges[:8], 1]) == 8
    assert hit(manager, [0, LARGEST, LARGEST, LARGEST]) == 0
    manager.check_integrity()


@pytest.mark.parametrize("new", [0, -1, 1.5, 1.0, "3", None, True, float("inf"), [1]])
def test_the_number_of_new_tokens_is_a_positive_integer(new: Any, manager: CacheManager) -> None:
    unchanged(manager, lambda: Request([1], new), InvalidArgument)


@pytest.mark.parametrize("space", ["a", b"a", 1, {"salt": "a"}, ("a",), Namespace])
def test_a_namespace_is_a_namespace(space: Any, manager: CacheManager) -> None:
    unchanged(manager, lambda: Request([1], namespace=space), InvalidArgument)


@pytest.mark.parametrize("part", [1, b"a", ["a"], object()])
def test_the_parts_of_a_namespace_are_strings(part: Any, manager: CacheManager) -> None:
    for name in ("adapter", "salt", "tenant"):
        unchanged(manager, lambda name=name: Namespace(**{name: part}), InvalidArgument)


# --- lengths --------------------------------------------------------------------------------------
def test_a_prompt_of_one_token_runs_like_any_other() -> None:
    for page_size in (1, 2, 16):
        manager = CacheManager(2, page_size, checked=True)
        for _ in range(3):
            request = serve(manager, [7])
            assert request.cache_hit_len == 0
        manager.check_integrity()


@pytest.mark.parametrize(
    ("prompt_len", "new"), [(33, 1), (10**6, 1), (1, 33), (32, 2), (1, 10**12)]
)
def test_a_request_that_could_never_run_is_refused_before_anything_is_done(
    prompt_len: int, new: int, manager: CacheManager
) -> None:
    request = Request([1] * prompt_len, new)
    handle = manager.match(request)
    unchanged(manager, lambda: manager.admit(request), RequestTooLong)
    unchanged(manager, lambda: manager.lock(request, handle), RequestTooLong)


def test_a_request_as_long_as_the_pool_runs() -> None:
    manager = CacheManager(4, 4, checked=True)
    serve(manager, range(16))
    serve(manager, range(100, 116))
    assert manager.cache.total_size == 16


# --- page sizes and pools -------------------------------------------------------------------------
def sizes() -> list[Any]:
    numpy = pytest.importorskip("numpy")
    return [0, -1, True, False, 1.5, 1.0, "2", None, float("nan"), [1], numpy.int64(2)]


@pytest.mark.parametrize("number", range(11))
def test_a_page_size_is_a_positive_integer(number: int) -> None:
    size = sizes()[number]
    for make in (PageAllocator, CacheManager):
        with pytest.raises(InvalidPageSize):
            make(4, size)
        with pytest.raises(InvalidPageSize):
            make(size, 4)
    for make_tree in (RadixTree, RadixCache):
        with pytest.raises(InvalidPageSize):
            make_tree(size)


# --- values ---------------------------------------------------------------------------------------
def values() -> list[Any]:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    slots = [30, 31, 28, 29]
    return [
        *(slots, tuple(slots), range(4), bytes(4), "abcd", dict.fromkeys(slots)),
        *(array(code, slots) for code in "bhlqIQfd"),
        *(numpy.array(slots, "int32"), torch.tensor(slots, dtype=torch.int32)),
        memoryview(array("i", slots)),
    ]


@pytest.mark.parametrize("number", range(17))
def test_slots_are_an_array_of_ints(number: int, manager: CacheManager) -> None:
    value = values()[number]
    message = unchanged(
        manager, lambda: manager.cache.insert_prefix([1, 2, 8, 8], value), InvalidArgument
    )
    assert "value" in message


@pytest.mark.parametrize("length", [0, 1, 3, 5])
def test_there_is_one_slot_for_each_token(length: int, manager: CacheManager) -> None:
    slots = array("i", range(length))
    for ids in ([8, 8, 8, 8], [1, 2, 3, 4]):
        unchanged(manager, lambda: manager.cache.insert_prefix(ids, slots), LengthMismatch)  # noqa: B023 - called at once


# --- handles --------------------------------------------------------------------------------------
def held_handle(manager: CacheManager) -> CacheHandle:
    (request,) = manager.running
    assert request.handle is not None
    return request.handle


@pytest.mark.parametrize(("limit", "tokens", "slots"), [(4, 3, 9), (4, 9, 3), (-1, 3, 3)])
def test_a_limit_has_both_ids_and_slots_up_to_it(
    manager: CacheManager, limit: int, tokens: int, slots: int
) -> None:
    ids, value = [5] * tokens, array("i", range(slots))
    call = manager.cache.insert_prefix
    unchanged(manager, lambda: call(ids, value, limit=limit), LengthMismatch)


def test_a_handle_of_another_cache_is_refused(manager: CacheManager) -> None:
    other = CacheManager(16, 2, checked=True)
    serve(other, [1, 2, 3, 4])
    handle = other.cache.match_prefix([1, 2, 3, 4])
    slots, cache = array("i", [0, 1, 2, 3]), manager.cache
    for locked in (False, True):
        if locked:
            other.cache.lock(handle)
        for call in (
            lambda: cache.lock(handle),
            lambda: cache.unlock(handle),
            lambda: cache.move_lock(held_handle(manager), handle),
            lambda: cache.move_lock(handle, held_handle(manager)),
            lambda: cache.insert_prefix([1, 2, 3, 4], slots, held=handle),
            lambda: manager.lock(Request([1, 2, 3, 4, 5]), handle),
        ):
            unchanged(manager, call, ForeignHandle)
    assert other.cache.protected_size == 4


def test_a_stale_handle_is_refused(manager: CacheManager) -> None:
    handle = manager.cache.match_prefix([1, 2, 3, 4])
    assert len(manager.evict(2)) == 2
    serve(manager, [1, 2, 3, 4])  # the same prefix, in another node
    slots = array("i", [0, 1, 2, 3])
    unchanged(manager, lambda: manager.cache.lock(handle), StaleHandle)
    unchanged(manager, lambda: manager.lock(Request([1, 2, 3, 4, 5]), handle), StaleHandle)
    unchanged(manager, lambda: manager.cache.unlock(handle), NotLocked)
    unchanged(
        manager, lambda: manager.cache.insert_prefix([1, 2, 3, 4], slots, held=handle), NotLocked
    )
    unchanged(
        manager,
        lambda: manager.cache.move_lock(held_handle(manager), handle),
        StaleHandle,
        InvalidArgument,
    )


def test_a_handle_is_locked_once_and_unlocked_once(manager: CacheManager) -> None:
    cache = manager.cache
    handle = cache.match_prefix([1, 2, 3, 4])
    unchanged(manager, lambda: cache.unlock(handle), NotLocked)
    unchanged(manager, lambda: cache.move_lock(handle, held_handle(manager)), NotLocked)
    cache.lock(handle)
    before = cache.protected_size
    for _ in range(2):
        with pytest.raises(AlreadyLocked):
            cache.lock(handle)
        with pytest.raises(AlreadyLocked):
            cache.move_lock(held_handle(manager), handle)
    assert cache.protected_size == before
    cache.unlock(handle)
    unchanged(manager, lambda: cache.unlock(handle), NotLocked)


def test_an_unlocked_handle_is_not_held(manager: CacheManager) -> None:
    handle = manager.cache.match_prefix([1, 2, 3, 4])
    slots = array("i", range(4))
    unchanged(
        manager, lambda: manager.cache.insert_prefix([1, 2, 3, 4], slots, held=handle), NotLocked
    )


@pytest.mark.parametrize(
    "ids", [[], [1], [1, 2], [1, 2, 3, 5], [5, 5, 5, 5], [1, 2, 9, 9], [9] * 6]
)
def test_a_held_handle_is_on_the_path_of_the_ids(ids: list[int]) -> None:
    manager = CacheManager(16, 2, checked=True)
    serve(manager, [1, 2, 3, 4])
    handle = manager.cache.match_prefix([1, 2, 3, 4])
    manager.cache.lock(handle)
    before = take_snapshot(manager)
    slots = array("i", range(len(ids)))
    with pytest.raises(InvalidArgument, match="held"):
        manager.cache.insert_prefix(ids, slots, held=handle)
    assert take_snapshot(manager) == before


def test_a_lock_moves_only_further_along_its_own_path(manager: CacheManager) -> None:
    serve(manager, [5, 6, 7, 8])
    cache, old = manager.cache, held_handle(manager)
    elsewhere = cache.match_prefix([5, 6, 7, 8])
    shorter = cache.match_prefix([])
    for new in (elsewhere, shorter):
        unchanged(manager, lambda new=new: cache.move_lock(old, new), InvalidArgument)


def test_a_request_starts_from_a_prefix_of_its_own_tokens(manager: CacheManager) -> None:
    """Somebody else's handle would let it read somebody else's KV."""
    serve(manager, [5, 6, 7, 8])
    serve(manager, [1, 2, 3, 4], namespace=Namespace(salt="s"))
    cache = manager.cache
    for handle in (
        cache.match_prefix([5, 6, 7, 8]),
        cache.match_prefix([1, 2, 3, 4], namespace=Namespace(salt="s")),
    ):
        request = Request([1, 2, 3, 4, 5])
        unchanged(manager, lambda h=handle, r=request: manager.lock(r, h), InvalidArgument)


def test_a_request_keeps_a_token_to_compute(manager: CacheManager) -> None:
    handle = manager.cache.match_prefix([1, 2, 3, 4])
    unchanged(manager, lambda: manager.lock(Request([1, 2, 3, 4]), handle), InvalidArgument)


# --- requests -------------------------------------------------------------------------------------
def test_a_request_is_admitted_once(manager: CacheManager) -> None:
    (request,) = manager.running
    handle = manager.cache.match_prefix([1, 2])
    unchanged(manager, lambda: manager.admit(request), WrongState)
    unchanged(manager, lambda: manager.lock(request, handle), WrongState)


def test_a_request_is_released_once(manager: CacheManager) -> None:
    (request,) = manager.running
    manager.release(request)
    waiting = Request([1])
    manager.release(waiting)
    for ended in (request, waiting):
        unchanged(manager, lambda r=ended: manager.release(r), DoubleFree)
        for call in (manager.admit, manager.cache_request, manager.unlock, manager.free):
            unchanged(manager, lambda c=call, r=ended: c(r), WrongState)
        unchanged(manager, lambda r=ended: manager.allocate(r, 1), WrongState)


def test_a_request_that_waits_has_nothing_to_cache_or_free(manager: CacheManager) -> None:
    request = Request([1, 2, 3])
    for call in (manager.cache_request, manager.unlock, manager.free):
        unchanged(manager, lambda c=call: c(request), WrongState)
    unchanged(manager, lambda: manager.allocate(request, 3), WrongState)


def test_a_request_lets_go_before_it_is_freed_and_only_once(manager: CacheManager) -> None:
    (request,) = manager.running
    unchanged(manager, lambda: manager.free(request), WrongState)
    manager.unlock(request)
    unchanged(manager, lambda: manager.unlock(request), NotLocked, WrongState)
    unchanged(manager, lambda: manager.cache_request(request), NotLocked, WrongState)
    manager.free(request)
    unchanged(manager, lambda: manager.free(request), WrongState)


def test_a_request_of_another_manager_is_refused(manager: CacheManager) -> None:
    """Otherwise one pool's slots would go to the other."""
    other = CacheManager(16, 2, checked=True)
    request = start(other, [1, 2, 3], new=2)
    compute(request, 0)
    before = state(other)
    for call in (
        lambda: manager.allocate(request, 4),
        lambda: manager.cache_request(request),
        lambda: manager.unlock(request),
        lambda: manager.free(request),
        lambda: manager.release(request),
    ):
        unchanged(manager, call, WrongState, ForeignHandle)
        assert state(other) == before
    other.unlock(request)
    unchanged(manager, lambda: manager.free(request), WrongState, ForeignHandle)
    unchanged(manager, lambda: manager.release(request), WrongState, ForeignHandle)
    other.release(request)
    other.check_integrity()


def test_more_than_there_is_is_refused_before_anything_is_evicted(manager: CacheManager) -> None:
    (request,) = manager.running
    everything = manager.pool.total_size
    for asked in (everything + 1, 10**9):
        unchanged(manager, lambda n=asked: manager.allocate(request, n), PoolExhausted)
        unchanged(manager, lambda n=asked: manager.evict(n), PoolExhausted)
        unchanged(manager, lambda n=asked: manager.pool.allocate(n), PoolExhausted)


def test_computed_but_never_allocated_is_refused(manager: CacheManager) -> None:
    (request,) = manager.running
    request.computed_len = 1000
    with pytest.raises(LengthMismatch):
        manager.cache_request(request)
    request.computed_len = 5
    finish(manager, request)
    manager.check_integrity()
