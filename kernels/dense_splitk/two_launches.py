"""C[M, N] = f(sum over s of A[M, K_s] @ B[K_s, N]): one launch stores the parts, a second adds them and finishes C.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32.

The parts go to partials [tiles, S, BM, BN]. The second launch has a program for each slice of C, which adds the parts
of its slice in the order of s, whoever stored them when: equal inputs give equal bits. From sm_90 on it begins
while the first one runs and waits on the device for its end, so that most of a launch is hidden.

Wins for a small C where launches overlap: the second is resident when the last part is stored. Without overlap it
pays for a launch. `triton_split_k` is the same with another loop and no epilogue.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from gemmgate.kernels._triton.epilogue import finish
from gemmgate.kernels._triton.partials import store_partial
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling, untuned
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.grid_barrier import finish_slice, parts_at_once, slice_size
from gemmgate.kernels.dense_splitk.last_arrival import partials
from gemmgate.kernels.dense_splitk.tiling import Tile, ceil_div, overlapping, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile
from gemmgate.suite.cases import Case, Footprint, Target


@triton.jit
def _store_parts(
    a, b, operands, epilogue, partials,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, OVERLAP: tl.constexpr, LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One split's part of a tile; the only one finishes it. The grid is (tiles, SPLITS)."""
    if OVERLAP:
        gdc_launch_dependents()
    tile, split = tl.program_id(0), tl.program_id(1)
    tile_m, tile_n = grouped_tile(tile, operands.tiles_m, operands.tiles_n, GROUP)
    row, column = tile_m * BM, tile_n * BN
    first, last = k_range(split, tl.cdiv(operands.k, BK), SPLITS)
    total = multiply_range(
        a, b, operands, row, column, first, last, BM, BN, BK, SLICES, LOADS, WHOLE_K, PRECISION, DTYPE, INTERPRETED
    )
    if SPLITS == 1:
        rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
        finish(total, rows, columns, operands.m, operands.n, epilogue, ACTIVATION, INTERPRETED)
    else:
        store_partial(partials + (tile.to(tl.int64) * SPLITS + split) * (BM * BN), total, BM, BN)


@triton.jit
def _add_parts(
    epilogue, partials, M, N,
    BM: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr, GROUP: tl.constexpr, SLICE: tl.constexpr,
    AT_ONCE: tl.constexpr, OVERLAP: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One slice of C."""
    finish_slice(
        tl.program_id(0), M, N, epilogue, partials,
        BM, BN, SPLITS, GROUP, SLICE, AT_ONCE, OVERLAP, ACTIVATION, INTERPRETED,
    )  # fmt: skip


def launch(problem: Problem, tile: Tile, scratch: Scratch) -> tuple[Any, ...]:
    """Both launches, or the first alone where it has one split; none for an empty C."""
    m, n, _ = problem.sizes
    if m * n == 0:
        return ()
    tiles = tiles_of_c(m, n, tile)
    shared = arguments(problem, tile, _store_parts)
    overlap = tile.overlap and tile.splits > 1 and not shared["INTERPRETED"]
    stored = _store_parts[(tiles, tile.splits)](
        partials=scratch.partials, SPLITS=tile.splits, OVERLAP=overlap, **shared
    )
    if tile.splits == 1:
        return (stored,)
    size = slice_size(tile)
    added = _add_parts[(ceil_div(tiles * tile.size, size),)](
        shared["epilogue"],
        scratch.partials,
        m,
        n,
        SPLITS=tile.splits,
        SLICE=size,
        AT_ONCE=parts_at_once(tile),
        OVERLAP=overlap,
        num_warps=4,
        **{name: shared[name] for name in ("BM", "BN", "GROUP", "ACTIVATION", "INTERPRETED")},
        **({"launch_pdl": True} if overlap else {}),
    )
    return stored, added


def _rule(case: Case, target: Target) -> Tile:
    """What `untuned` chooses. In TF32 the warps of a small tile cut its K tiles: none rounds what another does.

    Of the smallest ones a K tile of 64, 16 a warp, then does for ranges of any length.
    """
    tile = untuned.choose(case, target)
    if case.precision == "tf32" and tile.block_m < 64 and target.is_gpu:
        tile = replace(tile, slices=tile.num_warps)
        if tile.size == 16 * 16:
            each = ceil_div(ceil_div(case.dims["k"], 64), max(1, target.sm_count // 2))
            splits = max(1, ceil_div(ceil_div(case.dims["k"], 64), max(1, each)))
            tile = replace(tile, block_k=64, splits=splits, num_stages=5)
    return overlapping(target, tile)


def tiles(case: Case, target: Target) -> list[Tile]:
    return [overlapping(target, tile) for tile in tiling.space(case, target)]


def footprint(case: Case, tile: Tile) -> Footprint:
    """Parts go out in the first launch and come back in the second."""
    return tiling.footprint(case, tile, partials=True, launches=1 + (tile.splits > 1))


DISCIPLINE = Discipline(
    "two_launches",
    _store_parts,
    True,
    launch,
    partial(choose_tile, "two_launches", _rule),
    tiles,
    "parts added by a second launch",
    partials,
    footprint=footprint,
)
IMPLEMENTATION = implementation(DISCIPLINE)
