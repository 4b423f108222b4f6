"""Operands of a product in every layout that torch allows, shared by interpreted and GPU tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

FORMATS = [("bf16", "acc32"), ("fp16", "acc32"), ("fp32", "ieee"), ("fp32", "tf32")]
DTYPE = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SIZES = [
    *((5, 37, k) for k in (0, 1, 2, 15, 16, 17, 31, 33, 1001)),
    (1, 1, 33),
    (33, 1, 1001),
    (1, 37, 17),
    (0, 5, 16),
    (5, 0, 16),
    (0, 0, 0),
]
"""(M, N, K)"""

_ERROR = {"acc32": 1e-6, "ieee": 1e-6, "tf32": 1.5e-3, "3xtf32": 1e-6}
"""Error of a short accumulation: a few units of fp32, or four standard deviations of two operands in TF32."""


def matrix(rows: int, columns: int, dtype: str, device: str, seed: int = 0) -> Tensor:
    """A row-major matrix of normal values."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, device=device).to(DTYPE[dtype])


def _inside(x: Tensor) -> Tensor:
    """The middle of a parent that is NaN elsewhere: what is read beyond the view shows."""
    parent = x.new_full((x.shape[0] + 6, x.shape[1] + 10), float("nan"))
    parent[3:-3, 5:-5] = x
    return parent[3:-3, 5:-5]


def _one_off(x: Tensor) -> Tensor:
    """The base pointer one element after an aligned one."""
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def _every_second(x: Tensor) -> Tensor:
    """Every second row and column of a parent that is NaN elsewhere."""
    parent = x.new_full((2 * x.shape[0], 2 * x.shape[1]), float("nan"))
    parent[::2, ::2] = x
    return parent[::2, ::2]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "row": lambda x: x,
    "column": lambda x: x.t().contiguous().t(),
    "inside": _inside,
    "one_off": _one_off,
    "every_second": _every_second,
    "one_row_expanded": lambda x: x[:1].expand(x.shape),
    "one_column_expanded": lambda x: x[:, :1].expand(x.shape),
    "one_value_expanded": lambda x: x[:1, :1].expand(x.shape),
}


def assert_product(c: Tensor, a: Tensor, b: Tensor, precision: str) -> None:
    """`c` is `a @ b` in float64, but for the rounding of its dtype and of the accumulation.

    The latter is relative to the root of the summed squared products: sums of few outputs may cancel.
    """
    reference = a.double() @ b.double()
    assert c.shape == reference.shape
    assert c.dtype == a.dtype
    rounding = (reference.to(c.dtype).double() - reference).norm()
    scale = torch.maximum(reference.norm(), (a.double().square() @ b.double().square()).sqrt().norm())
    allowed = rounding + _ERROR[precision] * scale
    assert (c.double() - reference).norm() <= allowed
