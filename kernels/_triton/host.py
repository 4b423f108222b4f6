"""The host side of a Triton implementation: which device, which binary, interpreted or compiled."""

# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import hashlib
import struct
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from triton.runtime import JITFunction

from gemmgate.suite.cases import Refusal, Target


def is_interpreted(kernel: Any) -> bool:
    """Whether a `@triton.jit` function runs in Triton's interpreter: settled when its module was imported."""
    return not isinstance(kernel, JITFunction)


def needs_gpu(kernel: Any, target: Target) -> Refusal | None:
    """The refusal of a compiled kernel on a CPU."""
    if target.is_gpu or is_interpreted(kernel):
        return None
    return "interpreter_only", "On a CPU, Triton only interprets: start the process with TRITON_INTERPRET=1."


def refuse_without_strides(**operands: Tensor | None) -> None:
    """Raises ValueError, with the name, for an operand that is sparse or opaque: a kernel reads at strides."""
    for name, operand in operands.items():
        if operand is not None and operand.layout != torch.strided:
            raise ValueError(f"{name} must have strides, and its layout is {operand.layout}: take {name}.to_dense().")


def refuse_tangents(operator: str, *operands: Tensor | None) -> None:
    """Raises NotImplementedError for an operand with a tangent of forward mode, which would be lost in silence.

    Where it is called for a gradient, an operator without one says so by itself.
    """
    if forward_ad._current_level < 0:  # nobody differentiates; to ask each operand takes longer
        return
    if any(forward_ad.unpack_dual(operand).tangent is not None for operand in operands if operand is not None):
        raise NotImplementedError(
            f"{operator} has no derivative, and an operand has a tangent: differentiate torch's product instead, "
            "or call it outside of torch.func.jvp and dual_level."
        )


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """For the body of an operator, whose result has the dtype that was asked for: autocast would give it another."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def precision_of_fp32() -> str:
    """How torch multiplies fp32 on a GPU: `ieee`, or `tf32` for all else.

    A process may say so in either of torch's two ways, and the older one cannot be read after the newer was used.
    """
    try:
        return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    except RuntimeError:
        return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def device_code(*compiled: Any) -> str:
    """sha256 over the machine code that launches returned; empty where there is none.

    Only the instructions count: the rest of a binary holds the path and line numbers of its source.
    """
    binaries = [kernel.kernel for kernel in compiled if isinstance(getattr(kernel, "kernel", None), bytes)]
    return hashlib.sha256(b"".join(map(_instructions, binaries))).hexdigest() if binaries else ""


def _instructions(binary: bytes) -> bytes:
    """The sections `.text*` of a 64-bit little-endian ELF file, or all of a binary that is none."""
    if binary[:6] != b"\x7fELF\x02\x01":
        return binary
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, names = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + size * i) for i in range(count)]
    start = headers[names][4]
    return b"".join(
        binary[offset : offset + length]
        for name, _, _, _, offset, length in headers
        if binary[start + name :].startswith(b".text")
    )


def target_of(device: torch.device) -> Target:
    """The `Target` of a tensor's device, for callers who have no harness to tell them."""
    return _gpu_target(device.index or 0) if device.type == "cuda" else Target("cpu")


@cache
def _gpu_target(index: int) -> Target:
    properties = torch.cuda.get_device_properties(index)
    amd = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
    return Target(
        arch=amd.split(":")[0] or f"sm_{properties.major}{properties.minor}",
        name=properties.name,
        sm_count=properties.multi_processor_count,
        shared_bytes=getattr(properties, "shared_memory_per_block_optin", 48 * 1024),
        l2_bytes=getattr(properties, "L2_cache_size", 0),
        memory_bytes=properties.total_memory,
    )
