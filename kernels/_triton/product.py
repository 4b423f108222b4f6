"""The loop of a matrix product over a range of K, and the order of its tiles: shared by kernels of several families.

A program owns one tile [BM, BN] of C and walks K tiles `first` to `last` of A [M, K] and B [K, N]. Operands are
read through pointers, of any strides, or through tensor descriptors (the hardware's bulk copies). A K tile may
be cut into SLICES: the product is then a batch over slices, so that each warp multiplies a slice of its own
instead of the same operands as its neighbours, and the slices are added once, behind the loop.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import triton
import triton.language as tl

from gemmgate.kernels._triton.device import round_to_tf32, to_operand


class Operands(NamedTuple):
    """Of A [M, K] and B [K, N], which a kernel takes beside this: a launch finds descriptors only at its top level.

    `k_scale` [K], where it is not None, multiplies A along K before the operand is rounded to the dtype of the
    product. `units` is `units_of` the operands; tiles_m x tiles_n tiles cover C, counted by the host, so that a kernel
    need not divide by what is 1.
    """

    k_scale: Any
    m: int
    n: int
    k: int
    stride_am: int
    stride_ak: int
    stride_bk: int
    stride_bn: int
    units: Any
    tiles_m: int
    tiles_n: int


class Units(NamedTuple):
    """Of the sizes and strides of the same name, a constant that divides each."""

    m: Any
    n: Any
    k: Any
    stride_am: Any
    stride_ak: Any
    stride_bk: Any
    stride_bn: Any


_SEEN_BY_TRITON = 16
"""It finds out by itself that this divides an argument, but nothing of what 2, 4 and 8 divide."""


@lru_cache(maxsize=1024)
def units_of(m: int, n: int, k: int, strides: tuple[int, int, int, int], item_bytes: int) -> Units | None:
    """What lets a kernel load up to 16 bytes at once where 16 does not divide a size or a stride; None if nothing.

    `strides` are A's and B's. Rows of 24 elements of 2 bytes begin and end where a load of 16 bytes may; without
    being told so, a compiler has to load them one by one.
    """
    named = dict(zip(Units._fields, (m, n, k, *strides), strict=True))
    units = dict.fromkeys(Units._fields, 1)
    for along, apart, size in (
        ("stride_ak", "stride_am", "k"),
        ("stride_am", "stride_ak", "m"),
        ("stride_bn", "stride_bk", "n"),
        ("stride_bk", "stride_bn", "k"),
    ):
        if named[along] == 1 and min(named[apart], named[size]) > 1:
            unit = math.gcd(named[apart], named[size], 16 // item_bytes)
            units |= {name: unit for name in (apart, size) if named[name] % _SEEN_BY_TRITON}
    if set(units.values()) == {1}:
        return None
    return Units(**{name: tl.constexpr(unit) for name, unit in units.items()})


@triton.jit
def told(x, UNIT: tl.constexpr):
    """x, of which the compiler now knows that UNIT divides it."""
    return x // UNIT * UNIT


@triton.jit
def multiply_add(x, y, total, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr):
    """total + x @ y, accumulated in fp32. `PRECISION` is ieee, tf32 or 3xtf32 for fp32 operands, else acc32."""
    if INTERPRETED:  # the interpreter multiplies bf16 wrongly
        x = x.to(tl.float32)
        y = y.to(tl.float32)
    if PRECISION == "tf32":
        total = tl.dot(round_to_tf32(x), round_to_tf32(y), total, input_precision="tf32")
    elif PRECISION == "3xtf32":
        total = tl.dot(x, y, total, input_precision="tf32x3")
    else:
        total = tl.dot(x, y, total, input_precision="ieee")
    return total


@triton.jit
def multiply_range(
    a, b, operands, row, column, first, last,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SLICES: tl.constexpr,
    LOADS: tl.constexpr, WHOLE_K: tl.constexpr, PRECISION: tl.constexpr, DTYPE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """sum over K tiles `first` to `last` of A[row:row+BM, k] @ B[k, column:column+BN], [BM, BN] in fp32.

    `LOADS` is `pointers`, or `tma_` and for each operand `n`, or `t` where its descriptor is that of its transpose.
    `WHOLE_K` promises that BK divides K. Operands of another dtype than DTYPE are converted to it.
    """
    if LOADS == "pointers":
        m, n, k = operands.m, operands.n, operands.k
        stride_am, stride_ak = operands.stride_am, operands.stride_ak
        stride_bk, stride_bn = operands.stride_bk, operands.stride_bn
        if operands.units is not None:
            m, n, k = told(m, operands.units.m), told(n, operands.units.n), told(k, operands.units.k)
            stride_am, stride_ak = told(stride_am, operands.units.stride_am), told(stride_ak, operands.units.stride_ak)
            stride_bk, stride_bn = told(stride_bk, operands.units.stride_bk), told(stride_bn, operands.units.stride_bn)
        BKS: tl.constexpr = BK // SLICES
        if SLICES == 1:
            ks = tl.arange(0, BK)  # [BK]
            rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
            a_ks, b_ks = ks[None, :], ks[:, None]
            total = tl.zeros((BM, BN), dtype=tl.float32)
        else:
            ks = tl.arange(0, SLICES)[:, None] * BKS + tl.arange(0, BKS)[None, :]  # [SLICES, BKS]
            rows, columns = row + tl.arange(0, BM)[None, :, None], column + tl.arange(0, BN)[None, None, :]
            a_ks, b_ks = ks[:, None, :], ks[:, :, None]
            total = tl.zeros((SLICES, BM, BN), dtype=tl.float32)
        step = tl.full((), BK, tl.int64)
        begin = step * first
        a_from = a + rows.to(tl.int64) * stride_am + (begin + a_ks) * stride_ak
        b_from = b + (begin + b_ks) * stride_bk + columns.to(tl.int64) * stride_bn
        for k_tile in range(first, last):
            if WHOLE_K:
                x = tl.load(a_from, mask=rows < m, other=0.0)
                y = tl.load(b_from, mask=columns < n, other=0.0)
            else:
                left = k - k_tile * BK
                x = tl.load(a_from, mask=(rows < m) & (a_ks < left), other=0.0)
                y = tl.load(b_from, mask=(b_ks < left) & (columns < n), other=0.0)
            if operands.k_scale is not None:
                at = step * k_tile + a_ks
                scale = tl.load(operands.k_scale + at, mask=at < k, other=0.0)
                x = x.to(tl.float32) * scale.to(tl.float32)
            x, y = to_operand(x, DTYPE, INTERPRETED), to_operand(y, DTYPE, INTERPRETED)
            total = multiply_add(x, y, total, PRECISION, INTERPRETED)
            a_from += step * stride_ak
            b_from += step * stride_bk
        if SLICES > 1:
            total = tl.sum(total, axis=0)
    else:
        A_IS_T: tl.constexpr = LOADS == "tma_tn" or LOADS == "tma_tt"
        B_IS_T: tl.constexpr = LOADS == "tma_nt" or LOADS == "tma_tt"
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k_tile in range(first, last):
            at = k_tile * BK
            x = a.load([at, row]).T if A_IS_T else a.load([row, at])
            y = b.load([column, at]).T if B_IS_T else b.load([at, column])
            x, y = to_operand(x, DTYPE, INTERPRETED), to_operand(y, DTYPE, INTERPRETED)
            total = multiply_add(x, y, total, PRECISION, INTERPRETED)
    return total


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """(tile row, tile column) of the program `tile`: down GROUP rows before the next column.

    Programs that run at the same time so share rows of A and columns of B in the cache.
    """
    # Each division by what is not constant takes some fifty instructions before the first load.
    if tiles_n == 1:
        tile_m, tile_n = tile, tile * 0
    elif tiles_m <= GROUP:
        tile_m, tile_n = tile % tiles_m, tile // tiles_m
    else:
        in_group = GROUP * tiles_n
        first_row = tile // in_group * GROUP
        rows = tl.minimum(tiles_m - first_row, GROUP)
        tile_m, tile_n = first_row + tile % in_group % rows, tile % in_group // rows
    return tile_m, tile_n


@triton.jit
def k_range(split, k_tiles, SPLITS: tl.constexpr):
    """K tiles (first, last) of a split: as equal as whole tiles allow, the longer ones first."""
    each = k_tiles // SPLITS
    longer = k_tiles % SPLITS
    first = split * each + tl.minimum(split, longer)
    return first, first + each + (split < longer).to(tl.int32)
