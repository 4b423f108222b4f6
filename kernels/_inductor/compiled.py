"""A function compiled by Inductor for the shapes of one case, held as what Inductor returned.

Dynamo traces the function once and is then left out: its guards, its caches and its limit of
recompilations belong to a program that goes on, not to a measurement of one shape. A call so never
compiles, and costs the host what Inductor's own wrapper costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._dynamo
import torch._inductor
from torch import Tensor

COMMON: Mapping[str, object] = {
    "compile_threads": 1,  # no pool of processes, which would outlive a worker that is killed
    "autotune_in_subproc": False,  # nor one that holds the GPU
    "pipeline_max_autotune_gemm": False,  # as above
    "fx_graph_cache": False,  # what an earlier process chose is not what this one would choose
    "autotune_local_cache": False,  # nor does what it measured count
    "triton.cudagraphs": False,  # the harness captures
    "coordinate_descent_tuning": False,  # the search is over the autotuner's own choices
}
"""Options of every compilation here, where this torch has them."""


def has_option(name: str) -> bool:
    """Whether this torch's Inductor has an option of that name."""
    return name in torch._inductor.list_options()


def compile_once(
    function: Callable[..., Any], tensors: tuple[Tensor, ...], options: Mapping[str, object]
) -> Callable[..., Any]:
    """`function` compiled for the shapes, strides and dtypes of `tensors`, which are its arguments in this order.

    It returns a tensor or a tuple of tensors, and so does what is compiled.

    An option that this torch does not have raises ValueError: `has_option` asks beforehand.
    """
    unknown = sorted(name for name in options if not has_option(name))
    if unknown:
        raise ValueError(f"Inductor of torch {torch.__version__} has no option {', '.join(unknown)}.")
    patches = {**{name: value for name, value in COMMON.items() if has_option(name)}, **options}
    compiled: list[Callable[..., Any]] = []

    def backend(graph: Any, examples: list[Any]) -> Callable[..., Any]:
        compiled.append(torch._inductor.compile(graph, examples, options=patches))
        return compiled[-1]

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's compiler calls much that torch itself deprecates
        torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(*tensors)
    (inner,) = compiled

    def call(*arguments: Tensor) -> Any:
        outs = inner(*arguments)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return call
