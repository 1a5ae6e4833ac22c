"""What people send: seeded workloads, and when they arrive.

A workload is a list of `Job`s, made token by token from a seed. Sizes are in tokens, times in
seconds. Everything here is the standard library. What files hold is read in `radixlab.traces`.
"""

from __future__ import annotations

import itertools
import math
import random
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from radixlab.errors import InvalidArgument
from radixlab.tokens import TOKEN_BYTES

VOCABULARY = 32_000


@dataclass(frozen=True, slots=True)
class Job:
    """One request of a workload: its prompt and the answer that it will get, as int32 bytes.

    It arrives `arrival` seconds after the start, or after the end of the job with the index
    `after`. Jobs of one `session` are one conversation, in this order.
    """

    prompt: bytes
    output: bytes
    session: int = 0
    arrival: float = 0.0
    after: int | None = None

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt) // TOKEN_BYTES

    @property
    def output_len(self) -> int:
        """Tokens of the answer."""
        return len(self.output) // TOKEN_BYTES


# --- workloads ---------------------------------------------------------------------------------
def few_shot(
    seed: int = 0,
    *,
    requests: int = 200,
    tasks: int = 4,
    examples: int = 800,
    question: int = 60,
    answer: int = 16,
) -> list[Job]:
    """Each request asks something new below one of a few long lists of worked examples."""
    _check_one("tasks", tasks)
    source = _Source(seed)
    heads = [source.tokens(examples) for _ in range(tasks)]
    return [
        Job(source.choice(heads) + source.tokens(question), source.tokens(answer), session)
        for session in range(requests)
    ]


def chat(
    seed: int = 0,
    *,
    sessions: int = 40,
    turns: int = 5,
    system: int = 200,
    message: int = 60,
    answer: int = 120,
) -> list[Job]:
    """Conversations below one system prompt; each turn repeats all that was said before it."""
    source = _Source(seed)
    head = source.tokens(system)
    talks = [_talk(source, head, session, turns, message, answer) for session in range(sessions)]
    return source.interleave(talks)


def _talk(
    source: _Source, history: bytes, session: int, turns: int, message: int, answer: int
) -> list[Job]:
    jobs = []
    for _ in range(turns):
        jobs.append(Job(history + source.tokens(message), source.tokens(answer), session))
        history = jobs[-1].prompt + jobs[-1].output
    return jobs


def tree_of_thought(
    seed: int = 0,
    *,
    problems: int = 5,
    depth: int = 3,
    branching: int = 3,
    problem: int = 300,
    thought: int = 60,
) -> list[Job]:
    """Every state is continued `branching` times, and every continuation is a new state."""
    source = _Source(seed)
    jobs = []
    for session in range(problems):
        states = [source.tokens(problem)]
        for _ in range(depth):
            level = [
                Job(state, source.tokens(thought), session)
                for state in states
                for _ in range(branching)
            ]
            jobs += level
            states = [job.prompt + job.output for job in level]
    return jobs


def agents(
    seed: int = 0,
    *,
    runs: int = 30,
    steps: int = 6,
    kinds: int = 2,
    tools: int = 600,
    observation: int = 150,
    thinking: int = 80,
    action: int = 30,
) -> list[Job]:
    """Agents that think, act and observe, below long descriptions of their tools.

    The next prompt keeps the action and drops the thinking, as chat templates do, so that what was
    cached of the answer is a dead branch (sgl-project/sglang#22617).
    """
    _check_one("kinds", kinds)
    source = _Source(seed)
    heads = [source.tokens(tools) for _ in range(kinds)]
    all_runs = []
    for session in range(runs):
        history, jobs = source.choice(heads) + source.tokens(observation), []
        for _ in range(steps):
            acted = source.tokens(action)
            jobs.append(Job(history, source.tokens(thinking) + acted, session))
            history += acted + source.tokens(observation)
        all_runs.append(jobs)
    return source.interleave(all_runs)


def rag(
    seed: int = 0,
    *,
    requests: int = 200,
    documents: int = 30,
    retrieved: int = 3,
    system: int = 100,
    document: int = 250,
    question: int = 40,
    answer: int = 60,
    shuffled: bool = True,
) -> list[Job]:
    """Questions below retrieved documents, some of them far more popular than others.

    Their order changes from request to request, and what follows a different document is no shared
    prefix; `shuffled=False` puts them in one order, the most popular first.
    """
    source = _Source(seed)
    head, library = source.tokens(system), [source.tokens(document) for _ in range(documents)]
    popularity = [1 / (rank + 1) for rank in range(documents)]
    jobs = []
    for session in range(requests):
        found: dict[int, None] = {}
        while len(found) < min(retrieved, documents):
            found[source.random.choices(range(documents), popularity)[0]] = None
        order = list(found) if shuffled else sorted(found)
        prompt = head + b"".join(library[i] for i in order) + source.tokens(question)
        jobs.append(Job(prompt, source.tokens(answer), session))
    return jobs


def no_sharing(
    seed: int = 0, *, requests: int = 200, prompt: int = 600, answer: int = 60
) -> list[Job]:
    """Nothing in common: a cache can only cost here."""
    source = _Source(seed)
    return [Job(source.tokens(prompt), source.tokens(answer), i) for i in range(requests)]


def adversarial(
    seed: int = 0, *, requests: int = 200, prompts: int = 20, prompt: int = 400, answer: int = 16
) -> list[Job]:
    """The same prompts round after round: a cache a little too small makes LRU miss every time."""
    _check_one("prompts", prompts)
    source = _Source(seed)
    loop = [source.tokens(prompt) for _ in range(prompts)]
    return [Job(loop[i % prompts], source.tokens(answer), i) for i in range(requests)]


WORKLOADS: dict[str, Callable[[int], list[Job]]] = {
    "few-shot": few_shot,
    "chat": chat,
    "tree-of-thought": tree_of_thought,
    "agents": agents,
    "rag": rag,
    "no-sharing": no_sharing,
    "adversarial": adversarial,
}
"""By name; each takes a seed, and its sizes as keywords."""


def _check_one(name: str, number: int) -> None:
    """Something must be there to choose from."""
    if number < 1:
        raise InvalidArgument(name, number, "1 or more")


class _Source:
    """Random tokens and choices, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def tokens(self, number: int) -> bytes:
        return array("i", self.random.choices(range(VOCABULARY), k=number)).tobytes()

    def choice(self, options: Sequence[bytes]) -> bytes:
        return self.random.choice(options)

    def interleave(self, sessions: Sequence[list[Job]]) -> list[Job]:
        """All jobs in a random order that keeps the order within each session."""
        turns = [i for i, jobs in enumerate(sessions) for _ in jobs]
        self.random.shuffle(turns)
        left = [iter(jobs) for jobs in sessions]
        return [next(left[i]) for i in turns]


# --- arrivals ----------------------------------------------------------------------------------
def batch(jobs: Sequence[Job]) -> list[Job]:
    """Everything is there at the start, as in an offline run."""
    return [replace(job, arrival=0.0, after=None) for job in jobs]


def poisson(jobs: Sequence[Job], rate: float, seed: int = 0) -> list[Job]:
    """An open loop: `rate` requests a second on average, whether the server keeps up or not."""
    if not rate > 0:
        raise InvalidArgument("rate", rate, "above 0 requests a second")
    gaps = random.Random(seed)
    times = itertools.accumulate(gaps.expovariate(rate) for _ in jobs)
    return [replace(job, arrival=time, after=None) for job, time in zip(jobs, times, strict=True)]


def closed_loop(jobs: Sequence[Job], clients: int, think_time: float = 0.0) -> list[Job]:
    """Each of `clients` sends its next request `think_time` seconds after it has its answer.

    A client works through whole sessions: session by session in order of first appearance, dealt
    out in turn. The list keeps its order.
    """
    if clients < 1:
        raise InvalidArgument("clients", clients, "1 or more")
    if not 0 <= think_time < math.inf:
        raise InvalidArgument("think_time", think_time, "seconds, 0 or more")
    sessions: dict[int, list[int]] = {}
    for i, job in enumerate(jobs):
        sessions.setdefault(job.session, []).append(i)
    timed, clients = list(jobs), min(clients, len(sessions))
    for client in range(clients):
        mine = itertools.chain(*itertools.islice(sessions.values(), client, None, clients))
        before = None
        for i in mine:
            wait = 0.0 if before is None else think_time
            timed[i] = replace(jobs[i], arrival=wait, after=before)
            before = i
    return timed
