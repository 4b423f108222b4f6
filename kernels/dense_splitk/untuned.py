"""Tiles for two launches, one that multiplies and one that adds, where nothing was tuned. Pure, standard library only.

Fitted to some 11000 timed tiles of 148 searches on an H200 (`docs/findings/2026-11-30-untuned-tiles-again.md` has how
well it does, and what was only reasoned): what follows are its terms, in the order in which they count.

- Programs: one for each multiprocessor, each with one of `splits` ranges of K. In 16 bits a C of two tiles takes half
  as many while a range stays short, since each range costs parts to store and add; IEEE takes two for each
  multiprocessor where C is larger than 32 x 32, since its products wait for registers and not for memory.
- Blocks of C: one for a C up to 32 x 32. Beyond, 64 rows where there are as many, which is what Hopper multiplies from
  shared memory, and as many columns as leave two or four tiles to share K among; IEEE 16 rows of up to 64 columns.
- K tiles: as long as a range where C is one block; else what keeps a stage near 24 KiB and gives each range one.
- Stages: what 128 KiB hold, five at most, three in IEEE beyond 16 x 16, and none that a range does not fill.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgate.kernels.dense_splitk.cases import ITEM_BYTES, sizes
from gemmgate.kernels.dense_splitk.tiling import MAX_SPLITS, Tile, ceil_div, limit_bytes, power_of_two
from gemmgate.suite.cases import Case, Target

_INTERPRETED_MULTIPROCESSORS = 8
"""Where there is no GPU a program costs time and brings little."""
_STAGED_BYTES = 128 * 1024
_MOST_STAGES, _MOST_STAGES_IEEE = 5, 3
_LONG_RANGE = 512
"""K of a range from which on more ranges are worth their parts, for 16-bit operands."""
_LONG_RANGE_FP32 = 512
_SHORT_K_PER_SIDE = 128
"""K over the longer side of C: below, ranges are too short for tiles of 64 rows."""
_LONGEST_NARROW_K = 32768
"""Up to here four tiles of 16 columns share out a C of 64; beyond, reading A four times costs more than it brings."""
_LEAST_COPY_BYTES = 4
"""Of an asynchronous copy: rows that begin at less are loaded in the midst of the loop, element by element."""


def choose(case: Case, target: Target) -> Tile:
    """Blocks, ranges of K, warps and stages."""
    m, n, k = sizes(case)
    block_m, block_n, block_k = _blocks(case, target)
    tiles = max(1, ceil_div(m, block_m) * ceil_div(n, block_n))
    wanted = _ranges(case, target, tiles)
    while block_k > 64 and ceil_div(k, block_k) < min(wanted, 32):
        block_k //= 2
    tile = Tile(block_m, block_n, block_k, 1, num_warps=8 if block_m * block_n >= 128 * 128 else 4, num_stages=1)
    if _copies_are_narrow(case):
        tile = replace(tile, num_warps=8)
    elif _goes_by_rows(case):
        tile = replace(tile, num_warps=2)
    stage_bytes = (block_m + block_n) * tile.block_k * ITEM_BYTES[case.dtype]
    while tile.block_k > 16 and stage_bytes > limit_bytes(target):
        tile, stage_bytes = replace(tile, block_k=tile.block_k // 2), stage_bytes // 2
    k_tiles = max(1, ceil_div(k, tile.block_k))
    each = ceil_div(k_tiles, min(wanted, k_tiles, MAX_SPLITS))
    most_stages = _MOST_STAGES_IEEE if case.precision == "ieee" and max(sizes(case)[:2]) > 16 else _MOST_STAGES
    stages = max(2, min(most_stages, _STAGED_BYTES // stage_bytes, each + 1))
    return replace(
        tile,
        splits=ceil_div(k_tiles, each),
        num_stages=max(1, min(stages, limit_bytes(target) // stage_bytes)),
    )


def _blocks(case: Case, target: Target) -> tuple[int, int, int]:
    m, n, k = sizes(case)
    multiprocessors = target.sm_count or _INTERPRETED_MULTIPROCESSORS
    if case.dtype == "fp32" and (max(m, n) <= 16 or (max(m, n) <= 32 and ceil_div(k, 32) < multiprocessors)):
        if case.precision == "ieee":
            return 16, 16, 64
        return 16, 16, _whole_range(k, multiprocessors // max(1, ceil_div(m, 16) * ceil_div(n, 16)))
    if case.precision == "ieee":
        return (16, _cover(n), 64) if _goes_by_rows(case) else (32, 32, 64)
    if case.dtype == "fp32":
        if max(m, n) <= 32:
            return _cover(m), _cover(n), 128
        return 64 if m > 32 else 32, 32 if n <= 64 else 64, 64
    if _copies_are_narrow(case):  # no load hides behind a product: all of a range at once, and nothing twice
        return _cover(m), _cover(n), 256
    if m >= 256 and n >= 256:
        return 128, 128, 64
    if 32 < max(m, n) <= 64 and k < _SHORT_K_PER_SIDE * max(m, n):
        return min(32, _cover(m)), min(32, _cover(n)), 128
    if n > 64:
        return min(64, _cover(m)), 64, 128
    if m <= 32:
        if n <= 16:
            return 16, 16, 128
        return (_cover(m), 32, _whole_range(k, multiprocessors)) if n <= 32 else (16, 32, 256)
    return 64, 16 if n <= 16 or (n > 48 and k <= _LONGEST_NARROW_K) else 32, 128


def _cover(size: int) -> int:
    """The block that covers a size up to 64."""
    return 16 if size <= 16 else 32 if size <= 32 else 64


def _whole_range(k: int, ranges: int) -> int:
    """A K tile as long as a range of K, where that is not too long: all its loads are under way at once."""
    return max(64, min(256, power_of_two(ceil_div(k, max(1, ranges)))))


def _goes_by_rows(case: Case) -> bool:
    """Whether IEEE products go by 16 rows of all columns: two warps a program, two programs a multiprocessor."""
    return case.precision == "ieee" and 32 < max(sizes(case)[:2]) <= 64


def _ranges(case: Case, target: Target, tiles: int) -> int:
    """Ranges of K that are wanted, whether or not there are as many K tiles."""
    k = case.dims["k"]
    multiprocessors = target.sm_count or _INTERPRETED_MULTIPROCESSORS
    wave = max(1, multiprocessors // tiles)
    if _goes_by_rows(case) and target.is_gpu:
        return max(1, 2 * multiprocessors // tiles)
    if case.dtype == "fp32":
        return max(wave, min(2 * multiprocessors // tiles, k // _LONG_RANGE_FP32)) if target.is_gpu else wave
    if tiles in (2, 3) and not _copies_are_narrow(case):
        return min(wave, max(1, wave // 2, k // _LONG_RANGE))
    return wave


def _copies_are_narrow(case: Case) -> bool:
    """Whether rows of A or B, of K and N elements, begin where no asynchronous copy can."""
    _, n, k = sizes(case)
    return any(size * ITEM_BYTES[case.dtype] % _LEAST_COPY_BYTES for size in (k, n))
