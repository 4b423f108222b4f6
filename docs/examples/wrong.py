"""`right.py` with a mistake that is easily made: blocks of K that do not fill all parts alike are forgotten."""

import triton
from right import BLOCK_K, PARTS, multiply


def matmul(a, b):
    """Right where the blocks of K divide by the parts."""
    blocks = triton.cdiv(a.shape[1], BLOCK_K)
    parts = min(PARTS, blocks)
    return multiply(a, b, parts, blocks // parts)
