"""Who runs next, and the contract with whatever computes (chapter, section 4.2, step 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from radixlab.cache import CacheHandle
from radixlab.request import Request, RequestState

__all__ = [
    "POLICIES",
    "Chunk",
    "Matched",
    "ModelRunner",
    "NullRunner",
    "Request",
    "RequestState",
    "SchedulePolicy",
    "fcfs",
    "shortest_prefill_first",
]


class Matched(NamedTuple):
    """A waiting request and the cached prefix that was found for it."""

    request: Request
    handle: CacheHandle

    @property
    def uncached_len(self) -> int:
        """Tokens of the prompt that are still to be computed."""
        return self.request.num_tokens - self.handle.cached_len


SchedulePolicy = Callable[[Sequence[Matched]], list[Matched]]
"""Puts the waiting requests, given in order of arrival, into the order in which they should run."""


def fcfs(waiting: Sequence[Matched]) -> list[Matched]:
    """First come, first served: the order of arrival, whatever is cached (mini-SGLang)."""
    return list(waiting)


def shortest_prefill_first(waiting: Sequence[Matched]) -> list[Matched]:
    """The shortest uncached suffix first; ties in order of arrival (SGLang's schedule_policy)."""
    return sorted(waiting, key=lambda matched: max(1, matched.uncached_len))


POLICIES: dict[str, SchedulePolicy] = {
    "fcfs": fcfs,
    "shortest-prefill-first": shortest_prefill_first,
}


class Chunk(NamedTuple):
    """Work for one pass: compute positions `start .. end - 1` of a request.

    Everything before `start` is in the pool already; the page table has a slot for every position.
    """

    request: Request
    start: int
    end: int


class ModelRunner(Protocol):
    """Computes K and V at the slots of the page tables and draws tokens; it owns no slots.

    Both calls return one token id for each item, drawn from the logits of its last position. After
    a chunk that ends before the prompt does, that token means nothing.
    """

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        """Compute the uncached suffix of each prompt."""

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        """Compute the last drawn token of each request, at position `num_tokens - 1`."""


class NullRunner:
    """Computes nothing, draws token 0 and counts: it turns an engine into a simulator."""

    def __init__(self) -> None:
        self.prefilled_tokens = 0
        self.decoded_tokens = 0

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        """Count the tokens that a model would have to compute."""
        self.prefilled_tokens += sum(end - start for _, start, end in chunks)
        return [0] * len(chunks)

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        """Count one token for each request."""
        self.decoded_tokens += len(requests)
        return [0] * len(requests)
