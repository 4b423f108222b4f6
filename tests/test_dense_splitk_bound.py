"""The error bound of `dense_splitk`: what it must admit and what it must not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from gemmgate.kernels.dense_splitk import FAMILY, cases
from gemmgate.kernels.dense_splitk.bound import _ROUNDING
from gemmgate.kernels.dense_splitk.cases import case_of

WORDS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
LONG_K = (8192, 65536, 200000)


def operands(k: int, dtype: str, size: int = 16) -> tuple[Tensor, Tensor]:
    """Normal operands of a size x size product, already in `dtype`, held in float64."""
    generator = torch.Generator().manual_seed(k)
    a = torch.randn(size, k, generator=generator).to(WORDS[dtype]).double()
    return a, torch.randn(k, size, generator=generator).to(WORDS[dtype]).double()


def error(out: Tensor, exact: Tensor) -> float:
    return float((out.double() - exact).norm() / exact.norm())


def allowed(exact: Tensor, k: int, dtype: str, precision: str) -> float:
    """What the harness allows: the rounding of the output, measured, and twice the bound."""
    return error(exact.to(WORDS[dtype]), exact) + 2 * FAMILY.error_bound(case_of(16, 16, k, dtype, precision))


def nearest_tf32(x: Tensor) -> Tensor:
    """fp32 values to 10 bits after the point: by arithmetic, not by bits."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


def truncated_tf32(x: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**11).trunc() / 2**11, exponent)


def parts(a: Tensor, b: Tensor, splits: int) -> Tensor:
    """Partial products [splits, M, N] over nearly equal ranges of K, exact."""
    pairs = zip(a.tensor_split(splits, dim=1), b.tensor_split(splits, dim=0), strict=True)
    return torch.stack([part_a @ part_b for part_a, part_b in pairs])


@pytest.mark.parametrize("k", LONG_K)
@pytest.mark.parametrize(("dtype", "precision"), cases.FORMATS)
@pytest.mark.parametrize("splits", [2, 16, 128])
def test_bound_catches_partials_in_16_bits(splits: int, dtype: str, precision: str, k: int) -> None:
    """Partial sums rounded to bf16 (to fp16 for fp16) exceed what is allowed, whatever the number of parts."""
    a, b = operands(k, dtype, size=32 if dtype == "fp16" else 16)
    kept = torch.float16 if dtype == "fp16" else torch.bfloat16
    out = parts(a, b, splits).to(kept).double().sum(0).to(WORDS[dtype])
    assert error(out, a @ b) > allowed(a @ b, k, dtype, precision)


@pytest.mark.parametrize("k", LONG_K)
def test_bound_catches_tf32_where_ieee_was_asked(k: int) -> None:
    """Operands rounded to TF32 exceed what is allowed for IEEE fp32."""
    a, b = operands(k, "fp32")
    out = (nearest_tf32(a) @ nearest_tf32(b)).float()
    assert error(out, a @ b) > allowed(a @ b, k, "fp32", "ieee")


@pytest.mark.parametrize("k", LONG_K)
@pytest.mark.parametrize(("dtype", "precision"), cases.FORMATS)
def test_bound_catches_a_dropped_tile(dtype: str, precision: str, k: int) -> None:
    """A product without its last 16 K exceeds what is allowed."""
    a, b = operands(k, dtype)
    out = (a[:, :-16] @ b[:-16]).to(WORDS[dtype])
    assert error(out, a @ b) > allowed(a @ b, k, dtype, precision)


def running_fp32_sum(a: Tensor, b: Tensor) -> Tensor:
    """Every product rounded to fp32 and added to a running fp32 sum, one after the other."""
    total: NDArray[np.float32] = np.zeros((1, a.shape[0], b.shape[1]), np.float32)
    for rows, columns in zip(a.split(4096, dim=1), b.split(4096, dim=0), strict=True):
        products = (rows.t()[:, :, None] * columns[:, None, :]).float().numpy()  # [4096, M, N]
        total = np.add.accumulate(np.concatenate([total, products]), axis=0, dtype=np.float32)[-1:]
    return torch.from_numpy(total[0])


@pytest.mark.parametrize("k", LONG_K)
def test_bound_admits_a_running_fp32_sum(k: int) -> None:
    """The least accurate honest order of an IEEE fp32 sum stays below a third of what is allowed."""
    a, b = operands(k, "fp32")
    assert error(running_fp32_sum(a, b), a @ b) < allowed(a @ b, k, "fp32", "ieee") / 3


def truncating_sum(a: Tensor, b: Tensor) -> Tensor:
    """A tensor core's running sum: 16 exact products at a time, the sum cut to 24 bits after each."""
    k, m, n = a.shape[1] // 16 * 16, a.shape[0], b.shape[1]
    steps = torch.bmm(a[:, :k].reshape(m, -1, 16).transpose(0, 1), b[:k].reshape(-1, 16, n)).numpy()
    total: NDArray[np.float64] = np.zeros((m, n))
    for step in steps:
        total += step
        total.view(np.uint64)[...] &= np.uint64(~((1 << 29) - 1) & 0xFFFFFFFFFFFFFFFF)
    return torch.from_numpy(total)


@pytest.mark.parametrize(("k", "splits"), [(8192, 1), (65536, 1), (200000, 4)])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_bound_admits_a_truncating_accumulator(dtype: str, k: int, splits: int) -> None:
    """16-bit products summed as tensor cores do are allowed: unsplit to K = 65536, in four parts at 200000."""
    a, b = operands(k, dtype)
    pairs = zip(a.tensor_split(splits, dim=1), b.tensor_split(splits, dim=0), strict=True)
    total = torch.stack([truncating_sum(part_a, part_b) for part_a, part_b in pairs]).sum(0)
    assert error(total.to(WORDS[dtype]), a @ b) <= allowed(a @ b, k, dtype, "acc32")


@pytest.mark.parametrize("k", LONG_K)
@pytest.mark.parametrize("rounded", [nearest_tf32, truncated_tf32])
def test_bound_admits_tf32(rounded: object, k: int) -> None:
    """Operands rounded to TF32 or truncated to it are allowed where TF32 was asked, summed in any order."""
    assert callable(rounded)
    a, b = operands(k, "fp32")
    assert error(running_fp32_sum(rounded(a), rounded(b)), a @ b) <= allowed(a @ b, k, "fp32", "tf32")


def test_rounding_in_the_bound_is_that_of_the_dtypes() -> None:
    """The rms rounding error that the bound is measured against is that of normal values."""
    exact = torch.randn(1 << 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for dtype, rounding in _ROUNDING.items():
        assert math.isclose(error(exact.to(WORDS[dtype]), exact), rounding, rel_tol=0.02)
