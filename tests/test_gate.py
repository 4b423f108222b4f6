"""Which verdicts stop a change, with which exit code."""

from typing import Any

import pytest

from gemmgate.suite.compare import Comparison, Verdict
from gemmgate.suite.gate import MORE_KERNELS, Policy, judge
from gemmgate.suite.statistics import Interval
from tests.runs import row


def comparison(verdict: Verdict, reason: str = "", change: float = 0.0, **fields: Any) -> Comparison:
    made = row(**fields)
    ratio = Interval(1 / (1 + change), 0.5, 2.0, 0.95)
    return Comparison(
        None if reason == "new" else made, None if reason == "missing" else made, verdict, reason, "", ratio
    )


SAME = comparison(Verdict.SAME)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (SAME, 0),
        (comparison(Verdict.FASTER), 0),
        (comparison(Verdict.SLOWER), 1),
        (comparison(Verdict.BROKEN), 1),
        (comparison(Verdict.INCOMPARABLE, "missing"), 1),
        (comparison(Verdict.INCOMPARABLE, "new"), 0),
        (comparison(Verdict.INCOMPARABLE, "not_measured"), 0),
        (comparison(Verdict.INCOMPARABLE, "machine"), 3),
        (comparison(Verdict.UNCLEAR, "too_noisy"), 3),
        (comparison(Verdict.PICK_CHANGED, change=0.2), 1),
        (comparison(Verdict.PICK_CHANGED, change=-0.2), 0),
    ],
)
def test_exit_code_of_each_verdict(found: Comparison, code: int) -> None:
    """Beside an unchanged row, each verdict gives the exit code that the design gives it."""
    result = judge([SAME, found])
    assert result.exit_code == code
    assert (found in result.failed) == (code == 1)
    assert (found in result.unjudged) == (code == 3)


def test_a_failure_weighs_more_than_doubt() -> None:
    """With a slower and an unclear row the code is 1, and the sentence counts both."""
    result = judge([comparison(Verdict.SLOWER), comparison(Verdict.UNCLEAR, "chance"), SAME])
    assert result.exit_code == 1
    assert result.sentence == "Failed: 1 SLOWER of 3 rows gated; 1 could not be judged."


def test_report_only_rows_never_count() -> None:
    """Rows matched by a report-only glob neither fail nor leave doubt, and a note says how many would have failed."""
    bad = [comparison(Verdict.SLOWER, case="m4096"), comparison(Verdict.UNCLEAR, "chance", case="m4096")]
    assert judge([SAME, *bad]).exit_code == 1
    result = judge([SAME, *bad], Policy(report_only=("*/m4096",)))
    assert (result.exit_code, result.failed, result.unjudged) == (0, (), ())
    assert result.notes == ("2 rows report-only, of which 1 would fail.",)
    assert judge([bad[0]], Policy(report_only=("*",))).sentence.startswith("Passed: every row is report-only")


def test_without_times_only_what_is_no_time_counts() -> None:
    """Where times do not count, slower and unclear rows pass; broken, missing and more kernels launched do not, nor
    what failed while it was timed.
    """
    policy = Policy(times=False)
    passing = judge([SAME, comparison(Verdict.SLOWER, "slower", 0.5), comparison(Verdict.UNCLEAR, "cpu")], policy)
    assert passing.exit_code == 0 and "times are shown and not judged" in passing.sentence
    for verdict, reason in ((Verdict.BROKEN, ""), (Verdict.INCOMPARABLE, "missing"), (Verdict.SLOWER, MORE_KERNELS)):
        assert judge([SAME, comparison(verdict, reason)], policy).exit_code == 1
    assert judge([SAME, comparison(Verdict.UNCLEAR, "fault")], policy).exit_code == 3


def test_what_is_accepted_passes_unless_it_is_wrong() -> None:
    """An accepted row that is slower or missing is a note; one that is broken fails all the same."""
    for found, code in (
        (comparison(Verdict.SLOWER, "slower", 0.02), 0),
        (comparison(Verdict.INCOMPARABLE, "missing"), 0),
        (comparison(Verdict.BROKEN), 1),
    ):
        assert judge([SAME, found], Policy(accepted=(found.row.path,))).exit_code == code


def test_faster_and_new_rows_are_notes() -> None:
    """Wins and new rows are counted in notes and stop nothing."""
    result = judge([SAME, comparison(Verdict.FASTER), comparison(Verdict.INCOMPARABLE, "new")])
    assert result.notes == ("1 row faster.", "1 row new, without a baseline.")
    assert result.sentence == "Passed: none of 3 rows gated is slower, broken or missing."


@pytest.mark.parametrize(
    ("comparisons", "named"),
    [
        ([], "baseline and the candidate"),
        ([comparison(Verdict.INCOMPARABLE, "missing")], "candidate"),
        ([comparison(Verdict.INCOMPARABLE, "new")], "baseline"),
    ],
)
def test_an_empty_side_is_an_error(comparisons: list[Comparison], named: str) -> None:
    """A side without rows is exit code 2, before anything else, and the sentence names it."""
    result = judge(comparisons, Policy(report_only=("*",)))
    assert result.exit_code == 2
    assert f"the {named} has no rows" in result.sentence


def test_unjudged_rows_are_named_by_reason() -> None:
    """The sentence of exit code 3 says how many rows could not be judged and why."""
    found = [comparison(Verdict.UNCLEAR, "clock"), comparison(Verdict.INCOMPARABLE, "stack"), SAME]
    assert judge(found).sentence == "Could not judge 2 of 3 rows gated: 1 UNCLEAR (clock), 1 INCOMPARABLE (stack)."
