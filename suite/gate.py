"""From comparisons to an exit code: which verdicts stop a change, and which only get a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gemmgate.suite.compare import Comparison, Verdict
from gemmgate.suite.errors import PASS, REGRESSION, UNJUDGED, USAGE
from gemmgate.suite.records import Row

FAULT = "fault"
"""Reason of what could not be told because a side failed while it was timed."""
MORE_KERNELS = "more_kernels"
"""Reason of a verdict that rests on counts and not on time."""


@dataclass(frozen=True)
class Policy:
    """What counts. `report_only` holds globs over `family/implementation/case`: such rows are shown and never fail.

    `accepted` are paths whose slow-down or absence somebody has accepted. Without `times`, as on a CPU, no verdict
    about time counts: wrong results, what is missing, more kernels than before, and compiled code that got worse do.
    """

    report_only: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    times: bool = True

    def gates(self, row: Row) -> bool:
        return not any(fnmatchcase(row.path, glob) for glob in self.report_only)

    def fails(self, comparison: Comparison) -> bool:
        """Whether this verdict stops a change."""
        if not fails(comparison) or (comparison.row.path in self.accepted and comparison.verdict is not Verdict.BROKEN):
            return False
        is_compiled = comparison.row.kind == "static"
        about_time = comparison.verdict in (Verdict.SLOWER, Verdict.PICK_CHANGED) and not is_compiled
        return self.times or not about_time or comparison.reason == MORE_KERNELS

    def is_unjudged(self, comparison: Comparison) -> bool:
        """Whether a verdict that was due is lacking."""
        if comparison.row.path in self.accepted:
            return False
        about_time = comparison.verdict is Verdict.UNCLEAR and comparison.reason != FAULT
        return is_unjudged(comparison) and (self.times or not about_time)


@dataclass(frozen=True)
class GateResult:
    """`failed` alone give exit code 1, `unjudged` alone 3. `notes` never count. `sentence` sums up."""

    exit_code: int
    failed: tuple[Comparison, ...]
    unjudged: tuple[Comparison, ...]
    notes: tuple[str, ...]
    sentence: str


def judge(comparisons: Sequence[Comparison], policy: Policy = Policy()) -> GateResult:
    """Exit code 2 where a side is empty; else 1 where a gated row fails, 3 where one could not be judged, else 0."""
    sides = ("baseline", [c.baseline for c in comparisons]), ("candidate", [c.candidate for c in comparisons])
    empty = [name for name, rows in sides if not any(rows)]
    if empty:
        sentence = f"Nothing to judge: the {' and the '.join(empty)} has no rows. Measure it, or name another run."
        return GateResult(USAGE, (), (), (), sentence)
    gated = [c for c in comparisons if policy.gates(c.row)]
    failed = tuple(c for c in gated if policy.fails(c))
    unjudged = tuple(c for c in gated if not policy.fails(c) and policy.is_unjudged(c))
    code = REGRESSION if failed else UNJUDGED if unjudged else PASS
    sentence = _sentence(gated, failed, unjudged)
    if not policy.times and code == PASS:
        sentence += " On a CPU times are shown and not judged: results, presence and counts are."
    return GateResult(code, failed, unjudged, _notes(comparisons, policy), sentence)


def fails(comparison: Comparison) -> bool:
    """Slower, broken, or gone. A changed pick counts where it costs time."""
    if comparison.verdict is Verdict.PICK_CHANGED:
        return comparison.change is not None and comparison.change > 0
    if comparison.verdict is Verdict.INCOMPARABLE:
        return comparison.reason == "missing"
    return comparison.verdict in (Verdict.SLOWER, Verdict.BROKEN)


def is_unjudged(comparison: Comparison) -> bool:
    """Rows that the baseline never measured promise nothing, and are no reason to stop."""
    if comparison.verdict is Verdict.INCOMPARABLE:
        return comparison.reason not in ("new", "not_measured")
    return comparison.verdict is Verdict.UNCLEAR


def _notes(comparisons: Sequence[Comparison], policy: Policy) -> tuple[str, ...]:
    notes = []
    faster = sum(
        c.verdict is Verdict.FASTER or (c.verdict is Verdict.PICK_CHANGED and not fails(c)) for c in comparisons
    )
    reported = [c for c in comparisons if not policy.gates(c.row)]
    would_fail = sum(fails(c) for c in reported)
    for count, said in (
        (faster, "faster"),
        (sum(c.reason == "new" for c in comparisons), "new, without a baseline"),
        (sum(c.reason == "not_measured" for c in comparisons), "not measured in the baseline either"),
        (len(reported), f"report-only, of which {would_fail} would fail"),
        (sum(fails(c) and c.row.path in policy.accepted for c in comparisons), "accepted though slower or missing"),
    ):
        if count:
            notes.append(f"{_rows(count)} {said}.")
    return tuple(notes)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _sentence(gated: Sequence[Comparison], failed: Sequence[Comparison], unjudged: Sequence[Comparison]) -> str:
    if failed:
        counts = Counter("missing" if c.reason == "missing" else c.verdict for c in failed)
        said = ", ".join(f"{count} {word}" for word, count in counts.items())
        also = f"; {len(unjudged)} could not be judged" if unjudged else ""
        return f"Failed: {said} of {_rows(len(gated))} gated{also}."
    if unjudged:
        counts = Counter(f"{c.verdict} ({c.reason})" for c in unjudged)
        said = ", ".join(f"{count} {word}" for word, count in counts.items())
        return f"Could not judge {len(unjudged)} of {_rows(len(gated))} gated: {said}."
    if not gated:
        return "Passed: every row is report-only, so none was judged."
    return f"Passed: none of {_rows(len(gated))} gated is slower, broken or missing."
