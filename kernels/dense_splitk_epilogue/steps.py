"""The epilogues and prologues as torch's own operators, one step after the other: what nobody has fused."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk.inputs import TORCH_DTYPE
from gemmgate.kernels.dense_splitk_epilogue.cases import ADDMM_ALPHA, ADDMM_BETA, output_dtype
from gemmgate.suite.cases import Case, Inputs


def before(case: Case, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The operands of the product, in its dtype."""
    a, b = inputs["a"], inputs["b"]
    dtype = TORCH_DTYPE[case.dtype]
    match case.epilogue:
        case "cast-in":
            return a.to(dtype), b
        case "dequantise":
            return a, b.to(dtype)
        case "rms-scale":
            return a * inputs["weight"], b
        case "sliced":
            return a, b[:, : b.shape[1] // 2]
    return a, b


def after(case: Case, product: Tensor, inputs: Inputs) -> Tensor:
    """C from the product, step by step, each in the dtype of its argument."""
    match case.epilogue:
        case "relu":
            return torch.relu(product)
        case "gelu":
            return torch.nn.functional.gelu(product)
        case "bias-relu":
            return torch.relu(product + inputs["bias"])
        case "bias-silu":
            return torch.nn.functional.silu(product + inputs["bias"])
        case "bias-column":
            return product + inputs["bias"]
        case "residual":
            return product + inputs["residual"]
        case "scale" | "dequantise" | "rms-scale":
            return (product * inputs["scale"]).to(product.dtype)
        case "addmm":
            return ADDMM_ALPHA * product + ADDMM_BETA * inputs["bias"]
        case "transposed":
            return product.t().contiguous()
        case "sliced":
            return product.contiguous()
        case "cast":
            return product.to(TORCH_DTYPE[output_dtype(case)])
    return product
