"""C[M, N] = f(A[M, K] @ B[K, N]) in one launch: all K tiles of all tiles of C in one row, cut into equal pieces.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32.

The steps (tile, K tile) stand in one row; P programs take equal pieces of it, however many tiles there are. A tile
that lies within a piece is finished at once. A tile that pieces share has its parts stored, at most two a
program, and whoever of its programs is last adds them in the order of the pieces: equal inputs give equal bits.
Osama et al., "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU", 2023.

Wins where tiles do not divide among the multiprocessors, so that equal splits leave some idle. Where C is one tile it
is `last_arrival`.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import triton
import triton.language as tl

from gemmgate.kernels._triton.epilogue import finish
from gemmgate.kernels._triton.partials import arrive, store_partial
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.cases import sizes
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.tiling import Tile, ceil_div, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile
from gemmgate.suite.cases import Case, Footprint, Target


@triton.jit
def _piece_of(step, steps, pieces):
    """The piece that a step lies in, where `k_range` cuts the steps: the longer pieces come first."""
    each, longer = steps // pieces, steps % pieces
    in_longer = longer * (each + 1)
    return tl.where(step < in_longer, step // (each + 1), longer + (step - in_longer) // tl.maximum(each, 1))


@triton.jit
def _stream_k(
    a, b, operands, epilogue, partials, counters,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One piece of the row of steps."""
    SIZE: tl.constexpr = BM * BN
    program = tl.program_id(0)
    tiles_m, tiles_n = operands.tiles_m, operands.tiles_n
    k_tiles = tl.maximum(tl.cdiv(operands.k, BK), 1)  # an empty K has its zeros to store
    steps = tiles_m * tiles_n * k_tiles
    step, end = k_range(program, steps, PROGRAMS)
    first_tile = step // k_tiles
    inside = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    while step < end:
        tile = step // k_tiles
        first = step - tile * k_tiles
        last = tl.minimum(k_tiles, first + end - step)
        tile_m, tile_n = grouped_tile(tile, tiles_m, tiles_n, GROUP)
        row, column = tile_m * BM, tile_n * BN
        total = multiply_range(
            a, b, operands, row, column, first, last, BM, BN, BK, SLICES, LOADS, WHOLE_K, PRECISION, DTYPE, INTERPRETED
        )
        rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
        if last - first == k_tiles:
            finish(total, rows, columns, operands.m, operands.n, epilogue, ACTIVATION, INTERPRETED)
        else:
            # Slot 0 holds a program's part of the first tile of its piece, slot 1 that of the last one.
            slot = 2 * program + (tile != first_tile).to(tl.int32)
            store_partial(partials + slot.to(tl.int64) * SIZE, total, BM, BN)
            from_piece = _piece_of(tile * k_tiles, steps, PROGRAMS)
            to_piece = _piece_of(tile * k_tiles + k_tiles - 1, steps, PROGRAMS)
            if arrive(counters + tile) == to_piece - from_piece:
                summed = tl.zeros((BM, BN), dtype=tl.float32)
                for piece in range(from_piece, to_piece + 1):
                    its_first, _ = k_range(piece, steps, PROGRAMS)
                    its_slot = 2 * piece + (tile != its_first // k_tiles).to(tl.int32)
                    at = partials + its_slot.to(tl.int64) * SIZE + inside
                    summed += tl.load(at, cache_modifier=".cg")
                tl.store(counters + tile, 0)
                finish(summed, rows, columns, operands.m, operands.n, epilogue, ACTIVATION, INTERPRETED)
        step += last - first


def launch(problem: Problem, tile: Tile, scratch: Scratch) -> tuple[Any, ...]:
    """One launch; none for an empty C."""
    m, n, _ = problem.sizes
    if m * n == 0:
        return ()
    compiled = _stream_k[(tile.programs,)](
        partials=scratch.partials,
        counters=scratch.counters,
        PROGRAMS=tile.programs,
        **arguments(problem, tile, _stream_k),
    )
    return (compiled,)


def _partials(m: int, n: int, tile: Tile) -> int:
    return 2 * tile.programs * tile.size


def _counters(m: int, n: int, tile: Tile) -> int:
    return tiles_of_c(m, n, tile)


def _streamed(case: Case, tile: Tile) -> Tile:
    """The same blocks and as many programs, or as many as there are steps."""
    m, n, k = sizes(case)
    tiles = max(1, tiles_of_c(m, n, tile))
    return replace(tile, splits=1, programs=min(tiles * tile.splits, tiles * max(1, ceil_div(k, tile.block_k))))


def _rule(case: Case, target: Target) -> Tile:
    tile = tiling.choose(case, target, whole=False)
    streamed = _streamed(case, tile)
    multiprocessors = target.sm_count or 0
    m, n, k = sizes(case)
    steps = tiles_of_c(m, n, tile) * max(1, ceil_div(k, tile.block_k))
    return replace(streamed, programs=max(1, min(multiprocessors, steps))) if multiprocessors else streamed


def tiles(case: Case, target: Target) -> list[Tile]:
    """The blocks of the split kernels with one, two or four programs a multiprocessor."""
    m, n, k = sizes(case)
    found: dict[Tile, None] = {}
    for tile in tiling.space(case, target):
        steps = max(1, tiles_of_c(m, n, tile)) * max(1, ceil_div(k, tile.block_k))
        for waves in (1, 2, 4):
            programs = min(steps, waves * (target.sm_count or 1))
            found[replace(tile, splits=1, programs=programs)] = None
    return list(found)


def footprint(case: Case, tile: Tile) -> Footprint:
    """Two parts a program are written, and read again."""
    one = tiling.footprint(case, tile, partials=False)
    parts = 2 * 2 * 4 * tile.programs * tile.size
    return replace(one, programs=tile.programs, bytes_moved=one.bytes_moved + parts)


DISCIPLINE = Discipline(
    "stream_k",
    _stream_k,
    True,
    launch,
    partial(choose_tile, "stream_k", _rule),
    tiles,
    "equal pieces of all tiles, parts added by the last program of a tile",
    _partials,
    _counters,
    footprint=footprint,
)
IMPLEMENTATION = implementation(DISCIPLINE)
