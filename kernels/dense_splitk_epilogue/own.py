"""C = f(A @ B) in one launch: the kernels of `dense_splitk` with their epilogue inside, and the choice among them.

a [M, K] and b [K, N] row-major, and what the epilogue takes. Everything that follows the sum is computed in fp32 by
whoever completes it, and rounded once; what precedes the product is done to a block when it has been read. A
transposed output is written through its strides, a slice computes its columns alone.
"""

from __future__ import annotations

from typing import Any

import torch

from gemmgate.kernels.dense_splitk import discipline, dispatch
from gemmgate.kernels.dense_splitk.discipline import Problem
from gemmgate.kernels.dense_splitk.inputs import TORCH_DTYPE
from gemmgate.kernels.dense_splitk_epilogue import cublas
from gemmgate.kernels.dense_splitk_epilogue.cases import (
    ADDMM_ALPHA,
    ADDMM_BETA,
    OWN,
    output_dtype,
    output_shape,
)
from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Refusal, Target, Tile


def problem_of(case: Case, inputs: Inputs) -> Problem:
    """The case as a product with an epilogue, into a new C."""
    a, b = inputs["a"], inputs["b"]
    if case.epilogue == "sliced":
        b = b[:, : b.shape[1] // 2]
    output = torch.empty(output_shape(case), dtype=TORCH_DTYPE[output_dtype(case)], device=a.device)
    c = output.t() if case.epilogue == "transposed" else output
    return Problem(a, b, c, case.precision, output=output, dtype=TORCH_DTYPE[case.dtype], **_beside(case, inputs))


def _beside(case: Case, inputs: Inputs) -> dict[str, Any]:
    match case.epilogue:
        case "relu" | "gelu":
            return {"activation": case.epilogue}
        case "bias-relu" | "bias-silu":
            return {"activation": case.epilogue.removeprefix("bias-"), "addend": inputs["bias"]}
        case "bias-column":
            return {"addend": inputs["bias"]}
        case "residual":
            return {"addend": inputs["residual"]}
        case "addmm":
            return {"addend": inputs["bias"], "alpha": ADDMM_ALPHA, "beta": ADDMM_BETA}
        case "scale" | "dequantise":
            return {"factor": inputs["scale"]}
        case "rms-scale":
            return {"factor": inputs["scale"], "k_scale": inputs["weight"]}
    return {}


def supports(case: Case, target: Target) -> Refusal | None:
    return dispatch.supports(case, target)


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    """What `dispatch` of `dense_splitk` chooses for the case, with its epilogue where that was tuned.

    A `tile` is one that an earlier choice reported. Where nothing follows, that is what computes the product alone.
    """
    if case.epilogue == "none":
        return dispatch.prepare(case, example, target, tile)
    choice = dispatch.choose(case, target, plain=False)
    if choice.tile is None:
        return cublas.prepare(case, example, target, tile)
    found = dispatch.load(choice.name)
    return discipline.prepare(found, problem_of, case, example, target, tile or choice.tile_data)


IMPLEMENTATIONS = {
    **{name: discipline.implementation(dispatch.load(name), problem_of) for name in (*OWN, "atomic_out")},
    "dispatch": Implementation("dispatch", "own", False, supports, prepare),
}
