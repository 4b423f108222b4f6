"""Tiles where nothing was tuned, held against stored searches; and what kernels are told about sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemmgate.kernels._triton.product import Units, units_of
from gemmgate.kernels.dense_splitk import triton_split_k, untuned
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.two_launches import _rule as by_two
from gemmgate.suite.cases import Case, Target
from gemmgate.suite.statistics import geometric_mean
from gemmgate.suite.store import Store
from tests.test_dense_splitk_triton import run_child

ROOT = Path(__file__).parent.parent
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)
FIELDS = ("block_m", "block_n", "block_k", "splits", "num_warps", "num_stages", "slices")
ONE = "20261130T005120Z-b4be165074"
"""108 cases of the split-K set in all formats, by `triton_split_k` on an H200: some 62 tiles each."""
OTHER = "20261130T005654Z-b4be165074-dirty"
"""40 of them in fp32, by `two_launches`."""
CHOICES: dict[str, Callable[[Case, Target], Any]] = {"triton_split_k": triton_split_k.rule, "two_launches": by_two}


def regrets(search: str, implementation: str, formats: tuple[str, ...], least: int, most: int) -> list[float]:
    """For each case of M = N from `least` to `most` whose search timed the rule's tile, its time over the fastest's.

    Finals count before races.
    """
    timed: dict[str, dict[tuple[tuple[Any, ...], bool], float]] = {}
    for row in Store(ROOT / "results").tunings.load(search).rows:
        if row.status == "ok" and row.implementation == implementation and row.phase.startswith(("race", "final")):
            tile = tuple(row.tile.get(field, 1) for field in FIELDS)
            final = row.phase.startswith("final")
            times = timed.setdefault(row.case, {})
            times[tile, final] = min(row.median_s, times.get((tile, final), row.median_s))
    found = []
    for name, measured in timed.items():
        by_tile = {tile: time for (tile, _), time in sorted(measured.items())}
        m, n, k = (int(word[1:]) for word in name.split("-")[:3])
        word = name.rsplit("-", 1)[1]
        dtype, precision = {"fp32": ("fp32", "ieee"), "tf32": ("fp32", "tf32")}.get(word, (word, "acc32"))
        tile = CHOICES[implementation](case_of(m, n, k, dtype, precision), H200)
        time = by_tile.get(tuple(getattr(tile, field, 1) for field in FIELDS))
        if word in formats and least <= m <= most and time is not None:
            found.append(time / min(by_tile.values()))
    return found


@pytest.mark.parametrize(
    ("search", "implementation", "formats", "sizes", "cases", "mean", "worst"),
    [
        (ONE, "triton_split_k", ("bf16", "fp16"), (16, 64), 46, 1.015, 1.07),
        (ONE, "triton_split_k", ("fp32",), (16, 32), 16, 1.01, 1.04),
        (ONE, "triton_split_k", ("tf32",), (16, 32), 12, 1.015, 1.09),
        (OTHER, "two_launches", ("fp32",), (64, 64), 7, 1.01, 1.03),
        (OTHER, "two_launches", ("tf32",), (16, 16), 8, 1.01, 1.07),
    ],
)
def test_the_rule_against_what_searches_found(
    search: str,
    implementation: str,
    formats: tuple[str, ...],
    sizes: tuple[int, int],
    cases: int,
    mean: float,
    worst: float,
) -> None:
    """On an H200 the rule's tiles cost 2 % over the fastest of a search, 9 % at most."""
    found = regrets(search, implementation, formats, *sizes)
    assert len(found) >= cases
    assert geometric_mean(found) < mean
    assert max(found) < worst


def test_sizes_and_formats_that_searches_left_out() -> None:
    """IEEE rows of 16 go to two warps in two waves of programs; a long K of TF32 has K tiles of 128."""
    ieee = untuned.choose(case_of(56, 40, 24576, "fp32", "ieee"), H200)
    # ceil(56 / 16) = 4 tiles, 264 // 4 = 66 ranges wanted of 384 K tiles: 6 each, 64 ranges.
    assert (ieee.block_m, ieee.block_n, ieee.block_k, ieee.splits, ieee.num_warps, ieee.num_stages) == (
        (16, 64, 64, 64, 2, 3)
    )
    tf32 = untuned.choose(case_of(24, 24, 58368, "fp32", "tf32"), H200)
    # 456 K tiles, 132 ranges wanted: 4 each.
    assert (tf32.block_m, tf32.block_n, tf32.block_k, tf32.splits, tf32.num_stages) == (32, 32, 128, 114, 4)


@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("k", [0, 2, 511, 4096])
def test_devices_of_few_multiprocessors(k: int, multiprocessors: int) -> None:
    """Where there are fewer multiprocessors than tiles of C, each tile still has a program."""
    for n in (32, 48, 64):
        tile = untuned.choose(case_of(16, n, k, "bf16", "acc32"), Target("sm_87", "", multiprocessors, 163 * 1024))
        assert tile.splits >= 1


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
