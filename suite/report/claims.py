"""Published claims beside what a run says, as Markdown."""

from __future__ import annotations

import math

from gemmgate.suite.claims import CLAIMS, Claim, Figure, figure
from gemmgate.suite.records import Run
from gemmgate.suite.report import markdown, units
from gemmgate.suite.report.layout import Block, Cell, Column, Notes, Table, cells
from gemmgate.suite.report.measured import where

_HEADERS = ("claim", "times cuBLAS", "hardware", "source", "timed singly with events", "by our method")


def claims_table(run: Run | None, cache: str = "cold") -> str:
    """A line a claim, then how each source measured, then where the run was measured."""
    columns = tuple(Column(header, right=header == "times cuBLAS") for header in _HEADERS)
    sources = list(dict.fromkeys(claim.source.name for claim in CLAIMS))
    rows = tuple(_row(claim, run, cache, sources.index(claim.source.name) + 1) for claim in CLAIMS)
    protocols = {claim.source.name: claim.source.protocol for claim in CLAIMS}
    links = {claim.source.name: claim.source.url for claim in CLAIMS}
    notes = [
        f"[{number}] {name}{f', {links[name]}' if links[name] else ''}. Protocol: {protocols[name]}."
        for number, name in enumerate(sources, 1)
    ]
    said = where(run) if run else Notes(("No run was named: nothing is judged.",))
    blocks: list[Block] = [Table("", columns, rows), Notes(tuple(notes)), said]
    return markdown.render(blocks)


def _row(claim: Claim, run: Run | None, cache: str, number: int) -> tuple[Cell, ...]:
    if claim.low == claim.high:
        claimed = units.speedup(claim.low)
    else:
        claimed = f"{claim.low:.2f} to {claim.high:.2f}" if math.isfinite(claim.high) else f"over {claim.low:.2f}"
    published, ours = figure(claim, run, "published", cache), figure(claim, run, "ours", cache)
    return cells((claim.what, claimed, claim.source.hardware, f"[{number}]", _said(published), _said(ours)))


def _said(found: Figure) -> str:
    """`1.128 (28 cases, decompose_k_best): NOT REPRODUCED`"""
    if found.mean is None:
        return f"{found.verdict}: {found.why}"
    return (
        f"{units.speedup(found.mean)} ({units.counted(found.cases, 'case')}, {found.implementation}): {found.verdict}"
    )
