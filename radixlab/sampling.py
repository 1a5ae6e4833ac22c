"""From logits to token ids: greedy, or by temperature and top-p with a seed for each request."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from radixlab.request import Request, Sampling


def draw_tokens(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """Draw one token for each request from its row of `logits` [requests, vocab].

    All greedy rows are one argmax, all others one sort: no Python work for each vocabulary entry.
    """
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    rows = [i for i, request in enumerate(requests) if request.sampling is not None]
    if rows:
        samplings = [s for request in requests if (s := request.sampling) is not None]
        draws = [_uniform(s, len(requests[i].output)) for i, s in zip(rows, samplings, strict=True)]
        for i, token in zip(rows, _sample(logits[rows], samplings, draws), strict=True):
            tokens[i] = token
    return tokens


def _uniform(sampling: Sampling, number: int) -> float:
    """Draw number `number` of a request, from 0 to 1: the same whatever was drawn before."""
    return random.Random(f"{sampling.seed}/{number}").random()


def _sample(logits: Tensor, samplings: Sequence[Sampling], draws: Sequence[float]) -> list[int]:
    """Walk down each row's tokens, the likeliest first, until their sum passes the draw."""

    def column(numbers: Sequence[float]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float64, device=logits.device)[:, None]

    scores = logits.double()
    scores = scores - scores.amax(dim=-1, keepdim=True)  # so that no temperature overflows
    scaled = scores / column([s.temperature for s in samplings])
    chances, order = scaled.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    sums = chances.cumsum(dim=-1)
    # The nucleus: the fewest tokens whose sum reaches top_p, so all before which it falls short.
    top_p = column([s.top_p for s in samplings])
    last = ((sums - chances) < top_p).sum(dim=-1, keepdim=True) - 1
    target = column(draws) * sums.gather(-1, last)
    place = torch.searchsorted(sums, target, right=True).minimum(last)
    tokens: list[int] = order.gather(-1, place).flatten().tolist()
    return tokens
