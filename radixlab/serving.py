"""Prompts in, continuations out: the engine with a GPT-2, a pool and a tokenizer around it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from radixlab.engine import Engine, Record, Token, Totals
from radixlab.errors import InvalidArgument, InvalidPageSize
from radixlab.eviction import EvictionStrategy
from radixlab.gpt2 import GPT2, load_gpt2
from radixlab.kv import KVPool
from radixlab.manager import CacheManager
from radixlab.policies import make_policy
from radixlab.request import Request, Sampling
from radixlab.runner import GPT2Runner
from radixlab.scheduler import SchedulePolicy, SchedulerSettings
from radixlab.strategies import make_strategy
from radixlab.tokens import Namespace, TokenIds, decode, encode

__all__ = ["Result", "Sampling", "Served", "Server", "few_threads", "serve"]

DEFAULT_CONTEXTS = 16  # how many full contexts a pool holds unless `pool_tokens` says otherwise

Prompt = str | TokenIds


@dataclass(frozen=True)
class Result:
    """What became of one prompt. `text` is None for a model without a tokenizer.

    `record` has the times and the cached and computed tokens; its `error` says why there are fewer
    tokens than asked for, if the model failed.
    """

    tokens: list[int]
    text: str | None
    record: Record

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self.record.request.prompt_len

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; times in seconds."""
        record = self.record
        return {
            "text": self.text,
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "computed_tokens": record.computed_tokens,
            "queue_time": record.queue_time,
            "time_to_first_token": record.time_to_first_token,
            "time_per_output_token": record.time_per_output_token,
            "error": None if record.error is None else repr(record.error),
        }


@dataclass(frozen=True)
class Served:
    """The results in the order of the prompts, and what serving them took in all."""

    results: list[Result]
    totals: Totals
    kv_bytes: int
    """Bytes of K and V that the cache holds at the end."""

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Result:
        return self.results[index]


class Server:
    """A model with a pool and a cache that outlive a call, so that a later prompt hits them.

    `model` is a `GPT2` or what `load_gpt2` takes. `pool_tokens` (default: 16 full contexts) is
    rounded up to whole pages. `cache=False` computes every prompt in full. `exact` makes a
    request's tokens and logits the same bits whatever is cached and whoever shares the batch.
    `policy` (a name in `radixlab.policies.POLICIES`) says who runs next, `strategy` (a name in
    `radixlab.strategies.STRATEGIES`) what is evicted; either may be your own. `settings` are the
    scheduler's. Raises `InvalidArgument`, `InvalidPageSize`.
    """

    def __init__(
        self,
        model: GPT2 | str = "tiny",
        *,
        cache: bool = True,
        page_size: int = 1,
        pool_tokens: int | None = None,
        exact: bool = False,
        policy: str | SchedulePolicy = "fcfs",
        strategy: str | EvictionStrategy = "lru",
        settings: SchedulerSettings | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.model = model if isinstance(model, GPT2) else load_gpt2(model, device=device)
        self.policy = make_policy(policy) if isinstance(policy, str) else policy
        settings = settings or SchedulerSettings()
        self.settings = replace(settings, cache=cache and settings.cache)
        context = self.model.config.context
        if pool_tokens is None:
            pool_tokens = DEFAULT_CONTEXTS * context
        if type(pool_tokens) is not int or pool_tokens < 1:
            raise InvalidArgument("pool_tokens", pool_tokens, "an integer, 1 or more")
        if type(page_size) is not int or page_size < 1:
            raise InvalidPageSize(page_size)
        evicts = make_strategy(strategy) if isinstance(strategy, str) else strategy
        if isinstance(evicts, type) or not hasattr(evicts, "counts_hits"):
            raise InvalidArgument("strategy", strategy, "an EvictionStrategy, or the name of one")
        self.manager = CacheManager(-(-pool_tokens // page_size), page_size, strategy=evicts)
        kv = KVPool.for_model(self.model, self.manager.pool.total_size, page_size)
        self.runner = GPT2Runner(self.model, kv, exact=exact)

    def new_engine(self) -> Engine:
        """An engine of its own records and totals over the server's cache."""
        return Engine(
            self.manager,
            self.runner,
            policy=self.policy,
            settings=self.settings,
            context=self.model.config.context,
        )

    def serve(
        self,
        prompts: Iterable[Prompt],
        max_new_tokens: int | Sequence[int] = 16,
        *,
        sampling: Sampling | None = None,
        stop_token_ids: Iterable[int] = (),
        namespace: Namespace | None = None,
        progress: bool = False,
        on_token: Callable[[Token], object] = lambda token: None,
    ) -> Served:
        """Serve all prompts at once, and return when the last one is done.

        A prompt is text or token ids. `max_new_tokens` is for all, or one number for each. With
        `sampling` prompt i draws with the seed plus i, else greedily. `progress` shows a bar;
        `on_token` hears each token as it is drawn. All prompts are checked before any runs:
        `RequestTooLong`, `EmptyPrompt`, `InvalidTokenId`, `InvalidArgument`, `NoTokenizer`. A
        warning names the prompts that the model failed for.
        """
        requests = self._requests(prompts, max_new_tokens, sampling, stop_token_ids, namespace)
        engine = self.new_engine()
        records = [engine.add(request) for request in requests]
        try:
            with few_threads(self.model), _bar(progress, requests) as advance:
                for token in engine.stream():
                    advance(token)
                    on_token(token)
        finally:
            for request in [r for r in requests if r in self.manager.running]:
                engine.abort(request)
        self._warn(records)
        results = [self._result(record) for record in records]
        kv_bytes = self.manager.cache.total_size * self.runner.kv.bytes_per_token
        return Served(results, engine.totals, kv_bytes)

    def _requests(
        self,
        prompts: Iterable[Prompt],
        max_new_tokens: int | Sequence[int],
        sampling: Sampling | None,
        stop_token_ids: Iterable[int],
        namespace: Namespace | None,
    ) -> list[Request]:
        if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Iterable):
            raise InvalidArgument("prompts", type(prompts).__name__, "a list of prompts")
        prompts = list(prompts)
        if not isinstance(max_new_tokens, Sequence):
            max_new_tokens = [max_new_tokens] * len(prompts)
        if len(max_new_tokens) != len(prompts):
            allowed = f"one number, or one for each of the {len(prompts)} prompts"
            raise InvalidArgument("max_new_tokens", f"{len(max_new_tokens)} numbers", allowed)
        stop = encode(stop_token_ids)
        requests = [
            Request(
                self.model.encode(prompt) if isinstance(prompt, str) else prompt,
                new,
                namespace=namespace,
                stop_token_ids=stop,
                sampling=_with_seed(sampling, i),
            )
            for i, (prompt, new) in enumerate(zip(prompts, max_new_tokens, strict=True))
        ]
        vocab = self.model.config.vocab
        for number, request in enumerate(requests):
            if (most := max(decode(request.prompt))) >= vocab:
                name = f"prompt {number}'s largest token id"
                raise InvalidArgument(name, most, f"below the vocabulary of {vocab}")
        return requests

    def _result(self, record: Record) -> Result:
        tokens = record.request.output.tolist()
        text = self.model.decode(tokens) if self.model.has_tokenizer else None
        return Result(tokens, text, record)

    def _warn(self, records: Sequence[Record]) -> None:
        failed = [i for i, record in enumerate(records) if record.error is not None]
        if failed:
            first = records[failed[0]].error
            message = f"the model failed for prompts {failed}; the first error: {first!r}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)


def _with_seed(sampling: Sampling | None, more: int) -> Sampling | None:
    """With a seed of its own for each prompt; whatever is no Sampling, `Request` refuses."""
    if not isinstance(sampling, Sampling):
        return sampling
    return replace(sampling, seed=sampling.seed + more)


def serve(
    model: GPT2 | str,
    prompts: Iterable[Prompt],
    max_new_tokens: int | Sequence[int] = 16,
    *,
    cache: bool = True,
    page_size: int = 1,
    pool_tokens: int | None = None,
    exact: bool = False,
    policy: str | SchedulePolicy = "fcfs",
    strategy: str | EvictionStrategy = "lru",
    settings: SchedulerSettings | None = None,
    sampling: Sampling | None = None,
    stop_token_ids: Iterable[int] = (),
    progress: bool = False,
    on_token: Callable[[Token], object] = lambda token: None,
) -> Served:
    """Serve prompts with a new pool and an empty cache: see `Server` and `Server.serve`."""
    server = Server(
        model,
        cache=cache,
        page_size=page_size,
        pool_tokens=pool_tokens,
        exact=exact,
        policy=policy,
        strategy=strategy,
        settings=settings,
    )
    return server.serve(
        prompts,
        max_new_tokens,
        sampling=sampling,
        stop_token_ids=stop_token_ids,
        progress=progress,
        on_token=on_token,
    )


@contextmanager
def few_threads(model: GPT2) -> Iterator[None]:
    """One thread for a small model: its matrices take less time than threads to meet."""
    before = torch.get_num_threads()
    if model.config.width < 512:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _bar(show: bool, requests: Sequence[Request]) -> Iterator[Callable[[Token], object]]:
    """A progress bar of tokens drawn, if wanted; yields what moves it on."""
    if not show:
        yield lambda token: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TextColumn("tokens")) as progress:
        task = progress.add_task("serving", total=sum(r.max_new_tokens for r in requests))
        yield lambda token: progress.advance(task)
