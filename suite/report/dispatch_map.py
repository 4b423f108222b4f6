"""The dispatch map: which implementation for which size and shape, as a picture that any browser shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from gemmgate.suite.learning.points import Point
from gemmgate.suite.learning.tree import Tree, described
from gemmgate.suite.report import units

_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#999999",
    "#44aa99",
    "#882255",
)
"""Okabe and Ito's, which people who see red and green alike can tell apart, and some more."""
_CELL_W, _CELL_H, _TOP, _LINE, _LETTER = 50, 22, 92, 16, 7
_COSTS = 1.02
"""From this regret on, a cell says it."""


Choose = Callable[[Point], str | None]
"""What is run for a point; None where the choice is refused and the point's yardstick runs."""


def dispatch_map(
    points: Sequence[Point],
    choose: Choose,
    title: str,
    below: Sequence[str] = (),
    costs: Mapping[str, float | None] | None = None,
    names: Mapping[str, str] | None = None,
) -> str:
    """SVG: a row for each group of sizes and words, a column for each first size. `title` says whose choice it is.

    A cell's colour is what is chosen, a dot in another colour what was fastest; where the choice costs 2 % or more,
    the cell says by which factor. Hatched: refused. `below` are lines of text, such as those of a tree. `costs` has by
    case what a choice costs where that is not the time of what was chosen over the best; where it is None nobody knows,
    and the cell has no dot. `names` has by case what its row is called besides its sizes.
    """
    number = f"what the choice costs from {_COSTS - 1:.0%} on (number)"
    title += f" (colour), what was fastest (dot), {number}; blank: not measured"
    along = next(iter(points[0].dims))
    columns = sorted({point.dims[along] for point in points})
    has_machine = len({point.words.get("machine") for point in points}) > 1
    ordered = sorted(points, key=lambda p: (list(p.dims.values())[1:], p.case))
    row_of = {p.case: _row(p, along, (names or {}).get(p.case, ""), has_machine=has_machine) for p in points}
    rows = list(dict.fromkeys(row_of[p.case] for p in ordered))
    by_place = {(row_of[point.case], point.dims[along]): point for point in points}
    left = 24 + _LETTER * max(map(len, rows))
    chosen_names = sorted({point.best for point in points} | set(filter(None, map(choose, points))))
    colour = {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(chosen_names)}
    body = [_text(left + (index + 0.5) * _CELL_W, _TOP - 6, str(size), "middle") for index, size in enumerate(columns)]
    body.append(_text(left - 8, _TOP - 6, along, "end"))
    for line, row in enumerate(rows):
        y = _TOP + line * _CELL_H
        body.append(_text(left - 8, y + 15, row, "end"))
        for index, size in enumerate(columns):
            point = by_place.get((row, size))
            if point is not None:
                chosen = choose(point)
                regret = costs[point.case] if costs else point.regret(chosen or point.yardstick)
                body += _cell(left + index * _CELL_W, y, point, chosen, regret, colour)
    top = _TOP + len(rows) * _CELL_H + 2 * _LINE
    body += [
        _text(16, top + line * _LINE, text.replace("  ", "\u00a0\u00a0\u00a0\u00a0")) for line, text in enumerate(below)
    ]
    width = max(left + len(columns) * _CELL_W + 16, 32 + (_LETTER + 2) * len(title))
    height = top + len(below) * _LINE + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            'font-size="12">',
            '<defs><pattern id="refused" width="6" height="6" patternUnits="userSpaceOnUse">'
            '<path d="M0 6 6 0" stroke="#666"/></pattern></defs>',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            f'<text x="16" y="22" font-size="14" font-weight="bold">{escape(title)}</text>',
            *_legend(chosen_names, colour),
            *body,
            "</svg>",
            "",
        ]
    )


def tree_map(points: Sequence[Point], tree: Tree) -> str:
    """The map of what a tree chooses, with the tree below."""
    title = f"{tree.family}: what the tree chooses"
    return dispatch_map(points, lambda point: tree.choose(point.dims, point.words), title, described(tree))


def _row(point: Point, along: str, name: str, *, has_machine: bool) -> str:
    sizes = [f"{dim}{size}" for dim, size in point.dims.items() if dim != along]
    words = [word for kind, word in point.words.items() if word and kind in ("dtype", "epilogue") and word != "none"]
    machine = [point.words.get("machine", "")] if has_machine else []
    return " ".join([*([f"{name}:"] if name else []), *sizes, *words, *machine])


def _cell(
    x: float, y: float, point: Point, chosen: str | None, regret: float | None, colour: dict[str, str]
) -> list[str]:
    fill = colour[chosen] if chosen else "url(#refused)"
    best = f", best {point.best} {units.microseconds(point.times_s[point.best])} us" if regret is not None else ""
    title = f"{point.case}: {chosen or 'refused'}{best}"
    found = [
        f'<rect x="{x}" y="{y}" width="{_CELL_W - 2}" height="{_CELL_H - 2}" fill="{fill}">'
        f"<title>{escape(title)}</title></rect>"
    ]
    if point.best != chosen and regret is not None:
        found.append(
            f'<circle cx="{x + 9}" cy="{y + 10}" r="4" fill="{colour[point.best]}" stroke="#fff" stroke-width="1"/>'
        )
    if regret is not None and regret >= _COSTS:
        said = f"{regret:.2f}" if regret < 10 else "\u221e"
        found.append(_text(x + _CELL_W - 6, y + 14, said, "end", "#fff" if _is_dark(fill) else "#000"))
    return found


def _is_dark(fill: str) -> bool:
    """Whether white is easier to read on a colour than black, by its luminance as the eye weighs it."""
    if not fill.startswith("#"):
        return False
    red, green, blue = (int(fill[start : start + 2], 16) for start in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 128


def _legend(names: Sequence[str], colour: dict[str, str]) -> list[str]:
    found, x = [], 16.0
    for name in names:
        found.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{colour[name]}"/>')
        found.append(_text(x + 16, 47, name))
        x += 34 + 7 * len(name)
    return found


def _text(x: float, y: float, text: str, anchor: str = "start", fill: str = "#000") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
