"""The logits as an operator whose ways to be computed Inductor times for ranges of T, and chooses from at run time.

x [T, K], w [N, K], bias [N] or none, T dynamic. `torch._inductor.kernel.custom_op` lets an operator bring
decompositions and split points: every range is tuned at its upper end, the last at `MOST_TOKENS`, and the compiled code
looks at T for each call. The ways are the model's own call, decompose-K with up to four splits, and a product and sum
over three dimensions. Ranges end at `SPLIT_POINTS`, as one would set them by hand; a learned tree exports others.
Refuses a CPU and a torch that has no such registration.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch._dynamo
import torch._inductor
from torch import Tensor

from gemmgate.kernels._inductor.compiled import COMMON, has_option
from gemmgate.kernels.router.cases import has_bias, legal_splits, output_dtype, sizes
from gemmgate.kernels.router.decompose_k import decompose_k
from gemmgate.kernels.router.inductor import gemv, tensors_of
from gemmgate.kernels.router.library import gpu_only, linear
from gemmgate.kernels.router.operands import case_for, torch_dtype
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

SPLIT_POINTS = (1, 128, 512)
MOST_TOKENS = 4096
MOST_SPLITS = 4
_MODULE = "torch._inductor.kernel.custom_op"
_GEMV = -1
"""In place of a number of parts: a product and a sum over three dimensions."""


def one_way(x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype, splits: int = 1) -> Tensor:
    """The logits with K in so many parts."""
    if splits == _GEMV:
        return gemv(out_dtype, x, w, bias)
    return linear(x, w, bias).to(out_dtype) if splits == 1 else decompose_k(x, w, bias, out_dtype, splits)


def supports(case: Case, target: Target) -> Refusal | None:
    if not target.is_gpu:
        return gpu_only("Inductor's autotuner")
    if min(sizes(case)) == 0:
        return "empty", "There is nothing to choose for an empty product."
    if registration() is None:
        return "not_in_this_torch", f"torch {torch.__version__} registers no ranges for an operator's decompositions."
    return None


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if tile is not None:
        raise ValueError(f"custom_op_autotune takes no tile, got {dict(tile)}.")
    operator, out_dtype = _operator(), torch_dtype(output_dtype(case))
    if has_bias(case):

        def product(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
            return operator(x, w, bias, out_dtype)

    else:

        def product(x: Tensor, w: Tensor) -> Tensor:  # type: ignore[misc] # one of two
            return operator(x, w, None, out_dtype)

    compiled = _compile(product, tensors_of(example))

    def bind(inputs: Inputs) -> Call:
        tensors = tensors_of(inputs)
        return lambda: compiled(*tensors)

    ends = ", ".join(map(str, SPLIT_POINTS))
    return Prepared(bind, algorithm=f"ranges up to {ends} and above, each tuned at its end")


def _compile(product: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> Callable[..., Tensor]:
    """Compiled once for every T, and held as what Inductor returned, which Dynamo no longer has a say in."""
    compiled: list[Callable[..., Any]] = []
    takes_size: list[bool] = []

    def backend(graph: Any, examples: list[Any]) -> Callable[..., Any]:
        takes_size.extend(not isinstance(value, Tensor) for value in examples)
        patches = {name: value for name, value in COMMON.items() if has_option(name)}
        compiled.append(torch._inductor.compile(graph, examples, options=patches))
        return compiled[-1]

    x, *others = tensors
    many = x if x.shape[0] > 1 else x.expand(2, -1).contiguous()  # a size of 1 is never taken as dynamic
    torch._dynamo.reset()
    torch._dynamo.mark_dynamic(many, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's compiler calls much that torch itself deprecates
        torch.compile(product, backend=backend, fullgraph=True)(many, *others)
    (inner,) = compiled

    def call(*arguments: Tensor) -> Tensor:
        left = iter(arguments)
        (out,) = inner(*(arguments[0].shape[0] if is_size else next(left) for is_size in takes_size))
        return out

    return call


@cache
def _operator() -> Any:
    """The operator, registered once a process, with the optional arguments that the registration here has."""
    custom_op = importlib.import_module(_MODULE)

    @torch.library.custom_op("gemmgate::router_autotuned", mutates_args=())
    def operator(x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype, splits: int = 1) -> Tensor:
        return one_way(x, w, bias, out_dtype, splits)

    operator.register_fake(lambda x, w, bias, out_dtype, splits=1: x.new_empty(x.shape[0], w.shape[0], dtype=out_dtype))

    def configs(tensors: Mapping[str, Tensor]) -> list[Any]:
        x, w = tensors["x"], tensors["w"]
        case = case_for(x.new_empty(1, int(x.shape[1])), w, None, torch.float32)
        ways = (1, _GEMV, *splits_to_try(case))
        return [custom_op.CustomOpConfig(one_way, splits=splits) for splits in ways]

    wished: dict[str, object] = {
        "benchmark_with_cudagraphs": torch.cuda.is_available(),
        "dispatch_on": {"tensor_name": "x", "dim": 0, "range_upper_bound": MOST_TOKENS},
        "split_points": list(SPLIT_POINTS),
    }
    taken = {name: value for name, value in wished.items() if name in (registration() or ())}
    custom_op.register_custom_op_autotuning(operator, config_generator=configs, **taken)
    return operator


def splits_to_try(case: Case) -> tuple[int, ...]:
    """Of the legal splits at most `MOST_SPLITS`, evenly spread."""
    legal = legal_splits(case)
    step = max(1, -(-len(legal) // MOST_SPLITS))
    return legal[::step]


@cache
def registration() -> frozenset[str] | None:
    """Names of the registration's parameters; None where this torch has none with ranges and a generator."""
    try:
        register = importlib.import_module(_MODULE).register_custom_op_autotuning
        parameters = frozenset(inspect.signature(register).parameters)
    except (ImportError, AttributeError):
        return None
    return parameters if {"config_generator", "dispatch_on", "split_points"} <= parameters else None


IMPLEMENTATION = Implementation("custom_op_autotune", "compiler", True, supports, prepare)
