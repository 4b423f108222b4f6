"""What computes the family `nonsense`: a square product by torch."""

from __future__ import annotations

from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Target, Tile


def make_inputs(case: Case, seed: int, device: str, data: str) -> Inputs:
    """Two square matrices."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    n = case.dims["n"]
    return {name: torch.randn(n, n, generator=generator, device=device) for name in "ab"}


def reference(case: Case, inputs: Inputs) -> object:
    """The product in float64."""
    return inputs["a"].double() @ inputs["b"].double()


def _prepare(case: Case, example: Inputs, target: Target, tile: Tile | None) -> Prepared:
    return Prepared(bind=lambda inputs: lambda: inputs["a"] @ inputs["b"])


IMPLEMENTATION = Implementation("plain", "yardstick", deterministic=True, supports=lambda *_: None, prepare=_prepare)
VAGUE = Implementation(
    "vague",
    "peer",
    deterministic=True,
    supports=lambda *_: "no",
    prepare=_prepare,
)
BOUNDLESS = Implementation(
    "boundless",
    "peer",
    deterministic=True,
    supports=lambda *_: None,
    prepare=lambda *_: Prepared(bind=lambda inputs: lambda: 2 * (inputs["a"] @ inputs["b"])),
    error_bound=lambda case: float("inf"),
)
