"""The serving loop: requests come and go while prefill and decode passes run (continuous batching).

It sees token ids and slots only. What computes is a `ModelRunner`; with the `NullRunner` and a
clock of your own, the same engine is a simulator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from radixlab.errors import RequestTooLong, WrongState
from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.scheduler import (
    Chunk,
    ModelRunner,
    SchedulePolicy,
    Scheduler,
    SchedulerSettings,
    fcfs,
)
from radixlab.tokens import decode, encode

Compute = Callable[[Sequence[Chunk]], Sequence[int]]


class Token(NamedTuple):
    """One drawn token, as the engine streams it."""

    request: Request
    token: int


@dataclass(slots=True)
class Record:
    """What became of one request. Times are readings of the engine's clock, None until then.

    `cached_tokens` were found when it was admitted; `computed_tokens` are the positions that the
    model computed for it, in prefill and decode; `error` is what the runner raised.
    """

    request: Request
    arrival: float
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    cached_tokens: int = 0
    computed_tokens: int = 0
    error: Exception | None = None

    @property
    def queue_time(self) -> float | None:
        """From arrival to admission."""
        return None if self.admitted is None else self.admitted - self.arrival

    @property
    def time_to_first_token(self) -> float | None:
        """From arrival to the first token drawn."""
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def time_per_output_token(self) -> float | None:
        """The mean time from one token to the next; None with fewer than two tokens."""
        steps = len(self.request.output) - 1
        if self.first_token is None or self.last_token is None or steps < 1:
            return None
        return (self.last_token - self.first_token) / steps


@dataclass(slots=True)
class Totals:
    """Sums over all requests that were admitted, in tokens, slots, passes and seconds.

    `evicted_tokens` went in this engine's steps. `peak_slots` is the most that running requests
    held at once, those of other engines over the manager among them: what no eviction could give.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    decoded_tokens: int = 0
    output_tokens: int = 0
    evicted_tokens: int = 0
    peak_slots: int = 0
    prefill_passes: int = 0
    decode_passes: int = 0
    step_seconds: float = 0.0
    runner_seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Of all prompt tokens, the part that was found in the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def computed_tokens(self) -> int:
        """Positions that the model computed."""
        return self.prefilled_tokens + self.decoded_tokens

    @property
    def tree_share(self) -> float:
        """Of the steps' time, the part outside the runner: tree, pool, scheduling, records."""
        return 1 - self.runner_seconds / self.step_seconds if self.step_seconds else 0.0


class Engine:
    """Serves requests over one manager and one runner.

    `context` is how many positions the model has (None: no limit); `clock` returns seconds.
    `records` has one entry for each request ever added, `totals` the sums.
    """

    def __init__(
        self,
        manager: CacheManager,
        runner: ModelRunner,
        *,
        policy: SchedulePolicy = fcfs,
        settings: SchedulerSettings | None = None,
        context: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.manager, self.runner = manager, runner
        self.scheduler = Scheduler(manager, policy, settings)
        self.context, self.clock = context, clock
        self.decoding: dict[Request, None] = {}
        self.records: dict[Request, Record] = {}
        self.totals = Totals()
        self._unread: list[Token] = []

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        self._forget_ended()
        return bool(self.scheduler.waiting or self.scheduler.chunked or self.decoding)

    def add(self, request: Request) -> Record:
        """Queue a request.

        Raises `RequestTooLong`, with both numbers, for one that does not fit the model's context or
        the pool, and `WrongState` for one that is known already or does not wait.
        """
        self.manager.check_can_start(request)
        if request in self.records:
            raise WrongState("add", request.request_id, "in the queue", "new")
        if self.context is not None and request.max_len > self.context:
            raise RequestTooLong(request.request_id, request.max_len, self.context, "context")
        self.scheduler.add(request)
        record = self.records[request] = Record(request, self.clock())
        return record

    def abort(self, request: Request) -> None:
        """End a request wherever it is.

        Its prompt stays cached if it was computed to the end; all else that it has computed is
        freed. Raises `DoubleFree` for one that has ended already. Releasing it at the manager, also
        while tokens are streamed, does the same.
        """
        self.manager.release(request)
        self._forget_ended()

    def stream(self) -> Iterator[Token]:
        """Step until nothing is left to do; yield each token as soon as it is drawn.

        Whoever reads may add and abort requests between two tokens, and may stop anywhere: what a
        step has drawn and nobody has read yet, the next `stream` yields first.
        """
        while self._unread or self.busy:
            if not self._unread:
                self._unread = self.step()
            elif (token := self._unread.pop(0)).request.state is not RequestState.ABORTED:
                yield token

    def step(self) -> list[Token]:
        """One forward pass, prefill if anything can be prefilled, else decode; returns its tokens.

        A runner that raises ends the request that it fails for, and no other: a pass of several is
        then tried again one by one. Ctrl-C ends whoever would be in no list after it: admitted in
        this step, or about to finish its prompt. Raises what says why nothing can run though
        requests wait: `PoolExhausted` if somebody outside this engine holds the slots or was
        promised them, `InvalidArgument` if they fill `max_running` or the policy names nobody.
        """
        self._forget_ended()
        start, totals, evicted = self.clock(), self.totals, self.manager.evicted_tokens
        try:
            if chunks := self.scheduler.next_chunks():
                self._note_admissions(chunks)
                done = self._run(self.runner.prefill, chunks)
                totals.prefill_passes += 1
                totals.prefilled_tokens += sum(chunk.end - chunk.start for chunk, _ in done)
            else:
                chunks = [self._next_position(request) for request in self.decoding]
                done = self._run(self._decode, chunks)
                totals.decode_passes += bool(chunks)
                totals.decoded_tokens += len(done)
            tokens = [token for chunk, drawn in done for token in self._advance(chunk, drawn)]
        except BaseException:
            unlisted = self.records.keys() - {self.scheduler.chunked, *self.decoding}
            for request in [r for r in self.manager.running if r in unlisted]:
                self.abort(request)
            raise
        finally:
            totals.evicted_tokens += self.manager.evicted_tokens - evicted
            totals.step_seconds += self.clock() - start
        if not chunks and self.busy:
            raise self.scheduler.refusal()
        return tokens

    def _forget_ended(self) -> None:
        self.scheduler.forget_ended()
        for request in [r for r in self.decoding if r.state is not RequestState.RUNNING]:
            del self.decoding[request]

    def _note_admissions(self, chunks: Sequence[Chunk]) -> None:
        now = self.clock()
        for request, start, _ in chunks:
            record = self.records[request]
            if record.admitted is None:
                record.admitted, record.cached_tokens = now, start
                self.totals.prompt_tokens += request.prompt_len
                self.totals.cached_tokens += start

    def _next_position(self, request: Request) -> Chunk:
        """Decode is a chunk of one: the last drawn token, which needs a slot now."""
        self.manager.allocate(request, request.num_tokens)
        return Chunk(request, request.num_tokens - 1, request.num_tokens)

    def _decode(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        return self.runner.decode([chunk.request for chunk in chunks])

    def _run(self, compute: Compute, chunks: Sequence[Chunk]) -> list[tuple[Chunk, int]]:
        """Compute, and pair each chunk with its token; what failed or ended is left out."""
        held = self.manager.pool.total_size - self.manager.available_size
        self.totals.peak_slots = max(self.totals.peak_slots, held)
        start = self.clock()
        done = self._attempt(compute, chunks)
        self.totals.runner_seconds += self.clock() - start
        return [pair for pair in done if pair[0].request.state is RequestState.RUNNING]

    def _attempt(self, compute: Compute, chunks: Sequence[Chunk]) -> list[tuple[Chunk, int]]:
        """Compute all at once; if that fails, one by one, to find out for whom it does.

        A pass writes only to slots that its requests own alone, so it can be repeated.
        """
        chunks = [chunk for chunk in chunks if chunk.request.state is RequestState.RUNNING]
        if not chunks:
            return []
        try:
            tokens = decode(encode(compute(chunks)))  # which checks them
            return list(zip(chunks, tokens, strict=True))
        except Exception as error:
            if len(chunks) > 1:
                return [pair for chunk in chunks for pair in self._attempt(compute, [chunk])]
            request = chunks[0].request
            self.records[request].error = error
            if request.state is RequestState.RUNNING:  # else the runner has ended it already
                self.abort(request)
            return []

    def _advance(self, chunk: Chunk, token: int) -> list[Token]:
        """Move a request on; in the middle of its prompt the token means nothing."""
        request, start, end = chunk
        self.records[request].computed_tokens += end - start
        request.computed_len = end
        if end < request.num_tokens:
            return []
        if request not in self.decoding:
            self._insert(request)
            self.decoding[request] = None
        return [self._draw(request, token)]

    def _draw(self, request: Request, token: int) -> Token:
        """Keep a drawn token; the last one ends the request, and is never computed itself."""
        record, now = self.records[request], self.clock()
        record.first_token = now if record.first_token is None else record.first_token
        record.last_token = now
        request.output.append(token)
        self.totals.output_tokens += 1
        if request.is_done:
            self._insert(request)
            self.manager.release(request)
            del self.decoding[request]
        return Token(request, token)

    def _insert(self, request: Request) -> None:
        """After prefill and at the end: make what was computed findable (chapter 4.2, step 5)."""
        assert request.handle is not None
        new = self.manager.round_down(request.computed_len) > request.handle.cached_len
        if self.scheduler.settings.cache and new:
            self.manager.cache_request(request)
