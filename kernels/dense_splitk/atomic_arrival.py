"""C[M, N] = f(sum over s of A[M, K_s] @ B[K_s, N]) in one launch: atomic sums in fp32, finished by the last to arrive.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32.

Every program adds its part to one fp32 tile by atomics, as they come, and counts itself in. Whoever counts S
reads the tile, which the others have summed by then, stores C, and puts tile and counter back to zero for the
next launch. The order of the additions is that of arrival: equal inputs may give other bits.

Wins where one tile has many elements and many parts, since nobody reads parts. Loses where many parts meet in few
addresses, and wherever bits have to repeat.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from functools import partial
from typing import Any

import triton
import triton.language as tl

from gemmgate.kernels._triton.epilogue import finish
from gemmgate.kernels._triton.partials import arrive
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.last_arrival import counters
from gemmgate.kernels.dense_splitk.tiling import Tile, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile


@triton.jit
def _atomic_arrival(
    a, b, operands, epilogue, sums, counters,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
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
    rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
    if SPLITS == 1:
        finish(total, rows, columns, operands.m, operands.n, epilogue, ACTIVATION, INTERPRETED)
    else:
        at = sums + tile.to(tl.int64) * (BM * BN) + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
        tl.atomic_add(at, total, sem="relaxed")
        if arrive(counters + tile) == SPLITS - 1:
            total = tl.load(at, cache_modifier=".cg")
            tl.debug_barrier()  # threads may clear other elements than they read
            tl.store(at, tl.zeros((BM, BN), dtype=tl.float32))
            tl.store(counters + tile, 0)
            finish(total, rows, columns, operands.m, operands.n, epilogue, ACTIVATION, INTERPRETED)


def launch(problem: Problem, tile: Tile, scratch: Scratch) -> tuple[Any, ...]:
    """One launch; none for an empty C."""
    m, n, _ = problem.sizes
    if m * n == 0:
        return ()
    compiled = _atomic_arrival[(tiles_of_c(m, n, tile), tile.splits)](
        sums=scratch.sums,
        counters=scratch.counters,
        SPLITS=tile.splits,
        **arguments(problem, tile, _atomic_arrival),
    )
    return (compiled,)


def sums(m: int, n: int, tile: Tile) -> int:
    """fp32 elements: one tile for all splits."""
    return tiles_of_c(m, n, tile) * tile.size if tile.splits > 1 else 0


DISCIPLINE = Discipline(
    "atomic_arrival",
    _atomic_arrival,
    False,
    launch,
    partial(choose_tile, "atomic_arrival", partial(tiling.choose, whole=True)),
    tiling.space,
    "fp32 atomics, finished by the last program of a tile",
    counters=counters,
    sums=sums,
)
IMPLEMENTATION = implementation(DISCIPLINE)
