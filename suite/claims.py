"""What others have published about the same products, and what a run of ours says about it.

A claim is a speed-up over cuBLAS on the claimant's chip. It is put beside the geometric mean of our ratios
over the same cases, on our chip: once by calls timed singly with events (`gemmgate run --timer events`), as
these claims were measured, and once by our own method. Times of different chips are never compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

from gemmgate.suite.compare import rate
from gemmgate.suite.records import SINGLY, Row, Run
from gemmgate.suite.statistics import geometric_mean

TOLERANCE = 0.02
"""A mean this far below the claim still reproduces it: launches of one code differ by a percent."""

Verdict = Literal["REPRODUCED", "NOT REPRODUCED", "NOT RUN"]
Timing = Literal["published", "ours"]
_WAYS_OF_TIMING: dict[Timing, tuple[str, str]] = {"published": ("events", SINGLY), "ours": ("graph", "")}
"""Timer and phase of a row."""
_FUSED = "dense_splitk_epilogue"
"""The family of products with something fused behind them."""


@dataclass(frozen=True)
class Source:
    """Who says it, of which hardware, measured how."""

    name: str
    url: str
    hardware: str
    protocol: str


@dataclass(frozen=True)
class Claim:
    """`low` to `high` times as fast as cuBLAS, over the cases of `tag` with K from `least_k` on.

    An infinite `high` means more than `low`.
    `implementations` are those of ours that do the same: the first that a run has counts; empty where we have none.
    """

    what: str
    source: Source
    low: float
    high: float
    formats: tuple[tuple[str, str], ...]
    implementations: tuple[str, ...]
    epilogue: str = "none"
    family: str = "dense_splitk"
    tag: str = "tritonbench"
    least_k: int = 0


@dataclass(frozen=True)
class Figure:
    """Our mean over `cases` cases, None where nothing was measured; `why` says what is missing."""

    verdict: Verdict
    mean: float | None = None
    cases: int = 0
    implementation: str = ""
    why: str = ""


_TALK = Source(
    "PyTorch Conference, lightning talk on subgraph fusion and custom op autotuning",
    "",
    "H100",
    "not stated",
)
_PULL = Source(
    "pytorch/pytorch#150654",
    "https://github.com/pytorch/pytorch/pull/150654",
    "H100",
    "tritonbench's split-K shapes: each call between two events, L2 cleared before",
)
_POST = Source(
    "shreyansh26/MLSys-Experiments, decompose-k",
    "https://github.com/shreyansh26/MLSys-Experiments/tree/master/decompose-k",
    "H100",
    "28 shapes; median of Triton's do_bench: each call between two events, L2 cleared before; "
    "tiles chosen by the same samples that are reported",
)
_BF16, _FP16, _IEEE, _TF32 = ("bf16", "acc32"), ("fp16", "acc32"), ("fp32", "ieee"), ("fp32", "tf32")
_DECOMPOSED = ("inductor_decompose_k", "decompose_k_best")
_WAYS = (
    ("Inductor's max-autotune", ("inductor_max_autotune",)),
    ("custom op with autotuned decompositions", ("custom_op_autotune",)),
    ("decompose-K in two Triton launches", ("triton_split_k",)),
    ("decompose-K in one launch, in TLX", ()),
)
_MEANS: tuple[tuple[str, tuple[str, str], str, str, tuple[float, ...]], ...] = (
    ("bf16", _BF16, "none", "dense_splitk", (1.140, 1.192, 1.230, 1.288)),
    ("bf16 with ReLU", _BF16, "relu", _FUSED, (1.109, 1.466, 1.516, 1.569)),
    ("fp32", _IEEE, "none", "dense_splitk", (1.089, 1.309, 1.485, 1.534)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("decompose-K, fp16", _TALK, 1.10, 1.15, (_FP16,), _DECOMPOSED),
    Claim("decompose-K, fp32", _TALK, 1.10, 1.15, (_IEEE, _TF32), _DECOMPOSED),
    Claim(
        "decompose-K with ReLU",
        replace(_TALK, hardware="not stated"),
        1.30,
        1.40,
        (_BF16, _FP16),
        _DECOMPOSED,
        "relu",
        _FUSED,
    ),
    Claim(
        "decompose-K among Inductor's choices, on average",
        _PULL,
        1.10,
        math.inf,
        (_BF16, _FP16),
        ("inductor_max_autotune", *_DECOMPOSED),
    ),
    *(
        Claim(f"{way}, {label}", _POST, mean, mean, (form,), ours, epilogue, family, least_k=8192)
        for label, form, epilogue, family, means in _MEANS
        for (way, ours), mean in zip(_WAYS, means, strict=True)
    ),
)


def figure(claim: Claim, run: Run | None, timing: Timing, cache: str = "cold") -> Figure:
    """What a run says about a claim, by its rows of one way of timing, in one cache state."""
    if run is None:
        return Figure("NOT RUN", why="no run")
    if not run.machine.is_gpu:
        return Figure("NOT RUN", why="not on a GPU")
    mine = [row for row in run.rows if _is_about(claim, row) and row.cache == cache]
    timed = [row for row in mine if (row.timer, row.phase) == _WAYS_OF_TIMING[timing]]
    for name in claim.implementations:
        rated = rate([row for row in timed if row.implementation in (name, row.yardstick)])
        ratios = [r.ratio.estimate for r in rated if r.ratio and r.row.implementation == name]
        if ratios:
            mean = geometric_mean(ratios)
            verdict: Verdict = "REPRODUCED" if mean >= claim.low * (1 - TOLERANCE) else "NOT REPRODUCED"
            return Figure(verdict, mean, len(ratios), name)
    return Figure("NOT RUN", why=_why(claim, mine, {row.family for row in run.rows}))


def _is_about(claim: Claim, row: Row) -> bool:
    return (
        (row.family, row.epilogue) == (claim.family, claim.epilogue)
        and (row.dtype, row.precision) in claim.formats
        and claim.tag in row.tags
        and row.dims.get("k", 0) >= claim.least_k
        and row.kind == "time"
    )


def _why(claim: Claim, mine: Sequence[Row], families: Set[str]) -> str:
    if not claim.implementations:
        return "nothing of ours does this"
    if claim.family not in families:
        return f"family {claim.family} is not in the run"
    if not mine:
        return "no such cases in the run"
    if not any(row.implementation in claim.implementations for row in mine):
        return "no such implementation in the run"
    return "not timed so"
