"""C[M, N] = sum over s of A[M, K_s] @ B[K_s, N], K cut into S ranges: one launch multiplies, a second adds.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides; C has their dtype. Accumulates in fp32; fp32
operands are multiplied as IEEE or, for `tf32`, rounded to the nearest TF32 first.

A C of few tiles leaves most of a GPU idle, so S programs share each tile: program (tile, s) walks range s of
K and stores its fp32 sum to partials [S, M, N]. The second launch adds the S partials of each element in a
fixed order, so equal inputs give equal bits, and casts once. Ranges are whole K tiles; where there are more
ranges than K tiles, the last ones store zeros. From sm_90 on the second launch is a programmatic dependent of
the first: its programs are resident, their indices computed, when the last partial sum is written.

Wins where C has fewer tiles than the GPU has multiprocessors and K is long enough to pay for a second launch;
loses to a plain product where C alone fills the GPU. Refuses a CPU outside Triton's interpreter, and bf16 and
TF32 before sm_80.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import partial
from itertools import product
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gemmgate.kernels import _tuned
from gemmgate.kernels._triton import host
from gemmgate.kernels._triton.device import round_to_tf32, store_cast
from gemmgate.kernels._triton.product import grouped_tile, told, units_of
from gemmgate.kernels.dense_splitk import untuned
from gemmgate.kernels.dense_splitk.cases import ITEM_BYTES, case_of, sizes
from gemmgate.kernels.dense_splitk.tiling import GROUP, OVERLAP_CAPABILITY, WARPS, ceil_div
from gemmgate.kernels.dense_splitk.tuned_tile import checked
from gemmgate.suite.cases import Call, Case, Footprint, Implementation, Inputs, Prepared, Refusal, Target
from gemmgate.suite.cases import Tile as TileData

_DTYPE_WORD = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
_MAX_SPLITS = 65535
"""The second axis of a grid."""
_SHARED_BYTES = 48 * 1024
"""What every GPU has: used where the target does not say."""
_REDUCED_AT_ONCE = 4096
"""Partials that one program of the second launch holds in registers."""
NAME = "triton_split_k"
_WAVES = (0.5, 1, 2, 4)
"""Programs for each multiprocessor that a search tries."""
_STAGE_BYTES = (4 * 1024, 64 * 1024)
"""Least and most of A and B in one stage: below, loads are too few to hide memory; above, one stage fills an SM."""
_LEAST_STAGED_BYTES = 16 * 1024
_ACCUMULATORS = 128
"""fp32 sums that a thread can hold beside its operands."""


@dataclass(frozen=True)
class Tile:
    """Block sizes of the product, ranges of K, and outputs a program of the second launch adds up.

    `overlap` starts the second launch while the first runs; it then waits for it on the device. Needs sm_90.
    """

    block_m: int
    block_n: int
    block_k: int
    splits: int
    num_warps: int
    num_stages: int
    reduce_block: int
    overlap: bool = False

    def __post_init__(self) -> None:
        blocks = (self.block_m, self.block_n, self.block_k, self.reduce_block)
        if any(block < 16 or block & (block - 1) for block in blocks):
            raise ValueError(f"Blocks must be powers of two from 16 up, got {self}.")
        if not 1 <= self.splits <= _MAX_SPLITS:
            raise ValueError(f"splits must be 1 to {_MAX_SPLITS}, got {self.splits}.")
        if self.num_warps not in WARPS or self.num_stages < 1:
            raise ValueError(f"num_warps must be a power of two up to 32 and num_stages positive, got {self}.")


_FIELDS = tuple(field.name for field in fields(Tile))


def choose_tile(case: Case, target: Target) -> Tile:
    """The tuned one where there is one, else by `rule`. Raises ValueError where a tuned one cannot run there."""
    entry = _tuned.lookup("gemmgate.kernels.dense_splitk", f"{case.name}/{NAME}", target)
    return rule(case, target) if entry is None or not entry["tile"] else tuned_tile(entry["tile"], case, target)


def tuned_tile(data: TileData, case: Case, target: Target) -> Tile:
    """A tile as a table has it. Raises ValueError where it is damaged or cannot run there."""
    return checked(case, target, lambda: tile_of(data), lambda tile: _staged_bytes(tile, case))


def rule(case: Case, target: Target) -> Tile:
    """What `untuned` chooses for two launches, and outputs for the second one's programs."""
    m, n, _ = sizes(case)
    chosen = untuned.choose(case, target)
    return Tile(
        block_m=chosen.block_m,
        block_n=chosen.block_n,
        block_k=chosen.block_k,
        splits=chosen.splits,
        num_warps=chosen.num_warps,
        num_stages=chosen.num_stages,
        reduce_block=_reduce_block(m, n, target.sm_count or 8),
        overlap=_can_overlap(target),
    )


def tiles(case: Case, target: Target) -> Sequence[TileData]:
    """What a search may choose from: some hundred tiles, all of which fit."""
    return [asdict(tile) for tile in _space(case, target)]


def _space(case: Case, target: Target) -> Iterator[Tile]:
    """Blocks, stages and warps that keep loads in flight; ranges for half a wave of programs to four."""
    m, n, k = sizes(case)
    multiprocessors = target.sm_count or 8
    reduce_block = _reduce_block(m, n, multiprocessors)
    for block_m, block_n, block_k in product(_blocks(m), _blocks(n), (64, 128, 256, 512)):
        count, k_tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n), max(1, triton.cdiv(k, block_k))
        stage_bytes = (block_m + block_n) * block_k * ITEM_BYTES[case.dtype]
        wasteful = count > 8 * multiprocessors and (block_m, block_n) != (_blocks(m)[-1], _blocks(n)[-1])
        if m * n == 0 or wasteful or not _STAGE_BYTES[0] <= stage_bytes <= _STAGE_BYTES[1]:
            continue
        per_split = {triton.cdiv(k_tiles, max(1, min(int(w * multiprocessors / count), k_tiles))) for w in _WAVES}
        for each, warps, stages in product(sorted(per_split), (2, 4, 8), (2, 3, 4, 5)):
            fits = min(_LEAST_STAGED_BYTES, each * stage_bytes) <= stages * stage_bytes <= _most_staged_bytes(target)
            if not fits or stages > max(2, each + 1) or block_m * block_n > 32 * warps * _ACCUMULATORS:
                continue
            if (warps == 2 and block_m * block_n >= 64 * 64) or (warps == 8 and stage_bytes < 8 * 1024):
                continue
            for block in sorted({max(16, reduce_block // 2), reduce_block}):
                splits = triton.cdiv(k_tiles, each)
                yield Tile(block_m, block_n, block_k, splits, warps, stages, block, _can_overlap(target))


def _blocks(size: int) -> tuple[int, ...]:
    """Blocks of a dimension up to the first that covers it."""
    return tuple(block for block in (16, 32, 64, 128) if block < 2 * size or block == 16)


def _reduce_block(m: int, n: int, multiprocessors: int) -> int:
    return int(min(1024, max(32, triton.next_power_of_2(m * n // (4 * multiprocessors) or 1))))


def _can_overlap(target: Target) -> bool:
    return target.compute_capability >= OVERLAP_CAPABILITY


def tile_of(data: TileData) -> Tile:
    """The tile of plain values; those of earlier tables have no `overlap`. Raises ValueError for what is no tile."""
    try:
        whole = {name: int(size) for name, size in data.items() if name != "overlap"}
        return Tile(**whole, overlap=bool(data.get("overlap", False)))
    except (TypeError, OverflowError) as error:
        raise ValueError(f"No tile of {NAME}: {dict(data)}: {error}.") from None


def _staged_bytes(tile: Tile, case: Case) -> int:
    return tile.num_stages * (tile.block_m + tile.block_n) * tile.block_k * ITEM_BYTES[case.dtype]


def _most_staged_bytes(target: Target) -> int:
    return target.shared_bytes or _SHARED_BYTES


def footprint(case: Case, target: Target, tile: TileData) -> Footprint:
    """That of the first launch. A is read once for each column of tiles, B for each row; partials go out and back."""
    m, n, k = sizes(case)
    chosen = tile_of(tile)
    tiles_m, tiles_n = triton.cdiv(m, chosen.block_m), triton.cdiv(n, chosen.block_n)
    operand_bytes = (m * k * tiles_n + k * n * tiles_m + m * n) * ITEM_BYTES[case.dtype]
    return Footprint(
        programs=tiles_m * tiles_n * chosen.splits,
        warps=chosen.num_warps,
        shared_bytes=_staged_bytes(chosen, case),
        bytes_moved=operand_bytes + 2 * chosen.splits * m * n * 4,
        launches=2,
    )


@triton.jit
def _multiply(
    a_ptr, b_ptr, partials_ptr,
    M, N, K, tiles_m, tiles_n, tiles_per_split,
    stride_am, stride_ak, stride_bk, stride_bn, units,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, TF32: tl.constexpr, OVERLAP: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """partials[s, m, n] = sum over range s of a[m, k] b[k, n], for one tile of (m, n)."""
    if OVERLAP:
        gdc_launch_dependents()
    if units is not None:
        M, N, K = told(M, units.m), told(N, units.n), told(K, units.k)
        stride_am, stride_ak = told(stride_am, units.stride_am), told(stride_ak, units.stride_ak)
        stride_bk, stride_bn = told(stride_bk, units.stride_bk), told(stride_bn, units.stride_bn)
    tile_m, tile_n = grouped_tile(tl.program_id(0), tiles_m, tiles_n, GROUP)
    split = tl.program_id(1)
    rows = tile_m.to(tl.int64) * BM + tl.arange(0, BM)  # [BM]
    columns = tile_n.to(tl.int64) * BN + tl.arange(0, BN)  # [BN]
    a_rows = a_ptr + rows[:, None] * stride_am  # [BM, 1]
    b_columns = b_ptr + columns[None, :] * stride_bn  # [1, BN]
    within = tl.arange(0, BK).to(tl.int64)
    first = split * tiles_per_split
    last = tl.minimum(first + tiles_per_split, tl.cdiv(K, BK))
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k_tile in range(first, last):
        ks = k_tile * BK + within  # [BK]
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_columns + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & (columns[None, :] < N), other=0.0)
        if INTERPRETED:  # the interpreter multiplies bf16 wrongly
            a = a.to(tl.float32)
            b = b.to(tl.float32)
        if TF32:
            total = tl.dot(round_to_tf32(a), round_to_tf32(b), total, input_precision="tf32")
        else:
            total = tl.dot(a, b, total, input_precision="ieee")
    stored = partials_ptr + (split.to(tl.int64) * M + rows[:, None]) * N + columns[None, :]  # [BM, BN]
    tl.store(stored, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def _add(
    partials_ptr, out_ptr, size, splits,
    BLOCK: tl.constexpr, AT_ONCE: tl.constexpr, OVERLAP: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """out[i] = sum over s of partials[s, i], `AT_ONCE` ranges at a time, in the order of s."""
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    if OVERLAP:
        gdc_wait()
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, splits, AT_ONCE):
        ranges = first + tl.arange(0, AT_ONCE).to(tl.int64)  # [AT_ONCE]
        some = tl.load(
            partials_ptr + ranges[:, None] * size + elements[None, :],
            mask=(ranges[:, None] < splits) & (elements[None, :] < size),
            other=0.0,
        )  # [AT_ONCE, BLOCK]
        total += tl.sum(some, axis=0)
    tl.store(out_ptr + elements, store_cast(total, out_ptr.dtype.element_ty, INTERPRETED), mask=elements < size)


def _launch(a: Tensor, b: Tensor, partials: Tensor, out: Tensor, tile: Tile, precision: str) -> tuple[Any, ...]:
    """Both launches; an empty C takes none."""
    (m, k), n = a.shape, b.shape[1]
    if m * n == 0:
        return ()
    interpreted = host.is_interpreted(_multiply)
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    tiles_m, tiles_n = ceil_div(m, tile.block_m), ceil_div(n, tile.block_n)
    multiplied = _multiply[(tiles_m * tiles_n, tile.splits)](
        a, b, partials,
        m, n, k, tiles_m, tiles_n, ceil_div(ceil_div(k, tile.block_k), tile.splits),
        *strides, units_of(m, n, k, strides, a.element_size()),
        BM=tile.block_m, BN=tile.block_n, BK=tile.block_k,
        GROUP=GROUP, TF32=precision == "tf32", OVERLAP=tile.overlap, INTERPRETED=interpreted,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    at_once = min(1 << (tile.splits - 1).bit_length(), max(1, _REDUCED_AT_ONCE // tile.reduce_block))
    added = _add[(ceil_div(m * n, tile.reduce_block),)](
        partials, out, m * n, tile.splits,
        BLOCK=tile.reduce_block, AT_ONCE=at_once, OVERLAP=tile.overlap, INTERPRETED=interpreted, num_warps=4,
        **({"launch_pdl": True} if tile.overlap else {}),
    )  # fmt: skip
    return multiplied, added


def _outputs(a: Tensor, b: Tensor, splits: int) -> tuple[Tensor, Tensor]:
    """Partials [S, M, N] in fp32 and C [M, N]."""
    m, n = a.shape[0], b.shape[1]
    partials = torch.empty(splits, m, n, dtype=torch.float32, device=a.device)
    return partials, torch.empty(m, n, dtype=a.dtype, device=a.device)


def split_k(
    a: Tensor, b: Tensor, *, splits: int | None = None, tile: Tile | None = None, precision: str | None = None
) -> Tensor:
    """a [M, K] @ b [K, N], of any strides, in a new row-major tensor of their dtype.

    `tile` defaults to `choose_tile`'s, `splits` to the tile's. `precision` is `ieee` (the default) or `tf32`
    for fp32, `acc32` for 16-bit operands. Compiles and exports with dynamic sizes: the choice is made inside.
    """
    default = "ieee" if a.dtype == torch.float32 else "acc32"
    host.refuse_tangents("split_k", a, b)
    out: Tensor = _split_k_op(a, b, splits or 0, list(astuple(tile)) if tile else [], precision or default)
    return out


def _check(a: Tensor, b: Tensor, precision: str) -> None:
    host.refuse_without_strides(a=a, b=b)
    word = _DTYPE_WORD.get(a.dtype)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"split_k multiplies [M, K] by [K, N], got {tuple(a.shape)} and {tuple(b.shape)}.")
    if word is None or a.dtype != b.dtype or a.device != b.device:
        raise ValueError(
            f"split_k takes two tensors of one device, both bf16, fp16 or fp32; "
            f"got {a.dtype} on {a.device} and {b.dtype} on {b.device}."
        )
    if precision not in (known := ("ieee", "tf32") if word == "fp32" else ("acc32",)):
        raise ValueError(f"split_k with {word} has precision {' or '.join(known)}, got '{precision}'.")


def multiply(a: Tensor, b: Tensor, tile: Tile, precision: str) -> Tensor:
    """As `split_k`, with everything chosen and checked."""
    partials, out = _outputs(a, b, tile.splits)
    with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
        _launch(a, b, partials, out, tile, precision)
    return out


@torch.library.custom_op("gemmgate::dense_splitk_triton", mutates_args=())
def _split_k_op(a: Tensor, b: Tensor, splits: int, tile: Sequence[int], precision: str) -> Tensor:
    _check(a, b, precision)
    (m, k), n = a.shape, b.shape[1]
    case = case_of(m, n, k, _DTYPE_WORD[a.dtype], precision)
    target = host.target_of(a.device)
    if (refusal := supports(case, target)) is not None:
        raise ValueError(f"split_k: {refusal[1]}")
    chosen = tile_of(dict(zip(_FIELDS, tile, strict=True))) if tile else choose_tile(case, target)
    return multiply(a, b, replace(chosen, splits=splits or chosen.splits), precision)


@_split_k_op.register_fake
def _(a: Tensor, b: Tensor, splits: int, tile: Sequence[int], precision: str) -> Tensor:
    _check(a, b, precision)
    return a.new_empty(a.shape[0], b.shape[1])


def supports(case: Case, target: Target) -> Refusal | None:
    if 0 < target.compute_capability < 80 and (case.dtype == "bf16" or case.precision == "tf32"):
        return "needs_sm_80", f"{case.dtype} {case.precision} products need sm_80, this is {target.arch}."
    return host.needs_gpu(_multiply, target)


def prepare(case: Case, example: Inputs, target: Target, tile: TileData | None = None) -> Prepared:
    chosen = choose_tile(case, target) if tile is None else tile_of(tile)
    a, b = example["a"], example["b"]
    compiled = _launch(a, b, *_outputs(a, b, chosen.splits), chosen, case.precision) if target.is_gpu else ()
    workspaces: list[Tensor] = []
    return Prepared(
        partial(_bind, chosen, case.precision, workspaces),
        tile=asdict(chosen),
        algorithm="partial products, ordered sum",
        workspaces=workspaces,
        device_code=host.device_code(*compiled),
    )


def _bind(tile: Tile, precision: str, workspaces: list[Tensor], inputs: Inputs) -> Call:
    a, b = inputs["a"], inputs["b"]
    partials, out = _outputs(a, b, tile.splits)
    workspaces.append(partials)

    def call() -> Tensor:
        _launch(a, b, partials, out, tile, precision)
        return out

    return call


IMPLEMENTATION = Implementation(NAME, "own", True, supports, prepare, tiles=tiles, footprint=footprint)
