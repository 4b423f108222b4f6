"""What every implementation of every family owes the harness, on small twins of its cases.

A new family or implementation is held to this without an edit here. What runs on a CPU only in Triton's
interpreter is tested by a second pytest, since the interpreter is chosen before a kernel's module is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from gemmgate.suite.cases import Case, Family, Implementation, Prepared, Target
from gemmgate.suite.catalog import find, offered
from tests.guarded import GuardedAllocations, GuardedInputs, launches

CATALOG = find()
CPU = Target("cpu")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def _size(case: Case) -> int:
    product = 1
    for size in case.dims.values():
        product *= max(size, 1)
    return product


def _twins(family: Family) -> list[Case]:
    """For each format: the smallest twin, a middle one, and for each dimension the smallest that is ragged in it."""
    assert family.twin is not None
    formats: dict[tuple[str, ...], dict[str, Case]] = {}
    for case in family.cases:
        twin = family.twin(case)
        formats.setdefault((twin.dtype, twin.precision, twin.layout, twin.epilogue), {})[twin.name] = twin
    chosen = {}
    for twins in formats.values():
        ordered = sorted(twins.values(), key=_size)
        ragged = [next((twin for twin in ordered if twin.dims[dim] % 16), ordered[0]) for dim in ordered[0].dims]
        for twin in (ordered[0], ordered[len(ordered) // 2], *ragged):
            chosen[twin.name] = twin
    return list(chosen.values())


def _measurable() -> list[Family]:
    return [family for family in CATALOG.families.values() if family.runner == "kernel" and family.twin is not None]


def _triples() -> Iterator[Any]:
    for family in _measurable():
        for case in _twins(family):
            for name in offered(family, case):
                yield pytest.param(family, case, name, id=f"{family.name}/{name}/{case.name}")


each_implementation = pytest.mark.parametrize(("family", "case", "name"), list(_triples()))


def _supported(family: Family, case: Case, name: str) -> Implementation:
    implementation: Implementation = CATALOG.implementation(family.name, name)
    refusal = implementation.supports(case, CPU)
    if refusal is not None:
        pytest.skip(f"{refusal[0]}: {refusal[1]}")
    return implementation


def _inputs(family: Family, case: Case, seed: int) -> Any:
    return CATALOG.load(family.name, family.make_inputs)(case, seed, "cpu", "normal")


_PREPARED: dict[tuple[str, str, str], Prepared] = {}


def _prepared(family: Family, case: Case, name: str) -> Prepared:
    """Prepared once for all tests, with nothing bound: it launches, which takes the interpreter long."""
    implementation = _supported(family, case, name)
    key = family.name, case.name, name
    if key not in _PREPARED:
        _PREPARED[key] = implementation.prepare(case, _inputs(family, case, 0), CPU, None)
    prepared = _PREPARED[key]
    prepared.workspaces.clear()
    prepared.state.clear()
    return prepared


def _tensors(outputs: Any) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def _copies(outputs: Any) -> list[Tensor]:
    return [tensor.clone() for tensor in _tensors(outputs)]


def _assert_right(family: Family, case: Case, inputs: Any, outputs: Any) -> None:
    """Normwise against float64: the output's own rounding plus twice the family's bound."""
    references = _tensors(CATALOG.load(family.name, family.reference)(case, inputs))
    for out, reference in zip(_tensors(outputs), references, strict=True):
        assert out.shape == reference.shape
        norm = reference.norm()
        rounding = (reference.to(out.dtype).double() - reference).norm() / norm
        error = (out.double() - reference).norm() / norm
        assert error <= rounding + 2 * family.error_bound(case)


@each_implementation
def test_each_input_gives_its_own_result(family: Family, case: Case, name: str) -> None:
    """Two inputs bound to one preparation each give their own product, in any order of the calls."""
    prepared = _prepared(family, case, name)
    first, second = _inputs(family, case, 1), _inputs(family, case, 2)
    call_first, call_second = prepared.bind(first), prepared.bind(second)
    outputs = _copies(call_first())
    _assert_right(family, case, second, call_second())
    _assert_right(family, case, first, outputs)


@each_implementation
def test_a_call_writes_only_outputs_and_workspaces(family: Family, case: Case, name: str) -> None:
    """Inputs, what surrounds them, and what surrounds every new allocation stay as they were."""
    prepared = _prepared(family, case, name)
    guarded = GuardedInputs(_inputs(family, case, 1))
    with GuardedAllocations() as allocations:
        outputs = prepared.bind(guarded.inputs)()
    assert guarded.changed() == []
    assert allocations.overrun() == []
    _assert_right(family, case, guarded.inputs, outputs)


@each_implementation
def test_calls_repeat(family: Family, case: Case, name: str) -> None:
    """A second and a third call launch the same and return the same, whatever outputs and workspaces held before,
    and restore their state.
    """
    implementation, prepared = _supported(family, case, name), _prepared(family, case, name)
    inputs = _inputs(family, case, 1)
    call = prepared.bind(inputs)
    state = [tensor.clone() for tensor in prepared.state]
    with launches() as launched:
        outputs = call()
    first, launched_first = _copies(outputs), list(launched)
    for _ in range(2):
        for tensor in (*_tensors(outputs), *prepared.workspaces):
            tensor.fill_(float("nan") if tensor.is_floating_point() else 77)
        with launches() as launched:
            outputs = call()
        assert launched == launched_first
        assert all(map(torch.equal, prepared.state, state))
        if implementation.deterministic:
            assert all(torch.equal(a, b) for a, b in zip(_tensors(outputs), first, strict=True))
        else:
            _assert_right(family, case, inputs, outputs)


def in_the_interpreter() -> list[str]:
    """What the second pytest runs, beside this one: whatever refuses a CPU outside Triton's interpreter."""
    names = set()
    for family in _measurable():
        for case in _twins(family):
            for name in offered(family, case):
                refusal = CATALOG.implementation(family.name, name).supports(case, CPU)
                if refusal is not None and refusal[0] == "interpreter_only":
                    names.add(name)
    return [__file__, "-k", " or ".join(f"/{name}/" for name in sorted(names))]


@pytest.mark.skipif(INTERPRETED, reason="this is the second pytest")
def test_interpreted_implementations_conform(interpreted: str) -> None:
    """What refuses a CPU outside Triton's interpreter conforms inside it."""
    assert " passed" in interpreted


@pytest.mark.parametrize("family", list(CATALOG.families.values()), ids=lambda family: family.name)
def test_names_spell_what_varies(family: Family) -> None:
    """Cases that differ in a size, dtype, precision, layout or epilogue say so in their names."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in family.cases:
        spelled = {f"{dim}{size}" for dim, size in case.dims.items()}
        groups.setdefault(tuple(token for token in case.name.split("-") if token not in spelled), []).append(case)
    for cases in groups.values():
        for field in ("dtype", "precision", "layout", "epilogue"):
            assert len({getattr(case, field) for case in cases}) == 1, (field, cases[0].name)
        for dim in cases[0].dims:
            if len({case.dims[dim] for case in cases}) > 1:
                assert all(f"{dim}{case.dims[dim]}" in case.name.split("-") for case in cases), (dim, cases[0].name)


@pytest.mark.parametrize("family", list(CATALOG.families.values()), ids=lambda family: family.name)
def test_every_case_says_where_it_comes_from(family: Family) -> None:
    """No case lacks an origin or tags."""
    assert [case.name for case in family.cases if not case.origin or not case.tags] == []
