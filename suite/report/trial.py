"""What came of trying one implementation beside another, in sentences for whoever wrote it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgate.suite.compare import Rated, rate
from gemmgate.suite.errors import PASS, REGRESSION, UNJUDGED
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report import units
from gemmgate.suite.report.best import counts, is_same
from gemmgate.suite.statistics import Interval, geometric_mean

_CACHE = {"cold": "inputs not in the cache", "hot": "inputs in the cache"}
_SAID = {
    "error_above_bound": "is wrong: {detail}",
    "tile_error_above_bound": "is wrong: {detail}",
    "not_repeatable": (
        "gave other bits in another call with equal inputs; if that is meant, as with atomics, say --nondeterministic"
    ),
    "inputs_changed": "wrote to its inputs: it should return a new tensor",
    "inputs_require_grad": "set requires_grad on its inputs: it should leave them as they are",
    "output_count": "did not return the result and nothing else: {detail}",
    "output_device": "returned a tensor on another device: {detail}",
    "output_layout": "returned a tensor of another layout: {detail}",
    "output_remembered": "kept a result, or part of one, from an earlier call: {detail}",
    "output_shape": "returned the wrong shape: {detail}",
    "output_type": "returned a tensor of a class of its own, where a plain one is the result: {detail}",
    "output_dtype": "returned the wrong dtype: {detail}",
    "output_reused": "returned the tensor of an earlier call again: it should return a new one",
    "not_finite": "returned NaN or Inf, or left outputs unwritten: {detail}",
    "device_memory": "found no memory on the device: {detail}",
    "host_memory": "found no memory: {detail}",
    "tile_does_not_fit": "does not fit on this device: {detail}",
    "needs_gpu": "cannot run here: {detail}",
    "interpreter_bf16": "cannot be judged here: {detail}",
    "deadline": "did not return: {detail}",
    "sigkill": "ended, killed by the system as happens where memory runs out: {detail}",
}
_CANNOT_TELL = ("needs_gpu", "interpreter_bf16")
"""Reasons of the machine: another would show whether it is right."""
_TOO_LARGE = "does_not_fit"
"""Reason of a case that nobody could be tried on."""

DECIDED = 0.05
"""Two things are the same where one cannot be faster than the other by more than this share."""


def cannot_be_captured(outcome: Mapping[str, Any]) -> bool:
    """Whether a CUDA graph refused what the call does; the driver and torch word it in several ways."""
    return outcome["status"] == "error" and "captur" in str(outcome["detail"])


def is_wrong(outcome: Mapping[str, Any]) -> bool:
    """Whether what is not ok is wrong: what cannot be captured, finds no memory or needs a GPU may still be right."""
    no_memory = outcome["status"] == "out_of_memory" or outcome["reason"] in (_TOO_LARGE, "sigkill")
    return not no_memory and outcome["reason"] not in _CANNOT_TELL and not cannot_be_captured(outcome)


def fault(outcome: Mapping[str, Any]) -> str:
    """What a call did instead of its work, from a status with its reason and detail: without subject and full stop."""
    reason, detail = outcome["reason"], str(outcome["detail"]).rstrip(".")
    if cannot_be_captured(outcome):
        return (
            f"cannot be captured in a CUDA graph: {detail}. A call must not wait for the device: "
            "no .item(), .cpu(), print of a tensor or synchronize, and no memory but torch's"
        )
    if reason in _SAID:
        return _SAID[reason].format(detail=detail)
    if outcome["status"] == "error":
        return f"ended its process: {detail}" if reason.islower() else f"raised {reason}: {detail}"
    return f"is {outcome['status']}: {detail}"


@dataclass(frozen=True)
class Outcome:
    """The lines with which a trial ends, and its exit code."""

    lines: tuple[str, ...]
    exit_code: int


def outcome(run: Run) -> Outcome:
    """What a trial came to, from its run alone.

    Its selection has in `tried` the `name` of the implementation, what it is `against`, the names of the cases
    that were `checked`, how many there were (`of`) and whether it was `timed`, which nothing wrong is.
    """
    tried = run.selection["tried"]
    name, against, checked = tried["name"], tried["against"], units.counted(len(tried["checked"]), "case")
    faults = {(row.case, fault(row.to_json())): row for row in run.rows if _is_fault(row, name)}
    wrong = [case_said for case_said, row in faults.items() if is_wrong(row.to_json())]
    mine = [row for row in run.rows if row.implementation == name]
    left_out = [f"Not tried: {row.case}: {row.detail.rstrip('.')}." for row in mine if row.reason == _TOO_LARGE]
    if not tried["timed"]:
        lines = [f"Wrong: {name} failed on {len(wrong)} of {checked}, so nothing was timed."] if wrong else []
        lines += [f"  {cases}: {name} {said}." for said, cases in _folded(wrong).items()]
        unjudged = [case_said for case_said in faults if case_said not in wrong]
        lines += [f"Not judged: {name} {said} ({cases})." for said, cases in _folded(unjudged).items()]
        left = tried["of"] - len(tried["checked"])
        lines += [f"  {units.counted(left, 'further case')} not tried."] if left else []
        return Outcome((*lines, *left_out), REGRESSION if wrong else UNJUDGED)
    rated = [one for one in rate(run.rows) if "busy" not in one.row.marks]
    hows = {said: "Wrong" if (case, said) in wrong else "Not timed" for case, said in faults}
    lines = left_out + [f"{hows[said]}: {name} {said} ({cases})." for said, cases in _folded(list(faults)).items()]
    if not wrong:
        unchecked = {row.case for row in mine if not row.cache}  # a row of a check has no cache state
        right = units.counted(len(tried["checked"]) - len(unchecked), "case")
        lines.append(f"Right: {name} agrees with the float64 reference on {right}, within what rounding allows.")
    busy = sorted({row.case for row in mine if row.status == "ok" and "busy" in row.marks})
    caches = [cache for cache in run.selection["caches"] if any(r.ratio and r.row.cache == cache for r in rated)]
    verdicts = [
        verdict([r for r in rated if r.row.cache == cache], name, against, run.machine.model) for cache in caches
    ]
    lines += filter(None, verdicts)
    if busy:
        lines.append(
            f"Not judged: other processes used the CPU while {name} was timed, so neither faster nor slower is said "
            f"({', '.join(busy)}). Try again when they have ended."
        )
    if wrong:
        return Outcome(tuple(lines), REGRESSION)
    return Outcome(tuple(lines), PASS if any(verdicts) and not (faults or busy) else UNJUDGED)


def _folded(faults: Sequence[tuple[str, str]]) -> dict[str, str]:
    """What is said of cases, each sentence once, with the cases that it holds for."""
    cases: dict[str, list[str]] = {}
    for case, said in faults:
        cases.setdefault(said, []).append(case)
    return {said: ", ".join(names) for said, names in cases.items()}


def _is_fault(row: Row, name: str) -> bool:
    return row.implementation == name and row.status != "ok" and row.reason not in ("ring_too_large", _TOO_LARGE)


def verdict(rated: Sequence[Rated], name: str, against: str, where: str) -> str:
    """How fast `name` is beside `against`: what was compared, the interval, and case by case; empty without a ratio.

    `rated` are the rows of one cache state.
    """
    ratios = [r.ratio for r in rated if r.row.implementation == name and r.ratio]
    if not ratios:
        return ""
    mean = mean_interval(ratios)
    cases = "one case" if len(ratios) == 1 else f"the geometric mean of {len(ratios)} cases"
    cache = rated[0].row.cache
    family, formats = rated[0].row.family, sorted({r.row.dtype for r in rated})
    compared = (
        f"{cases} of {family} ({', '.join(formats)}), {cache}: {_CACHE.get(cache, cache)}, "
        f"both sampled in the same rounds, on {where}"
    )
    return f"{_said(mean, name, against)}; {compared}.{_by_case(ratios)}"


def mean_interval(ratios: Sequence[Interval]) -> Interval:
    """The geometric mean of ratios that were measured independently, with the interval that theirs give it."""
    estimate = geometric_mean([ratio.estimate for ratio in ratios])
    if any(ratio.low <= 0 or math.isinf(ratio.high) for ratio in ratios):
        return Interval(estimate, 0.0, math.inf, ratios[0].confidence)
    down = math.hypot(*(math.log(ratio.estimate / ratio.low) for ratio in ratios)) / len(ratios)
    up = math.hypot(*(math.log(ratio.high / ratio.estimate) for ratio in ratios)) / len(ratios)
    return Interval(estimate, estimate * math.exp(-down), estimate * math.exp(up), ratios[0].confidence)


def _said(ratio: Interval, name: str, against: str) -> str:
    interval = f"{ratio.confidence:.0%} interval"
    if 1.0 in ratio and not _is_narrow(ratio):
        low, high = (units.speedup(bound) if 0 < bound < math.inf else "any" for bound in (ratio.low, ratio.high))
        return (
            f"Not decided: {name} is {units.speedup(ratio.estimate)} times as fast as {against}, which may be chance "
            f"({interval} {low} to {high}): give it more --seconds, or a quieter machine"
        )
    if is_same(ratio):
        low, high = units.speedup(ratio.low), units.speedup(ratio.high)
        return (
            f"Same: {name} is {units.speedup(ratio.estimate)} times as fast as {against} ({interval} {low} to {high})"
        )
    if ratio.estimate > 1:
        low, high = units.speedup(ratio.low), units.speedup(ratio.high)
        return (
            f"Faster: {name} is {units.speedup(ratio.estimate)} times as fast as {against} ({interval} {low} to {high})"
        )
    slowdown = units.speedup(1 / ratio.estimate)
    low, high = units.speedup(1 / ratio.high), units.speedup(1 / ratio.low) if ratio.low else "any"
    return f"Slower: {name} takes {slowdown} times as long as {against} ({interval} {low} to {high})"


def _is_narrow(ratio: Interval) -> bool:
    """Whether a difference of more than `DECIDED` either way can be ruled out."""
    return ratio.low >= 1 / (1 + DECIDED) and ratio.high <= 1 + DECIDED


def _by_case(ratios: Sequence[Interval]) -> str:
    if len(ratios) == 1:
        return ""
    faster, same, slower = counts(ratios)
    return f" Case by case: {faster} faster, {same} the same, {slower} slower."
