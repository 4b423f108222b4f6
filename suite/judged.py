"""From the stored rows of a gate to what it says of every item: verdict, reason, likely cause. Pure.

Everything follows from the run alone, so a gate can be shown, and judged again, long after it was measured.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gemmgate.suite import looks
from gemmgate.suite.block_rule import CONFIRM_TRIM, Standing
from gemmgate.suite.block_values import BASELINE, CANDIDATE, WHY_SPOILED, BlockValue, read_phase, typical_s, values
from gemmgate.suite.compare import Comparison, Verdict, change_text, without_time
from gemmgate.suite.gate import FAULT, MORE_KERNELS
from gemmgate.suite.looks import Noise
from gemmgate.suite.records import Row, Run, stack_on
from gemmgate.suite.stages import FRESH, RELEASE, SCREEN, confirmations, logs, screened
from gemmgate.suite.statistics import Interval, yuen

IDENTICAL = "identical"
"""Reason of the candidate's row in the survey where nothing tells the two sides apart."""
NO_TIME = "no_time"
"""Reason of an item for which `seconds` ended too early."""
UNTOUCHED = "untouched"
"""Reason of an item that was not even prepared, since nothing that it is made of differs."""
PICK_MOVED = "pick_moved"
"""Its reason where a search chose otherwise, and the baseline's choice is what both sides were timed with."""


@dataclass(frozen=True)
class Judged:
    """One item of a gate.

    `blocks` is how many the verdict rests on, `smallest` the slow-down that they would have shown, as a share.
    `noise` is None where nothing was timed. `repro` is the command that judges this item again, `file` where
    its source lies.
    """

    comparison: Comparison
    cause: str = ""
    blocks: int = 0
    smallest: float | None = None
    noise: Noise | None = None
    repro: str = ""
    file: str = ""

    @property
    def path(self) -> str:
        return self.comparison.row.path

    @property
    def standing(self) -> Standing | Literal[""]:
        return self.noise.rule.standing if self.noise else ""


def phase_of_survey(side: str) -> str:
    """The `phase` of a row of the survey."""
    return f"survey {side}"


def known_noise(run: Run) -> dict[str, Noise]:
    """What the gate knew of its items' noise when it began."""
    return {path: Noise(*told) for path, told in run.selection["noise"].items()}


def judged(run: Run) -> tuple[Judged, ...]:
    """Every item of a gate, in its order: those of both sides, those that are missing, those that are new."""
    known = known_noise(run)
    by_path: dict[str, list[BlockValue]] = defaultdict(list)
    for value in values(run.rows):
        by_path[value.path].append(value)
    survey = {(row.path, row.phase): row for row in run.rows if row.kind == "count"}
    faults = {row.path: row for row in run.rows if row.status != "ok" and 0 <= _block(row) < RELEASE}
    decided = confirmations(by_path, known, ended=True)
    made = []
    for item in run.selection["items"]:
        path = _path(item)
        sides = (survey.get((path, phase_of_survey(BASELINE))), survey.get((path, phase_of_survey(CANDIDATE))))
        one = _judged(run, item, sides, by_path[path], known.get(path), decided.get(path), faults.get(path))
        made.append(one)
    for item in run.selection["missing"]:
        said = "The candidate does not have it any more: not the case, or not the implementation."
        made.append(Judged(Comparison(_stub(run, item), None, Verdict.INCOMPARABLE, "missing", said)))
    for item in run.selection["new"]:
        row = survey.get((_path(item), phase_of_survey(CANDIDATE))) or _stub(run, item)
        made.append(Judged(Comparison(None, row, *without_time(None, row))))
    for item in run.selection.get("untouched", ()):
        row = _stub(run, item)
        made.append(Judged(Comparison(row, row, Verdict.SAME, UNTOUCHED, "Nothing that it is made of differs.")))
    files = run.selection.get("files", {})
    return tuple(
        replace(one, repro=_repro(run, one.comparison.row), file=files.get(one.path.rpartition("/")[0], ""))
        for one in made
    )


def _judged(
    run: Run,
    item: Sequence[str],
    sides: tuple[Row | None, Row | None],
    found: Sequence[BlockValue],
    known: Noise | None,
    decided: looks.Decision | None,
    fault: Row | None,
) -> Judged:
    old, new = sides
    if old is None or new is None:
        row = old or new or _stub(run, item)
        return Judged(Comparison(row, row, Verdict.INCOMPARABLE, NO_TIME, "No time was left to look at it."))
    if old.status != "ok" or new.status != "ok":
        return Judged(Comparison(old, new, *without_time(old, new)))
    cause = _cause(run, old, new)
    if new.reason == IDENTICAL and not run.selection["everything"]:
        said = "Both sides are the same: sources, machine code, launches and pick. Not timed."
        return Judged(Comparison(old, new, Verdict.SAME, IDENTICAL, said))
    if not run.selection["gates_time"] and (old.kernels or 0) < (new.kernels or 0):
        said = f"Kernels launched: {old.kernels} -> {new.kernels}."
        return Judged(Comparison(old, new, Verdict.SLOWER, MORE_KERNELS, said), cause)
    if fault is not None:
        side = (read_phase(fault.phase) or (0, CANDIDATE))[1]
        said = f"While it was timed, the {side} failed: {fault.reason}: {fault.detail}."
        broken = side == CANDIDATE and fault.status == "broken"
        verdict = (Verdict.BROKEN, "broken") if broken else (Verdict.UNCLEAR, FAULT)
        return Judged(Comparison(old, fault if broken else new, *verdict, said), cause)
    return _timed(run, (old, new), found, known, decided, cause)


def _timed(
    run: Run,
    sides: tuple[Row, Row],
    found: Sequence[BlockValue],
    known: Noise | None,
    decided: looks.Decision | None,
    cause: str,
) -> Judged:
    screen, fresh = logs(found, SCREEN, FRESH), logs(found, FRESH, RELEASE)
    used = fresh if decided not in (None, "open") and fresh else {**screen, **{FRESH + n: x for n, x in fresh.items()}}
    x = [log for log, _ in used.values()]
    old, new = _pooled(sides, found, SCREEN if used is not fresh else FRESH)
    if len(x) < 2:
        spoiled = bool(found) and all(value.spoiled for value in found)
        reason = "disturbed" if spoiled else NO_TIME
        said = f"Every block was {WHY_SPOILED}." if spoiled else "There was no time for enough blocks."
        return Judged(Comparison(old, new, Verdict.UNCLEAR, reason, said), cause, len(x))
    noise = looks.with_own(known, x)
    ratio = looks.ratio_of(x)
    smallest = looks.smallest_seen(noise, len(x))
    if not run.selection["gates_time"]:
        said = f"{change_text(ratio)}. On a CPU a time is shown and not judged."
        return Judged(Comparison(old, new, Verdict.UNCLEAR, "cpu", said, ratio), cause, len(x), smallest, noise)
    verdict, reason, said = _verdict(found, known, decided, ratio, noise, smallest)
    if verdict in (Verdict.SLOWER, Verdict.FASTER) and len({*_picks(*sides)}) == 2:
        verdict = Verdict.PICK_CHANGED
    return Judged(Comparison(old, new, verdict, reason, said, ratio), cause, len(x), smallest, noise)


def _verdict(
    found: Sequence[BlockValue],
    known: Noise | None,
    decided: looks.Decision | None,
    ratio: Interval,
    noise: Noise,
    smallest: float,
) -> tuple[Verdict, str, str]:
    said = f"{change_text(ratio)}."
    flag = screened(found, known)
    if decided is None and flag == "gone":
        return Verdict.SAME, "no_change", f"{said} A slow-down of {smallest:.1%} would have been seen."
    if decided in (None, "open"):
        spoiled = sum(value.spoiled for value in found)
        why = f"{spoiled} blocks were {WHY_SPOILED}" if spoiled else "time ran out"
        return Verdict.UNCLEAR, "disturbed" if spoiled else NO_TIME, f"{said} Not confirmed, for {why}."
    if decided == "same":
        word = "no_change" if 1.0 in ratio else "below_size"
        return Verdict.SAME, word, f"{said} A change of {noise.size:.1%} is ruled out."
    if decided == "clock":
        return Verdict.UNCLEAR, "clock", f"{said} In clock cycles it is not there: the clock moved, not the code."
    if decided == "unclear":
        return Verdict.UNCLEAR, "too_noisy", f"{said} Only {smallest:.1%} or more would have stood out for certain."
    return (Verdict.SLOWER, "slower", said) if flag == "slower" else (Verdict.FASTER, "faster", said)


def _cause(run: Run, old: Row, new: Row) -> str:
    """What differs, in the order of what explains most."""
    found = ["Sources, machine code, launches and pick are the same."] if new.reason == IDENTICAL else []
    before_pick, after_pick = _picks(old, new)
    if before_pick != after_pick:
        found.append(f"The pick changed: {before_pick} -> {after_pick}.")
    if new.detail:
        found.append(f"{new.detail}.")
    if old.kernels and new.kernels and old.kernels != new.kernels:
        found.append(f"Kernels launched: {old.kernels} -> {new.kernels}.")
    if old.device_code and new.device_code and not found:
        same = old.device_code == new.device_code
        found.append(
            "The machine code is the same: look at the host side, the launches, or the machine."
            if same
            else "The machine code changed."
        )
    before = stack_on(run.machine, run.selection["baseline_stack"])
    changed = [name for name in before.__dataclass_fields__ if getattr(before, name) != getattr(run.stack, name)]
    if changed:
        said = ", ".join(f"{name} {getattr(before, name)} -> {getattr(run.stack, name)}" for name in changed)
        found.append(f"The interpreters differ: {said}.")
    return " ".join(found)


def _picks(old: Row, new: Row) -> tuple[str, str]:
    """Algorithm and tile in words. A pick of the harness's own search was pinned, and so is none of the code's."""
    tiles = ({}, {}) if new.reason == PICK_MOVED else (old.tile or {}, new.tile or {})
    before, after = (
        " ".join(filter(None, [row.algorithm, *(f"{name}={value}" for name, value in sorted(tile.items()))])) or "none"
        for row, tile in zip((old, new), tiles, strict=True)
    )
    return before, after


def _pooled(sides: tuple[Row, Row], found: Sequence[BlockValue], begin: int) -> tuple[Row, Row]:
    """The survey's rows as rows of time, from the unspoiled blocks: what the ratio is made of."""
    kept = [value for value in found if begin <= value.block < RELEASE and not value.spoiled]
    if not kept:
        return sides
    made = []
    for row, times in zip(sides, ([v.baseline for v in kept], [v.candidate for v in kept]), strict=True):
        center, _, _ = yuen(np.log([typical_s(time.samples_s) for time in times]), CONFIRM_TRIM)
        median_s = math.exp(float(center))
        clocks = [time.sm_clock_hz for time in times if time.sm_clock_hz]
        clock_hz = statistics.median(clocks) if clocks else None
        timer = times[-1].timer
        made.append(
            replace(
                row, kind="time", median_s=median_s, sm_clock_hz=clock_hz, timer=timer, value=None, unit="", phase=""
            )
        )
    return made[0], made[1]


def since_release(run: Run) -> dict[str, float]:
    """How much slower than in the last release, as a share, by path; of items that were measured against it."""
    by_path: dict[str, list[BlockValue]] = defaultdict(list)
    for value in values(run.rows):
        by_path[value.path].append(value)
    found = {path: [x for x, _ in logs(of, RELEASE, 2 * RELEASE).values()] for path, of in by_path.items()}
    return {path: 1 / looks.ratio_of(x).estimate - 1 for path, x in found.items() if len(x) > 1}


def is_unchanged(run: Run) -> bool:
    """Whether both sides were the same sources in the same stack: what such a gate finds is a false alarm."""
    base, head = run.selection["base"], run.selection["head"]
    return bool(base["tree"] == head["tree"] and stack_on(run.machine, run.selection["baseline_stack"]) == run.stack)


def _block(row: Row) -> int:
    """The number of a row's block, -1 where it is of none."""
    read = read_phase(row.phase)
    return read[0] if read else -1


def _stub(run: Run, item: Sequence[str]) -> Row:
    return Row(item[0], item[1], item[2], kind="count", cache=run.selection["cache"])


def _path(item: Sequence[str]) -> str:
    return f"{item[0]}/{item[2]}/{item[1]}"


def _repro(run: Run, row: Row) -> str:
    sides: list[str] = []
    for side in ("base", "head"):
        told: Mapping[str, Any] = run.selection[side]
        if told["revision"]:
            sides += [f"--{side}", told["revision"]]
        if told.get("python"):
            sides += [f"--{side}-python", told["python"]]
    only = ["--family", row.family, "--case", row.case, "--impl", row.implementation, "--all"]
    suites = [word for folder in run.selection.get("suites", ()) for word in ("--suite", folder)]
    device = [] if run.selection["gates_time"] else ["--device", "cpu"]
    return shlex.join(["gemmgate", "gate", *sides, *only, *device, *suites])


def worst_first(found: Sequence[Judged]) -> list[Judged]:
    """What stops a change first, then what could not be judged, then wins, then the rest; the largest change first."""
    order = {
        Verdict.BROKEN: 0,
        Verdict.INCOMPARABLE: 1,
        Verdict.SLOWER: 2,
        Verdict.PICK_CHANGED: 3,
        Verdict.UNCLEAR: 4,
        Verdict.FASTER: 5,
        Verdict.SAME: 6,
    }

    def key(one: Judged) -> tuple[int, float]:
        change = one.comparison.change
        place = order[one.comparison.verdict]
        if one.comparison.verdict is Verdict.INCOMPARABLE and one.comparison.reason in ("new", "not_measured"):
            place = len(order)
        return place, -change if change is not None and math.isfinite(change) else 0.0

    return sorted(found, key=key)
