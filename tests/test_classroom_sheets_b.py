"""Sheets 05 to 08: their reference solutions do what the library does, and the chapter says."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from radixlab.cache import CacheHandle, RadixCache
from radixlab.classroom.sheet import Role, Sheet, load_sheet
from radixlab.errors import DoubleFree, PoolExhausted
from radixlab.gpt2 import Span, load_gpt2
from radixlab.kv import KVPool
from radixlab.manager import CacheManager
from radixlab.policies import lpm
from radixlab.pool import PageAllocator
from radixlab.request import Request
from radixlab.scheduler import (
    Matched,
    PrefixAware,
    SchedulerSettings,
    mark_repeated,
    shortest_prefill_first,
)

EVICT, PAGES, SCHEDULE = map(load_sheet, ("05-evict", "06-pages", "07-schedule"))
ATTENTION = load_sheet("08-paged-attention")
Names = dict[str, Any]


def solved(sheet: Sheet) -> Names:
    """What a notebook has when all of a sheet is solved."""
    names: Names = {}
    for source in (sheet.given, *(each.solution for each in sheet.exercises.values())):
        exec(source, names)
    return names


def visible(sheet: Sheet, name: str) -> list[tuple[list[Any], Any]]:
    """The arguments of an exercise's visible cases, and what the reference solution gives."""
    exercise, names, cases = sheet.exercises[name], solved(sheet), Names()
    exec(exercise.driver, names)
    exec(exercise.cases, cases)
    drawn = [args for group, args in cases["cases"](random.Random()) if group in exercise.visible]
    return [(args, names[exercise.entry](*deepcopy(args))) for args in drawn]


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """What the call returns, or "refused"; arrays as lists."""
    try:
        result = function(*args)
    except (ValueError, PoolExhausted, DoubleFree):
        return "refused"
    return result.tolist() if isinstance(result, array) else result


# --- 05: evict -----------------------------------------------------------------------------------
def used_cache(rng: random.Random) -> tuple[RadixCache, list[CacheHandle]]:
    """A cache with a past, and what of it is still locked."""
    cache, slots, held = RadixCache(), iter(range(10**6)), []
    for _ in range(rng.randint(2, 14)):
        ids = [rng.randrange(3) for _ in range(rng.randint(1, 9))]
        handle = cache.match_prefix(ids)
        if rng.random() < 0.7:
            row = handle.value
            row.extend(next(slots) for _ in range(len(ids) - handle.cached_len))
            handle = cache.insert_prefix(ids, row).handle
        if rng.random() < 0.3:
            cache.lock(handle)
            held.append(handle)
        elif held and rng.random() < 0.5:
            cache.unlock(held.pop(rng.randrange(len(held))))
    for node in cache.tree.nodes():
        node.border = True  # healing is the library's own
    return cache, held


def copied(names: Names, cache: RadixCache) -> Any:
    """The same tree, of the sheet's nodes."""
    copies = {}
    for node in cache.tree.nodes():
        above = None if node.parent is None else copies[node.parent]
        copy = copies[node] = names["Node"](list(node.key), list(node.value), above)
        copy.timestamp, copy.ref_count = node.timestamp, 0 if above is None else node.ref_count
    return names["Cache"](copies[cache.tree.root])


def written(cache: Any) -> list[tuple[Any, ...]]:
    """All nodes of a tree of either kind, comparable."""
    found, stack = [], [cache.root if hasattr(cache, "root") else cache.tree.root]
    while stack:
        node = stack.pop()
        counts = () if node.parent is None else (node.ref_count,)
        found.append((list(node.key), list(node.value), *counts))
        stack += sorted(node.children.values(), key=lambda child: list(child.key))
    return found


def test_evict_takes_what_the_librarys_lru_takes() -> None:
    names = solved(EVICT)
    for seed in range(300):
        rng = random.Random(seed)
        cache, held = used_cache(rng)
        own = copied(names, cache)
        while True:
            first, wanted = names["victim"](own), rng.randint(0, 4)
            slots = attempt(names["evict"], own, wanted)
            assert slots == attempt(cache.evict, wanted), f"seed {seed}"
            assert written(own) == written(cache), f"seed {seed}"
            assert own.evictable_size == cache.evictable_size
            assert own.protected_size == cache.protected_size
            if slots != "refused":
                assert not slots or slots[: len(first.value)] == first.value
            elif held:
                cache.unlock(held.pop())
                own = copied(names, cache)
            else:
                assert cache.evictable_size < wanted
                break


def test_the_sheets_promise_about_times_holds_in_the_library() -> None:
    for seed in range(300):
        cache, _ = used_cache(random.Random(seed))
        unlocked = [node for node in cache.tree.nodes() if not node.ref_count]
        leaves = [node.timestamp for node in unlocked if not node.children]
        assert len(set(leaves)) == len(leaves)
        for node in unlocked:
            assert all(child.timestamp <= node.timestamp for child in node.children.values())


def test_the_visible_evictions_are_the_chapters() -> None:
    picked = [result["victim"] for _, result in visible(EVICT, "victim")]
    r1, r2 = {"key": [31, 32], "value": [6, 7]}, {"key": [41, 42, 43], "value": [8, 9, 10]}
    assert picked == [r1, r1, r2, None, r2, r2, None]
    traces = [[step["slots"] for step in result] for _, result in visible(EVICT, "evict")]
    assert traces[:2] == [[[6, 7]], ["raised ValueError"]]
    assert traces[2] == [[], [3, 4], [5, 6, 2], [7, 0, 1]], "the picture's order"
    assert traces[3] == [[12, 2, 13], [10, 11], "raised ValueError"]


# --- 06: pages -----------------------------------------------------------------------------------
def test_allocate_and_free_do_what_the_librarys_checked_pool_does() -> None:
    names, refused = solved(PAGES), 0
    for seed in range(200):
        rng = random.Random(seed)
        num_pages, size = rng.randint(1, 9), rng.randint(1, 4)
        own, pool = names["Pool"](num_pages, size), PageAllocator(num_pages, size, checked=True)
        known: list[list[int]] = [[]]
        for _ in range(30):
            assert own.free_pages == [slot // size for slot in pool.free_list], f"seed {seed}"
            if rng.random() < 0.5:
                count = rng.randint(0, 4)
                result = attempt(names["allocate"], own, count)
                assert result == attempt(pool.allocate, count), f"seed {seed}"
                known += [result] if result != "refused" else []
            else:
                slots = rng.choice(known) + rng.choice([[], [], rng.choice(known)])
                slots = slots[rng.choice([0, 0, 1]) : len(slots) - rng.choice([0, 0, 1])]
                result = attempt(names["free"], own, list(slots))
                assert result == attempt(pool.free, array("i", slots)), f"seed {seed}"
            refused += result == "refused"
    assert refused > 1000


def test_whole_pages_and_page_tables_are_the_managers() -> None:
    names, rng = solved(PAGES), random.Random(0)
    for size in (1, 2, 3, 8):
        manager = CacheManager(40, size)
        slots = manager.pool.allocate(40)
        for page in rng.sample(range(40), 40):
            manager.pool.free(slots[page * size : (page + 1) * size])
        for length in range(1, 30):
            assert names["floor_to_page"](length, size) == manager.round_down(length)
            request = Request([rng.randrange(9) for _ in range(length)])
            manager.admit(request)
            manager.allocate(request, length)
            table = request.page_table.tolist()
            pages = names["pages_of"](table[:length], size)
            assert len(pages) * size == len(table)
            for count in range(len(table) + 1):
                assert names["page_table_row"](pages, count, size) == table[:count]
            assert attempt(names["page_table_row"], pages, len(table) + 1, size) == "refused"
            manager.release(request)


def test_the_visible_rows_are_the_chapters() -> None:
    (_, by_slot), (_, by_two), *_ = visible(PAGES, "page_table_row")
    assert by_slot == by_two == [0, 1, 2, 3, 6, 7]
    assert [result for _, result in visible(PAGES, "floor_to_page")] == [4, 8, 0, 0, 6]
    pages = [result for _, result in visible(PAGES, "pages_of")]
    assert pages == [[0, 1, 3], [2, 0], [5, 2, 4], []]


def test_the_table_in_the_text_of_the_sheet_is_right() -> None:
    names = solved(PAGES)
    pool, told = names["Pool"](4, 2), []
    for call in ("allocate(pool, 2)", "allocate(pool, 1)", "free(pool, [0, 1, 2, 3])"):
        returned = eval(call, names, {"pool": pool})
        told.append(
            f"| `{call}` | {'' if returned is None else f'`{returned}`'} | `{pool.free_pages}` |"
        )
    assert attempt(names["free"], pool, [0, 1]) == "refused"
    told.append(f"| `free(pool, [0, 1])` | refused | `{pool.free_pages}` |")
    assert all(line.replace("|  |", "| |") in PAGES.text for line in told)


# --- 07: schedule --------------------------------------------------------------------------------
def matched_queue(rng: random.Random, with_last: bool) -> list[Matched]:
    """Requests that wait, and what a cache has of them: of the last token too, if so wished."""
    cache, stems = RadixCache(), [[]]
    for _ in range(8):
        stems.append(rng.choice(stems[-3:]) + [rng.randrange(3) for _ in range(rng.randint(1, 4))])
    for stem in rng.sample(stems[1:], 2):
        cache.insert_prefix(stem, array("i", range(len(stem))))
    queue = []
    for name in "ABCDEFGH"[: rng.randint(1, 8)]:
        ids = rng.choice(stems[1:]) + [rng.randrange(3) for _ in range(rng.randrange(3))]
        handle = cache.match_prefix(ids, limit=len(ids) - (not with_last))
        queue.append(Matched(Request(ids, request_id=name), handle))
    return queue


def own_queue(names: Names, queue: list[Matched]) -> list[Any]:
    return [
        names["Request"](
            str(each.request.request_id),
            memoryview(each.request.prompt).cast("i").tolist(),
            each.handle.cached_len,
        )
        for each in queue
    ]


@pytest.mark.parametrize("policy", [shortest_prefill_first, lpm], ids=lambda p: p.__name__)
def test_the_two_policies_give_the_librarys_order(policy: PrefixAware) -> None:
    names = solved(SCHEDULE)
    for seed in range(300):
        queue = matched_queue(random.Random(seed), with_last=True)
        waiting = own_queue(names, queue)
        arrived = list(waiting)
        order = [each.name for each in names[policy.__name__](waiting)]
        assert order == [each.request.request_id for each in policy(queue)]
        assert waiting == arrived


def test_the_second_look_is_the_librarys_in_batch_check() -> None:
    names = solved(SCHEDULE)
    waited = 0
    for seed in range(500):
        rng = random.Random(seed)
        queue, at_least = matched_queue(rng, with_last=rng.random() < 0.5), rng.randint(1, 4)
        marked = mark_repeated(queue, SchedulerSettings(in_batch_defer=at_least))
        now, later = names["defer_repeated"](own_queue(names, queue), at_least)
        theirs = [
            [m.request.request_id for m in marked if m.deprioritised is deferred]
            for deferred in (False, True)
        ]
        assert [[each.name for each in part] for part in (now, later)] == theirs
        waited += len(later)
    assert waited > 100


def test_the_visible_orders_are_the_chapters() -> None:
    (_, spf), *_ = visible(SCHEDULE, "shortest_prefill_first")
    assert spf == {"order": ["R1", "R2"], "waiting afterwards": ["R2", "R1"]}
    (_, by_prefix), *_ = visible(SCHEDULE, "lpm")
    assert by_prefix["order"] == ["R2", "R1"]
    cold, warm, *_ = [result for _, result in visible(SCHEDULE, "defer_repeated")]
    assert (cold["now"], cold["later"]) == (["R1"], ["R2"])
    assert (warm["now"], warm["later"]) == (["R2", "R1"], [])


# --- 08: attention -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    threads = torch.get_num_threads()
    yield solved(ATTENTION)
    torch.set_num_threads(threads)


def test_attention_is_torchs_own_over_gathered_keys(names: Names) -> None:
    generator = torch.Generator().manual_seed(0)
    for new, cached in ((1, 0), (1, 7), (3, 0), (3, 5), (6, 2)):
        q, k, v = torch.randn(3, 12, 2, 8, generator=generator, dtype=torch.float64)
        table = torch.randperm(12, generator=generator)[: new + cached]
        before = k.clone(), v.clone()
        got = names["paged_attention"](q[:new], k, v, table)
        mask = torch.ones(new, new + cached, dtype=torch.bool).tril(cached)
        heads = [each.transpose(0, 1) for each in (q[:new], k[table], v[table])]
        expected = F.scaled_dot_product_attention(*heads, attn_mask=mask).transpose(0, 1)
        torch.testing.assert_close(got, expected)
        assert torch.equal(names["causal_mask"](new, new + cached), mask)
        assert torch.equal(k, before[0]) and torch.equal(v, before[1])


def test_the_tiny_gpt2_computes_what_the_librarys_does_cold_and_warm(names: Names) -> None:
    model = load_gpt2("tiny", dtype=torch.float64, device="cpu")
    generator = torch.Generator().manual_seed(0)
    for length, cached in ((1, 0), (9, 4), (20, 19), (30, 12)):
        ids = torch.randint(model.config.vocab, (length,), generator=generator)
        slots = torch.randperm(40, generator=generator)[:length]
        kv = KVPool.for_model(model, 40)
        expected = model.forward(ids, [Span(slots, 0, length)], kv, logits="all")
        attention, pool = names["paged_attention"], names["new_pool"](40)
        cold = names["forward"](ids, slots, names["new_pool"](40), attention)
        torch.testing.assert_close(cold, expected, rtol=1e-9, atol=1e-9)
        if cached:
            names["forward"](ids[:cached], slots[:cached], pool, attention)
            warm = names["forward"](ids[cached:], slots, pool, attention)
            torch.testing.assert_close(warm, expected[cached:], rtol=1e-9, atol=1e-9)


def test_the_visible_mask_is_r1s_and_the_visible_prompts_are_what_they_say() -> None:
    r1, *_ = visible(ATTENTION, "causal_mask")
    assert r1 == ([2, 6], [[True] * 5 + [False], [True] * 6])
    *_, ([case], result) = visible(ATTENTION, "paged_attention")
    model = load_gpt2("tiny", dtype=torch.float64, device="cpu")
    assert model.decode(case["first"]) == "Mr. Darcy looked at Elizabeth, and smiled at her"
    assert model.decode(case["second"]) == "Mr. Darcy looked at Elizabeth, and said to his"
    assert case["first"][: case["shared"]] == case["second"][: case["shared"]]
    second = torch.tensor(case["second"])
    span = Span(torch.arange(len(second)), 0, len(second))
    logits = model.forward(second, [span], KVPool.for_model(model, 16))[0]
    assert result["next token"] == int(logits.argmax())
    assert result["warm - cold"] == 0.0
    assert result["logits"] == pytest.approx(logits[::200].tolist(), rel=1e-9)


def test_the_slots_that_r1_does_not_have_are_free_as_the_text_says() -> None:
    (cell,) = (c for c in ATTENTION.cells if "draw_pool" in c.source)
    shown: Names = {}
    exec(cell.source, shown)
    assert {4, 5} <= set(shown["scenario"].manager.pool.free_slots)
    assert "p4 and p5 are not R1's, here they are free" in " ".join(ATTENTION.text.split())


@pytest.mark.parametrize("body", ["return None", "return q[:1]", "raise NotImplementedError"])
def test_the_comparison_says_in_a_line_that_there_is_nothing_to_compare(
    names: Names, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = (c for c in ATTENTION.cells if "load_gpt2" in c.source and c.role is Role.PAGE)
    own = dict(names)
    exec(f"def paged_attention(q, k_pool, v_pool, page_table):\n    {body}", own)
    exec(cell.source, own)
    assert capsys.readouterr().out.startswith("Your paged_attention does not work here yet (")


def test_right_answers_written_otherwise_are_right_within_the_tolerance(names: Names) -> None:
    """Somebody may use torch's kernel, or loops: the logits agree far beyond what is asked."""

    def with_torchs_kernel(q: Any, k_pool: Any, v_pool: Any, page_table: Any) -> Any:
        heads = [each.transpose(0, 1) for each in (q, k_pool[page_table], v_pool[page_table])]
        mask = names["causal_mask"](len(q), len(page_table))
        return F.scaled_dot_product_attention(*heads, attn_mask=mask).transpose(0, 1)

    def with_loops(q: Any, k_pool: Any, v_pool: Any, page_table: Any) -> Any:
        out = torch.empty_like(q)
        for i, j in torch.cartesian_prod(torch.arange(len(q)), torch.arange(q.shape[1])):
            seen = page_table[: len(page_table) - len(q) + i + 1]
            scores = k_pool[seen, j] @ q[i, j] / q.shape[-1] ** 0.5
            out[i, j] = scores.softmax(0) @ v_pool[seen, j]
        return out

    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2048, (24,), generator=generator)
    slots = torch.randperm(48, generator=generator)[:24]
    runs = [
        names["forward"](ids, slots, names["new_pool"](48), attention)
        for attention in (names["paged_attention"], with_torchs_kernel, with_loops)
    ]
    for run in runs[1:]:
        torch.testing.assert_close(run, runs[0], rtol=1e-9, atol=1e-9)
