"""C = A @ B by `torch.mm` with torch's switch for reductions in 16 bits held on or off.

cuBLAS may cut K itself and add the parts in the dtype of the output. torch's
`allow_bf16_reduced_precision_reduction` and `allow_fp16_...` say whether it may, and are on unless a
program turns them off. `cublas` takes them as they are; these two set them, for the length of a call,
so that no other implementation of the same rounds sees it. 16-bit cases only, and only on a GPU.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk.cublas import gpu_only
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

FLAGS = {
    "bf16": "allow_bf16_reduced_precision_reduction",
    "fp16": "allow_fp16_reduced_precision_reduction",
}


def supports(case: Case, target: Target) -> Refusal | None:
    if not target.is_gpu:
        return gpu_only("A switch of cuBLAS")
    if case.dtype not in FLAGS:
        return "no_such_flag", f"torch has no switch for reductions of {case.dtype} products."
    return None


def prepare(allowed: bool, case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"torch.mm takes no tile, got {dict(tile)}.")
    flag = FLAGS[case.dtype]
    return Prepared(partial(_bind, flag, allowed), algorithm=f"torch.mm {flag}={allowed}")


def _bind(flag: str, allowed: bool, inputs: Inputs) -> Call:
    a, b = inputs["a"], inputs["b"]
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    matmul = torch.backends.cuda.matmul

    def call() -> Tensor:
        before = getattr(matmul, flag)
        setattr(matmul, flag, allowed)
        try:
            return torch.mm(a, b, out=out)
        finally:
            setattr(matmul, flag, before)

    return call


IMPLEMENTATIONS = {
    name: Implementation(name, "peer", True, supports, partial(prepare, allowed))
    for name, allowed in (("cublas_full_reduction", False), ("cublas_reduced_reduction", True))
}
