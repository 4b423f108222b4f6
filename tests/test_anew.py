"""Results kept from an earlier call are found, by whatever key they were kept; honest caches of work are not."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="a bench runs in a process with torch")

from gemmgate.suite.cases import Implementation, Prepared  # noqa: E402  torch first
from gemmgate.suite.measure import anew  # noqa: E402
from gemmgate.suite.measure.refusal import Refused  # noqa: E402
from tests.fakes import FakeClock, make_bench, make_inputs  # noqa: E402

Bind = Callable[[Any], Callable[[], Any]]


def checked(bind: Bind) -> dict[str, Any]:
    """What the check says of an implementation that binds so."""
    bench, work = make_bench(FakeClock(lambda n: 1e-3))
    implementation = Implementation("second", "own", True, lambda case, target: None, lambda *given: Prepared(bind))
    bench.prepare(work, implementation)
    return bench.check(work, "second")


KEYS: dict[str, Callable[[Any, Any], Hashable]] = {
    "address": lambda a, b: (a.data_ptr(), b.data_ptr()),
    "id": lambda a, b: (id(a), id(b)),
    "shape": lambda a, b: (a.shape, b.shape),
    "version": lambda a, b: (a.data_ptr(), a._version, b._version),
    "corners": lambda a, b: (a.data_ptr(), float(a[0, 0]), float(b[-1, -1])),
    "sum": lambda a, b: (a.data_ptr(), round(float(a.sum()), 4), round(float(b.sum()), 4)),
    "squares": lambda a, b: (a.data_ptr(), round(float(a.square().sum()), 4), round(float(b.square().sum()), 4)),
}


@pytest.mark.parametrize("cloned", [True, False])
@pytest.mark.parametrize("key", KEYS)
def test_a_result_kept_by_any_key_is_found(key: str, cloned: bool) -> None:
    """A product kept by address, `id`, shape, version, corners or sums, itself or as a clone, is remembered."""
    kept: dict[Hashable, Any] = {}

    def call(a: Any, b: Any) -> Any:
        found = kept.setdefault(KEYS[key](a, b), a @ b)
        return found.clone() if cloned else found

    with pytest.raises(Refused, match="the inputs had other values, and the result was the earlier one") as refused:
        checked(lambda inputs: lambda: call(inputs["a"], inputs["b"]))
    assert (refused.value.status, refused.value.reason) == ("broken", "output_remembered")


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_operand_kept_by_address_is_found(name: str) -> None:
    """Who keeps a copy of one operand computes with its old values: right only for tensors that it has not seen."""
    kept: dict[int, Any] = {}
    held = []  # the tensors themselves, so that no other gets an address that was seen

    def call(inputs: Any) -> Any:
        held.append(inputs[name])
        own = {**inputs, name: kept.setdefault(inputs[name].data_ptr(), inputs[name].clone())}
        return own["a"] @ own["b"]

    with pytest.raises(Refused, match="right only with those in other tensors") as refused:
        checked(lambda inputs: lambda: call(inputs))
    assert refused.value.reason == "output_remembered"


def test_a_view_kept_by_id_is_found() -> None:
    """A view of an operand that is kept by `id` shows changes in place, and not that the tensor has other memory."""
    kept: dict[int, Any] = {}
    held = []

    def call(a: Any, b: Any) -> Any:
        held.append(b)
        return a @ kept.setdefault(id(b), b.detach())

    with pytest.raises(Refused) as refused:
        checked(lambda inputs: lambda: call(inputs["a"], inputs["b"]))
    assert refused.value.reason == "output_remembered"


def test_what_is_wrong_for_other_values_keeps_its_reason() -> None:
    """A sum that leaves out the second column of A is wrong in itself, also where the first inputs do not show it."""
    first = make_inputs(0)["a"]

    def call(a: Any, b: Any) -> Any:
        return a @ b if torch.equal(a, first) else a[:, ::2] @ b[::2]

    with pytest.raises(Refused) as refused:
        checked(lambda inputs: lambda: call(inputs["a"], inputs["b"]))
    assert refused.value.reason == "error_above_bound"


def test_weights_packed_when_bound_are_right() -> None:
    """What `bind` packs, and an output that it allocates once, belong to that call: no result was kept."""

    def bind(inputs: Any) -> Callable[[], Any]:
        packed, out = inputs["b"].t().contiguous(), torch.empty(4, 4)
        return lambda: torch.mm(inputs["a"], packed.t(), out=out)

    assert checked(bind)["error"] < 1e-6


def test_every_change_leaves_inputs_as_they_were() -> None:
    """Within a change values differ and no version counts it; afterwards values and addresses are the old ones."""
    inputs, others = make_inputs(0), make_inputs(1)
    inputs["b"] = inputs["b"].t()  # which is not contiguous
    old = {name: (tensor.clone(), tensor.data_ptr(), tensor._version) for name, tensor in inputs.items()}
    found = anew.changes(inputs, lambda: others, 7, by_element=True)
    assert [change.slot for change in found] == [-1, 7, 7, -2]
    for change in found:
        with change.put():
            for name, tensor in inputs.items():
                changed = int((tensor != old[name][0]).sum())
                assert 2 <= changed <= 4 if change.slot < 0 else changed == 16
                assert tensor._version == old[name][2]
                if change.slot < 0:
                    assert float(tensor.double().sum()) == pytest.approx(float(old[name][0].double().sum()))
        assert all(torch.equal(inputs[name], values) for name, (values, _, _) in old.items())
        assert [tensor.data_ptr() for tensor in inputs.values()] == [address for _, address, _ in old.values()]


def test_few_of_many_elements_are_moved() -> None:
    """Of 2^20 elements each 4093rd is moved, from number 1364 on, then each 251st from number 167: 256, and 4177."""
    values = torch.arange(2.0**20).view(64, -1)
    counts = []
    for change in anew.changes({"a": values}, dict, 7, by_element=True):
        if change.slot < 0:
            with change.put():
                counts.append(int((values.flatten() != torch.arange(2.0**20)).sum()))
    assert counts == [256, 4177]


def test_positions_get_no_single_elements_moved() -> None:
    """Where an output is whole numbers, such as positions of the largest, inputs are only replaced as a whole."""
    bench, work = make_bench(FakeClock(lambda n: 1e-3))
    work.family = replace(work.family, output_dtype=lambda case: "fp32,int32")
    work.reference = lambda inputs: [inputs["a"].double(), inputs["a"].argmax(1).int()]
    work.references.clear()
    moved = []

    def call(a: Any) -> Any:
        moved.append(a.clone())
        return a.clone(), a.argmax(1).int()

    bind: Bind = lambda inputs: lambda: call(inputs["a"])  # noqa: E731
    implementation = Implementation("second", "own", True, lambda case, target: None, lambda *given: Prepared(bind))
    bench.prepare(work, implementation)
    bench.check(work, "second")
    known = [make_inputs(seed)["a"] for seed in (0, 7919)]
    assert all(any(torch.equal(values, one) for one in known) for values in moved)
