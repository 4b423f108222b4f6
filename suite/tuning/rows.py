"""A search as rows: every candidate with its times or what was wrong with it, the finals, the confirmation."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from gemmgate.suite.catalog import Item
from gemmgate.suite.outcomes import block_row, row_of
from gemmgate.suite.records import Row
from gemmgate.suite.tuning.gpu import Gpu
from gemmgate.suite.tuning.oracle import Sweep
from gemmgate.suite.tuning.picks import (
    CONFIRM,
    FINAL,
    INCUMBENT,
    NO_TIME,
    ORACLE,
    PICK,
    RACE,
    SKIPPED,
    SWEEP,
    YARDSTICK,
)
from gemmgate.suite.tuning.racing import Search

_KNOWN = (
    "status",
    "reason",
    "detail",
    "compile_s",
    "check_s",
    "device_code",
    "error",
    "error_worst_tile",
    "error_bound",
)
_FAILED = ("status", "reason", "detail")
_NO_TIME = {"status": "invalid", "reason": NO_TIME, "detail": "the seconds that were given ended before its turn"}


def search_rows(gpu: Gpu, found: Search, measure_s: float) -> list[Row]:
    """All rows of a search; the last is the pick, also where there is none."""
    common = common_columns(gpu)
    rows = [
        _timed(gpu, f"{RACE} {key}", key, found.raced_s.get(key, ()), found.tiles[key], common) for key in found.tiles
    ]
    rows += [
        _timed(gpu, f"{FINAL} {key}", key, samples, found.tiles[key], common) for key, samples in found.final_s.items()
    ]
    if found.winner is None:
        reason = next(iter(found.failed.values()), "there is no tile to try")
        failed = {"status": "error", "reason": "nothing_right", "detail": f"of {len(found.tiles)} tiles: {reason}"}
        return [*rows, failed_pick(gpu.item, failed, common)]
    visit = {"visit": uuid.uuid4().hex[:12], "roof_s": gpu.measured.get("roof_s")}
    visit["yardstick"] = next(iter(gpu.yardsticks), "")
    for name in gpu.yardsticks:
        rows.append(row_of(gpu.item.family, gpu.item.case, name, gpu.facts[name], phase=YARDSTICK, **common, **visit))
    for key in found.confirmed_s:
        if key != found.winner:
            phase = INCUMBENT if key == found.incumbent else f"{CONFIRM} {key}"
            rows.append(_full(gpu, phase, key, found, common, visit))
    raced = {key: statistics.median(samples) for key, samples in found.raced_s.items()}
    more = {"screened_s": raced, "measure_s": measure_s}
    if found.winner == found.incumbent:
        rows.append(_full(gpu, INCUMBENT, found.winner, found, common, visit))
    return [*rows, _full(gpu, PICK, found.winner, found, common, {**visit, **more})]


def failed_pick(item: Item, failed: Mapping[str, Any], common: Mapping[str, Any]) -> Row:
    """The row of a search that came to nothing: so that a resumed tuning does not try again."""
    facts = {name: failed[name] for name in _FAILED}
    return block_row(item.family, item.case, item.implementation, facts, phase=PICK, **common)


def skipped_row(gpu: Gpu) -> Row:
    """The row of a search that found no time: a resumed tuning makes up for it."""
    return block_row(
        gpu.item.family, gpu.item.case, gpu.item.implementation, _NO_TIME, phase=SKIPPED, **common_columns(gpu)
    )


def sweep_rows(gpu: Gpu, swept: Sweep) -> list[Row]:
    """The rows of a search that is wider than the one that picked: all tiles, and the best beside the pick."""
    common = common_columns(gpu)
    gpu.facts.update(dict.fromkeys(swept.left_out, _NO_TIME))
    all_s = {**swept.swept_s, **dict.fromkeys(swept.left_out, ())}
    return [
        _timed(gpu, f"{phase} {key}", key, values, swept.tiles[key], common)
        for phase, samples in ((SWEEP, all_s), (ORACLE, swept.scored_s))
        for key, values in samples.items()
    ]


def common_columns(gpu: Gpu) -> dict[str, Any]:
    """What all rows of an item share."""
    return {
        "cache": gpu.cache,
        "timer": "graph" if gpu.worker.target.is_gpu else "perf_counter",
        "data": "normal",
        "seed": gpu.seed,
        "flags": gpu.worker.flags[gpu.item.case.precision],
    }


def _timed(
    gpu: Gpu, phase: str, key: str, samples: Sequence[float], tile: Mapping[str, Any], common: Mapping[str, Any]
) -> Row:
    """A row without an interval: its samples chose, and are not what is reported."""
    facts = {name: gpu.facts[key][name] for name in _KNOWN if name in gpu.facts.get(key, {})}
    if not samples and not facts.get("status"):
        facts.update(status="invalid", reason="not_timed", detail="the clock gave no time for it")
    facts.update(samples_s=list(samples), tile=dict(tile))
    return block_row(gpu.item.family, gpu.item.case, gpu.item.implementation, facts, phase=phase, **common)


def _full(gpu: Gpu, phase: str, key: str, found: Search, common: Mapping[str, Any], more: Mapping[str, Any]) -> Row:
    facts = {**gpu.facts[key], "tile": dict(found.tiles[key])}
    return row_of(gpu.item.family, gpu.item.case, gpu.item.implementation, facts, phase=phase, **common, **more)
