"""Device functions that families share."""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def round_to_tf32(x):
    """fp32 to the nearest TF32, ties away from zero, as `cvt.rna.tf32` does: hardware alone cuts 13 bits off.

    A NaN stays one, whichever of its bits are set. Four instructions each, which is what TF32 spends its time on.
    """
    rounded = (x.to(tl.uint32, bitcast=True) + 0x1000) & 0xFFFFE000
    return tl.where(x != x, float("nan"), rounded.to(tl.float32, bitcast=True))


@triton.jit
def to_operand(x, dtype: tl.constexpr, INTERPRETED: tl.constexpr):
    """Any number to the dtype of a product, to nearest even."""
    if x.dtype != dtype:
        x = store_cast(x.to(tl.float32), dtype, INTERPRETED)
    return x


@triton.jit
def store_cast(x, dtype: tl.constexpr, INTERPRETED: tl.constexpr):
    """fp32 to the dtype of an output, to nearest even: the interpreter alone would cut bf16 off."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        x = tl.where((bits & 0x7FFFFFFF) > 0x7F800000, bits, rounded).to(tl.float32, bitcast=True)
    return x.to(dtype)
