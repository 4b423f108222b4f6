"""The logits in float64: decides right or wrong, is never timed."""

from __future__ import annotations

from torch import Tensor

from gemmgate.suite.cases import Case, Inputs


def reference(case: Case, inputs: Inputs) -> Tensor:
    """x @ w^T + bias [T, N] in float64 on the inputs' device."""
    logits: Tensor = inputs["x"].double() @ inputs["w"].double().t()
    return logits + inputs["bias"].double() if "bias" in inputs else logits
