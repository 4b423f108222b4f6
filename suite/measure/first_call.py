"""What a first call shows that says nothing about right or wrong: it needs a GPU, or an interpreter that computes."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gemmgate.suite.measure.refusal import Refused, one_line, own_place

_TRITON_SIGNS = ("active drivers", "cannot be accessed from Triton (cpu tensor?)")
_CUDA_SIGNS = ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver", "No CUDA GPUs are available")


def no_gpu(error: BaseException) -> Refused | None:
    """What an exception becomes that only a missing GPU explains; None for any other. For work on a CPU."""
    text = str(error)
    if any(sign in text for sign in _TRITON_SIGNS):
        said = (
            "Triton needs a GPU for this even in its interpreter, as @triton.autotune over several configs does"
            if _interpreted()
            else "Triton needs a GPU: on a CPU it runs in its interpreter with TRITON_INTERPRET=1, for fp32 and fp16"
        )
    elif any(sign in text for sign in _CUDA_SIGNS):
        said = f"it asks for a GPU, and this is a CPU: {one_line(text).rstrip('.')}{own_place(error)}"
    else:
        return None
    return Refused("unsupported", "needs_gpu", said)


@contextmanager
def seen_to(*, is_gpu: bool) -> Iterator[None]:
    """Raises `Refused` where what is called within fails for want of a GPU, or multiplied bf16 in Triton's interpreter.

    The interpreter holds bf16 as whole numbers of 16 bits, and its `tl.dot` multiplies those.
    """
    try:
        with _bf16_products() as products:
            yield
    except Exception as error:
        if not products:
            if not is_gpu and (refused := no_gpu(error)):
                raise refused from error
            raise
    if products:
        detail = "Triton's interpreter computes tl.dot of bf16 wrongly; take an fp16 or fp32 case"
        raise Refused("unsupported", "interpreter_bf16", detail)


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


@contextmanager
def _bf16_products() -> Iterator[list[bool]]:
    """Gets one entry for each product of bf16 that the interpreter is asked for."""
    found: list[bool] = []
    try:
        builder: Any = (
            importlib.import_module("triton.runtime.interpreter").InterpreterBuilder if _interpreted() else None
        )
        create_dot = builder and builder.create_dot
    except (ImportError, AttributeError):  # no Triton, or one whose interpreter is built otherwise
        builder = None
    if builder is None:
        yield found
        return

    def noting(self: Any, a: Any, b: Any, *rest: Any, **named: Any) -> Any:
        if "bf16" in (str(a.dtype.scalar), str(b.dtype.scalar)):
            found.append(True)
        return create_dot(self, a, b, *rest, **named)

    builder.create_dot = noting
    try:
        yield found
    finally:
        builder.create_dot = create_dot
