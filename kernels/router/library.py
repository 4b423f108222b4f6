"""logits = x @ w^T + bias by torch's own products, as models call them.

x [T, K] and w [N, K] in one dtype, bias [N] in it or none.

`linear`: `F.linear`, where the logits keep the operands' dtype.
`linear_float`: `F.linear(x, w).float()`, bf16 operands: the product is rounded to bf16 and cast, in two launches.
`mm_out_dtype`: `torch.mm(x, w.t(), out_dtype=torch.float32)`, bf16 operands: one launch, not rounded in between.
`upcast_fp32`: both operands are cast to fp32 for every call, and the product is an fp32 one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear as torch_linear

from gemmgate.kernels.router.bound import library_bound
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Kind, Prepared, Refusal, Target, Tile

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(x, w, bias) -> logits"""


def linear(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch_linear(x, w, bias)


def linear_float(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch_linear(x, w, bias).float()


def mm_out_dtype(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    logits = torch.mm(x, w.t(), out_dtype=torch.float32)
    return logits if bias is None else logits.add_(bias)


def upcast_fp32(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch_linear(x.float(), w.float(), None if bias is None else bias.float())


PRODUCTS: dict[str, Product] = {
    "linear": linear,
    "linear_float": linear_float,
    "mm_out_dtype": mm_out_dtype,
    "upcast_fp32": upcast_fp32,
}


def gpu_only(what: str) -> Refusal:
    return "gpu_only", f"{what} is measured on a GPU."


def supports(name: str, case: Case, target: Target) -> Refusal | None:
    if name == "mm_out_dtype" and not target.is_gpu:
        return gpu_only("A product whose output has another dtype")
    return None


def prepare(name: str, case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"{name} takes no tile, got {dict(tile)}.")
    return Prepared(partial(bind_product, PRODUCTS[name]), algorithm=name)


def bind_product(product: Product, inputs: Inputs) -> Call:
    """`product` on these inputs, a new tensor each time."""
    x, w, bias = inputs["x"], inputs["w"], inputs.get("bias")
    return lambda: product(x, w, bias)


def _bound(name: str) -> Callable[[Case], float] | None:
    """Where the product's own output has 16 bits, torch lets cuBLAS round parts of it, too."""
    return library_bound if name in ("linear", "linear_float") else None


def _kind(name: str) -> Kind:
    return "yardstick" if name in ("linear", "linear_float") else "peer"


IMPLEMENTATIONS = {
    name: Implementation(
        name, _kind(name), True, partial(supports, name), partial(prepare, name), error_bound=_bound(name)
    )
    for name in PRODUCTS
}
