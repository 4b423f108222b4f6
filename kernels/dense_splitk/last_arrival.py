"""C[M, N] = f(sum over s of A[M, K_s] @ B[K_s, N]) in one launch: the last program of a tile to arrive adds the parts.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32.

Program (tile, s) stores its sum to partials [tiles, S, BM, BN] and counts itself in. Whoever counts S reads all
parts in the order of s, whatever the order of arrival, so equal inputs give equal bits; it stores the tile and
puts the counter back to zero. Nobody waits.

Wins where a tile has few elements and launches do not overlap, as before sm_90. Loses where one program has to read
many parts while all others are done: there the sum belongs on all of them.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from functools import partial
from typing import Any

import triton
import triton.language as tl

from gemmgate.kernels._triton.epilogue import finish
from gemmgate.kernels._triton.partials import arrive, store_partial, sum_partials
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.tiling import Tile, power_of_two, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile
from gemmgate.suite.cases import Case, Target

_SUMS_A_THREAD = 64
"""Parts that a thread of the last program holds at once: as many loads are under way."""


@triton.jit
def finish_by_last(
    total, tile, split, row, column, M, N, epilogue, partials, counters,
    BM: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr, AT_ONCE: tl.constexpr,
    ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Stores the part [BM, BN] of a split; the last program of the tile adds all parts and finishes the tile."""
    if SPLITS == 1:
        rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
        finish(total, rows, columns, M, N, epilogue, ACTIVATION, INTERPRETED)
    else:
        SIZE: tl.constexpr = BM * BN
        parts = partials + tile.to(tl.int64) * (SPLITS * SIZE)
        store_partial(parts + split * SIZE, total, BM, BN)
        if arrive(counters + tile) == SPLITS - 1:
            elements = tl.arange(0, SIZE)
            summed = sum_partials(parts, SIZE, SPLITS, elements, elements < SIZE, SIZE, AT_ONCE)
            tl.store(counters + tile, 0)
            finish(summed, row + elements // BN, column + elements % BN, M, N, epilogue, ACTIVATION, INTERPRETED)


@triton.jit
def _last_arrival(
    a, b, operands, epilogue, partials, counters,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, AT_ONCE: tl.constexpr, LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One tile of C by one split; the grid is (tiles, SPLITS)."""
    tile, split = tl.program_id(0), tl.program_id(1)
    tile_m, tile_n = grouped_tile(tile, operands.tiles_m, operands.tiles_n, GROUP)
    row, column = tile_m * BM, tile_n * BN
    first, last = k_range(split, tl.cdiv(operands.k, BK), SPLITS)
    total = multiply_range(
        a, b, operands, row, column, first, last, BM, BN, BK, SLICES, LOADS, WHOLE_K, PRECISION, DTYPE, INTERPRETED
    )
    finish_by_last(
        total, tile, split, row, column, operands.m, operands.n, epilogue, partials, counters,
        BM, BN, SPLITS, AT_ONCE, ACTIVATION, INTERPRETED,
    )  # fmt: skip


def launch(problem: Problem, tile: Tile, scratch: Scratch) -> tuple[Any, ...]:
    """One launch; none for an empty C."""
    m, n, _ = problem.sizes
    if m * n == 0:
        return ()
    compiled = _last_arrival[(tiles_of_c(m, n, tile), tile.splits)](
        partials=scratch.partials,
        counters=scratch.counters,
        SPLITS=tile.splits,
        AT_ONCE=parts_at_once(tile),
        **arguments(problem, tile, _last_arrival),
    )
    return (compiled,)


def parts_at_once(tile: Tile) -> int:
    """Parts of a tile that the last program reads in one step."""
    fitting = _SUMS_A_THREAD * 32 * tile.num_warps // tile.size
    return max(1, min(power_of_two(tile.splits), fitting))


def partials(m: int, n: int, tile: Tile) -> int:
    """fp32 elements: every split's part of every tile."""
    return tiles_of_c(m, n, tile) * tile.splits * tile.size if tile.splits > 1 else 0


def counters(m: int, n: int, tile: Tile) -> int:
    """One for each tile."""
    return tiles_of_c(m, n, tile) if tile.splits > 1 else 0


def tiles(case: Case, target: Target) -> list[Tile]:
    return tiling.space(case, target)


DISCIPLINE = Discipline(
    "last_arrival",
    _last_arrival,
    True,
    launch,
    partial(choose_tile, "last_arrival", partial(tiling.choose, whole=False)),
    tiles,
    "parts added by the last program of a tile",
    partials,
    counters,
)
IMPLEMENTATION = implementation(DISCIPLINE)
