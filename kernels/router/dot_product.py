"""logits[t, n] = sum over k of x[t, k] w[n, k] + bias[n], without tensor cores: a dot product a token and expert.

x [T, K], w [N, K] in bf16, fp16 or fp32 with K contiguous and rows anywhere; bias [N] or none; logits in the operands'
dtype or fp32. Products are exact, or IEEE for fp32; sums are fp32.

A program takes a few experts and a few tokens, and all of K or one of `splits` parts. Its threads lie along K, 16
bytes each: it asks for all its weights at once, holds them in registers while it goes through the tokens, and adds up
across threads once at the end. So few tokens cost what one costs, which is the time to fetch w and one reduction. Where
there are too few experts to occupy a GPU, tokens are shared, or K is split, and the parts are added in a fixed order:
by a second launch with `overlap`, whose programs wait on the device while the first one runs, else by the last program
to arrive.

Wins while T is small; each program reads all its tokens, so it loses once that traffic, N / block_n times x, is more
than w. Refuses more than 64 tokens, and a CPU outside Triton's interpreter.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
# mypy: disable-error-code="assignment,var-annotated,unreachable"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gemmgate.kernels._triton import host
from gemmgate.kernels.router import tables
from gemmgate.kernels.router.binding import overlaps, prepared, split_constants
from gemmgate.kernels.router.cases import ITEM_BYTES, output_dtype, sizes
from gemmgate.kernels.router.device import begin, finish
from gemmgate.kernels.router.operands import Scratch
from gemmgate.suite.cases import Case, Footprint, Implementation, Inputs, Prepared, Refusal, Target
from gemmgate.suite.cases import Tile as TileData

NAME = "dot_product"
MOST_TOKENS = 64
HELD = 2
"""The `strong` of a tile whose loads are all under way before its first product."""
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


@dataclass(frozen=True)
class Tile:
    """Tokens and experts of a program, parts of K, warps, and pieces of an expert's row a thread fetches at once.

    `strong` 1 makes these volatile loads, which the assembler may not move past each other; some still move down to
    their use, and latencies add up. 2 holds all products back until everything is asked for: in fp32, and in bf16 where
    rows are whole pairs; elsewhere it is 1.
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
    strong: int = 1
    overlap: int = 0
    registers: int = 0

    def __post_init__(self) -> None:
        if self.strong not in (0, 1, HELD):
            raise ValueError(f"strong must be 0, 1 or {HELD}, got {self}.")
        if any(size < 1 or size & (size - 1) for size in (self.block_t, self.block_n, self.num_warps)):
            raise ValueError(f"block_t, block_n and num_warps must be powers of two, got {self}.")
        if self.splits < 1 or self.unroll < 1:
            raise ValueError(f"splits and unroll must be at least 1, got {self}.")
        if self.registers and not _FEWEST <= self.registers <= _most_registers(self.num_warps):
            raise ValueError(
                f"registers must be 0 or {_FEWEST} to {_most_registers(self.num_warps)} with {self.num_warps} warps, "
                f"got {self}."
            )


def elements_at_once(dtype: str, num_warps: int) -> int:
    """Elements of a row that a program's threads read together, 16 bytes each."""
    return 32 * num_warps * (16 // ITEM_BYTES[dtype])


def choose_tile(case: Case, target: Target) -> Tile:
    """The tuned tile, or by rule: a program a multiprocessor or two, all of its weights in flight at once."""
    tuned = tables.tuned_tile(NAME, case, target)
    return Tile(**tuned) if tuned is not None else _by_rule(case, target)


def _by_rule(case: Case, target: Target) -> Tile:
    """For up to three tokens loads are held; for more the assembler asks as early if it may take the registers."""
    t, n, _ = sizes(case)
    tile = _shape_by_rule(case, target)
    if tile.strong == 0 or (tile.strong == HELD and t < 4):
        return tile
    programs = triton.cdiv(n, tile.block_n) * triton.cdiv(t, tile.block_t)
    return replace(tile, strong=0, registers=_share(target, tile.num_warps, programs))


def _shape_by_rule(case: Case, target: Target) -> Tile:
    """What 64 searches on an H200 have in common: docs/findings/2026-11-30-router-tiles.md."""
    t, n, k = sizes(case)
    multiprocessors = target.sm_count or 8
    num_warps = _warps(t, n, k, case.dtype, multiprocessors)
    block_n = _experts(t, n, num_warps, triton.cdiv(k, elements_at_once(case.dtype, num_warps)), multiprocessors)
    columns = triton.cdiv(n, block_n)
    # Four tokens: sums of more take more shuffles at the end than reading w again costs, which is in the L1 cache.
    block_t = min(4 if t <= 16 else 16, triton.next_power_of_2(max(t, 1)))
    # Idle multiprocessors may share the tokens, two small programs each. Parts of K would have to be handed over, a
    # third of the time.
    while t > 2 and block_t > 1 and 2 * columns * triton.cdiv(t, block_t) <= _room(block_t, num_warps, multiprocessors):
        block_t //= 2
    if t > 4 and 3 * columns > 2 * multiprocessors:
        num_warps = min(num_warps, 8)
    if t > 1 and (columns >= 3 * multiprocessors or columns * triton.cdiv(t, block_t) >= 5 * multiprocessors):
        num_warps = min(num_warps, 8 if t == 2 else 4)
    unroll = _unroll(case, 1, num_warps, block_n)

    def strength(tokens: int) -> int:
        programs = columns * triton.cdiv(max(t, 1), tokens) / multiprocessors
        return _strength(t, tokens, block_n, num_warps, unroll, programs)

    if block_t == 4 and strength(4) != HELD and strength(2) == HELD:
        block_t = 2
    return Tile(block_t, block_n, 1, num_warps, unroll, strength(block_t))


def _room(block_t: int, num_warps: int, multiprocessors: int) -> int:
    """How many programs may share the tokens."""
    return multiprocessors * (2 if num_warps <= 4 and block_t > 2 else 1)


def _strength(t: int, block_t: int, block_n: int, num_warps: int, unroll: int, programs: float) -> int:
    """How loads are asked for. Those under way need registers: too many, and fewer programs run at a time.

    For one token two pieces are asked for at once anyway, of three and more some wait for the first product.
    """
    if unroll <= (2 if t == 1 else 1):
        return 0
    needed = 4 * unroll * (block_t + block_n) + block_t * block_n + 2 * (block_t + block_n) + 30
    if _is_ahead(block_t, block_n, unroll) and programs <= _REGISTERS // (32 * num_warps * needed):
        return HELD
    return int(t > 1 and programs <= 2 and not (block_n == 2 and num_warps == 16))


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
                    kinds = [(0, second, share) if is_limited else (1, second, 0), (0, second, 0)]
                    kinds += [(1, 0, 0)] if second and num_warps == 4 else []
                    if case.dtype != "fp16" and _is_ahead(block_t, block_n, unroll):
                        kinds.append((HELD, second, 0))
                    found += [asdict(Tile(block_t, block_n, splits, num_warps, unroll, *kind)) for kind in kinds]
    return found or [asdict(_by_rule(case, target))]


def _is_ahead(block_t: int, block_n: int, unroll: int) -> bool:
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


@triton.jit
def _dot(
    x_ptr, w_ptr, bias_ptr, out_ptr, partials_ptr, counters_ptr,
    T, part, units_xt,
    N: tl.constexpr, K: tl.constexpr, STRIDE_WN: tl.constexpr, PACKED: tl.constexpr, UNIT: tl.constexpr,
    WHOLE: tl.constexpr, ONE_BLOCK: tl.constexpr,
    BT: tl.constexpr, BN: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr, UNROLL: tl.constexpr,
    X_AHEAD: tl.constexpr, STRONG: tl.constexpr, HELD: tl.constexpr, PAIRS: tl.constexpr,
    SPLITS: tl.constexpr, AT_ONCE: tl.constexpr, OVERLAP: tl.constexpr, HAS_BIAS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One block of logits, or its share from one part of K. `part` is a whole number of LANES * EACH.

    N, K and the stride of w are constants: addresses and masks from them would stand in front of the first load. So are
    `PACKED`, that rows of x follow each other, `WHOLE`, that BT divides T, and `ONE_BLOCK`, that BT is all of it; T and
    another stride of x, which change from call to call, would be a binary each. That stride comes in units of `UNIT`,
    so that the compiler knows what divides it. With `PAIRS` two elements are one int32, which is then what K, strides,
    `part` and `EACH` count. With `HELD` no product begins before all is asked for.
    """
    begin(OVERLAP, INTERPRETED)
    block_n = tl.program_id(0)
    split = tl.program_id(1) if SPLITS > 1 else 0
    block_t = 0 if ONE_BLOCK else tl.program_id(2)
    tokens = block_t * BT + tl.arange(0, BT)  # [BT]
    experts = block_n * BN + tl.arange(0, BN)  # [BN]
    # One contiguous dimension along K, so that threads come to lie along it, each with EACH neighbours.
    ahead_of = tl.arange(0, LANES * EACH)[None, None, :]  # [1, 1, LANES * EACH]
    x_rows = _rows(x_ptr, tokens, K if PACKED else units_xt, UNIT, PAIRS)[:, None, None]  # [BT, 1, 1]
    w_rows = _rows(w_ptr, experts, STRIDE_WN, 1, PAIRS)[None, :, None]  # [1, BN, 1]
    token_is_there = ((tokens < T) | WHOLE)[:, None, None]
    expert_is_there = ((experts < N) | (N % BN == 0))[None, :, None]
    first = split * part
    last = tl.minimum(first + part, K) if SPLITS > 1 else K
    total = tl.zeros((BT, BN, LANES), dtype=tl.float32)
    for start in range(first, last, UNROLL * LANES * EACH):
        weights = ()
        ahead = ()
        for piece in tl.static_range(UNROLL):
            ks = start + piece * LANES * EACH + ahead_of
            w = tl.load(w_rows + ks, mask=expert_is_there & (ks < last), other=0, volatile=STRONG)
            weights = weights + (w,)  # noqa: RUF005 - Triton knows no unpacking
        if X_AHEAD:
            for piece in tl.static_range(UNROLL):
                ks = start + piece * LANES * EACH + ahead_of
                x = tl.load(x_rows + ks, mask=token_is_there & (ks < last), other=0, volatile=STRONG)
                ahead = ahead + (x,)  # noqa: RUF005
        if HELD:
            none = _zero_after_all_loads(T + start, LANES)
        for piece in tl.static_range(UNROLL):
            if X_AHEAD:
                x = ahead[piece]  # [BT, 1, LANES * EACH]
            else:
                ks = start + piece * LANES * EACH + ahead_of
                x = tl.load(x_rows + ks, mask=token_is_there & (ks < last), other=0)
            if PAIRS:
                total += _over_neighbours(_low(x, none) * _low(weights[piece], none), BT, BN, LANES, EACH)
                total += _over_neighbours(_high(x, none) * _high(weights[piece], none), BT, BN, LANES, EACH)
            else:
                w = weights[piece].to(tl.float32)
                if HELD:
                    w = (w.to(tl.int32, bitcast=True) | none).to(tl.float32, bitcast=True)
                products = x.to(tl.float32) * w  # [BT, BN, LANES * EACH]
                total += _over_neighbours(products, BT, BN, LANES, EACH)
    logits = tl.sum(total, axis=2)  # [BT, BN]
    finish(
        logits, tokens, experts, split, block_t * tl.num_programs(0) + block_n,
        bias_ptr, out_ptr, partials_ptr, counters_ptr, T, N, SPLITS, AT_ONCE, OVERLAP, HAS_BIAS, INTERPRETED,
    )  # fmt: skip


@triton.jit
def _over_neighbours(products, BT: tl.constexpr, BN: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr):
    """[BT, BN, LANES], each thread's own sums."""
    return tl.sum(tl.reshape(products, (BT, BN, LANES, EACH)), axis=3)


@triton.jit
def _rows(ptr, rows, units, UNIT: tl.constexpr, PAIRS: tl.constexpr):
    """Where `rows` begin, in elements or in pairs of them, `units` of `UNIT` apart."""
    start = ptr.to(tl.pointer_type(tl.int32)) if PAIRS else ptr
    return start + rows.to(tl.int64) * units * UNIT


@triton.jit
def _zero_after_all_loads(positive, LANES: tl.constexpr):
    """0, which the compiler cannot know. It comes through shared memory, behind a barrier.

    So what needs it cannot begin before all loads in front of it have been asked for, and none can move behind it.
    """
    return tl.max(tl.minimum(tl.arange(0, LANES) + positive, 0), axis=0)


@triton.jit
def _low(pair, none):
    """The first of two bf16 as fp32."""
    return (pair << (none + 16)).to(tl.float32, bitcast=True)


@triton.jit
def _high(pair, none):
    """The second of two bf16 as fp32."""
    return (pair & (none - 65536)).to(tl.float32, bitcast=True)


def multiply(x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor, held: Scratch, tile: Tile) -> Any:
    """The first launch, for an output that is not empty. With `overlap` it leaves several parts as they are."""
    (t, k), n = x.shape, w.shape[0]
    in_pairs = tile.strong == HELD and _come_in_pairs(x, w)
    is_held = in_pairs or (tile.strong == HELD and x.dtype == torch.float32)
    size = 4 if in_pairs else x.element_size()
    ratio = size // x.element_size()
    each = 16 // size
    at_once = 32 * tile.num_warps * each
    length, stride_xt = k // ratio, x.stride(0) // ratio
    packed = x.is_contiguous()
    unit = 1 if packed or stride_xt % each else each
    return _dot[(triton.cdiv(n, tile.block_n), tile.splits, triton.cdiv(t, tile.block_t))](
        x, w, w if bias is None else bias, out, held.partials, held.counters,
        t, triton.cdiv(triton.cdiv(length, tile.splits), at_once) * at_once, 0 if packed else stride_xt // unit,
        N=n, K=length, STRIDE_WN=w.stride(0) // ratio, PACKED=packed, UNIT=unit,
        WHOLE=t % tile.block_t == 0, ONE_BLOCK=t <= tile.block_t,
        BT=tile.block_t, BN=tile.block_n, LANES=32 * tile.num_warps, EACH=each, UNROLL=tile.unroll,
        X_AHEAD=_is_ahead(tile.block_t, tile.block_n, tile.unroll),
        STRONG=tile.strong > 0 and not is_held, HELD=is_held, PAIRS=in_pairs, **split_constants(tile),
        HAS_BIAS=bias is not None, INTERPRETED=host.is_interpreted(_dot), num_warps=tile.num_warps,
        **({"maxnreg": tile.registers} if tile.registers else {}),
    )  # fmt: skip


def _come_in_pairs(x: Tensor, w: Tensor) -> bool:
    """Whether every row holds whole pairs of bf16, at addresses of an int32."""
    lengths = (x.shape[1], x.stride(0), w.stride(0), x.data_ptr() // 2, w.data_ptr() // 2)
    return x.dtype == torch.bfloat16 and all(length % 2 == 0 for length in lengths)


def supports(case: Case, target: Target) -> Refusal | None:
    t, _, _ = sizes(case)
    if t > MOST_TOKENS:
        return "too_many_tokens", f"{t} tokens: beyond {MOST_TOKENS}, a dot product for each reads x too often."
    return host.needs_gpu(_dot, target)


def prepare(case: Case, example: Inputs, target: Target, tile: TileData | None = None) -> Prepared:
    chosen = choose_tile(case, target) if tile is None else Tile(**{name: int(size) for name, size in tile.items()})
    return prepared(NAME, multiply, chosen, case, example, target)


IMPLEMENTATION = Implementation(NAME, "own", True, supports, prepare, tiles=tiles, footprint=footprint)
