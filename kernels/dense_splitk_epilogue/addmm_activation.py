"""C = relu(A @ B + bias) by `torch._addmm_activation`, which hands bias and ReLU to cuBLASLt's epilogue.

a [M, K], b [K, N] row-major, bias [N], or zeros where the case has none. torch takes the heuristics' first algorithm.
Refuses a CPU, where the call is two operators under one name, and a torch that has not the function.
"""

from __future__ import annotations

import torch

from gemmgate.kernels.dense_splitk.cublas import gpu_only
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile


def supports(case: Case, target: Target) -> Refusal | None:
    if not target.is_gpu:
        return gpu_only("cuBLASLt's epilogue")
    if not hasattr(torch, "_addmm_activation"):
        return "not_in_this_torch", f"torch {torch.__version__} has no _addmm_activation."
    return None


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"torch._addmm_activation takes no tile, got {dict(tile)}.")

    def bind(inputs: Inputs) -> Call:
        a, b = inputs["a"], inputs["b"]
        bias = inputs.get("bias")
        if bias is None:
            bias = b.new_zeros(b.shape[1])
        return lambda: torch._addmm_activation(bias, a, b, use_gelu=False)

    return Prepared(bind, algorithm="torch._addmm_activation")


IMPLEMENTATION = Implementation("addmm_activation", "peer", True, supports, prepare)
