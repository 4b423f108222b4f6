"""C[M, N] = f(sum over s of A[M, K_s] @ B[K_s, N]) in one launch: programs add their part one after the other.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32.

A program draws a number at its tile, which says which range of K it walks, and waits until all lower numbers have
added their parts to an fp32 tile; the last one finishes the tile and puts both counters back to zero. Whoever
waits waits for programs that have drawn, and so run, earlier: it ends whatever the order of launch. The order
of the additions is that of K, so equal inputs give equal bits.

Wins where splits are few and C is large: one tile of scratch serves all of them. Loses wherever S is large, for S
hand-overs follow one another.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from functools import partial
from typing import Any

import triton
import triton.language as tl

from gemmgate.kernels._triton.epilogue import finish
from gemmgate.kernels._triton.partials import arrive, wait_for
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.tiling import Tile, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile


@triton.jit
def _turnstile(
    a, b, operands, epilogue, partials, counters,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One tile of C by one split; the grid is (tiles, SPLITS). Counters: numbers drawn, parts added."""
    tile = tl.program_id(0)
    tile_m, tile_n = grouped_tile(tile, operands.tiles_m, operands.tiles_n, GROUP)
    row, column = tile_m * BM, tile_n * BN
    split = tl.program_id(1)
    drawn, added = counters + 2 * tile, counters + 2 * tile + 1
    if SPLITS > 1:
        split = tl.atomic_add(drawn, 1, sem="relaxed", scope="gpu")
    first, last = k_range(split, tl.cdiv(operands.k, BK), SPLITS)
    total = multiply_range(
        a, b, operands, row, column, first, last, BM, BN, BK, SLICES, LOADS, WHOLE_K, PRECISION, DTYPE, INTERPRETED
    )
    at = partials + tile.to(tl.int64) * (BM * BN) + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    if split > 0:
        wait_for(added, split)
        total += tl.load(at, cache_modifier=".cg")
    if split < SPLITS - 1:
        tl.store(at, total)
        arrive(added)
    else:
        if SPLITS > 1:
            tl.store(drawn, 0)
            tl.store(added, 0)
        rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
        finish(total, rows, columns, operands.m, operands.n, epilogue, ACTIVATION, INTERPRETED)


def launch(problem: Problem, tile: Tile, scratch: Scratch) -> tuple[Any, ...]:
    """One launch; none for an empty C."""
    m, n, _ = problem.sizes
    if m * n == 0:
        return ()
    compiled = _turnstile[(tiles_of_c(m, n, tile), tile.splits)](
        partials=scratch.partials,
        counters=scratch.counters,
        SPLITS=tile.splits,
        **arguments(problem, tile, _turnstile),
    )
    return (compiled,)


def _partials(m: int, n: int, tile: Tile) -> int:
    return tiles_of_c(m, n, tile) * tile.size


def _counters(m: int, n: int, tile: Tile) -> int:
    return 2 * tiles_of_c(m, n, tile)


DISCIPLINE = Discipline(
    "turnstile",
    _turnstile,
    True,
    launch,
    partial(choose_tile, "turnstile", partial(tiling.choose, whole=False)),
    tiling.space,
    "parts added one after the other",
    _partials,
    _counters,
)
IMPLEMENTATION = implementation(DISCIPLINE)
