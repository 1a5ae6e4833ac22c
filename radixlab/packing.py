"""How one forward pass is cut: new tokens of several requests as the rows of one batch.

Rows are what a matrix product works on, slots are what attention reads. A plan says which rows
share one matrix product, and which rows of which request share one attention call.

Plain mode, two requests, one with 3 of 5 tokens cached, one with none of 3 (R = request); a
product takes up to 1,024 rows on a CPU:

    rows       | R0 pos 3 | R0 pos 4 | R1 pos 0 | R1 pos 1 | R1 pos 2 |
    products   |---------------------- one for all -------------------|
    attention  |- keys 0 to 4 of R0 -|-------- keys 0 to 2 of R1 -----|

Exact mode, tiles of 4 rows (32 in earnest): tiles begin at multiples of 4 of the ABSOLUTE position
and hold one request each; rows of cached positions and rows past the end are padding.

    rows       | pad pad pad R0:3 | R0:4 pad pad pad | R1:0 R1:1 R1:2 pad |
    products   |------ one -------|------ one -------|------- one --------|
    attention  |- keys 0-3 of R0 -|- keys 0-7 of R0 -|-- keys 0-3 of R1 --|

A kernel may sum in another order when its shapes differ, so the same row can get other bits in
another batch. In exact mode the shapes that a row meets depend on its position alone, and so do
its bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from radixlab.errors import InvalidArgument, LengthMismatch
from radixlab.kv import KVPool

# On a CPU, attention works through a span in blocks of this many rows: the keys behind a block are
# then left out, not computed and masked. That beats one causal call over the whole prompt by a
# fifth, and one masked call for a suffix too; 32 rows are as good. A GPU takes the span at once.
ATTENTION_ROWS = 64
# Matrix products take at most so many rows at once there: what one leaves for the next is then
# still in the processor's cache. 8,000 rows in one go take a fifth longer; 512 are as good.
PRODUCT_ROWS = 1024


class Span(NamedTuple):
    """Positions `start` to `end` (excluded) of one request, to be computed in a forward pass.

    `slots` (int64, length `end`) are the token slots of the request's positions 0 to end; K and V
    of those before `start` are in the pool, or computed by another span of the same pass.
    """

    slots: Tensor
    start: int
    end: int


class Product(NamedTuple):
    """Rows that share one matrix product, and those among them whose logits are wanted."""

    rows: slice
    wanted: slice


class Attention(NamedTuple):
    """Rows that share one attention call: the last of them sees `keys` keys, those above fewer."""

    rows: slice
    keys: int


class Read(NamedTuple):
    """The keys of one span, for all its attention calls.

    The span read before it begins with the same `shared` slots, so only `slots`, those after them,
    have to be read.
    """

    shared: int
    slots: Tensor
    attention: list[Attention]

    @property
    def keys(self) -> int:
        """How many keys there are in all."""
        return self.shared + len(self.slots)


@dataclass(frozen=True, slots=True)
class Plan:
    """One forward pass. `tile` is the rows of a tile in exact mode, 1 in plain mode."""

    tile: int
    ids: Tensor  # [rows], 0 in padding
    positions: Tensor  # [rows]
    writes: Tensor  # [rows]: the slot for the row's K and V; the scratch slot in padding
    products: list[Product]
    reads: list[Read]  # one for each span, in the order in which to read
    order: list[int]  # of every read: the number of its span
    last: list[int]  # of every span: the row of its last token

    def narrow(self) -> tuple[Tensor | None, Plan]:
        """Keep the last token of each span: its row, or in exact mode its tile.

        Returns the rows to keep (None for all) and the plan for what is left. Past the last
        layer's keys and values nobody looks at the other rows, if they want no logits.
        """
        tile, count = self.tile, len(self.last)
        firsts = [row - row % tile for row in self.last]
        blocks = [slice(tile * i, tile * (i + 1)) for i in range(count)]
        if tile == 1:
            products = [Product(slice(0, count), slice(0, count))]
        else:
            wanted = [row % tile for row in self.last]
            products = [
                Product(rows, slice(row, row + 1)) for rows, row in zip(blocks, wanted, strict=True)
            ]
        reads = [
            read._replace(attention=[Attention(blocks[i], read.attention[-1].keys)])
            for i, read in zip(self.order, self.reads, strict=True)
        ]
        last = [tile * i + row % tile for i, row in enumerate(self.last)]
        plan = replace(self, products=products, reads=reads, last=last)
        if len(self.positions) == tile * count:
            return None, plan
        rows = torch.tensor(firsts)[:, None] + torch.arange(tile)
        return rows.flatten().to(self.positions.device), plan


class _Place(NamedTuple):
    """Where a span lies among the rows: positions `low` to `high`, row = position + `shift`."""

    span: Span
    low: int
    high: int
    shift: int

    def row_blocks(self, size: int) -> list[tuple[int, int, slice]]:
        """Cut it into blocks of `size`: first position, position behind the last, rows."""
        starts = range(self.low, self.high, size)
        blocks = [(start, min(start + size, self.high)) for start in starts]
        return [(a, b, slice(a + self.shift, b + self.shift)) for a, b in blocks]


def make_plan(token_ids: Tensor, spans: Sequence[Span], scratch_slot: int, tile: int = 1) -> Plan:
    """Lay `spans` out as rows, each from one multiple of `tile` to another.

    `token_ids` [sum of end - start] are the spans' new ids, packed. Costs Python work for each
    span and block of rows, not for each token.
    """
    places = _place(spans, tile)
    count = places[-1].high + places[-1].shift
    real = torch.cat([torch.arange(s.start + shift, s.end + shift) for s, _, _, shift in places])
    real = real.to(token_ids.device)
    # Padding past the end repeats the last position, which every model has.
    positions = torch.cat(
        [torch.arange(low, high).clamp(max=s.end - 1) for s, low, high, _ in places]
    )
    new_slots = torch.cat([span.slots[span.start :] for span in spans])
    order, shared = _read_order([span.slots for span in spans])
    return Plan(
        tile=tile,
        ids=token_ids.new_zeros(count).index_copy_(0, real, token_ids),
        positions=positions.to(token_ids.device),
        writes=new_slots.new_full((count,), scratch_slot).index_copy_(0, real, new_slots),
        products=_products(places, tile),
        reads=[
            Read(known, _key_slots(places[i])[known:], _attention(places[i], tile))
            for i, known in zip(order, shared, strict=True)
        ],
        order=order,
        last=[place.span.end - 1 + place.shift for place in places],
    )


def _place(spans: Sequence[Span], tile: int) -> list[_Place]:
    places, row = [], 0
    for span in spans:
        low, high = span.start // tile * tile, -(-span.end // tile) * tile
        places.append(_Place(span, low, high, row - low))
        row += high - low
    return places


def _products(places: list[_Place], tile: int) -> list[Product]:
    if tile == 1:
        count = places[-1].high + places[-1].shift
        size = PRODUCT_ROWS if _on_cpu(places) else count
        blocks = [slice(row, min(row + size, count)) for row in range(0, count, size)]
        return [Product(rows, slice(0, rows.stop - rows.start)) for rows in blocks]
    return [
        Product(rows, slice(max(place.span.start, a) - a, min(place.span.end, b) - a))
        for place in places
        for a, b, rows in place.row_blocks(tile)
    ]


def _on_cpu(places: list[_Place]) -> bool:
    return places[0].span.slots.device.type == "cpu"


def _attention(place: _Place, tile: int) -> list[Attention]:
    whole = place.high - place.low
    plain = ATTENTION_ROWS if _on_cpu([place]) else whole
    size = plain if tile == 1 else tile
    return [Attention(rows, b) for _, b, rows in place.row_blocks(size)]


def _read_order(tables: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Sort spans by their slots: (numbers of the spans, slots shared with the one before).

    Requests of one prefix come to stand side by side, and its keys are read once for all of them.
    A GPU reads faster than it could be told to sort.
    """
    count = len(tables)
    if count == 1 or tables[0].device.type != "cpu":
        return list(range(count)), [0] * count
    padded = pad_sequence(list(tables), batch_first=True, padding_value=-1)
    _, place = torch.unique(padded, dim=0, return_inverse=True)
    order = place.argsort(stable=True)
    padded = padded[order]
    same = (padded[1:] == padded[:-1]) & (padded[1:] >= 0)
    return order.tolist(), [0, *same.cumprod(dim=1).sum(dim=1).tolist()]


def _key_slots(place: _Place) -> Tensor:
    """Slots of the keys up to `high`; padding reads the first slot.

    A masked key has weight 0, but 0 times NaN is NaN: the request's own slots are finite, the
    scratch slot holds whatever padding left there.
    """
    slots = place.span.slots
    padding = place.high - place.span.end
    return torch.cat([slots, slots[:1].expand(padding)]) if padding else slots


def checked_spans(
    token_ids: Tensor, spans: Sequence[Span], *, context: int, vocab: int, pool: KVPool
) -> tuple[Tensor, list[Span]]:
    """Refuse spans that can't be computed, before anything is written to the pool.

    Returns ids and spans in int64 and on the pool's device. Raises `InvalidArgument` for an empty
    pass or span, positions past `context`, ids outside the vocabulary and slots outside the pool
    or either no integers, `LengthMismatch` if ids or slots and positions differ in number.
    """
    if not spans:
        raise InvalidArgument("spans", 0, "at least 1")
    for number, (slots, start, end) in enumerate(spans):
        if not 0 <= start < end:
            raise InvalidArgument(f"span {number}", f"{start} to {end}", "at least 1 position")
        if end > context:
            raise InvalidArgument(f"span {number}'s end", end, f"at most the context of {context}")
        if len(slots) != end:
            raise LengthMismatch(end, len(slots))
    new_tokens = sum(end - start for _, start, end in spans)
    if token_ids.shape != (new_tokens,):
        raise InvalidArgument("token_ids", list(token_ids.shape), f"one row of {new_tokens} ids")
    _check_range("token ids", token_ids, vocab, "the vocabulary")
    _check_range("slots", torch.cat([span.slots for span in spans]), pool.num_slots, "the pool")
    device = pool.data.device
    return token_ids.to(device, torch.long), [
        Span(slots.to(device, torch.long), start, end) for slots, start, end in spans
    ]


def _check_range(name: str, numbers: Tensor, limit: int, what: str) -> None:
    if not torch.can_cast(numbers.dtype, torch.long):
        raise InvalidArgument(name, numbers.dtype, "integers")
    low, high = (int(bound) for bound in torch.aminmax(numbers.to(torch.long)))
    if low < 0 or high >= limit:
        raise InvalidArgument(name, low if low < 0 else high, f"from 0 to {limit - 1}, as {what}")
