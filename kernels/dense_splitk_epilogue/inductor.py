"""C = f(A @ B) as Inductor compiles it, autotuned, with decompose-K among its choices and without.

a [M, K] and b [K, N] row-major, and what the epilogue takes; static sizes. The autotuner times the product by itself;
the epilogue is fused into the choice afterwards, or not: the kernels of a call say which. Compiled in the
worker's own process. Refuses a CPU.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gemmgate.kernels._inductor.compiled import compile_once
from gemmgate.kernels._inductor.tuning import recorded
from gemmgate.kernels.dense_splitk import inductor as dense
from gemmgate.kernels.dense_splitk.inductor import WAYS
from gemmgate.kernels.dense_splitk_epilogue.steps import after, before
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

_NAMES = ("inductor_max_autotune", "inductor_no_decompose_k")


def supports(name: str, case: Case, target: Target) -> Refusal | None:
    return dense.supports(name, case, target)


def prepare(name: str, case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"{name} takes no tile, got {dict(tile)}.")
    names = tuple(example)

    def function(*tensors: Tensor) -> Tensor:
        inputs = dict(zip(names, tensors, strict=True))
        return after(case, torch.mm(*before(case, inputs)), inputs)

    dense._forget_gates()
    try:
        with recorded() as tuning:
            compiled = compile_once(function, tuple(example[name] for name in names), WAYS[name].options)
    finally:
        dense._forget_gates()

    def bind(inputs: Inputs) -> Call:
        tensors = tuple(inputs[name] for name in names)
        return lambda: compiled(*tensors)

    return Prepared(bind, algorithm=tuning.pick, readings_s=tuning.readings_s or None)


IMPLEMENTATIONS = {
    name: Implementation(name, "compiler", True, partial(supports, name), partial(prepare, name)) for name in _NAMES
}
