"""What lies behind a step of a series: the machine, the versions, another choice, or the code, from what was recorded.

A step is found in one series; whatever else was recorded at the same two commits says what it is likely to be.
The first thing that explains it counts, in the order of `KINDS`: a kernel is blamed last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

from gemmgate.suite.series import Place, Point, Series, Step
from gemmgate.suite.sides import Side

Kind = Literal["board", "versions", "machine", "pick", "code", "unknown"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_SHARED = 0.5
"""Share of a step, in log space, that the yardstick of the case must make too for the step to be no kernel's own."""


@dataclass(frozen=True)
class Cause:
    """`what` in a word, `sentence` with the evidence."""

    what: Kind
    sentence: str


@dataclass(frozen=True)
class Found:
    """A step between two commits that were measured one after the other, and what is likely to be behind it."""

    place: Place
    ratio: float
    before: Point
    after: Point
    cause: Cause

    @property
    def key(self) -> tuple[Place, str]:
        """The series and the commit of the step."""
        return self.place, self.after.commit


def found(series: Series, steps: Mapping[Place, Sequence[Step]]) -> tuple[Found, ...]:
    """All steps, the newest first and of equally old ones the largest."""
    all_steps = []
    for place, of_place in steps.items():
        for step in of_place:
            before, after = _around(series[place], step.index)
            if before is not None:
                likely = cause(place, step.ratio, before, after, series)
                all_steps.append(Found(place, step.ratio, before, after, likely))
    return tuple(sorted(all_steps, key=lambda one: (-one.after.committed_s, -abs(math.log(one.ratio)))))


def cause(place: Place, ratio: float, before: Point, after: Point, series: Series) -> Cause:
    """What the records say of a change by `ratio` between two points of a series."""
    old, new = Side(before.row, before.run), Side(after.row, after.run)
    if old.board and new.board and old.board != new.board:
        return Cause("board", f"measured on another board: {old.board} -> {new.board}")
    was, now = asdict(before.run.stack), asdict(after.run.stack)
    changed = [f"{name} {was[name] or 'none'} -> {now[name] or 'none'}" for name in was if was[name] != now[name]]
    if changed:
        return Cause("versions", ", ".join(changed))
    machine = _machine(place, ratio, before, after, series)
    if machine:
        return Cause("machine", machine)
    if old.pick != new.pick:
        return Cause("pick", f"{old.pick} -> {new.pick}")
    if before.row.kernels != after.row.kernels and None not in (before.row.kernels, after.row.kernels):
        return Cause("code", f"kernels launched: {before.row.kernels} -> {after.row.kernels}")
    codes = before.row.device_code, after.row.device_code
    # Of several kernels a row's digest may hold one; what a compiler made of this one differs, so its code does.
    compiled = after.row.kind == "static"
    if all(codes) or compiled:
        if compiled or codes[0] != codes[1]:
            return Cause("code", "the machine code changed: `gemmgate explain` shows how")
        return Cause("unknown", "the machine code is the same: placement, or the machine; measure both again")
    return Cause("unknown", "nothing recorded differs but the commit: `gemmgate bisect` between the two finds it")


def _machine(place: Place, ratio: float, before: Point, after: Point, series: Series) -> str:
    """Evidence that the machine changed, or an empty text."""
    if place.quantity != "seconds":
        return ""
    change = math.log(ratio)
    yardstick = after.row.yardstick
    if yardstick and yardstick != place.implementation:
        points = {point.commit: point.value for point in series.get(replace(place, implementation=yardstick), ())}
        values = points.get(before.commit), points.get(after.commit)
        if values[0] and values[1]:
            moved = math.log(values[1] / values[0])
            if moved * math.copysign(1, change) > _SHARED * abs(change):
                return f"{yardstick}, which no change here touches, moved by {math.expm1(moved):+.1%} too"
    marks = sorted({"throttled", "shared"} & set(after.row.marks) ^ {"throttled", "shared"} & set(before.row.marks))
    if marks:
        return f"one side is marked {' and '.join(marks)}"
    clocks = before.row.sm_clock_hz, after.row.sm_clock_hz
    if clocks[0] and clocks[1]:
        in_cycles = change + math.log(clocks[1] / clocks[0])
        if abs(in_cycles) < _SHARED * abs(change):
            return f"clock {clocks[0] / 1e6:.0f} -> {clocks[1] / 1e6:.0f} MHz: in cycles little changed"
    return ""


def _around(points: Sequence[Point], index: int) -> tuple[Point | None, Point]:
    """The last point with a value before the step, and the step's first."""
    earlier = [point for point in points[:index] if point.value is not None]
    after = next(point for point in points[index:] if point.value is not None)
    return (earlier[-1] if earlier else None), after
