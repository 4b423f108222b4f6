"""Memory with canaries around it, and a record of what was launched: for tests of what a call touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

GUARD = 512
"""Elements on either side: keeps the alignment that an allocation has."""

_FACTORIES = {
    torch.ops.aten.empty,
    torch.ops.aten.empty_like,
    torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty,
    torch.ops.aten.new_empty_strided,
    torch.ops.aten.zeros,
    torch.ops.aten.zeros_like,
    torch.ops.aten.new_zeros,
    torch.ops.aten.full,
}


@dataclass(frozen=True)
class Guarded:
    """A view into the middle of a larger buffer."""

    buffer: Tensor
    view: Tensor

    @classmethod
    def like(cls, tensor: Tensor) -> Guarded:
        """The tensor's values and strides, with NaN (or the byte 0xFF) on either side."""
        span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        buffer = torch.empty(span + 2 * GUARD, dtype=tensor.dtype, device=tensor.device)
        buffer.view(torch.uint8).fill_(0xFF)
        view = buffer.as_strided(tensor.shape, tensor.stride(), GUARD)
        view.copy_(tensor)
        return cls(buffer, view)

    def edges_are_intact(self) -> bool:
        edges = torch.cat([self.buffer[:GUARD], self.buffer[-GUARD:]])
        return bool((edges.view(torch.uint8) == 0xFF).all())


class GuardedInputs:
    """Inputs with canaries, that know whether anything of them changed."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._guarded = {name: Guarded.like(value) for name, value in inputs.items() if isinstance(value, Tensor)}
        self.inputs = {**inputs, **{name: guarded.view for name, guarded in self._guarded.items()}}
        self._before = {name: guarded.buffer.clone() for name, guarded in self._guarded.items()}
        self._versions = {name: guarded.buffer._version for name, guarded in self._guarded.items()}

    def changed(self) -> list[str]:
        """Names of the inputs that were written to, if only with what they held: torch counts its own writes."""
        return [
            name
            for name, guarded in self._guarded.items()
            if guarded.buffer._version != self._versions[name]
            or not torch.equal(guarded.buffer.view(torch.uint8), self._before[name].view(torch.uint8))
        ]


class GuardedAllocations(TorchDispatchMode):
    """Gives canaries to every tensor that Python code allocates while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.guarded: list[Guarded] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket not in _FACTORIES or result.numel() == 0:
            return result
        self.guarded.append(Guarded.like(result))
        return self.guarded[-1].view

    def overrun(self) -> list[tuple[int, ...]]:
        """Shapes of the allocations that something wrote beside."""
        return [tuple(guarded.view.shape) for guarded in self.guarded if not guarded.edges_are_intact()]


class _Recorder(TorchDispatchMode):
    def __init__(self, launched: list[str]) -> None:
        super().__init__()
        self.launched = launched

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.launched.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def launches() -> Iterator[list[str]]:
    """Names of torch's operators and of interpreted Triton kernels, in the order in which they ran."""
    from triton.runtime.interpreter import GridExecutor

    launched: list[str] = []
    run = GridExecutor.__call__

    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        launched.append(f"triton.{self.fn.__name__}")
        return run(self, *args, **kwargs)

    GridExecutor.__call__ = recorded
    try:
        with _Recorder(launched):
            yield launched
    finally:
        GridExecutor.__call__ = run
