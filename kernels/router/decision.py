"""What the error of the logits does to the choice of experts, the only thing that they are for."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gemmgate.kernels.router.cases import DRAWN, MODELS, sizes
from gemmgate.suite.cases import Case, Inputs

_MODELS = {model.name: model for model in MODELS + DRAWN}
_USUAL = (8, "softmax")


def decision(case: Case, inputs: Inputs, output: Tensor, reference: Tensor) -> Mapping[str, float]:
    """Shares over the tokens of `output` [T, N], against `reference` [T, N] in float64.

    `agree`: the same set of top-k experts as the reference. `tied`: another set, but the logits at the boundary are
    equal, so that top-k was free to choose. `differ`: another set without a tie; the three add up to 1.
    `moved`: of the weight that a token's experts share, how much went to another expert, or to another share of the
    same: half the sum of absolute differences, averaged. The model's number of experts and its softmax or sigmoid
    count; weights are normalised over the chosen.
    """
    t, n, _ = sizes(case)
    if t == 0:
        return {"agree": 1.0, "tied": 0.0, "differ": 0.0, "moved": 0.0}
    top_k, score = choice_of(case)
    top_k = min(top_k, n)
    exact = _weights(reference.double(), top_k, score)
    found = _weights(output.double(), top_k, score)
    same = ((exact > 0) == (found > 0)).all(dim=1)
    tied = ~same & _is_tied(output, top_k)
    agree, ties = float(same.double().mean()), float(tied.double().mean())
    moved = float((exact - found).abs().sum(dim=1).mean()) / 2
    return {"agree": agree, "tied": ties, "differ": 1.0 - agree - ties, "moved": moved}


def choice_of(case: Case) -> tuple[int, str]:
    """How many experts a token gets, and by which scores: the model's that the case is named after."""
    model = _MODELS.get(case.name.rsplit("-t", 1)[0])
    return (model.top_k, model.score) if model else _USUAL


def _weights(logits: Tensor, top_k: int, score: str) -> Tensor:
    """[T, N]: the normalised weight of each chosen expert, 0 for the others."""
    values, chosen = logits.topk(top_k, dim=1)
    scores = torch.softmax(values, dim=1) if score == "softmax" else torch.sigmoid(values)
    # An expert whose score underflows is still chosen.
    scores = (scores / scores.sum(dim=1, keepdim=True)).clamp_min(torch.finfo(torch.float64).tiny)
    return torch.zeros_like(logits).scatter_(1, chosen, scores)


def _is_tied(logits: Tensor, top_k: int) -> Tensor:
    """[T]: whether the last expert that is in has the logit of the first that is out."""
    if top_k >= logits.shape[1]:
        return torch.zeros(logits.shape[0], dtype=torch.bool, device=logits.device)
    values = logits.topk(top_k + 1, dim=1).values
    return values[:, -1] == values[:, -2]
