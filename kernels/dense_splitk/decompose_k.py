"""C = sum over s of A[:, part s] @ B[part s, :], by a batched product with fp32 partial sums.

a [M, K] and b [K, N] row-major, K cut into S equal parts: A is seen as [S, M, K/S] and B as
[S, K/S, N] without a copy, `torch.bmm` writes fp32 partials [S, M, N], a sum over S and a cast follow.
The library sees S independent products and so fills the GPU; the partials' traffic is the price.
Wins where C has too few tiles to occupy the GPU; loses where it has enough.
Refuses a case without a legal split, and 16-bit operands where `bmm` cannot return fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk.cases import MAX_SPLITS, MIN_K_PER_SPLIT, SPLITS, legal_splits
from gemmgate.kernels.dense_splitk.cublas import cpu_refusal
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

_DEFAULT_SPLITS = 32
"""Where nobody searched: the legal split nearest to this."""


def supports_split(splits: int | None, case: Case, target: Target) -> Refusal | None:
    """`splits` None asks whether there is any legal split."""
    legal = legal_splits(case)
    if not legal or (splits is not None and splits not in legal):
        sentence = (
            f"K = {case.dims['k']} does not divide into {splits or f'2 to {MAX_SPLITS}'} equal parts of at least "
            f"{MIN_K_PER_SPLIT} with partial sums of bounded size. Legal: {', '.join(map(str, legal)) or 'none'}."
        )
        return "no_legal_split", sentence
    if not target.is_gpu and (refusal := cpu_refusal(case)) is not None:
        return refusal
    device = "cuda" if target.is_gpu else "cpu"
    if case.dtype != "fp32" and not _bmm_returns_fp32(device):
        return "no_fp32_partials", f"torch.bmm of this torch cannot return fp32 for {case.dtype} operands on {device}."
    return None


def prepare_split(
    splits: int | None, case: Case, example: Inputs, target: Target, tile: Tile | None = None
) -> Prepared:
    """`splits` None takes the tile's, or without one the legal split nearest to the default."""
    legal = legal_splits(case)
    asked = int(tile["splits"]) if tile is not None else splits or min(legal, key=lambda s: abs(s - _DEFAULT_SPLITS))
    if asked not in legal or (splits is not None and asked != splits):
        raise ValueError(f"Case '{case.name}' cannot be cut into {asked} parts here. Legal: {legal}.")
    workspaces: list[Tensor] = []
    return Prepared(
        partial(_bind, asked, workspaces),
        tile={"splits": asked},
        algorithm="torch.bmm, torch.sum",
        workspaces=workspaces,
    )


def _bind(splits: int, workspaces: list[Tensor], inputs: Inputs) -> Call:
    a, b = inputs["a"], inputs["b"]
    (m, k), n = a.shape, b.shape[1]
    parts_a = a.unflatten(1, (splits, k // splits)).transpose(0, 1)  # [S, M, K/S]
    parts_b = b.unflatten(0, (splits, k // splits))  # [S, K/S, N]
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    partials = torch.empty(splits, m, n, dtype=torch.float32, device=a.device)
    workspaces.append(partials)
    if a.dtype == torch.float32:

        def call() -> Tensor:
            torch.bmm(parts_a, parts_b, out=partials)
            return torch.sum(partials, dim=0, out=out)

        return call

    total = torch.empty(m, n, dtype=torch.float32, device=a.device)
    workspaces.append(total)
    in_place = hasattr(torch.ops.aten.bmm, "dtype_out")

    def call_16_bit() -> Tensor:
        if in_place:
            torch.bmm(parts_a, parts_b, out_dtype=torch.float32, out=partials)
            torch.sum(partials, dim=0, out=total)
        else:
            torch.sum(torch.bmm(parts_a, parts_b, out_dtype=torch.float32), dim=0, out=total)
        return out.copy_(total)

    return call_16_bit


@cache
def _bmm_returns_fp32(device: str) -> bool:
    """Tried on a tiny product: neither a version nor a schema says on which devices it is there."""
    tiny = torch.ones(1, 16, 16, dtype=torch.bfloat16, device=device)
    try:
        return torch.bmm(tiny, tiny, out_dtype=torch.float32).dtype == torch.float32
    except (NotImplementedError, RuntimeError, TypeError):
        return False


def tiles(case: Case, target: Target) -> Sequence[Tile]:
    """Every legal split."""
    return [{"splits": splits} for splits in legal_splits(case)]


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
        f"decompose_k_{splits}": Implementation(
            f"decompose_k_{splits}", "own", True, partial(supports_split, splits), partial(prepare_split, splits)
        )
        for splits in SPLITS
    },
}
