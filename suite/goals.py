"""What split-K products are to reach on a machine, set by set, and where a run stands.

A set's mean is the geometric one of all its cases, with those that the choice left to the library counted as they
are; beside it stand the mean of those that a kernel of ours computed, and how many they are. The floor of a case is
the least time that the measured roofs allow for its bytes and operations, and one launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemmgate.suite.compare import Rated, rate
from gemmgate.suite.records import Limits, Row, Run
from gemmgate.suite.statistics import geometric_mean, ratio_interval

_PLAIN, _FUSED = "dense_splitk", "dense_splitk_epilogue"
_LARGE = ((128, 128, 32768), (256, 256, 65536), (512, 512, 32768), (32, 256, 16384))
"""(M, N, K)"""


@dataclass(frozen=True)
class Goal:
    """`least` times as fast as `against`, in the geometric mean of a set of cases; `own` of them by a kernel of ours.

    The set is the `cases` cases of `tag` in one format with one epilogue, of `sizes` alone where there are some.
    `floor` is the share of the floor that is as good as `least`; 0 where none is.
    """

    name: str
    format: tuple[str, str]
    least: float
    against: str = "cublas"
    family: str = _PLAIN
    epilogue: str = "none"
    tag: str = "tritonbench"
    cases: int = 32
    sizes: tuple[tuple[int, int, int], ...] = ()
    own: int = 0
    floor: float = 0.0


_BF16, _FP16, _IEEE, _TF32 = ("bf16", "acc32"), ("fp16", "acc32"), ("fp32", "ieee"), ("fp32", "tf32")
GOALS = (
    Goal("split-K set, bf16", _BF16, 1.5, own=28),
    Goal("split-K set, fp16", _FP16, 1.5, own=28),
    Goal("with ReLU, bf16", _BF16, 1.8, family=_FUSED, epilogue="relu"),
    Goal("with ReLU, fp16", _FP16, 1.8, family=_FUSED, epilogue="relu"),
    Goal("with ReLU, bf16", _BF16, 1.5, against="cublaslt_fused", family=_FUSED, epilogue="relu"),
    Goal("with ReLU, fp16", _FP16, 1.5, against="cublaslt_fused", family=_FUSED, epilogue="relu"),
    Goal("split-K set, fp32 IEEE", _IEEE, 1.8),
    Goal("split-K set, TF32", _TF32, 1.6),
    Goal("large, bf16", _BF16, 1.15, tag="large", cases=4, sizes=_LARGE, floor=0.75),
    Goal("drawn, bf16", _BF16, 1.35, tag="drawn", cases=12),
)


@dataclass(frozen=True)
class Standing:
    """How an implementation does on the cases of a goal; without `ratios` the run has none of them.

    `ratios` and `shares` are by case: the rival's time over its own, and the floor's. `own` names the cases that a
    kernel of ours computed, `slower` those on which one did, slower than the rival beyond noise, `failed` those in
    which one of the two has no time because it failed.
    """

    goal: Goal
    implementation: str
    ratios: Mapping[str, float]
    shares: Mapping[str, float]
    own: tuple[str, ...]
    slower: tuple[str, ...]
    failed: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        return geometric_mean(list(self.ratios.values())) if self.ratios else None

    @property
    def mean_of_own(self) -> float | None:
        mine = [self.ratios[case] for case in self.own]
        return geometric_mean(mine) if mine else None

    @property
    def share(self) -> float | None:
        return geometric_mean(list(self.shares.values())) if self.shares else None

    @property
    def reached(self) -> bool:
        """Whether the mean, or the share of the floor instead, is as good as asked, and ours are as many."""
        good = (self.mean or 0.0) >= self.goal.least or (self.goal.floor > 0 and (self.share or 0.0) >= self.goal.floor)
        return good and len(self.own) >= self.goal.own

    @property
    def is_whole(self) -> bool:
        """Whether the run has every case of the set, those that failed included: a part says nothing of the goal."""
        return len(self.ratios) + len(self.failed) >= self.goal.cases


def standings(run: Run, implementation: str = "dispatch", cache: str = "cold") -> list[Standing]:
    """A standing for every goal, in their order, by the newest rows of a run."""
    rated = [r for r in rate(run.rows) if r.row.kind == "time" and r.row.cache == cache and r.row.timer == "graph"]
    return [_standing(goal, rated, implementation, run.limits) for goal in GOALS]


def _standing(goal: Goal, rated: Sequence[Rated], implementation: str, limits: Limits) -> Standing:
    every = [r.row for r in rated if _is_in(goal, r.row) and not r.row.phase]
    rows = [row for row in every if row.status == "ok"]
    rivals = {(row.case, row.visit): row for row in rows if row.implementation == goal.against}
    pairs = [
        (row, rivals[row.case, row.visit])
        for row in rows
        if row.implementation == implementation and (row.case, row.visit) in rivals
    ]
    found = {
        row.case: ratio_interval(rival.samples_s, row.samples_s, paired=row.samples_n == rival.samples_n)
        for row, rival in pairs
    }
    own = tuple(row.case for row, _ in pairs if row.tile is not None)
    tried = {row.case for row in every if row.implementation in (goal.against, implementation)}
    skipped = {row.case for row in every if row.status not in ("ok", "broken", "invalid", "error")}
    return Standing(
        goal,
        implementation,
        {case: ratio.estimate for case, ratio in found.items()},
        {row.case: _floor_s(row, limits) / row.median_s for row, _ in pairs if row.median_s and row.roof_s},
        own,
        tuple(case for case in own if found[case].high < 1),
        tuple(sorted(tried - skipped - set(found))),
    )


def _is_in(goal: Goal, row: Row) -> bool:
    sizes = tuple(row.dims.get(name, 0) for name in "mnk")
    return (
        (row.family, row.epilogue, (row.dtype, row.precision)) == (goal.family, goal.epilogue, goal.format)
        and goal.tag in row.tags
        and (not goal.sizes or sizes in goal.sizes)
    )


def _floor_s(row: Row, limits: Limits) -> float:
    return (row.roof_s or 0.0) + limits.launch_floor_s
