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

_MOST_OF_ROUNDING = {"bf16": 0.06, "fp16": 0.12}
"""Share of the output's rounding that the bound may reach. Partial sums kept in 16 bits bring the error to sqrt(2)
times that rounding, give or take 7 % where there are 256 outputs: for bf16, 1 + 2 x 0.06 stays four standard
deviations below. Independent errors add in quadrature, so it still admits an accumulation error of half the rounding,
8e-4. fp16 rounds eight times finer, and a truncating sum of 65536 products comes to half of that: it gets more room."""

_ROUNDING = {"bf16": 1.66e-3, "fp16": 2.07e-4}
"""Rms error of rounding normally distributed outputs to the dtype."""

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
    return min(summed + truncated, _MOST_OF_ROUNDING[case.dtype] * _ROUNDING[case.dtype])
