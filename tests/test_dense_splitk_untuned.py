"""Tiles where nothing was tuned, held against stored searches; and what kernels are told about sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmgate.kernels._triton.product import Units, units_of
from gemmgate.kernels.dense_splitk import untuned
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.suite.cases import Target
from gemmgate.suite.statistics import geometric_mean
from gemmgate.suite.store import Store
from tests.test_dense_splitk_triton import run_child

ROOT = Path(__file__).parent.parent
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)
FIELDS = ("block_m", "block_n", "block_k", "splits", "num_warps", "num_stages")
SEARCH = "20261129T200813Z-644cb62180"
"""90 cases of the split-K set in bf16, fp16 and fp32, on an H200: some 48 tiles each."""


def regrets(formats: tuple[str, ...]) -> dict[str, float]:
    """For each case whose search timed the rule's tile, its time over the fastest one's; finals count before races."""
    timed: dict[str, dict[tuple[tuple[int, ...], bool], float]] = {}
    for row in Store(ROOT / "results").tunings.load(SEARCH).rows:
        if row.status == "ok" and row.phase.startswith(("race", "final")) and row.case.rsplit("-", 1)[1] in formats:
            tile = tuple(int(row.tile[field]) for field in FIELDS)
            final = row.phase.startswith("final")
            times = timed.setdefault(row.case, {})
            times[tile, final] = min(row.median_s, times.get((tile, final), row.median_s))
    found = {}
    for name, measured in timed.items():
        by_tile = {tile: time for (tile, _), time in sorted(measured.items())}
        m, n, k = (int(word[1:]) for word in name.split("-")[:3])
        dtype = name.rsplit("-", 1)[1]
        tile = untuned.choose(case_of(m, n, k, dtype, "ieee" if dtype == "fp32" else "acc32"), H200)
        time = by_tile.get(tuple(getattr(tile, field) for field in FIELDS))
        if time is not None:
            found[name] = time / min(by_tile.values())
    return found


def test_the_rule_against_what_searches_found() -> None:
    """On an H200 the rule's 16-bit tiles cost 2 % over the fastest of a search, 8 % at most."""
    found = regrets(("bf16", "fp16"))
    assert len(found) >= 55
    assert geometric_mean(list(found.values())) < 1.02
    assert max(found.values()) < 1.08


@pytest.mark.parametrize(
    ("sizes", "strides", "item_bytes", "told"),
    [
        # A [24, 1000], B [1000, 24] in 2 bytes: 8 divides a row of either, and no 16 divides 1000 or 24.
        ((24, 24, 1000), (1000, 1, 24, 1), 2, {"k": 8, "stride_am": 8, "n": 8, "stride_bk": 8}),
        # In 4 bytes, 16 bytes are 4 elements.
        ((24, 24, 1000), (1000, 1, 24, 1), 4, {"k": 4, "stride_am": 4, "n": 4, "stride_bk": 4}),
        # Rows of a wider parent: 20 divides by 4, its stride 24 by 8.
        ((16, 20, 1024), (1024, 1, 24, 1), 2, {"n": 4, "stride_bk": 4}),
        # Columns lie contiguous: then M and K bound them.
        ((40, 12, 1032), (1, 40, 1, 1032), 2, {"m": 8, "stride_ak": 8, "k": 8, "stride_bn": 8}),
    ],
)
def test_what_divides_by_hand(
    sizes: tuple[int, int, int], strides: tuple[int, int, int, int], item_bytes: int, told: dict[str, int]
) -> None:
    """The largest power of two that divides both a row's length and its stride, up to 16 bytes."""
    units = units_of(*sizes, strides, item_bytes)
    assert units is not None
    assert {name: unit.value for name, unit in units._asdict().items()} == {**dict.fromkeys(Units._fields, 1), **told}


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((32, 32, 4096), (4096, 1, 32, 1)),
        ((37, 37, 1001), (1001, 1, 37, 1)),
        ((24, 24, 1000), (2000, 2, 48, 2)),
        ((1, 1, 8), (0, 1, 0, 1)),
    ],
)
def test_nothing_to_tell(sizes: tuple[int, int, int], strides: tuple[int, int, int, int]) -> None:
    """Where 16 divides all, nothing does, or no dimension lies contiguous, a kernel is told nothing."""
    assert units_of(*sizes, strides, 2) is None


def test_rows_of_any_multiple_of_eight_come_in_16_bytes(tmp_path: Path) -> None:
    """Hopper copies rows of 24 and 56 elements 16 bytes at a time, of K a multiple of 4 alone 8; an odd K loads."""
    printed = run_child(
        str(ROOT / "tests" / "compile_dense_splitk_rows.py"),
        PYTHONPATH=str(ROOT),
        TRITON_CACHE_DIR=str(tmp_path),
        TRITON_INTERPRET="0",
    )
    found = {(row["name"], row["m"], row["k"]): row for row in map(json.loads, printed.splitlines())}
    for name in ("two_launches", "triton_split_k"):
        whole = [found[name, m, k] for m, k in ((24, 15360), (56, 58368))]
        assert [(row["copies"], row["element_loads"]) for row in whole] == [([16], 0)] * 2
        assert (found[name, 24, 40756]["copies"], found[name, 24, 40756]["element_loads"]) == ([8, 16], 0)
        assert found[name, 40, 64527]["copies"] == [16]
        assert found[name, 40, 64527]["element_loads"] > 0
