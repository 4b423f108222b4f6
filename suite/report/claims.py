"""Published claims beside what a run says, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gemmgate.suite.claims import CLAIMS, Claim, Figure, figure
from gemmgate.suite.records import Run
from gemmgate.suite.report import markdown, units
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where

_HEADERS = ("claim", "times cuBLAS", "hardware", "source", "timed singly with events", "by our method")


def claims_table(runs: Sequence[Run], cache: str = "cold") -> str:
    """A line a claim, then how each source measured, then where the runs that gave a figure were measured."""
    columns = tuple(Column(header, right=header == "times cuBLAS") for header in _HEADERS)
    sources = list(dict.fromkeys(claim.source.name for claim in CLAIMS))
    figures = [[figure(claim, runs, timing, cache) for timing in ("published", "ours")] for claim in CLAIMS]
    rows = tuple(
        _row(claim, found, sources.index(claim.source.name) + 1) for claim, found in zip(CLAIMS, figures, strict=True)
    )
    protocols = {claim.source.name: claim.source.protocol for claim in CLAIMS}
    links = {claim.source.name: claim.source.url for claim in CLAIMS}
    notes = [
        f"[{number}] {name}{f', {links[name]}' if links[name] else ''}. Protocol: {protocols[name]}."
        for number, name in enumerate(sources, 1)
    ]
    used = {name for found in figures for one in found for name in one.runs}
    said = [where(run) for run in sorted(runs, key=lambda run: run.utc, reverse=True) if run.id in used]
    said = said or [Notes(("No run was named: nothing is judged.",) if not runs else ("No run has a figure.",))]
    blocks: list[Block] = [Table("", columns, rows), Notes(tuple(notes)), *said]
    return markdown.render(blocks)


def _row(claim: Claim, figures: Sequence[Figure], number: int) -> tuple[Cell, ...]:
    if claim.low == claim.high:
        claimed = units.speedup(claim.low)
    else:
        claimed = f"{claim.low:.2f} to {claim.high:.2f}" if math.isfinite(claim.high) else f"over {claim.low:.2f}"
    return cells(
        (claim.what, claimed, claim.source.hardware, f"[{number}]", *(_said(claim, found) for found in figures))
    )


def _said(claim: Claim, found: Figure) -> str:
    """`1.128 (28 of 28 cases, decompose_k_best, method 2, 2026-11-29): NOT REPRODUCED`"""
    if found.mean is None:
        return f"{found.verdict}: {found.why}"
    days = " to ".join(dict.fromkeys(found.days))
    how = f"{found.cases} of {claim.cases} cases, {found.implementation}, method {found.method}, {days}"
    why = f", {found.why}" if found.why else ""
    return f"{units.speedup(found.mean)} ({how}): {found.verdict}{why}"
