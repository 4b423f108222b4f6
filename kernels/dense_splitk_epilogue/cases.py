"""The cases of `dense_splitk_epilogue`: a long-K product and what follows it. Standard library only.

An epilogue is one word of a case:

| word | C |
| --- | --- |
| `none`, `relu`, `gelu` | f(A @ B) |
| `bias-relu`, `bias-silu` | f(A @ B + bias[n]) |
| `bias-column` | A @ B + bias[m] |
| `residual` | A @ B + residual[m, n] |
| `scale` | scale[m] * (A @ B) |
| `addmm` | 0.5 * (A @ B) - 2 * self[n], as `torch.addmm(self, a, b, beta=-2, alpha=0.5)` |
| `cast` | A @ B in fp32 for 16-bit operands, in bf16 for fp32 |
| `transposed`, `sliced` | (A @ B).T and (A @ B)[:, : N / 2], contiguous |
| `cast-in` | bf16(A) @ B, A in fp32 |
| `dequantise` | A @ (scale[n] * B), B in int8 |
| `rms-scale` | (A * rms[m] * weight[k]) @ B: an RMS norm whose row factors are known |
"""

from __future__ import annotations

from collections.abc import Iterator

from gemmgate.kernels.dense_splitk import cases as dense
from gemmgate.kernels.dense_splitk.cases import ITEM_BYTES, sizes
from gemmgate.suite.cases import Case

FAMILY = "dense_splitk_epilogue"
OWN = ("last_arrival", "grid_barrier", "atomic_arrival", "atomic_fp32", "two_launches", "turnstile", "stream_k")
"""Kernels of `dense_splitk` that take an epilogue in their launch, whatever it is."""
WITH_ACTIVATION = ("relu", "gelu", "bias-relu", "bias-silu")
LAYOUT_CHANGING = ("transposed", "sliced")
PROLOGUES = ("cast-in", "dequantise", "rms-scale")
FUSED_BY_LIBRARY = ("none", "relu", "bias-relu")
"""What cuBLASLt's epilogues compute as it is defined here; its GELU is the approximation by tanh."""
ADDMM_ALPHA, ADDMM_BETA = 0.5, -2.0

_EVERY_SHAPE = ("none", "relu", "bias-relu", "bias-silu", "gelu", "residual", "cast", "scale")
_ONE_FORMAT = ("bf16", "acc32")
_SOME_SHAPES = ((32, 32, 32768), (64, 64, 65536), (128, 128, 32768))
_BESIDE = ((16, 16, 16384), (32, 32, 32768), (48, 48, 24576), (64, 64, 32768), (64, 64, 65536), (128, 128, 32768))
_BESIDE_EPILOGUES = ("relu", "bias-relu", "bias-silu", "gelu", "residual")
"""Six shapes with five epilogues: the thirty cases on which a compiler stands beside."""
_QUICK = frozenset(
    {
        "m16-n16-k16384-bf16-relu",
        "m32-n32-k32768-bf16-relu",
        "m32-n32-k32768-bf16-bias-silu",
        "m48-n48-k24576-bf16-relu",
        "m64-n64-k32768-bf16-relu",
        "m64-n64-k65536-bf16-relu",
        "m64-n64-k65536-bf16-residual",
        "m128-n128-k32768-bf16-bias-relu",
        "m32-n32-k32768-fp16-relu",
        "m32-n32-k32768-tf32-relu",
    }
)


def case_of(
    m: int, n: int, k: int, dtype: str, precision: str, epilogue: str, tags: tuple[str, ...] = (), origin: str = ""
) -> Case:
    """A case of this family, of the catalog or not: the name of the product, and the epilogue's word."""
    name = f"{dense.case_name(m, n, k, dtype, precision)}-{epilogue}"
    layout = epilogue if epilogue in LAYOUT_CHANGING else "row"
    dims = {"m": m, "n": n, "k": k}
    return Case(FAMILY, name, dims, dtype, precision, layout, epilogue, tags, origin or "given by the caller")


def product_of(case: Case) -> Case:
    """The product alone, as a case of `dense_splitk`."""
    return dense.case_of(*sizes(case), case.dtype, case.precision)


def _catalog() -> Iterator[Case]:
    tritonbench = [shape for shape in dense.SHAPES if "tritonbench" in shape.tags]
    drawn = [shape for shape in dense.SHAPES if "drawn" in shape.tags]
    large = [shape for shape in dense.SHAPES if "large" in shape.tags]
    for epilogue in _EVERY_SHAPE:
        formats = dense.FORMATS if epilogue == "relu" else (_ONE_FORMAT,)
        for dtype, precision in formats:
            for shape in tritonbench:
                yield _case(shape, dtype, precision, epilogue)
    for epilogue in ("relu", "bias-silu"):
        for shape in (*large, *drawn):
            yield _case(shape, *_ONE_FORMAT, epilogue)
    for epilogue in ("bias-relu", "gelu", "residual"):
        for shape in large:
            if shape[:3] in _BESIDE:
                yield _case(shape, *_ONE_FORMAT, epilogue)
    for epilogue in ("bias-column", "addmm", *LAYOUT_CHANGING, *PROLOGUES):
        for m, n, k in _SOME_SHAPES:
            tag = "layout" if epilogue in LAYOUT_CHANGING else "prologue" if epilogue in PROLOGUES else "addend"
            yield _case(dense.Shape(m, n, k, (tag,), "shapes of the split-K set and beyond"), *_ONE_FORMAT, epilogue)


def _case(shape: dense.Shape, dtype: str, precision: str, epilogue: str) -> Case:
    m, n, k, tags, origin = shape
    name = f"{dense.case_name(m, n, k, dtype, precision)}-{epilogue}"
    named = ["quick"] if name in _QUICK else []
    if (m, n, k) in _BESIDE and epilogue in _BESIDE_EPILOGUES and (dtype, precision) == _ONE_FORMAT:
        named.append("beside")
    return case_of(m, n, k, dtype, precision, epilogue, (*named, *tags, "full"), origin)


CASES = tuple({case.name: case for case in _catalog()}.values())


def output_dtype(case: Case) -> str:
    """The case's dtype, but for `cast`."""
    if case.epilogue != "cast":
        return case.dtype
    return "bf16" if case.dtype == "fp32" else "fp32"


def output_shape(case: Case) -> tuple[int, int]:
    m, n, _ = sizes(case)
    return {"transposed": (n, m), "sliced": (m, n // 2)}.get(case.epilogue, (m, n))


def flop(case: Case) -> int:
    """That of the product; a slice needs only its columns."""
    m, n, k = sizes(case)
    return 2 * m * (n // 2 if case.epilogue == "sliced" else n) * k


def bytes_moved(case: Case) -> int:
    """Every input that counts read once, C written once."""
    m, n, k = sizes(case)
    item = ITEM_BYTES[case.dtype]
    columns = n // 2 if case.epilogue == "sliced" else n
    a, b, c = m * k * item, k * columns * item, m * columns * ITEM_BYTES[output_dtype(case)]
    if case.epilogue == "cast-in":
        a = m * k * 4
    if case.epilogue == "dequantise":
        b = k * columns
    beside = {
        "bias-relu": n * item,
        "bias-silu": n * item,
        "bias-column": m * item,
        "addmm": n * item,
        "residual": m * n * item,
        "scale": m * 4,
        "dequantise": n * 4,
        "rms-scale": m * 4 + k * item,
    }
    return a + b + c + beside.get(case.epilogue, 0)


def twin(case: Case) -> Case:
    """One small case for each epilogue and format, ragged in every dimension."""
    return case_of(20, 24, 264, case.dtype, case.precision, case.epilogue, origin=f"twin of {case.name}")
