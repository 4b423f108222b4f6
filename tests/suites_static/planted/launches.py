"""One kernel under several names, each launched with the options that `variant` gives it."""

# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import os
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

from .variant import OPTIONS


@triton.jit
def _product(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr, BK: tl.constexpr):
    """c [BLOCK, BLOCK] = a [BLOCK, K] @ b [K, BLOCK], by one program."""
    rows = tl.arange(0, BLOCK)
    within = tl.arange(0, BK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * K + start + within[None, :])
        b = tl.load(b_ptr + (start + within[:, None]) * BLOCK + rows[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * BLOCK + rows[None, :], total)


def make_inputs(case: Case, seed: int, device: str, data: str = "normal") -> dict[str, Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    a = torch.randn(64, case.dims["k"], generator=generator, device=device).to(torch.bfloat16)
    return {"a": a, "b": torch.randn(case.dims["k"], 64, device=device).to(torch.bfloat16)}


def reference(case: Case, inputs: Inputs) -> Tensor:
    out: Tensor = inputs["a"].double() @ inputs["b"].double()
    return out


def _supports(name: str, case: Case, target: Target) -> Refusal | None:
    return ("never", "It takes no case.") if name == "refuser" else None


def _prepare(name: str, case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    if name == "aborter":
        os.abort()
    if name == "raiser":
        raise KeyError("planted")
    chosen = tile or {"block_k": 64}
    if name != "idle":
        a, b = example["a"], example["b"]
        out = torch.empty(64, 64, dtype=torch.float32, device=a.device)
        _product[(1,)](a, b, out, case.dims["k"], BLOCK=64, BK=int(chosen["block_k"]), **OPTIONS[name])
    return Prepared(lambda inputs: lambda: None, tile=chosen)


def _tiles(case: Case, target: Target) -> list[Tile]:
    return [{"block_k": block_k} for block_k in (32, 64, 128)]


IMPLEMENTATIONS = {
    name: Implementation(name, "own", True, partial(_supports, name), partial(_prepare, name), tiles=_tiles)
    for name in ("steady", "spiller", "oversize", "fallback", "refuser", "aborter", "raiser", "idle")
}
