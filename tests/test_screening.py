"""What a choice rests on reaches the row: the harness's times of all tiles, and a tuner's own readings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gemmgate.kernels.dense_splitk import FAMILY
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.decompose_k import IMPLEMENTATIONS
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.kernels.dense_splitk.reference import reference
from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Target, Tile
from gemmgate.suite.measure.bench import Bench, Work
from gemmgate.suite.measure.machine import Telemetry, describe_target
from gemmgate.suite.outcomes import row_of
from gemmgate.suite.store import Store
from tests.stored import make_row, make_run, stored

CASE = case_of(8, 8, 1536, "fp32", "ieee")
CPU = torch.device("cpu")


@pytest.fixture
def bench() -> Bench:
    """The measuring half of a worker, on the CPU."""
    return Bench(CPU, describe_target(CPU), Telemetry(CPU), lambda implementation, step: None)


@pytest.fixture
def work(bench: Bench) -> Work:
    """The case under way, in one cache state."""
    return bench.begin(
        FAMILY, CASE, lambda slot: make_inputs(CASE, slot, CPU), lambda inputs: reference(CASE, inputs), cold=False
    )


def test_every_tile_that_was_screened_is_kept(bench: Bench, work: Work) -> None:
    """Each of the legal splits 2, 3, 4, 6, 8, 12 of 1536 has a time, and the least of them is the tile that is kept."""
    facts = bench.prepare(work, IMPLEMENTATIONS["decompose_k_best"])
    screened = facts["screened_s"]
    assert set(screened) == {f"splits={splits}" for splits in (2, 3, 4, 6, 8, 12)}
    assert all(seconds > 0 for seconds in screened.values())
    assert screened[f"splits={facts['tile']['splits']}"] == min(screened.values())
    assert facts["readings_s"] is None


def test_what_is_not_chosen_has_no_screening(bench: Bench, work: Work) -> None:
    """An implementation without a choice has neither screening nor readings."""
    facts = bench.prepare(work, IMPLEMENTATIONS["decompose_k_4"])
    assert facts["screened_s"] is None and facts["readings_s"] is None


def test_readings_reach_the_row(bench: Bench, work: Work) -> None:
    """What a tuner read while it prepared stands in the row, by choice."""
    readings = {"mm": 47e-6, "mm_twice": 95e-6}

    def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None) -> Prepared:
        return Prepared(lambda inputs: lambda: inputs["a"] @ inputs["b"], algorithm="mm", readings_s=readings)

    facts = bench.prepare(work, Implementation("tuner", "compiler", True, lambda case, target: None, prepare))
    row = row_of(FAMILY, CASE, "tuner", {**facts, "status": "error", "reason": "not sampled"})
    assert row.readings_s == readings
    assert row.algorithm == "mm"


def test_both_are_stored(tmp_path: Path) -> None:
    """Readings and screening are read back as they were written, and their absence is an absence."""
    store = Store(tmp_path)
    both = make_row(implementation="a", readings_s={"mm": 47e-6}, screened_s={"choice=mm": 14e-6, "choice=x": 1e-5})
    path = stored(store, make_run(), both, make_row(implementation="b"))
    first, second = store.load(str(path)).rows
    assert (first.readings_s, first.screened_s) == ({"mm": 47e-6}, {"choice=mm": 14e-6, "choice=x": 1e-5})
    assert second.readings_s is None and second.screened_s is None
