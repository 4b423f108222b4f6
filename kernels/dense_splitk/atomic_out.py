"""C[M, N] = sum over s of A[M, K_s] @ B[K_s, N]: C is cleared, and every program adds its part to it by atomics.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in fp32. Accumulates in fp32.

There is no scratch: parts meet in C itself, in the order in which they arrive, so equal inputs may give other bits.
One launch clears C, the next adds. What follows a sum can only be linear, for nobody knows when it is complete.

The least memory of all; wins where C is large and its parts are few. Loses the launch that clears. Refuses a C of 16
bits, in which every addition would round, and activations.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from functools import partial
from typing import Any

import triton
import triton.language as tl

from gemmgate.kernels._triton.epilogue import add_part, finish
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.tiling import Tile, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile
from gemmgate.suite.cases import Case, Footprint


@triton.jit
def _atomic_out(
    a, b, operands, epilogue,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """C += one split's part of a tile; the grid is (tiles, SPLITS)."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), operands.tiles_m, operands.tiles_n, GROUP)
    row, column = tile_m * BM, tile_n * BN
    split = tl.program_id(1)
    first, last = k_range(split, tl.cdiv(operands.k, BK), SPLITS)
    total = multiply_range(
        a, b, operands, row, column, first, last, BM, BN, BK, SLICES, LOADS, WHOLE_K, PRECISION, DTYPE, INTERPRETED
    )
    rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
    if SPLITS == 1:
        finish(total, rows, columns, operands.m, operands.n, epilogue, ACTIVATION, INTERPRETED)
    else:
        add_part(total, rows, columns, operands.m, operands.n, epilogue, split == 0)


def launch(problem: Problem, tile: Tile, scratch: Scratch) -> tuple[Any, ...]:
    """Clears C where parts will meet there, and adds them."""
    m, n, _ = problem.sizes
    if tile.splits > 1 and not problem.is_linear:
        raise ValueError("Parts that are added to C one by one leave no place for an activation.")
    if m * n == 0:
        return ()
    if tile.splits > 1:
        problem.c.zero_()
    grid = (tiles_of_c(m, n, tile), tile.splits)
    return (_atomic_out[grid](SPLITS=tile.splits, **arguments(problem, tile, _atomic_out)),)


def footprint(case: Case, tile: Tile) -> Footprint:
    """Atomics reach the cache, not memory: only operands and C count."""
    return tiling.footprint(case, tile, partials=False, launches=1 + (tile.splits > 1))


DISCIPLINE = Discipline(
    "atomic_out",
    _atomic_out,
    False,
    launch,
    partial(choose_tile, "atomic_out", partial(tiling.choose, whole=True)),
    tiling.space,
    "atomics on C",
    footprint=footprint,
    linear=True,
)
IMPLEMENTATION = implementation(DISCIPLINE)
