"""Tiles of the split-K kernels: what is legal, what a rule chooses, and what a tile asks of a device. Pure.

A tile of C is BM x BN; K is walked BK at a time by `splits` programs a tile. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self, TypeVar

from gemmgate.kernels.dense_splitk.cases import ITEM_BYTES, sizes
from gemmgate.suite.cases import Case, Footprint, Target
from gemmgate.suite.cases import Tile as TileData

MAX_SPLITS = 1024
WARPS = (1, 2, 4, 8, 16, 32)
"""Of a program: powers of two, up to a block's 1024 threads."""
GROUP = 8
"""Rows of tiles that programs walk down before the next column of tiles."""
_INTERPRETED_MULTIPROCESSORS = 2
"""Where there is no GPU a program costs time and brings none."""
_LEAST_SHARED_BYTES = 48 * 1024
"""What every GPU has: used where the target does not say."""
_SHARED_RESERVE = 1024
"""Reductions, barriers and alignment take some of the shared memory beside the operands."""
_FEWEST_IN_FLIGHT, _MOST_IN_FLIGHT = 8 * 1024, 192 * 1024
"""Bytes that a program's pipeline holds: fewer do not hide the memory's latency, more only take space."""
_MOST_SUMS_A_THREAD = 128
"""fp32 sums that a thread holds in registers, of the 255 it has."""
_KINDS: Mapping[str, Callable[[Any], Any]] = {"loads": str, "adds": str, "overlap": bool}
"""Of the fields of a tile that are no numbers."""
OVERLAP_CAPABILITY = 90
"""From here on a launch can begin before the one it depends on has ended."""
_LEAST_SIDE_OF_LARGE = 256
"""Of C, from which on a search tries large tiles alone."""
_LARGE_C = 128 * 128
"""Elements from which on parts are as many bytes as operands: fewer programs than multiprocessors may be better."""
_DOT_K = 16
"""A tensor core's step in K for 16-bit operands; it needs as much of K at least."""


@dataclass(frozen=True)
class Tile:
    """Block sizes, programs a tile of C, and how operands are read.

    `slices` cuts a K tile among the warps of a program (see `_triton/product.py`); `loads` is `pointers` or `tma`.
    `programs` is for those that share out C as a whole, whose number of programs is no multiple of the tiles'.
    `overlap` lets a second launch begin before the first has ended.
    """

    block_m: int
    block_n: int
    block_k: int
    splits: int
    num_warps: int
    num_stages: int
    slices: int = 1
    loads: str = "pointers"
    programs: int = 0
    overlap: bool = False

    least_block: ClassVar[int] = 16

    def __post_init__(self) -> None:
        blocks = (self.block_m, self.block_n, self.block_k)
        if any(block < self.least_block or block & (block - 1) for block in blocks):
            raise ValueError(f"Blocks must be powers of two from {self.least_block} up, got {self}.")
        if not 1 <= self.splits <= MAX_SPLITS:
            raise ValueError(f"splits must be 1 to {MAX_SPLITS}, got {self.splits}.")
        if self.num_warps not in WARPS or self.num_stages < 1:
            raise ValueError(f"num_warps must be a power of two up to 32 and num_stages positive, got {self}.")
        if self.slices < 1 or self.slices & (self.slices - 1) or self.block_k // self.slices < _DOT_K:
            raise ValueError(f"slices must be a power of two that leaves {_DOT_K} of block_k to each, got {self}.")
        if self.loads not in ("pointers", "tma") or (self.loads == "tma" and self.slices > 1):
            raise ValueError(f"loads must be pointers, or tma with one slice, got {self}.")

    def as_data(self) -> dict[str, Any]:
        """As it is recorded; `from_data` gives it back."""
        return asdict(self)

    @property
    def size(self) -> int:
        """Elements of C in a tile."""
        return self.block_m * self.block_n

    @classmethod
    def from_data(cls, data: TileData) -> Self:
        """The tile that `as_data` has written. Raises ValueError for fields that it does not have."""
        try:
            return cls(**{name: _KINDS.get(name, int)(value) for name, value in data.items()})
        except (TypeError, OverflowError) as error:
            raise ValueError(f"No tile of a split-K kernel: {dict(data)}: {error}.") from None


T = TypeVar("T", bound=Tile)


def overlapping(target: Target, tile: T) -> T:
    """The tile with `overlap` where the device can."""
    return replace(tile, overlap=target.compute_capability >= OVERLAP_CAPABILITY)


def ceil_div(size: int, block: int) -> int:
    """Blocks that cover a size. Triton's own is a jit function, whose call on the host takes microseconds."""
    return -(-size // block)


def power_of_two(size: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (max(size, 1) - 1).bit_length()


def tiles_of_c(m: int, n: int, tile: Tile) -> int:
    """How many tiles cover C."""
    return ceil_div(m, tile.block_m) * ceil_div(n, tile.block_n)


def shared_bytes(case: Case, tile: Tile) -> int:
    """Shared memory of a program, not less than what Triton takes: operands in the pipeline, or sums on their way.

    Operands that are multiplied out of shared memory stay there a stage longer.
    """
    stays = tile.loads == "tma" or (tile.slices == 1 and tile.block_m >= 64 and tile.num_warps >= 4)
    stages = tile.num_stages if stays else max(1, tile.num_stages - 1)
    staged = stages * (tile.block_m + tile.block_n) * tile.block_k * ITEM_BYTES[case.dtype]
    return max(staged, tile.size * 4) + _SHARED_RESERVE


def limit_bytes(target: Target) -> int:
    return target.shared_bytes or _LEAST_SHARED_BYTES


def footprint(case: Case, tile: Tile, *, partials: bool, launches: int = 1) -> Footprint:
    """What a launch asks for; with `partials`, every split but an only one writes its tile and it is read again."""
    m, n, k = sizes(case)
    rows, columns = ceil_div(m, tile.block_m), ceil_div(n, tile.block_n)
    item = ITEM_BYTES[case.dtype]
    moved = (columns * m * k + rows * n * k + m * n) * item
    if partials and tile.splits > 1:
        moved += 2 * 4 * rows * columns * tile.block_m * tile.block_n * tile.splits
    return Footprint(rows * columns * tile.splits, tile.num_warps, shared_bytes(case, tile), moved, launches)


def choose(case: Case, target: Target, *, whole: bool) -> Tile:
    """A tile by rule. `whole` wants C in few, large tiles, for disciplines whose sum is spread over all programs.

    Otherwise tiles are small, so that whoever sums one has little to sum. Programs fill the multiprocessors once;
    blocks of K shrink until every program has one, stages until they fit.
    """
    m, n, k = sizes(case)
    multiprocessors = target.sm_count or _INTERPRETED_MULTIPROCESSORS
    item = ITEM_BYTES[case.dtype]
    whole = whole or not target.is_gpu
    block_m, block_n = _block(m, whole), _block(n, whole)
    tiles = max(1, ceil_div(m, block_m) * ceil_div(n, block_n))
    wanted = max(1, multiprocessors // tiles)
    block_k = max(64, 8 * 1024 // (max(block_m, block_n) * item)) if target.is_gpu else 256
    while block_k > 64 and ceil_div(k, block_k) < wanted:
        block_k //= 2
    small = block_m * block_n <= 32 * 32
    tile = Tile(
        block_m,
        block_n,
        block_k,
        splits=max(1, min(wanted, ceil_div(k, block_k), MAX_SPLITS)),
        num_warps=4 if block_m * block_n <= 64 * 64 else 8,
        num_stages=4,
        slices=4 if small and target.is_gpu else 1,
    )
    while tile.num_stages > 1 and shared_bytes(case, tile) > limit_bytes(target):
        tile = replace(tile, num_stages=tile.num_stages - 1)
    return tile


def _block(size: int, whole: bool) -> int:
    if whole:
        return max(16, min(64, power_of_two(size)))
    return 16 if size <= 48 else 32 if size <= 128 else 64


def space(case: Case, target: Target, *, most_programs: int | None = None) -> list[Tile]:
    """Every legal tile that is not plainly wasteful, in a fixed order.

    Blocks reach no further than C does, programs make half a wave to four (at most `most_programs`), pipelines
    hold enough to hide latency and no more, and the sums fit the registers. For a large C tiles are large, pipelines
    long and waves one: loads from the cache are what costs there, and all else only adds to them.
    """
    large = is_large(case, target)
    sensible = (tile for tile in _all(case, target, most_programs) if _is_sensible(case, target, tile))
    return [tile for tile in sensible if not large or _is_for_large(case, target, tile)]


def is_large(case: Case, target: Target) -> bool:
    """Whether C fills several tiles of 128 x 128, on a GPU, with operands of 16 bits."""
    m, n, _ = sizes(case)
    return target.is_gpu and min(m, n) >= _LEAST_SIDE_OF_LARGE and ITEM_BYTES[case.dtype] == 2


def _is_for_large(case: Case, target: Target, tile: Tile) -> bool:
    m, n, _ = sizes(case)
    programs = tiles_of_c(m, n, tile) * tile.splits
    return (
        tile.size >= 128 * 128
        and tile.num_stages >= 3
        and tile.block_k == 64
        and 3 * programs > 2 * target.sm_count >= 2 * programs - target.sm_count
    )


def _all(case: Case, target: Target, most_programs: int | None) -> Iterator[Tile]:
    m, n, k = sizes(case)
    multiprocessors = target.sm_count or _INTERPRETED_MULTIPROCESSORS
    for block_m, block_n in product(_blocks(m), _blocks(n)):
        tiles = max(1, ceil_div(m, block_m) * ceil_div(n, block_n))
        for block_k in (64, 128, 256, 512):
            # One wave exactly; and powers of two, which tend to divide the K tiles and leave no longer ranges.
            counts = {max(1, int(waves * multiprocessors) // tiles) for waves in (0.5, 1, 2, 4)}
            counts = {1 << (count.bit_length() - 1) for count in counts} | {max(1, multiprocessors // tiles)}
            if m * n >= _LARGE_C:
                counts.add(max(1, 2 * multiprocessors // (3 * tiles)))
            for splits in sorted(counts):
                if splits > min(MAX_SPLITS, max(1, ceil_div(k, block_k))):
                    continue
                if most_programs is not None and tiles * splits > most_programs:
                    continue
                for num_warps, num_stages in product((2, 4, 8), (2, 3, 5) if m * n < _LARGE_C else (2, 3, 4, 5)):
                    for slices in sorted({1, num_warps}):
                        if block_k // slices >= _DOT_K:
                            yield Tile(block_m, block_n, block_k, splits, num_warps, num_stages, slices)
                    if target.compute_capability >= 90 and block_m * block_n >= 32 * 32:
                        yield Tile(block_m, block_n, block_k, splits, num_warps, num_stages, 1, "tma")


def _blocks(size: int) -> list[int]:
    """Powers of two from 16 to 256 that are not twice what is needed."""
    return [block for block in (16, 32, 64, 128, 256) if block == 16 or block < 2 * size]


def _is_sensible(case: Case, target: Target, tile: Tile) -> bool:
    staged = (tile.block_m + tile.block_n) * tile.block_k * ITEM_BYTES[case.dtype] * tile.num_stages
    sums = tile.block_m * tile.block_n * tile.slices
    enough_work = tile.block_m * tile.block_n >= 256 * tile.num_warps // tile.slices or tile.num_warps == 2
    return (
        shared_bytes(case, tile) <= limit_bytes(target)
        and _FEWEST_IN_FLIGHT <= staged <= _MOST_IN_FLIGHT
        and sums <= _MOST_SUMS_A_THREAD * 32 * tile.num_warps
        and (enough_work or tile.slices > 1)
        and max(tile.block_m, tile.block_n) <= 4 * min(tile.block_m, tile.block_n)
        and (tile.slices == 1 or tile.size <= 64 * 64)
        # Tiles far smaller than C read its operands over and over.
        and tiles_of_c(*sizes(case)[:2], tile) <= 4 * max(1, target.sm_count)
    )


def resident_programs(case: Case, target: Target, tile: Tile) -> int:
    """Programs that run at the same time on the whole device, whatever their registers: 255 a thread are assumed."""
    registers = 65536 // (255 * 32 * tile.num_warps)
    shared = limit_bytes(target) // shared_bytes(case, tile)
    return max(0, min(registers, shared)) * target.sm_count
