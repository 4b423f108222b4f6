"""What is done to a tile of fp32 sums before it is stored, in the launch that computed it.

    C[m, n] = cast(f(alpha * factor[m, n] * sum[m, n] + beta * addend[m, n]))

`factor` and `addend` are tensors of any strides, so that one form covers a scale of rows or columns, a bias for
rows or columns, a residual, and what `addmm` broadcasts: a stride of 0 repeats. What is None is not read at all;
an addend with beta 0, which may hold NaN, is handed over as None. `f` is any jit function from fp32 to fp32; C has any
strides and dtype.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import triton
import triton.language as tl

from gemmgate.kernels._triton.device import store_cast


class Epilogue(NamedTuple):
    """C, and what is done to the sums, as a kernel takes it."""

    c: Any
    stride_cm: int
    stride_cn: int
    factor: Any
    stride_fm: int
    stride_fn: int
    addend: Any
    stride_dm: int
    stride_dn: int
    alpha: float
    beta: float


@triton.jit
def relu(x):
    """max(x, 0), where NaN stays NaN."""
    return tl.where(x < 0, 0.0, x)


@triton.jit
def gelu(x):
    """x Phi(x), with the error function."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def silu(x):
    """x / (1 + exp(-x))"""
    return x / (1.0 + tl.exp(-x))


OWN_ACTIVATIONS: Mapping[str, Any] = MappingProxyType({"relu": relu, "gelu": gelu, "silu": silu})
ACTIVATIONS: dict[str, Any] = dict(OWN_ACTIVATIONS)
"""Activations by the name that a caller gives. Whoever adds a jit function here, or puts one in the place of another,
can name it too.
"""


def function_of(activation: str) -> Any:
    """The jit function of that name. Raises ValueError where there is none."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"Activation '{activation}' is none of {', '.join(sorted(ACTIVATIONS))}.")
    function = ACTIVATIONS[activation]
    if not isinstance(function, type(finish)):  # interpreted kernels call interpreted functions, compiled ones compiled
        raise ValueError(
            f"Activation '{activation}' is a {type(function).__name__}, and kernels call a {type(finish).__name__}: "
            "decorate the function with `triton.jit` in this process, and put that into `ACTIVATIONS`."
        )
    return function


def is_own(activation: str) -> bool:
    """Whether a name stands for what it stood for at first, which others than our kernels may know by it."""
    return activation in OWN_ACTIVATIONS and ACTIVATIONS.get(activation) is OWN_ACTIVATIONS[activation]


@triton.jit
def scaled(total, rows, columns, within, epilogue):
    """alpha * factor * total"""
    x = total * epilogue.alpha
    if epilogue.factor is not None:
        at = epilogue.factor + rows * epilogue.stride_fm + columns * epilogue.stride_fn
        x *= tl.load(at, mask=within, other=0.0).to(tl.float32)
    return x


@triton.jit
def addend_of(rows, columns, within, epilogue):
    """beta * addend"""
    at = epilogue.addend + rows * epilogue.stride_dm + columns * epilogue.stride_dn
    return epilogue.beta * tl.load(at, mask=within, other=0.0).to(tl.float32)


@triton.jit
def finish(total, rows, columns, M, N, epilogue, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr):
    """Stores sums [...] of the elements (rows, columns), which broadcast to their shape, as elements of C."""
    rows = rows.to(tl.int64)
    columns = columns.to(tl.int64)
    within = (rows < M) & (columns < N)
    x = scaled(total, rows, columns, within, epilogue)
    if epilogue.addend is not None:
        x += addend_of(rows, columns, within, epilogue)
    if ACTIVATION is not None:
        x = ACTIVATION(x)
    stored = epilogue.c + rows * epilogue.stride_cm + columns * epilogue.stride_cn
    tl.store(stored, store_cast(x, epilogue.c.dtype.element_ty, INTERPRETED), mask=within)


@triton.jit
def add_part(total, rows, columns, M, N, epilogue, is_first):
    """Adds a part of the sums to C, in its dtype; the first part brings the addend. No activation can follow."""
    rows = rows.to(tl.int64)
    columns = columns.to(tl.int64)
    within = (rows < M) & (columns < N)
    x = scaled(total, rows, columns, within, epilogue)
    if epilogue.addend is not None:
        x = tl.where(is_first, x + addend_of(rows, columns, within, epilogue), x)
    added = epilogue.c + rows * epilogue.stride_cm + columns * epilogue.stride_cn
    tl.atomic_add(added, x.to(epilogue.c.dtype.element_ty), mask=within, sem="relaxed")
