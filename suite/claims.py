"""What others have published about the same products, and what a run of ours says about it.

A claim is a speed-up over cuBLAS on the claimant's chip. It is put beside the geometric mean of our ratios
over the same cases, on our chip: once by calls timed singly with events (`gemmgate run --timer events`), as
these claims were measured, and once by our own method. Times of different chips are never compared.

Several runs are read together where machine, method and libraries are the same: the newest of a case counts. A
figure is of one such group, the one that has most of the claim's cases, of equal ones the newest.
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

LEAST_SHARE = 0.25
"""An implementation with fewer cases than this share of what another has gives no figure beside it."""

ENOUGH_SHARE = 0.5
"""A mean over fewer of a claim's cases than this share neither reproduces it nor fails to."""

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
    """`low` to `high` times as fast as cuBLAS, over the `cases` cases of `tag` with K from `least_k` on.

    An infinite `high` means more than `low`.
    `implementations` are those of ours that do the same, the nearest first: it counts unless another has far more
    cases (`LEAST_SHARE`). Empty where we have none.
    """

    what: str
    source: Source
    low: float
    high: float
    formats: tuple[tuple[str, str], ...]
    implementations: tuple[str, ...]
    cases: int
    epilogue: str = "none"
    family: str = "dense_splitk"
    tag: str = "tritonbench"
    least_k: int = 0


@dataclass(frozen=True)
class Figure:
    """Our mean over `cases` cases, None where nothing was measured; `why` says what is missing for a verdict.

    `runs` are the ids of the runs that the cases come from, `days` the first and the last day on which they were
    measured, by `method`.
    """

    verdict: Verdict
    mean: float | None = None
    cases: int = 0
    implementation: str = ""
    why: str = ""
    method: int = 0
    days: tuple[str, str] = ("", "")
    runs: frozenset[str] = frozenset()


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
_DECOMPOSED_FUSED = ("decompose_k_fused", "decompose_k_then_epilogue")
_WAYS = (
    ("Inductor's max-autotune", ("inductor_max_autotune",)),
    ("custom op with autotuned decompositions", ("custom_op_autotune", "decompose_k_fused")),
    ("decompose-K in two Triton launches", ("triton_split_k", "two_launches")),
    ("decompose-K in one launch, in TLX", ("last_arrival", "grid_barrier")),
)
_MEANS: tuple[tuple[str, tuple[str, str], str, str, tuple[float, ...]], ...] = (
    ("bf16", _BF16, "none", "dense_splitk", (1.140, 1.192, 1.230, 1.288)),
    ("bf16 with ReLU", _BF16, "relu", _FUSED, (1.109, 1.466, 1.516, 1.569)),
    ("fp32", _IEEE, "none", "dense_splitk", (1.089, 1.309, 1.485, 1.534)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("decompose-K, fp16", _TALK, 1.10, 1.15, (_FP16,), _DECOMPOSED, 32),
    Claim("decompose-K, fp32", _TALK, 1.10, 1.15, (_IEEE, _TF32), _DECOMPOSED, 64),
    Claim(
        "decompose-K with ReLU",
        replace(_TALK, hardware="not stated"),
        1.30,
        1.40,
        (_BF16, _FP16),
        _DECOMPOSED_FUSED,
        64,
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
        64,
    ),
    *(
        Claim(f"{way}, {label}", _POST, mean, mean, (form,), ours, 28, epilogue, family, least_k=8192)
        for label, form, epilogue, family, means in _MEANS
        for (way, ours), mean in zip(_WAYS, means, strict=True)
    ),
)


def figure(claim: Claim, runs: Sequence[Run], timing: Timing, cache: str = "cold") -> Figure:
    """What runs say about a claim, by their rows of one way of timing, in one cache state."""
    if not runs:
        return Figure("NOT RUN", why="no run")
    groups = _alike([run for run in runs if run.machine.is_gpu])
    if not groups:
        return Figure("NOT RUN", why="not on a GPU")
    rows = [[row for run in group for row in _timed(claim, run, timing, cache)] for group in groups]
    of_each = [list(filter(None, (_figure(claim, of, name) for of in rows))) for name in claim.implementations]
    found = [max(made, key=lambda one: one.cases) for made in of_each if made]  # of equal ones the first, so the newest
    most = max((one.cases for one in found), default=0)
    for one in found:
        if one.cases >= LEAST_SHARE * most:
            return one
    mine = [row for run in runs for row in run.rows if _is_about(claim, row) and row.cache == cache]
    return Figure("NOT RUN", why=_why(claim, mine, {row.family for run in runs for row in run.rows}))


def _alike(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs whose ratios mean the same, the group with the newest run first."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.utc, reverse=True):
        stack = run.stack
        key = (run.method, run.machine.key, stack.torch, stack.triton, stack.cuda, stack.cublas)
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _timed(claim: Claim, run: Run, timing: Timing, cache: str) -> list[Row]:
    return [
        replace(row, run_id=run.id)  # a resumed run carries rows of another id
        for row in run.rows
        if _is_about(claim, row) and row.cache == cache and (row.timer, row.phase) == _WAYS_OF_TIMING[timing]
    ]


def _figure(claim: Claim, rows: Sequence[Row], name: str) -> Figure | None:
    """The mean of one implementation, by the newest ratio of each case; None without a ratio."""
    rated = rate([row for row in rows if row.implementation in (name, row.yardstick)])
    ratios = {}
    for one in sorted(rated, key=lambda one: one.row.utc):
        if one.ratio and one.row.implementation == name:
            ratios[one.row.case] = one
    if not ratios:
        return None
    mean = geometric_mean([one.ratio.estimate for one in ratios.values() if one.ratio])
    days = sorted(one.row.utc[:10] for one in ratios.values())
    is_enough = len(ratios) >= ENOUGH_SHARE * claim.cases
    reproduced: Verdict = "REPRODUCED" if mean >= claim.low * (1 - TOLERANCE) else "NOT REPRODUCED"
    return Figure(
        reproduced if is_enough else "NOT RUN",
        mean,
        len(ratios),
        name,
        "" if is_enough else "too few cases",
        method=next(iter(ratios.values())).row.method,
        days=(days[0], days[-1]),
        runs=frozenset(one.row.run_id for one in ratios.values()),
    )


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
