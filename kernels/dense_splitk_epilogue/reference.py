"""The product and what follows it in float64: decides right or wrong, is never timed."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk import reference as dense
from gemmgate.kernels.dense_splitk.inputs import TORCH_DTYPE
from gemmgate.kernels.dense_splitk_epilogue.cases import ADDMM_ALPHA, ADDMM_BETA, product_of
from gemmgate.suite.cases import Case, Inputs


def reference(case: Case, inputs: Inputs) -> Tensor:
    """C in float64; operands are rounded where the definition of the epilogue rounds them, sums nowhere."""
    a, b = inputs["a"], inputs["b"]
    if case.epilogue == "cast-in":
        a = a.to(TORCH_DTYPE[case.dtype])
    if case.epilogue == "rms-scale":
        a = (a.float() * inputs["weight"].float()).to(a.dtype)
    product = dense.reference(product_of(case), {"a": a, "b": b})

    def beside(name: str) -> Tensor:
        tensor: Tensor = inputs[name].double()
        return tensor

    match case.epilogue:
        case "relu":
            return torch.relu(product)
        case "gelu":
            return torch.nn.functional.gelu(product)
        case "bias-relu":
            return torch.relu(product + beside("bias"))
        case "bias-silu":
            return torch.nn.functional.silu(product + beside("bias"))
        case "bias-column":
            return product + beside("bias")
        case "residual":
            return product + beside("residual")
        case "scale" | "dequantise" | "rms-scale":
            return product * beside("scale")
        case "addmm":
            return ADDMM_ALPHA * product + ADDMM_BETA * beside("bias")
        case "transposed":
            return product.t().contiguous()
        case "sliced":
            return product[:, : product.shape[1] // 2].contiguous()
    return product
