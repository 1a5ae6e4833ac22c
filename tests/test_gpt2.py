"""GPT-2 over the paged pool: bit for bit in exact mode, to tolerance against transformers."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Only now: without torch and transformers this file is skipped, not broken.
from radixlab import packing  # noqa: E402
from radixlab.errors import InvalidArgument, LengthMismatch  # noqa: E402
from radixlab.gpt2 import (  # noqa: E402
    GPT2,
    GPT2Config,
    NoTokenizer,
    Span,
    load_gpt2,
)
from radixlab.kv import KVPool  # noqa: E402

N = 900  # tokens of the longest prompt
FLOATS = [torch.float32, torch.float64, torch.bfloat16]
# (prompt length, hit length): around the borders of tiles of 32, one token left, long and short.
LENGTHS = [
    (2, 1),
    (31, 30),
    (32, 31),
    (33, 1),
    (33, 32),
    (64, 31),
    (65, 64),
    (100, 37),
    (257, 256),
    (511, 128),
    (640, 607),
    (N, 1),
    (N, 450),
    (N, 864),
    (N, N - 1),
]
# Twelve layers, and heads of 24: neither a power of two nor a multiple of a cache line.
DEEP = GPT2Config(layers=12, heads=4, width=96, context=1000, vocab=509, inner=384)
SMALL = GPT2Config(layers=2, heads=2, width=32, context=64, vocab=50, inner=128)


pytestmark = pytest.mark.usefixtures("one_thread")


def new_model(name: str, dtype: torch.dtype = torch.float32) -> GPT2:
    if name == "tiny":
        return load_gpt2(dtype=dtype, device="cpu")
    return GPT2.random(DEEP, seed=3, dtype=dtype)


def prompt_of(model: GPT2, length: int = N, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab, (length,), generator=generator)


class Paper:
    """A model with a pool and slots in random order: prefill, then copy out what it wrote."""

    def __init__(self, model: GPT2, seed: int = 0, num_slots: int = 4096):
        self.model, self.pool = model, KVPool.for_model(model, num_slots, page_size=16)
        self.free = list(range(num_slots))
        random.Random(seed).shuffle(self.free)

    def slots(self, length: int) -> torch.Tensor:
        return torch.tensor([self.free.pop() for _ in range(length)])

    def cached(self, kv: torch.Tensor, length: int) -> torch.Tensor:
        """Slots for `kv.shape[2]` positions, of which the first `length` are filled from `kv`."""
        slots = self.slots(kv.shape[2])
        self.pool.data[:, :, slots[:length]] = kv[:, :, :length]
        return slots

    def run(self, ids: torch.Tensor, *spans: Span, exact: bool = True, **kwargs) -> torch.Tensor:
        return self.model.forward(ids, spans, self.pool, exact=exact, **kwargs)

    def cold(self, ids: torch.Tensor, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and KV of all positions, computed in one pass over nothing cached."""
        slots = self.slots(len(ids))
        logits = self.run(ids, Span(slots, 0, len(ids)), logits="all", **kwargs)
        return logits, self.pool.data[:, :, slots].clone()


# Exact mode: the same bits, whatever was cached


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["tiny", "deep"])
def test_a_warm_prefill_gives_the_cold_one_s_bits(name: str, dtype: torch.dtype):
    paper = Paper(new_model(name, dtype), num_slots=16384)
    ids = prompt_of(paper.model)
    logits, kv = paper.cold(ids)
    assert logits.isfinite().all()
    for length, hit in LENGTHS:
        slots = paper.cached(kv[:, :, :length], hit)
        warm = paper.run(ids[hit:length], Span(slots, hit, length), logits="all")
        assert torch.equal(warm, logits[hit:length]), (length, hit)
        assert torch.equal(paper.pool.data[:, :, slots], kv[:, :, :length]), (length, hit)
        last = paper.run(ids[hit:length], Span(slots, hit, length))
        assert torch.equal(last, logits[length - 1 : length]), (length, hit)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_request_has_the_same_bits_alone_and_in_any_batch(dtype: torch.dtype):
    paper = Paper(new_model("tiny", dtype))
    prompts = [prompt_of(paper.model, 333, seed) for seed in range(3)]
    colds = [paper.cold(ids) for ids in prompts]
    cases = [(0, 333, 0), (1, 333, 300), (2, 40, 39), (0, 97, 64), (1, 5, 0)]
    for order in (cases, cases[::-1], cases[2:] + cases[:2]):
        spans = [Span(paper.cached(colds[p][1][:, :, :n], hit), hit, n) for p, n, hit in order]
        ids = torch.cat([prompts[p][hit:n] for p, n, hit in order])
        together = paper.run(ids, *spans)
        for row, (p, n, _) in zip(together, order, strict=True):
            assert torch.equal(row, colds[p][0][n - 1])
        for span, (p, n, _) in zip(spans, order, strict=True):
            assert torch.equal(paper.pool.data[:, :, span.slots], colds[p][1][:, :, :n])
        everything = paper.run(ids, *spans, logits="all")
        assert torch.equal(everything, torch.cat([colds[p][0][hit:n] for p, n, hit in order]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_decoding_gives_the_bits_of_prefilling(dtype: torch.dtype):
    paper = Paper(new_model("tiny", dtype))
    prompts = [prompt_of(paper.model, 140, seed) for seed in range(3)]
    colds = [paper.cold(ids) for ids in prompts]
    lengths = [1, 31, 90]
    slots = [paper.cached(kv, length) for (_, kv), length in zip(colds, lengths, strict=True)]
    for step in range(40):
        ends = [length + step + 1 for length in lengths]
        spans = [Span(own[:end], end - 1, end) for own, end in zip(slots, ends, strict=True)]
        ids = torch.stack([ids[end - 1] for ids, end in zip(prompts, ends, strict=True)])
        decoded = paper.run(ids, *spans)
        expected = [logits[end - 1] for (logits, _), end in zip(colds, ends, strict=True)]
        assert torch.equal(decoded, torch.stack(expected))
    for own, end, (_, kv) in zip(slots, ends, colds, strict=True):
        assert torch.equal(paper.pool.data[:, :, own[:end]], kv[:, :, :end])


@pytest.mark.parametrize("tile", [16, 64])
def test_any_way_to_chunk_a_prompt_gives_the_same_bits(tile: int):
    paper = Paper(new_model("tiny", torch.bfloat16))
    ids = prompt_of(paper.model, 300)
    logits, _ = paper.cold(ids, tile=tile)
    chance = random.Random(1)
    for _ in range(4):
        cuts = sorted({0, 300, *chance.sample(range(1, 300), 5)})
        slots = paper.slots(300)
        for start, end in itertools.pairwise(cuts):
            span = Span(slots[:end], start, end)
            chunk = paper.run(ids[start:end], span, logits="all", tile=tile)
            assert torch.equal(chunk, logits[start:end])


def test_a_prefix_computed_in_the_same_pass_can_be_read_in_it():
    paper = Paper(new_model("tiny"))
    ids = prompt_of(paper.model, 120)
    logits, _ = paper.cold(ids)
    slots = paper.slots(120)
    spans = [Span(slots[:75], 0, 75), Span(slots, 75, 120)]
    assert torch.equal(paper.run(ids, *spans, logits="all"), logits)


def test_two_threads_are_exact_too():
    torch.set_num_threads(2)
    try:
        paper = Paper(new_model("tiny", torch.bfloat16))
        ids = prompt_of(paper.model, 400)
        logits, kv = paper.cold(ids)
        for hit in (1, 100, 399):
            slots = paper.cached(kv, hit)
            warm = paper.run(ids[hit:], Span(slots, hit, 400), logits="all")
            assert torch.equal(warm, logits[hit:])
    finally:
        torch.set_num_threads(1)


def test_the_last_tile_may_reach_beyond_the_context():
    paper = Paper(GPT2.random(DEEP))  # context 1000, tiles end at 1024
    ids = prompt_of(paper.model, 1000)
    logits, kv = paper.cold(ids)
    slots = paper.cached(kv, 993)
    assert torch.equal(paper.run(ids[993:], Span(slots, 993, 1000), logits="all"), logits[993:])


# Controls: the same comparisons fail where they must


def test_one_corrupted_cached_slot_is_noticed():
    paper = Paper(new_model("tiny"))
    ids = prompt_of(paper.model, 200)
    logits, kv = paper.cold(ids)
    slots = paper.cached(kv, 128)
    paper.pool.data[2, 1, slots[60], 0, 0] += 1e-3
    warm = paper.run(ids[128:], Span(slots, 128, 200), logits="all")
    assert not torch.equal(warm, logits[128:])


def test_two_slots_swapped_are_noticed():
    paper = Paper(new_model("tiny"))
    ids = prompt_of(paper.model, 200)
    logits, kv = paper.cold(ids)
    slots = paper.cached(kv, 128)
    slots[[3, 4]] = slots[[4, 3]]  # keys carry their position: another order is another text
    span = Span(slots, 128, 200)
    swapped = paper.run(ids[128:], span, logits="all")
    assert torch.allclose(swapped, logits[128:], atol=1e-4), "attention sums over a set of keys"
    slots[3] = slots[4]
    assert not torch.allclose(paper.run(ids[128:], span, logits="all"), logits[128:], atol=1e-4)


def test_tiles_counted_from_the_hit_length_would_not_be_exact(monkeypatch: pytest.MonkeyPatch):
    def from_hit_length(spans: list[Span], tile: int) -> list[packing._Place]:
        places, row = [], 0
        for span in spans:
            high = span.start - (span.start - span.end) // tile * tile
            places.append(packing._Place(span, span.start, high, row - span.start))
            row += high - span.start
        return places

    assert _exact_at_every_hit()
    monkeypatch.setattr(packing, "_place", from_hit_length)
    assert not _exact_at_every_hit()


def _exact_at_every_hit() -> bool:
    paper = Paper(new_model("tiny", torch.bfloat16))
    ids = prompt_of(paper.model, 200)
    logits, kv = paper.cold(ids)
    for hit in (1, 50, 77, 150, 199):
        warm = paper.run(ids[hit:], Span(paper.cached(kv, hit), hit, 200), logits="all")
        if not torch.equal(warm, logits[hit:]):
            return False
    return True


def test_plain_mode_is_not_exact_in_bfloat16_but_close():
    paper = Paper(new_model("tiny", torch.bfloat16))
    ids = prompt_of(paper.model, 200)
    logits, kv = paper.cold(ids, exact=False)
    equal = []
    for hit in (1, 50, 77, 150, 199):
        slots = paper.cached(kv, hit)
        warm = paper.run(ids[hit:], Span(slots, hit, 200), exact=False, logits="all")
        equal.append(torch.equal(warm, logits[hit:]))
        assert torch.allclose(warm.float(), logits[hit:].float(), atol=0.25)
    assert not all(equal)


@pytest.mark.parametrize("exact", [False, True])
def test_nan_in_the_scratch_page_reaches_nobody(exact: bool):
    paper = Paper(new_model("tiny"))
    ids = prompt_of(paper.model, 100)
    logits, kv = paper.cold(ids, exact=exact)
    paper.pool.data[:, :, paper.pool.scratch_slot :] = torch.nan
    slots = paper.cached(kv, 43)
    warm = paper.run(ids[43:], Span(slots, 43, 100), exact=exact, logits="all")
    assert torch.allclose(warm, logits[43:], atol=1e-4)


@pytest.mark.parametrize("exact", [False, True])
def test_nothing_but_the_new_slots_and_the_scratch_page_is_written(exact: bool):
    paper = Paper(new_model("tiny"))
    ids = prompt_of(paper.model, 100)
    paper.pool.data.fill_(0.5)
    before = paper.pool.data.clone()
    slots = paper.slots(100)
    paper.run(ids[43:], Span(slots, 43, 100), exact=exact)
    before[:, :, slots[43:]] = paper.pool.data[:, :, slots[43:]]
    before[:, :, paper.pool.scratch_slot :] = paper.pool.data[:, :, paper.pool.scratch_slot :]
    assert torch.equal(paper.pool.data, before)


# Against Hugging Face's GPT2LMHeadModel


def hf_logits(model: "transformers.GPT2LMHeadModel", ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(ids[None]).logits[0]


@pytest.mark.parametrize("exact", [False, True])
def test_logits_are_those_of_transformers(exact: bool, tiny: GPT2, hf_tiny):
    paper = Paper(tiny)
    for length, hit in ((1, 0), (2, 1), (65, 64), (300, 100), (N, 0), (N, 810)):
        ids = prompt_of(tiny, length, seed=length)
        expected = hf_logits(hf_tiny, ids)
        paper.free = list(range(4096))
        _, kv = paper.cold(ids, exact=exact)
        slots = paper.cached(kv, hit)
        warm = paper.run(ids[hit:], Span(slots, hit, length), exact=exact, logits="all")
        assert torch.allclose(warm, expected[hit:], atol=1e-4)
        last = paper.run(ids[hit:], Span(slots, hit, length), exact=exact)
        assert torch.allclose(last, expected[-1:], atol=1e-4)
        assert torch.equal(last.argmax(-1), expected[-1:].argmax(-1))


def test_a_packed_batch_in_plain_mode_is_that_of_transformers(tiny: GPT2, hf_tiny):
    paper = Paper(tiny)
    prompts = [prompt_of(tiny, n, seed=n) for n in (7, 200, 64, 1)]
    hits = [0, 130, 63, 0]
    spans = []
    for ids, hit in zip(prompts, hits, strict=True):
        _, kv = paper.cold(ids, exact=False)
        spans.append(Span(paper.cached(kv, hit), hit, len(ids)))
    new_ids = torch.cat([ids[hit:] for ids, hit in zip(prompts, hits, strict=True)])
    logits = paper.run(new_ids, *spans, exact=False)
    for row, ids in zip(logits, prompts, strict=True):
        assert torch.allclose(row, hf_logits(hf_tiny, ids)[-1], atol=1e-4)


def test_the_124m_shape_is_exact_and_has_no_tokenizer():
    paper = Paper(load_gpt2("gpt2-random", device="cpu"), num_slots=256)
    ids = prompt_of(paper.model, 70)
    logits, kv = paper.cold(ids)
    slots = paper.cached(kv, 41)
    assert torch.equal(paper.run(ids[41:], Span(slots, 41, 70)), logits[-1:])
    assert paper.model.config == GPT2Config()
    assert not paper.model.has_tokenizer
    with pytest.raises(NoTokenizer, match="token ids"):
        paper.model.encode("text")


# Bad input is refused before anything is written


@pytest.fixture(scope="module")
def small() -> GPT2:
    return GPT2.random(SMALL)


BAD_CALLS = {
    "no spans": (0, [], InvalidArgument, "at least 1, got 0"),
    "empty span": (0, [(5, 5, 5)], InvalidArgument, "'5 to 5'"),
    "backwards": (1, [(3, 4, 3)], InvalidArgument, "'4 to 3'"),
    "negative start": (6, [(5, -1, 5)], InvalidArgument, "'-1 to 5'"),
    "beyond the context": (65, [(65, 0, 65)], InvalidArgument, "context of 64, got 65"),
    "too few slots": (5, [(4, 0, 5)], LengthMismatch, "5 token ids need 5 token slots, got 4"),
    "too many slots": (5, [(6, 0, 5)], LengthMismatch, "got 6"),
    "too few ids": (4, [(5, 0, 5)], InvalidArgument, r"one row of 5 ids, got \[4\]"),
    "one bad of two": (8, [(4, 0, 4), (4, 4, 4)], InvalidArgument, "span 1 .* '4 to 4'"),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("case", BAD_CALLS)
def test_spans_that_cannot_be_computed_are_refused(case: str, exact: bool, small: GPT2):
    count, parts, error, message = BAD_CALLS[case]
    spans = [Span(torch.arange(slots), start, end) for slots, start, end in parts]
    refused(small, torch.zeros(count, dtype=torch.long), spans, error, message, exact=exact)


def refused(model: GPT2, ids, spans, error: type[Exception], message: str, **kwargs) -> None:
    pool = KVPool.for_model(model, 80)
    with pytest.raises(error, match=message):
        model.forward(ids, spans, pool, **kwargs)
    assert not pool.data.any(), "a refused pass wrote to the pool"


@pytest.mark.parametrize("exact", [False, True])
def test_ids_outside_the_vocabulary_and_slots_outside_the_pool_are_refused(
    exact: bool, small: GPT2
):
    five = torch.arange(5)
    span = Span(five, 0, 5)
    refused(small, five + 46, [span], InvalidArgument, "from 0 to 49.* got 50", exact=exact)
    refused(small, five - 1, [span], InvalidArgument, "from 0 to 49.* got -1", exact=exact)
    # Slot 80 exists in the tensor, but is scratch.
    for slots, got in ((five + 76, "80"), (five - 2, "-2"), (five + 1000, "1004")):
        message = f"from 0 to 79.* got {got}"
        refused(small, five, [Span(slots, 0, 5)], InvalidArgument, message, exact=exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_ids_and_slots_that_are_no_integers_are_refused(dtype: torch.dtype, small: GPT2):
    ids, slots = torch.arange(2), torch.arange(2)
    refused(small, ids.to(dtype), [Span(slots, 0, 2)], InvalidArgument, "token ids .* got torch")
    refused(small, ids, [Span(slots.to(dtype), 0, 2)], InvalidArgument, "slots .* got torch")


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint16, torch.uint8])
def test_narrow_integers_are_computed_as_int64_is(dtype: torch.dtype, small: GPT2):
    ids, slots, pool = torch.arange(5), torch.arange(3, 8), KVPool.for_model(small, 80)
    expected = small.forward(ids, [Span(slots, 0, 5)], pool)
    narrow = small.forward(ids.to(dtype), [Span(slots.to(dtype), 0, 5)], pool)
    assert torch.equal(narrow, expected)


def test_a_pool_of_another_shape_or_dtype_is_refused(small: GPT2):
    ids, span = torch.arange(5), Span(torch.arange(5), 0, 5)
    for pool in (
        KVPool(80, layers=2, heads=2, head_dim=8),
        KVPool(80, layers=2, heads=2, head_dim=16, dtype=torch.float64),
    ):
        with pytest.raises(InvalidArgument, match=r"2 heads of 16, torch.float32.*got KVPool"):
            small.forward(ids, [span], pool)


def test_a_tile_or_a_choice_of_logits_that_does_not_exist_is_refused(small: GPT2):
    ids, spans = torch.arange(5), [Span(torch.arange(5), 0, 5)]
    for tile in (0, 8, 40):
        refused(small, ids, spans, InvalidArgument, f"of 16 rows, got {tile}", tile=tile)
    refused(small, ids, spans, InvalidArgument, "'last' or 'all', got 'some'", logits="some")
