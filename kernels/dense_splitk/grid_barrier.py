"""C[M, N] = f(sum over s of A[M, K_s] @ B[K_s, N]) in one launch: all programs meet, then each adds a slice of C.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32.

Every program stores its part and waits until all have. Then each adds the parts of its own slice of C, in the
order of s, so that equal inputs give equal bits, and C is finished by the whole device instead of by one
program a tile. The last to leave puts both counters back to zero. All programs must run at the same time: the
launch is cooperative, and a tile that would not fit is refused.

Wins where C is one or few large tiles with many parts: their sum is as parallel as the product was. Loses where a
tile has few elements, for then waiting costs more than adding. In Triton's interpreter
programs run one after the other, so there each half is a launch of its own.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from gemmgate.kernels._triton.epilogue import finish
from gemmgate.kernels._triton.partials import arrive, store_partial, sum_partials, wait_for
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.tiling import Tile, ceil_div, power_of_two, resident_programs, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile
from gemmgate.suite.cases import Case, Target

_LEAST_SLICE = 32
"""Elements that a program adds: a line of the cache."""
_SUMS_A_THREAD = 64
"""Parts that a thread holds at once: as many loads are under way."""


@triton.jit
def finish_slice(
    which, M, N, epilogue, partials,
    BM: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr, GROUP: tl.constexpr, SLICE: tl.constexpr,
    AT_ONCE: tl.constexpr, WAITS: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Adds the parts [tiles, SPLITS, BM, BN] of SLICE elements of C and finishes these, where there are any.

    With `WAITS`, the parts come from a launch that may still run: what can be computed before it ends is.
    """
    SIZE: tl.constexpr = BM * BN
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    elements = which.to(tl.int64) * SLICE + tl.arange(0, SLICE)
    tile, inside = (elements // SIZE).to(tl.int32), (elements % SIZE).to(tl.int32)
    exists = tile < tiles_m * tiles_n
    from_first = tile.to(tl.int64) * (SPLITS * SIZE) + inside
    tile_m, tile_n = grouped_tile(tl.where(exists, tile, 0), tiles_m, tiles_n, GROUP)
    rows = tl.where(exists, tile_m * BM + inside // BN, M)
    if WAITS:
        gdc_wait()
    summed = sum_partials(partials, SIZE, SPLITS, from_first, exists, SLICE, AT_ONCE)
    finish(summed, rows, tile_n * BN + inside % BN, M, N, epilogue, ACTIVATION, INTERPRETED)


@triton.jit
def _grid_barrier(
    a, b, operands, epilogue, partials, counters,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, SLICE: tl.constexpr, AT_ONCE: tl.constexpr, MULTIPLIES: tl.constexpr, ADDS: tl.constexpr,
    LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One tile of C by one split, then a slice of C; the grid is (tiles, SPLITS). Counters: arrived, left."""
    tile, split = tl.program_id(0), tl.program_id(1)
    tiles = tl.num_programs(0)
    if MULTIPLIES:
        tile_m, tile_n = grouped_tile(tile, operands.tiles_m, operands.tiles_n, GROUP)
        first, last = k_range(split, tl.cdiv(operands.k, BK), SPLITS)
        total = multiply_range(
            a, b, operands, tile_m * BM, tile_n * BN, first, last, BM, BN, BK, SLICES, LOADS, WHOLE_K, PRECISION, DTYPE,
            INTERPRETED,
        )  # fmt: skip
        store_partial(partials + (tile.to(tl.int64) * SPLITS + split) * (BM * BN), total, BM, BN)
    if MULTIPLIES and ADDS:
        programs = tiles * SPLITS
        arrive(counters)
        wait_for(counters, programs)
        if tl.atomic_add(counters + 1, 1, sem="relaxed", scope="gpu") == programs - 1:
            tl.store(counters, 0)
            tl.store(counters + 1, 0)
    if ADDS:
        finish_slice(
            split * tiles + tile, operands.m, operands.n, epilogue, partials,
            BM, BN, SPLITS, GROUP, SLICE, AT_ONCE, False, ACTIVATION, INTERPRETED,
        )  # fmt: skip


def launch(problem: Problem, tile: Tile, scratch: Scratch) -> tuple[Any, ...]:
    """One launch; none for an empty C."""
    m, n, _ = problem.sizes
    if m * n == 0:
        return ()
    tiles = tiles_of_c(m, n, tile)
    shared = arguments(problem, tile, _grid_barrier)
    halves = [(True, False), (False, True)] if shared["INTERPRETED"] else [(True, True)]
    return tuple(
        _grid_barrier[(tiles, tile.splits)](
            partials=scratch.partials,
            counters=scratch.counters,
            SPLITS=tile.splits,
            SLICE=slice_size(tile),
            AT_ONCE=parts_at_once(tile),
            MULTIPLIES=multiplies,
            ADDS=adds,
            launch_cooperative_grid=True,
            **shared,
        )
        for multiplies, adds in halves
    )


def slice_size(tile: Tile) -> int:
    """Elements of C for a program of those that add: as many programs as multiplied, or a line of the cache each."""
    return max(_LEAST_SLICE, power_of_two(ceil_div(tile.size, tile.splits)))


def parts_at_once(tile: Tile) -> int:
    """Parts of a slice that a program reads in one step."""
    fitting = max(1, _SUMS_A_THREAD * 32 * tile.num_warps // slice_size(tile))
    return min(power_of_two(tile.splits), fitting)


def _partials(m: int, n: int, tile: Tile) -> int:
    return tiles_of_c(m, n, tile) * tile.splits * tile.size


def _counters(m: int, n: int, tile: Tile) -> int:
    return 2


def _rule(case: Case, target: Target) -> Tile:
    tile = tiling.choose(case, target, whole=True)
    while target.is_gpu and tile.splits > 1 and not _fits(case, target, tile):
        tile = replace(tile, splits=tile.splits // 2)
    return tile


def _fits(case: Case, target: Target, tile: Tile) -> bool:
    m, n, _ = (case.dims[name] for name in ("m", "n", "k"))
    return tiles_of_c(m, n, tile) * tile.splits <= resident_programs(case, target, tile)


def tiles(case: Case, target: Target) -> list[Tile]:
    """Those whose programs run all at the same time."""
    return [tile for tile in tiling.space(case, target) if _fits(case, target, tile)]


def refuses(case: Case, target: Target) -> tuple[str, str] | None:
    if target.is_gpu and not _fits(case, target, _rule(case, target)):
        return "not_resident", f"C of {case.name} has more tiles than {target.arch} runs programs at once."
    return None


DISCIPLINE = Discipline(
    "grid_barrier",
    _grid_barrier,
    True,
    launch,
    partial(choose_tile, "grid_barrier", _rule),
    tiles,
    "parts added by all programs behind a barrier",
    _partials,
    _counters,
    refuses=refuses,
)
IMPLEMENTATION = implementation(DISCIPLINE)
