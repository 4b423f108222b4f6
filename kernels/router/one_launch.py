"""What an own kernel of one launch is made ready by: the binding of a tile to operands, scratch and output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gemmgate.kernels._triton import host
from gemmgate.kernels.router import operands
from gemmgate.kernels.router.cases import output_dtype
from gemmgate.kernels.router.operands import Scratch
from gemmgate.suite.cases import Call, Case, Inputs, Prepared, Target

Launch = Callable[[Tensor, Tensor, Tensor | None, Tensor, Scratch, Any], tuple[Any, ...]]
"""launch(x, w, bias, out, scratch, tile): what was compiled."""
Hold = Callable[[Tensor, Tensor, Any], Scratch]
"""hold(x, w, tile): the scratch of one output."""


def prepared(name: str, launch: Launch, hold: Hold, tile: Any, case: Case, example: Inputs, target: Target) -> Prepared:
    """The kernel `name` with `tile`, a dataclass that has `splits`, compiled on the example where there is a GPU."""
    x, w, bias = example["x"], example["w"], example.get("bias")
    operands.refuse_strides(name, x, w, bias)
    out_dtype = operands.torch_dtype(output_dtype(case))
    out = operands.new_logits(x, w, out_dtype)
    compiled = launch(x, w, bias, out, hold(x, w, tile), tile) if target.is_gpu else ()
    workspaces: list[Tensor] = []
    state: list[Tensor] = []
    return Prepared(
        partial(_bind, name, launch, hold, tile, out_dtype, workspaces, state),
        tile=asdict(tile),
        algorithm="one launch, last arrival adds the parts" if tile.splits > 1 else "one launch",
        workspaces=workspaces,
        state=state,
        device_code=host.device_code(*compiled),
    )


def _bind(
    name: str,
    launch: Launch,
    hold: Hold,
    tile: Any,
    out_dtype: torch.dtype,
    workspaces: list[Tensor],
    state: list[Tensor],
    inputs: Inputs,
) -> Call:
    x, w, bias = inputs["x"], inputs["w"], inputs.get("bias")
    operands.refuse_strides(name, x, w, bias)
    out = operands.new_logits(x, w, out_dtype)
    held = hold(x, w, tile)
    if tile.splits > 1:
        workspaces.append(held.partials)
        state.append(held.counters)

    def call() -> Tensor:
        launch(x, w, bias, out, held, tile)
        return out

    return call
