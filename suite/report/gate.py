"""A gate as blocks, as Markdown for a job summary or a comment, and as JSON: the worst first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gemmgate.suite.compare import Verdict
from gemmgate.suite.judged import Judged
from gemmgate.suite.judgement import Judgement
from gemmgate.suite.records import Row
from gemmgate.suite.report import markdown, units
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Style, Table, cells
from gemmgate.suite.report.rows import SCHEMA, finite
from gemmgate.suite.resampling import GATE_CASES
from gemmgate.suite.watch import Watched

SHOWN = 10
"""Items above the fold of the Markdown."""
_COLUMNS = (
    Column("verdict"),
    Column("item"),
    Column("base us", right=True),
    Column("head us", right=True),
    Column("change", right=True),
    Column("95% interval", right=True, drop=1),
    Column("blocks", right=True, drop=4),
    Column("would see", right=True, drop=3),
    Column("standing", drop=5),
    Column("reason", drop=2),
)


def blocks(found: Judgement) -> list[Block]:
    """Sides, table, a sentence for each item that needs one, and what the gate says."""
    return [Notes(tuple(_head(found))), _table(found, found.items), *_said(found, found.items), _summary(found)]


def gate_markdown(found: Judgement) -> str:
    """What the gate says first, then the worst items with their sentences; the rest is folded."""
    telling = [one for one in found.items if not _is_quiet(one)][:SHOWN]
    shown = telling or list(found.items[:SHOWN])
    rest = [one for one in found.items if one not in shown]
    sign = {0: "✅", 1: "❌"}.get(found.result.exit_code, "⚠️")
    parts = [f"### {sign} {found.result.sentence}\n", markdown.render([_table(found, shown), *_said(found, shown)])]
    if rest:
        folded = markdown.render([_table(found, rest), *_said(found, rest)])
        parts.append(f"<details><summary>{units.counted(len(rest), 'more item')}</summary>\n\n{folded}\n</details>\n")
    parts.append(markdown.render([Notes((*_remarks(found), *_head(found)))]))
    return "\n".join(parts)


def gate_json(found: Judgement) -> dict[str, Any]:
    """Strict JSON values: null for what is not finite."""
    selection = found.run.selection
    made: dict[str, Any] = finite(
        {
            "schema": SCHEMA,
            "run": found.run.id,
            "machine": found.run.machine.key,
            "board": found.run.machine.board,
            "base": dict(selection["base"]),
            "head": dict(selection["head"]),
            "exit_code": found.result.exit_code,
            "sentence": found.result.sentence,
            "notes": [*found.result.notes, *found.notes],
            "failed": sorted(found.is_failed),
            "unjudged": [comparison.row.path for comparison in found.result.unjudged],
            "accepted": dict(found.applied.accepted),
            "seconds": dict(found.run.seconds),
            "items": [_item_json(one) for one in found.items],
        }
    )
    return made


def watch_blocks(found: Watched) -> list[Block]:
    """What gates of unchanged code show about the gate."""
    lines = []
    if found.share is None:
        lines.append("No gate of unchanged code is stored: `gemmgate gate --base HEAD --head HEAD` makes one.")
    else:
        alarms = "alarm" if found.alarms == 1 else "alarms"
        lines.append(
            f"{found.alarms} false {alarms} in {units.counted(found.gates, 'gate')} of unchanged code: "
            f"at most {found.share.high:.1%} of gates, with 95 % confidence."
        )
        lines.append(f"{units.counted(found.unjudged, 'gate')} of them could not judge an item.")
    if found.untimed:
        lines.append(
            f"{units.counted(found.untimed, 'gate')} of unchanged code on a CPU, where times are not judged, "
            "says nothing about false alarms."
        )
    if found.resampled:
        played = found.resampled
        lines.append(
            f"Played on recorded blocks, {found.resampled_blocks} a case or more: {played.alarms} of "
            f"{units.counted(played.gates, 'gate')} over {GATE_CASES} cases ring in vain "
            f"(95 % confidence: at most {played.false_alarms.high:.1%}), {played.unjudged} cannot judge."
        )
    lines += [f"{gate}: {path} was called slower." for gate, path in found.alarmed]
    lines += [
        f"{move.path} is now {move.after}, was {move.before}: {move.sd:.2%} over {move.blocks} blocks."
        for move in found.moves
    ]
    columns = (Column("item"), Column("blocks", right=True), Column("sd", right=True), Column("is"))
    noisiest = sorted(found.noise.items(), key=lambda one: -one[1].sd)
    rows = [(path, str(n.blocks), f"{n.sd:.2%}", n.rule.standing) for path, n in noisiest]
    table: list[Block] = [Table("", columns, tuple(map(cells, rows)))] if rows else []
    return [*table, Notes(tuple(lines), "")]


def side_text(told: Mapping[str, Any]) -> str:
    """`0a1b2c3d4e (origin/main)`, as a side stands in a stored gate."""
    word = told["revision"] or "the tree"
    python = f" in {told['python']}" if told.get("python") else ""
    return f"{told['commit'][:10]}{' and changes' if told['dirty'] else ''} ({word}){python}"


def _head(found: Judgement) -> list[str]:
    run = found.run
    seconds = run.seconds.get("total")
    took = f" · {seconds / 60:.1f} minutes" if seconds else ""
    return [
        f"base {side_text(run.selection['base'])} · head {side_text(run.selection['head'])}",
        f"{run.machine.model} ({run.machine.key}, board {run.machine.board or 'unknown'}) · gate {run.id}{took}",
    ]


def _table(found: Judgement, items: Sequence[Judged]) -> Table:
    return Table("", _COLUMNS, tuple(_row(one, found) for one in items)).without_empty_columns()


def _row(one: Judged, found: Judgement) -> tuple[Cell, ...]:
    comparison = one.comparison
    failed = one.path in found.is_failed
    style: Style = "bad" if failed else "win" if comparison.verdict is Verdict.FASTER else ""
    change = units.NONE if comparison.change is None else f"{comparison.change:+.1%}"
    ratio = comparison.ratio
    interval = f"[{1 / ratio.high - 1:+.1%}, {1 / ratio.low - 1:+.1%}]" if ratio and ratio.low > 0 else ""
    smallest = one.smallest
    sees = "" if smallest is None or not math.isfinite(smallest) or not found.times_count else f"{smallest:.1%}"
    return (
        Cell(str(comparison.verdict), style or ("dim" if comparison.verdict is Verdict.SAME else "head")),
        *cells((one.path,)),
        *cells((_time(comparison.baseline), _time(comparison.candidate), change, interval), style),
        *cells((str(one.blocks) if one.blocks else "", sees, one.standing if found.times_count else "")),
        *cells((comparison.reason,)),
    )


def _time(row: Row | None) -> str:
    if row is None:
        return units.NONE
    if row.status != "ok":
        return row.status
    return units.microseconds(row.median_s) if row.median_s is not None else ""


def _is_quiet(one: Judged) -> bool:
    """Nothing to tell beyond the table."""
    comparison = one.comparison
    if comparison.verdict is Verdict.SAME:
        return "The pick" not in one.cause and "search chose" not in one.cause
    return comparison.reason in ("new", "not_measured", "cpu")


def _said(found: Judgement, items: Sequence[Judged]) -> list[Block]:
    lines = []
    for one in items:
        if _is_quiet(one):
            continue
        lines.append(" ".join(filter(None, [f"{one.path}: {one.comparison.sentence}", one.cause])))
        if one.path in found.is_failed:
            lines.append(f"    again: {one.repro}")
    return [Notes(tuple(lines), "")] if lines else []


def _remarks(found: Judgement) -> list[str]:
    counts = Counter(one.comparison.verdict for one in found.items)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    return [f"{units.counted(len(found.items), 'item')}: {summary}.", *found.result.notes, *found.notes]


def _summary(found: Judgement) -> Notes:
    return Notes((*_remarks(found), f"{found.result.sentence} Exit code {found.result.exit_code}."), "head")


def _item_json(one: Judged) -> dict[str, Any]:
    comparison, row = one.comparison, one.comparison.row
    return {
        "path": one.path,
        "family": row.family,
        "case": row.case,
        "implementation": row.implementation,
        "cache": row.cache,
        "verdict": str(comparison.verdict),
        "reason": comparison.reason,
        "sentence": comparison.sentence,
        "cause": one.cause,
        "change": comparison.change,
        "ratio": comparison.ratio.estimate if comparison.ratio else None,
        "ratio_low": comparison.ratio.low if comparison.ratio else None,
        "ratio_high": comparison.ratio.high if comparison.ratio else None,
        "blocks": one.blocks,
        "block_sd": one.noise.sd if one.noise else None,
        "noise_from": one.noise.source if one.noise else None,
        "standing": one.standing,
        "smallest_seen": one.smallest,
        "baseline_s": comparison.baseline.median_s if comparison.baseline else None,
        "candidate_s": comparison.candidate.median_s if comparison.candidate else None,
        "error": comparison.candidate.error if comparison.candidate else None,
        "error_bound": comparison.candidate.error_bound if comparison.candidate else None,
        "repro": one.repro,
    }
