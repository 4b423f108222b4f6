"""`right.py` without its idea: one program walks all of K, and most of the GPU has nothing to do."""

import triton
from right import BLOCK_K, multiply


def matmul(a, b):
    """One part."""
    return multiply(a, b, 1, triton.cdiv(a.shape[1], BLOCK_K))
