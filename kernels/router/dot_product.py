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
than w. Refuses more than 64 tokens, 128 in fp32, and a CPU outside Triton's interpreter.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
# mypy: disable-error-code="assignment,var-annotated,unreachable"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gemmgate.kernels._triton import host
from gemmgate.kernels.router import tables
from gemmgate.kernels.router.binding import prepared, split_constants
from gemmgate.kernels.router.cases import sizes
from gemmgate.kernels.router.device import begin, finish
from gemmgate.kernels.router.dot_product_tiles import NAME, Tile, choose_tile, footprint, is_ahead, tiles
from gemmgate.kernels.router.operands import Scratch
from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Refusal, Target
from gemmgate.suite.cases import Tile as TileData

__all__ = ["IMPLEMENTATION", "MOST_TOKENS", "NAME", "Tile", "choose_tile", "footprint", "multiply", "tiles"]

MOST_TOKENS = {"bf16": 64, "fp16": 64, "fp32": 128}


@triton.jit
def _dot(
    x_ptr, w_ptr, bias_ptr, out_ptr, partials_ptr, counters_ptr,
    T, part, units_xt,
    N: tl.constexpr, K: tl.constexpr, STRIDE_WN: tl.constexpr, PACKED: tl.constexpr, UNIT: tl.constexpr,
    WHOLE: tl.constexpr, ONE_BLOCK: tl.constexpr,
    BT: tl.constexpr, BN: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr, UNROLL: tl.constexpr,
    X_AHEAD: tl.constexpr, HELD: tl.constexpr, PAIRS: tl.constexpr,
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
            w = tl.load(w_rows + ks, mask=expert_is_there & (ks < last), other=0)
            weights = weights + (w,)  # noqa: RUF005 - Triton knows no unpacking
        if X_AHEAD:
            for piece in tl.static_range(UNROLL):
                ks = start + piece * LANES * EACH + ahead_of
                x = tl.load(x_rows + ks, mask=token_is_there & (ks < last), other=0)
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
    in_pairs = tile.held == 1 and _come_in_pairs(x, w)
    is_held = in_pairs or (tile.held == 1 and x.dtype == torch.float32)
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
        X_AHEAD=is_ahead(tile.block_t, tile.block_n, tile.unroll),
        HELD=is_held, PAIRS=in_pairs, **split_constants(tile),
        HAS_BIAS=bias is not None, INTERPRETED=host.is_interpreted(_dot), num_warps=tile.num_warps,
        **({"maxnreg": tile.registers} if tile.registers else {}),
    )  # fmt: skip


def _come_in_pairs(x: Tensor, w: Tensor) -> bool:
    """Whether every row holds whole pairs of bf16, at addresses of an int32."""
    lengths = (x.shape[1], x.stride(0), w.stride(0), x.data_ptr() // 2, w.data_ptr() // 2)
    return x.dtype == torch.bfloat16 and all(length % 2 == 0 for length in lengths)


def supports(case: Case, target: Target) -> Refusal | None:
    (t, _, _), most = sizes(case), MOST_TOKENS[case.dtype]
    if t > most:
        return "too_many_tokens", f"{t} tokens: beyond {most}, a dot product for each reads x too often."
    return host.needs_gpu(_dot, target)


def prepare(case: Case, example: Inputs, target: Target, tile: TileData | None = None) -> Prepared:
    chosen = choose_tile(case, target) if tile is None else tables.tile_of(Tile, NAME, tile)
    return prepared(NAME, multiply, chosen, case, example, target)


IMPLEMENTATION = Implementation(NAME, "own", True, supports, prepare, tiles=tiles, footprint=footprint)
