"""The chapter's own examples, number by number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations

import pytest

from radixlab.errors import DoubleFree
from radixlab.lifecycle import Recorder, Step
from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.scenarios import chapter_scenario, evict_and_free_scenario, race_scenario
from radixlab.snapshot import Changes, SlotMove, Snapshot, take_snapshot

A = [101, 11, 12, 21, 22]
B = [101, 11, 12, 31, 32]
C = [101, 11, 99]
NOTHING = Changes(created=(), removed=(), split=(), ref_counts=(), slots=())


def serve(manager: CacheManager, prompt: list[int]) -> int:
    """Compute one token after the prompt; returns how many tokens were found in the cache."""
    request = Request(prompt)
    assert manager.admit(request)
    manager.allocate(request, request.num_tokens)
    request.computed_len = request.num_tokens
    manager.cache_request(request)
    manager.release(request)
    return request.cache_hit_len


def edges(manager: CacheManager) -> dict[tuple[int, ...], tuple[int, ...]]:
    return {n.key: n.value for n in take_snapshot(manager).nodes if n.parent is not None}


def shape(snapshot: Snapshot) -> dict[tuple[int, ...], tuple[tuple[int, ...], int]]:
    """Token ids of each edge -> its slots and its ref_count."""
    return {n.key: (n.value, n.ref_count) for n in snapshot.nodes if n.parent is not None}


# --- section 3.3: A, B, C -----------------------------------------------------------------------
def test_a_b_and_c_build_the_tree_of_figures_2_to_4() -> None:
    manager = CacheManager(8, checked=True)

    assert serve(manager, A) == 0
    assert edges(manager) == {(101, 11, 12, 21, 22): (0, 1, 2, 3, 4)}

    assert serve(manager, B) == 3
    assert edges(manager) == {(101, 11, 12): (0, 1, 2), (21, 22): (3, 4), (31, 32): (5, 6)}

    assert serve(manager, C) == 2
    assert edges(manager) == {
        (101, 11): (0, 1),
        (12,): (2,),
        (21, 22): (3, 4),
        (31, 32): (5, 6),
        (99,): (7,),
    }
    manager.check_integrity()


def test_the_branches_of_a_b_and_c_hang_where_the_chapter_draws_them() -> None:
    manager = CacheManager(8, checked=True)
    for prompt in (A, B, C):
        serve(manager, prompt)
    assert str(manager.cache) == (
        "root\n"
        "└── [101, 11] -> [p0, p1]\n"
        "    ├── [12] -> [p2]\n"
        "    │   ├── [21, 22] -> [p3, p4]\n"
        "    │   └── [31, 32] -> [p5, p6]\n"
        "    └── [99] -> [p7]"
    )


def test_a_split_moves_no_token_to_another_slot() -> None:
    manager = CacheManager(8, checked=True)
    slot_of: dict[tuple[int, ...], int] = {}
    for prompt in (A, B, C):
        serve(manager, prompt)
        for ids in (A, B, C):
            found = manager.cache.match_prefix(ids).value.tolist()
            for end, slot in enumerate(found, 1):
                assert slot_of.setdefault(tuple(ids[:end]), slot) == slot


@pytest.mark.parametrize("order", [*permutations([A, B, C])])
def test_the_order_of_arrival_changes_the_slots_but_not_the_nodes(
    order: Sequence[list[int]],
) -> None:
    manager = CacheManager(8, checked=True)
    for prompt in order:
        serve(manager, prompt)
    assert sorted(edges(manager)) == [(12,), (21, 22), (31, 32), (99,), (101, 11)]


def test_lengths_of_key_and_value_agree_and_the_root_is_empty() -> None:
    manager = CacheManager(8, checked=True)
    for prompt in (A, B, C):
        serve(manager, prompt)
    root, *others = manager.cache.tree.nodes()
    assert root.is_root() and root.length == 0 and not root.key.tolist()
    assert all(len(node.key) == len(node.value) == node.length > 0 for node in others)
    assert len({node.uuid for node in (root, *others)}) == 6


# --- section 4.2: R1 and R2 ---------------------------------------------------------------------
S = (900, 10, 11, 12)
P0_TO_P3 = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def r1_r2() -> list[Step]:
    return list(chapter_scenario().steps())


def test_before_r1_and_r2_the_free_list_reads_p6_p7_p4_p5_and_s_is_cached() -> None:
    """Y, aborted first, comes back first, so that Z's slots are on top of its own."""
    manager, requests, _, batch_size = chapter_scenario()
    snapshot = take_snapshot(manager, requests)
    assert snapshot.free_list == (6, 7, 4, 5)
    assert shape(snapshot) == {S: (P0_TO_P3, 0)}
    assert (snapshot.total_size, snapshot.page_size, batch_size) == (8, 1, 1)
    assert [r.prompt for r in snapshot.requests] == [(*S, 31, 32), (*S, 41, 42, 43)]
    assert snapshot.waiting == ("R1", "R2")


def test_the_steps_of_r1_and_r2_come_in_the_chapter_s_order(r1_r2: list[Step]) -> None:
    assert [(step.number, step.name, step.request_id) for step in r1_r2] == [
        (1, "match", "R1"),
        (1, "match", "R2"),
        (2, "schedule", None),
        (3, "lock", "R1"),
        (4, "allocate", "R1"),
        (5, "prefill", None),
        (5, "insert", "R1"),
        (6, "unlock", "R1"),
        (1, "match", "R2"),
        (2, "schedule", None),
        (3, "lock", "R2"),
        (7, "evict", "R2"),
        (4, "allocate", "R2"),
        (5, "prefill", None),
        (5, "insert", "R2"),
        (6, "unlock", "R2"),
    ]


def test_each_step_names_the_code_that_did_it(r1_r2: list[Step]) -> None:
    functions = {step.name: step.function for step in r1_r2}
    assert functions == {
        "match": "radixlab.manager.CacheManager.match",
        "schedule": "radixlab.scheduler.shortest_prefill_first",
        "lock": "radixlab.cache.RadixCache.lock",
        "allocate": "radixlab.manager.CacheManager.allocate",
        "prefill": "radixlab.scheduler.NullRunner.prefill",
        "insert": "radixlab.cache.RadixCache.insert_prefix",
        "unlock": "radixlab.cache.RadixCache.unlock",
        "evict": "radixlab.cache.RadixCache.evict",
    }


def test_step_1_finds_s_for_both_and_holds_nothing(r1_r2: list[Step]) -> None:
    for step in r1_r2[:2]:
        assert step.caption == (
            f"{step.request_id}: 4 of {6 if step.request_id == 'R1' else 7} tokens are cached, "
            "at [p0, p1, p2, p3]. Found is not yet held."
        )
        assert shape(step.snapshot) == {S: (P0_TO_P3, 0)}
        assert step.changes == NOTHING


def test_step_2_lets_r1_go_first_because_2_tokens_are_fewer_than_3(r1_r2: list[Step]) -> None:
    assert "R1 (2), R2 (3)" in r1_r2[2].caption
    assert r1_r2[2].changes == NOTHING


def test_step_3_moves_s_from_evictable_to_protected(r1_r2: list[Step]) -> None:
    before, after = r1_r2[2].snapshot, r1_r2[3].snapshot
    assert (before.evictable_size, before.protected_size) == (4, 0)
    assert (after.evictable_size, after.protected_size) == (0, 4)
    node = after.nodes[1].uuid
    assert r1_r2[3].changes == Changes((), (), (), ((node, 0, 1),), ())
    assert r1_r2[3].nodes == (node,)
    r1 = after.requests[0]
    assert (r1.page_table, r1.cache_hit_len, r1.cached_len) == (P0_TO_P3, 4, 4)
    assert after.waiting == ("R2",)


def test_step_4_allocates_p6_and_p7_only(r1_r2: list[Step]) -> None:
    step = r1_r2[4]
    assert step.changes == Changes((), (), (), (), (SlotMove((6, 7), "free", "R1"),))
    assert step.snapshot.requests[0].page_table == (0, 1, 2, 3, 6, 7)
    assert step.snapshot.free_list == (4, 5)
    assert step.snapshot.private_size == 2


def test_step_5_computes_2_tokens_and_adds_one_child_below_s(r1_r2: list[Step]) -> None:
    prefill, insert = r1_r2[5:7]
    assert prefill.changes == NOTHING
    assert prefill.caption.startswith("R1 computes 2 tokens and reads 4 from the cache")
    s, child = insert.snapshot.nodes[1:]
    assert (child.key, child.value, child.parent) == ((31, 32), (6, 7), s.uuid)
    moved = SlotMove((6, 7), "R1", "cached")
    assert insert.changes == Changes((child.uuid,), (), (), ((child.uuid, 0, 1),), (moved,))
    assert shape(insert.snapshot) == {S: (P0_TO_P3, 1), (31, 32): ((6, 7), 1)}


def test_step_6_unlocks_s_and_the_leaf_and_both_stay_cached(r1_r2: list[Step]) -> None:
    step = r1_r2[7]
    s, leaf = step.snapshot.nodes[1:]
    assert step.changes == Changes((), (), (), ((s.uuid, 1, 0), (leaf.uuid, 1, 0)), ())
    assert shape(step.snapshot) == {S: (P0_TO_P3, 0), (31, 32): ((6, 7), 0)}
    assert (step.snapshot.evictable_size, step.snapshot.protected_size) == (6, 0)
    assert step.snapshot.free_list == (4, 5)
    assert step.snapshot.requests[0].state == RequestState.FINISHED


def test_step_7_evicts_the_leaf_of_r1_and_never_s_which_r2_holds(r1_r2: list[Step]) -> None:
    lock, evict, allocate = r1_r2[10:13]
    assert shape(lock.snapshot) == {S: (P0_TO_P3, 1), (31, 32): ((6, 7), 0)}
    assert len(lock.snapshot.free_list) == 2
    assert "3 slots needed, 2 free: the leaf [31, 32] goes" in evict.caption
    (gone,) = evict.changes.removed
    assert gone == lock.snapshot.nodes[2].uuid
    assert evict.changes == Changes((), (gone,), (), (), (SlotMove((6, 7), "cached", "free"),))
    assert evict.snapshot.free_list == (6, 7, 4, 5)
    assert shape(evict.snapshot) == {S: (P0_TO_P3, 1)}
    assert allocate.changes.slots == (SlotMove((4, 6, 7), "free", "R2"),)
    assert allocate.snapshot.requests[1].page_table == (0, 1, 2, 3, 6, 7, 4)


def test_at_the_end_s_and_r2_s_leaf_are_cached_and_p5_is_free(r1_r2: list[Step]) -> None:
    end = r1_r2[-1].snapshot
    assert shape(end) == {S: (P0_TO_P3, 0), (41, 42, 43): ((6, 7, 4), 0)}
    assert (end.free_list, end.evictable_size, end.private_size) == ((5,), 7, 0)
    assert [r.state for r in end.requests] == [RequestState.FINISHED] * 2


def test_if_r2_arrived_first_shortest_prefill_first_would_still_take_r1() -> None:
    scenario = chapter_scenario()
    scenario.requests.reverse()
    lock = next(step for step in scenario.steps() if step.name == "lock")
    assert lock.request_id == "R1"


# --- exercise 3: evict against free, and the race -----------------------------------------------
def test_the_race_frees_the_duplicates_and_points_the_page_table_to_the_tree() -> None:
    scenario = race_scenario()
    steps = list(scenario.steps())
    names = [(step.name, step.request_id) for step in steps]
    first, second = names.index(("insert", "T1")), names.index(("insert", "T2"))
    prompt, tree, duplicates = (7, 8, 9, 10, 11), (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)

    before = steps[first - 1].snapshot
    assert [r.page_table for r in before.requests] == [tree, duplicates]
    assert before.free_list == (10, 11) and shape(before) == {}

    assert shape(steps[first].snapshot) == {prompt: (tree, 1)}
    assert steps[first].changes.slots == (SlotMove(tree, "T1", "cached"),)

    after = steps[second]
    node = after.snapshot.nodes[1].uuid
    moved = SlotMove(duplicates, "T2", "free")
    assert after.changes == Changes((), (), (), ((node, 1, 2),), (moved,))
    assert shape(after.snapshot) == {prompt: (tree, 2)}
    assert [r.page_table for r in after.snapshot.requests] == [tree, tree]
    assert after.snapshot.free_list == (*duplicates, 10, 11)

    counts = [s.changes.ref_counts for s in steps[second + 1 :] if s.name == "unlock"]
    assert counts == [((node, 2, 1),), ((node, 1, 0),)]
    assert steps[-1].snapshot.free_list == (*duplicates, 10, 11)
    scenario.manager.check_integrity()


def test_evict_takes_a_leaf_out_of_the_tree_and_free_returns_what_never_was_there() -> None:
    steps = list(evict_and_free_scenario().steps())
    seven = [step for step in steps if step.number == 7]
    assert [(step.name, step.request_id) for step in seven] == [
        ("free", "F"),
        ("evict", "E"),
        ("free", "E"),
    ]
    free, evict, last = seven
    assert free.changes == Changes((), (), (), (), (SlotMove((4, 5), "F", "free"),))
    assert free.snapshot.free_list == (4, 6)
    assert shape(free.snapshot) == {(1, 2, 3, 4): ((0, 1, 2, 3), 0)}

    assert len(evict.changes.removed) == 1
    assert evict.changes.slots == (SlotMove((0, 1, 2, 3), "cached", "free"),)
    assert evict.snapshot.free_list == (0, 2, 4, 6) and shape(evict.snapshot) == {}

    assert last.changes.slots == (SlotMove((6, 7), "E", "free"),)
    assert shape(last.snapshot) == {(6, 7, 8, 9, 10, 11): ((0, 1, 2, 3, 4, 5), 0)}


def test_prompt_and_output_are_two_nodes_so_that_the_output_can_go_alone() -> None:
    """Section 4.2, the last note: 'a split at the prompt boundary'."""
    manager = CacheManager(8, checked=True)
    request = Request([1, 2, 3], 4)
    manager.admit(request)
    manager.allocate(request, 6)
    request.output.extend([7, 8, 9])
    request.computed_len = 6
    manager.cache_request(request)
    assert edges(manager) == {(1, 2, 3): (0, 1, 2), (7, 8, 9): (3, 4, 5)}
    manager.release(request)
    assert manager.evict(1).tolist() == [3, 4, 5]
    assert edges(manager) == {(1, 2, 3): (0, 1, 2)}


def test_a_request_returns_its_pages_once() -> None:
    manager = CacheManager(4)
    request = Request([1, 2])
    manager.admit(request)
    manager.allocate(request, 2)
    manager.release(request)
    with pytest.raises(DoubleFree):
        manager.release(request)
    assert manager.pool.free_list.tolist() == [0, 1, 2, 3]


def test_every_step_of_the_chapter_is_json(r1_r2: list[Step]) -> None:
    for step in r1_r2:
        plain = json.loads(json.dumps(step.to_dict()))
        assert plain["snapshot"]["free_list"] == [*step.snapshot.free_list]
        assert plain["caption"] == step.caption


def test_a_recorder_follows_any_sequence_of_calls() -> None:
    """Without a lifecycle: one calls what one likes, and records what it was."""
    manager = CacheManager(8, checked=True)
    recorder = Recorder(manager)
    for prompt in (A, B, C):
        serve(manager, prompt)
        recorder.record(5, manager.cache.insert_prefix, f"{prompt} is in the tree.")
    uuids = {n.key: n.uuid for n in recorder.steps[-1].snapshot.nodes}
    assert [step.changes.split for step in recorder.steps] == [
        (),
        ((uuids[12,], uuids[21, 22]),),
        ((uuids[101, 11], uuids[12,]),),
    ]
    assert recorder.start.free_list == tuple(range(8))
