"""logits = sum over s of x[:, part s] @ w[:, part s]^T (+ bias), by a batched product with fp32 partial sums.

x [T, K], w [N, K], K cut into S equal parts: x is seen as [S, T, K/S] and w as [S, K/S, N] without a copy, `torch.bmm`
writes fp32 partials [S, T, N]; a sum over S, the bias and a cast follow, each a launch.
Refuses a case without a legal split, and 16-bit operands where `bmm` cannot return fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk.decompose_k import _bmm_returns_fp32
from gemmgate.kernels.router.cases import MAX_SPLITS, MIN_K_PER_SPLIT, SPLITS, legal_splits, output_dtype
from gemmgate.kernels.router.operands import torch_dtype
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

_DEFAULT_SPLITS = 8
"""Where nobody searched: the legal split nearest to this."""


def decompose_k(x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype, splits: int) -> Tensor:
    """The logits with K in `splits` equal parts; one part is the plain product."""
    parts_x = x.unflatten(1, (splits, x.shape[1] // splits)).transpose(0, 1)  # [S, T, K/S]
    parts_w = w.unflatten(1, (splits, w.shape[1] // splits)).permute(1, 2, 0)  # [S, K/S, N]
    if x.dtype == torch.float32:
        total = torch.bmm(parts_x, parts_w).sum(0)
    else:
        total = torch.bmm(parts_x, parts_w, out_dtype=torch.float32).sum(0)
    return (total if bias is None else total + bias).to(out_dtype)


def supports_split(splits: int | None, case: Case, target: Target) -> Refusal | None:
    """`splits` None asks whether there is any legal split."""
    legal = legal_splits(case)
    if not legal or (splits is not None and splits not in legal):
        return "no_legal_split", (
            f"K = {case.dims['k']} does not divide into {splits or f'2 to {MAX_SPLITS}'} equal parts of at least "
            f"{MIN_K_PER_SPLIT} with partial sums of bounded size. Legal: {', '.join(map(str, legal)) or 'none'}."
        )
    device = "cuda" if target.is_gpu else "cpu"
    # A GPU that is not here cannot be asked, and every one that torch drives has it.
    is_here = device == "cpu" or torch.cuda.is_available()
    if case.dtype != "fp32" and is_here and not _bmm_returns_fp32(device):
        return "no_fp32_partials", f"torch.bmm of this torch cannot return fp32 for {case.dtype} operands on {device}."
    return None


def choose_splits(splits: int | None, case: Case, tile: Tile | None) -> int:
    """The tile's parts, else `splits`, else the legal number nearest to the default. Raises ValueError for others."""
    legal = legal_splits(case)
    asked = int(tile["splits"]) if tile is not None else splits or min(legal, key=lambda s: abs(s - _DEFAULT_SPLITS))
    if asked not in legal or (splits is not None and asked != splits):
        raise ValueError(f"Case '{case.name}' cannot be cut into {asked} parts here. Legal: {legal}.")
    return asked


def prepare_split(
    splits: int | None, case: Case, example: Inputs, target: Target, tile: Tile | None = None
) -> Prepared:
    """`splits` None takes the tile's, or without one the legal split nearest to the default."""
    asked = choose_splits(splits, case, tile)
    out_dtype = torch_dtype(output_dtype(case))
    return Prepared(partial(_bind, asked, out_dtype), tile={"splits": asked}, algorithm="torch.bmm, torch.sum")


def _bind(splits: int, out_dtype: torch.dtype, inputs: Inputs) -> Call:
    x, w, bias = inputs["x"], inputs["w"], inputs.get("bias")
    return lambda: decompose_k(x, w, bias, out_dtype, splits)


def tiles(case: Case, target: Target) -> Sequence[Tile]:
    """Every legal split."""
    return [{"splits": splits} for splits in legal_splits(case)]


NAMED_SPLITS: dict[str, int | None] = {
    "decompose_k_best": None,
    **{f"decompose_k_{splits}": splits for splits in SPLITS},
}
"""The parts that each name stands for; None where they are chosen."""

IMPLEMENTATIONS = {
    "decompose_k_best": Implementation(
        "decompose_k_best",
        "own",
        True,
        partial(supports_split, None),
        partial(prepare_split, None),
        tiles=tiles,
        screened=True,
    ),
    **{
        name: Implementation(name, "own", True, partial(supports_split, splits), partial(prepare_split, splits))
        for name, splits in NAMED_SPLITS.items()
        if splits is not None
    },
}
