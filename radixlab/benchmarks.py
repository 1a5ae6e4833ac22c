"""How much prefill a cached prefix saves, and what that does to serving, measured.

Every figure is a ratio within one run, the best of some rounds that take turns, so that a busy
machine slows all alike. transformers is the yardstick twice: its full prefill, and a deep copy of
its `DynamicCache` for each request, which is how one shares a prefix there.
"""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from radixlab.errors import InvalidArgument
from radixlab.gpt2 import GPT2, load_gpt2
from radixlab.prefix_jobs import PrefixJob, make_jobs
from radixlab.request import Request
from radixlab.scheduler import SchedulerSettings
from radixlab.serving import Served, Server, few_threads
from radixlab.weights import GPT2Config

if TYPE_CHECKING:
    from radixlab.hf import PrefixCopies

HITS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97)
NO_LIMIT = SchedulerSettings(prefill_budget=1 << 30)

Say = Callable[[str], object]


def _silent(message: str) -> None:
    return None


def prefill_flops(config: GPT2Config, new: int, cached: int = 0, rows_of_logits: int = 1) -> int:
    """Floating-point operations of `new` tokens after `cached` ones, counted as 2 per product.

    A layer multiplies each token by 4 d^2 + 2 d inner weights (24 d^2 operations where inner is
    4 d), and attends from `new` to all tokens twice, 4 d new (cached + new): the full rectangle.
    """
    d = config.width
    layer = 2 * new * (4 * d * d + 2 * d * config.inner) + 4 * d * new * (cached + new)
    return config.layers * layer + 2 * d * config.vocab * rows_of_logits


def environment(model: GPT2) -> dict[str, Any]:
    """What a figure depends on: machine, device, versions, threads."""
    cuda = model.device.type == "cuda"
    return {
        "model": repr(model),
        "device": torch.cuda.get_device_name(model.device) if cuda else platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "threads": torch.get_num_threads(),
    }


@dataclass(frozen=True)
class PrefillRow:
    """Seconds of one prefill of `tokens` tokens with `cached` of them found in the cache.

    `warm` is ours; `batch` that many requests with one prefix, packed into one pass; `copied` is
    transformers with a deep copy of the prefix's cache, one request. `kv_bytes` is what the batch
    holds in our pool, in whole pages, `kv_bytes_copied` what it holds in copies.
    """

    tokens: int
    cached: int
    flop_ratio: float
    cold: float
    warm: float
    batch: float
    full: float | None
    copied: float | None
    kv_bytes: int
    kv_bytes_copied: int

    @property
    def warm_ratio(self) -> float:
        """Warm by cold time; `flop_ratio` would be ideal."""
        return self.warm / self.cold

    @property
    def over_ideal(self) -> float:
        """How many times longer than cold time x FLOP ratio."""
        return self.warm_ratio / self.flop_ratio


@dataclass(frozen=True)
class PrefillReport:
    """What `radixlab bench prefill --json` prints; times in seconds."""

    environment: dict[str, Any]
    batch_size: int
    page_size: int
    rows: list[PrefillRow]

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists, ready for JSON."""
        rows = [
            asdict(row) | {"warm_ratio": row.warm_ratio, "over_ideal": row.over_ideal}
            for row in self.rows
        ]
        return asdict(self) | {"rows": rows}


def bench_prefill(
    source: str | GPT2 = "gpt2-random",
    *,
    tokens: Sequence[int] = (512, 1000),
    hits: Sequence[float] = HITS,
    batch_size: int = 8,
    page_size: int = 1,
    rounds: int = 5,
    compare: bool = True,
    exact: bool = False,
    dtype: torch.dtype | None = None,
    device: str | None = None,
    on_progress: Say = _silent,
) -> PrefillReport:
    """Time prefill through the whole engine, for each length and each part of it cached.

    `hits` are the parts, floored to whole pages. Each timed prompt has a rest of its own, so that
    only the prefix is found. With `compare` transformers is timed too. Raises `InvalidArgument`.
    """
    model = load_gpt2(source, dtype=dtype, device=device) if isinstance(source, str) else source
    if not all(0 <= hit < 1 for hit in hits):
        raise InvalidArgument("hits", list(hits), "parts of the prompt, from 0 to below 1")
    if not tokens or not 1 < min(tokens) <= max(tokens) <= model.config.context:
        raise InvalidArgument("tokens", list(tokens), f"from 2 to {model.config.context}")
    if not 1 <= batch_size <= NO_LIMIT.max_running:
        allowed = f"from 1 to {NO_LIMIT.max_running}, the requests that run together"
        raise InvalidArgument("batch_size", batch_size, allowed)
    _check_page(model, page_size)
    rows = []
    with few_threads(model):
        for length in tokens:
            bench = _PrefillBench(model, length, batch_size, page_size, exact, compare)
            for hit in hits:
                on_progress(f"{length} tokens, {hit:.0%} cached")
                rows.append(bench.row(int(length * hit) // page_size * page_size, rounds))
        return PrefillReport(environment(model), batch_size, page_size, rows)


def _check_page(model: GPT2, page_size: int) -> None:
    """No request could ever fill a larger page."""
    if page_size > model.config.context:
        allowed = f"at most {model.config.context}, the model's context"
        raise InvalidArgument("page_size", page_size, allowed)


class _PrefillBench:
    """All routes for prompts of one length."""

    def __init__(
        self,
        model: GPT2,
        length: int,
        batch_size: int,
        page_size: int,
        exact: bool,
        compare: bool,
    ) -> None:
        self.model, self.length, self.batch_size = model, length, batch_size
        self.server = Server(
            model,
            page_size=page_size,
            pool_tokens=(batch_size + 3) * (length + page_size),
            exact=exact,
            settings=NO_LIMIT,
        )
        self.random = random.Random(length)
        self.new_copies = _copies_of(model) if compare else None

    def row(self, cached: int, rounds: int) -> PrefillRow:
        self.server.manager.clear()
        prefix = self._ids(cached)
        if prefix:
            self._ours([[*prefix, *self._ids(1)]])
        routes: dict[str, Callable[[], float]] = {
            "cold": lambda: self._ours([self._ids(self.length)]),
            "warm": lambda: self._ours([self._after(prefix)], cached),
            "batch": lambda: self._ours([self._after(prefix) for _ in range(self.batch_size)]),
        }
        if self.new_copies is not None:
            copies, nothing = self.new_copies(prefix), self.new_copies([])
            routes["full"] = lambda: self._theirs(nothing, self._ids(self.length))
            routes["copied"] = lambda: self._theirs(copies, self._ids(self.length - cached))
        best = dict.fromkeys(routes, float("inf"))
        for _ in range(rounds + 1):  # the first of them warms up
            for name, route in routes.items():
                best[name] = min(best[name], route())
        bytes_per_token = self.server.runner.kv.bytes_per_token
        own = self.server.manager.round_up(self.length) - cached
        ideal = prefill_flops(self.model.config, self.length - cached, cached)
        return PrefillRow(
            tokens=self.length,
            cached=cached,
            flop_ratio=ideal / prefill_flops(self.model.config, self.length),
            cold=best["cold"],
            warm=best["warm"],
            batch=best["batch"],
            full=best.get("full"),
            copied=best.get("copied"),
            kv_bytes=bytes_per_token * (cached + self.batch_size * own),
            kv_bytes_copied=bytes_per_token * self.batch_size * self.length,
        )

    def _ids(self, count: int) -> list[int]:
        return [self.random.randrange(self.model.config.vocab) for _ in range(count)]

    def _after(self, prefix: list[int]) -> list[int]:
        return prefix + self._ids(self.length - len(prefix))

    def _ours(self, prompts: list[list[int]], cached: int | None = None) -> float:
        engine = self.server.new_engine()
        requests = [Request(prompt) for prompt in prompts]
        with _stopwatch(self.model.device) as seconds:
            for request in requests:
                engine.add(request)
            for _ in engine.stream():
                pass
        found = engine.totals.cached_tokens
        # A random rest may begin like another's: by some tokens of many, and rarely.
        assert cached is None or cached <= found < cached + 8, f"{found} cached, not {cached}"
        return seconds()

    def _theirs(self, copies: PrefixCopies, ids: list[int]) -> float:
        with _stopwatch(self.model.device) as seconds:
            copies.generate(ids, 1)
        return seconds()


def _copies_of(model: GPT2) -> Callable[[Sequence[int]], PrefixCopies]:
    from radixlab.hf import PrefixCopies, hf_model  # transformers takes seconds to import

    hf = hf_model(model)
    return lambda prefix: PrefixCopies(hf, prefix)


@contextmanager
def _stopwatch(device: torch.device) -> Iterator[Callable[[], float]]:
    """Time the block, on a GPU until all of it has run."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    start, end = now(), 0.0
    yield lambda: end - start
    end = now()


@dataclass(frozen=True)
class ServeRow:
    """One way to serve the workload; `seconds` from the first request to the last token."""

    name: str
    seconds: float
    requests_per_second: float
    same_tokens: bool
    cached_tokens: int | None = None
    computed_tokens: int | None = None
    time_to_first_token: float | None = None
    tree_share: float | None = None
    peak_slots: int | None = None
    kv_bytes: int | None = None


@dataclass(frozen=True)
class ServeReport:
    """What `radixlab bench serve --json` prints.

    `same_tokens` of a row: it wrote what the first row wrote. `time_to_first_token` is the mean,
    `kv_bytes` what the cache holds at the end.
    """

    environment: dict[str, Any]
    requests: int
    prompt_tokens: int
    page_size: int
    exact: bool
    rows: list[ServeRow] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists, ready for JSON."""
        return asdict(self)


def bench_serve(
    source: str | GPT2 = "tiny",
    *,
    workload: Sequence[PrefixJob] | None = None,
    page_size: int = 1,
    rounds: int = 3,
    compare: bool = True,
    exact: bool = False,
    policy: str = "fcfs",
    dtype: torch.dtype | None = None,
    device: str | None = None,
    on_progress: Say = _silent,
) -> ServeReport:
    """Serve a workload that arrives all at once: with our cache, without, and transformers' way.

    Each time with an empty cache. transformers, with `compare`, takes one request after another,
    and copies the cache of its prefix, which it computes once. Raises `InvalidArgument`.
    """
    model = load_gpt2(source, dtype=dtype, device=device) if isinstance(source, str) else source
    _check_page(model, page_size)
    jobs = make_jobs(model.config.vocab) if workload is None else list(workload)
    pool = sum(len(job.prompt) + job.max_new + page_size for job in jobs)
    names = {"radixlab": True, "radixlab without a cache": False}
    servers = {
        name: Server(
            model, cache=cache, page_size=page_size, pool_tokens=pool, exact=exact, policy=policy
        )
        for name, cache in names.items()
    }
    best: dict[str, tuple[float, list[list[int]], Served | None]] = {}
    new_copies = _copies_of(model) if compare else None
    with few_threads(model):
        for number in range(rounds):
            on_progress(f"round {number + 1} of {rounds}")
            for name, server in servers.items():
                _keep_best(best, name, _serve_ours(server, jobs))
            if new_copies is not None:
                run = _serve_copies(new_copies, model, jobs)
                _keep_best(best, "transformers, copied prefix", run)
        report = ServeReport(
            environment(model), len(jobs), sum(len(job.prompt) for job in jobs), page_size, exact
        )
    wanted = next(iter(best.values()))[1]
    for name, (seconds, tokens, served) in best.items():
        report.rows.append(_serve_row(name, seconds, tokens == wanted, len(jobs), served))
    return report


_Run = tuple[float, list[list[int]], Served | None]


def _keep_best(best: dict[str, _Run], name: str, run: _Run) -> None:
    if name not in best or run[0] < best[name][0]:
        best[name] = run


def _serve_ours(server: Server, jobs: Sequence[PrefixJob]) -> _Run:
    server.manager.clear()
    with _stopwatch(server.model.device) as seconds:
        served = server.serve([job.prompt for job in jobs], [job.max_new for job in jobs])
    return seconds(), [result.tokens for result in served], served


def _serve_copies(
    new_copies: Callable[[Sequence[int]], PrefixCopies], model: GPT2, jobs: Sequence[PrefixJob]
) -> _Run:
    prefixes: dict[int, PrefixCopies] = {}
    outputs = []
    with _stopwatch(model.device) as seconds:
        for job in jobs:
            if job.prefix not in prefixes:
                prefixes[job.prefix] = new_copies(job.prompt[: job.prefix_len])
            rest = job.prompt[job.prefix_len :]
            outputs.append(prefixes[job.prefix].generate(rest, job.max_new))
    return seconds(), outputs, None


def _serve_row(
    name: str, seconds: float, same: bool, count: int, served: Served | None
) -> ServeRow:
    if served is None:
        return ServeRow(name, seconds, count / seconds, same)
    totals = served.totals
    waits = [result.record.time_to_first_token or 0.0 for result in served]
    return ServeRow(
        name,
        seconds,
        count / seconds,
        same,
        cached_tokens=totals.cached_tokens,
        computed_tokens=totals.computed_tokens,
        time_to_first_token=sum(waits) / count,
        tree_share=totals.tree_share,
        peak_slots=totals.peak_slots,
        kv_bytes=served.kv_bytes,
    )
