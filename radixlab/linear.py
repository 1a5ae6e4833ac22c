"""A matrix product whose weights lie as the processor wants them."""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import torch
from torch import Tensor


class Linear:
    """`x @ weight + bias` for `x` [rows, in]; `weight` [in, out], `bias` [out] or None.

    On an x86 CPU, in float32, a second copy of the weight is kept in the blocks in which oneDNN
    multiplies: it reads them in order, where the plain product would sort them out at each call.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        wanted = weight.device.type == "cpu" and weight.dtype == torch.float32 and _has_onednn()
        self._packed = _onednn()._reorder_linear_weight(weight.T.contiguous()) if wanted else None

    def __call__(self, x: Tensor) -> Tensor:
        """Rows of [out] for rows of [in]."""
        if self._packed is not None:
            product: Tensor = _onednn()._linear_pointwise(
                x, self._packed, self.bias, "none", [], ""
            )
            return product
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


def _onednn() -> Any:
    return torch.ops.mkldnn


@cache
def _has_onednn() -> bool:
    """Whether this torch has the two operators that `torch.compile` uses for the same purpose."""
    wanted = ("_linear_pointwise", "_reorder_linear_weight")
    x86 = platform.machine() in ("x86_64", "AMD64")
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's
    return x86 and there and all(hasattr(_onednn(), name) for name in wanted)
