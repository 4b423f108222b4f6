"""The disciplines of splitting K without a GPU: tiles, footprints, refusals, compilation, sums in the interpreter."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gemmgate.kernels.dense_splitk import FAMILY, atomic_fp32, tiling
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.tiling import Tile
from gemmgate.suite.cases import Implementation, Target
from gemmgate.suite.catalog import find
from tests.splitk_checks import NAMES, discipline
from tests.test_dense_splitk_triton import run_child

ROOT = Path(__file__).parent.parent
CPU = Target("cpu")
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)
A100 = Target("sm_80", sm_count=108, shared_bytes=166912)
TARGETS = [A100, H200, Target("sm_120", sm_count=84, shared_bytes=101376)]
SAMPLE = FAMILY.cases[:: len(FAMILY.cases) // 24]

each = pytest.mark.parametrize("name", NAMES)


def implementation(name: str) -> Implementation:
    found: Implementation = find().implementation(FAMILY.name, name)
    return found


@each
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
def test_chosen_tile_fits(target: Target, name: str) -> None:
    """A tile chosen by rule leaves no split without work and fits the shared memory."""
    for case in SAMPLE:
        k = case.dims["k"]
        tile = discipline(name).choose_tile(case, target)
        assert tile.splits <= max(1, math.ceil(k / tile.block_k)), case.name
        assert tiling.shared_bytes(case, tile) <= (target.shared_bytes or 49152), case.name


@each
def test_space_is_legal(name: str) -> None:
    """Every tile of the space is one, fits, gives each split work, and names no tile twice."""
    for case in (case_of(16, 16, 8192, "bf16", "acc32"), case_of(64, 64, 32768, "fp32", "tf32")):
        tiles = discipline(name).tiles(case, H200)
        assert len(tiles) == len(set(tiles)) > 10
        for tile in tiles:
            assert tiling.shared_bytes(case, tile) <= H200.shared_bytes
            assert tile.splits <= math.ceil(case.dims["k"] / tile.block_k)


def test_footprint_by_hand() -> None:
    """64 x 64 x 8192 in bf16 by four 32 x 32 tiles of 8 splits: operands twice, C once, parts out and in."""
    case = case_of(64, 64, 8192, "bf16", "acc32")
    tile = Tile(block_m=32, block_n=32, block_k=64, splits=8, num_warps=4, num_stages=4)
    found = discipline("last_arrival").footprint(case, tile)
    operands, c, parts = 2 * 2 * 64 * 8192 * 2, 64 * 64 * 2, 2 * 4 * 64 * 64 * 8
    assert (found.programs, found.warps, found.launches) == (32, 4, 1)
    assert found.bytes_moved == operands + c + parts
    # Three stages of 32 x 64 twice, in two bytes, and a reserve of a KiB.
    assert found.shared_bytes == 3 * (32 + 32) * 64 * 2 + 1024


def test_barrier_tiles_run_at_once() -> None:
    """Behind a barrier no tile has more programs than the device holds at 255 registers a thread."""
    case = case_of(64, 64, 32768, "bf16", "acc32")
    for tile in discipline("grid_barrier").tiles(case, H200):
        programs = math.ceil(64 / tile.block_m) * math.ceil(64 / tile.block_n) * tile.splits
        a_multiprocessor = min(65536 // (255 * 32 * tile.num_warps), 232448 // tiling.shared_bytes(case, tile))
        assert programs <= 132 * a_multiprocessor


def test_barrier_refuses_what_is_not_resident() -> None:
    """A C of 4096 tiles cannot wait for itself."""
    refusal = implementation("grid_barrier").supports(case_of(4096, 4096, 4096, "bf16", "acc32"), H200)
    assert refusal is not None and refusal[0] == "not_resident"


@each
def test_refusals(name: str) -> None:
    """A CPU is refused outside the interpreter, and bf16 before sm_80."""
    case = case_of(32, 32, 32768, "bf16", "acc32")
    codes = [implementation(name).supports(case, target) for target in (CPU, Target("sm_75", sm_count=40))]
    assert [code and code[0] for code in codes] == ["interpreter_only", "needs_sm_80"]


def test_atomics_on_c_are_offered_for_fp32_alone() -> None:
    """Parts that round to 16 bits one by one would not be as exact as the family demands."""
    entry = next(entry for entry in FAMILY.implementations if entry.name == "atomic_out")
    assert {case.dtype for case in FAMILY.cases if entry.applies(case)} == {"fp32"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("block_k", 48), ("block_m", 8), ("splits", 0), ("slices", 3), ("slices", 8), ("loads", "dma"), ("colour", 1)],
)
def test_impossible_tile_is_refused(field: str, value: int | str) -> None:
    """Blocks, splits, slices and loads that no kernel has are errors with their values."""
    sound = {"block_m": 16, "block_n": 16, "block_k": 64, "splits": 4, "num_warps": 4, "num_stages": 2}
    with pytest.raises(ValueError, match=str(value)):
        Tile.from_data({**sound, field: value})


@pytest.mark.parametrize(("target", "ways"), [(H200, {"threads", "bulk"}), (A100, {"threads"})])
def test_atomic_tiles_for_a_large_c(target: Target, ways: set[str]) -> None:
    """For 256 x 256 a search tries tiles of 16384 elements and more in one wave; bulk reductions from sm_90 on."""
    found = discipline("atomic_fp32").tiles(case_of(256, 256, 65536, "bf16", "acc32"), target)
    assert {tile.as_data()["adds"] for tile in found} == ways
    assert {tile.overlap for tile in found} == {target is H200}
    assert min(tile.size for tile in found) >= 128 * 128
    for tile in found:
        programs = math.ceil(256 / tile.block_m) * math.ceil(256 / tile.block_n) * tile.splits
        assert 2 / 3 * target.sm_count < programs <= 1.5 * target.sm_count
    assert all(atomic_fp32.Tile.from_data(tile.as_data()) == tile for tile in found)
    # Rows of 258 sums do not begin at 16 bytes.
    ragged = discipline("atomic_fp32").tiles(case_of(256, 258, 65536, "bf16", "acc32"), H200)
    assert {tile.as_data()["adds"] for tile in ragged} == {"threads"}


def test_atomic_ways_that_there_are() -> None:
    """`adds` is one of two words, and plain tiles have none."""
    sound = {"block_m": 16, "block_n": 16, "block_k": 64, "splits": 4, "num_warps": 4, "num_stages": 2}
    with pytest.raises(ValueError, match="adds must be threads or bulk"):
        atomic_fp32.Tile.from_data({**sound, "adds": "voices"})
    with pytest.raises(ValueError, match="adds"):
        Tile.from_data({**sound, "adds": "bulk"})


def in_the_interpreter() -> list[str]:
    """What the second pytest runs, beside this module."""
    return [str(ROOT / "tests" / "interpreted_dense_splitk_disciplines.py")]


def test_disciplines_in_the_interpreter(interpreted: str) -> None:
    """The tests of interpreted_dense_splitk_disciplines.py pass."""
    assert " passed" in interpreted


def test_compile_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """Chosen tiles compile for every GPU without spills that count, in no more shared memory than said, and no thread
    clears sums that another has yet to read.

    Hopper multiplies whole tiles by wgmma, takes descriptors in bulk, and adds four sums in one atomic, or all of a
    part in bulk.
    """
    script = str(ROOT / "tests" / "compile_dense_splitk_disciplines.py")
    printed = run_child(script, PYTHONPATH=str(ROOT), TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    rows = [json.loads(line) for line in printed.splitlines()]
    assert {row["arch"] for row in rows} == {80, 86, 87, 89, 90, 100, 103, 110, 120}
    assert [row for row in rows if row["shared"] > row["said"] or row["said"] > row["limit"]] == []
    assert [row for row in rows if row["spilled"] > 32] == []
    assert [row for row in rows if row["clears_early"]] == []
    assert {row["name"] for row in rows if row["cooperative"]} == {"grid_barrier"}
    hopper = {(row["name"], row.get("tile")): row["has"] for row in rows if row["arch"] == 90}
    assert all({"wgmma", "cp.async.bulk.tensor"} <= set(has) for (_, tile), has in hopper.items() if tile == "tma")
    # A launch fills in the descriptors among a kernel's own arguments, not those inside a tuple.
    assert {row["descriptors"] for row in rows if row.get("tile") == "tma"} == {2}
    assert "add.v4.f32" in hopper["atomic_arrival", None]
    bulk = {row["tile"]: row for row in rows if row.get("tile", "").startswith("bulk")}
    assert set(bulk) == {"bulk tma", "bulk pointers"}
    for row in bulk.values():  # C's sums are a descriptor too, and the cast waits on the device
        assert row["descriptors"] == {"bulk tma": 3, "bulk pointers": 1}[row["tile"]]
        assert {"wgmma", "cp.reduce.async.bulk.tensor", "griddepcontrol.wait"} <= set(row["has"])
        assert "add.v4.f32" not in row["has"]
