"""C[M, N] = f(sum over s of A[M, K_s] @ B[K_s, N]): atomic sums in fp32, and a second launch that casts them.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32.

Every program adds its part to an fp32 copy of C by atomics. The second launch applies what follows the sum, casts,
stores C, and puts the fp32 copy back to zero, so that no launch has to clear it. The order of the additions is
that of arrival: equal inputs may give other bits.

Wins where C is too large for a few programs to finish. Loses a launch to what finishes in the first, and to fixed
orders wherever bits have to repeat.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from functools import partial
from typing import Any

import triton
import triton.language as tl

from gemmgate.kernels._triton.epilogue import finish
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.tiling import Tile, ceil_div, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile
from gemmgate.suite.cases import Case, Footprint

_CAST_BLOCK = 256
"""Elements that a program of the second launch casts: small, so that a small C is spread too."""


@triton.jit
def _add_parts(
    a, b, operands, epilogue, sums,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """sums[m, n] += one split's part of a tile; the grid is (tiles, SPLITS)."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), operands.tiles_m, operands.tiles_n, GROUP)
    row, column = tile_m * BM, tile_n * BN
    first, last = k_range(tl.program_id(1), tl.cdiv(operands.k, BK), SPLITS)
    total = multiply_range(
        a, b, operands, row, column, first, last, BM, BN, BK, SLICES, LOADS, WHOLE_K, PRECISION, DTYPE, INTERPRETED
    )
    rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
    within = (rows < operands.m) & (columns < operands.n)
    tl.atomic_add(sums + rows.to(tl.int64) * operands.n + columns, total, mask=within, sem="relaxed")


@triton.jit
def _cast(sums, epilogue, M, N, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr):
    """C = f(sums), and sums = 0."""
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    within = elements // N < M
    total = tl.load(sums + elements, mask=within, other=0.0)
    tl.store(sums + elements, tl.zeros((BLOCK,), dtype=tl.float32), mask=within)
    finish(total, elements // N, elements % N, M, N, epilogue, ACTIVATION, INTERPRETED)


def launch(problem: Problem, tile: Tile, scratch: Scratch) -> tuple[Any, ...]:
    """Both launches; none for an empty C."""
    m, n, _ = problem.sizes
    if m * n == 0:
        return ()
    shared = arguments(problem, tile, _add_parts)
    added = _add_parts[(tiles_of_c(m, n, tile), tile.splits)](sums=scratch.sums, SPLITS=tile.splits, **shared)
    cast = _cast[(ceil_div(m * n, _CAST_BLOCK),)](
        scratch.sums,
        shared["epilogue"],
        m,
        n,
        BLOCK=_CAST_BLOCK,
        ACTIVATION=problem.function,
        INTERPRETED=shared["INTERPRETED"],
        num_warps=4,
    )
    return added, cast


def _sums(m: int, n: int, tile: Tile) -> int:
    return m * n


def footprint(case: Case, tile: Tile) -> Footprint:
    """Atomics reach the cache, not memory: only operands and C count."""
    return tiling.footprint(case, tile, partials=False, launches=2)


DISCIPLINE = Discipline(
    "atomic_fp32",
    _add_parts,
    False,
    launch,
    partial(choose_tile, "atomic_fp32", partial(tiling.choose, whole=True)),
    tiling.space,
    "fp32 atomics, then a cast",
    sums=_sums,
    footprint=footprint,
)
IMPLEMENTATION = implementation(DISCIPLINE)
