"""What a dispatcher's choices bring and cost over one run: against the library, against the best, and by shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from gemmgate.suite.errors import unknown
from gemmgate.suite.learning.points import Point, collect, dispatchers, said_to_run
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report import markdown, units
from gemmgate.suite.report.dispatch_map import dispatch_map
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where
from gemmgate.suite.statistics import geometric_mean

FEW = 16
"""Up to this first size calls count as small."""
SHOWN_SIZES = (1, 2, 4, 8, 16, 64, 256, 1024, 4096)
_NOTE = (
    "Geometric means, with how many cases they are of; least is that of one case. Regret is the time "
    "over that of the fastest that could be chosen, which is partly luck; its mean is geometric, over the cases where "
    "what was chosen was timed by itself, too."
)
DRAWN = "drawn"
"""Tag of cases that nothing was tuned on."""


@dataclass(frozen=True)
class Chosen:
    """One case of a dispatcher: its row and its time, beside those of all that could be chosen."""

    point: Point
    row: Row
    time_s: float

    @property
    def size(self) -> int:
        return next(iter(self.point.dims.values()))

    @property
    def shape(self) -> str:
        """The case without its first size: `deepseek-v3` of `deepseek-v3-t8-bf16`."""
        first = next(iter(self.point.dims))
        return self.row.case.replace(f"-{first}{self.size}", "", 1)

    @property
    def pick(self) -> str:
        """What ran: the first word of what the row says."""
        return said_to_run(self.row)

    def over(self, name: str) -> float | None:
        """The time of `name` over the dispatcher's own."""
        theirs = self.point.times_s.get(name)
        return theirs / self.time_s if theirs else None

    @property
    def regret(self) -> float | None:
        """Its time over that of the fastest; noise may bring it below 1. None where what it chose was not timed by
        itself: then the fastest that it could choose is not known.
        """
        return self.time_s / self.point.times_s[self.point.best] if self.pick in self.point.times_s else None


def regrets(chosen: Sequence[Chosen]) -> list[tuple[float, str]]:
    """Each regret that is known, with its case."""
    return [(one.regret, one.row.case) for one in chosen if one.regret is not None]


def newest(rows: Sequence[Row]) -> list[Row]:
    """Rows of one family and cache state: of each case those of its last visit, where several runs have it."""
    last = {row.case: row.visit for row in rows}
    return [row for row in rows if row.visit == last[row.case]]


def chosen_of(run: Run, family: str, name: str, cache: str) -> list[Chosen]:
    """The cases on which the dispatcher `name` was right, in order of the first visit to each, by the last one.

    Who says in `algorithm` that another implementation ran is a dispatcher and no candidate.
    """
    points = {point.case: point for point in collect(run.rows, family, cache)}
    timed = [r for r in run.rows if r.family == family and r.cache == cache and r.kind == "time" and not r.phase]
    rows = newest(timed)
    known = {r.implementation for r in rows}
    choosing = dispatchers(rows, family)
    if name not in known:
        raise unknown("implementation with times", name, known)
    found = []
    for r in (r for r in rows if r.implementation == name and r.case in points):
        point = points[r.case]
        times = {other: seconds for other, seconds in point.times_s.items() if other not in {name, *choosing}}
        if name in point.times_s and times:
            found.append(Chosen(replace(point, times_s=times), r, point.times_s[name]))
    first = {case: place for place, case in enumerate(dict.fromkeys(r.case for r in timed))}
    return sorted(found, key=lambda one: first[one.row.case])


PARTS = ("sums", "shapes", "decisions", "then")


def markdown_choices(
    run: Run, family: str, names: Sequence[str], cache: str, then: str = "", parts: Sequence[str] = ()
) -> str:
    """Tables of the dispatcher `names[0]` against the library's calls `names[1:]`, all or some of `PARTS`.

    `then` is a family that goes on from the result, and has cases of the same names. Raises `UsageError` for what is
    no part and where the run has no such dispatcher.
    """
    for part in parts:
        if part not in PARTS:
            raise unknown("part", part, PARTS)
    found = chosen_of(run, family, names[0], cache)
    blocks: dict[str, list[Block]] = {
        "sums": [
            _against(found, names[1:], f"{family}, {cache}: how many times as fast {names[0]} is"),
            Notes((_NOTE,)),
        ],
        "shapes": [_by_shape(found, run.limits.launch_floor_s)],
        "decisions": [*_decisions(found, run, family, names, cache)],
        "then": [*_what_follows(found, run, then, cache)],
    }
    return markdown.render([*(block for part in parts or PARTS for block in blocks[part]), where(run)])


def choices_map(run: Run, family: str, name: str, cache: str) -> str:
    """The dispatch map of what the dispatcher `name` chose, as SVG."""
    found = {one.row.case: one for one in chosen_of(run, family, name, cache)}
    points = [one.point for one in found.values()]

    def choose(point: Point) -> str:
        return found[point.case].pick

    title = f"{family}, {cache}: what {name} chose"
    costs = {case: one.regret for case, one in found.items()}
    names = {case: one.shape for case, one in found.items()}
    return dispatch_map(points, choose, title, costs=costs, names=names)


def _against(found: Sequence[Chosen], library: Sequence[str], title: str) -> Table:
    along = next(iter(found[0].point.dims)) if found else "size"
    sets: list[tuple[str, Callable[[Chosen], bool]]] = [
        (f"{along} <= {FEW}", lambda one: one.size <= FEW and DRAWN not in one.row.tags),
        (f"{along} > {FEW}", lambda one: one.size > FEW and DRAWN not in one.row.tags),
        (f"{DRAWN}, {along} <= {FEW}", lambda one: one.size <= FEW and DRAWN in one.row.tags),
        ("all", lambda one: True),
    ]
    columns = (
        Column("set"),
        Column("cases", right=True),
        *(Column(f"over {name}", right=True) for name in library),
        Column("over the best of these", right=True),
        Column("least", right=True),
        Column("left to them", right=True),
        Column("mean regret", right=True),
        Column("worst regret"),
    )
    rows = []
    for label, belongs in sets:
        members = [one for one in found if belongs(one)]
        if not members:
            continue
        best = [min(filter(None, map(one.over, library)), default=None) for one in members]
        ratios = [ratio for ratio in best if ratio]
        known = regrets(members)
        worst, worst_case = max(known, default=(0.0, ""), key=itemgetter(0))
        shapes = len({one.shape for one in members})
        rows.append(
            cells(
                (
                    label,
                    f"{len(members)} of {units.counted(shapes, 'shape')}",
                    *(_mean([ratio for one in members if (ratio := one.over(name))]) for name in library),
                    _mean(ratios),
                    units.speedup(min(ratios)) if ratios else units.NONE,
                    str(sum(one.pick in library for one in members)),
                    f"{geometric_mean([regret for regret, _ in known]):.4f}" if known else units.NONE,
                    f"{worst:.3f} {worst_case}" if known else units.NONE,
                )
            )
        )
    return Table(title, columns, tuple(rows))


def _mean(ratios: Sequence[float]) -> str:
    return f"{units.speedup(geometric_mean(ratios))} ({len(ratios)})" if ratios else units.NONE


def _by_shape(found: Sequence[Chosen], launch_s: float) -> Table:
    sizes = [size for size in SHOWN_SIZES if any(one.size == size for one in found)]
    by_place = {(one.shape, one.size): one for one in found}
    rows = [
        cells((shape, *(_cell(by_place.get((shape, size)), launch_s) for size in sizes)))
        for shape in dict.fromkeys(one.shape for one in found)
    ]
    columns = (Column("shape"), *(Column(str(size), right=True) for size in sizes))
    return Table("us (speed-up over the yardstick; least us by bytes and a launch)", columns, tuple(rows))


def _cell(one: Chosen | None, launch_s: float) -> str:
    if one is None:
        return units.NONE
    ratio = one.over(one.row.yardstick)
    said = [f"{ratio:.2f}x"] if ratio else []
    said += [units.microseconds(one.row.roof_s + launch_s)] if one.row.roof_s else []
    return f"{units.microseconds(one.row.median_s)} ({'; '.join(said)})"


def _decisions(found: Sequence[Chosen], run: Run, family: str, names: Sequence[str], cache: str) -> list[Table]:
    """For each shape the share of tokens whose decision was the reference's, by implementation."""
    rows = newest([r for r in run.rows if r.family == family and r.cache == cache and r.decision and not r.phase])
    held = {(r.case, r.implementation): r for r in rows if "agree" in (r.decision or {})}
    if not held:
        return []
    shown = [name for name in names if any(name == implementation for _, implementation in held)]
    lines = []
    for shape in dict.fromkeys(one.shape for one in found):
        members = [one for one in found if one.shape == shape]
        lines.append(cells((shape, *(_agreement([held.get((m.row.case, name)) for m in members]) for name in shown))))
    columns = (Column("shape"), *(Column(name, right=True) for name in shown))
    return [
        Table("Share of tokens that get the reference's choice, over all sizes (weight moved)", columns, tuple(lines))
    ]


def _agreement(rows: Sequence[Row | None]) -> str:
    """Means over tokens, of the cases that have them."""
    known = [(next(iter(r.dims.values())), r.decision) for r in rows if r is not None and r.decision]
    tokens = sum(size for size, _ in known)
    if not tokens:
        return units.NONE
    agree, moved = (sum(size * made.get(name, 0.0) for size, made in known) / tokens for name in ("agree", "moved"))
    return f"{agree:.4f} ({moved:.1e})"


def _what_follows(found: Sequence[Chosen], run: Run, family: str, cache: str) -> list[Table]:
    """What a family that goes on from the result takes, and more than the dispatcher alone, where that has the case."""
    rows = newest([r for r in run.rows if r.family == family and r.cache == cache and r.median_s and not r.phase])
    alone = {one.row.case: one.row.median_s for one in found}
    names = list(dict.fromkeys(r.implementation for r in rows))
    held = {(r.case, r.implementation): r.median_s for r in rows}
    lines = []
    for case in dict.fromkeys(r.case for r in rows):
        times, result_s = [held.get((case, name)) for name in names], alone.get(case)
        beyond_s = min(filter(None, times)) - result_s if result_s else None
        lines.append(cells((case, *map(units.microseconds, times), units.microseconds(beyond_s))))
    columns = (
        Column("case"),
        *(Column(name, right=True) for name in names),
        Column("beyond the result alone", right=True),
    )
    return [Table(f"{family}, {cache}: us", columns, tuple(lines))] if lines else []
