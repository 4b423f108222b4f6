"""C = f(A @ B) by the library's product, then torch's operators: the way it is written without fusing. The yardstick.

a [M, K] and b [K, N] row-major, and what the epilogue takes. A bias of columns goes through `torch.addmm`, and a wider
output through the library where it offers one, as somebody who knows torch writes it. Refuses what `torch.mm` on a CPU
is not asked to do.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk import cublas, eager
from gemmgate.kernels.dense_splitk_epilogue.cases import ADDMM_ALPHA, ADDMM_BETA
from gemmgate.kernels.dense_splitk_epilogue.steps import after, before
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile


def supports(case: Case, target: Target) -> Refusal | None:
    return cublas.supports(case, target)


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"torch.mm takes no tile, got {dict(tile)}.")

    def bind(inputs: Inputs) -> Call:
        return lambda: compute(case, inputs)

    return Prepared(bind, algorithm="torch.mm, then operators of torch")


def compute(case: Case, inputs: Inputs) -> Tensor:
    """One call."""
    if case.epilogue in _ADDMM:
        return _ADDMM[case.epilogue](inputs["bias"], *before(case, inputs))
    a, b = before(case, inputs)
    if case.epilogue == "cast" and a.dtype != torch.float32:
        return eager.fp32_product(a, b)
    return after(case, torch.mm(a, b), inputs)


_ADDMM: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "bias-relu": lambda bias, a, b: torch.relu(torch.addmm(bias, a, b)),
    "bias-silu": lambda bias, a, b: torch.nn.functional.silu(torch.addmm(bias, a, b)),
    "addmm": lambda bias, a, b: torch.addmm(bias, a, b, beta=ADDMM_BETA, alpha=ADDMM_ALPHA),
}

IMPLEMENTATION = Implementation("cublas", "yardstick", True, supports, prepare)
