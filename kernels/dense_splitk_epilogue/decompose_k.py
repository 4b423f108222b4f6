"""C = f(sum over s of A[:, part s] @ B[part s, :]), decompose-K: with the epilogue behind it, and with it inside.

a [M, K] and b [K, N] row-major, K cut into S equal parts, multiplied as a batch with fp32 partial sums.
`decompose_k_then_epilogue` sums, casts, and applies torch's operators one by one. `decompose_k_fused` leaves sum, cast
and epilogue to Inductor, which makes one kernel of them: two launches in all. S is chosen on screening samples.
Refuses what decompose-K refuses: a K without a legal split.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from gemmgate.kernels._inductor.compiled import compile_once
from gemmgate.kernels.dense_splitk import decompose_k as dense
from gemmgate.kernels.dense_splitk.cases import legal_splits
from gemmgate.kernels.dense_splitk.cublas import gpu_only
from gemmgate.kernels.dense_splitk_epilogue.cases import product_of
from gemmgate.kernels.dense_splitk_epilogue.steps import after, before
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Kind, Prepared, Refusal, Target, Tile

_MOST_COMPILED = 6
"""Splits that are compiled: each takes seconds."""


def supports(compiled: bool, case: Case, target: Target) -> Refusal | None:
    if compiled and not target.is_gpu:
        return gpu_only("What Inductor makes of a batch and a sum")
    return dense.supports_split(None, product_of(case), target)


def summed(case: Case, inputs: Inputs, splits: int) -> Tensor:
    """C, written so that a compiler can put everything behind the batch into one kernel."""
    a, b = before(case, inputs)
    (m, k), n = a.shape, b.shape[1]
    parts_a = a.reshape(m, splits, k // splits).permute(1, 0, 2)  # [S, M, K/S]
    parts_b = b.reshape(splits, k // splits, n)  # [S, K/S, N]
    partials = torch.bmm(parts_a, parts_b) if a.dtype == torch.float32 else _fp32_bmm(parts_a, parts_b)
    total = partials.sum(0)
    return after(case, total if case.epilogue == "cast" else total.to(a.dtype), inputs)


def _fp32_bmm(parts_a: Tensor, parts_b: Tensor) -> Tensor:
    return torch.bmm(parts_a, parts_b, out_dtype=torch.float32)


def prepare(compiled: bool, case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    """Without a tile: the legal split nearest to the default of `dense_splitk`."""
    splits = int(tile["splits"]) if tile is not None else _nearest(case)
    if splits not in legal_splits(product_of(case)):
        raise ValueError(f"Case '{case.name}' cannot be cut into {splits} parts.")
    names = tuple(example)

    def function(*tensors: Tensor) -> Tensor:
        return summed(case, dict(zip(names, tensors, strict=True)), splits)

    call_of = compile_once(function, tuple(example[name] for name in names), {}) if compiled else function

    def bind(inputs: Inputs) -> Call:
        tensors = tuple(inputs[name] for name in names)
        return lambda: call_of(*tensors)

    how = "torch.bmm, one compiled kernel" if compiled else "torch.bmm, then operators of torch"
    return Prepared(bind, tile={"splits": splits}, algorithm=how)


def _nearest(case: Case) -> int:
    return min(legal_splits(product_of(case)), key=lambda splits: abs(splits - 32))


def tiles(compiled: bool, case: Case, target: Target) -> Sequence[Tile]:
    """Every legal split; of those to compile, the nearest to the default."""
    legal = sorted(legal_splits(product_of(case)), key=lambda splits: abs(splits - 32))
    return [{"splits": splits} for splits in sorted(legal[:_MOST_COMPILED] if compiled else legal)]


def _implementation(name: str, kind: Kind, compiled: bool) -> Implementation:
    return Implementation(
        name,
        kind,
        True,
        partial(supports, compiled),
        partial(prepare, compiled),
        tiles=partial(tiles, compiled),
        screened=True,
    )


IMPLEMENTATIONS = {
    "decompose_k_then_epilogue": _implementation("decompose_k_then_epilogue", "own", False),
    "decompose_k_fused": _implementation("decompose_k_fused", "compiler", True),
}
