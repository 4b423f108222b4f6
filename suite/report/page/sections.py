"""What a report page is about: runs that belong together, with every row rated."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmgate.suite.compare import Rated, rate
from gemmgate.suite.records import Limits, Row, Run
from gemmgate.suite.report.checks import without_checks
from gemmgate.suite.report.times import cache_states


@dataclass(frozen=True)
class Section:
    """Runs of one machine, stack and method, as one: of a row that was measured twice the newest counts."""

    run: Run
    ids: tuple[str, ...]
    rated: tuple[Rated, ...]

    @property
    def limits(self) -> Limits:
        return self.run.limits

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r.row.family for r in self.rated))

    def timed(self, family: str) -> list[Rated]:
        """Times, without those that other timers took as a check, whatever their status."""
        return without_checks([r for r in self.rated if r.row.family == family and r.row.kind == "time"])

    def caches(self, family: str) -> list[str]:
        """Cache states that something ok was measured in, the most telling first."""
        return cache_states(r.row for r in self.timed(family) if r.row.status == "ok")

    def kinds(self) -> dict[str, str]:
        """What to call each row's arithmetic, by its id: dtype, and precision, layout and epilogue where they vary."""
        rows = [r.row for r in self.rated]
        precisions = {(row.dtype, row.precision) for row in rows}
        several = Counter(dtype for dtype, _ in precisions)
        layouts = {row.layout for row in rows if row.layout}
        return {row.id: _kind(row, several[row.dtype] > 1, len(layouts) > 1) for row in rows}


def _kind(row: Row, with_precision: bool, with_layout: bool) -> str:
    words = [row.dtype or "any", row.precision if with_precision else "", row.layout if with_layout else ""]
    return " ".join(word for word in (*words, row.epilogue if row.epilogue != "none" else "") if word)


def sections(runs: Sequence[Run]) -> list[Section]:
    """In the order in which their machines are first named; the header is that of the newest run of each."""
    groups: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.machine.key, run.stack, run.method].append(run)
    return [_section(sorted(members, key=lambda run: run.utc)) for members in groups.values()]


def _section(runs: list[Run]) -> Section:
    rows = tuple(replace(row, run_id=row.run_id or run.id) for run in runs for row in run.rows)
    newest = replace(runs[-1], rows=rows, dirty=any(run.dirty for run in runs))
    return Section(newest, tuple(run.id for run in runs), rate(rows))
