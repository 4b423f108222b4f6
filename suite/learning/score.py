"""What choices cost against the best that was measured for each case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gemmgate.suite.learning.points import Point


@dataclass(frozen=True)
class Scored:
    """One case: what was chosen, its time over the best one's, and whether the choice was a fallback."""

    point: Point
    chosen: str
    regret: float
    fell_back: bool = False


@dataclass(frozen=True)
class Regret:
    """Over several cases: the geometric mean and the worst, with its case."""

    mean: float
    worst: float
    worst_case: str
    cases: int


def score(points: Sequence[Point], choose: Callable[[Point], tuple[str, bool]]) -> list[Scored]:
    """`choose` names an implementation and says whether it fell back. One that was not ok on a case costs what the
    case's slowest does: somebody would have to run that instead, and infinity hides all other cases.
    """
    found = []
    for point in points:
        name, fell_back = choose(point)
        regret = point.regret(name)
        if math.isinf(regret):
            regret = max(map(point.regret, point.times_s))
        found.append(Scored(point, name, regret, fell_back))
    return found


def summed(scored: Sequence[Scored]) -> Regret:
    """The mean is 1 where there is nothing."""
    if not scored:
        return Regret(1.0, 1.0, "", 0)
    worst = max(scored, key=lambda one: one.regret)
    mean = math.exp(math.fsum(math.log(one.regret) for one in scored) / len(scored))
    return Regret(mean, worst.regret, worst.point.case, len(scored))


def by_first_size(scored: Sequence[Scored]) -> Mapping[int, Regret]:
    """The regret for each value of the first size, ascending."""
    sizes = sorted({next(iter(one.point.dims.values())) for one in scored})
    return {size: summed([one for one in scored if next(iter(one.point.dims.values())) == size]) for size in sizes}
