"""The KV pool: what a slot points at."""

import pytest

torch = pytest.importorskip("torch")

from radixlab.errors import InvalidArgument, InvalidPageSize  # noqa: E402 - torch may be missing
from radixlab.gpt2 import GPT2, GPT2Config  # noqa: E402
from radixlab.kv import KVPool  # noqa: E402


def small_pool(num_slots: int = 8, page_size: int = 1) -> KVPool:
    return KVPool(num_slots, layers=2, heads=3, head_dim=4, page_size=page_size)


def test_a_fresh_pool_is_zero_everywhere_also_behind_its_last_page():
    pool = small_pool(8, page_size=4)
    assert pool.data.shape == (2, 2, 8 + 4, 3, 4)
    assert not pool.data.any()
    assert pool.scratch_slot == pool.num_slots == 8


def test_slots_are_read_in_the_order_in_which_they_are_asked_for():
    pool = small_pool()
    k, v = torch.randn(2, 3, 3, 4)
    pool.write(1, torch.tensor([5, 0, 7]), k, v)
    read = pool.read(1, torch.tensor([7, 5, 5]))
    assert torch.equal(read[0], k[[2, 0, 0]])
    assert torch.equal(read[1], v[[2, 0, 0]])
    assert not pool.data[0].any(), "another layer was written"


def test_what_is_read_is_a_copy():
    pool = small_pool()
    out = torch.empty(2, 2, 3, 4)
    for read in (pool.read(0, torch.tensor([0, 1])), pool.read(0, torch.tensor([0, 1]), out=out)):
        read.fill_(1.0)
        assert not pool.data.any()


def test_a_token_of_the_124m_shape_takes_72_kibibytes_in_float32():
    config = GPT2Config()
    pool = KVPool(1, layers=config.layers, heads=config.heads, head_dim=config.head_dim)
    assert pool.bytes_per_token == 12 * 2 * 768 * 4 == 72 * 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_for_model_takes_shape_dtype_and_device_from_the_model(dtype: torch.dtype):
    config = GPT2Config(layers=3, heads=2, width=16, context=8, vocab=5, inner=32)
    model = GPT2.random(config, dtype=dtype)
    pool = KVPool.for_model(model, 12, page_size=4)
    assert (pool.shape, pool.data.dtype, pool.num_slots) == ((3, 2, 8), dtype, 12)
    assert "12 slots in pages of 4, 3 layers, 2 heads of 8" in repr(pool)


def test_a_pool_holds_whole_pages_of_at_least_one_slot():
    with pytest.raises(InvalidArgument, match=r"whole pages of 4 slots, got 10"):
        small_pool(10, page_size=4)
    with pytest.raises(InvalidArgument, match=r"num_slots .* got 0"):
        small_pool(0)
    with pytest.raises(InvalidPageSize, match="got 0"):
        small_pool(8, page_size=0)
    with pytest.raises(InvalidArgument, match="heads must be at least 1, got 0"):
        KVPool(8, layers=1, heads=0, head_dim=4)
