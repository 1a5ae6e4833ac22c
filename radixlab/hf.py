"""Hugging Face's unmodified GPT-2 over our page tables: the whole difference is one function.

RadixAttention changes no formula (chapter, section 2.3). transformers lets anybody register an
attention function; `paged_attention` is one, which writes the new K and V to the pool's slots and
reads those of the whole prefix back. It needs no cache object of transformers and leaves the
model's code alone.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface, DynamicCache, GPT2LMHeadModel
from transformers import GPT2Config as HFConfig

from radixlab.errors import InvalidArgument
from radixlab.gpt2 import EXACT_TILE, GPT2
from radixlab.kv import KVPool
from radixlab.packing import Span, checked_spans

__all__ = ["HFGPT2", "PrefixCopies", "hf_model", "paged_attention"]

ATTENTION = "radixlab_paged"


@dataclass(frozen=True)
class _Step:
    """What the attention function has to know of the pass: who the rows belong to."""

    pool: KVPool
    spans: Sequence[Span]
    writes: Tensor  # [rows]: the slot for each row's K and V


# How a pass reaches the attention function through a model that knows nothing of it.
_STEP: ContextVar[_Step] = ContextVar("radixlab_step")


def paged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend over the pool: all tensors are [1, heads, rows, head_dim], the rows packed.

    Written as transformers calls it; `attention_mask` is None, since the spans say who sees whom.
    Returns [1, rows, heads, head_dim].
    """
    step, layer = _STEP.get(), int(module.layer_idx)  # type: ignore[arg-type]  # GPT2Attention's
    step.pool.write(layer, step.writes, key[0].transpose(0, 1), value[0].transpose(0, 1))
    results = []
    queries = torch.split(query, [span.end - span.start for span in step.spans], dim=2)
    for q, span in zip(queries, step.spans, strict=True):
        k, v = step.pool.read(layer, span.slots).transpose(1, 2).unsqueeze(1)
        # With nothing cached it is the call that transformers makes, and gives the same bits.
        cold = span.start == 0
        mask = None if cold else causal_lower_right(span.end - span.start, span.end)
        results.append(
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=cold, scale=scaling)
        )
    return torch.cat(results, dim=2).transpose(1, 2), None


AttentionInterface.register(ATTENTION, paged_attention)


class HFGPT2:
    """A `GPT2LMHeadModel` with `GPT2.forward`'s signature, for the runner or as an oracle.

    `model` is not copied, and its attention function is ours from now on: until you give it back
    another (`model.set_attn_implementation("sdpa")`), your own calls of it raise `LookupError`. It
    must be in eval mode (`InvalidArgument`): dropout would make noise of the cache.
    """

    can_be_exact = False

    def __init__(self, model: GPT2LMHeadModel) -> None:
        if model.training:
            raise InvalidArgument("model", "a model in training mode", "in eval mode")
        model.set_attn_implementation(ATTENTION)
        self.model = model

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """Layers, heads and head_dim."""
        config = self.model.config
        return config.n_layer, config.n_head, config.n_embd // config.n_head

    @property
    def dtype(self) -> torch.dtype:
        """The element type of its keys and values."""
        dtype: torch.dtype = self.model.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        device: torch.device = self.model.device
        return device

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Tensor,
        spans: Sequence[Span],
        pool: KVPool,
        *,
        exact: bool = False,
        tile: int = EXACT_TILE,
    ) -> Tensor:
        """Compute the spans' positions; returns the logits of each span's last token.

        As `GPT2.forward`, in plain mode only: `exact` raises `InvalidArgument`.
        """
        if exact:
            raise InvalidArgument("exact", exact, f"False for transformers' model (tile {tile})")
        pool.check_fits(self)
        config = self.model.config
        token_ids, spans = checked_spans(
            token_ids, spans, context=config.n_positions, vocab=config.vocab_size, pool=pool
        )
        positions = torch.cat([torch.arange(s.start, s.end, device=self.device) for s in spans])
        lengths = torch.tensor([s.end - s.start for s in spans], device=self.device)
        step = _Step(pool, spans, torch.cat([s.slots[s.start :] for s in spans]))
        token = _STEP.set(step)
        try:
            logits: Tensor = self.model(
                token_ids[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=lengths.cumsum(0) - 1,
            ).logits[0]
        finally:
            _STEP.reset(token)
        return logits


def hf_model(model: GPT2) -> GPT2LMHeadModel:
    """Hugging Face's model with our model's weights (the same tensors), in eval mode."""
    c = model.config
    config = HFConfig(
        n_layer=c.layers,
        n_head=c.heads,
        n_embd=c.width,
        n_inner=c.inner,
        n_positions=c.context,
        vocab_size=c.vocab,
        layer_norm_epsilon=c.eps,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings="lm_head.weight" not in model.weights,
    )
    hf = GPT2LMHeadModel(config)
    head = model.weights.get("lm_head.weight", model.weights["wte.weight"])
    weights = {f"transformer.{n}": w for n, w in model.weights.items() if n != "lm_head.weight"}
    hf.load_state_dict({**weights, "lm_head.weight": head}, assign=True)
    hf.train(False)
    return hf


class PrefixCopies:
    """How one shares a prefix in transformers: its `DynamicCache`, computed once and copied.

    `generate` takes a deep copy for each request, since a cache grows in place: time and memory
    that a page table does not need. An empty prefix is no sharing at all.
    """

    def __init__(self, model: GPT2LMHeadModel, prefix: Sequence[int]) -> None:
        self.model, self.cache = model, DynamicCache()
        if prefix:
            self._forward(prefix, self.cache)

    def generate(self, token_ids: Sequence[int], max_new_tokens: int) -> list[int]:
        """Continue prefix + `token_ids` greedily by that many tokens."""
        cache = copy.deepcopy(self.cache)
        output = [self._forward(token_ids, cache)]
        while len(output) < max_new_tokens:
            output.append(self._forward(output[-1:], cache))
        return output

    @torch.inference_mode()
    def _forward(self, token_ids: Sequence[int], cache: DynamicCache) -> int:
        ids = torch.tensor([token_ids], device=self.model.device)
        with warnings.catch_warnings():
            # Newer versions call the argument `cache`; older ones know this name only.
            warnings.simplefilter("ignore", FutureWarning)
            out = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return int(out.logits[0, -1].argmax())
