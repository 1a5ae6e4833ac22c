"""A refused call says what was asked and what there was, and changes nothing."""

from __future__ import annotations

import copy
import pickle
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import pytest

from radixlab import errors
from radixlab.cache import RadixCache
from radixlab.errors import RadixLabError
from radixlab.lifecycle import lifecycle
from radixlab.manager import CacheManager
from radixlab.pool import PageAllocator
from radixlab.request import Request
from radixlab.snapshot import Snapshot, take_snapshot
from radixlab.tokens import Namespace, encode
from radixlab.tree import RadixTree


class World:
    """Eight pages of two tokens, and one request in each state.

    `ended` has left [1, 2, 3, 4] in the cache, and `other` [8, 8] that nobody holds. `running`
    holds the first, has slots for its 7 tokens and has computed 4 of them; `waiting` waits;
    `lingering` is unlocked, but its half page is not yet freed.
    """

    def __init__(self) -> None:
        self.manager = CacheManager(8, 2, checked=True)
        self.cache, self.pool = self.manager.cache, self.manager.pool
        self.ended = Request([1, 2, 3, 4], request_id="ended")
        self.other = Request([8, 8], request_id="other")
        self.running = Request([1, 2, 3, 4, 5, 6, 7], 3, request_id="running")
        self.lingering = Request([9], request_id="lingering")
        self.waiting = Request([1, 2, 9], request_id="waiting")
        for _ in lifecycle(self.manager, [self.ended, self.other]):
            pass
        for request in (self.running, self.lingering):
            assert self.manager.admit(request)
            self.manager.allocate(request, request.prompt_len)
        self.manager.unlock(self.lingering)
        self.everybody = [self.ended, self.other, self.running, self.lingering, self.waiting]
        self.matched = self.cache.match_prefix([8, 8])
        self.locked = self.cache.match_prefix([1, 2, 3, 4])
        self.cache.lock(self.locked)

    def state(self) -> tuple[Snapshot, list[bool], dict[Any, Any]]:
        """All but recency and splits, which don't count as change."""
        snapshot = take_snapshot(self.manager, self.everybody)
        tokens: dict[Any, tuple[int, int]] = {}
        paths: dict[int | None, tuple[int, ...]] = {None: ()}
        for node in snapshot.nodes:
            paths[node.uuid] = paths[node.parent]
            for token, slot in zip(node.key, node.value, strict=True):
                paths[node.uuid] += (token,)
                tokens[node.namespace, paths[node.uuid]] = slot, node.ref_count
        handles = [self.matched.locked, self.locked.locked]
        handles += [r.handle.locked for r in self.everybody if r.handle is not None]
        return replace(snapshot, nodes=()), handles, tokens


def elsewhere() -> Any:
    """A handle of another cache."""
    return RadixCache(2).match_prefix([1, 2])


def slots(*numbers: int) -> array[int]:
    return array("i", numbers)


def stale(world: World) -> Any:
    """A handle whose prefix has been evicted (and then was cached anew, at the same place)."""
    handle = world.cache.match_prefix([8, 8])
    freed = world.cache.evict(2)
    world.cache.insert_prefix([8, 8], freed)
    return handle


def nobody(waiting: Sequence[Request], running: Collection[Request]) -> list[Request]:
    """A policy that names nobody."""
    return []


class Refusal(NamedTuple):
    """A call, and the error with its fields and message that it must raise."""

    call: Callable[[World], object]
    error: type[RadixLabError]
    fields: dict[str, object]
    message: str


E = errors
REFUSALS: dict[str, Refusal] = {
    "an empty prompt": Refusal(
        lambda w: Request([]),
        E.EmptyPrompt,
        {},
        "the prompt has no tokens; at least 1 is needed",
    ),
    "a negative token id": Refusal(
        lambda w: w.cache.match_prefix([4, -1, 5]),
        E.InvalidTokenId,
        {"token_id": -1, "index": 1},
        "token id -1 at position 1 is not an integer from 0 to 2147483647",
    ),
    "token ids that are no sequence": Refusal(
        lambda w: Request(7),  # type: ignore[arg-type]
        E.InvalidArgument,
        {"name": "token_ids", "got": 7},
        "token_ids must be a sequence of token ids, not one int, got 7",
    ),
    "half a token": Refusal(
        lambda w: Request(b"123456"),
        E.InvalidArgument,
        {"name": "token_ids", "got": "6 bytes", "allowed": "whole int32 tokens"},
        "token_ids must be whole int32 tokens, got '6 bytes'",
    ),
    "a request for no token": Refusal(
        lambda w: Request([1], 0),
        E.InvalidArgument,
        {"name": "max_new_tokens", "got": 0, "allowed": "an integer, 1 or more"},
        "max_new_tokens must be an integer, 1 or more, got 0",
    ),
    "a namespace that is just a string": Refusal(
        lambda w: Request([1], namespace="tenant"),  # type: ignore[arg-type]
        E.InvalidArgument,
        {"name": "namespace", "got": "tenant", "allowed": "a Namespace or None"},
        "namespace must be a Namespace or None, got 'tenant'",
    ),
    "a namespace of something else than strings": Refusal(
        lambda w: Namespace(adapter=3),  # type: ignore[arg-type]
        E.InvalidArgument,
        {"name": "adapter", "got": 3, "allowed": "a string or None"},
        "adapter must be a string or None, got 3",
    ),
    "a batch of none": Refusal(
        lambda w: next(lifecycle(w.manager, [w.waiting], batch_size=0)),
        E.InvalidArgument,
        {"name": "batch_size", "got": 0, "allowed": "1 or more"},
        "batch_size must be 1 or more, got 0",
    ),
    "a lifecycle by a policy's name": Refusal(
        lambda w: next(lifecycle(w.manager, [w.waiting], policy="lpm")),  # type: ignore[arg-type]
        E.InvalidArgument,
        {"name": "policy", "got": "lpm"},
        "policy must be a function (`make_policy` knows their names), got 'lpm'",
    ),
    "a lifecycle by a policy that names nobody": Refusal(
        lambda w: list(islice(lifecycle(w.manager, [w.waiting], policy=nobody), 99)),
        E.InvalidArgument,
        {"name": "policy", "allowed": "one that names somebody who waits"},
        "policy must be one that names somebody who waits, got <function",
    ),
    "a routing key that is no string": Refusal(
        lambda w: Request([1], routing_key=5),  # type: ignore[arg-type]
        E.InvalidArgument,
        {"name": "routing_key", "got": 5, "allowed": "a string"},
        "routing_key must be a string, got 5",
    ),
    "a split that splits nothing off": Refusal(
        lambda w: w.locked.node.split_at(4),
        E.InvalidArgument,
        {"name": "position", "got": 4, "allowed": "from 1 to 3"},
        "position must be from 1 to 3, got 4",
    ),
    "a page size of zero": Refusal(
        lambda w: CacheManager(8, 0),
        E.InvalidPageSize,
        {"page_size": 0, "pages": None},
        "page_size must be a positive integer, got 0",
    ),
    "a page size that is no integer": Refusal(
        lambda w: RadixTree("2"),  # type: ignore[arg-type]
        E.InvalidPageSize,
        {"page_size": "2", "pages": None},
        "page_size must be a positive integer, got '2'",
    ),
    "a pool without a page": Refusal(
        lambda w: PageAllocator(0, 2),
        E.InvalidPageSize,
        {"page_size": 2, "pages": 0},
        "a pool needs at least 1 page of 2 tokens and fewer than 2**31 slots, got 0 pages",
    ),
    "a pool whose slots have no int32": Refusal(
        lambda w: PageAllocator(2**30, 2),
        E.InvalidPageSize,
        {"page_size": 2, "pages": 2**30},
        "a pool needs at least 1 page of 2 tokens and fewer than 2**31 slots, got 1073741824 pages",
    ),
    "fewer slots than token ids": Refusal(
        lambda w: w.cache.insert_prefix([5, 6, 7], slots(0, 1)),
        E.LengthMismatch,
        {"tokens": 3, "slots": 2},
        "3 token ids need 3 token slots, got 2",
    ),
    "half a page given back": Refusal(
        lambda w: w.pool.free(w.running.page_table[4:7]),
        E.InvalidArgument,
        {"name": "slots", "got": "3 slots", "allowed": "whole pages of 2 slots"},
        "slots must be whole pages of 2 slots, got '3 slots'",
    ),
    "a node with fewer slots than token ids": Refusal(
        lambda w: w.locked.node.set_key_value(encode([1, 2]), slots(0)),
        E.LengthMismatch,
        {"tokens": 2, "slots": 1},
        "2 token ids need 2 token slots, got 1",
    ),
    "unlocking what is not locked": Refusal(
        lambda w: w.cache.unlock(w.matched),
        E.NotLocked,
        {"action": "unlock", "cached_len": 2},
        "cannot unlock: the handle of 2 tokens holds no lock",
    ),
    "inserting below what is not locked": Refusal(
        lambda w: w.cache.insert_prefix([8, 8, 5, 5], slots(0, 1, 2, 3), held=w.matched),
        E.NotLocked,
        {"action": "insert below", "cached_len": 2},
        "cannot insert below: the handle of 2 tokens holds no lock",
    ),
    "moving a lock that there is not": Refusal(
        lambda w: w.cache.move_lock(w.matched, w.cache.match_prefix([8, 8])),
        E.NotLocked,
        {"action": "move the lock", "cached_len": 2},
        "cannot move the lock: the handle of 2 tokens holds no lock",
    ),
    "unlocking a request twice": Refusal(
        lambda w: w.manager.unlock(w.lingering),
        E.NotLocked,
        {"action": "unlock", "cached_len": 0},
        "cannot unlock: the handle of 0 tokens holds no lock",
    ),
    "caching a request that is unlocked": Refusal(
        lambda w: w.manager.cache_request(w.lingering),
        E.NotLocked,
        {"action": "insert below", "cached_len": 0},
        "cannot insert below: the handle of 0 tokens holds no lock",
    ),
    "locking a handle twice": Refusal(
        lambda w: w.cache.lock(w.locked),
        E.AlreadyLocked,
        {"cached_len": 4},
        "the handle of 4 tokens is locked already; match again",
    ),
    "moving a lock to a handle that has one": Refusal(
        lambda w: w.cache.move_lock(w.running.handle, w.locked),  # type: ignore[arg-type]
        E.AlreadyLocked,
        {"cached_len": 4},
        "the handle of 4 tokens is locked already; match again",
    ),
    "locking what was evicted since the match": Refusal(
        lambda w: w.cache.lock(stale(w)),
        E.StaleHandle,
        {"cached_len": 2},
        "the matched prefix of 2 tokens was evicted; match again",
    ),
    "moving a lock to what was evicted": Refusal(
        lambda w: w.cache.move_lock(w.locked, stale(w)),
        E.InvalidArgument,
        {"name": "new", "allowed": "a handle on the path of the old one"},
        "new must be a handle on the path of the old one, got <CacheHandle of 2 tokens",
    ),
    "moving a lock to another path": Refusal(
        lambda w: w.cache.move_lock(w.locked, w.matched),
        E.InvalidArgument,
        {"name": "new", "allowed": "a handle on the path of the old one"},
        "new must be a handle on the path of the old one, got <CacheHandle of 2 tokens",
    ),
    "clearing while a prefix is held": Refusal(
        lambda w: w.manager.clear(),
        E.StillLocked,
        {"protected": 4},
        "cannot clear the cache: 4 tokens are held by running requests",
    ),
    "locking a handle of another cache": Refusal(
        lambda w: w.cache.lock(elsewhere()),
        E.ForeignHandle,
        {"cached_len": 0},
        "the handle of 0 tokens belongs to another cache",
    ),
    "unlocking a handle of another cache": Refusal(
        lambda w: RadixCache(2).unlock(w.locked),
        E.ForeignHandle,
        {"cached_len": 4},
        "the handle of 4 tokens belongs to another cache",
    ),
    "inserting below a handle of another cache": Refusal(
        lambda w: w.cache.insert_prefix([5, 5], slots(0, 1), held=elsewhere()),
        E.ForeignHandle,
        {"cached_len": 0},
        "the handle of 0 tokens belongs to another cache",
    ),
    "moving a lock to another cache": Refusal(
        lambda w: w.cache.move_lock(w.locked, elsewhere()),
        E.ForeignHandle,
        {"cached_len": 0},
        "the handle of 0 tokens belongs to another cache",
    ),
    "starting what runs": Refusal(
        lambda w: w.manager.admit(w.running),
        E.WrongState,
        {"action": "start", "request_id": "running", "state": "running", "needed": "waiting"},
        "cannot start request running: it is running, and must be waiting",
    ),
    "starting what has ended": Refusal(
        lambda w: w.manager.lock(w.ended, w.matched),
        E.WrongState,
        {"action": "start", "request_id": "ended", "state": "finished", "needed": "waiting"},
        "cannot start request ended: it is finished, and must be waiting",
    ),
    "slots for what waits": Refusal(
        lambda w: w.manager.allocate(w.waiting, 3),
        E.WrongState,
        {"action": "allocate for", "state": "waiting", "needed": "running"},
        "cannot allocate for request waiting: it is waiting, and must be running",
    ),
    "caching what waits": Refusal(
        lambda w: w.manager.cache_request(w.waiting),
        E.WrongState,
        {"action": "cache", "state": "waiting", "needed": "running"},
        "cannot cache request waiting: it is waiting, and must be running",
    ),
    "unlocking what waits": Refusal(
        lambda w: w.manager.unlock(w.waiting),
        E.WrongState,
        {"action": "unlock", "state": "waiting", "needed": "running"},
        "cannot unlock request waiting: it is waiting, and must be running",
    ),
    "freeing what has ended": Refusal(
        lambda w: w.manager.free(w.ended),
        E.WrongState,
        {"action": "free the slots of", "state": "finished", "needed": "running"},
        "cannot free the slots of request ended: it is finished, and must be running",
    ),
    "freeing what is still locked": Refusal(
        lambda w: w.manager.free(w.running),
        E.WrongState,
        {"action": "free the slots of", "state": "locked", "needed": "unlocked"},
        "cannot free the slots of request running: it is locked, and must be unlocked",
    ),
    "a page freed twice": Refusal(
        lambda w: w.pool.free(w.pool.free_slots[:2]),
        E.DoubleFree,
        {"what": "pages", "asked": 2, "held": 0},
        "double free of pages: asked to free 2 slots, 0 are held",
    ),
    "a page named twice in one call": Refusal(
        lambda w: w.pool.free(w.running.page_table[6:] * 2),
        E.DoubleFree,
        {"what": "pages", "asked": 4, "held": 2},
        "double free of pages: asked to free 4 slots, 2 are held",
    ),
    "more pages freed than there are": Refusal(
        lambda w: PageAllocator(2, 2).free(slots(0, 1)),
        E.DoubleFree,
        {"what": "pages", "asked": 2, "held": 0},
        "double free of pages: asked to free 2 slots, 0 are held",
    ),
    "a request released twice": Refusal(
        lambda w: w.manager.release(w.ended),
        E.DoubleFree,
        {"what": "finished request ended", "asked": 4, "held": 0},
        "double free of finished request ended: asked to free 4 slots, 0 are held",
    ),
    "more pages than are free": Refusal(
        lambda w: w.pool.allocate(4),
        E.PoolExhausted,
        {"asked": 8, "free": 4, "evictable": 0},
        "asked for 8 slots; 4 are free and 0 evictable",
    ),
    "evicting more than may go": Refusal(
        lambda w: w.cache.evict(3),
        E.PoolExhausted,
        {"asked": 3, "free": None, "evictable": 2},
        "asked for 3 slots; 2 are evictable",
    ),
    "evicting more than may go, by the manager": Refusal(
        lambda w: w.manager.evict(3),
        E.PoolExhausted,
        {"asked": 3, "evictable": 2},
        "asked for 3 slots;",
    ),
    "more slots than can be had": Refusal(
        lambda w: w.manager.allocate(w.running, 15),
        E.PoolExhausted,
        {"asked": 8, "free": 4, "evictable": 2},
        "asked for 8 slots; 4 are free and 2 evictable",
    ),
    "more slots than are left beside what was promised": Refusal(
        lambda w: list(lifecycle(w.manager, [Request([5] * 6)])),
        E.PoolExhausted,
        {"asked": 6, "free": 4, "evictable": 2, "promised": 2},
        "asked for 6 slots; 4 are free and 2 evictable, 2 of them promised to running requests",
    ),
    "a lifecycle of one request that fits and one that never will": Refusal(
        lambda w: next(lifecycle(w.manager, [w.waiting, Request([1] * 18, request_id="giant")])),
        E.RequestTooLong,
        {"request_id": "giant", "needed": 18, "limit": 16, "what": "pool"},
        "request giant needs 18 slots; the pool has 16",
    ),
    "a request longer than the pool": Refusal(
        lambda w: w.manager.admit(Request([1] * 10, 8, request_id="giant")),
        E.RequestTooLong,
        {"request_id": "giant", "needed": 18, "limit": 16},
        "request giant needs 18 slots; the pool has 16",
    ),
    "a request longer than the pool, matched before": Refusal(
        lambda w: w.manager.lock(Request([8, 8], 16, request_id="giant"), w.matched),
        E.RequestTooLong,
        {"request_id": "giant", "needed": 18, "limit": 16},
        "request giant needs 18 slots; the pool has 16",
    ),
    "a handle that leaves nothing to compute": Refusal(
        lambda w: w.manager.lock(Request([8, 8]), w.matched),
        E.InvalidArgument,
        {"name": "handle", "allowed": "of at most 1 tokens"},
        "handle must be of at most 1 tokens, got <CacheHandle of 2 tokens",
    ),
    "inserting on another path than the held one": Refusal(
        lambda w: w.cache.insert_prefix([1, 2, 3, 5], slots(0, 1, 2, 3), held=w.locked),
        E.InvalidArgument,
        {"name": "held", "allowed": "a handle on the path of the token ids"},
        "held must be a handle on the path of the token ids, got <CacheHandle of 4 tokens",
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refused_call_says_what_was_asked_and_changes_nothing(refusal: Refusal) -> None:
    world = World()
    before = world.state()
    with pytest.raises(refusal.error) as raised:
        refusal.call(world)
    assert type(raised.value) is refusal.error
    assert str(raised.value).startswith(refusal.message)
    assert {name: getattr(raised.value, name) for name in refusal.fields} == refusal.fields
    assert world.state() == before
    world.cache.unlock(world.locked)
    world.manager.check_integrity()


def test_a_request_that_claims_more_than_it_has_slots_for_is_refused_as_a_whole() -> None:
    """Prompt and output go into the tree in two insertions: neither may happen."""
    world = World()
    world.running.output.extend([1, 1])
    world.running.computed_len = 9  # and there are slots for 8
    before = world.state()
    with pytest.raises(E.LengthMismatch):
        world.manager.cache_request(world.running)
    assert world.state() == before


def test_a_failed_admission_changes_nothing() -> None:
    """False instead of an error, since the request may try again later.

    4 slots are free and 2 evictable: the very 2 that the second request would hold.
    """
    for request, most in ((Request([1, 2, 9]), 4), (Request([8, 8, 5, 5]), 2)):
        world = World()
        before = world.state()
        assert not world.manager.admit(request, reserved=most + 1)
        assert world.state() == before
        assert world.manager.admit(request, reserved=most)


def test_every_error_of_the_core_has_its_refusal() -> None:
    assert {refusal.error for refusal in REFUSALS.values()} == of_the_core()


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", REFUSALS)
def test_an_error_is_the_same_after_its_journey_from_another_process(name: str, how: str) -> None:
    """joblib pickles what a run raises: no error may become another one on its way."""
    refusal = REFUSALS[name]
    with pytest.raises(refusal.error) as raised:
        refusal.call(World())
    error = raised.value
    copied = COPIES[how](error)
    assert (type(copied), str(copied), copied.args) == (type(error), str(error), error.args)
    assert vars(copied).keys() == vars(error).keys() >= refusal.fields.keys()
    assert {name: getattr(copied, name) for name in refusal.fields} == refusal.fields


def test_so_is_every_subclass_of_other_rooms() -> None:
    for error in subclasses(RadixLabError):
        made = error.__new__(error, "what was said")
        made.__dict__["number"] = 7
        for copied in (journey(made) for journey in COPIES.values()):
            assert (type(copied), str(copied), vars(copied)) == (error, str(made), {"number": 7})


def test_errors_about_the_caller_s_input_are_value_errors() -> None:
    of_input = {E.EmptyPrompt, E.InvalidTokenId, E.LengthMismatch, E.InvalidPageSize}
    of_input |= {E.InvalidArgument, E.ForeignHandle, E.RequestTooLong}
    assert of_input == {error for error in of_the_core() if issubclass(error, ValueError)}


def subclasses(error: type[RadixLabError]) -> Iterator[type[RadixLabError]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def of_the_core() -> set[type[RadixLabError]]:
    """Those of `radixlab.errors`: other rooms may have their own."""
    return {error for error in subclasses(RadixLabError) if error.__module__ == errors.__name__}
