"""The product in float64: decides right or wrong, is never timed."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmgate.suite.cases import Case, Inputs

_CHUNK_BYTES = 2 * 1024**3


def reference(case: Case, inputs: Inputs) -> Tensor:
    """A @ B [M, N] in float64 on the inputs' device, in pieces of K whose copies stay under 2 GiB."""
    a, b = inputs["a"], inputs["b"]
    (m, k), n = a.shape, b.shape[1]
    step = max(1, _CHUNK_BYTES // (8 * max(m + n, 1)))
    total = torch.zeros(m, n, dtype=torch.float64, device=a.device)
    for start in range(0, k, step):
        total += a[:, start : start + step].double() @ b[start : start + step].double()
    return total
