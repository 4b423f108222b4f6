"""C = f(A @ B + bias), by whichever way is the fastest for the sizes: a split-K kernel, or the library.

a [M, K] and b [K, N], bf16, fp16 or fp32, any strides. The choice is a pure function of sizes, dtype and device:
what was tuned for the device and the case, else a rule. It is made once for each of them and remembered.

`matmul` is an opaque operator with a fake, so that it compiles and exports with dynamic sizes, and can be captured
into a CUDA graph: it waits for nothing, and allocates its output and the kernel's scratch.
"""

# Triton ships no types:
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import importlib
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmgate.kernels._triton import host, zeros
from gemmgate.kernels._triton.epilogue import ACTIVATIONS
from gemmgate.kernels.dense_splitk import DISCIPLINES, cublas, discipline, eager, last_arrival, two_launches
from gemmgate.kernels.dense_splitk.cases import case_of, sizes
from gemmgate.kernels.dense_splitk.discipline import Discipline, Problem, Scratch
from gemmgate.kernels.dense_splitk.inputs import TORCH_DTYPE
from gemmgate.kernels.dense_splitk.tiling import Tile
from gemmgate.kernels.dense_splitk.tuned_tile import entry_of
from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Refusal, Target
from gemmgate.suite.cases import Tile as TileData

_PACKAGE = "gemmgate.kernels.dense_splitk"
_WORDS = {dtype: word for word, dtype in TORCH_DTYPE.items()}
_LIBRARY = "cublas"
_ALIASES = {"triton_split_k": "two_launches"}
"""What was tuned under a name and is computed alike under another, which takes an epilogue."""
_SMALL_C = 48 * 48
"""Up to here one program adds a tile's parts in no time."""
_LEAST_K_PER_SIDE = 8
"""K over the longer side of C: below, splitting K has too little to share out."""
_LEAST_K = 512
"""Two launches take 3.3 us at least on an H200; the library takes 4.0 us for a K of 512, and less for a shorter one."""
_MOST_C = 32 * 256
"""Larger ones are left to the library: untuned, ours lose at 256 x 256 on an H200, and gain little at 128 x 128."""
_PROVEN_FP32 = {"ieee": (48 * 48, 32768), "tf32": (32 * 32, 16384)}
"""Elements of C, and K: from there on the library was as fast or faster in some of what was measured on an H200."""


@dataclass(frozen=True)
class Choice:
    """The name of a discipline with its tile, or `cublas` without one; `why` is `tuned` or `rule`."""

    name: str
    tile: Tile | None
    why: str


def load(name: str) -> Discipline:
    """The discipline of that name."""
    found: Discipline = importlib.import_module(f"{_PACKAGE}.{name}").DISCIPLINE
    return found


def choose(case: Case, target: Target, *, deterministic: bool = False) -> Choice:
    """What computes a case: the tuned table's entry under the case's name, else the rule's.

    With `deterministic`, an entry that adds in the order of arrival does not count. Pure.
    """
    entry = entry_of(case, target)
    name = _ALIASES.get(entry["implementation"], entry["implementation"]) if entry is not None else ""
    if name == _LIBRARY:
        return Choice(_LIBRARY, None, "tuned")
    if entry is not None and name in (*DISCIPLINES, "dot_product"):
        found = load(name)
        if found.supports(case, target) is None and (found.deterministic or not deterministic):
            return Choice(name, _tile_of(found, entry["tile"], case, target), "tuned")
    name = rule(case, target)
    return Choice(name, None if name == _LIBRARY else load(name).choose_tile(case, target), "rule")


def _tile_of(found: Discipline, data: TileData | None, case: Case, target: Target) -> Tile:
    """The entry's tile, without fields of a kernel that stands in another's place; without one the discipline's own."""
    default = found.choose_tile(case, target)
    if not data:
        return default
    known = {name: value for name, value in data.items() if hasattr(default, name)}
    return found.tile_type.from_data(known)


def rule(case: Case, target: Target) -> str:
    """The name of what computes a case that nobody has tuned. Bits repeat with all of them."""
    m, n, k = sizes(case)
    if last_arrival.DISCIPLINE.supports(case, target) is not None or m * n * k == 0:
        return _LIBRARY
    if min(m, n) < 16:
        return "dot_product" if max(m, n) <= 64 else "last_arrival"
    if k < max(_LEAST_K, _LEAST_K_PER_SIDE * max(m, n)) or m * n > _MOST_C:
        return _LIBRARY
    proven_c, proven_k = _PROVEN_FP32.get(case.precision, (_MOST_C, k))
    if m * n > proven_c and k >= proven_k:
        return _LIBRARY
    if target.compute_capability >= two_launches.OVERLAP_CAPABILITY:
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
    in `ACTIVATIONS`. Sums and all that follows are fp32, but where the library computes. fp32 operands are
    multiplied as `torch.get_float32_matmul_precision()` says: `highest` is IEEE, all else TF32. Under
    `torch.use_deterministic_algorithms` bits repeat. There is no gradient. Raises ValueError for what is no product.
    """
    out: Tensor = _matmul_op(a, b, bias, activation or "", out_dtype)
    return out


def _check(a: Tensor, b: Tensor, bias: Tensor | None, activation: str) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul multiplies [M, K] by [K, N], got {tuple(a.shape)} and {tuple(b.shape)}.")
    if a.dtype not in _WORDS or a.dtype != b.dtype or a.device != b.device:
        raise ValueError(
            f"matmul takes two tensors of one device, both bf16, fp16 or fp32; "
            f"got {a.dtype} on {a.device} and {b.dtype} on {b.device}."
        )
    if activation and activation not in ACTIVATIONS:
        raise ValueError(f"Activation '{activation}' is none of {', '.join(sorted(ACTIVATIONS))}.")
    if bias is not None and (bias.dim() > 2 or bias.device != a.device):
        raise ValueError(f"bias broadcasts to [M, N] on {a.device}, got {tuple(bias.shape)} on {bias.device}.")


@torch.library.custom_op("gemmgate::dense_splitk_matmul", mutates_args=())
def _matmul_op(a: Tensor, b: Tensor, bias: Tensor | None, activation: str, out_dtype: torch.dtype | None) -> Tensor:
    _check(a, b, bias, activation)
    (m, k), n = a.shape, b.shape[1]
    precision = "acc32"
    if a.dtype == torch.float32:
        precision = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    choice = _choice(m, n, k, _WORDS[a.dtype], precision, a.device, torch.are_deterministic_algorithms_enabled())
    if choice.tile is None and activation in ("", *eager.FUNCTIONS):
        return eager.matmul(a, b, bias, activation, out_dtype)
    c = torch.empty(m, n, dtype=out_dtype or a.dtype, device=a.device)
    name, tile = choice.name, choice.tile
    if tile is None:  # the library does not know this activation
        name, tile = (
            "last_arrival",
            last_arrival.DISCIPLINE.choose_tile(case_of(m, n, k, _WORDS[a.dtype], precision), host.target_of(a.device)),
        )
    problem = Problem(a, b, c, precision, activation=activation or None, addend=bias)
    with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
        load(name).launch(problem, tile, _scratch(load(name), problem, tile))
    return c


@_matmul_op.register_fake
def _(a: Tensor, b: Tensor, bias: Tensor | None, activation: str, out_dtype: torch.dtype | None) -> Tensor:
    _check(a, b, bias, activation)
    return a.new_empty(a.shape[0], b.shape[1], dtype=out_dtype or a.dtype)


@lru_cache(maxsize=4096)
def _choice(m: int, n: int, k: int, word: str, precision: str, device: torch.device, deterministic: bool) -> Choice:
    return choose(case_of(m, n, k, word, precision), host.target_of(device), deterministic=deterministic)


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
    tile = tile or choice.tile.as_data()
    return discipline.prepare(load(choice.name), discipline.plain_problem, case, example, target, tile)


IMPLEMENTATION = Implementation("dispatch", "own", False, supports, prepare)
