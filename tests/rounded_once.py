"""What `matmul` owes whoever computes: sums are fp32 until all is done. Shared by interpreted and GPU tests."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk import matmul
from tests.gemm_layouts import DTYPE, matrix

BEYOND_FP16 = 98304.0
"""Of each product in `SUMS_BEYOND_FP16`."""
_ROW_16, _ROW_32 = torch.full((33,), -65024.0, dtype=torch.float16), torch.full((33,), -70000.0)

SUMS_BEYOND_FP16: list[tuple[str, Tensor | None, str | None, torch.dtype | None, int, float]] = [
    ("fp16", _ROW_16, None, None, 1, 33280.0),
    ("fp16", _ROW_32, None, None, 1, 28304.0),
    ("fp16", 2 * _ROW_32[:1], None, None, 1, -41696.0),
    ("fp16", _ROW_16.expand(20, 33), None, None, 1, 33280.0),
    ("fp16", _ROW_16[:20, None].clone(), "relu", None, 1, 33280.0),
    ("fp16", _ROW_16[0], None, None, 1, 33280.0),
    ("fp16", _ROW_32.expand(20, 33), "relu", None, 1, 28304.0),
    ("fp16", _ROW_32[0], "gelu", None, 1, 28304.0),
    ("fp16", _ROW_32[:20, None].clone(), "silu", None, 1, 28304.0),
    ("fp16", None, "gelu", None, -1, 0.0),
    ("fp16", None, "silu", None, -1, 0.0),
    ("fp16", None, "relu", None, -1, 0.0),
    ("fp16", None, None, torch.bfloat16, 1, BEYOND_FP16),
    ("fp16", None, None, torch.float32, -1, -BEYOND_FP16),
    ("fp16", _ROW_16, None, torch.float32, 1, 33280.0),
    ("fp32", _ROW_32, None, torch.float16, 1, 28304.0),
    ("fp32", None, "silu", torch.float16, -1, 0.0),
]
"""Operands' dtype, bias, activation, dtype of C, the product's sign, and C, each of whose elements is the same."""
BIAS_SHAPES = [(33,), (1, 33), (20, 1), (20, 33), ()]


def check_beyond_fp16(
    device: str,
    k: int,
    operands: str,
    bias: Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    sign: int,
    expected: float,
) -> None:
    """One of `SUMS_BEYOND_FP16` with a K that is a power of two; all numbers are exact in their dtypes."""
    a = torch.full((20, k), sign * BEYOND_FP16 / k / 4, dtype=DTYPE[operands], device=device)
    b = torch.full((k, 33), 4.0, dtype=DTYPE[operands], device=device)
    found = matmul(a, b, None if bias is None else bias.to(device), activation, out_dtype)
    assert found.is_contiguous() and found.dtype == (out_dtype or a.dtype)
    assert found.eq(torch.tensor(expected).to(found.dtype)).all()


def check_bias(device: str, k: int, bias_dtype: torch.dtype | None, shape: tuple[int, ...], dtype: str) -> None:
    """A [20, K] @ B [K, 33] and a bias, by default in their dtype, have the error of one rounding."""
    a, b = matrix(20, k, dtype, device, 1), matrix(k, 33, dtype, device, 2)
    bias = (20 * torch.randn(shape, generator=torch.Generator().manual_seed(3))).to(device, bias_dtype or a.dtype)
    exact = a.double() @ b.double() + bias.double()
    once = (exact.to(a.dtype).double() - exact).norm()
    assert (matmul(a, b, bias).double() - exact).norm() <= 1.01 * once
