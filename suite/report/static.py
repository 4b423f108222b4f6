"""Static rows as tables: what each kernel becomes on each target, and what changed against earlier code."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gemmgate.suite.compare import Comparison, Verdict
from gemmgate.suite.compiling.instructions import NOT_INSTALLED
from gemmgate.suite.gate import GateResult, fails
from gemmgate.suite.records import Row
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Style, Table, cells

LEGEND = (
    "A cell: tensor-core instruction (- for none), registers a thread, resident warps a multiprocessor; then, where "
    "there are any, bytes of spills a thread.",
    "The same cells for several cases share a line. x: not supported there, with the reason below.",
    "Tile: rule, what a kernel chooses without a table; tuned, what the tables hold for that architecture.",
)
_SHOWN = 2
"""Cases that a shared line names."""
_ORDER = (
    Verdict.SLOWER,
    Verdict.PICK_CHANGED,
    Verdict.INCOMPARABLE,
    Verdict.FASTER,
    Verdict.SAME,
)


def static_blocks(rows: Sequence[Row]) -> list[Block]:
    """A table an implementation, a column a target; what is not supported, with its reasons; and the seconds.

    Modules that need what is not installed are left out, as those of others do.
    """
    rows = [row for row in rows if row.reason != NOT_INSTALLED]
    targets = sorted({row.target for row in rows if row.target}, key=_target_order)
    found: list[Block] = []
    for implementation in dict.fromkeys(row.implementation for row in rows):
        mine = [row for row in rows if row.implementation == implementation]
        table = _table(implementation, mine, targets)
        found += [table] if table.rows else []
    if found:
        found.append(Notes(LEGEND))
    return [*found, *_refusals(rows), Notes(_summary(rows), "head")]


def static_comparison_blocks(comparisons: Sequence[Comparison], result: GateResult) -> list[Block]:
    """What changed for the worse first, a sentence for each change, and what the gate says."""
    told = [c for c in comparisons if c.reason not in ("not_measured", "same_code", "code_changed", "new")]
    ordered = sorted(told, key=lambda c: (not fails(c), _ORDER.index(c.verdict)))
    found: list[Block] = []
    if ordered:
        headers = ("verdict", "reason", "implementation", "case", "tile", "target", "kernel", "before", "after")
        found.append(Table("", tuple(Column(name) for name in headers), tuple(map(_change, ordered))))
        sentences: dict[str, list[str]] = defaultdict(list)
        for c in ordered:
            sentences[c.sentence].append(f"{c.row.path} {c.row.target}")
        said = (f"{names[0] if len(names) == 1 else f'{len(names)} kernels'}: {s}" for s, names in sentences.items())
        found.append(Notes(tuple(said), ""))
    counts = Counter(c.reason for c in comparisons)
    same = f"{units.counted(len(comparisons), 'kernel')}: {counts['same_code']} with the same code"
    same += f", {counts['code_changed']} with code that changed and shows no sign of it" * bool(counts["code_changed"])
    lines = [f"{same}. Nothing was timed.", *result.notes, f"{result.sentence} Exit code {result.exit_code}."]
    return [*found, Notes(tuple(lines), "head")]


def _table(implementation: str, rows: Sequence[Row], targets: Sequence[str]) -> Table:
    kernels: dict[tuple[str, str, str], dict[str, Row]] = defaultdict(dict)
    failed: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        tile = row.flags.get("tile", "")
        (kernels[row.phase, tile, row.case] if row.phase else failed[tile, row.case])[row.target] = row
    lines: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for (kernel, tile, case), found in kernels.items():
        found = failed[tile, case] | found
        lines[(kernel, tile, *(_cell(found.get(target)) for target in targets))].append(case)
    columns = (Column("kernel"), Column("tile"), Column("cases"), *(Column(target) for target in targets))
    shown = tuple(_line(key, cases) for key, cases in lines.items())
    return Table(implementation, columns, shown)


def _line(key: tuple[str, ...], cases: Sequence[str]) -> tuple[Cell, ...]:
    names = ", ".join(cases[:_SHOWN]) + (f" and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else "")
    return (*cells((*key[:2], names)), *(Cell(text, _style(text)) for text in key[2:]))


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.status != "ok":
        return "x"
    warps = "" if row.resident_warps is None else f" {row.resident_warps}w"
    return f"{row.tensor_core or '-'} {row.registers}r{warps}" + (f" {row.spill_bytes}B" if row.spill_bytes else "")


def _style(text: str) -> Style:
    return "bad" if text == "x" or text.endswith("B") else ""


def _change(c: Comparison) -> tuple[Cell, ...]:
    row = c.row
    style: Style = "bad" if fails(c) else "win" if c.verdict is Verdict.FASTER else "head"
    said = (c.reason, row.implementation, row.case, row.flags.get("tile", ""), row.target, row.phase)
    return (Cell(str(c.verdict), style), *cells((*said, _cell(c.baseline), _cell(c.candidate))))


def _refusals(rows: Sequence[Row]) -> list[Block]:
    """What is not ok, by reason and implementation."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.status != "ok":
            groups[row.status, row.reason, row.implementation].append(row)
    if not groups:
        return []
    headers = ("status", "reason", "implementation", "targets", "cases", "for example")
    columns = tuple(Column(name, right=name == "cases", wraps=name == "for example") for name in headers)
    lines = []
    for (status, reason, implementation), members in groups.items():
        targets = " ".join(sorted({row.target for row in members}, key=_target_order))
        example = ": ".join(filter(None, (members[0].case, members[0].detail)))
        said = (reason, implementation, targets, str(len({row.case for row in members})), example)
        is_fine = status == "unsupported" and all(row.flags.get("tile") != "tuned" for row in members)
        lines.append((Cell(status, "" if is_fine else "bad"), *cells(said)))
    return [Table("Not supported", columns, tuple(lines))]


def _summary(rows: Sequence[Row]) -> tuple[str, ...]:
    ok = [row for row in rows if row.status == "ok"]
    spills = sum(bool(row.spill_bytes) for row in ok)
    statuses = Counter(row.status for row in rows)
    codes = {row.cubin_sha: row.stages_s or {} for row in ok}
    seconds = _sum(codes.values())
    stages = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())
    said = ", ".join(f"{count} {status}" for status, count in statuses.items())
    lines = [f"{units.counted(len(rows), 'row')}: {said}; {spills} with spills; {units.counted(len(codes), 'code')}."]
    return (*lines, f"Seconds to compile them by stage: {stages}.") if stages else tuple(lines)


def _sum(stages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for of_one in stages:
        for name, seconds in of_one.items():
            total[name] += seconds
    return total


def _target_order(target: str) -> tuple[str, int, str]:
    """sm_80 before sm_100, AMD's last."""
    found = re.match(r"([a-z_]+)([0-9a-f]+)(.*)", target)
    if found is None:
        return ("~", 0, target)
    vendor = "a" if found[1].startswith("sm") else "b"
    return (vendor, int(found[2], 16), found[3])
