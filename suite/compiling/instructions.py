"""Words for what machine code consists of, for those who count it and those who judge it."""

from __future__ import annotations

TENSOR_CORES = ("mma", "wgmma", "tcgen05")
"""Groups of instructions that compute on tensor cores, the latest last."""
