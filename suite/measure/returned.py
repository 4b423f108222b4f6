"""What a first call of somebody's own function returned, told in words before anything is computed with it."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from gemmgate.suite.cases import Inputs
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.rotation import tensors_in


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


def _not_the_result(what: str) -> Refused:
    return Refused("broken", "output_count", what)
