"""How large the accumulation error of a case may be, normwise against float64. Standard library only.

Tight enough that three defects never pass as rounding: partial sums kept in 16 bits, TF32 products
where IEEE was asked, a K tile of 16 left out. Each is a test. The harness allows the rounding of the
output dtype, as measured on the reference, plus twice this bound.
"""

from __future__ import annotations

import math

from gemmgate.suite.cases import Case

_UNIT = 2.0**-24
"""Unit roundoff of fp32."""

_HEADROOM = 4.0

_SEQUENTIAL = 0.3
"""A running fp32 sum of K zero-mean terms grows as sqrt(k). Each addition errs by up to half a unit in the last
place of the sum, 0.4 of `_UNIT` rms relative to it, independent in sign; summed in quadrature over the growing
sum this gives 0.4 / sqrt(2) sqrt(K) of the final one, and every other order of summation less."""

_TRUNCATED = 0.42 / 16
"""Tensor cores add 16 products at a time and truncate the sum. The losses all point to zero, so they add up
linearly: 0.36 * 2 * `_UNIT` a step relative to the running sum, over sqrt(3) for its growth, K / 16 steps."""

_ROUNDING = {"bf16": 1.66e-3, "fp16": 2.07e-4}
"""Rms error of rounding normally distributed outputs to the dtype."""

_MOST_OF_ROUNDING = 0.16
"""Partial sums kept in 16 bits are off by sqrt(2) times the output's rounding. Twice 0.16 stays below the
missing 0.41 with room for the scatter of 256 outputs. Since independent errors add in quadrature, it still
admits an accumulation error of 0.86 times the rounding."""

_TF32 = 7e-4
"""Operands rounded to TF32 err by 2.9e-4 together, truncated ones by 7.6e-4, whatever K is. Doubled, this admits
both and stays below the 1.7e-3 of partial sums kept in bf16."""


def error_bound(case: Case) -> float:
    """||C - reference|| / ||reference|| that accumulating K products may cost, without the output's rounding."""
    k = case.dims["k"]
    summed = _HEADROOM * _SEQUENTIAL * math.sqrt(k) * _UNIT
    if case.precision == "tf32":
        return _TF32 + summed
    if case.precision == "ieee":
        return summed
    truncated = _HEADROOM * _TRUNCATED * k * _UNIT
    return min(summed + truncated, _MOST_OF_ROUNDING * _ROUNDING[case.dtype])
