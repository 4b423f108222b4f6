"""What an own kernel is made ready by: tile, operands, scratch and output bound together, and the second launch."""

# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

from gemmgate.kernels._triton import host
from gemmgate.kernels.router import operands
from gemmgate.kernels.router.cases import output_dtype
from gemmgate.kernels.router.device import add_parts
from gemmgate.kernels.router.operands import Scratch, scratch
from gemmgate.suite.cases import Call, Case, Inputs, Prepared, Target

Multiply = Callable[[Tensor, Tensor, Tensor | None, Tensor, Scratch, Any], Any]
"""multiply(x, w, bias, out, scratch, tile): the first launch, for an output that is not empty; what was compiled.

A tile is a dataclass with `block_t`, `block_n`, `splits` and `overlap`, which leaves several parts to a second launch.
"""

OVERLAP_CAPABILITY = 90
"""From here on a launch can begin before the one it depends on has ended."""
_LOADED = 512
"""Partial sums that a program of the second launch asks for at once, four a thread: programs should be many."""
_MOST_AT_ONCE = 16
_SUM_WARPS = 4


def overlaps(target: Target) -> bool:
    """Whether a second launch can be there before the first has ended."""
    return target.compute_capability >= OVERLAP_CAPABILITY


def split_constants(tile: Any) -> dict[str, Any]:
    """How the first launch is compiled for a tile with `splits` and `overlap`, a block of which is `block_t` `block_n`.

    Where it leaves the parts alone one binary serves any number of them.
    """
    splits = min(tile.splits, 2) if tile.overlap else tile.splits
    block = tile.block_t * tile.block_n
    return {
        "SPLITS": splits,
        "OVERLAP": tile.overlap == 1,
        "AT_ONCE": 1 if tile.overlap else operands.parts_at_once(splits, block, tile.num_warps),
    }


def hold(x: Tensor, w: Tensor, tile: Any, counters: Tensor | None = None) -> Scratch:
    """The scratch of one output; `counters` are zeros to use instead of new ones."""
    blocks = triton.cdiv(w.shape[0], tile.block_n) * triton.cdiv(x.shape[0], tile.block_t)
    return scratch(x, w, tile.splits, 0 if tile.overlap else blocks, counters)


def run(multiply: Multiply, x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype, tile: Any) -> Tensor:
    """The logits in a new tensor. Operands are taken as they are: see `operands.check` and `refuse_strides`."""
    out = operands.new_logits(x, w, out_dtype)
    counts_arrivals = tile.splits > 1 and not tile.overlap
    counters = operands.common_counters(x.device) if counts_arrivals else None
    _launch(multiply, x, w, bias, out, hold(x, w, tile, counters), tile)
    return out


def _launch(
    multiply: Multiply, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor, held: Scratch, tile: Any
) -> tuple[Any, ...]:
    """The launch or launches, none for an empty output."""
    if out.numel() == 0:
        return ()
    multiplied = multiply(x, w, bias, out, held, tile)
    if tile.splits == 1 or not tile.overlap:
        return (multiplied,)
    return multiplied, launch_sum(held, bias, out, tile.splits)


def launch_sum(held: Scratch, bias: Tensor | None, out: Tensor, splits: int) -> Any:
    """The second launch: out [T, N] from partial sums [S, T, N] and a bias [N]."""
    at_once = min(_MOST_AT_ONCE, triton.next_power_of_2(splits))
    block = _LOADED // at_once
    interpreted = host.is_interpreted(add_parts)
    return add_parts[(triton.cdiv(out.numel(), block),)](
        held.partials, out if bias is None else bias, out, out.numel(), out.shape[1],
        SPLITS=splits, BLOCK=block, AT_ONCE=at_once, HAS_BIAS=bias is not None, INTERPRETED=interpreted,
        num_warps=_SUM_WARPS, **({} if interpreted else {"launch_pdl": True}),
    )  # fmt: skip


def prepared(name: str, multiply: Multiply, tile: Any, case: Case, example: Inputs, target: Target) -> Prepared:
    """The kernel `name` with `tile`, compiled on the example on a GPU."""
    x, w, bias = example["x"], example["w"], example.get("bias")
    operands.refuse_strides(name, x, w, bias)
    if tile.overlap and target.is_gpu and not overlaps(target):
        raise ValueError(f"overlap needs sm_{OVERLAP_CAPABILITY}, this is {target.arch}: take a tile with overlap 0.")
    out_dtype = operands.torch_dtype(output_dtype(case))
    out = operands.new_logits(x, w, out_dtype)
    compiled = _launch(multiply, x, w, bias, out, hold(x, w, tile), tile) if target.is_gpu else ()
    workspaces: list[Tensor] = []
    state: list[Tensor] = []
    return Prepared(
        partial(_bind, name, multiply, tile, out_dtype, workspaces, state),
        tile=asdict(tile),
        algorithm=_said(tile),
        workspaces=workspaces,
        state=state,
        device_code=host.device_code(*compiled),
    )


def _said(tile: Any) -> str:
    if tile.splits == 1:
        return "one launch"
    return "second launch adds the parts" if tile.overlap else "one launch, last arrival adds the parts"


def _bind(
    name: str,
    multiply: Multiply,
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
        if not tile.overlap:
            state.append(held.counters)

    def call() -> Tensor:
        _launch(multiply, x, w, bias, out, held, tile)
        return out

    return call
