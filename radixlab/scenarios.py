"""Small worlds in which the life of a request can be watched: the chapter's, and two more.

Each is a manager in some state and the requests that wait; `steps` plays it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from radixlab.lifecycle import Step, lifecycle
from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.scheduler import ModelRunner, SchedulePolicy, fcfs, shortest_prefill_first
from radixlab.strategies import make_strategy


class Scenario(NamedTuple):
    """A manager in some state, and requests that wait to be served."""

    manager: CacheManager
    requests: list[Request]
    policy: SchedulePolicy = fcfs
    batch_size: int = 1

    def steps(self, runner: ModelRunner | None = None) -> Generator[Step]:
        """Play it once: the manager and the requests are used up then."""
        manager, requests, policy, batch_size = self
        return lifecycle(manager, requests, policy=policy, runner=runner, batch_size=batch_size)


def chapter_scenario(
    policy: SchedulePolicy = shortest_prefill_first, eviction: str = "lru"
) -> Scenario:
    """R1 and R2 of section 4.2: a pool of 8 slots in which S = [900, 10, 11, 12] holds p0 to p3.

    Two aborted requests leave the free list as p6, p7, p4, p5. `eviction` names the strategy.
    """
    manager = CacheManager(8, strategy=make_strategy(eviction), checked=True)
    shared = [900, 10, 11, 12]
    _serve(manager, Request(shared, request_id="S"))
    aborted = [Request([1, 2], request_id="Y"), Request([3, 4], request_id="Z")]
    for request in aborted:
        manager.admit(request)
        manager.allocate(request, request.num_tokens)
    for request in aborted:
        manager.release(request)
    waiting = [
        Request([*shared, 31, 32], request_id="R1"),
        Request([*shared, 41, 42, 43], request_id="R2"),
    ]
    return Scenario(manager, waiting, policy)


def race_scenario() -> Scenario:
    """Two requests with one prompt, admitted before either is in the tree: the insert race."""
    prompt = [7, 8, 9, 10, 11]
    twins = [Request(prompt, request_id="T1"), Request(prompt, request_id="T2")]
    return Scenario(CacheManager(12, checked=True), twins, batch_size=2)


def evict_and_free_scenario() -> Scenario:
    """Pages of two tokens: F ends with half a page to free, E needs what F has left in the cache.

    Evict takes cached leaves out of the tree when slots are short; free returns, whenever a request
    ends, what never was in the tree (the chapter's exercise 3).
    """
    requests = [
        Request([1, 2, 3, 4, 5], request_id="F"),
        Request([6, 7, 8, 9, 10, 11], 2, request_id="E"),
    ]
    return Scenario(CacheManager(4, 2, checked=True), requests)


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "chapter": chapter_scenario,
    "race": race_scenario,
    "evict-and-free": evict_and_free_scenario,
}


def _serve(manager: CacheManager, request: Request) -> None:
    for _ in lifecycle(manager, [request]):
        pass
