"""What the project promises about its speed, and whether a run has kept it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.harness import LEAF_COUNTS, Eviction, Timing


@dataclass(frozen=True)
class Bar:
    """A promise, the worst value measured and where, and the bound; None if it was not measured."""

    promise: str
    bound: float
    measured: float | None
    where: str
    at_most: bool = False

    @property
    def holds(self) -> bool:
        """Whether the promise was measured and kept."""
        if self.measured is None:
            return False
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound


def bars(timings: Sequence[Timing], evictions: Sequence[Eviction]) -> list[Bar]:
    """Each promise against one run."""

    def adversary(timing: Timing) -> bool:
        return timing.trace == "splits" and timing.page_size == 1

    def ordinary(timing: Timing) -> bool:
        return not adversary(timing)

    def anywhere(timing: Timing) -> bool:
        return True

    return [
        lead(timings, "cache", "sglang", 15, anywhere),
        lead(timings, "cache", "sglang-rust", 10, ordinary, " (but splits at page size 1)"),
        lead(timings, "cache", "sglang-rust", 4, adversary, ", splits at page size 1"),
        lead(timings, "cache", "sglang-rust", 8, adversary, ", splits at page size 1, the goal"),
        lead(timings, "manager", "sglang", 10, anywhere),
        *(scaling(evictions, name) for name in ("cache", "manager")),
    ]


def lead(
    timings: Sequence[Timing],
    ours: str,
    theirs: str,
    bound: float,
    counts: Callable[[Timing], bool],
    condition: str = "",
) -> Bar:
    """How many times more requests a second than the peer, where we lead least."""
    peers = {(t.trace, t.page_size): t for t in timings if t.implementation == theirs}
    ratios = [
        (mine.requests_per_s / peer.requests_per_s, f"{mine.trace}, page size {mine.page_size}")
        for mine in timings
        if mine.implementation == ours and counts(mine)
        if (peer := peers.get((mine.trace, mine.page_size))) is not None
    ]
    measured, where = min(ratios, default=(None, "not measured"))
    return Bar(f"{ours} is {bound:g} times {theirs}{condition}", bound, measured, where)


def scaling(evictions: Sequence[Eviction], name: str) -> Bar:
    """How much more one eviction costs among the most leaves than among the fewest."""
    fewest, most = LEAF_COUNTS[0], LEAF_COUNTS[-1]
    times = {e.num_leaves: e.evict_us for e in evictions if e.implementation == name}
    promise = f"{name} evicts one leaf of {most:,} in 3 times the time of one of {fewest:,}"
    if fewest not in times or most not in times:
        return Bar(promise, 3, None, "not measured", at_most=True)
    where = f"{times[fewest]:.2f} and {times[most]:.2f} us"
    return Bar(promise, 3, times[most] / times[fewest], where, at_most=True)
