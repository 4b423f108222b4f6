"""What every discipline of splitting K owes, on any device: shared by interpreted and GPU tests."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch
from gemmgate.kernels.dense_splitk.tiling import Tile
from tests.gemm_layouts import assert_product, matrix

NAMES = (
    "last_arrival",
    "grid_barrier",
    "atomic_arrival",
    "atomic_fp32",
    "atomic_out",
    "two_launches",
    "turnstile",
    "stream_k",
)
TILE = Tile(block_m=16, block_n=16, block_k=32, splits=3, num_warps=4, num_stages=2)
TILES = {
    "one split": replace(TILE, splits=1),
    "wide": replace(TILE, block_n=64),
    "sliced": replace(TILE, block_k=64, slices=4, splits=2),
    "more splits than K tiles": replace(TILE, splits=9),
}


def discipline(name: str) -> Discipline:
    found: Discipline = importlib.import_module(f"gemmgate.kernels.dense_splitk.{name}").DISCIPLINE
    return found


def fitting(name: str, tile: Tile) -> Tile:
    """The tile as a discipline takes it: pieces that divide no tile evenly, where it shares out all of C."""
    return replace(tile, splits=1, programs=2 * tile.splits + 1) if name == "stream_k" else tile


def problem(name: str, a: Tensor, b: Tensor, precision: str, **rest: Any) -> Problem:
    """A product into NaN, in the operands' dtype where the discipline can round to it."""
    dtype = torch.float32 if discipline(name).linear else a.dtype
    c = torch.full((a.shape[0], b.shape[1]), float("nan"), dtype=dtype, device=a.device)
    return Problem(a, b, rest.pop("c", c), precision, **rest)


def poisoned(name: str, made: Problem, tile: Tile) -> Scratch:
    """Scratch whose parts are NaN: what is read before it is written shows."""
    scratch = discipline(name).scratch(made, tile)
    if scratch.partials is not None:
        scratch.partials.fill_(float("nan"))
    return scratch


def product(name: str, a: Tensor, b: Tensor, precision: str, tile: Tile = TILE, **rest: Any) -> Tensor:
    """C by a discipline, which must leave its counters and sums zero."""
    tile = fitting(name, tile)
    made = problem(name, a, b, precision, **rest)
    scratch = poisoned(name, made, tile)
    discipline(name).launch(made, tile, scratch)
    assert [x for x in scratch.state if x.any()] == []
    return made.c


def check_product(name: str, a: Tensor, b: Tensor, precision: str, tile: Tile = TILE) -> None:
    """C is the product in float64, rounded."""
    c = product(name, a, b, precision, tile)
    assert_product(c if c.dtype == a.dtype else c.to(a.dtype), a, b, precision)


def integers(rows: int, columns: int, device: str, seed: int) -> Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randint(-2, 3, (rows, columns), generator=generator, device=device).float()


def epilogues(m: int, n: int, device: str) -> Iterator[Any]:
    """Arguments of a problem, by what they stand for."""
    row, column = matrix(1, n, "fp32", device, 5), matrix(m, 1, "fp32", device, 6)
    full = matrix(m, n, "fp32", device, 7)
    yield "bias row", {"addend": row[0]}
    yield "bias column", {"addend": column}
    yield "residual", {"addend": full}
    yield "residual, transposed", {"addend": matrix(n, m, "fp32", device, 8).t()}
    yield "scalar addend, beta", {"addend": row[:, :1], "beta": -1.5}
    yield "scale", {"alpha": 0.25}
    yield "scale of rows", {"factor": column}
    yield "scale of columns and bias", {"factor": row, "addend": column, "alpha": 2.0}


def expected(a: Tensor, b: Tensor, **rest: Any) -> Tensor:
    """The formula of `Problem`, in float64."""
    exact = rest.get("alpha", 1.0) * (a.double() @ b.double())
    if rest.get("factor") is not None:
        exact = exact * rest["factor"].double()
    if rest.get("addend") is not None:
        exact = exact + rest.get("beta", 1.0) * rest["addend"].double()
    return exact
