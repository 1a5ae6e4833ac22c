"""The packed product is the plain product, for every number of rows."""

import pytest
import torch

from radixlab import linear
from radixlab.linear import Linear


def operands(rows: int, bias: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 48, generator=generator)
    weight = torch.randn(48, 80, generator=generator)
    return x, weight, torch.randn(80, generator=generator) if bias else None


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 33, 300])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("packed", [True, False])
@torch.inference_mode()
def test_it_multiplies_and_adds(
    rows: int, bias: bool, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not packed:
        monkeypatch.setattr(linear, "_has_onednn", lambda: False)
    elif not linear._has_onednn():
        pytest.skip("no oneDNN here")
    x, weight, added = operands(rows, bias)
    wanted = x.double() @ weight.double() + (0 if added is None else added.double())
    got = Linear(weight, added)(x)
    assert got.shape == (rows, 80)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@torch.inference_mode()
def test_other_types_take_the_plain_product(dtype: torch.dtype) -> None:
    x, weight, bias = (t.to(dtype) for t in operands(5, True) if t is not None)
    assert torch.equal(Linear(weight, bias)(x), torch.addmm(bias, x, weight))


@torch.inference_mode()
def test_a_weight_that_is_a_view_is_taken_as_it_is_seen() -> None:
    x, weight, _ = operands(4, False)
    stored = weight.T.contiguous()
    torch.testing.assert_close(Linear(stored.T)(x), x @ weight, rtol=1e-5, atol=1e-5)
