"""What a first call of somebody's own function returned, told in words before anything is computed with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gemmgate.suite.cases import Call, Inputs
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import tensors_in

_ROLLED = (torch.bfloat16, torch.float16, torch.float32)
"""Dtypes of inputs that get other values: whole numbers may be indices, which must stay as they are."""


def look(output: Any, inputs: Inputs) -> None:
    """Raises `Refused` where a call returned no tensor, or one that lies elsewhere than its inputs."""
    if inspect.iscoroutine(output):
        output.close()
        raise _not_the_result("a coroutine: name a plain function, not an async one")
    if inspect.isgenerator(output):
        raise _not_the_result("a generator: return the tensor instead of yielding it")
    if output is None:
        raise _not_the_result("None")
    found = tensors_in(output)
    if not found:
        kind = type(output)
        raise _not_the_result(f"{kind.__module__}.{kind.__name__}, where a tensor of torch is the result")
    device = next((tensor.device for tensor in tensors_in(inputs)), None)
    for tensor in found:
        if device is not None and tensor.device != device:
            detail = f"it is on {tensor.device}, and the inputs are on {device}"
            raise Refused("broken", "output_device", detail)
        if tensor.layout != torch.strided:
            raise Refused("broken", "output_layout", f"its layout is {tensor.layout}, where every element is wanted")


def refuse_remembered(bind: Callable[[Inputs], Call], inputs: Inputs, returned: Any) -> None:
    """Raises `Refused` where a call on the same tensors, with other values in them, gives what it `returned` before.

    The same values in tensors of their own say whether that can be right. The inputs are left as they were.
    """
    changed = [tensor for tensor in tensors_in(inputs) if tensor.dtype in _ROLLED]
    before = [tensor.detach().clone() for tensor in changed]
    earlier = [tensor.detach().clone() for tensor in tensors_in(returned)]
    try:
        _write(changed, [values.roll(1) for values in before])
        same = _alike(tensors_in(bind(inputs)()), earlier)
        remembered = same and not _alike(tensors_in(bind(_cloned(inputs))()), earlier)
    finally:
        _write(changed, before)
    if remembered:
        raise Refused("broken", "output_remembered", "the inputs had other values, and the result was the earlier one")


def _write(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():  # one that the call made require gradients may be written in no other way
        for tensor, new in zip(tensors, values, strict=True):
            tensor.copy_(new)


def _alike(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


def _cloned(inputs: Inputs) -> Inputs:
    return {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()
    }


def _not_the_result(what: str) -> Refused:
    return Refused("broken", "output_count", what)
