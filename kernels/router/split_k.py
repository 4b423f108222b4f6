"""logits[t, n] = sum over s of x[t, K_s] . w[n, K_s] + bias[n] on tensor cores, K cut into S parts.

x [T, K], w [N, K] in bf16 or fp16 with K contiguous and rows anywhere; bias [N] or none; logits in the operands' dtype
or fp32. Sums are fp32.

A tensor core multiplies 16 or 64 rows by as few as 8 columns. Tokens are few and experts are many, so with `swap` the
experts are the rows and the tokens the columns: logits^T = w x^T. A program takes a block of both and one part of K.
With `overlap` a second launch adds the parts, whose programs wait on the device while the first one runs; without, the
last program to arrive at a block does. Both add them in a fixed order. With `groups` above 1 a program's warps
themselves split its part of K, by a batched product whose batch is added at the end: otherwise the warps of a small
block would repeat each other's products.

Wins from some tokens on, up to where the library's tiles fill the GPU by themselves. Refuses fp32, whose products
tensor cores do not compute, bf16 before sm_80, and a CPU outside Triton's interpreter.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

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

NAME = "split_k"
_SHARED_BYTES = 48 * 1024
"""What every GPU has: used where the target does not say."""
_MOST_SPLITS = 64
_SHORT = 4096
"""K up to which a program may take all of it, where its warps divide it among themselves."""
_STEP = 128
"""Items of K that the rule's program takes at once."""
_MOST_STAGES = 4
_MOST_HELD = 512
"""Partial sums that a thread of the last program reads."""


@dataclass(frozen=True)
class Tile:
    """Block sizes, parts of K, groups of warps within a part, and which operand's rows are the product's.

    `block_k` is what all groups together take in one step. `swap` is 0 or 1.
    `overlap` 1 lets the next launch come before this one has ended, and where K is split has it add the parts: from
    sm_90 on.
    """

    block_t: int
    block_n: int
    block_k: int
    splits: int
    groups: int
    swap: int
    num_warps: int
    num_stages: int
    overlap: int = 0

    def __post_init__(self) -> None:
        if self.swap not in (0, 1) or self.overlap not in (0, 1):
            raise ValueError(f"swap and overlap must be 0 or 1, got {self}.")
        sizes_of = (self.block_t, self.block_n, self.block_k, self.groups, self.num_warps)
        if any(size < 1 or size & (size - 1) for size in sizes_of):
            raise ValueError(f"Blocks, groups and warps must be powers of two, got {self}.")
        if self.num_warps > 32 or self.num_stages < 1:
            raise ValueError(f"A program has at most 32 warps, and one stage at least; got {self}.")
        rows, columns = (self.block_n, self.block_t) if self.swap else (self.block_t, self.block_n)
        if rows < 16 or columns < 8 or self.block_k < 16 * self.groups:
            raise ValueError(
                f"A product has at least 16 rows, 8 columns and 16 of K a group; {self} has {rows}, {columns} and "
                f"{self.block_k // self.groups}."
            )
        if not 1 <= self.splits <= _MOST_SPLITS:
            raise ValueError(f"splits must be 1 to {_MOST_SPLITS}, got {self.splits}.")


def choose_tile(case: Case, target: Target) -> Tile:
    """The tuned tile, or by rule: as many parts as give every multiprocessor one program, long steps, deep pipeline."""
    tuned = tables.tuned_tile(NAME, case, target)
    return tables.tile_of(Tile, NAME, tuned) if tuned is not None else _by_rule(case, target)


def _by_rule(case: Case, target: Target) -> Tile:
    """What 51 searches on an H200 have in common: docs/findings/2026-11-30-router-tiles.md."""
    t, n, k = sizes(case)
    multiprocessors = target.sm_count or 8
    block_t, block_n, waves = _blocks(t, n, triton.cdiv(k, _STEP), multiprocessors)
    blocks = triton.cdiv(max(t, 1), block_t) * triton.cdiv(max(n, 1), block_n)
    most = _MOST_SPLITS if overlaps(target) else _most_splits(block_t, block_n, 4)
    splits = _without_idle(triton.cdiv(k, _STEP), max(1, min(most, waves * multiprocessors // blocks)))
    # Two warps leave room for a second program; where there is none, four fetch faster.
    few_warps = waves == 2 and block_t <= 16 and splits * blocks > multiprocessors
    return Tile(
        block_t=block_t,
        block_n=block_n,
        block_k=_STEP,
        splits=splits,
        groups=1,
        swap=int(block_t <= 32),
        num_warps=2 if few_warps else 4,
        num_stages=_stages(case, target, block_t, block_n, _STEP, splits),
        overlap=int(overlaps(target) and splits > 1),
    )


def _without_idle(steps: int, splits: int) -> int:
    """At most so many parts that each has a step to do: 28 steps in 8 parts of 4 are 7. One where there is no step."""
    steps = max(steps, 1)
    return triton.cdiv(steps, triton.cdiv(steps, min(splits, steps)))


def _blocks(t: int, n: int, steps: int, multiprocessors: int) -> tuple[int, int, int]:
    """Tokens and experts of a program, and the waves of programs that K is cut for.

    The larger block reads x less often; the smaller one is for what otherwise would not give every multiprocessor work.
    """
    if t <= 32:
        block_t = max(8, triton.next_power_of_2(max(t, 1)))
        if n <= 16:
            return block_t, 16, 2
        if block_t > 8 and triton.cdiv(n, 64) * steps >= multiprocessors:
            return block_t, 64, 1
        return block_t, 32, 2 if block_t <= 16 else 1
    if 5 * triton.cdiv(n, 32) * steps < 3 * multiprocessors:
        return 32, 16 if n <= 16 else 32, 2
    if n <= 16:
        return 64, 16, 1
    return 64, 32 if n <= (256 if t <= 64 else 192) else 64, 1


def _most_splits(block_t: int, block_n: int, num_warps: int) -> int:
    """Parts that one program, the last to arrive, adds up in a time that is small beside the product's."""
    held = _MOST_HELD * 32 * num_warps // (block_t * block_n)
    return max(1, min(_MOST_SPLITS, 1 << max(held.bit_length() - 1, 0)))


def _stages(case: Case, target: Target, block_t: int, block_n: int, block_k: int, splits: int) -> int:
    """One more than a part has steps, but at most four and no more than fit the shared memory."""
    stage = (block_t + block_n) * block_k * ITEM_BYTES[case.dtype]
    steps = triton.cdiv(triton.cdiv(sizes(case)[2], block_k), splits)
    return max(1, min(_MOST_STAGES, steps + 1, (target.shared_bytes or _SHARED_BYTES) // stage))


def tiles(case: Case, target: Target) -> Sequence[TileData]:
    """Every tile around the rule's block sizes that fits and gives half to two waves of programs.

    Where a second launch overlaps, it adds the parts; the last to arrive is tried beside it with one step alone.
    """
    t, n, k = sizes(case)
    multiprocessors = target.sm_count or 8
    tokens = triton.next_power_of_2(max(t, 1))
    found = []
    for block_t in sorted({max(8, min(tokens, size)) for size in (8, 16, 32, 64, 128)} & {8, 16, 32, 64, 128}):
        if block_t < min(tokens, 32):
            continue
        for block_n, block_k, groups, num_warps in _shapes(block_t):
            steps = triton.cdiv(k, block_k)
            blocks = triton.cdiv(max(t, 1), block_t) * triton.cdiv(max(n, 1), block_n)
            few = min(_most_splits(block_t, block_n, num_warps), steps)
            is_both = (block_k, groups) == ((256, 4) if block_t <= 32 else (64, 1))
            parts = [(s, 0) for s in _splits(blocks, steps, multiprocessors, few)]
            if overlaps(target):
                many = _splits(blocks, steps, multiprocessors, min(_MOST_SPLITS, steps))
                parts = [(s, int(s > 1)) for s in many] + (parts if is_both else [])
            if groups > 1 and block_n == 16 and k <= _SHORT:  # so little that no second launch pays
                parts.append((1, 0))
            for splits, overlap in parts:
                stages = _stages(case, target, block_t, block_n, block_k, splits)
                swap = int(block_t <= 32)
                found.append(Tile(block_t, block_n, block_k, splits, groups, swap, num_warps, stages, overlap))
    return [asdict(tile) for tile in dict.fromkeys(found)] or [asdict(_by_rule(case, target))]


def _shapes(block_t: int) -> list[tuple[int, int, int, int]]:
    """(block_n, block_k, groups, warps) for a block of tokens; 64 experts are the rows of a product by four warps."""
    if block_t > 32:
        return [(n, k, 1, warps) for n in (32, 64, 128) for k in (64, 128) for warps in (4, 8)]
    warps = ((1, 2), (1, 4), (4, 4), (8, 8))
    return [
        *((n, k, groups, count) for n in (16, 32) for k in (128, 256, 512) for groups, count in warps),
        *((64, k, 1, 4) for k in (128, 256)),
    ]


def _splits(blocks: int, steps: int, multiprocessors: int, most: int) -> list[int]:
    """Numbers of parts for half a wave to two waves of programs, each with work."""
    wanted = {max(1, min(most, round(waves * multiprocessors / blocks))) for waves in (0.5, 1, 2)}
    return sorted({_without_idle(steps, splits) for splits in wanted})


def footprint(case: Case, target: Target, tile: TileData) -> Footprint:
    """Each block of logits reads its rows of both operands; parts are written and read once more."""
    t, n, k = sizes(case)
    sized = tables.tile_of(Tile, NAME, tile)
    tiles_t, tiles_n = triton.cdiv(max(t, 1), sized.block_t), triton.cdiv(n, sized.block_n)
    item = ITEM_BYTES[case.dtype]
    moved = (tiles_t * n * k + tiles_n * t * k) * item + t * n * ITEM_BYTES[output_dtype(case)]
    moved += 2 * sized.splits * t * n * 4 if sized.splits > 1 else 0
    shared = sized.num_stages * (sized.block_t + sized.block_n) * sized.block_k * item
    return Footprint(
        tiles_t * tiles_n * sized.splits,
        sized.num_warps,
        shared,
        moved,
        launches=1 + int(sized.splits > 1 and sized.overlap),
    )


@triton.jit
def block_of(
    x_ptr, w_ptr, tokens, experts, first, last, T, stride_xt,
    N: tl.constexpr, K: tl.constexpr, STRIDE_WN: tl.constexpr, PACKED: tl.constexpr, WHOLE: tl.constexpr,
    BT: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUPS: tl.constexpr, SWAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Logits [BT, BN] of tokens [BT] and experts [BN] from steps `first` to `last` of K, BK * GROUPS each, in fp32.

    `PACKED`: rows of x follow each other, and its stride does not count. `WHOLE`: BT divides T.
    """
    stride = K if PACKED else stride_xt
    token_is_there = (tokens < T) | WHOLE
    expert_is_there = (experts < N) | (N % BN == 0)
    if GROUPS == 1:
        x_rows = x_ptr + tokens.to(tl.int64)[:, None] * stride  # [BT, 1]
        w_rows = w_ptr + experts.to(tl.int64)[:, None] * STRIDE_WN  # [BN, 1]
        total = tl.zeros((BN, BT) if SWAP else (BT, BN), dtype=tl.float32)
        for k_tile in range(first, last):
            ks = k_tile * BK + tl.arange(0, BK)[None, :]  # [1, BK]
            x = tl.load(x_rows + ks, mask=token_is_there[:, None] & (ks < K), other=0.0)
            w = tl.load(w_rows + ks, mask=expert_is_there[:, None] & (ks < K), other=0.0)
            if INTERPRETED:  # the interpreter multiplies bf16 wrongly
                x = x.to(tl.float32)
                w = w.to(tl.float32)
            total = tl.dot(w, tl.trans(x), total) if SWAP else tl.dot(x, tl.trans(w), total)
    else:
        x_rows = x_ptr + tokens.to(tl.int64)[None, :, None] * stride  # [1, BT, 1]
        w_rows = w_ptr + experts.to(tl.int64)[None, :, None] * STRIDE_WN  # [1, BN, 1]
        group = tl.arange(0, GROUPS)[:, None, None] * BK + tl.arange(0, BK)[None, None, :]  # [GROUPS, 1, BK]
        totals = tl.zeros((GROUPS, BN, BT) if SWAP else (GROUPS, BT, BN), dtype=tl.float32)
        for k_tile in range(first, last):
            ks = k_tile * BK * GROUPS + group
            x = tl.load(x_rows + ks, mask=token_is_there[None, :, None] & (ks < K), other=0.0)  # [GROUPS, BT, BK]
            w = tl.load(w_rows + ks, mask=expert_is_there[None, :, None] & (ks < K), other=0.0)  # [GROUPS, BN, BK]
            if INTERPRETED:
                x = x.to(tl.float32)
                w = w.to(tl.float32)
            if SWAP:
                totals = tl.dot(w, tl.permute(x, (0, 2, 1)), totals)
            else:
                totals = tl.dot(x, tl.permute(w, (0, 2, 1)), totals)
        total = tl.sum(totals, axis=0)
    return tl.trans(total) if SWAP else total


@triton.jit
def _multiply(
    x_ptr, w_ptr, bias_ptr, out_ptr, partials_ptr, counters_ptr,
    T, tiles_per_split, stride_xt,
    N: tl.constexpr, K: tl.constexpr, STRIDE_WN: tl.constexpr, PACKED: tl.constexpr, WHOLE: tl.constexpr,
    BT: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUPS: tl.constexpr, SWAP: tl.constexpr,
    SPLITS: tl.constexpr, AT_ONCE: tl.constexpr, OVERLAP: tl.constexpr, HAS_BIAS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One block of logits, or its share from one part of K. `BK` is a group's step.

    N, K, the stride of w, whether rows of x follow each other and whether BT divides T are constants: less stands in
    front of the first load.
    """
    begin(OVERLAP, INTERPRETED)
    tiles_n = tl.cdiv(N, BN)
    block = tl.program_id(0)
    split = tl.program_id(1)
    tokens = (block // tiles_n) * BT + tl.arange(0, BT)  # [BT]
    experts = (block % tiles_n) * BN + tl.arange(0, BN)  # [BN]
    first = split * tiles_per_split
    last = tl.minimum(first + tiles_per_split, tl.cdiv(K, BK * GROUPS))
    logits = block_of(
        x_ptr, w_ptr, tokens, experts, first, last, T, stride_xt, N, K, STRIDE_WN, PACKED, WHOLE,
        BT, BN, BK, GROUPS, SWAP, INTERPRETED,
    )  # fmt: skip
    finish(
        logits, tokens, experts, split, block,
        bias_ptr, out_ptr, partials_ptr, counters_ptr, T, N, SPLITS, AT_ONCE, OVERLAP, HAS_BIAS, INTERPRETED,
    )  # fmt: skip


def multiply(x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor, held: Scratch, tile: Tile) -> Any:
    """The first launch, for an output that is not empty. With `overlap` it leaves several parts as they are."""
    (t, k), n, packed = x.shape, w.shape[0], x.is_contiguous()
    return _multiply[(triton.cdiv(n, tile.block_n) * triton.cdiv(t, tile.block_t), tile.splits)](
        x, w, w if bias is None else bias, out, held.partials, held.counters,
        t, triton.cdiv(triton.cdiv(k, tile.block_k), tile.splits), 0 if packed else x.stride(0),
        N=n, K=k, STRIDE_WN=w.stride(0), PACKED=packed, WHOLE=t % tile.block_t == 0,
        BT=tile.block_t, BN=tile.block_n, BK=tile.block_k // tile.groups, GROUPS=tile.groups, SWAP=tile.swap == 1,
        **split_constants(tile), HAS_BIAS=bias is not None, INTERPRETED=host.is_interpreted(_multiply),
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


def supports(case: Case, target: Target) -> Refusal | None:
    if case.dtype == "fp32":
        return "ieee_fp32", "Tensor cores compute no IEEE fp32 products."
    if 0 < target.compute_capability < 80 and case.dtype == "bf16":
        return "needs_sm_80", f"bf16 products need sm_80, this is {target.arch}."
    return host.needs_gpu(_multiply, target)


def prepare(case: Case, example: Inputs, target: Target, tile: TileData | None = None) -> Prepared:
    chosen = choose_tile(case, target) if tile is None else tables.tile_of(Tile, NAME, tile)
    return prepared(NAME, multiply, chosen, case, example, target)


IMPLEMENTATION = Implementation(NAME, "own", True, supports, prepare, tiles=tiles, footprint=footprint)
