"""C = f(A @ B + bias), by whichever way is the fastest for the sizes: a split-K kernel, or the library.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides. The choice is a pure function of sizes, dtype and device:
what was tuned for the device and the case, else a rule. It is made once for each of them and remembered. A product
with nothing behind it may be `triton_split_k`'s, which takes no epilogue: the very kernel and tile that were timed.

`matmul` is an opaque operator with a fake, so that it compiles and exports with dynamic sizes, and can be captured
into a CUDA graph: it waits for nothing, and allocates its output and the kernel's scratch.
"""

# Triton ships no types:
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import importlib
import math
import threading
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmgate.kernels._triton import host, zeros
from gemmgate.kernels._triton.epilogue import function_of, is_own
from gemmgate.kernels.dense_splitk import (
    DISCIPLINES,
    cublas,
    discipline,
    eager,
    last_arrival,
    triton_split_k,
)
from gemmgate.kernels.dense_splitk.cases import case_of, sizes
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch
from gemmgate.kernels.dense_splitk.inputs import TORCH_DTYPE
from gemmgate.kernels.dense_splitk.tiling import OVERLAP_CAPABILITY, Tile
from gemmgate.kernels.dense_splitk.tuned_tile import checked, entry_of
from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Refusal, Target
from gemmgate.suite.cases import Tile as TileData

_PACKAGE = "gemmgate.kernels.dense_splitk"
_WORDS = {dtype: word for word, dtype in TORCH_DTYPE.items()}
_BIAS_DTYPES = {
    *_WORDS, torch.float64, torch.bool,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
}  # fmt: skip
"""What kernels and torch both add to fp32."""
_LIBRARY = "cublas"
_WITH_EPILOGUE = "two_launches"
"""Takes the place of `triton_split_k`, which it is but for its loop, where an epilogue follows the sum."""
_IN_TURN = threading.Lock()
"""Threads share a stream and its sums: what one adds to in a first launch has to be read in its own second one."""
_SMALL_C = 48 * 48
"""Up to here one program adds a tile's parts in no time."""
_LEAST_K_PER_SIDE = 8
"""K over the longer side of C: below, splitting K has too little to share out."""
_LEAST_K = 512
"""Two launches take 3.3 us at least on an H200; the library takes 4.0 us for a K of 512, and less for a shorter one."""
_MOST_C, _MOST_LONG_C, _LONG_K_PER_SIDE = 32 * 256, 128 * 128, 256
"""Larger ones are left to the library: untuned, ours lose at 256 x 256 on an H200. At 128 x 128 they win in 16 bits,
where launches overlap and K over the longer side is as long."""
_FEW_ROWS, _MOST_OF_FEW, _LEAST_OF_FEW = 16, 8 * 4096, 4096
"""Fewer rows of A, as in decoding; most elements of C and least K, where K is no shorter than a row of C. In bf16 on an
H200 these M x N x K won by 1.05 to 1.39: 1, 4 and 8 x 4096 x 4096, 8 x 4096 x 16384, 8 x 64 x 65536, 8 x 256 x 16384,
8 x 1024 x 8192, 15 x 2048 x 7168; 1 x 16384 x 7168 lost. Of few columns 8 won by 1.21 to 1.48 and one lost, at 0.85.
"""
_PROVEN_FP32 = {"ieee": (64 * 64, 48 * 48, 32768), "tf32": (64 * 64, 0, 16384)}
"""Elements of C; the same where rows of A do not begin at 16 bytes; and K, from which on a larger C is left to the
library: it was as fast or faster in some of what was measured on an H200."""
_FASTER_PLAIN, _FASTER_EPILOGUE = 32, 64
"""Up to the one longer side of C, and in 16 bits beyond the other, `triton_split_k` is ahead of `two_launches` by 3 to
8 %; between them only where its K tiles do not divide K."""


@dataclass(frozen=True)
class Choice:
    """What computes with its tile, or `cublas` without one; `why` is `tuned` or `rule`."""

    name: str
    tile: Tile | triton_split_k.Tile | None
    why: str

    @property
    def tile_data(self) -> TileData | None:
        """The tile as it is recorded."""
        return None if self.tile is None else asdict(self.tile)


def load(name: str) -> Discipline:
    """The discipline of that name."""
    found: Discipline = importlib.import_module(f"{_PACKAGE}.{name}").DISCIPLINE
    return found


def choose(case: Case, target: Target, *, plain: bool = True, deterministic: bool = False) -> Choice:
    """What computes a case: the tuned table's entry under the case's name, else the rule's.

    Without `plain` an epilogue follows the sum, or C has another dtype: `triton_split_k`, which takes neither, then
    hands over to the tile tuned for `two_launches`, else to its own tile there. With `deterministic`, an entry that
    adds in the order of arrival does not count. Pure.
    """
    entry = entry_of(case, target)
    name = entry["implementation"] if entry is not None else ""
    if name == triton_split_k.NAME and not plain:
        entry, name = entry_of(case, target, _WITH_EPILOGUE) or entry, _WITH_EPILOGUE
    if name == _LIBRARY:
        return Choice(_LIBRARY, None, "tuned")
    if entry is not None and name == triton_split_k.NAME and triton_split_k.supports(case, target) is None:
        data = entry["tile"]
        tile = triton_split_k.tuned_tile(data, case, target) if data else triton_split_k.choose_tile(case, target)
        return Choice(name, tile, "tuned")
    if entry is not None and name in (*DISCIPLINES, "dot_product"):
        found = load(name)
        if found.supports(case, target) is None and (found.deterministic or not deterministic):
            return Choice(name, _tile_of(found, entry["tile"], case, target), "tuned")
    return _by_rule(case, target, plain)


def _by_rule(case: Case, target: Target, plain: bool) -> Choice:
    name = rule(case, target)
    if name == _LIBRARY:
        return Choice(name, None, "rule")
    tile = load(name).choose_tile(case, target)
    m, n, k = sizes(case)
    most = math.inf if case.dtype == "fp32" else _FASTER_EPILOGUE
    if plain and name == _WITH_EPILOGUE and (not _FASTER_PLAIN < max(m, n) <= most or k % tile.block_k):
        return Choice(triton_split_k.NAME, triton_split_k.choose_tile(case, target), "rule")
    return Choice(name, tile, "rule")


def _tile_of(found: Discipline, data: TileData | None, case: Case, target: Target) -> Tile:
    """The entry's tile, without fields of a kernel that stands in another's place; without one the discipline's own."""
    default = found.choose_tile(case, target)
    if not data:
        return default
    known = {name: value for name, value in data.items() if hasattr(default, name)}
    return checked(
        case,
        target,
        lambda: found.tile_type.from_data(known),
        lambda tile: found.footprint(case, tile).shared_bytes,
    )


def rule(case: Case, target: Target) -> str:
    """The name of what computes a case that nobody has tuned. Bits repeat with all of them."""
    m, n, k = sizes(case)
    if last_arrival.DISCIPLINE.supports(case, target) is not None or m * n * k == 0:
        return _LIBRARY
    overlaps = target.compute_capability >= OVERLAP_CAPABILITY
    has_few_rows = m < _FEW_ROWS <= n and m * n <= _MOST_OF_FEW and k >= max(_LEAST_OF_FEW, n)
    if overlaps and case.dtype != "fp32" and has_few_rows:
        return "two_launches"
    is_long = overlaps and case.dtype != "fp32" and k >= _LONG_K_PER_SIDE * max(m, n)
    if k < max(_LEAST_K, _LEAST_K_PER_SIDE * max(m, n)) or m * n > (_MOST_LONG_C if is_long else _MOST_C):
        return _LIBRARY
    aligned_c, other_c, proven_k = _PROVEN_FP32.get(case.precision, (_MOST_LONG_C, _MOST_LONG_C, k))
    if m * n > (aligned_c if k % 4 == 0 else other_c) and k >= proven_k:
        return _LIBRARY
    if overlaps:
        return "two_launches"
    if m * n > _SMALL_C and load("grid_barrier").supports(case, target) is None:
        return "grid_barrier"
    return "last_arrival"


def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """activation(a [M, K] @ b [K, N] + bias), cast to `out_dtype` (by default theirs), row-major.

    `bias` broadcasts to [M, N]; `activation` is `relu`, `gelu`, `silu`, or a name that somebody gave a jit function
    in `ACTIVATIONS`. Sums and all that follows are fp32, but for an activation of a bf16 product that the library
    computes, which is rounded before. fp32 operands are multiplied as `torch.get_float32_matmul_precision()` says, or
    torch's newer switch: `highest` is IEEE, all else TF32. Under `torch.use_deterministic_algorithms` bits repeat.
    There is no derivative: a backward pass raises RuntimeError, a tangent NotImplementedError. Raises ValueError for
    what is no product.
    """
    host.refuse_tangents("matmul", a, b, bias)
    out: Tensor = _matmul_op(a, b, bias, activation or "", out_dtype)
    return out


def _check(a: Tensor, b: Tensor, bias: Tensor | None, activation: str, out_dtype: torch.dtype | None) -> None:
    """But for the sizes of `bias`, which may be symbols here: a comparison would fix them."""
    host.refuse_without_strides(a=a, b=b, bias=bias)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul multiplies [M, K] by [K, N], got {tuple(a.shape)} and {tuple(b.shape)}.")
    if a.dtype not in _WORDS or a.dtype != b.dtype or a.device != b.device:
        raise ValueError(
            f"matmul takes two tensors of one device, both bf16, fp16 or fp32; "
            f"got {a.dtype} on {a.device} and {b.dtype} on {b.device}."
        )
    if activation:
        function_of(activation)
    if out_dtype is not None and out_dtype not in _WORDS:
        raise ValueError(f"out_dtype is torch.bfloat16, torch.float16 or torch.float32, got {out_dtype}.")
    if bias is not None and bias.dtype not in _BIAS_DTYPES:
        raise ValueError(f"bias is bf16, fp16, fp32, fp64, bool or an integer, got {bias.dtype}: cast it first.")
    if bias is not None and (bias.dim() > 2 or bias.device != a.device):
        raise ValueError(f"bias broadcasts to [M, N] on {a.device}, got {tuple(bias.shape)} on {bias.device}.")


@torch.library.custom_op("gemmgate::dense_splitk_matmul", mutates_args=())
def _matmul_op(a: Tensor, b: Tensor, bias: Tensor | None, activation: str, out_dtype: torch.dtype | None) -> Tensor:
    _check(a, b, bias, activation, out_dtype)
    (m, k), n = a.shape, b.shape[1]
    if bias is not None and any(size not in (1, whole) for size, whole in zip(bias.shape[::-1], (n, m), strict=False)):
        raise ValueError(f"bias broadcasts to [M, N], which are {(m, n)}, got {tuple(bias.shape)}.")
    precision = "acc32"
    if a.dtype == torch.float32:
        precision = host.precision_of_fp32()
    plain = bias is None and not activation and out_dtype in (None, a.dtype)
    repeatable = torch.are_deterministic_algorithms_enabled()
    choice = _choice(m, n, k, _WORDS[a.dtype], precision, a.device, plain, repeatable)
    if choice.tile is None and (not activation or is_own(activation)):
        with host.without_autocast(a.device):
            return eager.matmul(a, b, bias, activation, out_dtype)
    if isinstance(choice.tile, triton_split_k.Tile):
        return triton_split_k.multiply(a, b, choice.tile, precision)
    c = torch.empty(m, n, dtype=out_dtype or a.dtype, device=a.device)
    name, tile = choice.name, choice.tile
    if tile is None:  # the library does not know this activation
        case, target = case_of(m, n, k, _WORDS[a.dtype], precision), host.target_of(a.device)
        if (refusal := last_arrival.DISCIPLINE.supports(case, target)) is not None:
            raise ValueError(f"Activation '{activation}' is a kernel's, and none can run here. {refusal[1]}")
        name, tile = "last_arrival", last_arrival.DISCIPLINE.choose_tile(case, target)
    problem = Problem(a, b, c, precision, activation=activation or None, addend=bias)
    found = load(name)
    in_turn = _IN_TURN if found.sums(m, n, tile) else nullcontext()
    with torch.cuda.device(a.device) if a.is_cuda else nullcontext(), in_turn:
        try:
            found.launch(problem, tile, _scratch(found, problem, tile))
        except BaseException:
            zeros.forget(a.device)
            raise
    return c


@_matmul_op.register_fake
def _(a: Tensor, b: Tensor, bias: Tensor | None, activation: str, out_dtype: torch.dtype | None) -> Tensor:
    _check(a, b, bias, activation, out_dtype)
    return a.new_empty(a.shape[0], b.shape[1], dtype=out_dtype or a.dtype)


@lru_cache(maxsize=4096)
def _choice(
    m: int, n: int, k: int, word: str, precision: str, device: torch.device, plain: bool, deterministic: bool
) -> Choice:
    case = case_of(m, n, k, word, precision)
    return choose(case, host.target_of(device), plain=plain, deterministic=deterministic)


def _scratch(found: Discipline, problem: Problem, tile: Tile) -> Scratch:
    """As `Discipline.scratch`, with counters that are zero already."""
    m, n, _ = problem.sizes
    device = problem.a.device
    counters, sums = -(-found.counters(m, n, tile) // 4) * 4, found.sums(m, n, tile)  # sums lie 16-byte aligned
    both = zeros.zeros(counters + sums, torch.int32, device) if counters + sums else None
    partials = found.partials(m, n, tile)
    return Scratch(
        torch.empty(partials, dtype=torch.float32, device=device) if partials else None,
        both[:counters] if both is not None and counters else None,
        both[counters:].view(torch.float32) if both is not None and sums else None,
    )


def supports(case: Case, target: Target) -> Refusal | None:
    return last_arrival.DISCIPLINE.supports(case, target)


def prepare(case: Case, example: Inputs, target: Target, tile: TileData | None = None) -> Prepared:
    """What `choose` names. A `tile` is one that an earlier choice of it reported."""
    choice = choose(case, target)
    if choice.tile is None:
        return cublas.prepare(case, example, target, tile)
    tile = tile or choice.tile_data
    if choice.name == triton_split_k.NAME:
        return triton_split_k.prepare(case, example, target, tile)
    return discipline.prepare(load(choice.name), discipline.plain_problem, case, example, target, tile)


IMPLEMENTATION = Implementation("dispatch", "own", False, supports, prepare)
