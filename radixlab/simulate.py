"""How much a prefix cache would find: traces replayed without a model, strategy by strategy.

`replay` runs block traces through the real tree, at the level of the cache: one id is one page,
requests come one at a time, in order of arrival, and only prompts are cached. The rule that the
last token is always computed is left out here; it belongs to the manager.
`sweep` does that over a grid. `batch_hit_rate` is what the SGLang paper's theorem is checked with.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import product
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

from radixlab.cache import RadixCache
from radixlab.errors import InvalidArgument
from radixlab.grid import Grid
from radixlab.strategies import STRATEGIES, make_strategy
from radixlab.tokens import TOKEN_BYTES, TokenIds, encode
from radixlab.traces import Trace

BELADY = "belady"
EVICTIONS = (*STRATEGIES, BELADY)
"""What `replay` can evict by: the engines' strategies, and the one that knows the future."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What one run has found. `capacity` is in tokens, None without a limit.

    A request longer than the whole cache is computed without it, and counted in `too_long`.
    """

    trace: str
    fingerprint: str
    eviction: str
    capacity: int | None
    requests: int
    prompt_blocks: int
    hit_blocks: int
    prompt_tokens: int
    hit_tokens: int
    computed_tokens: int
    evicted_blocks: int
    too_long: int
    seconds: float = field(compare=False)

    @property
    def block_hit_rate(self) -> float:
        """Of all blocks of all prompts, the part that was found."""
        return self.hit_blocks / self.prompt_blocks if self.prompt_blocks else 0.0

    @property
    def token_hit_rate(self) -> float:
        """Of all prompt tokens, the part that was found."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


class _Pages(Protocol):
    """A cache of pages which the requests of a trace pass through, one after another."""

    evicted: int

    def serve(self, number: int, ids: Sequence[int]) -> int:
        """How many pages of request `number` are found; in the end all of them are cached."""


class _Tree:
    """The real cache, one id a token. Nobody reads the slots, so all are 0."""

    def __init__(self, capacity: float, eviction: str) -> None:
        self.cache = RadixCache(1, make_strategy(eviction))
        self.capacity, self.evicted = capacity, 0

    def serve(self, number: int, ids: Sequence[int]) -> int:
        return self.serve_key(encode(ids))

    def serve_key(self, key: bytes) -> int:
        cache, length = self.cache, len(key) // TOKEN_BYTES
        handle = cache.match_prefix(key)
        cache.lock(handle)
        excess = cache.total_size + length - handle.cached_len - self.capacity
        if excess > 0:
            self.evicted += len(cache.evict(int(excess)))
        cache.insert_prefix(key, array("i", bytes(len(key))), held=handle)
        cache.unlock(handle)
        return handle.cached_len


class _Belady:
    """Evicts the page whose next use is farthest away: no strategy can find more (Belady 1966).

    A page is never used before the pages it follows, so of a path the deepest always goes first,
    and what is cached remains whole prefixes. That takes single pages: a node of the tree, evicted
    as a whole, would take pages along that are needed sooner. The heap holds an entry for each use
    of a page: its next use from there. All but the last have passed, so that they never come first.
    """

    def __init__(self, capacity: float, requests: Sequence[Sequence[int]]) -> None:
        self.capacity, self.evicted = capacity, 0
        self.cached: set[int] = set()
        self.heap: list[tuple[int, int, int]] = []
        self.next_uses = _next_uses(requests)

    def serve(self, number: int, ids: Sequence[int]) -> int:
        found = next((depth for depth, page in enumerate(ids) if page not in self.cached), len(ids))
        while len(self.cached) + len(ids) - found > self.capacity:
            self.cached.remove(heappop(self.heap)[2])
            self.evicted += 1
        self.cached.update(ids)
        for depth, (page, due) in enumerate(zip(ids, self.next_uses[number], strict=True)):
            heappush(self.heap, (-due, -depth, page))
        return found


def _next_uses(requests: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each page of each request which request has it next; their number if none has."""
    following: dict[int, int] = {}
    uses: list[list[int]] = []
    for number in range(len(requests) - 1, -1, -1):
        uses.append([following.get(page, len(requests)) for page in requests[number]])
        following |= dict.fromkeys(requests[number], number)
    return uses[::-1]


def replay(trace: Trace, capacity: int | None = None, eviction: str = "lru") -> Replay:
    """Pass all requests of a trace through a cache of `capacity` tokens (None: no limit).

    `eviction` is one of `EVICTIONS`. Raises `InvalidArgument` for any other, and for a capacity of
    less than one block.
    """
    _check(trace, capacity, eviction)
    started, size = time.perf_counter(), trace.block_size
    limit = float("inf") if capacity is None else capacity // size
    fits = [len(request.hash_ids) <= limit for request in trace.requests]
    served = [r.hash_ids if fit else () for r, fit in zip(trace.requests, fits, strict=True)]
    pages: _Pages = _Belady(limit, served) if eviction == BELADY else _Tree(limit, eviction)
    hit_blocks = hit_tokens = computed = 0
    for number, (request, ids) in enumerate(zip(trace.requests, served, strict=True)):
        found = pages.serve(number, ids) if ids else 0
        hit_blocks += found
        hit_tokens += min(found * size, request.input_length)
        computed += max(request.input_length - found * size, 0)
    return Replay(
        trace=trace.name,
        fingerprint=trace.fingerprint,
        eviction=eviction,
        capacity=capacity,
        requests=len(trace.requests),
        prompt_blocks=trace.prompt_blocks,
        hit_blocks=hit_blocks,
        prompt_tokens=trace.prompt_tokens,
        hit_tokens=hit_tokens,
        computed_tokens=computed,
        evicted_blocks=pages.evicted,
        too_long=fits.count(False),
        seconds=round(time.perf_counter() - started, 3),
    )


def _check(trace: Trace, capacity: int | None, eviction: str) -> None:
    if eviction not in EVICTIONS:
        raise InvalidArgument("eviction", eviction, f"one of {', '.join(EVICTIONS)}")
    least = trace.block_size
    if capacity is not None and (not isinstance(capacity, Integral) or capacity < least):
        allowed = f"whole tokens, {least} (a block) or more"
        raise InvalidArgument("capacity", capacity, allowed)


# --- sweeps ------------------------------------------------------------------------------------
def sweep(
    traces: Sequence[Trace],
    capacities: Sequence[int | None] = (None,),
    evictions: Sequence[str] = ("lru",),
    *,
    csv_path: str | Path | None = None,
    n_jobs: int | None = None,
    on_result: Callable[[Replay], object] = lambda result: None,
) -> list[Replay]:
    """Replay every trace with every capacity under every strategy, and return them in that order.

    The options are those of `Grid.run`: an interrupted sweep goes on where it was. Raises what that
    raises, and `InvalidArgument`, before anything runs, for what `replay` refuses.
    """
    calls: dict[Hashable, tuple[Callable[..., Replay], tuple[Any, ...]]] = {}
    for trace, capacity, eviction in product(traces, capacities, evictions):
        _check(trace, capacity, eviction)
        point = trace.name, trace.fingerprint, capacity, eviction
        calls[point] = replay, (trace, capacity, eviction)
    return Grid(Replay, _point).run(calls, csv_path=csv_path, n_jobs=n_jobs, on_result=on_result)


def _point(result: Replay) -> Hashable:
    return result.trace, result.fingerprint, result.capacity, result.eviction


# --- the theorem -------------------------------------------------------------------------------
ORDERS = ("dfs", "lpm", "fcfs", "random")


def optimal_hit_rate(prompts: Iterable[TokenIds]) -> float:
    """The most that any order can find: 1 - C / the sum of the prompts' lengths.

    C is the sum of the edge lengths of the prompts' radix tree: each must be computed once. Of no
    tokens nothing can be found: 0.
    """
    keys, cache = [encode(prompt) for prompt in prompts], RadixCache()
    for key in keys:
        cache.insert_prefix(key, array("i", bytes(len(key))))
    tokens = sum(len(key) // TOKEN_BYTES for key in keys)
    return 1 - cache.total_size / tokens if tokens else 0.0


def batch_hit_rate(
    prompts: Iterable[TokenIds],
    order: str = "dfs",
    *,
    capacity: int | None = None,
    eviction: str = "lru",
    seed: int = 0,
) -> float:
    """What a batch finds, served one at a time through a cache of `capacity` tokens.

    Without a `capacity` it is the longest prompt: the least with which the SGLang paper's theorem
    holds (Zheng et al. 2024, section 3), that "dfs" finds all that `optimal_hit_rate` says, and so
    does "lpm", which serves the longest cached prefix next and looks again after each. "fcfs" is
    the order given, "random" shuffles by `seed`. Of no tokens nothing is found: 0. Raises
    `InvalidArgument` for another order or a prompt longer than the capacity.
    """
    keys = [encode(prompt) for prompt in prompts]
    lengths = [len(key) // TOKEN_BYTES for key in keys]
    longest = max(lengths, default=0)
    limit = longest if capacity is None else capacity
    if longest > limit:
        raise InvalidArgument("capacity", capacity, f"at least the longest prompt, {longest}")
    tree = _Tree(limit, eviction)
    return sum(map(tree.serve_key, _ordered(keys, order, tree, seed))) / (sum(lengths) or 1)


def _ordered(keys: list[bytes], order: str, tree: _Tree, seed: int) -> Iterator[bytes]:
    """The keys as they are to be served; "lpm" looks into the tree before each."""
    if order not in ORDERS:
        raise InvalidArgument("order", order, f"one of {', '.join(ORDERS)}")
    if order == "lpm":
        waiting = list(keys)
        while waiting:
            found = [tree.cache.match_prefix(key).cached_len for key in waiting]
            yield waiting.pop(found.index(max(found)))
    elif order == "dfs":
        yield from sorted(keys)  # in a sorted list every subtree is one run
    elif order == "random":
        yield from random.Random(seed).sample(keys, len(keys))
    else:
        yield from keys
