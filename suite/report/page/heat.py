"""Maps of cases: one size down, the others across, a number or a choice in each cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from gemmgate.suite.compare import Rated
from gemmgate.suite.records import Row
from gemmgate.suite.report import units
from gemmgate.suite.report.page.figure import Figure, View
from gemmgate.suite.report.page.markup import label
from gemmgate.suite.report.page.sections import Section

DISPATCH = "dispatch"
"""The implementation whose rows say what a family's dispatcher chose."""
_LIST, _LONG_LIST = 0.34, 0.12
"""A map that is emptier than this says less than a list of its cases; than one of more than `_LONG` of them."""
_LONG = 24
_FEW = 5
"""With more columns the name of a choice does not fit a cell."""
_FIRST = ("m", "t", "tokens")
"""Sizes that belong down the side where the cells are filled equally well otherwise."""


@dataclass(frozen=True)
class Axes:
    """Which sizes go down and which across."""

    down: tuple[str, ...]
    across: tuple[str, ...]

    def cell(self, row: Row) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(row.dims.get(d, 0) for d in self.down), tuple(row.dims.get(d, 0) for d in self.across)


def axes(rows: Iterable[Row]) -> Axes:
    """One size against the others, so that the most cells are filled; sizes that never change are left out."""
    rows = list(rows)
    varying = sorted({name for row in rows for name in row.dims if len({r.dims.get(name) for r in rows}) > 1})
    names = varying or sorted({name for row in rows for name in row.dims})
    splits = [Axes((name,), tuple(other for other in names if other != name)) for name in names]
    splits += [Axes(split.across, split.down) for split in splits if split.across]
    splits += [Axes(tuple(names), ())] if len(names) > 1 else []

    def rank(split: Axes) -> tuple[float, bool, bool]:
        cells = {split.cell(row) for row in rows}
        area = len({down for down, _ in cells}) * len({across for _, across in cells})
        listed = _LIST if len(cells) <= _LONG else _LONG_LIST
        filled = len(cells) / area if split.across or len(names) < 2 else listed
        return filled, split.down[0] in _FIRST, len(split.across) > len(split.down)

    return max(splits, key=rank, default=Axes((), ()))


def speedups(section: Section, family: str) -> Figure | None:
    """Ratios to the yardstick by implementation; None where there is no ratio."""
    kinds = section.kinds()
    rated = [r for r in section.timed(family) if r.ratio and r.row.implementation != r.yardstick]
    groups: dict[tuple[str, ...], list[Rated]] = {}
    for r in rated:
        groups.setdefault((r.row.implementation, kinds[r.row.id], r.row.cache or "any"), []).append(r)
    if not groups:
        return None
    # What is looked at first is the implementation with the most cases and, of those, the highest mean.
    views = tuple(View(key, *_map(groups[key], _ratio_cells)) for key in sorted(groups, key=_place(rated)))
    against = " or ".join(dict.fromkeys(r.yardstick for r in rated))
    return Figure(
        f"Speed-up over {against}",
        f"The time of {against} over this one's, from the same rounds: above 1 is faster. "
        "A cell with ~ cannot be told from 1.",
        ("implementation", "arithmetic", "cache"),
        views,
    )


def _place(rated: Sequence[Rated]) -> Callable[[tuple[str, ...]], tuple[float, float]]:
    logs: dict[str, list[float]] = {}
    for r in rated:
        logs.setdefault(r.row.implementation, []).append(_log2(r))
    return lambda key: (-len(logs[key[0]]), -sum(logs[key[0]]) / len(logs[key[0]]))


def dispatched(section: Section, family: str) -> Figure | None:
    """What the dispatcher chose for each case; None where no such row exists."""
    kinds = section.kinds()
    groups: dict[tuple[str, ...], list[Rated]] = {}
    for r in section.timed(family):
        if r.row.implementation == DISPATCH and r.row.status == "ok":
            groups.setdefault((kinds[r.row.id], r.row.cache or "any"), []).append(r)
    if not groups:
        return None
    views = tuple(View(key, *_map(members, _choice_cells)) for key, members in groups.items())
    return Figure("Dispatch", "What the dispatcher calls for each case.", ("arithmetic", "cache"), views)


Cells = Callable[[Mapping[Any, Rated]], Mapping[str, Any]]


def _map(rated: Sequence[Rated], content: Cells) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A heat map's trace and layout."""
    split = axes(r.row for r in rated)
    # Cases of equal sizes that differ otherwise share a cell: the last counts, and the table has all.
    cells = {split.cell(r.row): r for r in rated}
    down = sorted({row for row, _ in cells}, reverse=True)
    across = sorted({column for _, column in cells})
    grid = [[cells.get((row, column)) for column in across] for row in down]
    found = content(cells)
    trace = {
        "type": "heatmap",
        "x": [_sizes(column) for column in across],
        "y": [_sizes(row) for row in down],
        "customdata": [[r.row.id if r else None for r in line] for line in grid],
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "hovertext": [[_hover(r) if r else "" for r in line] for line in grid],
        "z": [[found["z"](r) if r else None for r in line] for line in grid],
        "text": [[found["text"](r) if r else "" for r in line] for line in grid],
        **found["trace"],
    }
    layout: dict[str, Any] = {
        "xaxis": {"type": "category", "title": _title(split.across), "automargin": True, "side": "top"},
        "yaxis": {"type": "category", "title": _title(split.down), "automargin": True},
        "height": 130 + 30 * len(down),
        "minWidth": 120 + 54 * len(across),
    }
    named = found.get("named", ())
    if named:  # beneath the map, since sizes stand above it
        layout["legend"] = {"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0}
        layout["height"] += 30
    return [trace, *named], layout


def _ratio_cells(cells: Mapping[Any, Rated]) -> Mapping[str, Any]:
    logs = [abs(math.log2(r.ratio.estimate)) for r in cells.values() if r.ratio]
    most = max([*logs, math.log2(1.25)])
    trace = {"zmin": -most, "zmax": most, "scale": "diverging", "texttemplate": "%{text}"}
    return {"z": _log2, "text": _ratio, "trace": trace}


def _choice_cells(cells: Mapping[Any, Rated]) -> Mapping[str, Any]:
    """A choice's name in its cell, or a letter where many columns leave no room for it, with the names in a legend."""
    names = sorted({_choice(r) for r in cells.values()})
    trace = {"zmin": -0.5, "zmax": len(names) - 0.5, "scale": "choices", "choices": names, "texttemplate": "%{text}"}
    found = {"z": lambda r: names.index(_choice(r)), "text": _choice, "trace": trace}
    if len({across for _, across in cells}) < _FEW or len(names) > len(ascii_uppercase):
        return found
    letters = dict(zip(names, ascii_uppercase, strict=False))
    legend = [
        {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": f"{letters[name]}: {name}"}
        | {"role": "choice", "choice": index}
        for index, name in enumerate(names)
    ]
    return {**found, "text": lambda r: letters[_choice(r)], "named": legend}


def _log2(r: Rated) -> float:
    assert r.ratio is not None
    return math.log2(r.ratio.estimate)


def _ratio(r: Rated) -> str:
    assert r.ratio is not None
    return ("~" if 1.0 in r.ratio else "") + f"{r.ratio.estimate:.2f}"


def _choice(r: Rated) -> str:
    return label(r.row.algorithm or "unnamed")


def _hover(r: Rated) -> str:
    said = [label(r.row.case), f"{label(r.row.implementation)}: {units.microseconds(r.row.median_s)} us"]
    said += [f"{units.speedup(r.ratio.estimate)}x {units.plus_minus(r.ratio)}"] if r.ratio else []
    return "<br>".join(said)


def _sizes(values: Sequence[int]) -> str:
    return " × ".join(map(str, values)) or "all"


def _title(dims: Sequence[str]) -> dict[str, Any]:
    return {"text": label(" × ".join(dim.upper() for dim in dims)), "standoff": 12}
