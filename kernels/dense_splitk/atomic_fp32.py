"""C[M, N] = f(sum over s of A[M, K_s] @ B[K_s, N]): atomic sums in fp32, and a second launch that casts them.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C in their dtype or another. Accumulates in fp32.

Every program adds its part to an fp32 copy of C, four sums an atomic, or, with `adds` of `bulk`, by a bulk reduction of
the hardware: the part goes to shared memory, and one thread hands it to the copy engine. The second launch applies
what follows the sum, casts, stores C, and puts the fp32 copy back to zero, so that no launch has to clear it; from
sm_90 on it begins early and waits on the device. The order of the additions is that of arrival: equal inputs may give
other bits.

Wins where C is too large for a few programs to finish. Loses a launch to what finishes in the first, and to fixed
orders wherever bits have to repeat. Bulk reductions need sm_90 and rows of C that begin at 16 bytes; without, and in
the interpreter, which has none, threads add.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmgate.kernels._triton.epilogue import finish
from gemmgate.kernels._triton.product import grouped_tile, k_range, multiply_range
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.cases import sizes
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch, arguments, implementation
from gemmgate.kernels.dense_splitk.tiling import ceil_div, overlapping, tiles_of_c
from gemmgate.kernels.dense_splitk.tuned_tile import choose_tile
from gemmgate.suite.cases import Case, Footprint, Target

_CAST_BLOCK = 256
"""Elements that a program of the second launch casts: small, so that a small C is spread too."""
_BULK_ROW = 4
"""Elements of fp32 in the 16 bytes at which rows of a descriptor begin."""
_BULK_BYTES = 32 * 1024
"""Of a part, handed over at a time: shared memory holds the operands' stages too."""


@dataclass(frozen=True)
class Tile(tiling.Tile):
    """`adds` is `threads`, or `bulk` for reductions by the hardware."""

    adds: str = "threads"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adds not in ("threads", "bulk"):
            raise ValueError(f"adds must be threads or bulk, got {self}.")


@triton.jit
def _add_in_bulk(sums, total, row, column, BM: tl.constexpr, BN: tl.constexpr, PIECE: tl.constexpr):
    """sums[row:row+BM, column:column+BN] += total, PIECE columns at a time."""
    if BN == PIECE:
        sums.atomic_add([row, column], total)
    else:
        left, right = tl.split(total.reshape(BM, 2, BN // 2).permute(0, 2, 1))
        _add_in_bulk(sums, left, row, column, BM, BN // 2, PIECE)
        _add_in_bulk(sums, right, row, column + BN // 2, BM, BN // 2, PIECE)


@triton.jit
def _add_parts(
    a, b, operands, epilogue, sums,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr, SLICES: tl.constexpr,
    GROUP: tl.constexpr, PIECE: tl.constexpr, OVERLAP: tl.constexpr, LOADS: tl.constexpr, WHOLE_K: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """sums[m, n] += one split's part of a tile; the grid is (tiles, SPLITS). With a PIECE `sums` is a descriptor."""
    if OVERLAP:
        gdc_launch_dependents()
    tile_m, tile_n = grouped_tile(tl.program_id(0), operands.tiles_m, operands.tiles_n, GROUP)
    row, column = tile_m * BM, tile_n * BN
    first, last = k_range(tl.program_id(1), tl.cdiv(operands.k, BK), SPLITS)
    total = multiply_range(
        a, b, operands, row, column, first, last, BM, BN, BK, SLICES, LOADS, WHOLE_K, PRECISION, DTYPE, INTERPRETED
    )
    if PIECE > 0:
        _add_in_bulk(sums, total, row, column, BM, BN, PIECE)
    else:
        rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
        within = (rows < operands.m) & (columns < operands.n)
        tl.atomic_add(sums + rows.to(tl.int64) * operands.n + columns, total, mask=within, sem="relaxed")


@triton.jit
def _cast(
    sums, epilogue, M, N,
    BLOCK: tl.constexpr, OVERLAP: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """C = f(sums), and sums = 0."""
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    rows, columns = elements // N, elements % N
    if OVERLAP:
        gdc_wait()
    total = tl.load(sums + elements, mask=rows < M, other=0.0, cache_modifier=".cg")
    tl.debug_barrier()  # threads may clear other elements than they read
    tl.store(sums + elements, tl.zeros((BLOCK,), dtype=tl.float32), mask=rows < M)
    finish(total, rows, columns, M, N, epilogue, ACTIVATION, INTERPRETED)


def launch(problem: Problem, tile: tiling.Tile, scratch: Scratch) -> tuple[Any, ...]:
    """Both launches; none for an empty C."""
    m, n, _ = problem.sizes
    if m * n == 0:
        return ()
    shared = arguments(problem, tile, _add_parts)
    overlap = tile.overlap and not shared["INTERPRETED"]
    bulk = isinstance(tile, Tile) and tile.adds == "bulk" and n % _BULK_ROW == 0 and not shared["INTERPRETED"]
    piece = min(tile.block_n, _BULK_BYTES // (4 * tile.block_m)) if bulk else 0
    sums = TensorDescriptor(scratch.sums, [m, n], [n, 1], [tile.block_m, piece]) if bulk else scratch.sums
    added = _add_parts[(tiles_of_c(m, n, tile), tile.splits)](
        sums=sums, SPLITS=tile.splits, PIECE=piece, OVERLAP=overlap, **shared
    )
    cast = _cast[(ceil_div(m * n, _CAST_BLOCK),)](
        scratch.sums,
        shared["epilogue"],
        m,
        n,
        BLOCK=_CAST_BLOCK,
        OVERLAP=overlap,
        ACTIVATION=problem.function,
        INTERPRETED=shared["INTERPRETED"],
        num_warps=4,
        **({"launch_pdl": True} if overlap else {}),
    )
    return added, cast


def _rule(case: Case, target: Target) -> Tile:
    return overlapping(target, Tile(**tiling.choose(case, target, whole=True).as_data()))


def tiles(case: Case, target: Target) -> list[tiling.Tile]:
    """Those that all disciplines have; of a large C with either way to add."""
    bulk = (
        tiling.is_large(case, target)
        and target.compute_capability >= tiling.OVERLAP_CAPABILITY
        and sizes(case)[1] % _BULK_ROW == 0
    )
    return [
        overlapping(target, Tile(**tile.as_data(), adds=adds))
        for tile in tiling.space(case, target)
        for adds in (("threads", "bulk") if bulk else ("threads",))
    ]


def _sums(m: int, n: int, tile: tiling.Tile) -> int:
    return m * n


def footprint(case: Case, tile: tiling.Tile) -> Footprint:
    """Atomics reach the cache, not memory: only operands and C count."""
    return tiling.footprint(case, tile, partials=False, launches=2)


DISCIPLINE = Discipline(
    "atomic_fp32",
    _add_parts,
    False,
    launch,
    partial(choose_tile, "atomic_fp32", _rule),
    tiles,
    "fp32 atomics, then a cast",
    sums=_sums,
    footprint=footprint,
    tile_type=Tile,
)
IMPLEMENTATION = implementation(DISCIPLINE)
