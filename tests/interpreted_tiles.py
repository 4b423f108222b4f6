"""What was prepared can be prepared again: run in a process whose Triton interprets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gemmgate.suite.cases import Case, Implementation, Target
from gemmgate.suite.catalog import find, offered

CATALOG = find()
CPU = Target("cpu")


def _with_tiles() -> Iterator[Any]:
    """Every implementation of ours that runs here, of every family, with the small twin of a case of its."""
    for family in CATALOG.families.values():
        cases = {name: case for case in reversed(family.cases) for name in offered(family, case)}
        for name, case in cases.items():
            implementation, twin = CATALOG.implementation(family.name, name), family.twin(case)
            if implementation.kind == "own" and implementation.supports(twin, CPU) is None:
                yield pytest.param(twin, implementation, id=f"{family.name}/{name}")


@pytest.mark.parametrize(("case", "implementation"), list(_with_tiles()))
def test_a_reported_tile_is_taken_back(case: Case, implementation: Implementation) -> None:
    """A gate prepares each side in every block with the tile that it reported in the first."""
    make_inputs = CATALOG.load(case.family, CATALOG.family(case.family).make_inputs)
    inputs = make_inputs(case, 0, "cpu")
    first = implementation.prepare(case, inputs, CPU, None)
    again = implementation.prepare(case, inputs, CPU, first.tile)
    assert again.tile == first.tile
