"""Other values in the tensors of an earlier call: whoever kept a result, or part of one, computes with the old ones.

Values are written past torch's count of changes to a tensor. What is keyed by that count, by an address, by `id` or by
a few elements finds the same key for other values, as it does in all calls that are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from gemmgate.suite.cases import Inputs
from gemmgate.suite.measure.rotation import tensors_in

_MOVED = (torch.bfloat16, torch.float16, torch.float32)
"""Dtypes of which single elements get other values: whole numbers may be indices, which must stay as they are."""
_STEPS = (4093, 251)
"""Of so many elements one is moved: enough to show in any sum, and likely none of those that somebody looks at."""


@dataclass(frozen=True)
class Change:
    """One way to give inputs other values, which they have within `put`. `slot` names those values and no others."""

    slot: int
    put: Callable[[], AbstractContextManager[None]]


def changes(inputs: Inputs, others: Callable[[], Inputs], slot: int, *, by_element: bool) -> list[Change]:
    """Ways to change `inputs`: a few elements, all to those that `others` makes, called `slot`, their memory.

    Not `by_element` where an output depends on which of two numbers is larger: inputs are then made to be clear.
    """
    few = (
        [Change(-place, partial(_few_moved, inputs, place)) for place, _ in enumerate(_STEPS, 1)] if by_element else []
    )
    whole = [Change(slot, partial(put, inputs, others)) for put in (_overwritten, _exchanged)]
    return [*few[:1], *whole, *few[1:]]


@contextmanager
def _few_moved(inputs: Inputs, place: int) -> Iterator[None]:
    """Moves the elements of one residue class round by one: their sum, and all other elements, are what they were."""
    tensors = [tensor for tensor in tensors_in(inputs) if tensor.dtype in _MOVED]
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        for tensor, values in zip(tensors, before, strict=True):
            tensor.data.copy_(_moved(values, place))
        yield
    finally:
        _write(tensors, before)


def _moved(values: torch.Tensor, place: int) -> torch.Tensor:
    step = min(_STEPS[place - 1], max(values.numel() // 4, 1))
    flat = values.flatten().clone()
    flat[place * step // 3 :: step] = flat[place * step // 3 :: step].roll(1)
    return flat.view(values.shape)


@contextmanager
def _overwritten(inputs: Inputs, others: Callable[[], Inputs]) -> Iterator[None]:
    tensors = tensors_in(inputs)
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        _write(tensors, tensors_in(others()))
        yield
    finally:
        _write(tensors, before)


@contextmanager
def _exchanged(inputs: Inputs, others: Callable[[], Inputs]) -> Iterator[None]:
    """The same tensors, elsewhere in memory."""
    tensors = tensors_in(inputs)
    before = [tensor.data for tensor in tensors]
    try:
        for tensor, other in zip(tensors, tensors_in(others()), strict=True):
            tensor.data = other.data
        yield
    finally:
        for tensor, data in zip(tensors, before, strict=True):
            tensor.data = data


def _write(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for tensor, new in zip(tensors, values, strict=True):
        tensor.data.copy_(new)
