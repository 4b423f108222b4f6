"""Two ways to add up rows, their inputs, and the sums in float64."""

from __future__ import annotations

from functools import partial

import torch

from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Target, Tile


def make_inputs(case: Case, seed: int, device: str, data: str = "normal") -> dict[str, torch.Tensor]:
    """x [M, K]"""
    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(case.dims["m"], case.dims["k"], generator=generator, device=device)}


def reference(case: Case, inputs: Inputs) -> torch.Tensor:
    """Row sums [M, 1] in float64."""
    return inputs["x"].double().sum(1, keepdim=True)


def _by_sum(inputs: Inputs) -> torch.Tensor:
    return inputs["x"].sum(1, keepdim=True)


def _by_product(inputs: Inputs) -> torch.Tensor:
    return inputs["x"] @ torch.ones_like(inputs["x"][:1]).T


def _implementation(name: str, kind: str, compute: object) -> Implementation:
    def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None) -> Prepared:
        return Prepared(lambda inputs: partial(compute, inputs))

    return Implementation(name, kind, True, lambda case, target: None, prepare)


BY_SUM = _implementation("torch_sum", "yardstick", _by_sum)
BY_PRODUCT = _implementation("by_product", "own", _by_product)
