"""What changed in compiled code, and whether it is for the worse: rows against earlier rows. Pure.

Nothing was timed: SLOWER says that the code shows what makes kernels slow, FASTER that it lost it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmgate.suite.compare import Comparison, Verdict
from gemmgate.suite.compiling.instructions import COMPILER_DIED, NOT_IMPORTED, NOT_INSTALLED, TENSOR_CORES
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row, Stack

_RANK = {"": 0, **dict(zip(TENSOR_CORES, (1, 2, 2), strict=True))}
"""wgmma and tcgen05 belong to different architectures and feed all of a tensor core; mma does not on theirs."""


_NOT_OF_THE_KERNEL = (COMPILER_DIED, "MemoryError", "OSError")


@dataclass(frozen=True)
class Finding:
    """One property that changed: `worse` or better, with a reason code and a clause.

    Another tile may want to be so where it is `chosen`: what is a loss with the same tile is then a choice.
    """

    reason: str
    said: str
    worse: bool
    chosen: bool = False


def judge_static(
    baseline: Sequence[Row], candidate: Sequence[Row], stacks: tuple[Stack, Stack], *, across_stacks: bool = False
) -> tuple[Comparison, ...]:
    """Every preparation of either side, kernel by kernel, in the baseline's order.

    An implementation whose module cannot be imported stands for all of its preparations that the other side has.
    Raises UsageError where the two have nothing in common.
    """
    old_groups, new_groups = _grouped(baseline), _grouped(candidate)
    old_absent, new_absent = absent(baseline), absent(candidate)
    keys = list(dict.fromkeys([*old_groups, *new_groups]))
    sides = [(_of(key, old_groups, old_absent), _of(key, new_groups, new_absent)) for key in keys]
    alone = _never_compiled(old_absent, new_absent, {key[0] for key in keys})
    if not alone and not any(olds and news for olds, news in sides):
        raise UsageError(
            f"The baseline's {len(baseline)} rows and the candidate's {len(candidate)} have no kernel in common: "
            "compare compilations of the same selection and targets."
        )
    versions = [stack.triton for stack in stacks]
    found = []
    for olds, news in sides:
        for old, new in _paired(olds, news):
            if versions[0] != versions[1] and not across_stacks and old is not None and new is not None:
                said = f"Triton differs: {' -> '.join(versions)}. Ask for a comparison across stacks to see more."
                found.append(Comparison(old, new, Verdict.INCOMPARABLE, "stack", said))
            else:
                found.append(_compared(old, new))
    return (*found, *alone)


def absent(rows: Iterable[Row]) -> dict[str, Row]:
    """By implementation the row that says why its module cannot be imported."""
    return {row.implementation: row for row in rows if row.reason in (NOT_IMPORTED, NOT_INSTALLED)}


def _never_compiled(old: Mapping[str, Row], new: Mapping[str, Row], compiled: Collection[str]) -> list[Comparison]:
    """Of the candidate's modules that cannot be imported those of which neither side compiled anything.

    One that needs what is not installed is told only where the baseline has it too: it may well be another's.
    """
    found = []
    for name, row in new.items():
        if name in compiled:
            continue
        if name in old:
            said = f"The module of {name} cannot be imported on either side: {row.detail}."
            found.append(Comparison(old[name], row, Verdict.INCOMPARABLE, "not_measured", said))
        elif row.reason == NOT_IMPORTED:
            said = f"The module of {name} cannot be imported: {row.detail}."
            found.append(Comparison(None, row, Verdict.INCOMPARABLE, "failed", said))
    return found


Key = tuple[str, str, str, str]
"""Implementation, case, target and kind of tile: one preparation."""


def _grouped(rows: Sequence[Row]) -> dict[Key, list[Row]]:
    """Rows of one preparation together; without modules that cannot be imported."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        if row.reason not in (NOT_IMPORTED, NOT_INSTALLED):
            groups.setdefault((row.implementation, row.case, row.target, row.flags.get("tile", "")), []).append(row)
    return groups


def _of(key: Key, groups: Mapping[Key, list[Row]], without: Mapping[str, Row]) -> list[Row]:
    """One side's rows of a preparation, or the one that says why there is none."""
    name, case, target, tile = key
    if key not in groups and name in without:
        return [replace(without[name], case=case, target=target, flags={"tile": tile})]
    return groups.get(key, [])


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
    promised = old is None or old.status == "ok" or _is_unknown(old)
    for side, row in (("baseline", old), ("candidate", new)):
        if row is not None and _is_unknown(row) and promised:
            said = f"The {side} could not be compiled, which says nothing of the kernel ({row.reason}): {row.detail}."
            return Comparison(old, new, Verdict.INCOMPARABLE, "failed", said)
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


def _is_unknown(row: Row) -> bool:
    """Whether something else ended its compilation: too little time or memory, a full disk, a person."""
    return row.status == "timeout" or (row.status == "error" and row.reason in _NOT_OF_THE_KERNEL)


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
    if picked and worse and all(finding.chosen for finding in worse):
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
    else:
        yield from _tensor_cores_in_part(old, new)
    wide = _wide_loads(old), _wide_loads(new)
    if bool(wide[0]) != bool(wide[1]):
        yield Finding("loads", f"loads of 16 bytes or by TMA {wide[0]} -> {wide[1]}", not wide[1])
    else:
        yield from _loads_in_part(old, new)
    warps = old.resident_warps, new.resident_warps
    if None not in warps and warps[0] != warps[1]:
        limit = f" (limited by {new.resident_limit})" if new.resident_limit else ""
        said = f"resident warps {warps[0]} -> {warps[1]} a multiprocessor{limit}"
        yield Finding("occupancy", said, (warps[1] or 0) < (warps[0] or 0), chosen=True)


def _tensor_cores_in_part(old: Row, new: Row) -> Iterator[Finding]:
    """A loop that falls back beside one that does not: half of the best kind is gone, and a lesser kind is new."""
    before, after = old.instructions or {}, new.instructions or {}
    for less, more, worse in ((before, after, True), (after, before, False)):
        best = max((name for name in TENSOR_CORES if less.get(name)), key=lambda name: _RANK[name], default="")
        lesser = [name for name in TENSOR_CORES if _RANK[name] < _RANK.get(best, 0)]
        came = [name for name in lesser if more.get(name) and not less.get(name)]
        if came and 2 * more.get(best, 0) <= less[best]:
            yield _counted("tensor_core", "tensor cores ", (best, came[0]), (before, after), worse)


def _loads_in_part(old: Row, new: Row) -> Iterator[Finding]:
    """Half of the wide loads are gone, and narrow ones, of which each takes two at least, are in their place.

    TMA fetches blocks of any size, so where it is new nothing follows from the number of loads.
    """
    before, after = old.instructions or {}, new.instructions or {}
    if "load_narrow" not in before or "load_narrow" not in after:
        return
    for one, other, worse in ((before, after, True), (after, before, False)):
        lost = one.get("load_16_bytes", 0) - other.get("load_16_bytes", 0)
        grown = other["load_narrow"] - one["load_narrow"]
        if other.get("tma", 0) <= one.get("tma", 0) and 2 * lost >= one.get("load_16_bytes", 0) > 0 and grown >= lost:
            yield _counted("loads", "loads ", ("load_16_bytes", "load_narrow"), (before, after), worse)


def _counted(
    reason: str, what: str, groups: Sequence[str], sides: tuple[Mapping[str, int], Mapping[str, int]], worse: bool
) -> Finding:
    said = ", ".join(f"{name} {sides[0].get(name, 0)} -> {sides[1].get(name, 0)}" for name in groups)
    return Finding(reason, f"{what}{said}", worse, chosen=True)


def _wide_loads(row: Row) -> int:
    counts: Mapping[str, int] = row.instructions or {}
    return counts.get("load_16_bytes", 0) + counts.get("tma", 0)


def _words(tile: Mapping[str, object] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted((tile or {}).items())) or "none"
