"""Whether an implementation computes what it should: on two sets of inputs, with other values in them, and repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from gemmgate.suite.cases import Call, Inputs
from gemmgate.suite.measure import anew, check
from gemmgate.suite.measure.check import Errors
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import tensors_in
from gemmgate.suite.measure.settings import Settings
from gemmgate.suite.measure.work import Work

_OTHER_SEED = 7919
"""Added to the seed for the second set of inputs that every implementation is checked on."""
_REPEATS = 24
"""Calls on the same inputs after the first: what is wrong every fifth time, or from the tenth time on, shows."""
_FEWEST_REPEATS = 1
_FEWEST_CHANGES = 2
_ENOUGH_S = 0.25
"""After so long there are no more repeats, and no further changes of the inputs, than the fewest."""


def check_results(work: Work, name: str, synchronize: Callable[[], None]) -> dict[str, Any]:
    """Right on two sets of inputs, with other values in the first too, alike when repeated over poisoned outputs.

    Inputs and earlier outputs are left alone. Raises `Refused`: `broken`, or `invalid` where inputs changed.
    """
    begin = time.perf_counter()
    checked = _Checked(work, name, synchronize)
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
            outputs, errors = checked.correct(slot, call())
            worst = max(worst, errors, key=lambda found: found.error)
            if slot == 0 and work.decide is not None:
                decision = dict(work.decide(inputs, outputs[0], work.expected(slot)[0]))
            kept = [tensor.clone() for tensor in outputs]
        if slot == 0:
            checked.refuse_remembered(kept, lambda: others)
        with check.unchanged(inputs):
            times = _REPEATS if slot == 0 else _FEWEST_REPEATS
            again, is_alike = checked.repeat(slot, call, outputs, kept, times)
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
                "calls left other values in the state that bind made, which each call must restore",
            )
        if implementation.deterministic and not is_alike:
            raise _not_repeatable()
    return {
        "error": worst.error,
        "error_worst_tile": worst.worst_tile,
        "error_bound": worst.bound,
        "decision": decision,
        "check_s": time.perf_counter() - begin,
    }


def check_afterwards(work: Work, name: str, synchronize: Callable[[], None]) -> None:
    """Whether what has been timed is still right, repeated and with other values in its inputs.

    Raises `Refused` as `check_results` does. Workspaces and state stay those of the calls that were timed.
    """
    checked = _Checked(work, name, synchronize)
    prepared, inputs = work.ready[name], work.ring.slots[0]
    workspaces, state = list(prepared.workspaces), list(prepared.state)
    try:
        with check.unchanged(inputs):
            call = prepared.bind(inputs)
            outputs, _ = checked.correct(0, call())
            kept = [tensor.clone() for tensor in outputs]
        checked.refuse_remembered(kept, partial(work.make, _OTHER_SEED), most=1)
        with check.unchanged(inputs):
            _, is_alike = checked.repeat(0, call, outputs, kept, _REPEATS)
        if work.implementations[name].deterministic and not is_alike:
            raise _not_repeatable()
    except Refused as refused:
        raise Refused(refused.status, refused.reason, f"after it was timed: {refused}") from refused
    finally:
        prepared.workspaces[:], prepared.state[:] = workspaces, state


@dataclass
class _Checked:
    """One implementation under check. Inputs and references may be made at any time: not under what a call has set."""

    work: Work
    name: str
    synchronize: Callable[[], None]
    settings: Settings = field(default_factory=Settings.read)
    changed: list[list[torch.Tensor]] = field(default_factory=list)
    """What it returned while its inputs had other values."""

    def correct(self, slot: int, output: Any) -> tuple[list[torch.Tensor], Errors]:
        """The tensors of that slot's `output`, and their errors. Raises `Refused` where it is wrong."""
        self._wait()
        outputs, references = tensors_in(output), self.work.expected(slot)
        if len(outputs) == 1 == len(references) and not isinstance(output, torch.Tensor):
            detail = f"a {type(output).__name__} of one tensor, where the tensor itself is the result"
            raise Refused("broken", "output_count", detail)
        errors = self.work.verify(self.name, slot, output)
        if errors.reason:
            raise Refused("broken", errors.reason, errors.detail)
        return outputs, errors

    def repeat(
        self, slot: int, call: Call, outputs: list[torch.Tensor], kept: Sequence[torch.Tensor], times: int
    ) -> tuple[list[torch.Tensor], bool]:
        """The outputs of the last of further calls, each over poisoned ones, and whether all had the bits of `kept`.

        `outputs` are those of the call before. Raises `Refused` where one is wrong; equal bits are as right as `kept`.
        """
        is_alike = True
        begin = time.perf_counter()
        for count in range(times):
            if count >= _FEWEST_REPEATS and time.perf_counter() - begin > _ENOUGH_S:
                break
            check.poison(outputs)
            check.poison(tensors_in(self.work.ready[self.name].workspaces))
            output = call()
            self._wait()
            outputs = tensors_in(output)
            if not _alike(outputs, kept):
                is_alike = False
                self._correct_again(slot, output)
        return outputs, is_alike

    def _correct_again(self, slot: int, output: Any) -> None:
        try:
            self.correct(slot, output)
        except Refused as refused:
            if any(_alike(tensors_in(output), one) for one in self.changed):
                raise _remembered("the inputs had their values again, and the result was that of others") from refused
            detail = f"{refused}, though it was right in an earlier call on these inputs"
            raise Refused(refused.status, refused.reason, detail) from refused

    def refuse_remembered(
        self, earlier: Sequence[torch.Tensor], others: Callable[[], Inputs], *, most: int | None = None
    ) -> None:
        """Raises `Refused` where a call on the first slot's tensors, with other values in them, is wrong.

        `earlier` is what it returned for the values before. Each call is bound anew, for `bind` may pack weights.
        At `most` so many ways to change them are tried.
        """
        inputs, prepared = self.work.ring.slots[0], self.work.ready[self.name]
        by_element = "int" not in self.work.family.output_dtype(self.work.case)
        held = len(prepared.workspaces), len(prepared.state)
        begin = time.perf_counter()
        for count, change in enumerate(anew.changes(inputs, others, _OTHER_SEED, by_element=by_element)[:most]):
            if count >= _FEWEST_CHANGES and time.perf_counter() - begin > _ENOUGH_S:
                return
            with change.put():
                references = self.work.expected(change.slot, inputs=inputs)
                with check.unchanged(inputs):
                    output = prepared.bind(inputs)()
                    self._wait()
                self._compare_anew(inputs, output, references, earlier)
            self.changed.append([tensor.clone() for tensor in tensors_in(output)])
            del prepared.workspaces[held[0] :], prepared.state[held[1] :]

    def _compare_anew(
        self, inputs: Inputs, output: Any, references: Sequence[torch.Tensor], earlier: Sequence[torch.Tensor]
    ) -> None:
        errors = self.work.judge(self.name, output, references)
        if not errors.reason:
            return
        if _alike(tensors_in(output), earlier):
            raise _remembered("the inputs had other values, and the result was the earlier one")
        if self._is_right(inputs, references):
            raise Refused("broken", errors.reason, f"{errors.detail}, and right in the next call on the same inputs")
        if self._is_right(_cloned(inputs), references):
            raise _remembered("the inputs had other values, and it was right only with those in other tensors")
        raise Refused("broken", errors.reason, errors.detail)

    def _is_right(self, inputs: Inputs, references: Sequence[torch.Tensor]) -> bool:
        output = self.work.ready[self.name].bind(inputs)()
        self._wait()
        return not self.work.judge(self.name, output, references).reason

    def _wait(self) -> None:
        self.synchronize()
        self.settings.put_back()


def _remembered(detail: str) -> Refused:
    return Refused("broken", "output_remembered", detail)


def _not_repeatable() -> Refused:
    detail = "a further call gave other bits than the first, though it promises equal ones"
    return Refused("broken", "not_repeatable", detail)


def _alike(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


def _cloned(inputs: Inputs) -> Inputs:
    return {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()
    }
