"""The packaged sheets: each keeps the rules, and its solutions do what the library does."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab import CacheHandle, CacheManager, RadixCache, Request
from radixlab.classroom.audit import audit
from radixlab.classroom.sandbox import Call, SandboxUnavailable, run_calls
from radixlab.classroom.sheet import Role, Sheet, find_sheets, load_sheet, parse_sheet
from radixlab.errors import NotLocked
from radixlab.scenarios import race_scenario
from radixlab.tokens import encode
from radixlab.tree import RadixTree, RadixTreeNode
from radixlab.viz import count_trees, shared_prompts

EXERCISES = Path(__file__).resolve().parents[1] / "book" / "exercises"
TEMPLATE = EXERCISES / "_template.md"

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=8)
PROMPTS = st.lists(IDS, min_size=1, max_size=6)

Names = dict[str, Any]


def solved(name: str) -> Names:
    """The names that a sheet gives, and those of its solutions."""
    sheet, names = load_sheet(name), {}
    for source in (sheet.given, *(each.solution for each in sheet.exercises.values())):
        exec(source, names)
    return names


WALK, SPLIT, INSERT, LOCK = map(solved, ("01-longest-prefix", "02-split", "03-insert", "04-lock"))


# --- rules ---------------------------------------------------------------------------------------


NEEDS_TORCH = {"08-paged-attention"}
PACKAGED = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.long] * (path.stem in NEEDS_TORCH))
    for path in (*find_sheets(), TEMPLATE)
]


@pytest.mark.parametrize("path", PACKAGED)
def test_a_packaged_sheet_keeps_all_rules(path: Path) -> None:
    assert audit(Sheet.read(path)) == []


def changed(old: str, new: str) -> Sheet:
    """The template with a fault."""
    text = TEMPLATE.read_text(encoding="utf-8")
    assert old in text, f"the template has changed: {old!r} is gone"
    return parse_sheet(text.replace(old, new), TEMPLATE.stem)


SOLUTION = "return cached / tokens if tokens else 0.0\n    ### END"
DRIVER = "return hit_rate([Served(*pair) for pair in served])"
VISIBLE = 'yield "example", [[[4, 6], [4, 7]]]'
DRAWN = "for total in totals]]"
RANDOM = 'yield "random", [[[rng.randrange(total + 1), total] for total in totals]]'
EMPTY = 'yield "no tokens", [[[0, 0], [rng.randrange(1, 9), 9]]]'
MISTAKE = "return sum(r.cached_len for r in served) / sum(r.num_tokens for r in served)"

FAULTS = {
    "points": ("example: 1,", "example: 0,", "group 'example' is worth nothing; give it"),
    "question": ('"points": 2', '"points": 0', "low_rate: the question is worth nothing; give"),
    "no hint": ('"role": "hint"', '"tags": []', "there is no hint; write one"),
    "hint": (
        "Two sums and one division:",
        "`cached = sum(request.cached_len  for request in served)`, and",
        "hint 2 says a line of the solution, 'cached = sum(request.cached_len for request in",
    ),
    "leak": ("50 % or 90 %?", f"90 %? Try `{MISTAKE}`.", "students would see a teacher's line"),
    "given": ("from typing import NamedTuple\n", "", "it must run on its own"),
    "docstring": (
        'def hit_rate(served):\n    """',
        'def hit_rate(served):\n    _ = """',
        "docstring",
    ),
    "solution": (
        SOLUTION,
        f"return served[5]\n    {SOLUTION}",
        "the solution of hit_rate fails in",
    ),
    "NaN": (SOLUTION, f"return float('nan')\n    {SOLUTION}", "status='not json'"),
    "chance": (
        SOLUTION,
        f"import random\n    return random.random()\n    {SOLUTION}",
        "the same seed gives other cases or values; draw from rng",
    ),
    "stub": (
        "    ### BEGIN",
        "    if not any(r.num_tokens for r in served):\n        return 0.0\n    ### BEGIN",
        "the stub does not raise NotImplementedError in group 'no tokens'; let the marks",
    ),
    "cases": (DRAWN, "for total in total]]", "its cases fail with NameError"),
    "arguments": (DRAWN, "for total in totals], {1}]", "its cases fail with TypeError"),
    "groups": (RANDOM, RANDOM.replace('"random"', '"chance"'), "points and cases differ in"),
    "one value": (EMPTY, "", "group 'no tokens' always expects the same; add a case"),
    "no chance": (RANDOM, 'yield "random", [[[_, 9]]]', "group 'random' is the same for two seeds"),
    "seen": (VISIBLE, 'yield "example", [[[rng.randrange(6), 6]]]', "visible cases differ from"),
    "known": (
        RANDOM,
        f"{RANDOM}\n        {VISIBLE.replace('example', 'random')}",
        "'random' is a vis",
    ),
    "constant": (
        DRIVER,
        "return [hit_rate([Served(*pair) for pair in served]) >= 0, len(served)]",
        "who returns 0 earns group 'random'; add a case in which that is wrong",
    ),
    "no mistake": (MISTAKE, MISTAKE.replace("/ ", "/ max(1, ") + ")", "earns everything"),
    "failure": (
        MISTAKE,
        "return served.hit_rate",
        "'Without tokens you divide by 0. ...' only fails",
    ),
    "twins": (
        MISTAKE,
        "rates = [r.cached_len / (r.num_tokens or 1) for r in served]\n"
        "    return sum(rates) / max(1, len(rates))",
        "'You take the mean of the ...' and 'Without tokens you divide by 0. ...' look the same",
    ),
}


@pytest.mark.parametrize(("old", "new", "problem"), FAULTS.values(), ids=FAULTS)
def test_the_audit_finds_each_kind_of_fault(old: str, new: str, problem: str) -> None:
    problems = audit(changed(old, new))
    assert any(problem in each for each in problems), problems


def test_the_audit_tries_the_solution_in_the_sandbox() -> None:
    sheet = changed(SOLUTION, f"open('/etc/passwd').close()\n    {SOLUTION}")
    exercise = sheet.exercises["hit_rate"]
    try:
        run_calls(sheet, [exercise.solution], [Call(exercise.id, exercise.entry, [[]])])
    except SandboxUnavailable as reason:
        pytest.skip(str(reason))
    (problem,) = audit(sheet)
    assert "the solution fails in the sandbox ('example': FileNotFoundError)" in problem


# --- beside the library --------------------------------------------------------------------------


def planted(prompts: list[list[int]]) -> RadixCache:
    """The library's tree of these prompts, each slot used once."""
    cache, slot = RadixCache(), 0
    for prompt in prompts:
        slots = cache.match_prefix(prompt).value
        new = len(prompt) - len(slots)
        cache.insert_prefix(prompt, slots + array("i", range(slot, slot + new)))
        slot += new
    return cache


def below(node: Any) -> list[Any]:
    """All nodes of a tree, the library's or a sheet's, in the order of their token ids."""
    children = sorted(node.children.values(), key=lambda child: child.key[0])
    return [node, *(each for child in children for each in below(child))]


def copied(node: RadixTreeNode, names: Names, parent: Any = None) -> Any:
    """A sheet's own nodes for a tree of the library; no sheet counts the root."""
    copy = names["Node"](list(node.key), list(node.value), parent)
    copy.ref_count, copy.timestamp = 0 if parent is None else node.ref_count, node.timestamp
    for child in node.children.values():
        copied(child, names, copy)
    return copy


def told(root: Any, *more: str) -> list[Any]:
    """What a tree says, for comparing; `more` names further attributes."""
    rows = []
    for node in below(root)[1:]:
        assert any(node is child for child in node.parent.children.values())
        rows.append([list(node.key), list(node.value), list(node.parent.key)])
        rows[-1] += [getattr(node, name) for name in more]
    return rows


@given(IDS, IDS)
def test_match_len_counts_as_get_match_len(edge: list[int], ids: list[int]) -> None:
    tree = RadixTree()
    leaf = tree.add_leaf(tree.root, encode(edge), array("i", edge), None)
    assert WALK["match_len"](edge, ids) == leaf.get_match_len(encode(ids))


@given(PROMPTS, IDS)
def test_longest_prefix_finds_what_match_prefix_finds(
    prompts: list[list[int]], ids: list[int]
) -> None:
    cache = planted(prompts)
    root = copied(cache.tree.root, WALK)
    for _ in "ab":  # the first walk has changed nothing
        found = WALK["longest_prefix"](root, ids)
        handle = cache.match_prefix(ids)
        assert found == (handle.cached_len, handle.value.tolist())


@given(PROMPTS, st.data())
def test_split_at_cuts_as_the_library_does(prompts: list[list[int]], data: st.DataObject) -> None:
    cache = planted(prompts)
    for prompt in data.draw(st.lists(st.sampled_from(prompts))):
        cache.lock(cache.match_prefix(prompt))
    root = copied(cache.tree.root, SPLIT)
    pairs = zip(below(cache.tree.root), below(root), strict=True)
    long = [(theirs, ours) for theirs, ours in pairs if theirs.length > 1]
    if not long:
        return
    theirs, ours = data.draw(st.sampled_from(long))
    position = data.draw(st.integers(1, theirs.length - 1))
    upper, our_upper = theirs.split_at(position), SPLIT["split_at"](ours, position)
    assert list(our_upper.key) == list(upper.key) and list(our_upper.children.values()) == [ours]
    counts = "ref_count", "timestamp"
    assert told(root, *counts) == told(cache.tree.root, *counts)


@given(PROMPTS)
def test_insert_makes_the_library_s_tree(prompts: list[list[int]]) -> None:
    cache, root = RadixCache(), INSERT["Node"]([], [])
    for number, prompt in enumerate(prompts):
        row = list(range(100 * number, 100 * number + len(prompt)))  # nothing was matched
        found, duplicates = INSERT["insert"](root, prompt, row)
        assert found == cache.insert_prefix(prompt, array("i", row)).cached_len
        assert duplicates == row[:found]
        assert told(root) == told(cache.tree.root)


@given(st.lists(PROMPTS, min_size=1, max_size=3))
def test_a_lost_race_ends_as_in_the_manager(batches: list[list[list[int]]]) -> None:
    manager, root = CacheManager(512, checked=True), INSERT["Node"]([], [])
    for batch in batches:
        requests = [Request(prompt) for prompt in batch]
        for request in requests:  # all are matched before anything is inserted
            assert manager.admit(request)
            manager.allocate(request, request.num_tokens)
        for request, prompt in zip(requests, batch, strict=True):
            row, free = request.page_table.tolist(), set(manager.pool.free_slots)
            request.computed_len = known = max(1, len(prompt) - len(prompt) % 2)
            result = manager.cache_request(request)
            found, duplicates = INSERT["insert"](root, prompt[:known], row[:known])
            assert found == result.cached_len
            assert set(duplicates) == set(manager.pool.free_slots) - free
            (end,) = (node for node in below(root) if spelled(node) == prompt[:known])
            INSERT["repoint"](row, end)
            assert row == request.page_table.tolist()
        for request in requests:
            manager.release(request)
    manager.check_integrity()


def spelled(node: Any) -> list[int]:
    """The token ids of the path to a node."""
    return [] if node.parent is None else [*spelled(node.parent), *node.key]


@given(PROMPTS, st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=20))
def test_lock_and_unlock_count_as_the_library_does(
    prompts: list[list[int]], calls: list[tuple[int, bool]]
) -> None:
    theirs, ours = planted(prompts), LOCK["Cache"]()
    ours.root, ours.evictable_size = copied(theirs.tree.root, LOCK), theirs.evictable_size
    pairs = list(zip(below(theirs.tree.root), below(ours.root), strict=True))[1:]
    held: dict[RadixTreeNode, list[CacheHandle]] = {}
    for number, wanted in calls:
        their_node, node = pairs[number % len(pairs)]
        handles = held.setdefault(their_node, [])
        if wanted:
            handles.append(CacheHandle(theirs, their_node))
            theirs.lock(handles[-1])
            LOCK["lock"](ours, node)
        elif handles:
            theirs.unlock(handles.pop())
            LOCK["unlock"](ours, node)
        else:
            with pytest.raises(NotLocked):
                theirs.unlock(CacheHandle(theirs, their_node))
            with pytest.raises(LOCK["NotLocked"]):
                LOCK["unlock"](ours, node)
        assert ours.evictable_size == theirs.evictable_size
        assert ours.protected_size == theirs.protected_size
        assert told(ours.root, "ref_count") == told(theirs.tree.root, "ref_count")
    assert ours.root.ref_count == 0


# --- what the texts say --------------------------------------------------------------------------


def test_the_model_answer_has_the_numbers_that_are_measured() -> None:
    text = " ".join(load_sheet("03-insert").written["why_radix"].rubric.split())
    short, long = (count_trees(shared_prompts(length)) for length in (512, 1024))
    assert f"need {short.trie_nodes} nodes in a trie and {short.radix_nodes} in a radix" in text
    assert f"takes {short.trie_lookups} look-ups or {short.radix_lookups}" in text
    assert f"{long.trie_nodes} nodes, and the radix tree still {long.radix_nodes}" in text
    assert "about 520 kB instead of 20 kB" in text
    sizes = short.trie_bytes / 1000, short.radix_bytes / 1000
    assert sizes == pytest.approx((520, 20), rel=0.2)  # Python's versions differ


def test_the_race_of_the_third_sheet_is_the_one_that_its_text_tells() -> None:
    first, second = (step for step in race_scenario().steps() if step.name == "insert")
    assert "[p0, p1, p2, p3, p4] joins the tree" in first.caption
    assert "the duplicates [p5, p6, p7, p8, p9] are freed" in second.caption
    assert first.changes.created and not second.changes.created


def test_while_a_node_is_held_its_time_stands_still_as_three_sheets_say() -> None:
    shown: dict[str, Names] = {"02-split": {}, "04-lock": {}}
    for name, names in shown.items():
        for cell in load_sheet(name).cells:
            if cell.is_code and cell.role is Role.PAGE and "cache" in cell.source:
                exec(cell.source, names)
        assert "stands still while a node is" in " ".join(load_sheet(name).text.split())
    held = shown["02-split"]["b"].node
    assert held.ref_count and held.timestamp == 1 < shown["02-split"]["cache"].tick
    upper, child = shown["04-lock"]["s"].node, shown["04-lock"]["r1"].node
    assert upper.ref_count and not child.ref_count and child.timestamp > upper.timestamp
    rule = "of the nodes that nobody holds, none was last used before its children"
    assert rule in " ".join(load_sheet("05-evict").text.split())


@pytest.mark.parametrize("path", [p for p in find_sheets() if p.stem not in NEEDS_TORCH])
def test_the_pictures_of_a_sheet_need_no_graphviz(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(source: str) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("radixlab.viz.dot.render", render)
    names: Names = {"display": str}
    for cell in Sheet.read(path).cells:
        if cell.is_code and cell.role in (Role.PAGE, Role.GIVEN):
            exec(cell.source, names)
