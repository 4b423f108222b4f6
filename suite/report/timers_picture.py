"""A comparison of benchmark functions as a picture: the reading over the kernels' own time, by that time. SVG.

Drawn here, digit for digit the same each time, so that a test can hold the committed file against the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from gemmgate.suite.records import Run
from gemmgate.suite.report import units
from gemmgate.suite.report.timers import Reading, compared

_WIDTH, _HEIGHT = 800, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 256, 40, 52
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#e69f00", "#999999")
"""Okabe and Ito's, which most people can tell apart."""
_TICKS = (0.5, 0.8, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50)


def timers_picture(run: Run) -> str:
    """The picture of a run; one with axes alone where nothing in it has a bias."""
    found = [reading for reading in compared(run) if reading.kernels_s]
    drawn = _Axes(found)
    title = f"Reading over the kernels' own time, {escape(run.machine.model)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{title}</text>',
        *drawn.grid(),
        *drawn.lines(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Axes:
    """Both logarithmic: a factor looks the same wherever it is."""

    def __init__(self, found: Sequence[Reading]) -> None:
        self._found = found
        times_us = [1e6 * (reading.kernels_s or 0.0) for reading in found] or [1.0, 100.0]
        ratios = [1 + (reading.bias or 0.0) for reading in found] or [1.0]
        self._x = _range(min(times_us), max(times_us))
        self._y = _range(min(*ratios, 0.9), max(*ratios, 1.5))

    def x(self, time_us: float) -> str:
        low, high = self._x
        return f"{_LEFT + _share(time_us, low, high) * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def y(self, ratio: float) -> str:
        low, high = self._y
        return f"{_HEIGHT - _BOTTOM - _share(ratio, low, high) * (_HEIGHT - _TOP - _BOTTOM):.1f}"

    def grid(self) -> Iterator[str]:
        """Lines, numbers and names of the axes; the line at 1 is where a reading is the kernels' own time."""
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        for tick in _TICKS:
            if self._y[0] <= tick <= self._y[1]:
                stroke = '#444444" stroke-width="1.5' if tick == 1 else "#dddddd"
                yield f'<line x1="{_LEFT}" y1="{self.y(tick)}" x2="{right}" y2="{self.y(tick)}" stroke="{stroke}"/>'
                yield f'<text x="{_LEFT - 8}" y="{self.y(tick)}" dy="4" text-anchor="end">{tick:g}x</text>'
        for tick in _decades(*self._x):
            yield f'<line x1="{self.x(tick)}" y1="{_TOP}" x2="{self.x(tick)}" y2="{bottom}" stroke="#dddddd"/>'
            yield f'<text x="{self.x(tick)}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>'
        middle = (_LEFT + right) / 2
        yield f'<text x="{middle:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">us in kernels, by CUPTI</text>'

    def lines(self) -> Iterator[str]:
        """A line of points a function, and its name."""
        timers = list(dict.fromkeys(reading.timer for reading in self._found))
        for index, timer in enumerate(timers):
            color = _COLORS[index % len(_COLORS)]
            mine = sorted((r for r in self._found if r.timer == timer), key=lambda r: r.kernels_s or 0.0)
            points = [(self.x(1e6 * (r.kernels_s or 0.0)), self.y(1 + (r.bias or 0.0)), r) for r in mine]
            path = " ".join(f"{x},{y}" for x, y, _ in points)
            yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>'
            for x, y, reading in points:
                said = f"{reading.timer}, {reading.path}: {units.microseconds(reading.median_s)} us"
                yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color}"><title>{escape(said)}</title></circle>'
            at = _TOP + 18 * index + 6
            left = _WIDTH - _RIGHT + 16
            yield f'<line x1="{left}" y1="{at}" x2="{left + 18}" y2="{at}" stroke="{color}" stroke-width="3"/>'
            state = mine[0].cache
            name = timer if timer.endswith(state) else f"{timer} ({state})"
            yield f'<text x="{left + 24}" y="{at + 4}" font-size="11">{escape(name)}</text>'


def _range(low: float, high: float) -> tuple[float, float]:
    return low / 1.15, high * 1.15


def _share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)


def _decades(low: float, high: float) -> list[float]:
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [first * 10.0**exponent for exponent in exponents for first in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]
