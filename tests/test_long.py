"""A million random operations on one manager: the books balance and memory stays flat."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from radixlab.errors import PoolExhausted, StaleHandle, StillLocked
from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.strategies import STRATEGIES, make_strategy
from radixlab.tokens import Namespace, decode
from tests.world import fingerprints

OPERATIONS = 100_000 if os.environ.get("RADIXLAB_LONG") == "small" else 1_000_000
NAMESPACES = (None, None, None, Namespace(tenant="a"), Namespace(salt="a"))


class Traffic:
    """Requests that continue what earlier ones said, each at another point of its life.

    `written` names what stands in each slot, as in `tests.world`; each request keeps the names that
    its own positions should have.
    """

    def __init__(self, num_pages: int, page_size: int, seed: int, strategy: str) -> None:
        self.random = random.Random(seed)
        self.manager = CacheManager(
            num_pages, page_size, strategy=make_strategy(strategy), checked=True
        )
        self.running: dict[Request, list[int]] = {}
        self.past: list[list[int]] = [[]]
        self.written: dict[int, int] = {}
        self.done = self.hits = self.evicted = 0
        self.most = num_pages * page_size
        self.choices: list[tuple[Callable[[], bool], int]] = [
            (self.admit, 12),
            (self.match_and_lock, 3),
            (self.prefill, 12),
            (self.decode, 20),
            (self.cache, 8),
            (self.finish, 8),
            (self.abort, 2),
            (self.look_up, 4),
            (self.evict, 2),
        ]

    def run(self, operations: int) -> None:
        """So many calls of the manager; everything is checked now and then."""
        calls, weights = zip(*self.choices, strict=True)
        stop, number = self.done + operations, 0
        while self.done < stop:
            for call in self.random.choices(calls, weights, k=1000):
                self.done += call()
            self.check()
            number += 1
            if number % 10 == 0:
                self.end_all()

    # --- operations; each says whether there was anything to do -----------------------------------
    def arrival(self) -> Request:
        """An earlier text, cut short or whole, and some tokens more."""
        past = self.random.choice(self.past)
        ids = past[: self.random.choice([len(past), self.random.randint(0, len(past))])]
        ids = ids + self.random.choices(range(3), k=self.random.randint(1, 12))
        new = self.random.randint(1, 12)
        ids = ids[: self.most // 4 - new]
        return Request(ids, new, namespace=self.random.choice(NAMESPACES))

    def started(self, request: Request) -> None:
        self.hits += request.cache_hit_len
        self.running[request] = fingerprints(request.namespace, decode(request.prompt))

    def admit(self) -> bool:
        request = self.arrival()
        if self.manager.admit(request, sum(map(self.manager.remaining_size, self.running))):
            self.started(request)
        return True

    def match_and_lock(self) -> bool:
        """Match now and lock a little later, perhaps too late."""
        request = self.arrival()
        handle = self.manager.match(request)
        self.random.choice([self.evict, self.look_up, self.admit])()
        try:
            self.manager.lock(request, handle)
        except StaleHandle:
            return True
        self.started(request)
        return True

    def pick(self) -> Request | None:
        return self.random.choice(list(self.running)) if self.running else None

    def prefill(self) -> bool:
        """The rest of the prompt, or a chunk of it."""
        request = self.pick()
        if request is None or request.output:
            return False
        start, end = request.computed_len, request.prompt_len
        if self.random.random() < 0.3:
            end = self.random.randint(start + 1, end)
        if self.give(request, end):
            self.compute(request, start, end)
        return True

    def decode(self) -> bool:
        request = self.pick()
        if request is None or not request.output or request.is_done:
            return False
        if self.give(request, request.num_tokens):
            self.compute(request, request.num_tokens - 1, request.num_tokens)
        return True

    def give(self, request: Request, num_tokens: int) -> bool:
        free = self.manager.pool.free_size
        try:
            self.manager.allocate(request, num_tokens)
        except PoolExhausted as refusal:
            assert refusal.asked > refusal.free + refusal.evictable
            return False
        self.evicted += self.manager.pool.free_size > free
        return True

    def compute(self, request: Request, start: int, end: int) -> None:
        prints = self.running[request]
        for position in range(start, end):
            self.written[request.page_table[position]] = prints[position]
        request.computed_len = end
        if end == request.num_tokens:
            token = self.random.randrange(3)
            request.output.append(token)
            prints.append(hash((prints[-1], token)))

    def cache(self) -> bool:
        request = self.pick()
        if request is not None:
            self.manager.cache_request(request)
        return request is not None

    def finish(self) -> bool:
        done = [request for request in self.running if request.is_done]
        for request in done:
            self.manager.cache_request(request)
            self.end(request)
        return bool(done)

    def abort(self) -> bool:
        request = self.pick()
        if request is not None:
            self.end(request)
        return request is not None

    def end(self, request: Request) -> None:
        self.past = [*self.past[-60:], decode(request.tokens)]
        self.check_table(request, self.running.pop(request))
        self.manager.release(request)

    def look_up(self) -> bool:
        request = self.arrival()
        handle = self.manager.match(request)
        prints = fingerprints(request.namespace, decode(request.prompt))
        names = [self.written[slot] for slot in handle.value]
        assert names == prints[: handle.cached_len], "another prefix's KV was found"
        return True

    def evict(self) -> bool:
        count = self.random.randint(0, 8)
        try:
            self.evicted += len(self.manager.evict(count))
        except PoolExhausted:
            assert self.manager.cache.evictable_size < count
        if self.random.random() < 0.01:
            try:
                self.manager.clear()
            except StillLocked:
                assert self.manager.cache.protected_size
        return True

    # --- checks -----------------------------------------------------------------------------------
    def check(self) -> None:
        self.manager.check_integrity()
        for request, prints in self.running.items():
            self.check_table(request, prints)

    def check_table(self, request: Request, prints: list[int]) -> None:
        names = [self.written[slot] for slot in request.page_table[: request.computed_len]]
        assert names == prints[: request.computed_len], f"{request} reads another prefix's KV"

    def end_all(self) -> None:
        """Nothing runs, so that what is not free is evictable."""
        for request in list(self.running):
            self.end(request)
        self.manager.check_integrity()
        assert self.manager.available_size == self.manager.pool.total_size

    def empty(self) -> None:
        self.end_all()
        self.manager.clear()
        assert self.manager.pool.free_size == self.manager.pool.total_size
        self.past = [[]]


def resident_bytes() -> int:
    """What the process occupies, 0 where the system doesn't say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


@pytest.mark.long
@pytest.mark.parametrize(("page_size", "strategy"), [(1, "lru"), (4, "lru"), (2, "lfu")])
def test_a_million_operations_leave_memory_flat(page_size: int, strategy: str) -> None:
    """Once warm, what Python holds for an empty manager does not grow with what it has done.

    Tolerance: 400 blocks of memory, which a leak of one object per thousand operations would fill,
    and 16 MiB of the process, which also holds pytest.
    """
    traffic = Traffic(512 // page_size, page_size, page_size, strategy)
    traffic.run(OPERATIONS // 10)
    traffic.empty()
    gc.collect()
    blocks, resident = sys.getallocatedblocks(), resident_bytes()
    traffic.run(OPERATIONS - OPERATIONS // 10)
    traffic.empty()
    gc.collect()
    assert traffic.done >= OPERATIONS
    assert traffic.hits > traffic.done // 10 and traffic.evicted > traffic.done // 10
    assert sys.getallocatedblocks() - blocks < 400
    assert resident_bytes() - resident < 16 * 2**20


@pytest.mark.parametrize("page_size", [1, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_five_thousand_operations(page_size: int, strategy: str) -> None:
    traffic = Traffic(192 // page_size, page_size, 5, strategy)
    traffic.run(5_000)
    traffic.empty()
    assert traffic.hits > 500 and traffic.evicted
