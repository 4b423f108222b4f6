"""What Inductor's autotuner was offered, what it measured, and each of its choices as a call.

All of it is read through the hooks that torch has for the purpose, or from the choices themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._inductor import select_algorithm

from gemmgate.suite.cases import Call

_TRITON_FACTS = re.compile(r"\b(BLOCK_M|BLOCK_N|BLOCK_K|GROUP_M|num_stages|num_warps)=(\w+)")


@dataclass
class Tuning:
    """The choices for one operation by label, and the autotuner's reading of each that it timed, seconds a call."""

    choices: dict[str, Any] = field(default_factory=dict)
    readings_s: dict[str, float] = field(default_factory=dict)

    @property
    def pick(self) -> str:
        """The label of what was chosen: the fastest by the readings, or the only one."""
        if self.readings_s:
            return min(self.readings_s, key=self.readings_s.__getitem__)
        return next(iter(self.choices), "")


def label(choice: Any) -> str:
    """`mm`, `decompose_k_mm_32_split`, `triton_mm BLOCK_K=64 ...`: a choice's name without the counter in it."""
    name = re.sub(r"_+", "_", choice.name)
    if not isinstance(choice, select_algorithm.ExternKernelCaller):  # a library's function has none
        name = re.sub(r"_\d+$", "", name)
    facts = [f"{fact}={value}" for fact, value in _TRITON_FACTS.findall(getattr(choice, "description", "") or "")]
    return " ".join([name, *sorted(facts)])


@contextmanager
def recorded(keep: Callable[[str], bool] | None = None) -> Iterator[Tuning]:
    """Records the first operation that is autotuned inside.

    With `keep`, an operation that has choices whose label passes is left with those alone.
    """
    tuning = Tuning()

    def see_choices(choices: list[Any]) -> list[Any]:
        kept = [choice for choice in choices if keep is not None and keep(label(choice))] or choices
        # The first call is the operation itself: what its choices are made of is lowered later.
        if not tuning.choices:
            tuning.choices.update((label(choice), choice) for choice in kept)
        return kept

    def see_readings(timings: dict[Any, float], name: str, nodes: Any, choices: Any, *rest: Any) -> None:
        for choice, milliseconds in timings.items():
            if label(choice) in tuning.choices and math.isfinite(milliseconds):
                tuning.choices[label(choice)] = choice
                tuning.readings_s[label(choice)] = milliseconds * 1e-3

    select_algorithm.add_preprocessing_fn(see_choices)
    select_algorithm.add_feedback_saver(see_readings)
    try:
        yield tuning
    finally:
        select_algorithm.clear_preprocessing_fns()
        select_algorithm.clear_feedback_savers()


def call_of(choice: Any, tensors: Sequence[Tensor]) -> Call:
    """A choice that was timed by the autotuner, as a call on `tensors`: the code that its reading is about."""
    module = getattr(choice, "_compiled_module", None)
    if module is not None:  # a subgraph, such as decompose-K
        return lambda: module.call([*tensors])[0]
    out = _empty_like(choice, tensors[0].device)
    if isinstance(choice, select_algorithm.ExternKernelCaller):
        kernel = choice.to_callable()
        if getattr(choice, "has_out_variant", False):
            return lambda: kernel(*tensors, out=out)
        return lambda: kernel(*tensors)
    request = choice.bmreq  # a template

    def call() -> Tensor:
        # The launch is bound to the stream that is current when it is made.
        request.make_run_fn(*tensors, out=out)()
        return out

    return call


def _empty_like(choice: Any, device: torch.device) -> Tensor:
    layout = choice.layout
    size, stride = ([int(value) for value in values] for values in (layout.size, layout.stride))
    return torch.empty_strided(size, stride, dtype=layout.dtype, device=device)
