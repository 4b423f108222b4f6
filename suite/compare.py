"""What rows mean: against their yardstick within a run, and against an earlier run.

Within a run, implementations of a case are sampled in the same rounds, and their ratio needs no
more than those samples. Two runs are two launches: buffers and processes lie elsewhere, and the
same code differs by about a percent, which no number of samples within one process shows. A
comparison of runs therefore widens its interval by that spread, or refuses where the two did not
measure the same thing the same way.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import CROSS_CHECK, SINGLY, Row, Run
from gemmgate.suite.sides import Side, difference, notes
from gemmgate.suite.statistics import Interval, ratio_interval


@dataclass(frozen=True)
class Rated:
    """A row with what it means against its yardstick and against the machine.

    `ratio` is the yardstick's time over this row's, above 1 is faster; None with the sentence `why`.
    `error_vs_yardstick` is this row's error as a multiple of the yardstick's. `repro` is the command
    that measures this row again.
    """

    row: Row
    yardstick: str
    ratio: Interval | None
    roof_share: float | None
    error_vs_yardstick: float | None
    repro: str
    why: str = ""


class Verdict(StrEnum):
    """FASTER and SLOWER are beyond noise and of interest; UNCLEAR could not be told; INCOMPARABLE must not be."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNCLEAR = "UNCLEAR"
    INCOMPARABLE = "INCOMPARABLE"
    BROKEN = "BROKEN"
    PICK_CHANGED = "PICK_CHANGED"


@dataclass(frozen=True)
class Thresholds:
    """From which change on two runs differ, and how sure that must be.

    `size` is the smallest change of interest, as a share. `launch_sd` is the standard deviation of
    the log time from one launch of the same code to the next, `board_sd` that from one board of a
    kind to another; each counts once for either run. `confidence` belongs to the intervals shown.
    FASTER and SLOWER must hold at a chance of `false_alarm` for all rows of a comparison together.
    """

    size: float = 0.03
    launch_sd: float = 0.01
    board_sd: float = 0.02
    confidence: float = 0.95
    false_alarm: float = 0.01
    across_stacks: bool = False


@dataclass(frozen=True)
class Comparison:
    """One row of two runs. `ratio` is the baseline's time over the candidate's: above 1 the candidate is faster."""

    baseline: Row | None
    candidate: Row | None
    verdict: Verdict
    reason: str
    sentence: str
    ratio: Interval | None = None

    @property
    def row(self) -> Row:
        """The candidate's row, or the baseline's where the candidate has none."""
        row = self.candidate or self.baseline
        assert row is not None
        return row

    @property
    def change(self) -> float | None:
        """Relative change of the time: 0.05 is 5 % slower."""
        return 1 / self.ratio.estimate - 1 if self.ratio else None


def newest(rows: Iterable[Row]) -> tuple[Row, ...]:
    """One row an id, in order of first appearance: the newest by `utc`, and of equally old ones the last."""
    kept: dict[str, Row] = {}
    for row in rows:
        held = kept.get(row.id)
        if held is None or row.utc >= held.utc:
            kept[row.id] = row
    return tuple(kept.values())


def rate(rows: Sequence[Row], selection: Mapping[str, Any] | None = None) -> tuple[Rated, ...]:
    """The newest rows, each against the yardstick that was sampled in the same rounds.

    `selection` is that of the run, which `repro` needs for what the rows do not say. Yardsticks are looked up
    among all rows: a case that was measured again in part has two of them, and each row belongs to the one of its
    own visit.
    """
    found = {_place(row, row.implementation): row for row in sorted(rows, key=lambda row: row.utc) if row.visit}
    return tuple(_rated(row, found.get(_place(row, row.yardstick)), selection or {}) for row in newest(rows))


def _place(row: Row, implementation: str) -> tuple[str, ...]:
    return (row.family, row.case, row.cache, row.timer, row.phase, row.target, row.visit, implementation)


def _rated(row: Row, yardstick: Row | None, selection: Mapping[str, Any]) -> Rated:
    why = _why_no_ratio(row, yardstick)
    ratio = error = None
    if yardstick is not None and not why:
        paired = row.samples_n == yardstick.samples_n
        ratio = ratio_interval(yardstick.samples_s, row.samples_s, paired=paired)
    if yardstick is not None and yardstick.status == "ok" and row.error is not None and yardstick.error is not None:
        error = _multiple(row.error, yardstick.error)
    return Rated(
        row=row,
        yardstick=row.yardstick,
        ratio=ratio,
        roof_share=row.roof_s / row.median_s if row.roof_s is not None and row.median_s else None,
        error_vs_yardstick=error,
        repro=_repro(row, selection),
        why=why,
    )


def _repro(row: Row, selection: Mapping[str, Any]) -> str:
    """A case of somebody's own shapes is asked for by its name, so neither a model nor a file of shapes is needed."""
    suites = [word for folder in selection.get("suites", ()) for word in ("--suite", folder)]
    if tried := selection.get("tried"):
        words = ["try", tried["function"], "--family", row.family, "--case", row.case, "--against", tried["against"]]
        return shlex.join(["gemmgate", *words, *suites])
    names = ",".join(dict.fromkeys(name for name in (row.yardstick, row.implementation) if name))
    words = ["run", "--family", row.family, "--case", row.case, "--impl", names]
    words += ["--cache", row.cache] if row.cache else []
    words += {CROSS_CHECK: ["--cross-check"], SINGLY: ["--timer", "events"]}.get(row.phase, [])
    words += ["--data", row.data] if row.data else []
    return shlex.join(["gemmgate", *words, "--seed", str(row.seed), *suites])


def _why_no_ratio(row: Row, yardstick: Row | None) -> str:
    if row.kind != "time":
        return f"Rows of kind '{row.kind}' have no ratio."
    if row.status != "ok":
        return f"Its status is '{row.status}'."
    if not row.yardstick:
        return "No yardstick was measured for this case."
    if yardstick is None:
        return f"Yardstick '{row.yardstick}' was not sampled in the same rounds, with the same timer."
    if yardstick.status != "ok":
        return f"The status of yardstick '{row.yardstick}' is '{yardstick.status}'."
    return "" if row.samples_s and yardstick.samples_s else "Its samples or those of its yardstick were not kept."


def _multiple(error: float, of: float) -> float:
    if of == 0.0:
        return 1.0 if error == 0.0 else math.inf
    return error / of


def compare(baseline: Run, candidate: Run, thresholds: Thresholds = Thresholds()) -> tuple[Comparison, ...]:
    """Every row of either run, in the baseline's order, new ones last in their group.

    Raises UsageError where the runs have no row in common.
    """
    pairs = _paired(newest(baseline.rows), newest(candidate.rows))
    common = [(old, new) for old, new in pairs if old and new]
    if not common:
        raise UsageError(
            f"Runs {baseline.id} and {candidate.id} have no row in common. The baseline has {_families(baseline)}, "
            f"the candidate {_families(candidate)}. Compare runs of the same selection."
        )
    judged = sum(old.status == new.status == "ok" for old, new in common)
    return tuple(_compared(old, new, (baseline, candidate), thresholds, judged) for old, new in pairs)


def _families(run: Run) -> str:
    counts: dict[str, int] = {}
    for row in run.rows:
        counts[row.family] = counts.get(row.family, 0) + 1
    return ", ".join(f"{count} rows of {family}" for family, count in counts.items()) or "no rows at all"


def _paired(baseline: Iterable[Row], candidate: Iterable[Row]) -> list[tuple[Row | None, Row | None]]:
    """Rows that measured the same thing; failing that, what was meant to be the same: the difference is then named."""
    groups: dict[tuple[str, ...], tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((baseline, candidate)):
        for row in rows:
            key = (row.family, row.case, row.implementation, row.kind, row.phase)
            groups.setdefault(key, ([], []))[side].append(row)
    pairs: list[tuple[Row | None, Row | None]] = []
    for left, right in groups.values():
        for likeness in (lambda row: row.id, lambda row: (row.cache, row.target), lambda _: None):
            for old in tuple(left):
                new = next((row for row in right if likeness(row) == likeness(old)), None)
                if new is not None:
                    left.remove(old)
                    right.remove(new)
                    pairs.append((old, new))
        pairs += [(old, None) for old in left] + [(None, new) for new in right]
    return pairs


def _compared(
    old_row: Row | None, new_row: Row | None, runs: tuple[Run, Run], thresholds: Thresholds, judged: int
) -> Comparison:
    """`judged` pairs that are both ok share the chance of a false alarm."""
    if old_row is None or new_row is None or new_row.status == "broken":
        return Comparison(old_row, new_row, *without_time(old_row, new_row))
    old, new = Side(old_row, runs[0]), Side(new_row, runs[1])
    both_ok = old_row.status == new_row.status == "ok"
    differs = difference(old, new, across_stacks=thresholds.across_stacks)
    if differs is not None and (both_ok or differs[0] in ("machine", "method")):
        return Comparison(old_row, new_row, Verdict.INCOMPARABLE, *differs)
    if not both_ok:
        return Comparison(old_row, new_row, *without_time(old_row, new_row))
    if not (old_row.samples_s and new_row.samples_s):
        return Comparison(old_row, new_row, *_values(old_row, new_row))
    elsewhere = old.board != new.board
    spread = math.sqrt(2) * math.hypot(thresholds.launch_sd, thresholds.board_sd if elsewhere else 0.0)
    ratio, strict = (
        ratio_interval(old_row.samples_s, new_row.samples_s, paired=False, confidence=confidence).widened(spread)
        for confidence in (thresholds.confidence, 1 - 2 * thresholds.false_alarm / judged)
    )
    verdict, reason, sentence = _judged(old, new, ratio, strict, thresholds, judged)
    sentence = " ".join([sentence, *notes(old, new)])
    return Comparison(old_row, new_row, verdict, "other_board" if elsewhere else reason, sentence, ratio)


def _values(old: Row, new: Row) -> tuple[Verdict, str, str]:
    before, after = (f"{x:g}" if x is not None else "none" for x in (old.value, new.value))
    if old.kind != "time" and old.value == new.value:
        return Verdict.SAME, "equal", f"Both values are {before} {old.unit}."
    if old.kind == "time":
        return Verdict.UNCLEAR, "no_samples", "The samples of a side were not kept, so nothing says what is noise."
    return Verdict.UNCLEAR, "no_samples", f"{before} -> {after} {old.unit}, and no samples say whether that is noise."


def without_time(old: Row | None, new: Row | None) -> tuple[Verdict, str, str]:
    """Verdict, reason and sentence where not both sides have a time."""
    before, after = (_status(row) for row in (old, new))
    said = f"The baseline {before}, the candidate {after}."
    if new is not None and new.status == "broken":
        return Verdict.BROKEN, "broken", said
    if old is not None and old.status == "ok":
        return Verdict.INCOMPARABLE, "missing", said
    return Verdict.INCOMPARABLE, "new" if new is not None and new.status == "ok" else "not_measured", said


def _status(row: Row | None) -> str:
    if row is None:
        return "has no such row"
    said = ": ".join(word for word in (row.reason, row.detail.rstrip(".")) if word)
    return f"is '{row.status}'" + (f" ({said})" if said else "")


def _judged(
    old: Side, new: Side, ratio: Interval, strict: Interval, thresholds: Thresholds, judged: int
) -> tuple[Verdict, str, str]:
    """Verdict, reason and sentence of a pair that may be compared. `strict` is the interval for all rows jointly."""
    slower = ratio.estimate < 1
    size = math.log1p(thresholds.size)
    of_interest = abs(math.log(ratio.estimate)) > size
    half_width = math.log(ratio.estimate / ratio.low) if ratio.low > 0 else math.inf
    said = f"{change_text(ratio)}."
    if of_interest and 1.0 not in strict:
        disturbed = sorted({"throttled", "shared"} & {*old.row.marks, *new.row.marks})
        if disturbed:
            return Verdict.UNCLEAR, "disturbed", f"{said} A side is marked {' and '.join(disturbed)}: measure it again."
        before, after = old.row.sm_clock_hz, new.row.sm_clock_hz
        if before and after:
            cycles = ratio.estimate * before / after
            if math.log(cycles) * (-1 if slower else 1) < size:
                clocks = f"{before / 1e6:.0f} -> {after / 1e6:.0f} MHz"
                return Verdict.UNCLEAR, "clock", f"{said} In clock cycles it is not ({clocks}): measure it again."
        verdict = Verdict.SLOWER if slower else Verdict.FASTER
        return Verdict.PICK_CHANGED if old.pick != new.pick else verdict, "slower" if slower else "faster", said
    if of_interest and 1.0 not in ratio:
        return Verdict.UNCLEAR, "chance", f"{said} Too uncertain for a verdict among {judged} rows: measure it again."
    if half_width > size:
        seen = math.expm1(half_width)
        return Verdict.UNCLEAR, "too_noisy", f"{said} Only a change of {seen:.1%} or more would have stood out."
    return Verdict.SAME, "no_change" if 1.0 in ratio else "below_size", said


def change_text(ratio: Interval) -> str:
    """`8.5 % slower [7.1 %, 9.9 %]`: the change of the time, not of the speed."""
    change, low, high = (1 / x - 1 if x > 0 else math.inf for x in (ratio.estimate, ratio.high, ratio.low))
    if change < 0:
        return f"{-change:.1%} less time [{-high:.1%}, {-low:.1%}]"
    return f"{change:.1%} more time [{low:.1%}, {high:.1%}]"
