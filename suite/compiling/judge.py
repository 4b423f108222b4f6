"""What changed in compiled code, and whether it is for the worse: rows against earlier rows. Pure.

Nothing was timed: SLOWER says that the code shows what makes kernels slow, FASTER that it lost it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemmgate.suite.compare import Comparison, Verdict
from gemmgate.suite.compiling.instructions import TENSOR_CORES
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row, Stack

_RANK = {"": 0, **dict(zip(TENSOR_CORES, (1, 2, 2), strict=True))}
"""wgmma and tcgen05 belong to different architectures and feed all of a tensor core; mma does not on theirs."""


@dataclass(frozen=True)
class Finding:
    """One property that changed: `worse` or better, with a reason code and a clause."""

    reason: str
    said: str
    worse: bool


def judge_static(
    baseline: Sequence[Row], candidate: Sequence[Row], stacks: tuple[Stack, Stack], *, across_stacks: bool = False
) -> tuple[Comparison, ...]:
    """Every preparation of either side, kernel by kernel, in the baseline's order.

    Raises UsageError where the two have nothing in common.
    """
    old_groups, new_groups = _grouped(baseline), _grouped(candidate)
    if not set(old_groups) & set(new_groups):
        raise UsageError(
            f"The baseline's {len(baseline)} rows and the candidate's {len(candidate)} have no kernel in common: "
            "compare compilations of the same selection and targets."
        )
    versions = [stack.triton for stack in stacks]
    found = []
    for key in dict.fromkeys([*old_groups, *new_groups]):
        for old, new in _paired(old_groups.get(key, []), new_groups.get(key, [])):
            if versions[0] != versions[1] and not across_stacks and old is not None and new is not None:
                said = f"Triton differs: {' -> '.join(versions)}. Ask for a comparison across stacks to see more."
                found.append(Comparison(old, new, Verdict.INCOMPARABLE, "stack", said))
            else:
                found.append(_compared(old, new))
    return tuple(found)


def _grouped(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Rows of one preparation together."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.implementation, row.case, row.target, row.flags.get("tile", "")), []).append(row)
    return groups


def _paired(olds: Sequence[Row], news: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """By kernel; what has another name on the other side, by position. A side that failed has one row for all."""
    if len(news) == 1 and not news[0].phase and news[0].status != "ok":
        yield (olds[0] if olds else None), news[0]
        return
    by_name = {row.phase: row for row in news}
    rest = [row for row in news if row.phase not in {old.phase for old in olds}]
    for old in olds:
        yield old, by_name[old.phase] if old.phase in by_name else rest.pop(0) if rest else None
    yield from ((None, row) for row in rest)


def _compared(old: Row | None, new: Row | None) -> Comparison:
    if new is None and old is not None and old.status != "ok":
        return Comparison(old, new, Verdict.INCOMPARABLE, "not_measured", "Neither side has this kernel.")
    if old is None or old.status != "ok":
        return _without_baseline(old, new)
    if new is None:
        return Comparison(old, None, Verdict.INCOMPARABLE, "missing", f"{old.phase} is no longer compiled.")
    if new.status != "ok":
        said = f"The baseline compiles and fits, the candidate is '{new.status}' ({new.reason}): {new.detail}"
        return Comparison(old, new, Verdict.INCOMPARABLE, "missing", said)
    return _judged(old, new)


def _without_baseline(old: Row | None, new: Row | None) -> Comparison:
    if new is None or new.status != "ok":
        return Comparison(old, new, Verdict.INCOMPARABLE, "not_measured", "Neither side compiles and fits.")
    return Comparison(old, new, Verdict.INCOMPARABLE, "new", f"{new.phase} has no baseline that compiles and fits.")


def _judged(old: Row, new: Row) -> Comparison:
    if old.cubin_sha == new.cubin_sha and old.shared_bytes == new.shared_bytes:
        return Comparison(old, new, Verdict.SAME, "same_code", "The machine code did not change.")
    findings = list(_findings(old, new))
    worse = [finding for finding in findings if finding.worse]
    shown = worse or findings
    said = "; ".join(finding.said for finding in shown)
    picked = f" The tile changed: {_words(old.tile)} -> {_words(new.tile)}." if old.tile != new.tile else ""
    sentence = (f"{said[0].upper()}{said[1:]}." if said else "The code changed, and nothing that slows it.") + picked
    if not findings:
        return Comparison(old, new, Verdict.SAME, "code_changed", sentence)
    verdict = Verdict.SLOWER if worse else Verdict.FASTER
    if picked and [finding.reason for finding in worse] == ["occupancy"]:  # another tile may want another occupancy
        verdict = Verdict.PICK_CHANGED
    return Comparison(old, new, verdict, shown[0].reason, sentence)


def _findings(old: Row, new: Row) -> Iterator[Finding]:
    before, after = old.spill_bytes or 0, new.spill_bytes or 0
    if before != after:
        yield Finding("spills", f"spills {before} -> {after} bytes", after > before)
    elif (old.stack_bytes or 0) != (new.stack_bytes or 0):
        said = f"local memory {old.stack_bytes} -> {new.stack_bytes} bytes"
        yield Finding("local_memory", said, (new.stack_bytes or 0) > (old.stack_bytes or 0))
    ranks = _RANK.get(old.tensor_core, 0), _RANK.get(new.tensor_core, 0)
    if ranks[0] != ranks[1]:
        said = f"tensor cores {old.tensor_core or 'none'} -> {new.tensor_core or 'none'}"
        yield Finding("tensor_core", said, ranks[1] < ranks[0])
    wide = _wide_loads(old), _wide_loads(new)
    if bool(wide[0]) != bool(wide[1]):
        yield Finding("loads", f"loads of 16 bytes or by TMA {wide[0]} -> {wide[1]}", not wide[1])
    warps = old.resident_warps, new.resident_warps
    if None not in warps and warps[0] != warps[1]:
        limit = f" (limited by {new.resident_limit})" if new.resident_limit else ""
        said = f"resident warps {warps[0]} -> {warps[1]} a multiprocessor{limit}"
        yield Finding("occupancy", said, (warps[1] or 0) < (warps[0] or 0))


def _wide_loads(row: Row) -> int:
    counts: Mapping[str, int] = row.instructions or {}
    return counts.get("load_16_bytes", 0) + counts.get("tma", 0)


def _words(tile: Mapping[str, object] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted((tile or {}).items())) or "none"
