"""Five seeded workloads: who asks for which tokens, and in which order requests start and end."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]

VOCABULARY = 150_000
IN_FLIGHT = 8
"""Requests that run at once, unless a workload says otherwise."""


class TraceRequest(NamedTuple):
    """Prompt and output in one array, and how many of them are the prompt."""

    tokens: Tokens
    prompt_len: int


class What(StrEnum):
    """What happens to a request."""

    ADMIT = "admit"
    FINISH = "finish"


class Event(NamedTuple):
    """One step of the serving loop: what happens to which request."""

    what: What
    request: int


@dataclass(frozen=True)
class Trace:
    """Requests, the loop that serves them, and the size of the pool in tokens."""

    name: str
    num_slots: int
    requests: list[TraceRequest]
    order: list[Event]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(request.prompt_len for request in self.requests)

    @property
    def checksum(self) -> int:
        """A number that changes with any token, border, or step."""
        crc = 0
        for tokens, prompt_len in self.requests:
            crc = zlib.crc32(tokens.tobytes(), zlib.crc32(b"%d" % prompt_len, crc))
        for what, index in self.order:
            crc = zlib.crc32(b"%s %d" % (what.encode(), index), crc)
        return crc

    def head(self, num_requests: int, num_slots: int | None = None) -> Trace:
        """The first requests alone, with another pool if wanted."""
        return replace(
            self,
            num_slots=self.num_slots if num_slots is None else num_slots,
            requests=self.requests[:num_requests],
            order=[event for event in self.order if event.request < num_requests],
        )


def few_shot(num_requests: int = 2500, num_slots: int = 49_152) -> Trace:
    """Eight system prompts of 1,000 to 2,000 tokens, each followed by many short questions."""
    tokens = TokenSource(seed=0)
    systems = [tokens(tokens.between(1000, 2000)) for _ in range(8)]
    requests = []
    for _ in range(num_requests):
        system = systems[tokens.below(len(systems))]
        question = tokens(tokens.between(50, 200))
        answer = tokens(tokens.between(16, 64))
        requests.append(joined([system, question], answer))
    return Trace("fewshot", num_slots, requests, first_in_first_out(num_requests))


def chat(num_sessions: int = 200, num_active: int = 40, num_slots: int = 49_152) -> Trace:
    """Conversations of 10 or 11 turns; 40 of them take turns at random, one turn at a time each."""
    tokens = TokenSource(seed=1)
    turns_left = [10 + session % 2 for session in range(num_sessions)]
    history = [tokens(0)] * num_sessions
    new_sessions, active = list(range(num_sessions)), list[int]()
    requests, order, running = list[TraceRequest](), list[Event](), list[tuple[int, int]]()

    def finish_oldest() -> None:
        session, index = running.pop(0)
        order.append(Event(What.FINISH, index))
        if not turns_left[session]:
            active.remove(session)

    while True:
        while len(active) < num_active and new_sessions:
            active.append(new_sessions.pop(0))
        busy = {session for session, _ in running}
        ready = [session for session in active if session not in busy and turns_left[session]]
        if not ready:
            if not running:
                break
            finish_oldest()
            continue
        session = ready[tokens.below(len(ready))]
        growth = tokens.between(100, 300)
        question_len = int(growth * 0.4)
        request = joined([history[session], tokens(question_len)], tokens(growth - question_len))
        history[session] = request.tokens
        turns_left[session] -= 1
        running.append((session, len(requests)))
        order.append(Event(What.ADMIT, len(requests)))
        requests.append(request)
        if len(running) >= IN_FLIGHT:
            finish_oldest()
    return Trace("chat", num_slots, requests, order)


def tree_of_thought(
    num_questions: int = 6, width: int = 4, depth: int = 4, num_slots: int = 24_576
) -> Trace:
    """Each thought's prompt is the path to it, its output 128 tokens that four others build on."""
    tokens, thought = TokenSource(seed=2), 128
    examples = tokens(thought)
    requests, order, running = list[TraceRequest](), list[Event](), list[int]()
    parents: list[int | None] = []
    for _ in range(num_questions):
        level: list[tuple[int | None, Tokens]] = [(None, np.concatenate([examples, tokens(128)]))]
        for _ in range(depth):
            below: list[tuple[int | None, Tokens]] = []
            for parent, path in level:
                for _ in range(width):
                    request = joined([path], tokens(thought))
                    below.append((len(requests), request.tokens))
                    requests.append(request)
                    parents.append(parent)
            level = below
    for index, parent in enumerate(parents):  # a thought starts when the one it builds on is done
        while running and (len(running) >= IN_FLIGHT or parent in running):
            order.append(Event(What.FINISH, running.pop(0)))
        order.append(Event(What.ADMIT, index))
        running.append(index)
    order += [Event(What.FINISH, index) for index in running]
    return Trace("tree", num_slots, requests, order)


def no_sharing(num_requests: int = 2500, num_slots: int = 131_072) -> Trace:
    """Random prompts of 512 tokens: a cache only costs."""
    tokens = TokenSource(seed=3)
    requests = [TraceRequest(tokens(512 + 32), 512) for _ in range(num_requests)]
    return Trace("random", num_slots, requests, first_in_first_out(num_requests))


def splits(num_requests: int = 2200, num_slots: int = 16_384) -> Trace:
    """The adversary: each request leaves a long prompt one token earlier, so that it is cut again.

    Every eighth repeats the whole prompt, walks all its fragments, and keeps them in use.
    """
    tokens = TokenSource(seed=4)
    base = tokens(2304)
    requests, cut = [], len(base)
    for index in range(num_requests):
        if index % 8:
            cut -= 1
            request = joined([base[:cut], tokens(16)], tokens(12))
        else:
            request = joined([base, tokens(4)], tokens(12))
        requests.append(request)
    return Trace("splits", num_slots, requests, first_in_first_out(num_requests, in_flight=1))


TRACES: dict[str, Callable[[], Trace]] = {
    "fewshot": few_shot,
    "chat": chat,
    "tree": tree_of_thought,
    "random": no_sharing,
    "splits": splits,
}


class TokenSource:
    """A seeded stream of token ids and of whole numbers."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, count: int) -> Tokens:
        return self._random.integers(0, VOCABULARY, count, dtype=np.int32)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        return int(self._random.integers(low, high + 1))

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1."""
        return int(self._random.integers(end))


def joined(prompt: Iterable[Tokens], output: Tokens) -> TraceRequest:
    """The request whose prompt has these parts."""
    parts = [*prompt, output]
    return TraceRequest(np.concatenate(parts), sum(map(len, parts[:-1])))


def first_in_first_out(num_requests: int, in_flight: int = IN_FLIGHT) -> list[Event]:
    """Each request starts in turn; the oldest ends when `in_flight` run."""
    order = []
    for index in range(num_requests + in_flight - 1):
        if index < num_requests:
            order.append(Event(What.ADMIT, index))
        if 0 <= (oldest := index - in_flight + 1) < num_requests:
            order.append(Event(What.FINISH, oldest))
    return order
