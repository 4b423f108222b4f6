"""Jit functions as a user of the kernels would bring them."""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def square(x):
    """x squared, where it is a number."""
    return tl.abs(x * x)
