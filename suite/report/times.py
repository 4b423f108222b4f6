"""The table of a family's times: a line for each implementation on each case, its cache states side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gemmgate.suite.compare import Rated
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.report import units
from gemmgate.suite.report.best import MEANING, fastest, is_same
from gemmgate.suite.report.layout import Cell, Column, Notes, Style, Table, cells

CACHE_ORDER = ("cold", "serving", "hot")
_EAGER_LOSS = 1.03
_ABOVE = 1.005
"""A share of the roof that reads as more than 100%."""
_VARIANT = ("timer", "data", "seed", "phase", "target")


@dataclass(frozen=True)
class Line:
    """One implementation on one case: its rows by cache state."""

    case: str
    implementation: str
    label: str
    by_cache: Mapping[str, Rated]

    def first_ok(self) -> Rated | None:
        return next((rated for rated in self.by_cache.values() if rated.row.status == "ok"), None)

    def is_yardstick(self) -> bool:
        return any(rated.row.implementation == rated.yardstick for rated in self.by_cache.values())


def cache_states(rows: Iterable[Row]) -> list[str]:
    """The cache states present, the most telling first."""
    present = {row.cache for row in rows}
    return [name for name in CACHE_ORDER if name in present] + sorted(present - set(CACHE_ORDER))


def group(rated: Sequence[Rated]) -> list[Line]:
    """Lines, grouped by case in the order of the run, the yardstick first."""
    groups: dict[str, dict[tuple[object, ...], dict[str, Rated]]] = {}
    for r in rated:
        key = (r.row.implementation, *(getattr(r.row, name) for name in _VARIANT), tuple(sorted(r.row.flags.items())))
        groups.setdefault(r.row.case, {}).setdefault(key, {})[r.row.cache] = r
    lines = []
    for case, variants in groups.items():
        twice = Counter(str(key[0]) for key in variants)
        made = [
            Line(case, str(key[0]), _label(key, variants) if twice[str(key[0])] > 1 else str(key[0]), _sorted(by_cache))
            for key, by_cache in variants.items()
        ]
        lines += sorted(made, key=lambda line: not line.is_yardstick())
    return lines


def _sorted(by_cache: Mapping[str, Rated]) -> dict[str, Rated]:
    return {name: by_cache[name] for name in cache_states(r.row for r in by_cache.values())}


def _label(key: tuple[object, ...], variants: Iterable[tuple[object, ...]]) -> str:
    """The name with what tells it from its namesakes: `triton_split_k (seed 3)`."""
    others = [other for other in variants if other[0] == key[0]]
    names = (*_VARIANT, "flags")
    differing = [i for i in range(len(names)) if len({other[i + 1] for other in others}) > 1]
    said = ", ".join(f"{names[i]} {_value(key[i + 1])}" for i in differing)
    return f"{key[0]} ({said})"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{name}={item}" for name, item in value) or "none"
    return str(value) if value != "" else "none"


def times(title: str, lines: Sequence[Line], caches: Sequence[str], yardsticks: Sequence[str], limits: Limits) -> Table:
    """Every number that a person judges a kernel by; the ratios belong to the first of `caches`."""
    against = yardsticks[0] if len(yardsticks) == 1 else "yardstick"
    first, others = caches[0], caches[1:]
    leads = [lead.row for line in lines if (lead := line.first_ok())]
    rates = units.rate_columns(leads, limits)
    columns = [
        Column("case", drop=6, stacks=True),
        Column(""),
        Column("implementation"),
        Column(f"{first} us".strip(), right=True),
    ]
    columns += [Column(f"x {against}", right=True), Column("±", right=True)]
    for name in others:
        columns += [Column(f"{name} us", right=True), Column(f"x {name}", right=True, drop=8)]
    columns += [
        *(Column(rate.header, right=True, drop=2 if rate.counts_bytes else 3) for rate in rates),
        Column("roof", right=True, drop=1),
        Column("error x", right=True, drop=4),
        Column("kernels", right=True, drop=5),
        Column("host us", right=True, drop=7),
        Column("eager us", right=True, drop=9),
        Column("marks", wraps=True),
    ]
    best_lines = _best(lines, first)
    usual_timer = Counter(r.row.timer for line in lines for r in line.by_cache.values()).most_common(1)[0][0]
    rows = []
    before = ""
    for line in lines:
        best: Style = "best" if id(line) in best_lines else ""
        lead = line.first_ok()
        assert lead is not None
        row = [Cell("" if line.case == before else line.case, "head"), Cell("*" if best else "", best)]
        row += [Cell(line.label, best), _time(line, first, best), *_ratio(line, first)]
        for name in others:
            row += [_time(line, name, ""), _ratio(line, name)[0]]
        row += cells(
            (
                *(rate.text(lead.row, limits) for rate in rates),
                units.share(lead.roof_share),
                units.multiple(lead.error_vs_yardstick),
                units.NONE if lead.row.kernels is None else str(lead.row.kernels),
                units.microseconds(lead.row.host_s),
                units.microseconds(lead.row.eager_s),
            )
        )
        rows.append((*row, Cell(_marks(line, usual_timer), "bad")))
        before = line.case
    return Table(title, tuple(columns), tuple(rows)).without_empty_columns()


def _best(lines: Sequence[Line], cache: str) -> set[int]:
    """The `id` of each line that is among the fastest of its case in one cache state."""
    cases: dict[str, list[Rated]] = defaultdict(list)
    for line in lines:
        if cache in line.by_cache:
            cases[line.case].append(line.by_cache[cache])
    found = {id(rated) for members in cases.values() for rated in fastest(members)}
    return {id(line) for line in lines if id(line.by_cache.get(cache)) in found}


def _time(line: Line, cache: str, style: Style) -> Cell:
    if cache not in line.by_cache:
        return Cell(units.NONE, "dim")
    row = line.by_cache[cache].row
    return Cell(units.microseconds(row.median_s), style) if row.status == "ok" else Cell(row.status, "bad")


def _ratio(line: Line, cache: str) -> tuple[Cell, Cell]:
    """Ratio and its interval; `~` where the interval holds 1."""
    rated = line.by_cache.get(cache)
    if rated is None or rated.ratio is None:
        return Cell(units.NONE, "dim"), Cell("")
    if rated.row.implementation == rated.yardstick:
        return Cell(units.speedup(1.0), "dim"), Cell("")
    ratio = rated.ratio
    style: Style = "dim" if is_same(ratio) else "win" if ratio.estimate > 1 else "loss"
    return Cell(("~" if style == "dim" else "") + units.speedup(ratio.estimate), style), Cell(
        units.plus_minus(ratio), "dim"
    )


def _marks(line: Line, usual_timer: str) -> str:
    """Marks of all cache states; one that only some have is followed by those."""
    where: dict[str, list[str]] = defaultdict(list)
    for cache, rated in line.by_cache.items():
        for mark in rated.row.marks:
            where[mark].append(cache)
        if rated.row.cache_proof == "failed":
            where[f"not {cache}" if cache else "cache state disproved"].append(cache)
        if rated.row.timer != usual_timer:
            where[f"timer {rated.row.timer}"].append(cache)
    everywhere = len(line.by_cache)
    return ", ".join(
        mark if len(found) == everywhere or mark.startswith("not ") else f"{mark} ({' '.join(found)})"
        for mark, found in where.items()
    )


def _eager_losses(lines: Sequence[Line], cache: str) -> list[str]:
    """Who wins as a kernel and loses as a call: the host's part is in the eager time alone."""
    eager = {
        line.case: line.by_cache[cache].row.eager_s for line in lines if line.is_yardstick() and cache in line.by_cache
    }
    losers: Counter[str] = Counter()
    for line in lines:
        rated, other_s = line.by_cache.get(cache), eager.get(line.case)
        if rated is None or rated.ratio is None or not rated.row.eager_s or not other_s:
            continue
        if rated.ratio.low > 1 and rated.row.eager_s > _EAGER_LOSS * other_s:
            losers[line.implementation] += 1
    if not losers:
        return []
    said = ", ".join(f"{name} in {units.counted(count, 'case')}" for name, count in losers.items())
    return [f"Faster in a graph, slower when called one by one, where the host counts: {said}."]


def legend(lines: Sequence[Line], caches: Sequence[str]) -> Notes:
    """What the signs mean, and what the table cannot claim."""
    rated = [r for line in lines for r in line.by_cache.values() if r.row.status == "ok"]
    notes = []
    if any(r.ratio for r in rated):
        marked = f" * or bold: {MEANING}." if _best(lines, caches[0]) else ""
        notes.append(
            f"x: the yardstick's time over this one's in the same rounds, {caches[0] or 'as measured'}; above 1 is "
            f"faster. ±: 95% interval; ~ where it holds 1.{marked}"
        )
    if any(r.error_vs_yardstick is not None for r in rated):
        notes.append(
            "error x: error against float64 over the yardstick's. roof: least time the machine allows over time."
        )
    if any((lead.roof_share or 0.0) >= _ABOVE for line in lines if (lead := line.first_ok())):
        notes.append(
            "Above 100%, the roof was read too low, as beside other programs: gemmgate calibrate takes its time."
        )
    notes += _eager_losses(lines, caches[0])
    unproven = sum(r.row.cache_proof == "unknown" for r in rated)
    if unproven:
        notes.append(f"The cache state is not proven in {unproven} of {units.counted(len(rated), 'measurement')}.")
    why = Counter(
        (line.label, r.why) for line in lines for r in line.by_cache.values() if r.why and r.row.status == "ok"
    )
    notes += [f"No ratio for {name} in {units.counted(n, 'measurement')}: {said}" for (name, said), n in why.items()]
    return Notes(tuple(notes))
