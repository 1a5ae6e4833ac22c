"""Hugging Face's unmodified model over our page tables: the exhibit, and our forward's oracle."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Only now: without torch and transformers this file is skipped, not broken.
from radixlab.engine import Engine  # noqa: E402
from radixlab.errors import InvalidArgument  # noqa: E402
from radixlab.gpt2 import GPT2, GPT2Config, Span  # noqa: E402
from radixlab.hf import HFGPT2, PrefixCopies, hf_model  # noqa: E402
from radixlab.kv import KVPool  # noqa: E402
from radixlab.manager import CacheManager  # noqa: E402
from radixlab.request import Request  # noqa: E402
from radixlab.runner import GPT2Runner  # noqa: E402

SMALL = GPT2Config(layers=2, heads=2, width=32, context=64, vocab=50, inner=96)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def paged(tiny: GPT2) -> HFGPT2:
    return HFGPT2(hf_model(tiny))


def ids_of(count: int, seed: int = 0, vocab: int = 2048) -> torch.Tensor:
    return torch.randint(vocab, (count,), generator=torch.Generator().manual_seed(seed))


def test_a_cold_prompt_has_the_bits_of_plain_transformers(tiny: GPT2, paged: HFGPT2) -> None:
    ids, pool = ids_of(70), KVPool.for_model(tiny, 128)
    slots = torch.randperm(128, generator=torch.Generator().manual_seed(1))[:70]
    logits = paged.forward(ids, [Span(slots, 0, 70)], pool)
    plain = hf_model(tiny)
    with torch.inference_mode():
        expected = plain(ids[None], use_cache=False, logits_to_keep=1).logits[0]
    assert torch.equal(logits, expected)


def test_it_agrees_with_our_own_forward_on_packed_and_cached_requests(
    tiny: GPT2, paged: HFGPT2
) -> None:
    pools = [KVPool.for_model(tiny, 256) for _ in range(2)]
    slots = torch.randperm(256, generator=torch.Generator().manual_seed(2))
    first, second = slots[:100], torch.cat([slots[:60], slots[100:140]])
    steps = [
        (ids_of(60), [Span(first[:60], 0, 60)]),
        (ids_of(81, 1), [Span(first, 60, 100), Span(second, 60, 100), Span(slots[200:201], 0, 1)]),
    ]
    for ids, spans in steps:
        ours, theirs = (
            model.forward(ids, spans, pool)
            for model, pool in zip((tiny, paged), pools, strict=True)
        )
        assert torch.allclose(ours, theirs, atol=5e-4, rtol=0)
        assert torch.equal(ours.argmax(-1), theirs.argmax(-1))
    assert torch.allclose(pools[0].data, pools[1].data, atol=5e-4, rtol=0)


def test_the_engine_runs_on_the_unmodified_model(tiny: GPT2, paged: HFGPT2) -> None:
    shared = ids_of(50).tolist()
    outputs = []
    for model in (tiny, paged):
        manager = CacheManager(512, checked=True)
        engine = Engine(manager, GPT2Runner(model, KVPool.for_model(model, 512)))
        requests = [Request([*shared, i, i + 1], 6) for i in range(3)]
        for request in requests:
            engine.add(request)
        list(engine.stream())
        manager.check_integrity()
        assert engine.totals.cached_tokens >= 2 * 50
        outputs.append([request.output.tolist() for request in requests])
    assert outputs[0] == outputs[1]


def test_the_model_s_code_is_left_alone(paged: HFGPT2) -> None:
    """No subclass, no patched method: one registered function is the whole difference."""
    assert type(paged.model) is transformers.GPT2LMHeadModel
    for module in paged.model.modules():
        patched = [n for n, v in vars(module).items() if inspect.isroutine(v)]
        assert not patched, f"{type(module).__name__} has {patched}"


def test_weights_are_shared_and_not_copied(tiny: GPT2) -> None:
    hf = hf_model(tiny)
    embedding = hf.transformer.wte.weight
    assert embedding.data_ptr() == tiny.weights["wte.weight"].data_ptr()
    assert hf.lm_head.weight.data_ptr() == embedding.data_ptr()


def test_a_head_of_its_own_and_another_dtype_go_along() -> None:
    model = GPT2.random(SMALL, dtype=torch.bfloat16)
    head = torch.randn(50, 32, generator=torch.Generator().manual_seed(0))
    model = GPT2({**model.weights, "lm_head.weight": head}, SMALL, dtype=torch.bfloat16)
    paged = HFGPT2(hf_model(model))
    assert (paged.dtype, paged.kv_shape, paged.device) == (torch.bfloat16, (2, 2, 16), model.device)
    ids, spans = ids_of(9, vocab=50), [Span(torch.arange(9), 0, 9)]
    ours, theirs = (m.forward(ids, spans, KVPool.for_model(m, 16)) for m in (model, paged))
    assert torch.allclose(ours, theirs, atol=0.1, rtol=0.05)


def test_what_it_cannot_do_is_refused(tiny: GPT2) -> None:
    training = hf_model(tiny).train()
    with pytest.raises(InvalidArgument, match="in eval mode, got 'a model in training mode'"):
        HFGPT2(training)
    paged = HFGPT2(training.eval())
    pool, span = KVPool.for_model(tiny, 16), Span(torch.arange(4), 0, 4)
    with pytest.raises(InvalidArgument, match="exact must be False"):
        paged.forward(ids_of(4), [span], pool, exact=True)
    with pytest.raises(InvalidArgument, match="token ids must be from 0 to 2047"):
        paged.forward(torch.tensor([1, 2, 3, 2048]), [span], pool)
    assert not pool.data.any()


def test_a_pool_of_another_shape_is_refused_before_anything_is_written(paged: HFGPT2) -> None:
    layers, heads, head_dim = paged.kv_shape
    span = Span(torch.arange(4), 0, 4)
    for pool in (
        KVPool(16, layers=layers - 1, heads=heads, head_dim=head_dim),
        KVPool(16, layers=layers, heads=heads, head_dim=2 * head_dim),
        KVPool(16, layers=layers, heads=heads, head_dim=head_dim, dtype=torch.float64),
    ):
        with pytest.raises(InvalidArgument, match=r"for a HFGPT2 of 4 layers, .*, got KVPool\("):
            paged.forward(ids_of(4), [span], pool)
        assert not pool.data.any()


def test_ids_and_slots_are_integers_of_any_width(tiny: GPT2, paged: HFGPT2) -> None:
    ids, slots, pool = ids_of(4), torch.arange(4), KVPool.for_model(tiny, 16)
    for one, other in ((ids.float(), slots), (ids, slots.double())):
        with pytest.raises(InvalidArgument, match=r"must be integers, got torch.float"):
            paged.forward(one, [Span(other, 0, 4)], pool)
    assert not pool.data.any()
    expected = paged.forward(ids, [Span(slots, 0, 4)], pool)
    narrow = paged.forward(ids.int(), [Span(slots.to(torch.uint8), 0, 4)], pool)
    assert torch.equal(narrow, expected)


def test_a_runner_that_cannot_be_exact_is_refused_before_it_serves(paged: HFGPT2) -> None:
    with pytest.raises(InvalidArgument, match="exact must be False for a HFGPT2, got True"):
        GPT2Runner(paged, KVPool.for_model(paged, 16), exact=True)


def test_the_user_s_model_has_our_attention_until_it_is_given_another(tiny: GPT2) -> None:
    hf, ids = hf_model(tiny), ids_of(9)[None]
    with torch.inference_mode():
        before = hf(ids).logits
        HFGPT2(hf)
        with pytest.raises(LookupError):
            hf(ids)
        hf.set_attn_implementation("sdpa")
        assert torch.equal(hf(ids).logits, before)


def test_a_copied_prefix_gives_the_same_continuation_every_time(tiny: GPT2) -> None:
    hf, prompt = hf_model(tiny), ids_of(40).tolist()
    copies = PrefixCopies(hf, prompt[:30])
    first = copies.generate(prompt[30:], 8)
    assert copies.generate(prompt[30:], 8) == first == PrefixCopies(hf, []).generate(prompt, 8)
