"""Each schedule policy against queues worked out by hand, and what all of them have in common."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab import policies
from radixlab.cache import RadixCache
from radixlab.engine import Engine
from radixlab.errors import InvalidArgument
from radixlab.lifecycle import arrange
from radixlab.manager import CacheManager
from radixlab.policies import POLICIES, by_priority, fcfs, lof, make_policy, shuffled
from radixlab.request import Request
from radixlab.scheduler import (
    Matched,
    NullRunner,
    PrefixAware,
    SchedulerSettings,
    mark_repeated,
)

AWARE = ["lpm", "dfs-weight", "hrrn", "shortest-prefill-first"]
UNAWARE = ["fcfs", "lof", "random", "routing-key", "priority", "priority-lof"]


def cache_of(*prompts: Sequence[int]) -> RadixCache:
    cache = RadixCache()
    for prompt in prompts:
        cache.insert_prefix(prompt, array("i", range(len(prompt))))
    return cache


def found(
    cache: RadixCache,
    prompt: Sequence[int],
    name: str,
    waited: int = 0,
    deprioritised: bool = False,
    most: int | None = None,
) -> Matched:
    """A waiting request, matched on all its tokens but the last, or on `most` of them."""
    limit = len(prompt) - 1 if most is None else most
    handle = cache.match_prefix(prompt, limit=limit)
    return Matched(Request(prompt, request_id=name), handle, waited, deprioritised)


def names(ordered: Sequence[Matched] | Sequence[Request]) -> str:
    return "".join(
        str((each.request if isinstance(each, Matched) else each).request_id) for each in ordered
    )


CACHE = cache_of([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 9])


def queue() -> list[Matched]:
    """Cached: A 2 of 4, B 8 of 10, C 0 of 3, D 2 of 8, E 8 of 12, F 3 of 4."""
    return [
        found(CACHE, [1, 2, 0, 0], "A"),
        found(CACHE, [1, 2, 3, 4, 5, 6, 7, 8, 0, 0], "B"),
        found(CACHE, [7, 7, 7], "C"),
        found(CACHE, [1, 2, 0, 0, 0, 0, 0, 0], "D"),
        found(CACHE, [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0], "E"),
        found(CACHE, [1, 2, 3, 0], "F"),
    ]


def late(waiting: list[Matched], *who: str) -> list[Matched]:
    return [each._replace(deprioritised=each.request.request_id in who) for each in waiting]


def waits(waiting: list[Matched], **waited: int) -> list[Matched]:
    return [each._replace(waited=waited[str(each.request.request_id)]) for each in waiting]


def test_the_type_of_a_policy_says_whether_it_looks_at_prefixes() -> None:
    assert sorted([*AWARE, *UNAWARE]) == sorted(POLICIES)
    assert {name for name, policy in POLICIES.items() if isinstance(policy, PrefixAware)} == {
        *AWARE
    }


# --- prefix-aware -------------------------------------------------------------------------------
def test_lpm_takes_the_longest_match_and_leaves_ties_as_they_came() -> None:
    assert [each.handle.cached_len for each in queue()] == [2, 8, 0, 2, 8, 3]
    assert names(policies.lpm(queue())) == "BEFADC"


def test_lpm_puts_the_deprioritised_last_by_the_same_key() -> None:
    assert names(policies.lpm(late(queue(), "B", "A"))) == "EFDCBA"


def test_shortest_prefill_first_counts_what_is_left_and_puts_the_deprioritised_last() -> None:
    assert [each.uncached_len for each in queue()] == [2, 2, 3, 6, 4, 1]
    assert names(policies.shortest_prefill_first(queue())) == "FABCED"
    assert names(policies.shortest_prefill_first(late(queue(), "F", "A"))) == "BCEDFA"


def test_fully_cached_counts_as_one_token_left() -> None:
    """The cap of all tokens but the last keeps this from happening; the key holds all the same."""
    one = found(CACHE, [1, 2, 9], "A")
    none = found(CACHE, [1, 2, 9, 9], "B", waited=5, most=4)
    assert (one.uncached_len, none.uncached_len) == (1, 0)
    assert names(policies.shortest_prefill_first([one, none])) == "AB"
    assert names(policies.hrrn([one._replace(waited=10**9), none])) == "BA"


def test_hrrn_weighs_waiting_against_work() -> None:
    """Ratios: A 8/2 = 4, B 2/2 = 1, C 9/3 = 3, D 24/6 = 4, E 0/4 = 0, F 5/1 = 5."""
    waiting = waits(queue(), A=8, B=2, C=9, D=24, E=0, F=5)
    assert names(policies.hrrn(waiting)) == "FADCBE"
    assert names(policies.hrrn(late(waiting, "F", "D"))) == "ACBEFD"


def test_hrrn_starts_in_the_order_of_arrival() -> None:
    assert names(policies.hrrn(queue())) == "ABCDEF"


def test_dfs_weight_visits_the_heaviest_subtree_first_and_a_nodes_own_requests_last() -> None:
    """Below [1, 2] (7): [3] (3, one of them its own) and [9] (2), and two of its own; [5] (1)."""
    cache = cache_of([1, 2, 3, 4, 4], [1, 2, 9, 9], [5, 5])
    waiting = [
        found(cache, [5, 5, 0], "A"),
        found(cache, [0, 0], "B"),  # at the root
        found(cache, [1, 2, 0], "C"),
        found(cache, [1, 2, 9, 9, 0], "D"),
        found(cache, [1, 2, 3, 0], "E"),
        found(cache, [1, 2, 3, 4, 4, 0], "F"),
        found(cache, [1, 2, 8], "G"),
        found(cache, [1, 2, 9, 9, 1], "H"),
        found(cache, [1, 2, 3, 4, 4, 1], "I"),
    ]
    assert names(policies.dfs_weight(waiting)) == "FIEDHCGAB"


def test_dfs_weight_leaves_subtrees_of_one_weight_as_they_came_and_keeps_them_whole() -> None:
    cache = cache_of([1, 1], [2, 2])
    prompts = {"A": [2, 2, 0], "B": [1, 1, 0], "C": [2, 2, 1], "D": [1, 1, 1]}
    waiting = [found(cache, prompt, name) for name, prompt in prompts.items()]
    assert names(policies.dfs_weight(waiting)) == "ACBD"
    assert names(policies.dfs_weight(late(waiting, "A"))) == "ACBD", "its key knows no lateness"


# --- prefix-unaware -----------------------------------------------------------------------------
def asking(**news: int) -> list[Request]:
    return [Request([1], new, request_id=name) for name, new in news.items()]


def test_fcfs_is_the_order_of_arrival() -> None:
    assert names(fcfs(asking(A=1, B=9, C=5))) == "ABC"


def test_lof_takes_whoever_may_write_most() -> None:
    assert names(lof(asking(A=2, B=9, C=2, D=5))) == "BDAC"


def test_priorities_come_before_arrival_or_length() -> None:
    given_ = {"A": (0, 3), "B": (2, 1), "C": (-1, 9), "D": (2, 4), "E": (0, 5)}
    waiting = [Request([1], new, request_id=n, priority=p) for n, (p, new) in given_.items()]
    assert names(policies.priority(waiting)) == "BDAEC"
    assert names(policies.priority_lof(waiting)) == "DBEAC"
    assert names(by_priority(fcfs(waiting), sign=1)) == "CAEBD"
    assert names(by_priority(lof(waiting), sign=1)) == "CEADB"


def keyed(**keys: str) -> list[Request]:
    return [Request([1], request_id=name, routing_key=key) for name, key in keys.items()]


def test_routing_key_joins_those_who_run_already() -> None:
    """Running: y y x. Then the keys that nobody runs, by name; none at all sorts first of them."""
    waiting = keyed(A="z", B="x", C="", D="y", E="w", F="x", G="y")
    running = keyed(a="y", b="x", c="y", d="")
    assert names(policies.routing_key(waiting, running)) == "DGBFCEA"


def test_routing_key_breaks_equal_counts_by_name() -> None:
    assert names(policies.routing_key(keyed(A="y", B="x"), keyed(a="x", b="y"))) == "BA"


def test_routing_key_sorts_nothing_while_nothing_runs() -> None:
    assert names(policies.routing_key(keyed(A="z", B="x", C="y"))) == "ABC"


def test_random_is_seeded_and_every_order_comes_up() -> None:
    waiting = asking(A=1, B=1, C=1)
    one, two = shuffled(7), shuffled(7)
    drawn = [names(one(waiting, ())) for _ in range(60)]
    assert drawn == [names(two(waiting, ())) for _ in range(60)]
    assert len(set(drawn)) == 6
    assert drawn != [names(shuffled(8)(waiting, ())) for _ in range(60)]


# --- all of them --------------------------------------------------------------------------------
@given(
    data=st.lists(
        st.tuples(
            st.lists(st.integers(1, 2), min_size=1, max_size=8),
            st.integers(0, 9),  # waited
            st.booleans(),  # deprioritised
            st.integers(1, 3),  # new tokens
            st.integers(-1, 1),  # priority
            st.sampled_from(["", "x", "y"]),
        ),
        max_size=12,
    ),
    running=st.lists(st.sampled_from(["", "x", "y"]), max_size=4),
    seed=st.integers(0, 3),
)
def test_every_policy_is_a_permutation_stable_and_the_same_for_the_same_seed(
    data: list[tuple[list[int], int, bool, int, int, str]], running: list[str], seed: int
) -> None:
    cache = cache_of([1, 2, 1, 2], [2, 2, 2])
    waiting = []
    for i, (prompt, waited, deprioritised, new, importance, key) in enumerate(data):
        request = Request(prompt, new, request_id=i, priority=importance, routing_key=key)
        handle = cache.match_prefix(prompt, limit=len(prompt) - 1)
        waiting.append(Matched(request, handle, waited, deprioritised))
    ahead = [Request([1], routing_key=key) for key in running]
    for name in POLICIES:
        first = arrange(make_policy(name, seed), waiting, ahead)
        again = arrange(make_policy(name, seed), waiting, ahead)
        assert first == again, name
        assert sorted(m.request.request_id for m in first) == list(range(len(waiting)))
        if name != "random":
            assert arrange(POLICIES[name], first, ahead) == first, f"{name} moves ties"
        twins = [waiting[0]._replace() for _ in range(3)] if waiting else []
        if name in AWARE:
            assert [id(each) for each in arrange(POLICIES[name], twins)] == [*map(id, twins)]


def test_an_unknown_policy_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(InvalidArgument, match="policy must be one of fcfs, lpm, dfs-weight, hrrn"):
        make_policy("lru")


# --- in the scheduler ---------------------------------------------------------------------------
def order_served(
    policy: str,
    requests: Sequence[Request],
    *,
    before: Sequence[Request] = (),
    **settings: bool,
) -> str:
    """One at a time: in which order they were admitted, after others that warmed the cache."""
    manager = CacheManager(4096, checked=True)
    engine = Engine(manager, NullRunner(), settings=SchedulerSettings(max_running=1))
    for request in before:
        engine.add(request)
    for _ in engine.stream():
        pass
    engine = Engine(
        manager,
        NullRunner(),
        policy=make_policy(policy),
        settings=SchedulerSettings(max_running=1, **settings),
    )
    admitted: list[Request] = []
    for request in requests:
        engine.add(request)
    while engine.busy:
        engine.step()
        admitted += [r for r in engine.manager.running if r not in admitted]
        admitted += [r for r in requests if r.output and r not in admitted]
    return names(admitted)


def three() -> list[Request]:
    """By arrival ABC, by match BCA, by what is left CBA, by output ACB."""
    return [
        Request([3] * 9, 3, request_id="A"),
        Request([1] * 20 + [2] * 5, 1, request_id="B"),
        Request([1] * 10 + [2] * 2, 2, request_id="C"),
    ]


WARM = [1] * 20


@pytest.mark.parametrize(
    ("policy", "order"),
    [("fcfs", "ABC"), ("lpm", "BCA"), ("shortest-prefill-first", "CBA"), ("lof", "ACB")],
)
def test_the_scheduler_runs_whom_the_policy_puts_first(policy: str, order: str) -> None:
    assert order_served(policy, three(), before=[Request(WARM)]) == order


@pytest.mark.parametrize("policy", AWARE)
def test_above_128_waiting_a_prefix_aware_policy_gives_way_to_fcfs(policy: str) -> None:
    """SGLang's rule, its threshold a setting: the first of them goes by arrival, unsorted."""
    assert SchedulerSettings().max_matched == 128
    for number, first in ((127, "B"), (128, "A")):
        crowd = [Request([4, 4, 4, 4, i], request_id=f"x{i}") for i in range(number - 1)]
        cold = Request([9] * 12, request_id="A")
        warm = Request([*WARM, 0], request_id="B")
        served = order_served(policy, [cold, *crowd, warm], before=[Request(WARM), Request(WARM)])
        if policy in ("lpm", "shortest-prefill-first"):
            assert served[0] == first
        if first == "A":
            assert served[0] == "A"


def test_above_128_waiting_a_prefix_unaware_policy_still_sorts_them_all() -> None:
    crowd = [Request([i + 1], 1, request_id=f"x{i}") for i in range(200)]
    longest = Request([999], 5, request_id="L")
    assert order_served("lof", [*crowd, longest])[0] == "L"


def test_a_long_queue_is_not_matched_beyond_its_front(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[Request] = []
    match = CacheManager.match
    monkeypatch.setattr(CacheManager, "match", lambda m, r: matched.append(r) or match(m, r))
    manager = CacheManager(4096, checked=True)
    engine = Engine(manager, NullRunner(), policy=POLICIES["lpm"])
    for i in range(300):
        engine.add(Request([i + 1, 1]))
    engine.scheduler.next_chunks()
    assert len(set(matched)) == 128


@pytest.mark.parametrize("policy", AWARE)
def test_without_a_cache_prefix_aware_policies_become_fcfs(policy: str) -> None:
    requests = [Request([i] * (9 - i), request_id="ABC"[i]) for i in range(3)]
    served = order_served(policy, requests, cache=False)
    assert served == "ABC"


def test_the_in_batch_check_walks_the_queue_and_marks_whom_this_pass_helps() -> None:
    """SGLang's thresholds: at most 32 tokens cached, at least 32 found in the tree of this pass."""
    manager = CacheManager(512, checked=True)
    settings = SchedulerSettings(in_batch_check=32, in_batch_defer=32)
    prefix = list(range(40))
    prompts = {"A": [*prefix, 1], "B": [*prefix, 2], "C": prefix[:32], "D": [9] * 50, "E": prefix}
    requests = [Request(prompt, request_id=name) for name, prompt in prompts.items()]
    waiting = [Matched(request, manager.match(request)) for request in requests]
    marked = mark_repeated(waiting, settings)
    assert names([each for each in marked if each.deprioritised]) == "BE", "C's last is not counted"
    assert names(marked) == "ABCDE"
    assert mark_repeated(waiting, SchedulerSettings(in_batch_check=-1)) == waiting
    assert names(policies.lpm(marked)) == "ACDBE"


def test_the_clock_of_hrrn_counts_what_is_prefilled_while_one_waits() -> None:
    seen: list[list[int]] = []

    @PrefixAware
    def watch(waiting: Sequence[Matched]) -> list[Matched]:
        seen.append([each.waited for each in waiting])
        return list(waiting)

    manager = CacheManager(128, checked=True)
    settings = SchedulerSettings(max_running=1)
    engine = Engine(manager, NullRunner(), policy=watch, settings=settings)
    engine.add(Request([1] * 5))
    engine.add(Request([2] * 7))
    engine.step()
    engine.add(Request([3] * 9))
    engine.step()
    engine.step()
    assert seen == [[0, 0], [5, 0], [7]]


def test_a_ratio_of_hrrn_is_exact_enough_to_order() -> None:
    """Every pair of ratios with small terms is ordered as fractions are."""
    cache = RadixCache()
    pairs = list(itertools.product(range(0, 7), range(1, 7)))
    waiting = [
        found(cache, [1] * left, str(i), waited=waited) for i, (waited, left) in enumerate(pairs)
    ]
    ordered = [pairs[int(str(each.request.request_id))] for each in policies.hrrn(waiting)]
    assert ordered == sorted(pairs, key=lambda pair: -Fraction(*pair))


def test_without_a_key_that_runs_the_order_is_that_of_arrival() -> None:
    waiting = [Request([2], routing_key="b"), Request([3], routing_key="a")]
    assert policies.routing_key(waiting, [Request([1])]) == waiting
    assert policies.routing_key(waiting, [Request([1], routing_key="a")]) == waiting[::-1]
