"""Lifecycles to be drawn: the chapter's, long ones, and any that hypothesis makes up."""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import strategies as st

from radixlab.demo import SENTENCES
from radixlab.lifecycle import Step, lifecycle
from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.scheduler import fcfs, shortest_prefill_first
from radixlab.snapshot import Snapshot, take_snapshot


def sentence_steps() -> list[Step]:
    """A, B and C of section 3.3, one after another into one tree."""
    manager = CacheManager(8, checked=True)
    steps: list[Step] = []
    for name, (_, token_ids) in SENTENCES.items():
        steps += lifecycle(manager, [Request(token_ids, request_id=name)])
    return steps


def long_life(number: int = 300, pages: int = 40, page_size: int = 2, seed: int = 1) -> list[Step]:
    """Many requests of a few families, three at a time, in a pool that is too small."""
    rng = random.Random(seed)
    families = [list(range(1, 9)), [1, 2, 3, 4, 9, 9, 9, 9, 9], [7] * 12, [5, 4, 3, 2, 1]]
    requests = []
    for i in range(number):
        family = rng.choice(families)
        prompt = family[: rng.randint(2, len(family))]
        prompt += [rng.randint(10, 99) for _ in range(rng.randint(1, 6))]
        requests.append(Request(prompt, rng.randint(1, 4), request_id=f"R{i}"))
    waves = [requests[i : i + 20] for i in range(0, number, 20)]
    manager = CacheManager(pages, page_size, checked=True)
    steps = (step for wave in waves for step in lifecycle(manager, wave, batch_size=3))
    return list(islice(steps, number))


@st.composite
def lives(draw: st.DrawFn) -> tuple[Snapshot, list[Step]]:
    """The start and the steps of any small lifecycle; request ids are letters."""
    page_size = draw(st.integers(1, 3))
    prompts = draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=9), max_size=5))
    requests = [
        Request(prompt, draw(st.integers(1, 4)), request_id=chr(ord("A") + i))
        for i, prompt in enumerate(prompts)
    ]
    largest = max((r.max_len for r in requests), default=1)
    pages = -(-largest // page_size) + draw(st.integers(0, 6))
    manager = CacheManager(pages, page_size, checked=True)
    start = take_snapshot(manager, requests)
    policy = draw(st.sampled_from([fcfs, shortest_prefill_first]))
    batch_size = draw(st.integers(1, 3))
    return start, list(lifecycle(manager, requests, policy=policy, batch_size=batch_size))
