"""The page that holds a tuner's choices against the fastest of them, from rows made by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gemmgate.suite import report
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row
from gemmgate.suite.report.audit import audited
from tests.runs import row, run

READINGS = {"mm": 47e-6, "decompose_k_mm_32_split": 50e-6, "decompose_k_mm_64_split": 49e-6, "failed": 80e-6}
SCREENED = {"choice=mm": 14e-6, "choice=decompose_k_mm_32_split": 12e-6, "choice=decompose_k_mm_64_split": 12.1e-6}


def pair(case: str = "m32-n32-k32768-bf16", pick_us: float = 14.0, best_us: float = 12.0, **fields: Any) -> list[Row]:
    """A tuner that read 47 us for the product it picked, and the harness's choice among the same ones."""
    known: dict[str, Any] = {"case": case, "readings_s": READINGS, "visit": case, **fields}
    return [
        row("tuner", pick_us * 1e-6, samples_s=(pick_us * 1e-6,) * 40, algorithm="mm", **known),
        row(
            "search",
            best_us * 1e-6,
            samples_s=(best_us * 1e-6,) * 40,
            algorithm="decompose_k_mm_32_split",
            screened_s=SCREENED,
            **known,
        ),
    ]


def test_regret_and_order() -> None:
    """14 us against 12 is a regret of 7/6; of three pairs the two that are apart are both in the wrong order."""
    (one,) = audited(run(pair()))
    assert one.regret.estimate == pytest.approx(7 / 6)
    assert one.reading_s == 47e-6
    assert one.order == (0, 2)


def test_order_that_is_right() -> None:
    """Readings that rise as the times do put every pair that is apart in the right order."""
    readings = {"mm": 50e-6, "decompose_k_mm_32_split": 40e-6, "decompose_k_mm_64_split": 41e-6}
    (one,) = audited(run(pair(readings_s=readings)))
    assert one.order == (2, 2)


def test_only_the_same_choices_are_held_together() -> None:
    """A tuner of other choices, of another visit, or one that failed, has no part in the audit."""
    first, search = pair()
    other = row("other_tuner", 13e-6, algorithm="mm", readings_s={"mm": 40e-6}, visit=first.visit)
    elsewhere = pair(visit="another")[0]
    failed = row("tuner_2", None, status="broken", reason="x", readings_s=READINGS, visit=first.visit)
    assert [one.pick.implementation for one in audited(run([first, other, failed, search]))] == ["tuner"]
    assert audited(run([elsewhere, search])) == []


def test_page() -> None:
    """The page has a line a case and says what they come to: here sqrt(7/6 x 1) = 1.080, and 47/14 to 47/12."""
    page = report.audit_page(run([*pair(), *pair("m64-n64-k8192-bf16", 12.0, 12.0)]))
    (line,) = re.findall(r"^\| m32-n32-k32768-bf16 .*$", page, re.MULTILINE)
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "m32-n32-k32768-bf16",
        "mm",
        "47.0",
        "14.0",
        "decompose_k_mm_32_split",
        "12.0",
        "1.167 ±0.0%",
        "0 of 2",
        "3 of 4",
    ]
    said = " ".join(page.split())
    assert "2 cases: the pick was the fastest choice by name in 0, and another that costs more than 3% in 1." in said
    assert "Regret: geometric mean 1.080, worst 1.167 (m32-n32-k32768-bf16)." in said
    assert "is 3.36 to 3.92 times the time taken" in said
    assert "Of 4 pairs of choices that are apart, its readings order 0 rightly (0%)." in said
    assert "NVIDIA H200" in said and "torch 2.11.0" in said and "20260131T120000Z-0a1b2c3d4e" in said


def test_a_run_without_pairs() -> None:
    """A run that holds no tuner is answered with what to measure."""
    with pytest.raises(UsageError, match="Measure both together"):
        report.audit_page(run([row("cublas", 8e-6)]))
