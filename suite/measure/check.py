"""Right or wrong, against float64, before anything is timed.

The bound has two parts. Rounding the result to the output's dtype costs what it costs: that error is
computed exactly, by rounding the reference itself. What is left is accumulation, for which the family
states an allowance from dtype and K. With `grid` the distance to the nearest number of the output
dtype, a result rounded from `ref + d` has error at most `grid(ref) + 2 |d|`, since `grid` is
1-Lipschitz: so the bound needs no other slack, and sums kept in the output dtype, which have at
least sqrt(2) times the rounding error, do not pass.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
import torch.nn.functional

from gemmgate.suite.cases import Inputs
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import tensors_in

TILE = 16
_ADDED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
"""Numbers that can be added to many tensors in one launch."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Classes whose elements are there when the call returns: another may compute them when somebody looks."""
_SMALL = 1 << 16
"""Elements of a tensor of which copying it costs less than looking through it alone."""
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp8e4m3": torch.float8_e4m3fn,
    "int8": torch.int8,
    "int32": torch.int32,
}


@dataclass(frozen=True)
class Errors:
    """Normwise relative errors of one output and what they were allowed to be; `reason` is empty where it passed."""

    error: float
    worst_tile: float
    bound: float
    reason: str = ""
    detail: str = ""


def poison(tensors: Sequence[torch.Tensor]) -> None:
    """Fills with NaN (the largest integer where there is none): what is not written again will show.

    Outputs of a ring are hundreds of small tensors: those of a dtype are written together, for NaN is what any number
    becomes to which NaN is added.
    """
    together: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = defaultdict(list)
    with torch.inference_mode():  # what was made in it can be written nowhere else; all others can be written in it too
        for tensor in tensors:
            if tensor.dtype in _ADDED and tensor.is_contiguous():  # not one whose elements share memory
                together[tensor.dtype, tensor.device].append(tensor)
            else:
                tensor.fill_(math.nan if tensor.dtype.is_floating_point else torch.iinfo(tensor.dtype).max)
        for alike in together.values():
            torch._foreach_add_(alike, math.nan)


def all_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether no element is NaN or infinite; small tensors of a dtype are looked through together."""
    looked_at, together = [], defaultdict(list)
    for tensor in tensors:
        if tensor.is_floating_point():
            if tensor.numel() <= _SMALL:
                together[tensor.dtype, tensor.device].append(tensor.reshape(-1))
            else:
                looked_at.append(tensor)
    looked_at += [torch.cat(alike) for alike in together.values()]
    found = [torch.isfinite(tensor).all() for tensor in looked_at]
    return not found or bool(torch.stack(found).all())


def compare(
    outputs: Sequence[torch.Tensor], references: Sequence[torch.Tensor], dtype: str, allowance: float
) -> Errors:
    """The worst output of a call against its float64 reference.

    `allowance` is the accumulation error allowed, ||d|| / ||reference||. `dtype` is one word for all outputs, or one
    for each, joined by commas; `int32` has to be exact.
    """
    if len(outputs) != len(references):
        return _wrong("output_count", f"{len(outputs)} outputs where the reference has {len(references)}")
    worst: Errors | None = None
    words = dtype.split(",") if "," in dtype else [dtype] * len(outputs)
    for output, reference, word in zip(outputs, references, words, strict=True):
        found = _compare_one(output, reference, DTYPES[word], allowance)
        if found.reason:
            return found
        if worst is None or found.error > worst.error:
            worst = found
    return worst or Errors(0.0, 0.0, allowance)


@contextmanager
def unchanged(inputs: Inputs) -> Iterator[None]:
    """Raises `Refused` where the inputs were changed, and puts them back: other implementations share them.

    Values count, and so do shape, strides and `requires_grad`.
    """
    tensors = tensors_in(inputs)
    before = [tensor.detach().clone() for tensor in tensors]
    forms = [_form(tensor) for tensor in tensors]
    try:
        yield
    finally:
        wanting = [tensor for tensor in tensors if tensor.requires_grad]
        for tensor in wanting:
            if tensor.is_leaf:
                tensor.requires_grad_(False)
                tensor.grad = None
            else:
                with suppress(RuntimeError):  # a view cannot be cut off from its graph: its values are put back alone
                    tensor.detach_()
        changed = False
        for tensor, form, values in zip(tensors, forms, before, strict=True):
            if _form(tensor) != form:
                tensor.set_(values)
                changed = True
            elif not _same_bits(values, tensor):
                with torch.no_grad():
                    tensor.copy_(values)
                changed = True
    if changed:
        raise Refused("invalid", "inputs_changed", "the call wrote to its inputs")
    if wanting:
        raise Refused("invalid", "inputs_require_grad", "the call set requires_grad on its inputs")


def _compare_one(output: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype, allowance: float) -> Errors:
    if type(output) not in _PLAIN:
        detail = f"{type(output).__name__} may compute when it is looked at, which no time of a call shows"
        return _wrong("output_type", detail)
    if output.shape != reference.shape:
        return _wrong("output_shape", f"shape {tuple(output.shape)} where the reference has {tuple(reference.shape)}")
    if output.dtype != dtype:
        return _wrong("output_dtype", f"dtype {output.dtype} where the case says {dtype}")
    if output.numel() == 0:
        return Errors(0.0, 0.0, allowance)
    exact = reference.detach().double()
    result = output.detach().double()
    bad = int((~torch.isfinite(result) & torch.isfinite(exact)).sum())
    if bad:
        return _wrong("not_finite", f"{bad} of {result.numel()} elements are NaN or Inf where the reference is finite")
    difference = torch.where(result == exact, 0.0, result - exact)
    wrong = int((difference != 0).sum())
    if wrong and dtype == torch.int32:
        return _wrong("wrong_numbers", f"{wrong} of {result.numel()} whole numbers are not those of the reference")
    rounding = exact.to(dtype).double() - exact
    total = exact.square().sum()
    if total == 0:
        if wrong:
            return _wrong("error_above_bound", f"{wrong} elements are not zero where the reference is")
        return Errors(0.0, 0.0, 0.0)
    error = float((difference.square().sum() / total).sqrt())
    bound = float((rounding.square().sum() / total).sqrt()) + 2 * allowance
    tile_error, tile_bound = _worst_tile(difference, rounding, exact, allowance)
    if not error <= bound:
        return Errors(
            error,
            tile_error,
            bound,
            "error_above_bound",
            f"error {error:.3g} is above the bound {bound:.3g} for this dtype and K",
        )
    if not tile_error <= tile_bound:
        return Errors(
            error,
            tile_error,
            bound,
            "tile_error_above_bound",
            f"one {TILE} x {TILE} tile has error {tile_error:.3g}, above its bound {tile_bound:.3g}",
        )
    return Errors(error, tile_error, bound)


def _worst_tile(
    difference: torch.Tensor, rounding: torch.Tensor, exact: torch.Tensor, allowance: float
) -> tuple[float, float]:
    """Error and bound of the tile that comes nearest to its bound, or passes it furthest.

    A tile's norm may be small by chance, so the output's mean energy is its floor; the allowance grows
    by 4 / sqrt(elements), since the accumulation error of few elements scatters more.
    """
    counts = _tile_sums(torch.ones_like(exact))
    mean_energy = exact.square().mean()
    scale = torch.maximum(_tile_sums(exact.square()), mean_energy * counts)
    error = (_tile_sums(difference.square()) / scale).sqrt()
    bound = (_tile_sums(rounding.square()) / scale).sqrt() + 2 * allowance * (1 + 4 / counts.sqrt())
    worst = int((error / bound).argmax())
    return float(error.flatten()[worst]), float(bound.flatten()[worst])


def _tile_sums(values: torch.Tensor) -> torch.Tensor:
    """Sums over TILE x TILE tiles of the last two dimensions: [..., M, N] -> [batch * tiles]."""
    matrix = values.reshape(-1, *values.shape[-2:]) if values.dim() >= 2 else values.reshape(1, 1, -1)
    rows, columns = matrix.shape[-2:]
    padded = torch.nn.functional.pad(matrix, (0, -columns % TILE, 0, -rows % TILE))
    tiles = padded.unflatten(-1, (-1, TILE)).unflatten(-3, (-1, TILE))
    return tiles.sum(dim=(-1, -3)).flatten()


def _wrong(reason: str, detail: str) -> Errors:
    return Errors(math.inf, math.inf, math.nan, reason, detail)


def _form(tensor: torch.Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    return tensor.shape, tensor.stride()


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal, where NaN equals NaN."""
    if not left.is_floating_point():
        return torch.equal(left, right)
    return bool(((left == right) | (left.isnan() & right.isnan())).all())
