"""What a gate says of code that was compiled for GPUs that are not here: findings as items beside those timed. Pure.

Both sides' rows of kind static are in the gate's run, told apart by the flag `side`. A finding that several kernels,
cases or architectures share is one item, whose path ends in what was found: `static/router/split_k/spills-slower`.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gemmgate.suite.block_values import BASELINE, CANDIDATE
from gemmgate.suite.compare import Comparison
from gemmgate.suite.compiling.judge import judge_static
from gemmgate.suite.judged import Judged
from gemmgate.suite.records import RETRIED, Row, Run

KIND = "static"
_NAMED = 3
"""Kernels that a sentence names."""
_UNTOLD = ("same_code", "code_changed", "new", "not_measured")


def of_side(rows: Iterable[Row], side: str, commit: str) -> list[Row]:
    """Compiled rows as a gate stores them."""
    return [replace(row, flags={**row.flags, "side": side}, commit=commit) for row in rows]


def compared(run: Run) -> tuple[Comparison, ...]:
    """Every kernel that was compiled on both sides; empty where the two have none in common.

    A kernel that one side does not launch any more is no finding: what does its work now is compiled too. Nor is what
    went wrong in compiling, and not in the kernel.
    """
    rows = [row for row in run.rows if row.kind == KIND]
    old, new = ([row for row in rows if row.flags.get("side") == side] for side in (BASELINE, CANDIDATE))
    keys = [{(row.implementation, row.case, row.target, row.flags.get("tile")) for row in side} for side in (old, new)]
    if not keys[0] & keys[1]:
        return ()
    found = judge_static(old, new, (run.stack, run.stack))
    return tuple(one for one in found if one.candidate is not None and not _has_failed(one))


def _has_failed(one: Comparison) -> bool:
    return any(row is not None and row.status in RETRIED for row in (one.baseline, one.candidate))


def judged_static(run: Run) -> tuple[Judged, ...]:
    """A finding an item: what got worse or better in the code of an implementation."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for one in compared(run):
        if one.reason not in _UNTOLD:
            name = f"{one.row.implementation}/{one.reason}"
            groups[name if one.reason == "missing" else f"{name}-{one.verdict.lower()}"].append(one)
    return tuple(_item(run, name, found) for name, found in groups.items())


def notes(run: Run) -> list[str]:
    """How much was compiled, and for what."""
    found = compared(run)
    if not found:
        return []
    targets = ", ".join(sorted({one.row.target for one in found}))
    same = sum(one.reason == "same_code" for one in found)
    kernels = "1 kernel" if len(found) == 1 else f"{len(found)} kernels"
    failed = sum(row.kind == KIND and row.status in RETRIED for row in run.rows)
    lacking = f" {failed} preparations failed, which is no property of the kernels." if failed else ""
    return [f"What changed was compiled for {targets} too: {kernels}, {same} with the same code.{lacking}"]


def _item(run: Run, name: str, found: Sequence[Comparison]) -> Judged:
    first = found[0]
    implementation, _, what = name.rpartition("/")
    rows = [None if row is None else replace(row, case=what) for row in (first.baseline, first.candidate)]
    where = [f"{one.row.phase or 'all'} on {one.row.target} for {one.row.case}" for one in found]
    more = f" and {len(where) - _NAMED} more" if len(where) > _NAMED else ""
    sentence = f"{first.sentence} So in {', '.join(where[:_NAMED])}{more}; compiled, not timed."
    comparison = Comparison(rows[0], rows[1], first.verdict, first.reason, sentence)
    family, _, own = implementation.partition("/")
    words = ["gemmgate", "static", "--family", family, "--impl", own, "--target", first.row.target]
    base = run.selection["base"]["revision"]
    repro = shlex.join([*words, "--case", first.row.case, *(["--against", base] if base else [])])
    return Judged(comparison, repro=repro, file=run.selection.get("files", {}).get(implementation, ""))
