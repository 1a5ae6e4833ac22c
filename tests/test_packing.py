"""Requests of one prefix are read side by side, and their prefix once."""

from __future__ import annotations

from typing import Literal

import pytest

torch = pytest.importorskip("torch")

# Only now: without torch this file is skipped, not broken.
from radixlab.gpt2 import GPT2, GPT2Config  # noqa: E402
from radixlab.kv import KVPool  # noqa: E402
from radixlab.packing import Span, make_plan  # noqa: E402

SMALL = GPT2Config(layers=2, heads=2, width=32, context=160, vocab=97, inner=64)


def slots(*ranges: tuple[int, int]) -> torch.Tensor:
    return torch.cat([torch.arange(*each) for each in ranges])


TABLES = [
    slots((0, 40), (100, 103)),
    slots((50, 70)),
    slots((0, 40), (110, 112)),
    slots((0, 30), (120, 121)),
    slots((0, 40)),
]


def test_a_prefix_is_read_once_for_all_that_share_it() -> None:
    spans = [Span(table, len(table) - 1, len(table)) for table in TABLES]
    plan = make_plan(torch.arange(5), spans, scratch_slot=200)
    assert sorted(plan.order) == list(range(5))
    read: list[int] = []
    for number, (shared, rest, attention) in zip(plan.order, plan.reads, strict=True):
        read = [*read[:shared], *rest.tolist()]
        assert read == TABLES[number].tolist()
        assert attention[-1].keys == len(read)
        assert attention[-1].rows == slice(number, number + 1)
    assert sum(len(each.slots) for each in plan.reads) == 20 + 40 + 3 + 2 + 1


def test_equal_tables_share_their_length_and_not_the_padding_behind_it() -> None:
    spans = [Span(table, 0, len(table)) for table in (TABLES[1], TABLES[1], TABLES[0])]
    plan = make_plan(torch.zeros(83, dtype=torch.long), spans, scratch_slot=200)
    assert sorted(read.shared for read in plan.reads) == [0, 0, 20]


@pytest.mark.parametrize("exact", [False, True])
def test_sharing_a_read_changes_no_bit(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = GPT2.random(SMALL)
    ids = torch.tensor([3, 5, 7, 11, 13])
    spans = [Span(table, len(table) - 1, len(table)) for table in TABLES]

    def logits() -> torch.Tensor:
        pool = KVPool.for_model(model, 200)
        pool.data.normal_(generator=torch.Generator().manual_seed(0))
        return model.forward(ids, spans, pool, exact=exact)

    shared = logits()
    monkeypatch.setattr("radixlab.packing._read_order", lambda tables: (list(range(5)), [0] * 5))
    assert torch.equal(shared, logits())


@pytest.mark.parametrize("logits", ["last", "all"])
def test_many_rows_are_multiplied_in_blocks(
    logits: Literal["last", "all"], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = GPT2.random(SMALL)
    spans = [Span(slots((0, 40)), 3, 40), Span(slots((0, 20), (50, 61)), 20, 31)]
    ids = torch.arange(48) % SMALL.vocab

    def compute() -> torch.Tensor:
        pool = KVPool.for_model(model, 200)
        pool.data.normal_(generator=torch.Generator().manual_seed(0))
        return model.forward(ids, spans, pool, logits=logits)

    whole = compute()
    monkeypatch.setattr("radixlab.packing.PRODUCT_ROWS", 5)
    plan = make_plan(ids, spans, scratch_slot=200)
    assert [rows.stop - rows.start for rows, _ in plan.products] == [5] * 9 + [3]
    torch.testing.assert_close(compute(), whole, rtol=1e-5, atol=1e-5)
