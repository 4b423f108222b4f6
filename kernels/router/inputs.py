"""Inputs of `router`: x [T, K] and w [N, K], both row-major, and bias [N] where the case has one."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk import inputs as dense
from gemmgate.kernels.dense_splitk.cases import case_of as dense_case_of
from gemmgate.kernels.router.cases import has_bias, sizes
from gemmgate.suite.cases import Case

TORCH_DTYPE = dense.TORCH_DTYPE
WORD = {dtype: word for word, dtype in TORCH_DTYPE.items()}
_BIAS_SEED = 1_000_003
"""Added to the seed for the bias, which would otherwise begin with the numbers that x begins with."""


def make_inputs(case: Case, seed: int, device: str | torch.device, data: str = "normal") -> dict[str, Tensor]:
    """The same tensors for the same seed, device and data, scaled so that logits are about 1.

    `data` names a distribution of `dense_splitk`, of which x and w are the operands: `normal`, `uniform`, `integers`,
    `zeros`, or `activations`, where a few columns of x are large for every token.
    """
    t, n, k = sizes(case)
    operands = dense.make_inputs(dense_case_of(t, n, k, case.dtype, case.precision), seed, device, data)
    inputs = {"x": operands["a"], "w": operands["b"].t().contiguous()}
    if has_bias(case):
        row = dense_case_of(1, 1, n, case.dtype, case.precision)
        inputs["bias"] = dense.make_inputs(row, seed + _BIAS_SEED, device, data)["a"][0]
    return inputs
