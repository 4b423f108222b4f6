"""C[M, N] = f(sum over k of A[M, k] * B[k, N]) without tensor cores: for an M and N that would leave those mostly idle.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32; fp32 is
multiplied as IEEE, or rounded to TF32 first where that is asked.

A program keeps fp32 sums [BM, BK, BN], adds a product to each of them at every step, and sums over BK once, behind
the loop. So nothing is padded to sixteen, and no thread waits for another inside the loop. Parts are brought
together as by `last_arrival`: equal inputs give equal bits.

Wins where M or N is a few. Loses where a tensor core's tile is filled. Refuses M and N both of at least 16.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, ClassVar

import triton
import triton.language as tl

from gemmgate.kernels._triton.device import round_to_tf32
from gemmgate.kernels._triton.product import grouped_tile, k_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.cases import ITEM_BYTES, sizes
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.last_arrival import counters, finish_by_last, partials, parts_at_once
from gemmgate.kernels.dense_splitk.tiling import ceil_div, power_of_two, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile
from gemmgate.suite.cases import Case, Footprint, Target

_SUMS_A_THREAD = 64
"""fp32 sums that a thread keeps; the operands of a step take as many registers again."""
_TENSOR_CORE = 16


@dataclass(frozen=True)
class Tile(tiling.Tile):
    """As that of all, with blocks of M and N from 1 up."""

    least_block: ClassVar[int] = 1


@triton.jit
def _dot_range(
    a, b, operands, row, column, first, last,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WHOLE_K: tl.constexpr, TF32: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """sum over K tiles `first` to `last` of A[row:row+BM, k] * B[k, column:column+BN], [BM, BN] in fp32."""
    rows, columns = row + tl.arange(0, BM)[:, None, None], column + tl.arange(0, BN)[None, None, :]
    ks = tl.arange(0, BK)[None, :, None]
    step = tl.full((), BK, tl.int64)
    begin = step * first + ks
    a_from = a + rows.to(tl.int64) * operands.stride_am + begin * operands.stride_ak  # [BM, BK, 1]
    b_from = b + begin * operands.stride_bk + columns.to(tl.int64) * operands.stride_bn  # [1, BK, BN]
    total = tl.zeros((BM, BK, BN), dtype=tl.float32)
    for k_tile in tl.range(first, last, num_stages=STAGES):
        within = ks < (BK if WHOLE_K else operands.k - k_tile * BK)
        x = tl.load(a_from, mask=within & (rows < operands.m), other=0.0).to(tl.float32)
        y = tl.load(b_from, mask=within & (columns < operands.n), other=0.0).to(tl.float32)
        if TF32:
            x, y = round_to_tf32(x), round_to_tf32(y)
        total += x * y
        a_from += step * operands.stride_ak
        b_from += step * operands.stride_bk
    return tl.sum(total, axis=1)


@triton.jit
def _dot_product(
    a, b, operands, epilogue, partials, counters,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr,
    GROUP: tl.constexpr, AT_ONCE: tl.constexpr, WHOLE_K: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One tile of C by one split; the grid is (tiles, SPLITS)."""
    tile, split = tl.program_id(0), tl.program_id(1)
    tile_m, tile_n = grouped_tile(tile, operands.tiles_m, operands.tiles_n, GROUP)
    row, column = tile_m * BM, tile_n * BN
    first, last = k_range(split, tl.cdiv(operands.k, BK), SPLITS)
    total = _dot_range(a, b, operands, row, column, first, last, BM, BN, BK, WHOLE_K, PRECISION == "tf32", STAGES)
    finish_by_last(
        total, tile, split, row, column, operands.m, operands.n, epilogue, partials, counters,
        BM, BN, SPLITS, AT_ONCE, ACTIVATION, INTERPRETED,
    )  # fmt: skip


_SHARED_BY_ALL = ("SLICES", "LOADS", "DTYPE")
"""Of the arguments that kernels share, those of the loop over tensor cores."""


def launch(problem: Problem, tile: tiling.Tile, scratch: Scratch) -> tuple[Any, ...]:
    """One launch; none for an empty C. Raises ValueError for operands that have to be converted first."""
    m, n, _ = problem.sizes
    if problem.k_scale is not None or problem.dtype not in (None, problem.a.dtype):
        raise ValueError("dot_product multiplies operands as they are: no k_scale, no other dtype.")
    if m * n == 0:
        return ()
    shared = arguments(problem, tile, _dot_product)
    compiled = _dot_product[(tiles_of_c(m, n, tile), tile.splits)](
        partials=scratch.partials,
        counters=scratch.counters,
        SPLITS=tile.splits,
        AT_ONCE=parts_at_once(tile),
        STAGES=tile.num_stages,  # a loop without tensor cores is not pipelined unless it says so
        **{name: value for name, value in shared.items() if name not in _SHARED_BY_ALL},
    )
    return (compiled,)


def _rule(case: Case, target: Target) -> Tile:
    """A few rows or columns in one block, the other side up to 32 wide; K fills the sums of a program."""
    m, n, k = sizes(case)
    block_m, block_n = (min(bound, power_of_two(size)) for size, bound in _bounds(m, n))
    block_k = max(_TENSOR_CORE, min(256, _SUMS_A_THREAD * 128 // (block_m * block_n)))
    tiles = max(1, ceil_div(m, block_m) * ceil_div(n, block_n))
    splits = max(1, min((target.sm_count or 2) // tiles, ceil_div(k, block_k)))
    return Tile(block_m, block_n, block_k, splits, num_warps=4, num_stages=2)


def _bounds(m: int, n: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return ((m, 8), (n, 32)) if m <= n else ((m, 32), (n, 8))


def tiles(case: Case, target: Target) -> list[tiling.Tile]:
    """Blocks about the rule's, half a wave to four, whose sums fit the registers."""
    m, n, k = sizes(case)
    base = _rule(case, target)
    found: dict[tiling.Tile, None] = {}
    for block_m, block_n, block_k, num_warps, num_stages in product(
        {base.block_m, max(1, base.block_m // 2)}, {base.block_n, max(1, base.block_n // 2)}, (16, 32, 64, 128, 256),
        (2, 4, 8), (1, 2, 3),
    ):  # fmt: skip
        if not 8 * 32 * num_warps <= block_m * block_n * block_k <= _SUMS_A_THREAD * 32 * num_warps:
            continue
        of_c = max(1, ceil_div(m, block_m) * ceil_div(n, block_n))
        for waves in (0.5, 1, 2, 4):
            splits = max(1, min(int(waves * (target.sm_count or 2)) // of_c, ceil_div(k, block_k)))
            tile = replace(base, block_m=block_m, block_n=block_n, block_k=block_k, splits=splits)
            found[replace(tile, num_warps=num_warps, num_stages=num_stages)] = None
    return list(found)


def refuses(case: Case, target: Target) -> tuple[str, str] | None:
    m, n, _ = sizes(case)
    if min(m, n) >= _TENSOR_CORE:
        return "fills_tensor_cores", f"M = {m} and N = {n} fill a tensor core's tile; this is for fewer than 16."
    return None


def footprint(case: Case, tile: tiling.Tile) -> Footprint:
    """Operands in the pipeline, or sums that pass through shared memory once."""
    staged = (tile.block_m + tile.block_n) * tile.block_k * ITEM_BYTES[case.dtype] * tile.num_stages
    return replace(tiling.footprint(case, tile, partials=True), shared_bytes=max(staged, tile.size * tile.block_k * 4))


DISCIPLINE = Discipline(
    "dot_product",
    _dot_product,
    True,
    launch,
    partial(choose_tile, "dot_product", _rule),
    tiles,
    "products without tensor cores, parts added by the last program of a tile",
    partials,
    counters,
    footprint=footprint,
    refuses=refuses,
    tile_type=Tile,
)
IMPLEMENTATION = implementation(DISCIPLINE)
