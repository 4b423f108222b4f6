"""How large the error of a case may be, normwise against float64. Standard library only.

The harness allows twice this, and for logits in bf16 the rounding of the logits besides. Models with fp32 logits
mostly get them from a product in bf16 that is cast afterwards: that is what they were trained and are served with,
so one rounding to bf16 is right by definition here, and a sum of parts that were each rounded is not. How much
closer than that a result is, the row's `error` and its decision say.
"""

from __future__ import annotations

import math

from gemmgate.kernels.router.cases import output_dtype, sizes
from gemmgate.suite.cases import Case

_UNIT = 2.0**-24
"""Unit roundoff of fp32."""

_HEADROOM = 4.0

_SEQUENTIAL = 0.3
"""A running fp32 sum of K zero-mean terms errs by 0.4 / sqrt(2) sqrt(K) units relative to itself, if every addition
errs by 0.4 units rms, independently; any other order of summation errs less."""

_TRUNCATED = 0.42 / 16
"""A tensor core adds 16 products at a time and may truncate: K / 16 losses of one sign, 0.42 units each."""

_ROUNDED_ONCE = 2.0**-9
"""The most that one rounding to bf16 changes a number, relative to it; so also the most in any norm. Two roundings, of
parts and of their sum, have an rms of sqrt(2) 1.66e-3, which is above."""

_ROUNDED = {"bf16": 1.66e-3, "fp16": 2.07e-4}
"""Rms of rounding to 16 bits."""

_SHARE = {"bf16": 0.06 * 1.66e-3, "fp16": 0.12 * 2.07e-4}
"""For logits in 16 bits the harness adds the rounding itself. Parts kept in the same dtype bring that to sqrt(2)
times: twice these shares keep clear of it."""


def error_bound(case: Case) -> float:
    """||logits - reference|| / ||reference|| that accumulating K products may cost, without the logits' rounding."""
    _, _, k = sizes(case)
    summed = _HEADROOM * _SEQUENTIAL * math.sqrt(k) * _UNIT
    if case.dtype == "fp32":
        return summed
    accumulated = summed + _HEADROOM * _TRUNCATED * k * _UNIT
    if output_dtype(case) == "fp32":
        return _ROUNDED_ONCE / 2 + accumulated
    return min(accumulated, _SHARE[case.dtype])


def library_bound(case: Case) -> float:
    """The same for the library's own product in 16 bits, which may round each part of a split K as well.

    `allow_bf16_reduced_precision_reduction` and its twin for fp16 are on by default in torch, and documented to let
    cuBLAS add parts of K that were rounded to the operands' dtype. Parts of zero mean are independent, so the squares
    of their norms add up to the square of the product's, whatever their number is: rounding each of them costs one
    rounding more. Added to the last one as it is, not in quadrature, it leaves room for few outputs.
    """
    return error_bound(case) + (0.0 if case.dtype == "fp32" else _ROUNDED[case.dtype] / 2)
