"""How large the error of a case may be, normwise against float64. Standard library only.

To the accumulation of the product come the roundings of who computes in steps: each intermediate in 16 bits rounds once
more than a fused epilogue would. The library's product and torch's steps are the yardstick, so they are admitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gemmgate.kernels.dense_splitk import bound as dense
from gemmgate.kernels.dense_splitk_epilogue.cases import product_of
from gemmgate.suite.cases import Case

_ROUNDINGS: Mapping[str, int] = {
    "bias-silu": 2,
    "gelu": 2,
    "bias-relu": 1,
    "bias-column": 1,
    "residual": 1,
    "scale": 1,
    "addmm": 1,
    "dequantise": 1,
    "rms-scale": 2,
}
"""Intermediates in the dtype of the operands, beside the result. ReLU of a rounded value rounds nothing.
On a CPU torch's GELU in 16 bits shows one more: a tile of 16 x 16 was off by 0.0031, where two come to 0.0024."""
_ROUNDING = {"bf16": 1.66e-3, "fp16": 2.07e-4, "fp32": 2.5e-8}
"""Rms error of rounding normally distributed values to the dtype."""
_STEEPEST = 1.5
"""An activation may pass on more of an error than of its argument: for SiLU of normal values 1.2 in the mean square."""


def error_bound(case: Case) -> float:
    """Half of what the roundings add to that of the result, in quadrature, beside the bound of the product.

    The harness doubles it, and allows the rounding of the result itself.
    """
    roundings = _ROUNDINGS.get(case.epilogue, 0)
    added = (math.sqrt(1 + roundings) - 1) / 2 * _STEEPEST * _ROUNDING[case.dtype]
    return _STEEPEST * dense.error_bound(product_of(case)) + added
