"""What a trial came to, in sentences: outcomes, means, verdicts, and why something was not timed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gemmgate.suite.compare import rate
from gemmgate.suite.report.trial import fault, mean_interval, verdict
from gemmgate.suite.report.trial import outcome as outcome_of
from gemmgate.suite.statistics import Interval
from tests import runs


def trial(*rows: Any, checked: int = 1, of: int = 1, timed: bool = True) -> Any:
    """The run of a trial of `mine`."""
    names = [f"case{index}" for index in range(checked)]
    tried = {"function": "my.py:mine", "name": "mine", "against": "cublas"}
    selection = {"caches": ["cold"], "tried": {**tried, "checked": names, "of": of, "timed": timed}}
    return runs.run(rows, selection=selection)


def test_outcome_of_what_is_right() -> None:
    """Right and faster, with exit code 0."""
    came_to = outcome_of(trial(runs.row("cublas", 1e-5), runs.row("mine", 5e-6)))
    assert came_to.exit_code == 0
    assert came_to.lines[0].startswith("Right: mine agrees with the float64 reference on 1 case,")
    assert came_to.lines[1].startswith("Faster: mine is 2.000 times as fast as cublas")


def test_outcome_of_what_turns_wrong_while_timed() -> None:
    """Wrong in one of two cases, with exit code 1, though the other has a time."""
    wrong = runs.row("mine", status="broken", reason="not_finite", detail="some output is NaN", case="other")
    came_to = outcome_of(trial(runs.row("cublas", 1e-5), runs.row("mine", 5e-6), wrong))
    assert came_to.exit_code == 1
    assert came_to.lines[0].startswith("Wrong: mine returned NaN or Inf")
    assert not any(line.startswith("Right") for line in came_to.lines)


def test_outcome_beside_other_processes() -> None:
    """What was timed on a busy CPU is right and not judged, exit code 3, and has no part in what is said of others."""
    busy = [runs.row(name, 1e-5, marks=("busy",), case="busy", visit="v2") for name in ("cublas", "mine")]
    alone = outcome_of(trial(*busy))
    assert alone.exit_code == 3
    assert alone.lines[0].startswith("Right: mine agrees with the float64 reference on 1 case,")
    assert alone.lines[1:] == (
        "Not judged: other processes used the CPU while mine was timed, so neither faster nor slower is said (busy). "
        "Try again when they have ended.",
    )
    invalid = runs.row("mine", status="invalid", reason="faster_than_possible", detail="no", marks=("busy",))
    assert [line.split(":")[0] for line in outcome_of(trial(runs.row("cublas", 1e-5), invalid)).lines] == ["Wrong"]
    beside = outcome_of(trial(*busy, runs.row("cublas", 1e-5), runs.row("mine", 5e-6), checked=2, of=2))
    assert beside.exit_code == 3
    assert beside.lines[1].startswith("Faster: mine is 2.000 times as fast as cublas")
    assert "one case of dense_splitk" in beside.lines[1]
    assert beside.lines[2].startswith("Not judged: other processes used the CPU")


def test_outcome_of_what_cannot_be_captured() -> None:
    """It is right and has no time, which is exit code 3 and not 1."""
    said = "CUDA error: operation not permitted when stream is capturing"
    failed = runs.row("mine", status="error", reason="AcceleratorError", detail=said)
    came_to = outcome_of(trial(runs.row("cublas", 1e-5), failed))
    assert came_to.exit_code == 3
    assert came_to.lines[0].startswith("Not timed: mine cannot be captured in a CUDA graph: CUDA error")
    assert came_to.lines[1].startswith("Right: mine agrees")


def test_outcome_of_what_failed_its_checks() -> None:
    """The cases that failed, of how many, and how many were not tried."""
    wrong = runs.row("mine", status="broken", reason="error_above_bound", detail="error 0.1", case="case1")
    came_to = outcome_of(trial(wrong, checked=2, of=6, timed=False))
    assert came_to.lines == (
        "Wrong: mine failed on 1 of 2 cases, so nothing was timed.",
        "  case1: mine is wrong: error 0.1.",
        "  4 further cases not tried.",
    )
    assert came_to.exit_code == 1


@pytest.mark.parametrize(
    ("timed", "line"),
    [(False, "  a, b: mine did not return the result"), (True, "Wrong: mine did not return the result")],
)
def test_what_holds_for_several_cases_is_said_once(timed: bool, line: str) -> None:
    """Two cases with one fault have one line with both names, whether it shows before or while timing."""
    fields: dict[str, Any] = {"status": "broken", "reason": "output_count", "detail": "None"}
    rows = [runs.row("mine", case=case, cache=cache, **fields) for case in "ab" for cache in ("cold", "hot")]
    lines = outcome_of(trial(runs.row("cublas", 1e-5), *rows, checked=2, of=2, timed=timed)).lines
    (only,) = (one for one in lines if "did not return" in one)
    assert only.startswith(line)
    assert "a, b" in only


ROOM = "its inputs and results do not fit into memory: 80.5 GiB are needed, and 21.8 GiB of memory are free"


def too_large(case: str = "case1") -> Any:
    """The row of a case that nobody could be tried on."""
    return runs.row("mine", status="unsupported", reason="does_not_fit", detail=ROOM, case=case, cache="")


def test_outcome_of_what_does_not_fit() -> None:
    """A case beyond the memory is nobody's fault: it was not tried, which is exit code 3 where it was the only one."""
    came_to = outcome_of(trial(too_large(), timed=False))
    assert came_to.lines == (f"Not tried: case1: {ROOM}.",)
    assert came_to.exit_code == 3


def test_outcome_of_what_fits_beside_what_does_not() -> None:
    """The others are judged, and only they count as right."""
    came_to = outcome_of(trial(too_large(), runs.row("cublas", 1e-5), runs.row("mine", 5e-6), checked=2, of=2))
    assert came_to.lines[0].startswith("Not tried: case1: its inputs and results do not fit")
    assert came_to.lines[1].startswith("Right: mine agrees with the float64 reference on 1 case,")
    assert came_to.lines[2].startswith("Faster:")
    assert came_to.exit_code == 0


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        ("out_of_memory", "host_memory", "mine found no memory: detail"),
        ("error", "sigkill", "mine ended, killed by the system as happens where memory runs out: detail"),
    ],
)
def test_outcome_without_memory(status: str, reason: str, said: str) -> None:
    """What found no memory while it was checked, or was killed for it, is not judged; a wrong one beside it is."""
    failed = runs.row("mine", status=status, reason=reason, detail="detail", case="case1", cache="")
    came_to = outcome_of(trial(failed, of=3, timed=False))
    assert came_to.lines == (f"Not judged: {said} (case1).", "  2 further cases not tried.")
    assert came_to.exit_code == 3
    wrong = runs.row("mine", status="broken", reason="error_above_bound", detail="error 0.1", case="case0", cache="")
    both = outcome_of(trial(wrong, failed, checked=2, of=2, timed=False))
    assert both.lines[0] == "Wrong: mine failed on 1 of 2 cases, so nothing was timed."
    assert both.exit_code == 1


@pytest.mark.parametrize("reason", ["needs_gpu", "interpreter_bf16"])
def test_outcome_of_what_this_machine_cannot_tell(reason: str) -> None:
    """What would need another machine is not judged, in one line for all cases of one reason, with exit code 3."""
    rows = [
        runs.row("mine", status="unsupported", reason=reason, detail="why", case=case, cache="")
        for case in ("c1", "c2")
    ]
    came_to = outcome_of(trial(*rows, checked=2, of=2, timed=False))
    (line,) = came_to.lines
    assert line.startswith("Not judged: mine cannot ")
    assert line.endswith(": why (c1, c2).")
    assert came_to.exit_code == 3


def test_mean_of_one_is_itself() -> None:
    """The geometric mean of one ratio has its interval."""
    mean = mean_interval([Interval(1.2, 1.1, 1.3, 0.95)])
    assert (mean.estimate, mean.low, mean.high) == pytest.approx((1.2, 1.1, 1.3))


def test_mean_of_many_is_narrower_by_the_root_of_their_number() -> None:
    """Four ratios, each known to a factor of 1.08, give their geometric mean to a factor of 1.08 ** (1 / 2)."""
    mean = mean_interval([Interval(x, x / 1.08, x * 1.08, 0.95) for x in (0.5, 1.0, 2.0, 4.0)])
    assert mean.estimate == pytest.approx(math.sqrt(2))
    assert mean.high / mean.estimate == pytest.approx(math.sqrt(1.08))
    assert mean.estimate / mean.low == pytest.approx(math.sqrt(1.08))


def test_mean_with_an_unbounded_ratio_is_unbounded() -> None:
    """One ratio that could be anything makes the mean anything."""
    mean = mean_interval([Interval(1.0, 0.9, 1.1, 0.95), Interval(1.0, 0.0, math.inf, 0.95)])
    assert (mean.low, mean.high) == (0.0, math.inf)


@pytest.mark.parametrize(
    ("median_s", "begins", "counts"),
    [
        (5e-6, "Faster: mine is 2.000 times as fast as cublas (95% interval ", "2 faster, 0 the same, 0 slower"),
        (2e-5, "Slower: mine takes 2.000 times as long as cublas (95% interval ", "0 faster, 0 the same, 2 slower"),
        (1.005e-5, "Same: mine is 0.995 times as fast as cublas (95% interval ", "0 faster, 2 the same, 0 slower"),
    ],
)
def test_the_verdict_says_what_was_compared(median_s: float, begins: str, counts: str) -> None:
    """Twice as fast, half as fast, and half a percent off, of two cases: the factor, the interval, the counts."""
    rows = []
    for case in ("m1-n1-k1-bf16", "m2-n2-k2-bf16"):
        rows.append(runs.row("cublas", 1e-5, case=case))
        rows.append(runs.row("mine", median_s, case=case))
    said = verdict(rate(rows), "mine", "cublas", "NVIDIA H200")
    assert said.startswith(begins)
    assert "the geometric mean of 2 cases of dense_splitk (bf16), cold: inputs not in the cache" in said
    assert said.endswith(f"on NVIDIA H200. Case by case: {counts}.")


@pytest.mark.parametrize(
    ("median_s", "spread", "begins"), [(1.002e-5, 0.03, "Same: mine is "), (1.03e-5, 0.2, "Not decided: mine is ")]
)
def test_what_cannot_be_told_apart_is_no_slow_down(median_s: float, spread: float, begins: str) -> None:
    """With 1 in its interval a mean is the same where that is narrow, and undecided where it reaches beyond 5 %."""
    noisy = runs.samples(median_s, spread=spread, seed=5)
    rows = [runs.row("cublas", 1e-5), runs.row("mine", median_s, samples_s=noisy)]
    assert verdict(rate(rows), "mine", "cublas", "here").startswith(begins)


def test_without_a_ratio_there_is_no_verdict() -> None:
    """Where the yardstick failed nothing is claimed."""
    assert verdict(rate([runs.row("mine", 1e-5, yardstick="")]), "mine", "cublas", "here") == ""


@pytest.mark.parametrize(
    ("reason", "detail"),
    [
        ("AcceleratorError", "CUDA error: operation not permitted when stream is capturing"),
        (
            "RuntimeError",
            "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned.",
        ),
        ("AcceleratorError", "CUDA error: operation failed due to a previous error during capture"),
    ],
)
def test_what_cannot_be_captured_is_told_why(reason: str, detail: str) -> None:
    """The messages of CUDA and of torch about capture become one sentence on what a call must not do."""
    said = fault({"status": "error", "reason": reason, "detail": detail})
    assert said.startswith("cannot be captured in a CUDA graph")
    assert "no .item(), .cpu()" in said
