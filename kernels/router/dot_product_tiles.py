"""Tiles of `router/dot_product`: what one says, the rule that makes one, and those that a search tries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import triton

from gemmgate.kernels.router import tables
from gemmgate.kernels.router.binding import overlaps
from gemmgate.kernels.router.cases import ITEM_BYTES, output_dtype, sizes
from gemmgate.suite.cases import Case, Footprint, Target
from gemmgate.suite.cases import Tile as TileData

NAME = "dot_product"
Way = Literal["late", "early", "held"]
"""How a thread asks for its pieces: as the assembler likes, all early if registers allow, or all before any product."""
_REGISTERS = 65536
"""Of a multiprocessor."""
_FEWEST = 24
"""Registers of a thread that an assembler takes as a limit, and that leave room for addresses."""
_WORTH = 72
"""Registers of a thread from which on a limit is tried: up to 64 the assembler takes by itself."""
_MOST_WEIGHTS = 16
"""16-byte pieces of w that a thread asks for at once, each four registers; the rest of K follows in a loop."""
_FEW_PIECES = 3
"""Pieces that the assembler asks for at once in any case."""
_MOST_AHEAD = 28
"""Pieces of w and x together up to which x is asked for at once, too."""
_FEW_TOKENS = 16
"""Up to here each multiprocessor's share of w is what counts; beyond, in fp32, products do."""
_BUSY_WARPS = 7
"""Of a multiprocessor: as many keep it multiplying."""
_ROOMY = 160
"""Registers of a thread that hold sums of eight tokens and four experts, and what is asked for."""


@dataclass(frozen=True)
class Tile:
    """Tokens and experts of a program, parts of K, warps, and pieces of an expert's row a thread fetches at once.

    `held` 1 holds all products back until everything is asked for: in fp32, and in bf16 where rows are whole pairs;
    elsewhere it changes nothing.
    `overlap` 1 lets the next launch come before this one has ended, and where K is split has it add the parts: from
    sm_90 on.
    `registers` is how many a thread may take on NVIDIA's GPUs, 0 what the assembler likes: it aims at few, and asks for
    operands late.
    """

    block_t: int
    block_n: int
    splits: int
    num_warps: int
    unroll: int
    held: int = 0
    overlap: int = 0
    registers: int = 0

    def __post_init__(self) -> None:
        if self.held not in (0, 1) or self.overlap not in (0, 1):
            raise ValueError(f"held and overlap must be 0 or 1, got {self}.")
        if any(size < 1 or size & (size - 1) for size in (self.block_t, self.block_n, self.num_warps)):
            raise ValueError(f"block_t, block_n and num_warps must be powers of two, got {self}.")
        if self.num_warps > 32:
            raise ValueError(f"A program has at most 32 warps, got {self}.")
        if self.splits < 1 or self.unroll < 1:
            raise ValueError(f"splits and unroll must be at least 1, got {self}.")
        if self.registers and not _FEWEST <= self.registers <= _most_registers(self.num_warps):
            raise ValueError(
                f"registers must be 0 or {_FEWEST} to {_most_registers(self.num_warps)} for its warps, got {self}."
            )


def elements_at_once(dtype: str, num_warps: int) -> int:
    """Elements of a row that a program's threads read together, 16 bytes each."""
    return 32 * num_warps * (16 // ITEM_BYTES[dtype])


def choose_tile(case: Case, target: Target) -> Tile:
    """The tuned tile, or by rule: a program a multiprocessor or two, all of its weights in flight at once; for many
    tokens of fp32 as many products a piece as registers hold.
    """
    tuned = tables.tuned_tile(NAME, case, target)
    return tables.tile_of(Tile, NAME, tuned) if tuned is not None else _by_rule(case, target)


def _by_rule(case: Case, target: Target) -> Tile:
    """What 64 searches on an H200 have in common: docs/findings/2026-11-30-router-tiles.md.

    For up to three tokens products are held; for more the assembler asks as early if it may take the registers.
    """
    t, n, k = sizes(case)
    multiprocessors = target.sm_count or 8
    if t > _FEW_TOKENS and case.dtype == "fp32":
        return _by_products(case, target)
    num_warps = _warps(t, n, k, case.dtype, multiprocessors)
    block_n = _experts(t, n, num_warps, triton.cdiv(k, elements_at_once(case.dtype, num_warps)), multiprocessors)
    columns = triton.cdiv(n, block_n)
    # Four tokens: sums of more take more shuffles at the end than reading w again costs, which is in the L1 cache.
    block_t = min(4 if t <= _FEW_TOKENS else 16, triton.next_power_of_2(max(t, 1)))
    # Idle multiprocessors may share the tokens, two small programs each. Parts of K would have to be handed over, a
    # third of the time.
    while t > 2 and block_t > 1 and 2 * columns * triton.cdiv(t, block_t) <= _room(block_t, num_warps, multiprocessors):
        block_t //= 2
    if t > 4 and 3 * columns > 2 * multiprocessors:
        num_warps = min(num_warps, 8)
    if t > 1 and (columns >= 3 * multiprocessors or columns * triton.cdiv(t, block_t) >= 5 * multiprocessors):
        num_warps = min(num_warps, 8 if t == 2 else 4)
    unroll = _unroll(case, 1, num_warps, block_n)

    def programs(tokens: int) -> int:
        return columns * triton.cdiv(max(t, 1), tokens)

    def way(tokens: int) -> Way:
        return _way(t, tokens, block_n, num_warps, unroll, programs(tokens) / multiprocessors)

    if block_t == 4 and way(4) != "held" and way(2) == "held":
        block_t = 2
    tile, how = Tile(block_t, block_n, 1, num_warps, unroll), way(block_t)
    if how == "late":
        return tile
    if how == "held" and t < 4 and _can_hold(case):
        return replace(tile, held=1)
    return replace(tile, registers=_share(target, num_warps, programs(block_t)))


def _by_products(case: Case, target: Target) -> Tile:
    """For many tokens: the most products for each piece that is read, and enough warps to hide each other's waits.

    Most of 12 searches at 32, 64 and 128 tokens end near it: docs/findings/2026-11-30-fp32-tokens.md.
    """
    t, n, _ = sizes(case)
    multiprocessors = target.sm_count or 8
    block_t, block_n = 8, 4

    def programs() -> int:
        return triton.cdiv(n, block_n) * triton.cdiv(t, block_t)

    while block_n > 1 and programs() < multiprocessors:
        block_n //= 2
    while block_t > 1 and programs() < multiprocessors:
        block_t //= 2
    num_warps = 1
    while num_warps < 8 and programs() * num_warps < _BUSY_WARPS * multiprocessors:
        num_warps *= 2
    share = _share(target, num_warps, programs())
    unroll = _unroll(case, 1, num_warps, block_n)
    return Tile(block_t, block_n, 1, num_warps, unroll, registers=share if share >= _ROOMY else 0)


def _can_hold(case: Case) -> bool:
    """Whether products can be held back: in bf16 for pairs alone, which rows of odd K are not."""
    _, _, k = sizes(case)
    return case.dtype == "fp32" or (case.dtype == "bf16" and k % 2 == 0)


def _room(block_t: int, num_warps: int, multiprocessors: int) -> int:
    """How many programs may share the tokens."""
    return multiprocessors * (2 if num_warps <= 4 and block_t > 2 else 1)


def _way(t: int, block_t: int, block_n: int, num_warps: int, unroll: int, programs: float) -> Way:
    """How loads are best asked for. Those under way need registers: too many, and fewer programs run at a time.

    For one token two pieces are asked for at once anyway, of three and more some wait for the first product.
    """
    if unroll <= (2 if t == 1 else 1):
        return "late"
    needed = 4 * unroll * (block_t + block_n) + block_t * block_n + 2 * (block_t + block_n) + 30
    if is_ahead(block_t, block_n, unroll) and programs <= _REGISTERS // (32 * num_warps * needed):
        return "held"
    return "early" if t > 1 and programs <= 2 and not (block_n == 2 and num_warps == 16) else "late"


def _warps(t: int, n: int, k: int, dtype: str, multiprocessors: int) -> int:
    """Four warps or more with two pieces of K a thread; with up to five where few experts leave registers for it."""
    if not 1 < t <= 8:
        return _widest(k, dtype, 0.35 if t == 1 else 0.2)
    pieces = 5 if 2 * n <= 3 * multiprocessors else 2
    for num_warps in (4, 8, 16):
        at_once = elements_at_once(dtype, num_warps)
        if 2 <= triton.cdiv(k, at_once) <= pieces and _waste(k, at_once) <= 0.2:
            return num_warps
    return _widest(k, dtype, 0.2)


def _widest(k: int, dtype: str, waste: float) -> int:
    """The most warps of which at most this share of the loads lies beyond the end of K."""
    num_warps = 16
    while num_warps > 1 and _waste(k, elements_at_once(dtype, num_warps)) > waste:
        num_warps //= 2
    return num_warps


def _experts(t: int, n: int, num_warps: int, pieces: int, multiprocessors: int) -> int:
    """Experts of a program: two share the reading of x, if that leaves programs for all and two pieces a thread."""
    if 2 * n < multiprocessors:
        return 1 if t <= 4 else 2
    if pieces == 1:
        return 4 if t > 8 else 2
    if t == 1:
        return 2 if n > 6 * multiprocessors else 1
    return 1 if t == 2 and num_warps >= 8 and n <= 2 * multiprocessors else 2


def _most_registers(num_warps: int, programs: int = 1) -> int:
    """Of a thread, where so many programs share a multiprocessor."""
    return min(255, _REGISTERS // (32 * num_warps * programs) // 8 * 8)


def _share(target: Target, num_warps: int, programs: int) -> int:
    """Registers of a thread, where a grid has so many programs; 0 where a limit changes nothing, or cannot be set."""
    if not target.arch.startswith("sm_"):
        return 0
    share = _most_registers(num_warps, triton.cdiv(programs, target.sm_count or 8))
    return share if share >= _WORTH else 0


def _waste(part: int, at_once: int) -> float:
    """Share of the threads' loads that lie beyond the end of a part of K."""
    return triton.cdiv(part, at_once) * at_once / max(part, 1) - 1


def _unroll(case: Case, splits: int, num_warps: int, block_n: int) -> int:
    _, _, k = sizes(case)
    pieces = triton.cdiv(triton.cdiv(k, splits), elements_at_once(case.dtype, num_warps))
    return max(1, min(pieces, _MOST_WEIGHTS // block_n))


def tiles(case: Case, target: Target) -> Sequence[TileData]:
    """Every tile that gives a quarter of the multiprocessors work, and at most four waves, with sums in registers."""
    t, n, k = sizes(case)
    multiprocessors = target.sm_count or 8
    tokens = triton.next_power_of_2(max(t, 1))
    found = []
    sizes_t = (2, 4, 8, 16) if 2 * n > multiprocessors else (1, 2, 4, 8, 16)
    for block_t in sorted({min(tokens, size) for size in sizes_t}):
        for block_n in (1, 2, 4, 8):
            for splits in (1, 2, 4, 8, 16, 32):
                programs = triton.cdiv(n, block_n) * triton.cdiv(t, block_t) * splits
                if not multiprocessors / 4 <= programs <= 4 * max(multiprocessors, n):
                    continue
                for num_warps in (1, 2, 4, 8, 16):
                    unroll = _unroll(case, splits, num_warps, block_n)
                    if _waste(triton.cdiv(k, splits), elements_at_once(case.dtype, num_warps)) > 0.5 or _registers(
                        block_t, block_n, unroll
                    ) > min(255, _REGISTERS // (32 * num_warps)):
                        continue
                    share = _share(target, num_warps, programs)
                    is_limited = share > 0 and unroll * (block_t + block_n) > _FEW_PIECES
                    # Where a second launch overlaps, the last to arrive is tried beside it with four warps only.
                    second = int(splits > 1 and overlaps(target))
                    limits = (share, 0) if is_limited else (0,)
                    kinds = [(0, second, limit) for limit in limits]
                    kinds += [(0, 0, limits[0])] if second and num_warps == 4 else []
                    if _can_hold(case) and is_ahead(block_t, block_n, unroll):
                        kinds.append((1, second, 0))
                    found += [asdict(Tile(block_t, block_n, splits, num_warps, unroll, *kind)) for kind in kinds]
    return found or [asdict(_by_rule(case, target))]


def is_ahead(block_t: int, block_n: int, unroll: int) -> bool:
    """Whether x is asked for together with w."""
    return unroll * (block_t + block_n) <= _MOST_AHEAD


def _registers(block_t: int, block_n: int, unroll: int) -> int:
    """About how many a thread needs: sums, weights, tokens' pieces two deep, addresses. What spills is no candidate."""
    return 2 * block_t * block_n + 4 * block_n * unroll + 8 * block_t + 32


def footprint(case: Case, target: Target, tile: TileData) -> Footprint:
    """Each program reads its experts and all its tokens; parts are written and read once more."""
    t, n, k = sizes(case)
    block_t, block_n, splits = (int(tile[name]) for name in ("block_t", "block_n", "splits"))
    tiles_t, tiles_n = triton.cdiv(max(t, 1), block_t), triton.cdiv(n, block_n)
    item = ITEM_BYTES[case.dtype]
    moved = tiles_t * n * k * item + tiles_n * t * k * item + t * n * ITEM_BYTES[output_dtype(case)]
    moved += 2 * splits * t * n * 4 if splits > 1 else 0
    shared = 4 * block_t * block_n * int(tile["num_warps"])
    programs = tiles_t * tiles_n * splits
    return Footprint(programs, int(tile["num_warps"]), shared, moved, launches=1 + int(splits > 1 and tile["overlap"]))
