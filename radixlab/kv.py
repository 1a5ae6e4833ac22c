"""The KV pool: the K and V vectors of every token slot, in one tensor.

The radix tree and the page tables only ever speak of slots; this is what a slot points at
(chapter, section 4.1: "the actual data used in attention computation"). Nothing here knows of
tokens, requests or trees.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from radixlab.errors import InvalidArgument, InvalidPageSize


class CachedModel(Protocol):
    """What the pool has to know of a model to hold its keys and values."""

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """Layers, heads and head_dim."""

    @property
    def dtype(self) -> torch.dtype:
        """The element type of its keys and values."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""


class KVPool:
    """Keys and values of `num_slots` token slots.

    `data` is [layers, 2, slots, heads, head_dim]; of its second dimension 0 is K and 1 is V. Slot
    `page * page_size + offset` is place `offset` of `page`. One page more than asked for lies
    behind the last: padded computation writes there (`scratch_slot`), and nobody reads it. All of
    it starts as zeros, since whatever uninitialised memory holds may be NaN, and NaN times an
    attention weight of 0 is NaN still.
    """

    def __init__(
        self,
        num_slots: int,
        *,
        layers: int,
        heads: int,
        head_dim: int,
        page_size: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if page_size < 1:
            raise InvalidPageSize(page_size)
        if num_slots < page_size or num_slots % page_size:
            raise InvalidArgument("num_slots", num_slots, f"whole pages of {page_size} slots")
        for name, size in (("layers", layers), ("heads", heads), ("head_dim", head_dim)):
            if size < 1:
                raise InvalidArgument(name, size, "at least 1")
        self.num_slots = num_slots
        self.page_size = page_size
        shape = (layers, 2, num_slots + page_size, heads, head_dim)
        self.data = torch.zeros(shape, dtype=dtype, device=device)

    @classmethod
    def for_model(cls, model: CachedModel, num_slots: int, page_size: int = 1) -> KVPool:
        """Make a pool of `num_slots` token slots that fits `model`: its shape, dtype, device."""
        layers, heads, head_dim = model.kv_shape
        return cls(
            num_slots,
            layers=layers,
            heads=heads,
            head_dim=head_dim,
            page_size=page_size,
            dtype=model.dtype,
            device=model.device,
        )

    def check_fits(self, model: CachedModel) -> None:
        """Raise `InvalidArgument` unless `model` can compute over this pool."""
        layers, heads, head_dim = model.kv_shape
        mine = (*self.shape, self.data.dtype, self.data.device)
        if mine != (layers, heads, head_dim, model.dtype, model.device):
            kind = f"{type(model).__name__} of {layers} layers, {heads} heads of {head_dim}"
            allowed = f"for a {kind}, {model.dtype}, {model.device}, as KVPool.for_model makes it"
            raise InvalidArgument("pool", self, allowed)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Layers, heads and head_dim."""
        layers, _, _, heads, head_dim = self.data.shape
        return layers, heads, head_dim

    @property
    def scratch_slot(self) -> int:
        """The first slot behind the last page: padding is written here, and never read."""
        return self.num_slots

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one slot takes: K and V of every layer."""
        return self.data[:, :, 0].numel() * self.data.element_size()

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Store `k` and `v` [n, heads, head_dim] of one layer at `slots` [n] (int64)."""
        keys, values = self.data[layer]
        keys.index_copy_(0, slots, k)
        values.index_copy_(0, slots, v)

    def read(self, layer: int, slots: Tensor, out: Tensor | None = None) -> Tensor:
        """Copy K and V of one layer at `slots` [n], in that order: [2, n, heads, head_dim].

        `out`, if given, is where the copy goes.
        """
        if out is None:
            return self.data[layer].index_select(1, slots)
        for half, copy in zip(self.data[layer], out, strict=True):
            torch.index_select(half, 0, slots, out=copy)
        return out

    def __repr__(self) -> str:
        layers, heads, head_dim = self.shape
        megabytes = self.data.numel() * self.data.element_size() / 1e6
        return (
            f"KVPool({self.num_slots} slots in pages of {self.page_size}, {layers} layers, "
            f"{heads} heads of {head_dim}, {self.data.dtype}, {self.data.device}, "
            f"{megabytes:.1f} MB)"
        )
