"""A product and what follows it, by torch's own operators: the library's product, then a launch for each step.

As someone writes it who does not fuse: after the product, steps are computed in its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}
"""torch's activations, by the names of `ACTIVATIONS`."""


def product(a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    """a @ b; in fp32 for 16-bit operands without rounding on the way, where that is asked and the library can."""
    if out_dtype in (None, a.dtype):
        return torch.mm(a, b)
    if out_dtype == torch.float32 and a.is_cuda and a.shape[0] * b.shape[1] * a.shape[1] > 0:
        return torch.mm(a, b, out_dtype=out_dtype)
    if out_dtype == torch.float32:  # a CPU's library returns the operands' dtype
        return torch.mm(a.float(), b.float())
    return torch.mm(a, b).to(out_dtype)


def matmul(a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None, out_dtype: torch.dtype | None) -> Tensor:
    """activation(a @ b + bias), cast; a bias of columns goes into the library's own epilogue where it can."""
    is_row = bias is not None and bias.shape == (b.shape[1],) and bias.dtype == a.dtype and out_dtype in (None, a.dtype)
    out = torch.addmm(bias, a, b) if is_row else product(a, b, out_dtype)
    if bias is not None and not is_row:
        out = out + bias.to(out.dtype)
    return FUNCTIONS[activation](out) if activation else out
