"""GPT-2 served by the engine: transformers' tokens, the same bits in any company, no leak."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Only now: without torch and transformers this file is skipped, not broken.
import radixlab  # noqa: E402
from radixlab.demo import SYSTEM_PROMPT  # noqa: E402
from radixlab.engine import Engine, Token  # noqa: E402
from radixlab.errors import (  # noqa: E402
    EmptyPrompt,
    InvalidArgument,
    InvalidPageSize,
    RequestTooLong,
)
from radixlab.eviction import LRU  # noqa: E402
from radixlab.gpt2 import GPT2, GPT2Config  # noqa: E402
from radixlab.policies import POLICIES  # noqa: E402
from radixlab.request import Request, RequestState, Sampling  # noqa: E402
from radixlab.sampling import draw_tokens  # noqa: E402
from radixlab.scheduler import Chunk, SchedulerSettings  # noqa: E402
from radixlab.serving import Server, serve  # noqa: E402
from radixlab.strategies import STRATEGIES  # noqa: E402
from radixlab.tokens import Namespace  # noqa: E402

SMALL = GPT2Config(layers=3, heads=2, width=32, context=96, vocab=60, inner=64)
TEXTS = [
    "It is a truth universally acknowledged, that a single man",
    "It is a truth universally acknowledged, that a married woman",
    "It is a truth universally acknowledged",
    "Emma Woodhouse, handsome, clever, and rich, with a comfortable home",
    "No",
]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def small() -> GPT2:
    return GPT2.random(SMALL, seed=1)


def generate(hf, ids: list[int], new: int) -> list[int]:
    out = hf.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids)),
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return out[0, len(ids) :].tolist()


def ids(length: int, seed: int = 0, vocab: int = SMALL.vocab) -> list[int]:
    return random.Random(seed).choices(range(vocab), k=length)


class Watch:
    """The runner's logits of every token that counts, by request; may be told to fail."""

    def __init__(self, server: Server) -> None:
        self.runner, self.logits = server.runner, {}
        server.runner = self

    def prefill(self, chunks: Sequence[Chunk]) -> list[int]:
        tokens = self.runner.prefill(chunks)
        self.keep([c.request for c in chunks], [c.end == c.request.num_tokens for c in chunks])
        return tokens

    def decode(self, requests: Sequence[Request]) -> list[int]:
        tokens = self.runner.decode(requests)
        self.keep(requests, [True] * len(requests))
        return tokens

    def keep(self, requests: Sequence[Request], counts: Sequence[bool]) -> None:
        for request, row, count in zip(requests, self.runner.last_logits, counts, strict=True):
            if count:
                self.logits.setdefault(request.request_id, []).append(row)

    @property
    def kv(self):
        return self.runner.kv


def watched(model: GPT2, requests: list[Request], **settings) -> tuple[Engine, Watch]:
    """An engine with all requests in its queue."""
    options = {k: settings.pop(k) for k in ("page_size", "pool_tokens") if k in settings}
    cache = settings.pop("cache", True)
    server = Server(
        model, exact=True, cache=cache, settings=SchedulerSettings(**settings), **options
    )
    watch = Watch(server)
    engine = server.new_engine()
    for request in requests:
        engine.add(request)
    return engine, watch


def alone(model: GPT2, request: Request) -> list[torch.Tensor]:
    """The logits of the request in an engine, a pool and a cache of its own."""
    copy = Request(request.prompt, request.max_new_tokens, request_id="alone")
    engine, watch = watched(model, [copy], cache=False, pool_tokens=96)
    list(engine.stream())
    return watch.logits["alone"]


def assert_same_bits(watch: Watch, model: GPT2, requests: list[Request]) -> None:
    for request in requests:
        expected = alone(model, request)
        for ours, theirs in zip(watch.logits[request.request_id], expected, strict=True):
            assert torch.equal(ours, theirs)


def assert_idle(engine: Engine) -> None:
    manager = engine.manager
    manager.check_integrity()
    assert not engine.busy and not manager.running
    assert manager.pool.free_size + manager.cache.evictable_size == manager.pool.total_size


# --- the same tokens, the same bits -----------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("cache", [True, False])
def test_01_served_tokens_are_those_of_transformers(
    tiny: GPT2, hf_tiny, page_size: int, cache: bool
) -> None:
    """RadixAttention changes no formula, so greedy `generate` writes the same."""
    new, texts = [12, 7, 9, 5, 8], [SYSTEM_PROMPT[:300] + text for text in TEXTS]
    served = serve(tiny, texts, new, page_size=page_size, cache=cache, exact=True)
    for text, count, result in zip(texts, new, served, strict=True):
        assert result.tokens == generate(hf_tiny, tiny.encode(text), count)
        assert result.text == tiny.decode(result.tokens)
    assert (served.totals.cached_tokens > 0) is cache
    assert (served.kv_bytes > 0) is cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"page_size": 8},
        {"prefill_budget": 7},
        {"prefill_budget": 40, "page_size": 4},
        {"max_running": 2, "in_batch_check": -1},
        {"cache": False},
    ],
    ids=str,
)
def test_14_in_exact_mode_logits_have_the_bits_of_a_request_alone(dtype, settings) -> None:
    """Cached, chunked, batched, in a pool that must evict: never a bit of difference."""
    model = GPT2.random(SMALL, seed=1, dtype=dtype)
    shared = ids(40)
    requests = [Request([*shared, *ids(5 + 3 * i, i)], 4 + i) for i in range(4)]
    requests += [Request(shared, 3), Request(ids(1, 9), 6)]
    engine, watch = watched(model, requests, pool_tokens=160, **settings)
    for _ in engine.stream():
        engine.manager.check_integrity()
    assert_same_bits(watch, model, requests)
    assert_idle(engine)


def test_03_a_prompt_that_is_cached_whole_still_has_its_logits(small: GPT2) -> None:
    server = Server(small, exact=True)
    first, second = (server.serve([ids(40)], 5)[0] for _ in range(2))
    assert second.tokens == first.tokens
    assert second.record.cached_tokens == 39, "the last token is computed, for its logits"
    assert second.record.computed_tokens == 1 + 4


def test_11_identical_prompts_in_one_step_share(small: GPT2) -> None:
    prompt = ids(50)
    served = serve(small, [prompt] * 5, 3, exact=True)
    assert [result.record.cached_tokens for result in served] == [0, 49, 49, 49, 49]
    assert len({tuple(result.tokens) for result in served}) == 1
    assert served.totals.prefilled_tokens == 50 + 4


def test_12_a_chat_s_second_turn_hits_prompt_and_output(tiny: GPT2) -> None:
    server = Server(tiny, exact=True)
    turn = tiny.encode("Reader: Who is Emma?\nAuthor:")
    answer = server.serve([turn], 10)[0].tokens
    following = [*turn, *answer, *tiny.encode("\nReader: And Harriet?\nAuthor:")]
    second = server.serve([following], 4)[0]
    assert second.record.cached_tokens == len(turn) + 9, "the last token drawn was never computed"


def test_13_a_template_that_drops_the_thoughts_hits_up_to_them_only(tiny: GPT2) -> None:
    """What is compared is what the model will read: the rendered ids of the next turn."""
    server = Server(tiny, exact=True)
    turn = tiny.encode("Reader: Who is Emma?\nAuthor:")
    thoughts, answer = tiny.encode(" (She thinks.)"), tiny.encode(" A young lady.")
    server.serve([[*turn, *thoughts, *answer]], 1)
    following = [*turn, *answer, *tiny.encode("\nReader:")]
    cached = server.serve([following], 1)[0].record.cached_tokens
    assert len(turn) <= cached < len(turn) + len(answer)


def test_15_cached_tokens_have_no_logits(small: GPT2) -> None:
    """Whoever wants the logits of all positions must have them computed: without the cache."""
    prompt = ids(30)
    engine, watch = watched(small, [Request(prompt, 1), Request(prompt, 1)])
    list(engine.stream())
    assert all(len(rows) == 1 for rows in watch.logits.values()), "one row for each pass"


def test_a_salted_namespace_hits_only_itself(small: GPT2) -> None:
    server = Server(small)
    server.serve([ids(30)], 1, namespace=Namespace(salt="a"))
    for salt, cached in (("b", 0), ("a", 29)):
        again = server.serve([ids(30)], 1, namespace=Namespace(salt=salt))
        assert again[0].record.cached_tokens == cached


# --- what may go wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 6, 8])
def test_an_abort_leaves_the_others_logits_and_no_leak(small: GPT2, steps: int) -> None:
    """In the queue, in the middle of a chunked prefill, while decoding; the pool is tight."""
    shared = ids(32)
    others = [Request([*shared, *ids(4, i)], 5) for i in (1, 2)]
    victim = Request([*shared, *ids(40, 7)], 9)
    requests = [victim, *others]
    engine, watch = watched(small, requests, prefill_budget=16, pool_tokens=128, page_size=4)
    for _ in range(steps):
        engine.step()
    engine.abort(victim)
    engine.manager.check_integrity()
    for _ in engine.stream():
        engine.manager.check_integrity()
    assert_same_bits(watch, small, others)
    assert_idle(engine)


@pytest.mark.parametrize("layer", range(SMALL.layers))
@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_an_exception_in_a_layer_leaves_pool_and_tree_intact(
    small: GPT2, layer: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the pass number `after` on, one request can't be computed past this layer."""
    shared = ids(20)
    requests = [Request([*shared, *ids(6, i)], 6) for i in range(4)]
    victim = requests[1]
    engine, watch = watched(small, requests, pool_tokens=200)
    kv, write, passes = watch.kv, watch.kv.write, []

    def failing(number: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        passes.append(number)
        mine = set(victim.page_table[victim.computed_len :]) if victim.page_table else set()
        if number == layer and len(passes) > 3 * after and mine & set(slots.tolist()):
            raise RuntimeError("out of memory")
        write(number, slots, k, v)

    monkeypatch.setattr(kv, "write", failing)
    for _ in engine.stream():
        engine.manager.check_integrity()
    assert victim.state is RequestState.ABORTED
    assert str(engine.records[victim].error) == "out of memory"
    others = [r for r in requests if r is not victim]
    assert all(len(r.output) == 6 for r in others)
    monkeypatch.setattr(kv, "write", write)
    for request in others:
        watch.logits[request.request_id] = watch.logits[request.request_id][-6:]
    assert_same_bits(watch, small, others)
    assert_idle(engine)


def test_a_prompt_that_the_model_fails_for_is_named_in_a_warning(
    small: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(small)
    compute = server.runner.prefill

    def stumble(chunks: Sequence[Chunk]) -> list[int]:
        if any(chunk.request.prompt_len == 4 for chunk in chunks):
            raise ArithmeticError("not this one")
        return compute(chunks)

    monkeypatch.setattr(server.runner, "prefill", stumble)
    with pytest.warns(RuntimeWarning, match=r"failed for prompts \[1\]; .*not this one"):
        served = server.serve([[1, 2, 3], [1, 2, 3, 4]], 2)
    assert [len(result.tokens) for result in served] == [2, 0]
    assert "not this one" in served[1].to_dict()["error"]


def test_a_token_id_beyond_the_vocabulary_is_refused_before_anything_runs(small: GPT2) -> None:
    server = Server(small)
    with pytest.raises(InvalidArgument, match=r"prompt 1's largest token id .* 60, got 60"):
        server.serve([[1, 2, 3], [1, 2, SMALL.vocab]], 2)
    assert not server.manager.cache.total_size and not server.manager.running


def test_a_callback_that_raises_leaves_the_server_usable(small: GPT2) -> None:
    server = Server(small, pool_tokens=96)

    def hang_up(token: Token) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        server.serve([ids(30), ids(20, 1)], 5, on_token=hang_up)
    server.manager.check_integrity()
    assert not server.manager.running
    assert len(server.serve([ids(30)], 5)[0].tokens) == 5


def test_what_cannot_be_served_is_refused_before_anything_runs(small: GPT2) -> None:
    server = Server(small, pool_tokens=50)
    with pytest.raises(RequestTooLong, match="needs 51 slots; the pool has 50"):
        server.serve([ids(5), ids(50)], 2)
    with pytest.raises(RequestTooLong, match="needs 97 positions; the context has 96"):
        serve(small, [ids(90)], 8)
    with pytest.raises(EmptyPrompt):
        server.serve([ids(5), []], 2)
    with pytest.raises(InvalidArgument, match="one number, or one for each of the 2 prompts"):
        server.serve([ids(5), ids(6)], [1])
    with pytest.raises(InvalidArgument, match="max_new_tokens must be an integer, 1 or more"):
        server.serve([ids(5), ids(6)], 1.5)  # type: ignore[arg-type]  # on purpose
    for sampling in (1.0, 0, "hot"):
        with pytest.raises(InvalidArgument, match="sampling must be a Sampling, or None"):
            server.serve([ids(5)], 2, sampling=sampling)  # type: ignore[arg-type]  # on purpose
    for prompts, kind in (("one text", "str"), (b"1234", "bytes"), (None, "NoneType"), (5, "int")):
        with pytest.raises(InvalidArgument, match=f"must be a list of prompts, got '{kind}'"):
            server.serve(prompts, 2)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidArgument, match="a sequence of token ids, not one int, got 5"):
        server.serve([ids(5)], 2, stop_token_ids=5)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidArgument, match="policy must be one of fcfs"):
        Server(small, policy="fifo")
    with pytest.raises(InvalidArgument, match="eviction must be one of lru"):
        Server(small, strategy="clock")
    for strategy in (5, None, [], LRU):
        with pytest.raises(InvalidArgument, match="strategy must be an EvictionStrategy, or the"):
            Server(small, strategy=strategy)  # type: ignore[arg-type]  # on purpose
    for size in (0, -1, "1", 1.0, None):
        with pytest.raises(InvalidPageSize, match="page_size must be a positive integer, got"):
            Server(small, page_size=size)  # type: ignore[arg-type]  # on purpose
    for tokens in (0, -1, "1", 64.0):
        with pytest.raises(InvalidArgument, match="pool_tokens must be an integer, 1 or more, got"):
            Server(small, pool_tokens=tokens)  # type: ignore[arg-type]  # on purpose
    assert server.manager.pool.free_size == 50


@pytest.mark.parametrize(("policy", "strategy"), [*zip(POLICIES, cycle(STRATEGIES), strict=False)])
def test_every_policy_and_strategy_serves_the_same_tokens(
    small: GPT2, policy: str, strategy: str
) -> None:
    prompts = [[*ids(20), i, i + 1] for i in range(6)]
    expected = [result.tokens for result in serve(small, prompts, 3, exact=True)]
    served = serve(small, prompts, 3, exact=True, pool_tokens=40, policy=policy, strategy=strategy)
    assert [result.tokens for result in served] == expected
    assert served.totals.cached_tokens > 0


# --- drawing ----------------------------------------------------------------------------------


def test_a_seeded_draw_does_not_depend_on_the_batch(small: GPT2) -> None:
    shared = ids(20)
    sampling = Sampling(temperature=1.5, top_p=0.9, seed=7)
    prompts = [[*shared, *ids(3, i)] for i in range(6)]
    together = serve(small, prompts, 8, exact=True, sampling=sampling)
    chunked = serve(
        small,
        prompts,
        8,
        exact=True,
        sampling=sampling,
        cache=False,
        settings=SchedulerSettings(prefill_budget=9, max_running=3),
    )
    for i, prompt in enumerate(prompts):
        own = Sampling(temperature=1.5, top_p=0.9, seed=7 + i)
        (one,) = serve(small, [prompt], 8, exact=True, sampling=own)
        assert one.tokens == together[i].tokens == chunked[i].tokens
    assert len({tuple(result.tokens) for result in together}) > 1


def test_the_same_prompt_is_continued_differently_by_each_seed(small: GPT2) -> None:
    served = serve(small, [ids(10)] * 8, 6, sampling=Sampling(temperature=2.0))
    assert len({tuple(result.tokens) for result in served}) == 8


def test_draws_have_the_chances_that_temperature_and_top_p_give() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0]).expand(4000, 4)

    def shares(sampling: Sampling) -> torch.Tensor:
        requests = [
            Request([1], sampling=Sampling(sampling.temperature, sampling.top_p, seed))
            for seed in range(4000)
        ]
        return torch.bincount(torch.tensor(draw_tokens(logits, requests)), minlength=4) / 4000

    for temperature in (0.5, 1.0, 3.0):
        expected = (logits[0] / temperature).softmax(0)
        assert (shares(Sampling(temperature)) - expected).abs().max() < 0.03
    nucleus = logits[0].softmax(0) * torch.tensor([0, 1, 1, 0])  # 0.64 + 0.24 reach 0.8
    assert (shares(Sampling(1.0, 0.8)) - nucleus / nucleus.sum()).abs().max() < 0.03
    assert shares(Sampling(1.0, 0.1))[2] == 1, "the likeliest token is always there"


def test_each_draw_of_a_request_is_another() -> None:
    request = Request([1], 50, sampling=Sampling(seed=5))
    for _ in range(50):
        request.output.extend(draw_tokens(torch.zeros(1, 1000), [request]))
    assert len(set(request.output)) > 40


def test_greedy_and_sampled_requests_share_a_batch(small: GPT2) -> None:
    logits = torch.randn(3, 60, generator=torch.Generator().manual_seed(0))
    mixed = [Request([1]), Request([1], sampling=Sampling(seed=3)), Request([1])]
    greedy = logits.argmax(-1).tolist()
    drawn = draw_tokens(logits, mixed)
    assert (drawn[0], drawn[2]) == (greedy[0], greedy[2])
    assert drawn[1] == draw_tokens(logits[1:2], mixed[1:2])[0]


# --- the facade -------------------------------------------------------------------------------


def test_tokens_are_streamed_as_they_are_drawn(small: GPT2) -> None:
    heard: list[Token] = []
    served = radixlab.serve(small, [ids(4), ids(5, 1)], 3, on_token=heard.append, progress=True)
    assert len(heard) == 6
    for result in served:
        mine = [token.token for token in heard if token.request is result.record.request]
        assert mine == result.tokens


def test_prompts_and_stop_tokens_may_come_from_a_generator(small: GPT2) -> None:
    prompts = [ids(6), ids(7, 1)]
    full = [result.tokens for result in serve(small, prompts, 12)]
    assert [r.tokens for r in serve(small, (p for p in prompts), 12)] == full
    stop = full[0][4]
    stopped = serve(small, iter(prompts), [12, 12], stop_token_ids=iter([stop]))
    for result, tokens in zip(stopped, full, strict=True):
        assert result.tokens == tokens[: tokens.index(stop) + 1 if stop in tokens else 12]


def test_stop_tokens_end_a_text_early(small: GPT2) -> None:
    full = serve(small, [ids(6)], 12)[0].tokens
    short = serve(small, [ids(6)], 12, stop_token_ids=[full[4]])[0].tokens
    assert short == full[: full.index(full[4]) + 1]


def test_a_result_is_plain_data(small: GPT2) -> None:
    result = serve(small, [ids(6)], 3)[0]
    data = result.to_dict()
    assert data["tokens"] == result.tokens and data["text"] is None
    assert (data["prompt_tokens"], data["cached_tokens"], data["computed_tokens"]) == (6, 0, 8)
    assert 0 <= data["queue_time"] < data["time_to_first_token"]
    assert data["time_per_output_token"] > 0 and data["error"] is None


@pytest.mark.parametrize("page_size", [1, 16])
def test_64_requests_hold_exactly_their_unique_tokens_or_pages(small: GPT2, page_size: int) -> None:
    """600 shared tokens, 20 of its own each: one copy of the prefix, and of no page twice."""
    config = GPT2Config(layers=1, heads=1, width=16, context=1024, vocab=5000, inner=16)
    model = GPT2.random(config)
    shared = ids(600, vocab=5000)
    prompts = [[*shared, 4000 + i, *ids(19, i, 4000)] for i in range(64)]
    served = serve(model, prompts, 1, page_size=page_size)
    whole = {tuple(p[: end + page_size]) for p in prompts for end in range(0, 620, page_size)}
    pages = {page for page in whole if len(page) % page_size == 0}
    assert served.kv_bytes == len(pages) * page_size * (2 * 16 * 4)
    if page_size == 1:
        assert served.kv_bytes == (600 + 64 * 20) * 128
