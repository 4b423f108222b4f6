"""Figures of points and bars: roofline, samples, errors, what compiling took, what a search saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any

from gemmgate.suite.compare import Rated
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.report import units
from gemmgate.suite.report.page.figure import Figure, View
from gemmgate.suite.report.page.markup import label
from gemmgate.suite.report.page.sections import Section


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": label(title), "standoff": 8}, "automargin": True, **more}


def _decades(title: str) -> dict[str, Any]:
    return _axis(title, type="log", exponentformat="power", dtick=1)


_NAMES = {"type": "category", "automargin": True, "autorange": "reversed"}


def roofline(section: Section, family: str) -> Figure | None:
    """Rate against arithmetic intensity, below what the machine was measured to do; None where a roof is unknown."""
    kinds, limits = section.kinds(), section.limits
    groups: dict[tuple[str, ...], list[Rated]] = defaultdict(list)
    for r in section.timed(family):
        if r.row.median_s and r.row.flop and r.row.bytes_moved and _peak(r.row, limits):
            groups[kinds[r.row.id], r.row.cache or "any"].append(r)
    if not groups or not limits.bytes_per_s:
        return None
    views = tuple(View(key, *_roofline(members, limits)) for key, members in groups.items())
    return Figure(
        "Roofline",
        f"Rate by work per byte, for one call. The line is what this machine was measured to do "
        f"({'a short look at the start of the run' if limits.source == 'short' else label(limits.source)}); "
        f"a launch takes {units.microseconds(limits.launch_floor_s)} us at least, so small cases lie far below it.",
        ("arithmetic", "cache"),
        views,
    )


def _roofline(rated: Sequence[Rated], limits: Limits) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    first = rated[0].row
    peak = _peak(first, limits)
    assert peak is not None
    moved = limits.l2_bytes_per_s if first.cache == "hot" and limits.l2_bytes_per_s else limits.bytes_per_s
    intensities = [r.row.flop / r.row.bytes_moved for r in rated]
    left, knee, right = min(*intensities, peak / moved) / 2, peak / moved, max(*intensities, peak / moved) * 2
    roof = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{units.significant(moved / 1e12)} TB/s, {units.significant(peak / 1e12)} TFLOP/s",
        "x": [left, knee, right],
        "y": [left * moved / 1e12, peak / 1e12, peak / 1e12],
        "role": "reference",
        "hoverinfo": "name",
    }
    traces = [roof, *_points(rated, lambda row: row.flop / row.bytes_moved, _tera_flop)]
    layout = {
        "xaxis": _decades("FLOP a byte"),
        "yaxis": _decades("TFLOP/s"),
        "height": 460,
    }
    return traces, layout


def _points(rated: Sequence[Rated], x: Any, y: Any) -> list[dict[str, Any]]:
    by_name: dict[str, list[Row]] = defaultdict(list)
    for r in rated:
        by_name[r.row.implementation].append(r.row)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label(name),
            "x": [x(row) for row in rows],
            "y": [y(row) for row in rows],
            "text": [f"{label(row.case)}: {units.microseconds(row.median_s)} us" for row in rows],
            "customdata": [row.id for row in rows],
            "hovertemplate": "%{text}<br>%{x:.3g}, %{y:.3g}",
            "role": "points",
        }
        for name, rows in by_name.items()
    ]


def _tera_flop(row: Row) -> float:
    assert row.median_s is not None
    return row.flop / row.median_s / 1e12


def _peak(row: Row, limits: Limits) -> float | None:
    return limits.flop_per_s.get(f"{row.dtype}.{row.precision}") or limits.flop_per_s.get(row.dtype)


def samples(section: Section, family: str) -> Figure | None:
    """Every kept sample of a case by implementation. The page takes them from the rows that are in it anyway."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for r in section.timed(family):
        if r.row.status == "ok" and r.row.samples_s:
            groups[r.row.case, r.row.cache or "any"].append(r.row.id)
    if not groups:
        return None
    views = tuple(
        View(
            key,
            [{"samples_of": ids}],
            {"xaxis": _axis("distance from its own median, %"), "height": 90 + 34 * len(ids)},
        )
        for key, ids in groups.items()
    )
    caption = (
        "Each sample that was kept, as a distance from the median of its implementation, which stands beside the name. "
        "The box holds the middle half."
    )
    return Figure("Samples", caption, ("case", "cache"), views)


def errors(section: Section, family: str) -> Figure | None:
    """Error against float64, beside the yardstick's; None where nothing has both."""
    kinds = section.kinds()
    groups: dict[tuple[str, ...], list[Rated]] = defaultdict(list)
    cache = next(iter(section.caches(family)), "")
    for r in section.timed(family):
        known = r.row.error and r.error_vs_yardstick
        if known and r.row.cache == cache and r.row.status == "ok" and r.row.implementation != r.yardstick:
            groups[(kinds[r.row.id],)].append(r)
    if not groups:
        return None
    views = []
    for key, members in groups.items():
        theirs = {r.row.id: r.row.error / r.error_vs_yardstick for r in members if r.row.error and r.error_vs_yardstick}
        span = [min(theirs.values()), max(theirs.values())]
        equal = {"type": "scatter", "mode": "lines", "name": "equal", "x": span, "y": span, "role": "reference"}
        traces = [equal, *_points(members, lambda row, of=theirs: of[row.id], lambda row: row.error)]
        layout = {
            "xaxis": _axis("error of the yardstick", type="log"),
            "yaxis": _axis("error", type="log"),
            "height": 420,
        }
        views.append(View(key, traces, layout))
    yardsticks = " or ".join(dict.fromkeys(r.yardstick for members in groups.values() for r in members))
    caption = (
        "‖out − reference‖ / ‖reference‖, with the reference in float64: "
        f"above the line is less exact than {yardsticks}."
    )
    return Figure(f"Error beside {yardsticks}", caption, ("arithmetic",), tuple(views))


def compiling(section: Section, family: str) -> Figure | None:
    """Seconds to compile: by phase where phases were measured, else what preparing each implementation took."""
    phases = [
        r.row for r in section.rated if r.row.family == family and r.row.kind == "phase" and r.row.value is not None
    ]
    if phases:
        return _phases([row for row in phases if row.unit in ("s", "seconds")] or phases)
    by_name: dict[str, dict[str, Row]] = defaultdict(dict)
    for r in section.timed(family):
        if r.row.compile_s:
            by_name[r.row.implementation][r.row.case] = r.row
    if not by_name:
        return None
    traces = [
        {
            "type": "box",
            "orientation": "h",
            "name": label(name),
            "x": [row.compile_s for row in rows.values()],
            "y": [label(name)] * len(rows),
            "text": [label(row.case) for row in rows.values()],
            "customdata": [row.id for row in rows.values()],
            "boxpoints": "all",
            "role": "box",
        }
        for name, rows in by_name.items()
    ]
    layout = {
        "xaxis": _decades("s"),
        "yaxis": _NAMES,
        "height": 100 + 34 * len(traces),
        "showlegend": False,
    }
    caption = "What preparing an implementation took in this run, a point a case, with caches as they were."
    return Figure("Preparing and compiling", caption, (), (View((), traces, layout),))


def _phases(rows: Sequence[Row]) -> Figure:
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.case, row.cache or "any"].append(row)
    views = []
    for key, members in groups.items():
        by_phase: dict[str, list[Row]] = defaultdict(list)
        for row in members:
            by_phase[row.phase or "all"].append(row)
        traces = [
            {
                "type": "bar",
                "orientation": "h",
                "name": label(phase),
                "x": [row.value for row in found],
                "y": [label(row.implementation) for row in found],
                "customdata": [row.id for row in found],
                "role": "bar",
            }
            for phase, found in by_phase.items()
        ]
        layout = {
            "barmode": "stack",
            "xaxis": _axis(members[0].unit),
            "yaxis": _NAMES,
            "height": 170 + 34 * len({row.implementation for row in members}),
        }
        views.append(View(key, traces, layout))
    return Figure("Compiling, by phase", "Seconds of each phase.", ("case", "cache"), tuple(views))


def searches(section: Section, family: str) -> Figure | None:
    """What a search saw: the time of every candidate, fastest first; None where no row tells."""
    views = []
    searched = [r for r in section.timed(family) if r.row.status == "ok" and r.row.screened_s]
    for r in sorted(searched, key=lambda r: -len(r.row.screened_s or ())):
        found = sorted((r.row.screened_s or {}).items(), key=lambda item: item[1])
        trace = {
            "type": "scatter",
            "mode": "markers",
            "name": "candidates",
            "x": [rank for rank, _ in zip(count(1), found)],
            "y": [seconds * 1e6 for _, seconds in found],
            "text": [label(name) for name, _ in found],
            "hovertemplate": "%{text}<br>%{y:.4g} us<extra></extra>",
            "customdata": [r.row.id] * len(found),
            "role": "points",
        }
        layout = {
            "xaxis": _axis("rank"),
            "yaxis": _axis("us", type="log"),
            "height": 340,
            "showlegend": False,
        }
        views.append(View((r.row.implementation, r.row.case, r.row.cache or "any"), [trace], layout))
    if not views:
        return None
    caption = "Time of each candidate as the search read it; the winner was then measured anew."
    return Figure("Searched candidates", caption, ("implementation", "case", "cache"), tuple(views))
