"""Inputs of `dense_splitk_epilogue`: those of the product, and what its epilogue or prologue takes beside."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from gemmgate.kernels.dense_splitk import inputs as dense
from gemmgate.kernels.dense_splitk.cases import sizes
from gemmgate.kernels.dense_splitk.inputs import TORCH_DTYPE
from gemmgate.kernels.dense_splitk_epilogue.cases import product_of
from gemmgate.suite.cases import Case

_BESIDE_SEED = 104729
"""Added to the seed for what stands beside A and B."""


def make_inputs(case: Case, seed: int, device: str | torch.device, data: str = "normal") -> dict[str, Tensor]:
    """a [M, K] and b [K, N] as of `dense_splitk`; `bias` [N] (or [M, 1]), `residual` [M, N], `scale`, `weight` [K].

    Row-major, in the case's dtype but for scales, which are fp32: [M, 1], or [1, N] where B is int8.
    """
    made = dense.make_inputs(product_of(case), seed, device, data)
    generator = Generator(device=device).manual_seed(seed + _BESIDE_SEED)
    m, n, k = sizes(case)
    dtype = TORCH_DTYPE[case.dtype]

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    def around_one(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=device) + 0.5

    match case.epilogue:
        case "bias-relu" | "bias-silu" | "addmm":
            made["bias"] = normal(n).to(dtype)
        case "bias-column":
            made["bias"] = normal(m, 1).to(dtype)
        case "residual":
            made["residual"] = normal(m, n).to(dtype)
        case "scale":
            made["scale"] = around_one(m, 1)
        case "cast-in":
            # Not representable in 16 bits: whoever forgets to round shows.
            made["a"] = made["a"].float() * (1 + 2.0**-10)
        case "dequantise":
            made["b"] = torch.randint(-127, 128, (k, n), generator=generator, device=device, dtype=torch.int8)
            made["scale"] = around_one(1, n) / (73.0 * max(k, 1) ** 0.25)
        case "rms-scale":
            made["scale"] = around_one(m, 1)
            made["weight"] = around_one(k).to(dtype)
    return made
