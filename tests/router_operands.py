"""Operands of a router in the layouts that a model may hand over, shared by interpreted and GPU tests."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.gemm_layouts import LAYOUTS, matrix

SIZES = [
    *((5, 11, k) for k in (1, 15, 16, 17, 33, 1001)),
    (1, 1, 33),
    (18, 1, 257),
    (1, 37, 17),
    (17, 8, 520),
]
"""(T, N, K)"""
ROWS_ANYWHERE = ("row", "inside", "one_off", "one_row_expanded")
"""Layouts whose rows are contiguous, wherever they lie."""
FORMATS = [("bf16", "fp32"), ("bf16", "bf16"), ("fp16", "fp32"), ("fp32", "fp32")]
"""(operands, logits)"""
_ERROR = 1e-6


def pair(
    t: int, n: int, k: int, dtype: str, device: str, layout_x: str = "row", layout_w: str = "row"
) -> tuple[Tensor, Tensor]:
    """x [T, K] and w [N, K]."""
    x, w = matrix(t, k, dtype, device, 1), matrix(n, k, dtype, device, 2)
    return LAYOUTS[layout_x](x), LAYOUTS[layout_w](w)


def assert_logits(
    found: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype, summed: float = _ERROR
) -> None:
    """`found` is x w^T + bias in float64, but for one rounding to its dtype and the sums in fp32.

    Sums of a tensor core lose what it truncates, which grows with K: `summed` is then `sums_on_a_gpu`.
    """
    exact = x.double() @ w.double().t()
    scale = (x.double().square() @ w.double().square().t()).sqrt().norm()
    if bias is not None:
        exact = exact + bias.double()
        scale = scale + bias.double().norm()
    assert found.shape == exact.shape
    assert found.dtype == out_dtype
    rounding = (exact.to(out_dtype).double() - exact).norm()
    error = (found.double() - exact).norm()
    bound = 1.01 * rounding + summed * torch.maximum(scale, exact.norm())
    assert error <= bound, f"error {float(error / exact.norm()):.3g}, allowed {float(bound / exact.norm()):.3g}"


def sums_on_a_gpu(k: int) -> float:
    """What adding K products may cost there, with a fourfold margin: K / 16 truncations of one sign by 0.42 units of
    fp32 each, and roundings that add up as a random walk.
    """
    return 4 * (0.42 * k / 16 + 0.3 * math.sqrt(k)) * 2**-24
