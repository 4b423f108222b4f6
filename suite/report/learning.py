"""What was learned and what choices cost, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemmgate.suite.learning.score import Regret, Scored, by_first_size, summed
from gemmgate.suite.learning.tree import described
from gemmgate.suite.report import units
from gemmgate.suite.report.layout import Block, Column, Notes, Table, cells

if TYPE_CHECKING:
    from gemmgate.suite.learning.fit import Learned
    from gemmgate.suite.learning.ranges import Found

_WORST, _NAMED = 5, 2


def learned_blocks(learned: Learned) -> list[Block]:
    """The depths with what they cost on held-out sizes, the tree, and its regret for each first size."""
    tree = learned.tree
    depths = [
        (("*" if depth == learned.depth else ""), str(depth), units.speedup(mean))
        for depth, mean in learned.by_depth.items()
    ]
    table = Table(
        "Depth by cost on sizes held out",
        (Column(""), Column("depth", right=True), Column("mean regret", right=True)),
        tuple(map(cells, depths)),
    )
    inside, everywhere = learned.inside, learned.everywhere
    notes = [
        f"Learned from {units.counted(len(learned.points), 'case')} in "
        f"{units.counted(len({p.group for p in learned.points}), 'group')} of sizes.",
        f"On groups held out: {_said(inside)}." if inside.cases else said_of_held_out(learned),
        f"Beyond the sizes that a tree had seen it refuses, and the case's own yardstick runs: "
        f"{learned.refused} of {units.counted(everywhere.cases, 'case')}; with these, {_said(everywhere)}.",
    ]
    return [
        table,
        Notes(tuple(notes)),
        Notes(tuple(described(tree)), ""),
        *score_blocks("held out", learned.held_out),
    ]


def said_of_held_out(learned: Learned) -> str:
    """What trees of this depth cost on sizes that they had not seen, or that nobody knows."""
    inside = learned.inside
    if not inside.cases:
        return "No group held out lay within the sizes of the others, so nobody knows what it costs on new ones."
    said = f"Mean regret on sizes held out {inside.mean:.4f}, worst {inside.worst:.3f}."
    if not learned.refused:
        return said
    everywhere = learned.everywhere
    return (
        f"{said} With the {learned.refused} of {everywhere.cases} that were refused and got the yardstick: "
        f"{everywhere.mean:.4f}, worst {everywhere.worst:.3f} ({everywhere.worst_case})."
    )


def ranges_blocks(found: Sequence[Found]) -> list[Block]:
    """The ranges of each group with what they cost, and the regret over all."""
    rows = []
    for one in found:
        regret = summed(one.scored)
        ranges = ", ".join(f"<= {r.up_to} {r.candidate}" for r in one.ranges)
        rows.append(
            cells((one.key, ranges, units.speedup(regret.mean), units.speedup(regret.worst), regret.worst_case))
        )
    columns = (
        Column("shape"),
        Column("ranges", wraps=True),
        Column("mean regret", right=True),
        Column("worst", right=True),
        Column("worst case"),
    )
    everything = [scored for one in found for scored in one.scored]
    notes = Notes(tuple(_said_of_gaps(found)))
    return [
        Table("Ranges", columns, tuple(rows)),
        *([notes] if notes.lines else []),
        *score_blocks("ranges", everything),
    ]


def _said_of_gaps(found: Sequence[Found]) -> list[str]:
    """Where nobody measured what the ranges say: between sizes far apart, and below the least."""
    gaps: dict[tuple[int, int], list[str]] = {}
    for one in found:
        for gap in one.gaps:
            gaps.setdefault(gap, []).append(one.key)
    said = [
        f"Between {low} and {high} nothing was measured, and a range of {_named(keys)} ends there by interpolation. "
        "Another choice may be faster: measure sizes in between."
        for (low, high), keys in sorted(gaps.items())
    ]
    begins = {one.ranges[0].measured[0] for one in found} - {1}
    return [
        *said,
        *(f"Below {least} the first range goes on, though nothing was measured." for least in sorted(begins)),
    ]


def _named(keys: Sequence[str]) -> str:
    return ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")


def score_blocks(name: str, scored: Sequence[Scored]) -> list[Block]:
    """Regret against the best of each case, for each first size, and the worst cases."""
    size = next(iter(scored[0].point.dims))
    columns = (
        Column(size, right=True),
        Column("cases", right=True),
        Column("mean regret", right=True),
        Column("worst", right=True),
        Column("worst case"),
    )
    rows = [
        cells((str(value), str(r.cases), units.speedup(r.mean), units.speedup(r.worst), r.worst_case))
        for value, r in by_first_size(scored).items()
    ]
    worst = sorted(scored, key=lambda one: -one.regret)[:_WORST]
    worst_rows = [
        cells(
            (
                one.point.case,
                one.chosen,
                units.microseconds(one.point.times_s.get(one.chosen)),
                one.point.best,
                units.microseconds(one.point.times_s[one.point.best]),
                units.speedup(one.regret),
            )
        )
        for one in worst
        if one.regret > 1
    ]
    worst_columns = tuple(
        Column(header, right=header in ("us", "regret")) for header in ("case", "chosen", "us", "best", "us", "regret")
    )
    found: list[Block] = [
        Table(f"Regret by {size}, {name}", columns, tuple(rows)),
        Notes((f"Over all: {_said(summed(scored))}. The best of several is partly luck, which adds to it.",)),
    ]
    return [*found, *([Table("Where it costs most", worst_columns, tuple(worst_rows))] if worst_rows else [])]


def _said(regret: Regret) -> str:
    worst = f", worst {units.speedup(regret.worst)} ({regret.worst_case})" if regret.worst_case else ""
    return f"mean regret {units.speedup(regret.mean)}{worst}, {units.counted(regret.cases, 'case')}"
