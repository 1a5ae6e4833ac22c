"""The whole story in three parts, as data: for the terminal, the first notebook and the tests.

The tree that grows and splits (chapter, section 3.3), the life of R1 and R2 (section 4.2), and the
proof on a real GPT-2: what is read from the cache changes no logit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from radixlab.errors import InvalidArgument, InvalidPageSize
from radixlab.lifecycle import Step, lifecycle
from radixlab.manager import CacheManager
from radixlab.policies import make_policy
from radixlab.request import Request
from radixlab.scenarios import chapter_scenario
from radixlab.strategies import make_strategy
from radixlab.tokens import brief

if TYPE_CHECKING:
    from torch import Tensor

    from radixlab.gpt2 import GPT2
    from radixlab.kv import KVPool
    from radixlab.runner import GPT2Runner
    from radixlab.scheduler import Chunk

SENTENCES = {
    "A": ("Hello, world!", [101, 11, 12, 21, 22]),
    "B": ("Hello, western Sichuan~", [101, 11, 12, 31, 32]),
    "C": ("How are you?", [101, 11, 99]),
}
"""The chapter's three requests and their token ids."""

SYSTEM_PROMPT = """\
You are a novelist of good sense and quiet humour. You write of families in the country, of balls
and letters, of long walks and short proposals. Your heroine is clever, and now and then too proud
of it; her sister is kind; their mother talks too much. You never use ten words where five will do,
and you never explain a joke.

This is how you write. "It was a fine morning, and the whole party set out for the hill, with every
intention of being pleased. Before they had walked a mile, Mrs. Allen was tired, Mr. Thorpe was
talking of his horse, and the rest had nothing to say to each other."

And this. "He was a man of large fortune and few words, and the neighbourhood, which had forgiven
him the first at once, never forgave him the second. Emma thought him proud; her father thought him
cold, and wished that he would shut the door; and he thought of nothing but Emma."

Go on with the story from here.

"""
OPENINGS = (
    "Mr. Darcy looked at Elizabeth, and",
    "The two sisters walked to the village, where",
    "Her mother was delighted with the letter, and",
)
"""Three requests that begin with one system prompt."""


class Growth(NamedTuple):
    """The tree after one of the chapter's sentences was inserted."""

    name: str
    text: str
    token_ids: list[int]
    caption: str
    tree: str


def grow_tree() -> Iterator[Growth]:
    """Insert A, B and C; the caption says what was found, and what a split did not move."""
    manager = CacheManager(8, checked=True)
    for name, (text, token_ids) in SENTENCES.items():
        request = Request(token_ids, request_id=name)
        steps = list(lifecycle(manager, [request]))
        hit, new = request.cache_hit_len, len(token_ids) - request.cache_hit_len
        caption = f"{hit} of {len(token_ids)} tokens are in the tree, {new} must be computed."
        keys = {node.uuid: node.key for node in steps[-1].snapshot.nodes}
        for upper, lower in (pair for step in steps for pair in step.changes.split):
            caption += (
                f" The edge is cut where they part: {brief(keys[upper])} above, "
                f"{brief(keys[lower])} below. Every token keeps its slot."
            )
        yield Growth(name, text, token_ids, caption, str(manager.cache))


def follow_requests(
    policy: str = "shortest-prefill-first", eviction: str = "lru"
) -> Iterator[Step]:
    """R1 and R2 of section 4.2, step by step; raises `InvalidArgument` for an unknown name."""
    return chapter_scenario(make_policy(policy), eviction).steps()


@dataclass(frozen=True)
class PromptReport:
    """One prompt, served alone with an empty cache (cold) and after the others (warm)."""

    text: str
    continuation: str
    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    cold_prefill_ms: float
    warm_prefill_ms: float
    max_logit_difference: float


@dataclass(frozen=True)
class ReuseReport:
    """What `radixlab demo --json` prints.

    `max_logit_difference` is the largest difference between a warm and a cold logit, over all
    vocabulary entries of every token drawn; with `exact` it is 0. `reused_tokens` and
    `computed_tokens` are of the three warm prompts. `prefill_ratio` is their prefill time, warm by
    cold, in fast mode. `kv_bytes` is what the cache holds at the end, `kv_bytes_unshared` what the
    same tokens would take without sharing. `control_difference` is the largest difference of logits
    after one cached token slot was overwritten: it must not be 0. `same_continuations` says whether
    cold and warm drew the same tokens.
    """

    model: str
    device: str
    page_size: int
    exact: bool
    prompts: list[PromptReport]
    reused_tokens: int
    computed_tokens: int
    prefill_ratio: float
    kv_bytes: int
    kv_bytes_unshared: int
    max_logit_difference: float
    control_difference: float
    same_continuations: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists, ready for JSON."""
        return asdict(self)


class _Watch:
    """A model runner that keeps the logits of every pass and the seconds of prefill."""

    def __init__(self, runner: GPT2Runner) -> None:
        self.runner = runner
        self.logits: list[Tensor] = []
        self.seconds = 0.0

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        """Run and time the pass."""
        start = time.perf_counter()
        tokens = self.runner.prefill(chunks)  # ends with the tokens on the CPU: nothing is pending
        self.seconds += time.perf_counter() - start
        self._keep()
        return tokens

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        """Run the pass."""
        tokens = self.runner.decode(requests)
        self._keep()
        return tokens

    def _keep(self) -> None:
        assert self.runner.last_logits is not None
        self.logits.append(self.runner.last_logits)


class _Served(NamedTuple):
    request: Request
    logits: list[Tensor]
    seconds: float


def prove_reuse(
    source: str = "tiny",
    *,
    device: str | None = None,
    page_size: int = 1,
    exact: bool = True,
    eviction: str = "lru",
    new_tokens: int = 16,
    rounds: int = 5,
    on_progress: Callable[[str], object] = lambda message: None,
) -> ReuseReport:
    """Serve three prompts cold and warm on GPT-2 and compare every logit.

    Cold: each prompt alone, with a pool and a cache of its own. Warm: one after another with one
    pool and one cache. Then one cached slot is overwritten, to show that a wrong slot would be
    noticed. Times are the best of `rounds`, in fast mode. `eviction` names the strategy. Raises
    `InvalidPageSize`, and `InvalidArgument` for pages so large that the prompts share none.
    """
    from radixlab.gpt2 import load_gpt2  # torch takes seconds to import
    from radixlab.serving import few_threads

    if page_size < 1:
        raise InvalidPageSize(page_size)
    on_progress(f"loading {source}")
    model = load_gpt2(source, device=device)
    prompts = _encode_prompts(model)
    columns = enumerate(zip(*prompts, strict=False))
    shared = next(position for position, ids in columns if len(set(ids)) > 1)
    if page_size > shared:
        allowed = f"at most {shared}, the tokens that all prompts begin with"
        raise InvalidArgument("page_size", page_size, allowed)
    with few_threads(model):
        return _prove(
            model, source, prompts, page_size, exact, eviction, new_tokens, rounds, on_progress
        )


def _prove(
    model: GPT2,
    source: str,
    prompts: list[list[int]],
    page_size: int,
    exact: bool,
    eviction: str,
    new_tokens: int,
    rounds: int,
    on_progress: Callable[[str], object],
) -> ReuseReport:
    from radixlab.runner import GPT2Runner

    longest = max(len(p) for p in prompts) + new_tokens
    num_slots = len(prompts) * (longest + page_size)
    serving = _Serving(model, page_size, num_slots, new_tokens, eviction)
    on_progress("serving cold and warm")
    cold = [serving.serve([prompt], exact)[0] for prompt in prompts]
    manager, kv = serving.new_pool()
    warm = serving.serve(prompts, exact, manager, kv)
    control = _control(serving, GPT2Runner(model, kv, exact=exact), manager, cold[-1])

    on_progress("measuring prefill times")
    times = serving.prefill_times(prompts, rounds)
    reports = [
        PromptReport(
            text=opening if model.has_tokenizer else "(a model without a tokenizer) ",
            continuation=serving.text(w.request.output),
            prompt_tokens=w.request.prompt_len,
            reused_tokens=w.request.cache_hit_len,
            computed_tokens=w.request.prompt_len - w.request.cache_hit_len,
            cold_prefill_ms=cold_ms,
            warm_prefill_ms=warm_ms,
            max_logit_difference=_difference(c.logits, w.logits),
        )
        for opening, c, w, (cold_ms, warm_ms) in zip(OPENINGS, cold, warm, times, strict=True)
    ]
    unshared = sum(manager.round_down(w.request.computed_len) for w in warm)
    return ReuseReport(
        model=source,
        device=str(model.device),
        page_size=page_size,
        exact=exact,
        prompts=reports,
        reused_tokens=sum(r.reused_tokens for r in reports),
        computed_tokens=sum(r.computed_tokens for r in reports),
        prefill_ratio=sum(w for _, w in times) / sum(c for c, _ in times),
        kv_bytes=manager.cache.total_size * kv.bytes_per_token,
        kv_bytes_unshared=unshared * kv.bytes_per_token,
        max_logit_difference=max(r.max_logit_difference for r in reports),
        control_difference=control,
        same_continuations=all(
            c.request.output == w.request.output for c, w in zip(cold, warm, strict=True)
        ),
    )


def _encode_prompts(model: GPT2) -> list[list[int]]:
    """The three prompts; for a model without a tokenizer, random ids of the same shape."""
    if model.has_tokenizer:
        return [model.encode(SYSTEM_PROMPT + opening) for opening in OPENINGS]
    system = [(7 * i) % model.config.vocab for i in range(96)]
    return [system + [(11 * i + k) % model.config.vocab for i in range(10)] for k in range(3)]


class _Serving:
    """Serves prompts on one model, each time through a whole lifecycle."""

    def __init__(
        self, model: GPT2, page_size: int, num_slots: int, new_tokens: int, eviction: str
    ) -> None:
        self.model, self.page_size, self.new_tokens = model, page_size, new_tokens
        self.eviction = eviction
        self.num_pages = -(-num_slots // page_size)

    def new_pool(self) -> tuple[CacheManager, KVPool]:
        from radixlab.kv import KVPool

        strategy = make_strategy(self.eviction)
        manager = CacheManager(self.num_pages, self.page_size, strategy=strategy, checked=True)
        kv = KVPool.for_model(self.model, manager.pool.total_size, page_size=self.page_size)
        return manager, kv

    def serve(
        self,
        prompts: Sequence[Sequence[int]],
        exact: bool,
        manager: CacheManager | None = None,
        kv: KVPool | None = None,
        new_tokens: int | None = None,
    ) -> list[_Served]:
        from radixlab.runner import GPT2Runner

        if manager is None or kv is None:
            manager, kv = self.new_pool()
        served = []
        for prompt in prompts:
            request = Request(prompt, new_tokens or self.new_tokens)
            watch = _Watch(GPT2Runner(self.model, kv, exact=exact))
            for _ in lifecycle(manager, [request], runner=watch):
                pass
            served.append(_Served(request, watch.logits, watch.seconds))
        manager.check_integrity()
        return served

    def prefill_times(
        self, prompts: Sequence[Sequence[int]], rounds: int
    ) -> list[tuple[float, float]]:
        """(cold, warm) milliseconds of each prompt's prefill: the best of all rounds, fast mode."""
        seconds = []
        for _ in range(rounds):
            cold = [self.serve([p], exact=False, new_tokens=1)[0].seconds for p in prompts]
            warm = [s.seconds for s in self.serve(prompts, exact=False, new_tokens=1)]
            seconds.append([*cold, *warm])
        best = [1000 * min(times) for times in zip(*seconds, strict=True)]
        return list(zip(best[: len(prompts)], best[len(prompts) :], strict=True))

    def text(self, token_ids: Sequence[int]) -> str:
        ids = list(token_ids)
        return self.model.decode(ids) if self.model.has_tokenizer else brief(ids)


def _control(serving: _Serving, runner: GPT2Runner, manager: CacheManager, cold: _Served) -> float:
    """Overwrite K and V of one cached slot, serve a prompt from the cache, compare with cold."""
    request = Request(cold.request.prompt)
    cached = manager.match(request).value
    runner.kv.data[:, :, cached[len(cached) // 2]] = 1.0
    watch = _Watch(runner)
    for _ in lifecycle(manager, [request], runner=watch):
        pass
    return _difference(cold.logits[:1], watch.logits[:1])


def _difference(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """The largest difference of two runs' logits, up to the first token that they draw apart."""
    largest = 0.0
    for x, y in zip(a, b, strict=True):
        largest = max(largest, float((x.float() - y.float()).abs().max()))
        if not bool((x.argmax(-1) == y.argmax(-1)).all()):
            break
    return largest
