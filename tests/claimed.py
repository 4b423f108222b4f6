"""Runs that stand against a published claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gemmgate.suite.claims import CLAIMS, Claim
from gemmgate.suite.records import Row, Run
from tests.runs import row, run

PUBLISHED: Claim = next(claim for claim in CLAIMS if claim.what == "decompose-K in two Triton launches, bf16")
CLAIM = replace(PUBLISHED, cases=2)
"""As if it had been made of two cases."""


def pair(k: int, speedup: float, implementation: str = "triton_split_k", **fields: Any) -> tuple[Row, Row]:
    """cuBLAS at 12 us and another that is so many times as fast, sampled together."""
    dims, case = {"m": 32, "n": 32, "k": k}, f"m32-n32-k{k}-{fields.get('dtype', 'bf16')}"
    common = {"dims": dims, "case": case, "visit": f"{case}-{fields.get('timer', 'graph')}", **fields}
    return row("cublas", 12e-6, **common), row(implementation, 12e-6 / speedup, **common)


def of(*pairs: Sequence[Row], **fields: Any) -> Run:
    """A run of these pairs."""
    return run([one for two in pairs for one in two], **fields)


def at(day: int, *pairs: Sequence[Row], method: int = 1, **fields: Any) -> Run:
    """A run of a day in February, by a method."""
    utc = f"2026-02-{day:02}T08:00:00Z"
    rows = [replace(one, utc=utc, method=method, visit=f"{one.visit}-{day}") for two in pairs for one in two]
    return run(rows, id=f"202602{day:02}T080000Z-0a1b2c3d4e", utc=utc, method=method, **fields)
