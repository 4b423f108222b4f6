"""Inputs of `dense_splitk`: a [M, K] and b [K, N], row-major, scaled so that outputs are about 1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from gemmgate.kernels.dense_splitk.cases import sizes
from gemmgate.suite.cases import Case

TORCH_DTYPE = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

_OUTLIER_SHARE = 1 / 128
_OUTLIER_SCALE = 16.0


def make_inputs(case: Case, seed: int, device: str | torch.device, data: str = "normal") -> dict[str, Tensor]:
    """The same tensors for the same seed, device and data.

    `data` is `normal`, `uniform` (zero mean), `integers` (-2 to 2, unscaled: sums are exact in fp32),
    `zeros`, or `activations` (heavy-tailed A in which a few columns are large in every row).
    """
    if data not in _DATA:
        raise ValueError(f"Data '{data}' is not one of {', '.join(_DATA)}.")
    m, n, k = sizes(case)
    generator = Generator(device=device).manual_seed(seed)
    draw_a, draw_b = _DATA[data]
    scale = 1.0 if data == "integers" else max(k, 1) ** -0.25
    dtype = TORCH_DTYPE[case.dtype]
    return {
        "a": (draw_a(generator, m, k) * scale).to(dtype),
        "b": (draw_b(generator, k, n) * scale).to(dtype),
    }


def _normal(generator: Generator, rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=generator, device=generator.device)


def _uniform(generator: Generator, rows: int, columns: int) -> Tensor:
    return (torch.rand(rows, columns, generator=generator, device=generator.device) * 2 - 1) * 3**0.5


def _integers(generator: Generator, rows: int, columns: int) -> Tensor:
    return torch.randint(-2, 3, (rows, columns), generator=generator, device=generator.device).float()


def _zeros(generator: Generator, rows: int, columns: int) -> Tensor:
    return torch.zeros(rows, columns, device=generator.device)


def _activations(generator: Generator, rows: int, columns: int) -> Tensor:
    """Normal times log-normal, which gives the tails, and a few columns scaled up; divided by its rms."""
    tailed = _normal(generator, rows, columns) * (0.5 * _normal(generator, rows, columns)).exp()
    outlier = torch.rand(columns, generator=generator, device=generator.device) < _OUTLIER_SHARE
    mean_square = 2.718281828459045**0.5 * (1 + _OUTLIER_SHARE * (_OUTLIER_SCALE**2 - 1))
    return tailed.mul_(torch.where(outlier, _OUTLIER_SCALE, 1.0) / mean_square**0.5)


_Draw = Callable[[Generator, int, int], Tensor]
_DATA: dict[str, tuple[_Draw, _Draw]] = {
    "normal": (_normal, _normal),
    "uniform": (_uniform, _uniform),
    "integers": (_integers, _integers),
    "zeros": (_zeros, _zeros),
    "activations": (_activations, _normal),
}
