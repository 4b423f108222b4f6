"""Two runs side by side, as blocks and as JSON: what stops a change first, what stayed the same last."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from gemmgate.suite.compare import Comparison, Verdict
from gemmgate.suite.gate import GateResult, fails
from gemmgate.suite.records import Row
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Style, Table, cells
from gemmgate.suite.report.rows import SCHEMA, finite

_ORDER = (
    Verdict.BROKEN,
    Verdict.SLOWER,
    Verdict.PICK_CHANGED,
    Verdict.UNCLEAR,
    Verdict.INCOMPARABLE,
    Verdict.FASTER,
    Verdict.SAME,
)


def blocks(comparisons: Sequence[Comparison], gate_result: GateResult | None) -> list[Block]:
    """The table, a sentence for each row that is not the same, and what the gate says."""
    told = [c for c in comparisons if c.reason != "not_measured"]
    ordered = sorted(told, key=lambda c: (not fails(c), _ORDER.index(c.verdict)))
    found: list[Block] = [_table(ordered)] if ordered else [Notes(("No rows to compare.",), "")]
    sentences: dict[str, list[str]] = defaultdict(list)
    for c in ordered:
        if _has_more_to_say(c):
            sentences[c.sentence].append(_name(c))
    if sentences:
        said = (f"{names[0] if len(names) == 1 else f'{len(names)} rows'}: {s}" for s, names in sentences.items())
        found.append(Notes(tuple(said), ""))
    counts = Counter(c.verdict for c in ordered)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _ORDER if counts[verdict])
    lines = [f"{units.counted(len(ordered), 'row')}: {summary}."] if ordered else []
    unmeasured = len(comparisons) - len(ordered)
    if gate_result is None:
        lines += [f"{units.counted(unmeasured, 'row')} not measured in the baseline either."] if unmeasured else []
    else:
        lines += [*gate_result.notes, f"{gate_result.sentence} Exit code {gate_result.exit_code}."]
    if lines:
        found.append(Notes(tuple(lines), "head"))
    return found


def _table(comparisons: Sequence[Comparison]) -> Table:
    names = ("verdict", "family", "case", "implementation", "cache")
    numbers = ("baseline us", "candidate us", "change", "95% interval")
    columns = (*(Column(name) for name in names), *(Column(name, right=True) for name in numbers))
    several = len({c.row.family for c in comparisons}) > 1
    rows = tuple(_row(c, c.row.family if several else "") for c in comparisons)
    return Table("", (*columns, Column("value of", drop=1), Column("reason", drop=2)), rows).without_empty_columns()


def _has_more_to_say(c: Comparison) -> bool:
    return c.reason != "new" and (c.verdict is not Verdict.SAME or "The pick changed" in c.sentence)


def comparisons_json(comparisons: Sequence[Comparison], gate_result: GateResult | None = None) -> dict[str, Any]:
    """`{"schema": 1, "gate": ..., "comparisons": [...]}` as given; strict JSON, null for what is not finite."""
    gate = None
    if gate_result is not None:
        gate = {
            "exit_code": gate_result.exit_code,
            "sentence": gate_result.sentence,
            "notes": gate_result.notes,
            "failed": [_name(c) for c in gate_result.failed],
            "unjudged": [_name(c) for c in gate_result.unjudged],
        }
    made: dict[str, Any] = finite({"schema": SCHEMA, "gate": gate, "comparisons": [_json(c) for c in comparisons]})
    return made


def _json(c: Comparison) -> dict[str, Any]:
    names = ("family", "case", "implementation", "kind", "cache", "phase", "target")
    return {
        **{name: getattr(c.row, name) for name in names},
        "verdict": str(c.verdict),
        "reason": c.reason,
        "sentence": c.sentence,
        "ratio": c.ratio.estimate if c.ratio else None,
        "ratio_low": c.ratio.low if c.ratio else None,
        "ratio_high": c.ratio.high if c.ratio else None,
        "change": c.change,
        "baseline": _side(c.baseline),
        "candidate": _side(c.candidate),
    }


def _side(row: Row | None) -> dict[str, Any] | None:
    names = ("run_id", "commit", "utc", "board", "status", "median_s", "value", "unit", "tile", "algorithm", "marks")
    return None if row is None else {name: getattr(row, name) for name in names}


def _row(c: Comparison, family: str) -> tuple[Cell, ...]:
    style: Style = "bad" if fails(c) else "win" if c.verdict is Verdict.FASTER else ""
    change = units.NONE if c.change is None else f"{c.change:+.1%}"
    numbers = (*(_number(row) for row in (c.baseline, c.candidate)), change, _interval(c))
    return (
        Cell(str(c.verdict), style or ("dim" if c.verdict is Verdict.SAME else "head")),
        *cells((family, c.row.case, c.row.implementation, c.row.cache)),
        *cells(numbers, style),
        *cells((_what(c.row), c.reason)),
    )


def _number(row: Row | None) -> str:
    if row is None:
        return units.NONE
    if row.status != "ok":
        return row.status
    return units.microseconds(row.median_s) if row.kind == "time" else units.plain(row.value)


def _what(row: Row) -> str:
    """What a value is that is no time."""
    return "" if row.kind == "time" else " ".join(word for word in (row.kind, row.phase, row.unit) if word)


def _interval(c: Comparison) -> str:
    if c.ratio is None or c.ratio.low <= 0:
        return ""
    return f"[{1 / c.ratio.high - 1:+.1%}, {1 / c.ratio.low - 1:+.1%}]"


def _name(c: Comparison) -> str:
    return f"{c.row.path} {c.row.cache}".strip()
