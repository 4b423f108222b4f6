"""Compiled with CUDA graphs of torch's own: what a call keeps lies outside of the graphs' pool."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gemmgate.kernels._triton import zeros
from gemmgate.kernels.dense_splitk import matmul
from gemmgate.kernels.router import logits

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("rows", "columns", "k"),
    [(8, 64, 4096), (32, 32, 8192), (64, 64, 8192), (128, 128, 32768), (256, 256, 65536)],
)
def test_products_are_right_under_graphs_of_the_compiler(rows: int, columns: int, k: int) -> None:
    """With `reduce-overhead`, the first call included, each call gives what float64 gives of its own operands."""
    zeros._of_stream.clear()
    zeros._reserve.clear()
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: matmul(a, b, activation="relu") + 1, mode="reduce-overhead")
    for seed in range(4):
        generator = torch.Generator("cuda").manual_seed(seed)
        a, b = (
            torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16) * k**-0.25
            for shape in ((rows, k), (k, columns))
        )
        found = compiled(a, b).double()
        wanted = (a.double() @ b.double()).relu() + 1
        assert (found - wanted).norm() <= 0.01 * wanted.norm(), seed


@pytest.mark.parametrize("tokens", [1, 4, 16, 64])
def test_logits_are_right_under_graphs_of_the_compiler(tokens: int) -> None:
    """The same of a router's logits."""
    zeros._of_stream.clear()
    zeros._reserve.clear()
    torch._dynamo.reset()
    weights = torch.randn(256, 7168, device="cuda", dtype=torch.bfloat16)

    def scored(x: Tensor) -> Tensor:
        return logits(x, weights, out_dtype=torch.float32).sigmoid()

    compiled = torch.compile(scored, mode="reduce-overhead")
    for seed in range(4):
        generator = torch.Generator("cuda").manual_seed(seed)
        x = torch.randn(tokens, 7168, generator=generator, device="cuda", dtype=torch.bfloat16) * 7168**-0.5
        wanted = (x.double() @ weights.double().T).sigmoid()
        assert (compiled(x).double() - wanted).norm() <= 1e-3 * wanted.norm(), seed
