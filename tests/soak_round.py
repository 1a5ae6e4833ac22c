"""One round of the soak test (`tests/soak.py`): an engine, rough traffic, and what must hold."""

from __future__ import annotations

import gc
import itertools
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NoReturn

from radixlab.engine import Engine
from radixlab.errors import RequestTooLong
from radixlab.gpt2 import GPT2
from radixlab.kv import KVPool
from radixlab.manager import CacheManager
from radixlab.policies import POLICIES, make_policy
from radixlab.request import Request, RequestState, Sampling
from radixlab.runner import GPT2Runner
from radixlab.scheduler import Chunk, ModelRunner, SchedulerSettings
from radixlab.strategies import STRATEGIES, make_strategy
from radixlab.tokens import Namespace, decode
from radixlab.workloads import WORKLOADS, Job
from tests.world import fingerprints

CYCLE = 36  # rounds, after which engines of the same sizes come again
WARM_STEPS = 300  # of each engine, before its memory is measured for the first time
CHECK_EVERY = 100  # steps; after each fault too
FAULT_RATE, ABORT_RATE = 0.01, 0.05  # for each pass, and for each step
BLOCK_GROWTH = 400  # blocks that Python holds for an emptied engine, as in tests/test_long.py

NAMESPACES = (None, Namespace(tenant="a"), Namespace(salt="a"), Namespace(adapter="b"))


# --- what a round is -------------------------------------------------------------------------
@dataclass(frozen=True)
class Plan:
    """One round. Of each prompt and answer only every `thin`-th token is used."""

    number: int
    seed: str
    gpt2: bool
    workload: str
    policy: str
    strategy: str
    page_size: int
    chunked: bool
    pool_tokens: int
    max_running: int
    in_batch_check: int | None
    thin: int

    def __str__(self) -> str:
        budget = "chunked" if self.chunked else "whole"
        return (
            f"round {self.number}: {'GPT-2' if self.gpt2 else 'null'}, {self.workload}, "
            f"{self.policy}, {self.strategy}, page {self.page_size}, {budget}, "
            f"pool {self.pool_tokens}"
        )


def make_plan(number: int, seed: int = 0) -> Plan:
    """Each policy, strategy, page size and workload in its turn, and the sizes of its cycle's."""
    place = number % CYCLE
    gpt2, turn, rng = place % 10 == 0, number + number // 10, Random(f"{seed}/{place}")
    workloads, thin = [*WORKLOADS, "mixed"], 8 if gpt2 else rng.choice((1, 2, 4))
    return Plan(
        number,
        f"{seed}/{number}",
        gpt2,
        workloads[turn % len(workloads)],
        list(POLICIES)[turn % len(POLICIES)],
        list(STRATEGIES)[turn % len(STRATEGIES)],
        (1, 4, 16)[place % 3],
        rng.random() < 0.5,
        rng.choice((2_000, 6_000, 24_000)) // thin,
        rng.choice((4, 16, 64)),
        rng.choice((None, 32, -1)),
        thin,
    )


def traffic(workload: str, rng: Random) -> Iterator[Job]:
    """Jobs without end, each time the workload is over from a new seed; "mixed": all of them."""
    names = list(WORKLOADS) if workload == "mixed" else [workload]
    while True:
        streams = [iter(WORKLOADS[name](rng.getrandbits(32))) for name in names]
        while streams:
            stream = rng.choice(streams)
            if (job := next(stream, None)) is None:
                streams.remove(stream)
            else:
                yield job


# --- the runner ------------------------------------------------------------------------------
class Fault(Exception):
    """What the runner raises on purpose."""


@dataclass(slots=True)
class Life:
    """What a live request will draw, and for each of its positions what must stand in its slot."""

    answer: list[int]
    names: list[int]
    doomed: bool = False


class FlakyRunner:
    """Fails now and then, and notices when a request reads K and V that are not its own.

    `names` has for each slot the fingerprint of what was computed into it (`tests.world`). Without
    an `inner` runner each request draws its answer. A pass fails by chance, or because of a request
    that it can never serve; `alone` collects those for which a pass of one has failed.
    """

    def __init__(self, inner: ModelRunner | None, slots: int, rng: Random) -> None:
        self.inner, self.random = inner, rng
        self.names = array("q", bytes(8 * slots))
        self.lives: dict[Request, Life] = {}
        self.alone: set[Request] = set()
        self.faults = self.cut = 0

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        """Compute the chunks, or fail."""
        self.cut += sum(chunk.end < chunk.request.num_tokens for chunk in chunks)
        return self._run(chunks, lambda inner: inner.prefill(chunks))

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        """Compute one position for each, or fail."""
        chunks = [Chunk(r, r.num_tokens - 1, r.num_tokens) for r in requests]
        return self._run(chunks, lambda inner: inner.decode(requests))

    def _run(
        self, chunks: Sequence[Chunk], compute: Callable[[ModelRunner], Sequence[int]]
    ) -> Sequence[int]:
        """Compute; a fault comes before anything is written, or after everything is."""
        rng, lives = self.random, self.lives
        fails = rng.random() < FAULT_RATE
        if fails and rng.random() < 0.5:
            lives[rng.choice(chunks).request].doomed = True
        fails = fails or any(lives[chunk.request].doomed for chunk in chunks)
        if fails and rng.random() < 0.5:
            self._fail(chunks)
        for chunk in chunks:
            self._visit(chunk)
        if self.inner is not None:
            tokens = compute(self.inner)
        else:
            tokens = [lives[request].answer[len(request.output)] for request, *_ in chunks]
        if fails:
            self._fail(chunks)
        return tokens

    def _fail(self, chunks: Sequence[Chunk]) -> NoReturn:
        self.faults += 1
        if len(chunks) == 1:
            self.alone.add(chunks[0].request)
        raise Fault

    def _visit(self, chunk: Chunk) -> None:
        """Name what is computed; in prefill, and before the end, look at all that is read."""
        request, start, end = chunk
        names, table = self.lives[request].names, request.page_table
        if len(names) < end:
            names.append(hash((names[-1], request.output[-1])))
        if end <= request.prompt_len or end == request.max_len:
            found = [self.names[slot] for slot in table[:start]]
            assert found == names[:start], f"{request} reads another prefix's KV"
        for position in range(start, end):
            self.names[table[position]] = names[position]


# --- a round ---------------------------------------------------------------------------------
class Round:
    """One engine, and what happens to it; what it has seen is added to `counts`."""

    def __init__(self, plan: Plan, counts: Counter[str], model: GPT2 | None = None) -> None:
        self.plan, self.counts, self.random = plan, counts, Random(plan.seed)
        pages = plan.pool_tokens // plan.page_size
        strategy = make_strategy(plan.strategy)
        self.manager = CacheManager(pages, plan.page_size, strategy=strategy, checked=True)
        slots = self.manager.pool.total_size
        inner = None
        if model is not None:
            inner = GPT2Runner(model, KVPool.for_model(model, slots, plan.page_size))
        self.vocabulary = None if model is None else model.config.vocab
        self.runner = FlakyRunner(inner, slots, self.random)
        self.engine = Engine(
            self.manager,
            self.runner,
            policy=make_policy(plan.policy, plan.number),
            settings=SchedulerSettings(
                prefill_budget=max(16, 256 // plan.thin) if plan.chunked else slots,
                max_running=plan.max_running,
                in_batch_check=plan.in_batch_check,
            ),
            context=None if model is None else model.config.context,
        )
        self.steps = self.drawn = self.crowd = 0

    def run(self, more: Callable[[], bool]) -> int:
        """Serve while there is to be `more`; returns the blocks by which memory has grown.

        The growth is that of an engine which is warm, has served everything and caches nothing.
        """
        self.serve(lambda: self.steps < WARM_STEPS)
        before = self.settle()
        self.serve(more)
        grown = self.settle() - before
        assert grown < BLOCK_GROWTH, f"one engine has grown by {grown} blocks of memory"
        self.add_up()
        return grown

    def serve(self, more: Callable[[], bool]) -> None:
        jobs = traffic(self.plan.workload, self.random)
        while more():
            self.arrive(jobs)
            self.abort()
            self.step()

    def settle(self) -> int:
        """Serve what is left, and empty the cache; returns the blocks that Python holds."""
        manager = self.manager
        while self.engine.busy:
            self.step()
        self.check()
        assert not self.runner.lives and not manager.running, "something runs in an idle engine"
        assert manager.available_size == manager.pool.total_size, "slots have leaked"
        manager.clear()
        assert manager.pool.free_size == manager.pool.total_size, "slots have leaked"
        gc.collect()
        return sys.getallocatedblocks()

    # --- what happens ------------------------------------------------------------------------
    def arrive(self, jobs: Iterator[Job]) -> None:
        """Up to three requests, as long as there is no crowd; how big one is changes."""
        if self.steps % 200 == 0:
            self.crowd = self.random.choice((2, 16, 64, 200))
        free = self.crowd - len(self.runner.lives)
        for job in itertools.islice(jobs, max(0, min(free, self.random.randint(0, 3)))):
            request, life = self.make(job)
            try:
                self.engine.add(request)
            except RequestTooLong:
                self.counts["refused as too long"] += 1
            else:
                self.runner.lives[request] = life
                self.counts["added"] += 1

    def make(self, job: Job) -> tuple[Request, Life]:
        rng, thin = self.random, self.plan.thin
        prompt, answer = decode(job.prompt)[::thin], decode(job.output)[::thin]
        if self.vocabulary is not None:
            prompt = [token % self.vocabulary for token in prompt]
        namespace = NAMESPACES[job.session % len(NAMESPACES)]
        request = Request(
            prompt,
            len(answer) if rng.random() < 0.998 else 10**6,  # more than any pool holds
            namespace=namespace,
            stop_token_ids=[rng.choice(answer)] if rng.random() < 0.1 else (),
            sampling=Sampling(seed=job.session) if rng.random() < 0.25 else None,
            priority=rng.randint(-1, 2),
            routing_key=rng.choice(("", "a", "b")),
        )
        return request, Life(answer, fingerprints(namespace, prompt))

    def abort(self) -> None:
        """Now and then end a request, by the engine or behind its back."""
        rng, engine = self.random, self.engine
        if rng.random() >= ABORT_RATE:
            return
        chunked = engine.scheduler.chunked
        places = {
            "waiting": list(engine.scheduler.waiting),
            "between chunks": [] if chunked is None else [chunked],
            "in decode": list(engine.decoding),
        }
        place, there = rng.choice(list(places.items()))
        if there:
            request = rng.choice(there)
            rng.choice((engine.abort, self.manager.release))(request)
            self.end(request, f"aborted {place}")

    def step(self) -> None:
        """A step of the engine, and the books after it."""
        runner, engine, faults = self.runner, self.engine, self.runner.faults
        tokens = engine.step()
        self.steps += 1
        self.drawn += len(tokens)
        for request, _ in tokens:
            if request.state is RequestState.FINISHED:
                self.check_answer(request)
                self.end(request, "finished")
        waiting, chunked = engine.scheduler.waiting, engine.scheduler.chunked
        known = len(waiting) + len(engine.decoding) + (chunked is not None)
        if runner.faults > faults or known != len(runner.lives):
            self.sweep()
            self.check()
        elif self.steps % CHECK_EVERY == 0:
            self.check()

    def sweep(self) -> None:
        """After a fault exactly those have ended that could not be served even alone."""
        runner = self.runner
        ended = {request for request in runner.lives if request.state is RequestState.ABORTED}
        for request in ended:
            error = self.engine.records[request].error
            if not isinstance(error, Fault):
                raise error or AssertionError(f"{request} has ended without an error")
            self.end(request, f"failed in {'decode' if request.output else 'prefill'}")
        assert ended == runner.alone, "a fault has ended another request than its own"
        runner.alone.clear()

    def end(self, request: Request, how: str) -> None:
        """Count it and forget it: the engine's records would grow with every request."""
        self.counts[how] += 1
        del self.runner.lives[request], self.engine.records[request]

    # --- what must hold ----------------------------------------------------------------------
    def check_answer(self, request: Request) -> None:
        drawn = request.output.tolist()
        if self.runner.inner is None:
            answer = self.runner.lives[request].answer
            assert drawn == answer[: len(drawn)], "somebody else's answer was drawn"
        assert len(drawn) == request.max_new_tokens or drawn[-1] in request.stop_token_ids

    def check(self) -> None:
        """Every slot has one owner, every live request is in its place, and no other is known."""
        engine, manager, lives = self.engine, self.manager, self.runner.lives
        manager.check_integrity()
        chunked = engine.scheduler.chunked
        running = {*engine.decoding} | ({chunked} - {None})
        assert running == set(manager.running), "the engine runs others than the manager"
        assert running | set(engine.scheduler.waiting) == set(lives) == set(engine.records)
        self.counts["integrity checks"] += 1

    def add_up(self) -> None:
        totals, counts = self.engine.totals, self.counts
        assert totals.output_tokens == self.drawn
        assert totals.evicted_tokens == self.manager.evicted_tokens
        counts["steps"] += self.steps
        counts["faults raised"] += self.runner.faults
        counts["prompts cut into chunks"] += self.runner.cut
        for name in ("prompt", "cached", "prefilled", "decoded", "output", "evicted"):
            counts[f"{name} tokens"] += getattr(totals, f"{name}_tokens")
