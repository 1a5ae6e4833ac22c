"""The model runner: requests over a cache manager in, next tokens out."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Only now: without torch and transformers this file is skipped, not broken.
from radixlab.errors import InvalidArgument  # noqa: E402
from radixlab.gpt2 import GPT2  # noqa: E402
from radixlab.kv import KVPool  # noqa: E402
from radixlab.manager import CacheManager  # noqa: E402
from radixlab.request import Request  # noqa: E402
from radixlab.runner import GPT2Runner  # noqa: E402
from radixlab.scheduler import Chunk  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def serve(runner: GPT2Runner, manager: CacheManager, prompts, new_tokens: int, chunk: int = 10**6):
    """Prefill in chunks and decode all prompts at once; their outputs and last prefill's logits."""
    requests = [Request(ids, new_tokens) for ids in prompts]
    logits = []
    for request in requests:
        assert manager.admit(request)
        manager.allocate(request, request.prompt_len)
        while request.computed_len < request.prompt_len:
            end = min(request.computed_len + chunk, request.prompt_len)
            (token,) = runner.prefill([Chunk(request, request.computed_len, end)])
            request.computed_len = end
        logits.append(runner.last_logits[0])
        request.output.append(token)
        manager.cache_request(request)
    for _ in range(new_tokens - 1):
        for request in requests:
            manager.allocate(request, request.num_tokens)
        for request, token in zip(requests, runner.decode(requests), strict=True):
            request.computed_len = request.num_tokens
            request.output.append(token)
    for request in requests:
        manager.cache_request(request)
        manager.release(request)
    return [request.output.tolist() for request in requests], logits


TEXTS = [
    "It is a truth universally acknowledged",
    "Emma Woodhouse, handsome, clever, and rich, with a comfortable home",
    "She had been forced into prudence in her youth",
    "No",
]


def test_the_runner_writes_what_transformers_generate_writes(tiny: GPT2, hf_tiny):
    """Token for token; where they part, the two best logits must be too near to tell."""
    prompts = [tiny.encode(text) for text in TEXTS]
    runner = GPT2Runner(tiny, KVPool.for_model(tiny, 512), exact=True)
    outputs, _ = serve(runner, CacheManager(512), prompts, 24)
    for ids, output in zip(prompts, outputs, strict=True):
        expected = hf_tiny.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids)),
            max_new_tokens=24,
            min_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )[0, len(ids) :].tolist()
        for step, (ours, theirs) in enumerate(zip(output, expected, strict=True)):
            if ours != theirs:
                context = torch.tensor([ids + expected[:step]])
                best = hf_tiny(context).logits[0, -1].topk(2).values
                assert best[0] - best[1] < 1e-4
                break


@pytest.mark.parametrize("page_size", [1, 16])
def test_the_runner_over_a_warm_cache_gives_the_bits_of_a_cold_one(tiny: GPT2, page_size: int):
    prompts = [tiny.encode(" ".join(TEXTS[:2]) + f" chapter {n}") for n in "IVX"]
    cold = [
        serve(
            GPT2Runner(tiny, KVPool.for_model(tiny, 256, page_size), exact=True),
            CacheManager(256 // page_size, page_size),
            [ids],
            10,
        )
        for ids in prompts
    ]
    runner = GPT2Runner(tiny, KVPool.for_model(tiny, 512, page_size), exact=True)
    manager = CacheManager(512 // page_size, page_size, checked=True)
    for chunk in (10**6, 7):
        outputs, logits = serve(runner, manager, prompts, 10, chunk)
        for (cold_outputs, cold_logits), output, row in zip(cold, outputs, logits, strict=True):
            assert [output] == cold_outputs
            assert torch.equal(row, cold_logits[0])
    manager.check_integrity()


def test_a_page_table_can_grow_after_the_runner_has_read_it(tiny: GPT2):
    request = Request([1, 2, 3])
    request.page_table.extend(range(4))
    runner = GPT2Runner(tiny, KVPool.for_model(tiny, 8))
    runner.prefill([Chunk(request, 0, 3)])
    request.page_table.append(4)
    assert runner.last_logits.shape == (1, tiny.config.vocab)
    assert runner.prefill([]) == runner.decode([]) == []


def test_the_runner_refuses_what_is_not_computed_or_not_allocated(tiny: GPT2):
    request = Request([1, 2, 3, 4], request_id="r")
    runner = GPT2Runner(tiny, KVPool.for_model(tiny, 8))
    with pytest.raises(InvalidArgument, match="page table must be at least 4 slots, got '0 slots'"):
        runner.prefill([Chunk(request, 0, 4)])
    request.page_table.extend(range(4))
    with pytest.raises(InvalidArgument, match=r"chunk start must be at most .* of 0, got 2"):
        runner.prefill([Chunk(request, 2, 4)])
    with pytest.raises(InvalidArgument, match="at most its computed_len of 0, got 3"):
        runner.decode([request])
    with pytest.raises(InvalidArgument, match="within 0 to 4, got '0 to 5'"):
        runner.prefill([Chunk(request, 0, 5)])
    with pytest.raises(InvalidArgument, match="got '2 to 2'"):
        runner.prefill([Chunk(request, 2, 2)])
    assert not runner.kv.data.any()
