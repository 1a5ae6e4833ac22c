"""Who goes first: every schedule policy of SGLang, each by its key (chapter, section 4.2, step 2).

The two that the chapter's example needs, `fcfs` and `shortest_prefill_first`, are the scheduler's
own; these are the rest, and all of them by name. Every sort is stable: ties keep the order of
arrival. A policy's type says what it looks at: a `PrefixUnaware` one sees requests, a `PrefixAware`
one also what was found for them. The keys are those of SGLang's `schedule_policy.py`; only ties are
broken otherwise there, under hrrn by the request's id, under dfs-weight by the order in the tree.

Under lpm and hrrn whoever is `deprioritised` (`scheduler.mark_repeated`) comes last, as in SGLang.
That is for those who sort by hand: the `Scheduler` lets them wait, wherever the sort puts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from random import Random

from radixlab.errors import InvalidArgument
from radixlab.request import Request
from radixlab.scheduler import (
    Matched,
    PrefixAware,
    PrefixUnaware,
    SchedulePolicy,
    fcfs,
    shortest_prefill_first,
)

__all__ = [
    "POLICIES",
    "by_priority",
    "dfs_weight",
    "fcfs",
    "hrrn",
    "lof",
    "lpm",
    "make_policy",
    "priority",
    "priority_lof",
    "routing_key",
    "shortest_prefill_first",
    "shuffled",
]


# --- prefix-aware ------------------------------------------------------------------------------
@PrefixAware
def lpm(waiting: Sequence[Matched]) -> list[Matched]:
    """Longest prefix match: whoever finds most goes first, as long as it is still cached."""
    return sorted(waiting, key=lambda each: (each.deprioritised, -each.handle.cached_len))


@PrefixAware
def dfs_weight(waiting: Sequence[Matched]) -> list[Matched]:
    """Depth first through the tree, the subtree in which most requests end first.

    A node's own requests come after those of its subtrees.
    """
    weights = Counter(node for each in waiting for node in each.handle.node.path())
    ranks = {node: (-weight, i) for i, (node, weight) in enumerate(weights.items())}
    own = (0, 0)
    return sorted(
        waiting, key=lambda each: [*(ranks[node] for node in each.handle.node.path()), own]
    )


@PrefixAware
def hrrn(waiting: Sequence[Matched]) -> list[Matched]:
    """Highest response ratio next: the longer it has waited for the less work, the sooner.

    Waiting is counted in tokens that were prefilled meanwhile, so that nobody starves: every ratio
    grows until it is the highest.
    """
    return sorted(waiting, key=lambda each: (each.deprioritised, -_response_ratio(each)))


def _response_ratio(each: Matched) -> float:
    # what a manager has matched leaves a token to compute; other handles need not
    return each.waited / each.uncached_len if each.uncached_len > 0 else float("inf")


# --- prefix-unaware ----------------------------------------------------------------------------
def lof(waiting: Sequence[Request], running: Collection[Request] = ()) -> list[Request]:
    """Longest output first: whoever may write most starts early, and the rest beside him."""
    return sorted(waiting, key=lambda request: -request.max_new_tokens)


def routing_key(waiting: Sequence[Request], running: Collection[Request] = ()) -> list[Request]:
    """The key that most running requests have first; keys that nobody runs last, by name."""
    counts = Counter(request.routing_key for request in running if request.routing_key)
    if not counts:
        return list(waiting)

    def rank(request: Request) -> tuple[bool, int, str]:
        count = counts[request.routing_key]
        return not count, -count, request.routing_key

    return sorted(waiting, key=rank)


def shuffled(seed: int = 0) -> PrefixUnaware:
    """A policy that draws a new order each time: the yardstick for any other."""
    rng = Random(seed)

    def random(waiting: Sequence[Request], running: Collection[Request] = ()) -> list[Request]:
        """Any order is as likely as any other."""
        return rng.sample(waiting, len(waiting))

    return random


def by_priority(ordered: Sequence[Request], sign: int = -1) -> list[Request]:
    """The highest priority first, whatever the order among equals; with `sign` 1 the lowest."""
    return sorted(ordered, key=lambda request: request.priority * sign)


def priority(waiting: Sequence[Request], running: Collection[Request] = ()) -> list[Request]:
    """The highest priority first, then by arrival."""
    return by_priority(fcfs(waiting))


def priority_lof(waiting: Sequence[Request], running: Collection[Request] = ()) -> list[Request]:
    """The highest priority first, then the longest output."""
    return by_priority(lof(waiting))


# --- by name -----------------------------------------------------------------------------------
POLICIES: dict[str, SchedulePolicy] = {
    "fcfs": fcfs,
    "lpm": lpm,
    "dfs-weight": dfs_weight,
    "hrrn": hrrn,
    "shortest-prefill-first": shortest_prefill_first,
    "lof": lof,
    "random": shuffled(),
    "routing-key": routing_key,
    "priority": priority,
    "priority-lof": priority_lof,
}
"""By the names that SGLang gives them; the last two are its priority scheduling."""


def make_policy(name: str, seed: int = 0) -> SchedulePolicy:
    """The policy of that name, the random one new and seeded; else raises `InvalidArgument`."""
    if name not in POLICIES:
        raise InvalidArgument("policy", name, f"one of {', '.join(POLICIES)}")
    return shuffled(seed) if name == "random" else POLICIES[name]
