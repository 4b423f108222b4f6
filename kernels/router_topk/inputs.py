"""Inputs of `router_topk`: tokens whose experts nobody can mistake, since which they are has to be exact."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmgate.kernels.router_topk.cases import rule_of, sizes
from gemmgate.suite.cases import Case

_HIGHEST, _LOWEST = 3.0, 1.0
_CORRECTION = 0.003
_WEIGHTS = 0
"""The seed of all weights."""


def make_inputs(case: Case, seed: int, device: str | torch.device, data: str = "normal") -> dict[str, Tensor]:
    """x [T, K] and w [N, K] in bf16, `correction` [N] in fp32 where the rule has one.

    Rows of w are orthonormal, and a token is a sum of the rows of its experts: their logits lie evenly between 3 and
    1, all others near 0, and rounding them to bf16 changes no order. With groups, a token's experts are spread evenly
    over as many groups as the rule takes. w is the same for every seed, so that tokens of one set are as clear beside
    the weights of another, as in a layer that meets them again (`serving`). `data` is `normal` only.
    """
    if data != "normal":
        raise ValueError(f"Data '{data}' is not one of normal: {case.family} makes its tokens from its weights.")
    t, n, k = sizes(case)
    rule = rule_of(case)
    if n > k:
        raise ValueError(f"{n} experts have no orthonormal rows of {k}: K must be at least N.")
    generator = torch.Generator(device=device).manual_seed(seed)
    fixed = torch.Generator(device=device).manual_seed(_WEIGHTS)
    w = torch.linalg.qr(torch.randn(k, n, generator=fixed, device=fixed.device))[0].t()  # [N, K]
    per_group = n // rule.groups
    groups = _shuffled(t, rule.groups, generator)[:, : rule.top_groups]  # [T, top_groups]
    each = -(-rule.top_k // rule.top_groups)
    inside = _shuffled(t * rule.top_groups, per_group, generator)[:, :each].view(t, rule.top_groups, each)
    chosen = (groups[:, :, None] * per_group + inside).flatten(1)[:, : rule.top_k]
    chosen = chosen.gather(1, _shuffled(t, rule.top_k, generator))
    levels = torch.linspace(_HIGHEST, _LOWEST, rule.top_k, device=generator.device)
    x = (levels[None, :, None] * w[chosen]).sum(1)  # [T, K]
    inputs = {"x": x.bfloat16(), "w": w.contiguous().bfloat16()}
    if rule.corrected:
        steps = torch.randint(-1, 2, (n,), generator=generator, device=generator.device)
        inputs["correction"] = _CORRECTION * steps.float()
    return inputs


def _shuffled(rows: int, count: int, generator: torch.Generator) -> Tensor:
    """A permutation of `count` for each row."""
    return torch.rand(rows, count, generator=generator, device=generator.device).argsort(1)
