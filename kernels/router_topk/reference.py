"""The choice in float64: decides right or wrong, is never timed."""

from __future__ import annotations

from torch import Tensor

from gemmgate.kernels.router_topk.cases import rule_of
from gemmgate.kernels.router_topk.eager import route
from gemmgate.suite.cases import Case, Inputs


def reference(case: Case, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Weights [T, top_k] and numbers of the experts [T, top_k], both as float64, the best first."""
    logits = inputs["x"].double() @ inputs["w"].double().t()
    correction = inputs.get("correction")
    weights, experts = route(logits, None if correction is None else correction.double(), rule_of(case))
    return weights, experts.double()
