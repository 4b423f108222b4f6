"""Whether an implementation computes what it should, before it is timed: on two sets of inputs, and repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from gemmgate.suite.measure import check
from gemmgate.suite.measure.check import Errors
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import tensors_in
from gemmgate.suite.measure.settings import Settings
from gemmgate.suite.measure.work import Work

_OTHER_SEED = 7919
"""Added to the seed for the second set of inputs that every implementation is checked on."""


def check_results(work: Work, name: str, synchronize: Callable[[], None]) -> dict[str, Any]:
    """Right on two sets of inputs, alike when repeated over poisoned outputs, inputs and earlier outputs left alone.

    Raises `Refused` with status `broken` (or `invalid` where inputs changed).
    """
    begin = time.perf_counter()
    settings = Settings.read()
    prepared, implementation = work.ready[name], work.implementations[name]
    worst = Errors(0.0, 0.0, 0.0)
    decision: dict[str, float] | None = None
    earlier: list[torch.Tensor] = []
    returned: list[torch.Tensor] = []
    for slot in (0, _OTHER_SEED):
        inputs = work.ring.slots[0] if slot == 0 else work.make(slot)
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
