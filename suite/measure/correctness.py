"""Whether an implementation computes what it should: on two sets of inputs, with other values in them, and repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gemmgate.suite.cases import Inputs
from gemmgate.suite.measure import anew, check
from gemmgate.suite.measure.check import Errors
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import tensors_in
from gemmgate.suite.measure.settings import Settings
from gemmgate.suite.measure.work import Work

_OTHER_SEED = 7919
"""Added to the seed for the second set of inputs that every implementation is checked on."""
_FEWEST_CHANGES = 2
_ENOUGH_S = 0.25
"""After so long no further change of the inputs is tried beyond the fewest."""


def check_results(work: Work, name: str, synchronize: Callable[[], None]) -> dict[str, Any]:
    """Right on two sets of inputs, with other values in the first too, alike when repeated over poisoned outputs.

    Inputs and earlier outputs are left alone. Raises `Refused`: `broken`, or `invalid` where inputs changed.
    """
    begin = time.perf_counter()
    settings = Settings.read()
    prepared, implementation = work.ready[name], work.implementations[name]
    worst = Errors(0.0, 0.0, 0.0)
    decision: dict[str, float] | None = None
    earlier: list[torch.Tensor] = []
    returned: list[torch.Tensor] = []
    others = work.make(_OTHER_SEED)
    for slot, inputs in ((0, work.ring.slots[0]), (_OTHER_SEED, others)):
        prepared.workspaces.clear()
        prepared.state.clear()
        with check.unchanged(inputs):
            call = prepared.bind(inputs)
            state = [tensor.clone() for tensor in tensors_in(prepared.state)]
            outputs, errors = _correct(work, name, slot, call(), synchronize, settings)
            worst = max(worst, errors, key=lambda found: found.error)
            if slot == 0 and work.decide is not None:
                decision = dict(work.decide(inputs, outputs[0], work.expected(slot)[0]))
            kept = [tensor.clone() for tensor in outputs]
        if slot == 0:
            _refuse_remembered(work, name, kept, others, synchronize, settings)
        with check.unchanged(inputs):
            check.poison(outputs)
            check.poison(tensors_in(prepared.workspaces))
            again, _ = _correct(work, name, slot, call(), synchronize, settings)
        if not all(map(torch.equal, returned, earlier)):
            raise Refused(
                "broken",
                "output_reused",
                "a call on other inputs changed what an earlier call had returned: outputs are new, or of one slot",
            )
        earlier, returned = again, [tensor.clone() for tensor in again]
        if not all(map(torch.equal, state, tensors_in(prepared.state))):
            raise Refused(
                "broken",
                "state_not_restored",
                "two calls left other values in the state that bind made, which each call must restore",
            )
        if implementation.deterministic and not all(map(torch.equal, kept, again)):
            raise Refused(
                "broken",
                "not_repeatable",
                "the second call gave other bits than the first, though it promises equal ones",
            )
    return {
        "error": worst.error,
        "error_worst_tile": worst.worst_tile,
        "error_bound": worst.bound,
        "decision": decision,
        "check_s": time.perf_counter() - begin,
    }


def _refuse_remembered(
    work: Work,
    name: str,
    earlier: Sequence[torch.Tensor],
    others: Inputs,
    synchronize: Callable[[], None],
    settings: Settings,
) -> None:
    """Raises `Refused` where a call on the first slot's tensors, with other values in them, is wrong.

    `earlier` is what it returned for the values before. Each call is bound anew, for `bind` may pack weights.
    """
    inputs, prepared = work.ring.slots[0], work.ready[name]
    by_element = "int" not in work.family.output_dtype(work.case)
    held = len(prepared.workspaces), len(prepared.state)
    begin = time.perf_counter()
    for count, change in enumerate(anew.changes(inputs, others, _OTHER_SEED, by_element=by_element)):
        if count >= _FEWEST_CHANGES and time.perf_counter() - begin > _ENOUGH_S:
            return
        with change.put():
            references = work.expected(change.slot, inputs=inputs)
            with check.unchanged(inputs):
                output = prepared.bind(inputs)()
                synchronize()
            del prepared.workspaces[held[0] :], prepared.state[held[1] :]
            settings.put_back()
            errors = work.judge(name, output, references)
            if not errors.reason:
                continue
            if _alike(tensors_in(output), earlier):
                raise _remembered("the inputs had other values, and the result was the earlier one")
            elsewhere = prepared.bind(_cloned(inputs))()
            synchronize()
            settings.put_back()
            if not work.judge(name, elsewhere, references).reason:
                raise _remembered("the inputs had other values, and it was right only with those in other tensors")
            raise Refused("broken", errors.reason, errors.detail)


def _remembered(detail: str) -> Refused:
    return Refused("broken", "output_remembered", detail)


def _alike(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


def _cloned(inputs: Inputs) -> Inputs:
    return {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()
    }


def _correct(
    work: Work, name: str, slot: int, output: Any, synchronize: Callable[[], None], settings: Settings
) -> tuple[list[torch.Tensor], Errors]:
    """Whether that slot's `output` is right. Inputs and reference may be made now: not under what the call has set."""
    synchronize()
    settings.put_back()
    outputs = tensors_in(output)
    if len(outputs) == 1 == len(work.expected(slot)) and not isinstance(output, torch.Tensor):
        detail = f"a {type(output).__name__} of one tensor, where the tensor itself is the result"
        raise Refused("broken", "output_count", detail)
    errors = work.verify(name, slot, output)
    if errors.reason:
        raise Refused("broken", errors.reason, errors.detail)
    return outputs, errors
