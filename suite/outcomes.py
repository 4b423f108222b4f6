"""What workers say of one implementation, as rows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gemmgate.suite.cases import Case, Family
from gemmgate.suite.family_functions import counted
from gemmgate.suite.records import MIN_SAMPLES, TIMERS, Row, Status
from gemmgate.suite.statistics import summarise

_AS_SAID = (
    "host_s",
    "eager_s",
    "kernels",
    "tile",
    "algorithm",
    "device_code",
    "readings_s",
    "screened_s",
    "compile_s",
    "check_s",
    "error",
    "error_worst_tile",
    "error_bound",
    "decision",
    "sm_clock_hz",
    "power_w",
    "joules",
    "node_s",
    "calls_per_sample",
    "timer",
    "cache",
    "cache_proof",
    "cache_evidence",
    "workspace_bytes",
)
"""Facts that are columns as they are."""


def row_of(family: Family, case: Case, name: str, facts: Mapping[str, Any], **common: Any) -> Row:
    """The row of implementation `name` on a case.

    `facts` hold a status with its reason, or samples; too few of them are `invalid`. `common` are the
    columns that the implementations of a visit share; a fact of the same name counts more.
    """
    samples = tuple(facts.get("samples_s", ()))
    status: Status = facts.get("status") or "ok"
    reason, detail = facts.get("reason", ""), facts.get("detail", "")
    if status == "ok" and len(samples) < MIN_SAMPLES:
        status, reason, detail = (
            "invalid",
            "too_few_samples",
            f"{len(samples)} samples; an interval takes {MIN_SAMPLES}",
        )
    summary = summarise(samples) if status == "ok" else None
    median_s = summary.median_s if summary else None
    return Row(
        **_columns(family, case, name, facts, common),
        status=status,
        reason=reason,
        detail=detail,
        median_s=median_s,
        low_s=summary.low_s if summary else None,
        high_s=summary.high_s if summary else None,
        cycles=_cycles(median_s, facts),
        samples_s=samples,
        marks=tuple(sorted({*facts.get("marks", ()), *(summary.marks if summary else ())})),
    )


def block_row(family: Family, case: Case, name: str, facts: Mapping[str, Any], **common: Any) -> Row:
    """The row of one side in one block: `facts` hold the samples of its visits in order, or a status.

    They have no interval: in blocks it is the block that counts as one observation, not the sample.
    """
    status: Status = facts.get("status") or "ok"
    samples = tuple(facts.get("samples_s", ())) if status == "ok" else ()
    median_s = statistics.median(samples) if samples else None
    return Row(
        **_columns(family, case, name, facts, common),
        status=status,
        reason=facts.get("reason", ""),
        detail=facts.get("detail", ""),
        median_s=median_s,
        cycles=_cycles(median_s, facts),
        samples_s=samples,
        marks=tuple(sorted(set(facts.get("marks", ())))),
    )


def timer_row(family: Family, case: Case, name: str, facts: Mapping[str, Any], **common: Any) -> Row:
    """The row of one benchmark function on one kernel: its readings are the samples, few as they are."""
    return replace(block_row(family, case, name, facts, **common), phase=TIMERS, measure_s=facts.get("measure_s"))


def _columns(
    family: Family, case: Case, name: str, facts: Mapping[str, Any], common: Mapping[str, Any]
) -> dict[str, Any]:
    said = {column: facts[column] for column in _AS_SAID if facts.get(column) is not None}
    if facts.get("flags"):
        said["flags"] = {**common.get("flags", {}), **facts["flags"]}
    return {
        "family": family.name,
        "case": case.name,
        "implementation": name,
        "tags": case.tags,
        "dims": dict(case.dims),
        "dtype": case.dtype,
        "precision": case.precision,
        "layout": case.layout,
        "epilogue": case.epilogue,
        "origin": case.origin,
        "flop": counted(family.flop, case),
        "bytes_moved": counted(family.bytes_moved, case),
        "kernel_names": tuple(facts.get("kernel_names", ())),
        "utc": utc_now(),
        **common,
        **said,
    }


def _cycles(median_s: float | None, facts: Mapping[str, Any]) -> float | None:
    clock_hz = facts.get("sm_clock_hz")
    return median_s * clock_hz if median_s and clock_hz else None


def utc_now() -> str:
    """`2026-11-29T16:03:12Z`"""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
