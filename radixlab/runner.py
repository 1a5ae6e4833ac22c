"""The scheduler's contract with a model, kept: chunks in, next tokens out.

It knows requests and page tables, the model below it only tensors and slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from radixlab.errors import InvalidArgument
from radixlab.gpt2 import EXACT_TILE
from radixlab.kv import CachedModel, KVPool
from radixlab.packing import Span
from radixlab.sampling import draw_tokens
from radixlab.tokens import TOKEN_BYTES

if TYPE_CHECKING:
    from radixlab.request import Request
    from radixlab.scheduler import Chunk


class PagedModel(CachedModel, Protocol):
    """What the runner has to know of a model: `GPT2`, or Hugging Face's in `radixlab.hf`."""

    @property
    def can_be_exact(self) -> bool:
        """Whether `forward` has an exact mode."""

    def forward(
        self,
        token_ids: Tensor,
        spans: Sequence[Span],
        pool: KVPool,
        *,
        exact: bool = False,
        tile: int = EXACT_TILE,
    ) -> Tensor:
        """Return the logits of each span's last token [spans, vocab]; see `GPT2.forward`."""


class GPT2Runner:
    """The scheduler's `ModelRunner` with a model behind it: chunks in, next tokens out.

    Requests come as they are, with `tokens`, `page_table` and `computed_len`; what is computed
    goes into `kv` at the page table's slots. `exact` and `tile` are those of `GPT2.forward`.
    Each draws as its `sampling` says. `last_logits` [chunks or requests, vocab] are those of the
    last call. Raises `InvalidArgument` where `exact` is asked of a model that can't be.
    """

    def __init__(
        self, model: PagedModel, kv: KVPool, *, exact: bool = False, tile: int = EXACT_TILE
    ) -> None:
        if exact and not model.can_be_exact:
            raise InvalidArgument("exact", exact, f"False for a {type(model).__name__}")
        self.model, self.kv = model, kv
        self.exact, self.tile = exact, tile
        self.last_logits: Tensor | None = None

    def prefill(self, chunks: Sequence[Chunk]) -> list[int]:
        """Compute each chunk's positions; returns the token that follows each chunk's last."""
        return self._step([(chunk.request, chunk.start, chunk.end) for chunk in chunks])

    def decode(self, requests: Sequence[Request]) -> list[int]:
        """Compute each request's last token, all in one pass; returns each one's next token."""
        return self._step([(r, r.num_tokens - 1, r.num_tokens) for r in requests])

    def _step(self, parts: list[tuple[Request, int, int]]) -> list[int]:
        if not parts:
            return []
        for request, start, end in parts:
            self._check(request, start, end)
        ids = _int64(
            memoryview(request.tokens)[TOKEN_BYTES * start : TOKEN_BYTES * end]
            for request, start, end in parts
        )
        slots = _int64(memoryview(request.page_table)[:end] for request, _, end in parts)
        spans = [
            Span(own, start, end)
            for own, (_, start, end) in zip(
                torch.split(slots, [end for *_, end in parts]), parts, strict=True
            )
        ]
        self.last_logits = self.model.forward(ids, spans, self.kv, exact=self.exact, tile=self.tile)
        return draw_tokens(self.last_logits, [request for request, _, _ in parts])

    def _check(self, request: Request, start: int, end: int) -> None:
        """Refuse what would read keys that nobody computed, or slots that nobody allocated."""
        name, known = f"request {request.request_id}", request.num_tokens
        if not 0 <= start < end <= known:
            raise InvalidArgument(f"{name}'s chunk", f"{start} to {end}", f"within 0 to {known}")
        if start > request.computed_len:
            allowed = f"at most its computed_len of {request.computed_len}"
            raise InvalidArgument(f"{name}'s chunk start", start, allowed)
        if len(request.page_table) < end:
            slots = f"{len(request.page_table)} slots"
            raise InvalidArgument(f"{name}'s page table", slots, f"at least {end} slots")


def _int64(parts: Iterable[memoryview]) -> Tensor:
    """Copy int32 buffers, one behind another, into one int64 tensor.

    A copy, since a tensor over a page table's memory would keep the page table from growing.
    """
    return torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.int32).to(torch.long)
