"""A product and what follows it, by torch's own operators: the library's product, then a launch for each step.

As someone writes it who does not fuse, but that sums stay fp32 until all is done where their dtype would show.
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
"""torch's activations, by the names of `OWN_ACTIVATIONS`."""


def fp32_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in fp32; of 16-bit operands without rounding on the way."""
    if a.dtype == torch.float32:
        return torch.mm(a, b)
    if a.is_cuda and a.shape[0] * b.shape[1] * a.shape[1] > 0:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.mm(a.float(), b.float())  # a CPU's library returns the operands' dtype


def matmul(a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None, out_dtype: torch.dtype | None) -> Tensor:
    """activation(a @ b + bias), cast; a bias of their dtype goes into the library's own product.

    What follows a product that was rounded would see the infinities of fp16, or round twice: only ReLU, which commutes
    with rounding, follows it, and what else there is in bf16, where no sum leaves the range.
    """
    function = FUNCTIONS[activation] if activation else None
    is_theirs = out_dtype in (None, a.dtype) and (bias is None or bias.dtype == a.dtype)
    if is_theirs and (function is None or activation == "relu" or a.dtype != torch.float16):
        out = torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)
        return out if function is None else function(out)
    out = fp32_product(a, b)
    if bias is not None:
        out.add_(bias)
    return (out if function is None else function(out)).to(out_dtype or a.dtype)
