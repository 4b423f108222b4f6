"""logits = x @ w^T + bias by whatever is fastest for T, N and K on this device: the family's public function.

The choice is pure: the tuned range of T that the call lies in, else the tuned case or that of the next larger T that
was tuned, where it is at most twice as large, else a rule. A case that was itself tuned comes before a range whose
measured T do not reach it. Within a range the tile is the range's own, where it names one. `dispatch` is
that choice as an implementation; its `algorithm` says which tier ran and why.
Beside it, to show what the choice is worth: `hand_ranges`, with ranges as one would write them down (up to 1, 128, 512
and above), each with the tile of its upper end, as a tuner takes it that looks there only; and `single_choice`, one
kernel with the tile for 16 tokens whatever T is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from gemmgate.kernels._triton import host
from gemmgate.kernels.router import decompose_k, dot_product, library, operands, split_k, tables
from gemmgate.kernels.router.binding import run
from gemmgate.kernels.router.cases import case_of, has_bias, output_dtype, sizes
from gemmgate.kernels.router.inputs import WORD
from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

TIERS: dict[str, Implementation] = {
    dot_product.NAME: dot_product.IMPLEMENTATION,
    split_k.NAME: split_k.IMPLEMENTATION,
    **decompose_k.IMPLEMENTATIONS,
    **library.IMPLEMENTATIONS,
}
"""What may be chosen, by name."""
OWN: dict[str, Any] = {dot_product.NAME: dot_product, split_k.NAME: split_k}
"""Modules of the kernels with tiles, by name."""
_MOST_DOT_PRODUCTS = {2: math.inf, 4: 26e6, 8: 15e6, 16: 11e6}
"""By the most tokens: up to how many products, T N K, dot products are faster than tensor cores in two launches. Beyond
the last nobody measured them.
"""
_MOST_DOT_FP32_TOKENS, _MOST_DOT_FP32_PRODUCTS = 128, 152e6
"""Of fp32: 128 tokens of longcat-lite and 32 of longcat-flash are 151e6 products, and 1.10 and 1.27 times as fast by
the rule's tile as by the library, by tuning 20261130T212533Z-b8101d3e1e-ef3e; 64 of longcat-flash, twice as many, are
slower by that tile.
"""
_MOST_SPLIT_LOGITS, _MOST_SPLIT_LOGITS_PER_K, _MOST_SPLIT_TOKENS = 2**16, 24, 4096
"""Logits, T N, and logits for each of K: beyond either a library's tiles are full, or K too short to be shared out.
Tokens: nobody measured more. Of 407 cases with these bounds none is slower than the library by more than 2 %.
"""
_SINGLE_TOKENS = 16


@dataclass(frozen=True)
class Choice:
    """Which implementation with which tile, and on what grounds."""

    implementation: str
    tile: Tile | None
    why: str


def choose(case: Case, target: Target) -> Choice:
    """The fastest tier known for a case on a target."""
    tuned = []
    piece, found = tables.range_of(case, target), tables.entry_of(case, target)
    if piece is not None:
        tuned.append((piece, f"tuned range up to {piece['up_to']}"))
    if found is not None:
        knows_better = found[0] in tables.own_names(case) and piece is not None and not tables.reaches(piece, case)
        tuned.insert(0 if knows_better else len(tuned), (found[1], f"tuned for {found[0]}"))
    choices = (_tuned_choice(entry, case, target, why) for entry, why in tuned)
    return next(filter(None, choices), None) or Choice(_by_rule(case, target), None, "rule")


def tile_of(choice: Choice, case: Case, target: Target) -> Any:
    """The tile of a choice among `OWN`: its own, or what its kernel takes for the case."""
    kernel = OWN[choice.implementation]
    if choice.tile is None:
        return kernel.choose_tile(case, target)
    return tables.tile_of(kernel.Tile, choice.implementation, choice.tile)


def _tuned_choice(entry: Mapping[str, Any], case: Case, target: Target, why: str) -> Choice | None:
    """What a table says, if it can run here. Logits are never rounded on their way, however fast that is."""
    name = entry["implementation"]
    if name == "linear_float":
        return Choice(best_library(case, target), None, why)
    return Choice(name, entry.get("tile"), why) if _is_possible(name, case, target) else None


def _by_rule(case: Case, target: Target) -> str:
    t, n, k = sizes(case)
    if _is_few(case) and _is_possible(dot_product.NAME, case, target):
        return dot_product.NAME
    are_few = t <= _MOST_SPLIT_TOKENS and t * n <= min(_MOST_SPLIT_LOGITS, _MOST_SPLIT_LOGITS_PER_K * k)
    if are_few and _is_possible(split_k.NAME, case, target):
        return split_k.NAME
    return best_library(case, target)


def _is_few(case: Case) -> bool:
    """Whether dot products are faster than what else there is, by what an H200 took: dot products read all of x for
    every few experts, tensor cores need a second launch.
    """
    t, n, k = sizes(case)
    if case.dtype == "fp32":
        return t <= _MOST_DOT_FP32_TOKENS and t * n * k <= _MOST_DOT_FP32_PRODUCTS
    most = next((products for tokens, products in _MOST_DOT_PRODUCTS.items() if t <= tokens), 0)
    return t * n * k <= most


def best_library(case: Case, target: Target) -> str:
    """The library's call that gives the logits without a rounding in between."""
    if output_dtype(case) == case.dtype:
        return "linear"
    return "mm_out_dtype" if target.is_gpu else "upcast_fp32"


def _is_possible(name: str, case: Case, target: Target) -> bool:
    return name in TIERS and TIERS[name].supports(case, target) is None


def hand_choice(case: Case, target: Target) -> Choice:
    """By ranges that nobody measured, with the tile of a range's upper end."""
    t, _, _ = sizes(case)
    ends = ((1, dot_product.NAME), (128, split_k.NAME), (512, "decompose_k_best"))
    end, name = next(((end, name) for end, name in ends if t <= end), (0, ""))
    if not _is_possible(name, case, target):
        return Choice(best_library(case, target), None, "no kernel for this range" if name else "above 512")
    top = _with_tokens(case, end)
    chosen: Tile | None = None
    if name == dot_product.NAME:
        chosen = asdict(dot_product.choose_tile(top, target))
    elif name == split_k.NAME:
        chosen = asdict(split_k.choose_tile(top, target))
    return Choice(name, chosen, f"up to {end}")


def single_choice(case: Case, target: Target) -> Choice:
    """One kernel and one tile for every T; the library where that kernel does not take the dtypes."""
    if not _is_possible(split_k.NAME, case, target):
        return Choice(best_library(case, target), None, f"{split_k.NAME} does not take it")
    tile = split_k.choose_tile(_with_tokens(case, _SINGLE_TOKENS), target)
    return Choice(split_k.NAME, asdict(tile), f"the tile for {_SINGLE_TOKENS} tokens")


def _with_tokens(case: Case, t: int) -> Case:
    _, n, k = sizes(case)
    return case_of(t, n, k, case.dtype, output_dtype(case), bias=has_bias(case))


def logits(x: Tensor, w: Tensor, bias: Tensor | None = None, out_dtype: torch.dtype | None = None) -> Tensor:
    """x [..., K] times w [N, K] transposed, plus bias [N], as [..., N] in `out_dtype`, by default that of x.

    x and w are both bf16, fp16 or fp32, of any strides; `out_dtype` is theirs or torch.float32. Sums are fp32, rounded
    once. No tokens give an empty tensor. One opaque operator, `gemmgate::router_logits`: it compiles and exports with
    any number of tokens, and chooses as it does when called eagerly. Without a derivative: a backward pass raises
    RuntimeError, a tangent NotImplementedError. Raises ValueError, with the values, for what is no such product.
    """
    host.refuse_tangents("logits", x, w, bias)
    if x.dim() in (0, 2):  # a number is no x, which the operator says
        out: Tensor = _logits_op(x, w, bias, out_dtype or x.dtype)
        return out
    host.refuse_without_strides(x=x, w=w)
    operands.check_sizes(x, w)  # as they were given
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # -1 would be ambiguous where K is 0
    return _logits_op(flat, w, bias, out_dtype or x.dtype).view(*x.shape[:-1], w.shape[0])


@torch.library.custom_op("gemmgate::router_logits", mutates_args=())
def _logits_op(x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    operands.check(x, w, bias, out_dtype)
    if x.shape[0] == 0 or w.shape[0] == 0:
        return operands.new_logits(x, w, out_dtype)
    contiguous = operands.rows_are_contiguous(x, w, bias)
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext(), host.without_autocast(x.device):
        sizes_of = x.shape[0], w.shape[0], x.shape[1]
        run = _chosen(*sizes_of, x.dtype, out_dtype, bias is not None, contiguous, x.device)
        return run(x, w, bias, out_dtype)


@_logits_op.register_fake
def _(x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    operands.check(x, w, bias, out_dtype)
    return x.new_empty(x.shape[0], w.shape[0], dtype=out_dtype)


Run = Callable[[Tensor, Tensor, Tensor | None, torch.dtype], Tensor]


@lru_cache(maxsize=16384)
def _chosen(
    t: int,
    n: int,
    k: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype,
    has_bias: bool,
    contiguous: bool,
    device: torch.device,
) -> Run:
    """What runs for operands of these sizes, dtypes and device."""
    case = case_of(t, n, k, WORD[dtype], WORD[out_dtype], bias=has_bias)
    target = host.target_of(device)
    if not contiguous or k == 0:
        return _run_library(best_library(case, target))
    choice = choose(case, target)
    if choice.implementation in OWN:
        return partial(run, OWN[choice.implementation].multiply, tile=tile_of(choice, case, target))
    if choice.implementation in decompose_k.IMPLEMENTATIONS:
        named = decompose_k.NAMED_SPLITS[choice.implementation]
        return partial(decompose_k.decompose_k, splits=decompose_k.choose_splits(named, case, choice.tile))
    return _run_library(choice.implementation)


def _run_library(name: str) -> Run:
    product = library.PRODUCTS[name]

    def call(x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        return product(x, w, bias)

    return call


def supports(case: Case, target: Target) -> Refusal | None:
    return None


def prepare(
    choice_of: Callable[[Case, Target], Choice], case: Case, example: Inputs, target: Target, tile: Tile | None = None
) -> Prepared:
    """What `choice_of` names. A `tile` is one that an earlier choice of it reported."""
    choice = choice_of(case, target)
    prepared = TIERS[choice.implementation].prepare(case, example, target, tile or choice.tile)
    return replace(prepared, algorithm=f"{choice.implementation} ({choice.why})")


IMPLEMENTATIONS = {
    name: Implementation(name, "own", True, supports, partial(prepare, choice_of))
    for name, choice_of in (("dispatch", choose), ("hand_ranges", hand_choice), ("single_choice", single_choice))
}
