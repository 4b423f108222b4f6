"""`right.py` with a look at the result, for which the host waits: no CUDA graph can hold that."""

import right
import torch


def matmul(a, b):
    """Raises where the result is not finite."""
    out = right.matmul(a, b)
    if not torch.isfinite(out).all():
        raise ValueError("the product is not finite")
    return out
