"""What a person and a program see of two runs side by side."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from gemmgate.suite import report
from gemmgate.suite.compare import Comparison, Verdict, compare
from gemmgate.suite.gate import Policy, judge
from gemmgate.suite.records import STATUSES, Row
from gemmgate.suite.statistics import Interval
from tests.runs import STACK, row, run
from tests.test_report import golden


def steady(name: str, us: float, **fields: Any) -> Row:
    return row(name, us * 1e-6, samples_s=(us * 1e-6,) * 40, **fields)


def both() -> tuple[Comparison, ...]:
    """One row of each kind: slower, faster, same, another pick, broken, missing, new, incomparable, never measured."""
    unsupported = row("odd", None, status="unsupported", reason="no_split", detail="K is prime.")
    before = [
        steady("cublas", 8),
        steady("slow", 10),
        steady("fast", 10),
        steady("pick", 10, tile={"splits": 32}),
        steady("wrong", 10),
        steady("gone", 10),
        steady("seeded", 10),
        unsupported,
        row("launches", None, kind="count", value=2.0, unit="launches"),
    ]
    after = [
        steady("cublas", 8),
        steady("slow", 12),
        steady("fast", 8),
        steady("pick", 12, tile={"splits": 64}),
        row("wrong", None, status="broken", reason="error_bound", detail="Error 3.2e-02 is above 4.0e-03."),
        steady("seeded", 10, seed=7),
        steady("fresh", 10),
        unsupported,
        row("launches", None, kind="count", value=3.0, unit="launches"),
    ]
    return compare(run(before), run(after))


def test_table() -> None:
    """Failures come first, then doubt, wins, and what is the same; sentences and the gate's words follow."""
    found = both()
    golden("comparisons.txt", report.table_comparisons(found, judge(found)))


def test_markdown() -> None:
    """The same for a comment on a pull request, with failures in bold."""
    found = both()
    golden("comparisons.md", report.markdown_comparisons(found, judge(found, Policy(report_only=("*/wrong/*",)))))


def test_equal_sentences_are_said_once() -> None:
    """Where the stack differs for every row, one line says so for all."""
    rows = [steady(name, 10) for name in ("a", "b", "c")]
    text = report.table_comparisons(compare(run(rows), run(rows, stack=replace(STACK, triton="3.7.1"))))
    assert text.count("The stack differs: triton 3.6.0 -> 3.7.1.") == 1
    assert "3 rows: The stack differs" in text


def test_families_are_named_where_there_are_several() -> None:
    """With one family the table leaves its name out, with two each row has it."""
    rows = [steady("a", 10), steady("a", 10, family="router")]
    text = report.table_comparisons(compare(run(rows), run(rows)))
    assert text.startswith("verdict  family        case")
    assert "family" not in report.table_comparisons(compare(run(rows[:1]), run(rows[:1])))


def test_nothing_to_compare() -> None:
    """Without comparisons there is a sentence, and the gate's reason for exit code 2."""
    text = report.table_comparisons((), judge(()))
    assert text.startswith("No rows to compare.")
    assert "Exit code 2." in text


def test_json_is_strict_and_complete() -> None:
    """Every comparison has its verdict, reason, sentence, ratio and both sides; what is unbounded is null."""
    found = both()
    read = json.loads(json.dumps(report.comparisons_json(found, judge(found)), allow_nan=False))
    by_name = {c["implementation"]: c for c in read["comparisons"]}
    slow = by_name["slow"]
    assert (read["schema"], slow["verdict"], slow["reason"]) == (1, "SLOWER", "slower")
    assert (slow["ratio"], slow["change"]) == pytest.approx((10 / 12, 0.2))
    assert (slow["baseline"]["median_s"], slow["candidate"]["median_s"]) == pytest.approx((10e-6, 12e-6))
    assert by_name["gone"]["candidate"] is None
    assert read["gate"]["exit_code"] == 1
    assert "dense_splitk/slow/m32-n32-k32768-bf16 cold" in read["gate"]["failed"]
    unbounded = Comparison(row(), row(), Verdict.UNCLEAR, "too_noisy", "", Interval(1.0, 0.0, math.inf, 0.95))
    (alone,) = report.comparisons_json([unbounded])["comparisons"]
    assert (alone["ratio_low"], alone["ratio_high"]) == (0.0, None)
    assert "UNCLEAR" in report.table_comparisons([unbounded])


def test_no_status_breaks_a_report() -> None:
    """Whatever the two statuses, a comparison has a verdict and can be shown."""
    for old in STATUSES:
        for new in STATUSES:
            found = compare(run([row(status=old)]), run([row(status=new)]))
            assert report.table_comparisons(found, judge(found), width=100)
