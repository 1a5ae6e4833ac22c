"""GPT-2 over the paged KV pool: only the new tokens are computed, the rest is read by slot.

RadixAttention changes no formula (chapter, section 2.3): this is GPT-2's forward pass as everybody
computes it, except that K and V are written to and read from the slots of a page table. It reads
Hugging Face's weights and imports nothing of transformers but the tokenizer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from radixlab.errors import InvalidArgument
from radixlab.kv import KVPool
from radixlab.linear import Linear
from radixlab.packing import ATTENTION_ROWS, Plan, Span, checked_spans, make_plan
from radixlab.weights import (
    GPT2Config,
    ModelNotFound,
    NoTokenizer,
    UnsupportedModel,
    checked_weights,
    find_checkpoint,
    random_weights,
    read_checkpoint,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


__all__ = [
    "GPT2",
    "GPT2Config",
    "ModelNotFound",
    "NoTokenizer",
    "Span",
    "UnsupportedModel",
    "load_gpt2",
    "pick_device",
]

EXACT_TILE = 32  # rows of a tile in exact mode: 16 costs more time, 64 more padding


class _Block(NamedTuple):
    """One layer: its matrix products, and the (weight, bias) pairs of its norms."""

    ln_1: tuple[Tensor, Tensor]
    c_attn: Linear
    attn_proj: Linear
    ln_2: tuple[Tensor, Tensor]
    c_fc: Linear
    mlp_proj: Linear


class GPT2:
    """GPT-2's weights and its forward pass over a `KVPool`.

    `state_dict` has Hugging Face's names, and so has `weights`, what it was made from: a change of
    them later may change nothing, since products may use a packed copy (`radixlab.linear`).
    `tokenizer_folder` is where `encode` and `decode` find the tokenizer. Raises `UnsupportedModel`
    if the weights don't fit `config`.
    """

    can_be_exact = True

    def __init__(
        self,
        state_dict: Mapping[str, Tensor],
        config: GPT2Config,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        tokenizer_folder: Path | None = None,
    ) -> None:
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            allowed = "torch.float32, torch.bfloat16 or another floating-point type"
            raise InvalidArgument("dtype", dtype, allowed)
        self.config, self.dtype = config, dtype
        self._tokenizer_folder = tokenizer_folder
        weights = checked_weights(state_dict, config, dtype, torch.device(device))

        def pair(name: str) -> tuple[Tensor, Tensor]:
            return weights[f"{name}.weight"], weights[f"{name}.bias"]

        self.weights = weights
        self._blocks = [
            _Block(
                ln_1=pair(f"{layer}.ln_1"),
                c_attn=Linear(*pair(f"{layer}.attn.c_attn")),
                attn_proj=Linear(*pair(f"{layer}.attn.c_proj")),
                ln_2=pair(f"{layer}.ln_2"),
                c_fc=Linear(*pair(f"{layer}.mlp.c_fc")),
                mlp_proj=Linear(*pair(f"{layer}.mlp.c_proj")),
            )
            for layer in (f"h.{number}" for number in range(config.layers))
        ]
        self._token_embedding = weights["wte.weight"]
        self.device = self._token_embedding.device  # with its index: cuda:0, not cuda
        self._position_embedding = weights["wpe.weight"]
        self._ln_f = pair("ln_f")
        self._head = Linear(weights.get("lm_head.weight", self._token_embedding).T)
        self._triangle = torch.empty(0, 0)

    @classmethod
    def random(
        cls,
        config: GPT2Config | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> GPT2:
        """Make an untrained GPT-2 (by default of the 124M shape): for timings and tests."""
        config = config or GPT2Config()
        return cls(random_weights(config, seed), config, dtype=dtype, device=device)

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """Layers, heads and head_dim: what a `KVPool` for it needs."""
        return self.config.layers, self.config.heads, self.config.head_dim

    @property
    def has_tokenizer(self) -> bool:
        """Whether it can `encode` and `decode` text."""
        # Without these files transformers makes a tokenizer that turns every text into nothing.
        folder, names = self._tokenizer_folder, ("tokenizer.json", "vocab.json")
        return folder is not None and any((folder / name).is_file() for name in names)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The checkpoint's tokenizer (transformers); `NoTokenizer` if it has none."""
        folder = self._tokenizer_folder
        if not self.has_tokenizer:
            where = "this model" if folder is None else f"the checkpoint in {folder}"
            raise NoTokenizer(f"{where} came without one and takes token ids only")
        from transformers import AutoTokenizer  # seconds to import, so only when text is at hand

        try:
            found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                folder, local_files_only=True
            )
        except (OSError, ValueError) as error:
            raise NoTokenizer(f"cannot load the one in {folder}") from error
        return found

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, with no special tokens around it."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`."""
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Tensor,
        spans: Sequence[Span],
        pool: KVPool,
        *,
        exact: bool = False,
        logits: Literal["last", "all"] = "last",
        tile: int = EXACT_TILE,
    ) -> Tensor:
        """Compute the spans' positions, write their K and V to the pool, return logits.

        `token_ids` [T] are the spans' new ids, one span after another. Returns [spans, vocab],
        the logits of each span's last token, or [T, vocab] with `logits="all"`.

        With `exact`, a token's logits, K and V are the same bits whatever was cached, whatever
        else is in the batch, and whether it is prefilled or decoded: for one `tile` (rows, a
        multiple of 16), dtype, device, thread count and build of torch.

        Bad input raises `InvalidArgument` or `LengthMismatch`, and the pool stays as it was.
        """
        pool.check_fits(self)
        if tile < 16 or tile % 16:
            raise InvalidArgument("tile", tile, "a positive multiple of 16 rows")
        if logits not in ("last", "all"):
            raise InvalidArgument("logits", logits, "'last' or 'all'")
        token_ids, spans = checked_spans(
            token_ids, spans, context=self.config.context, vocab=self.config.vocab, pool=pool
        )
        plan = make_plan(token_ids, spans, pool.scratch_slot, tile if exact else 1)
        # Leave CUDA no choice between kernels for attention. Elsewhere equal shapes settle it.
        pinned = exact and self.device.type == "cuda"
        with sdpa_kernel(SDPBackend.MATH) if pinned else nullcontext():
            return self._run(plan, pool, last_only=logits == "last")

    def _run(self, plan: Plan, pool: KVPool, *, last_only: bool) -> Tensor:
        x = self._token_embedding[plan.ids] + self._position_embedding[plan.positions]
        for layer, block in enumerate(self._blocks):
            q = self._write_kv(layer, block, x, plan, pool)
            if last_only and block is self._blocks[-1]:
                keep, plan = plan.narrow()
                x, q = (x, q) if keep is None else (x[keep], q[keep])
            attended = self._attend(layer, q, plan, pool)
            self._mix(block, x, attended, plan)
        return self._logits(x, plan)

    def _write_kv(self, layer: int, block: _Block, x: Tensor, plan: Plan, pool: KVPool) -> Tensor:
        """Project `x` [rows, d] to q, k, v; k and v go to the pool, q [rows, heads, head_dim]."""
        _, heads, head_dim = self.kv_shape
        q = x.new_empty(len(x), heads, head_dim)
        for rows, _ in plan.products:
            qkv = block.c_attn(self._norm(x[rows], block.ln_1))
            q[rows], k, v = qkv.view(-1, 3, heads, head_dim).unbind(1)
            pool.write(layer, plan.writes[rows], k, v)
        return q

    def _attend(self, layer: int, q: Tensor, plan: Plan, pool: KVPool) -> Tensor:
        """Attend from every row to its request's keys, read by slot: [rows, heads, head_dim]."""
        out = torch.empty_like(q)
        queries, results = q.transpose(0, 1)[None], out.transpose(0, 1)[None]
        # One buffer for all requests: it stays in the processor's cache between them, and what the
        # next one shares with the last is there already.
        buffer = q.new_empty(2, max(read.keys for read in plan.reads), *q.shape[1:])
        for shared, slots, blocks in plan.reads:
            pool.read(layer, slots, out=buffer[:, shared : shared + len(slots)])
            k, v = buffer.transpose(1, 2).unsqueeze(1)
            for rows, keys in blocks:
                results[:, :, rows] = F.scaled_dot_product_attention(
                    queries[:, :, rows],
                    k[:, :, :keys],
                    v[:, :, :keys],
                    attn_mask=self._mask(rows.stop - rows.start, keys),
                )
        return out

    def _mix(self, block: _Block, x: Tensor, attended: Tensor, plan: Plan) -> None:
        """Add the layer's attention and MLP to `x` [rows, d], in place."""
        for rows, _ in plan.products:
            y = x[rows]
            y += block.attn_proj(attended[rows].flatten(1))
            inner = F.gelu(block.c_fc(self._norm(y, block.ln_2)), approximate="tanh")
            y += block.mlp_proj(inner)

    def _logits(self, x: Tensor, plan: Plan) -> Tensor:
        sizes = [wanted.stop - wanted.start for _, wanted in plan.products]
        out = x.new_empty(sum(sizes), self.config.vocab)
        for (rows, wanted), part in zip(plan.products, torch.split(out, sizes), strict=True):
            part.copy_(self._head(self._norm(x[rows], self._ln_f))[wanted])
        return out

    def _norm(self, x: Tensor, norm: tuple[Tensor, Tensor]) -> Tensor:
        return F.layer_norm(x, (self.config.width,), *norm, self.config.eps)

    def _mask(self, rows: int, keys: int) -> Tensor | None:
        """Let the last row see all `keys`, each row above one fewer; one row needs no mask.

        All masks are the lower right corner of one triangle.
        """
        if rows == 1:
            return None
        height, width = self._triangle.shape
        if rows > height or keys > width:
            # Whole multiples of 64: CUDA's kernels want the mask aligned.
            height = max(height, rows, ATTENTION_ROWS)
            width = -(-max(width, keys, self.config.context) // 64) * 64
            hidden = torch.full((height, width), -torch.inf, dtype=self.dtype, device=self.device)
            self._triangle = hidden.triu(width - height + 1)
        return self._triangle[-rows:, -keys:]

    def __repr__(self) -> str:
        c = self.config
        return (
            f"GPT2({c.layers} layers, {c.heads} heads of {c.head_dim}, {self.dtype}, {self.device})"
        )


def pick_device(device: torch.device | str | None = None) -> torch.device:
    """Pick `device`, or with None a GPU if there is one, else the CPU.

    Raises `InvalidArgument` for a device that this machine or this torch does not have.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        probe = torch.zeros(1, device=device)
        probe.item()  # "meta" has shapes and no numbers
        return probe.device
    except (RuntimeError, AssertionError) as error:
        allowed = "a device that torch finds here"
        raise InvalidArgument("device", str(device), allowed) from error


def load_gpt2(
    source: str | os.PathLike[str] = "tiny",
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> GPT2:
    """Load a GPT-2, by default in float32 and on the device of `pick_device`.

    `source` is "tiny", the embedded checkpoint; "gpt2-random", the 124M shape with seeded random
    weights and no tokenizer; a folder in Hugging Face's format; or a name on the hub ("gpt2"),
    from the local cache or the network. Raises `ModelNotFound`, `UnsupportedModel`, and
    `InvalidArgument` for a dtype or device that can't be.
    """
    dtype, device = torch.float32 if dtype is None else dtype, pick_device(device)
    if source == "gpt2-random":
        return GPT2.random(dtype=dtype, device=device)
    folder = find_checkpoint(source)
    config, weights = read_checkpoint(folder)
    return GPT2(weights, config, dtype=dtype, device=device, tokenizer_folder=folder)
