"""C = A @ B as an operator whose ways to be computed Inductor chooses from: decompose-K with each of some splits.

a [M, K] and b [K, N] row-major, static sizes. `torch._inductor.kernel.custom_op` lets an operator bring
decompositions of its own, which the autotuner times and the compiler then inlines, so that what follows
can be fused into the winner. Unlike Inductor's built-in decompose-K it is offered for every size, and which
splits it may try is decided here: all legal ones nearest to a power of two, and no split at all.
Whatever this torch's registration takes beside is used: timing in CUDA graphs, where it is offered.
Ranges of sizes are not used: a case is one size, for which the range would be tuned at its upper end.
Refuses a CPU, a case without a legal split, and a torch that has no such registration.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from gemmgate.kernels._inductor.compiled import compile_once
from gemmgate.kernels._inductor.tuning import recorded
from gemmgate.kernels.dense_splitk.cases import case_of, legal_splits
from gemmgate.kernels.dense_splitk.cublas import gpu_only
from gemmgate.kernels.dense_splitk.inputs import TORCH_DTYPE
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

MOST_SPLITS = 8
_MODULE = "torch._inductor.kernel.custom_op"
_NAME = "custom"


def decompose_k(a: Tensor, b: Tensor, splits: int = 1) -> Tensor:
    """A @ B with K in `splits` equal parts, summed in fp32; one part is the plain product."""
    if splits == 1:
        return torch.mm(a, b)
    (m, k), n = a.shape, b.shape[1]
    parts_a = a.reshape(m, splits, k // splits).permute(1, 0, 2)  # [S, M, K/S]
    parts_b = b.reshape(splits, k // splits, n)  # [S, K/S, N]
    if a.dtype == torch.float32:
        return torch.bmm(parts_a, parts_b).sum(0)
    return torch.bmm(parts_a, parts_b, out_dtype=torch.float32).sum(0).to(a.dtype)


def splits_to_try(case: Case) -> tuple[int, ...]:
    """No split, and of the legal ones the `MOST_SPLITS` nearest to powers of two, larger ones first where equal."""
    legal = sorted(legal_splits(case), key=lambda split: (_from_power_of_two(split), -split))
    return (1, *sorted(legal[:MOST_SPLITS]))


def _from_power_of_two(split: int) -> float:
    exponent = math.log2(split)
    return round(abs(exponent - round(exponent)), 6)


def supports(case: Case, target: Target) -> Refusal | None:
    if not target.is_gpu:
        return gpu_only("Inductor's autotuner")
    if not legal_splits(case):
        return "no_legal_split", f"K = {case.dims['k']} has no legal split, so there is nothing to choose from."
    return None if _registration() is not None else _not_here()


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"custom_op_autotune takes no tile, got {dict(tile)}.")
    operator = _operator()

    def product(a: Tensor, b: Tensor) -> Tensor:
        return operator(a, b)

    with recorded() as tuning:
        compiled = compile_once(product, (example["a"], example["b"]), {})

    def bind(inputs: Inputs) -> Call:
        a, b = inputs["a"], inputs["b"]
        return lambda: compiled(a, b)

    return Prepared(bind, algorithm=tuning.pick, readings_s=tuning.readings_s or None)


@cache
def _operator() -> Any:
    """The operator, registered once a process, with the optional arguments that the registration here has."""
    custom_op = importlib.import_module(_MODULE)
    operator = torch.library.custom_op("gemmgate::dense_splitk_autotuned", decompose_k, mutates_args=())
    operator.register_fake(lambda a, b, splits=1: a.new_empty(a.shape[0], b.shape[1]))

    def configs(tensors: Mapping[str, Tensor]) -> list[Any]:
        a, b = tensors["a"], tensors["b"]
        (m, k), n = (int(size) for size in a.shape), int(b.shape[1])
        dtype = next(name for name, one in TORCH_DTYPE.items() if one == a.dtype)
        case = case_of(m, n, k, dtype, "ieee" if dtype == "fp32" else "acc32")
        return [custom_op.CustomOpConfig(decompose_k, splits=splits) for splits in splits_to_try(case)]

    wished: dict[str, object] = {"name": _NAME, "benchmark_with_cudagraphs": torch.cuda.is_available()}
    taken = {name: value for name, value in wished.items() if name in (_registration() or ())}
    custom_op.register_custom_op_autotuning(operator, config_generator=configs, **taken)
    return operator


@cache
def _registration() -> frozenset[str] | None:
    """Names of the registration's parameters; None where this torch has none that takes a generator."""
    try:
        register = importlib.import_module(_MODULE).register_custom_op_autotuning
        parameters = frozenset(inspect.signature(register).parameters)
    except (ImportError, AttributeError):
        return None
    return parameters if "config_generator" in parameters else None


def _not_here() -> Refusal:
    return (
        "not_in_this_torch",
        f"torch {torch.__version__} cannot register decompositions of an operator that depend on its sizes.",
    )


IMPLEMENTATION = Implementation("custom_op_autotune", "compiler", True, supports, prepare)
