"""The experts of each token by a sequence of torch's operations, as models write it: the yardstick.

x [T, K] and w [N, K] in bf16, `correction` [N] in fp32 or none. The logits are `F.linear(x, w)` in bf16, cast to fp32;
scores, groups, top-k and weights follow in fp32, each a launch or several. `inductor` is the same, compiled.

Where two experts are equally good, `torch.topk` promises no order.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear, softplus

from gemmgate.kernels._inductor.compiled import compile_once
from gemmgate.kernels.router.library import gpu_only
from gemmgate.kernels.router_topk.cases import Rule, rule_of
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

_TINY = 1e-20


def scores_of(logits: Tensor, score: str) -> Tensor:
    """Of each expert, in the dtype of the logits."""
    if score == "softmax":
        return torch.softmax(logits, dim=-1)
    return torch.sigmoid(logits) if score == "sigmoid" else softplus(logits).sqrt()


def route(logits: Tensor, correction: Tensor | None, rule: Rule) -> tuple[Tensor, Tensor]:
    """Weights and numbers of the experts, [T, top_k] each, the best first."""
    scores = scores_of(logits, rule.score)
    worth = scores if correction is None else scores + correction
    if rule.groups > 1:
        grouped = worth.unflatten(1, (rule.groups, -1))  # [T, groups, N / groups]
        best = grouped.topk(2, dim=-1).values.sum(-1).topk(rule.top_groups, dim=-1).indices
        kept = torch.zeros_like(grouped[:, :, 0]).scatter(1, best, 1.0)  # [T, groups]
        worth = grouped.masked_fill(kept[:, :, None] == 0, -torch.inf).flatten(1)
    experts = worth.topk(rule.top_k, dim=-1).indices
    weights = scores.gather(1, experts)
    if rule.normalised:
        weights = weights / (weights.sum(-1, keepdim=True) + _TINY)
    return weights * rule.scale, experts


def sequence(rule: Rule, x: Tensor, w: Tensor, correction: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """From tokens to weights, fp32 [T, top_k], and numbers of the experts, int32 [T, top_k]."""
    weights, experts = route(linear(x, w).float(), correction, rule)
    return weights, experts.int()


def supports(case: Case, target: Target) -> Refusal | None:
    return None


def supports_compiled(case: Case, target: Target) -> Refusal | None:
    return None if target.is_gpu else gpu_only("What Inductor makes of a GPU's kernels")


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"eager takes no tile, got {dict(tile)}.")
    rule = rule_of(case)

    def bind(inputs: Inputs) -> Call:
        x, w, correction = inputs["x"], inputs["w"], inputs.get("correction")
        return lambda: sequence(rule, x, w, correction)

    return Prepared(bind, algorithm="a sequence of torch's operations")


def prepare_compiled(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"inductor takes no tile, got {dict(tile)}.")
    compiled = compile_once(partial(sequence, rule_of(case)), _tensors(example), {})

    def bind(inputs: Inputs) -> Call:
        tensors = _tensors(inputs)
        return lambda: compiled(*tensors)

    return Prepared(bind, algorithm="the sequence, compiled by Inductor")


def _tensors(inputs: Inputs) -> tuple[Tensor, ...]:
    return tuple(inputs[name] for name in ("x", "w", "correction") if name in inputs)


IMPLEMENTATIONS = {
    "eager": Implementation("eager", "yardstick", True, supports, prepare),
    "inductor": Implementation("inductor", "compiler", True, supports_compiled, prepare_compiled),
}
