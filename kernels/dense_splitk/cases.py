"""The cases of `dense_splitk`: C[M, N] = A[M, K] @ B[K, N] where K is long and C is small. Standard library only.

A shape is one line of `SHAPES`, with where it comes from. Every shape is measured in the four `FORMATS`,
drawn ones in two.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gemmgate.suite.cases import Case

FAMILY = "dense_splitk"
FORMATS = (("bf16", "acc32"), ("fp16", "acc32"), ("fp32", "ieee"), ("fp32", "tf32"))
"""(dtype, precision): `acc32` is 16-bit operands with fp32 accumulation."""
ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}

MAX_SPLITS = 256
MIN_K_PER_SPLIT = 128
MAX_PARTIALS_PER_INPUT = 4
"""Partial sums are written once and read once: at four times the bytes of A and B they cost eight times the
traffic that the product needs, which no gain in parallelism pays back."""

MOST_PRODUCTS = 2**61
"""m n k of the largest case: twice that is a signed 64-bit number."""

DRAWN_SEED = 20250807
_DRAWN_FORMATS = (("bf16", "acc32"), ("fp32", "tf32"))


class Shape(NamedTuple):
    """One line of the catalog: sizes, tags beside `full`, and where the sizes come from."""

    m: int
    n: int
    k: int
    tags: tuple[str, ...]
    origin: str


def _drawn() -> Iterator[Shape]:
    """Six K that are odd multiples of 1024, then six that are no multiple of it: never tuned on.

    Only `random()` is used: it is the one method whose sequence Python promises to keep.
    """
    source = random.Random(DRAWN_SEED)
    for index in range(12):
        size = (24, 40, 56)[int(source.random() * 3)]
        draw = source.random()
        k = 1024 * (2 * int(draw * 32) + 1) if index < 6 else 2048 + int(draw * 62 * 1024)
        if index >= 6 and k % 1024 == 0:
            k += 1
        yield Shape(size, size, k, ("drawn",), f"drawn, seed {DRAWN_SEED}, number {index}")


SHAPES = (
    *(
        Shape(s, s, 4096 * i, ("tritonbench",), "tritonbench split-K set")
        for s in (16, 32, 48, 64)
        for i in range(1, 9)
    ),
    Shape(64, 64, 1984, ("edge",), "just below Inductor's gate for decompose-K, K >= 32 max(M, N)"),
    Shape(64, 64, 2048, ("edge",), "Inductor's gate for decompose-K, K = 32 max(M, N)"),
    Shape(64, 64, 4032, ("edge",), "just below K = 64 max(M, N), where Inductor drops its ordinary templates"),
    Shape(64, 64, 4096, ("edge",), "K = 64 max(M, N), where Inductor drops its ordinary templates"),
    Shape(48, 48, 24576, ("edge",), "more divisors than Inductor's limit of ten splits keeps"),
    Shape(64, 64, 28672, ("edge",), "more divisors than Inductor's limit of ten splits keeps"),
    Shape(32, 32, 32768, ("edge",), "PyTorch's decompose-K tests"),
    Shape(64, 128, 200000, ("edge",), "PyTorch's decompose-K tests"),
    Shape(64, 64, 177147, ("edge",), "PyTorch's decompose-K tests: 3 ** 11, no even split"),
    Shape(32, 32, 65537, ("edge",), "K prime: no legal split"),
    Shape(32, 32, 131074, ("edge",), "K twice a prime: 2 is the only legal split"),
    Shape(32, 32, 32767, ("edge",), "K odd: 7 x 31 x 151, misaligned rows"),
    Shape(128, 128, 32768, ("large",), "larger output than decompose-K is usually offered for"),
    Shape(256, 256, 65536, ("large",), "larger output than decompose-K is usually offered for"),
    Shape(512, 512, 32768, ("large",), "larger output than decompose-K is usually offered for"),
    Shape(32, 256, 16384, ("large",), "wide output, K / N = 64"),
    Shape(64, 64, 65536, ("large",), "twice the longest K of tritonbench's split-K set"),
    Shape(512, 512, 512, (), "control: splitting K cannot win"),
    Shape(4096, 4096, 4096, (), "control: splitting K cannot win"),
    *_drawn(),
)

_QUICK = frozenset(
    {
        "m16-n16-k8192-bf16",
        "m16-n16-k32768-bf16",
        "m32-n32-k16384-bf16",
        "m32-n32-k32768-bf16",
        "m48-n48-k24576-bf16",
        "m64-n64-k8192-bf16",
        "m64-n64-k32768-bf16",
        "m64-n64-k65536-bf16",
        "m128-n128-k32768-bf16",
        "m256-n256-k65536-bf16",
        "m512-n512-k512-bf16",
        "m32-n32-k32768-fp16",
        "m64-n64-k32768-fp16",
        "m16-n16-k16384-fp32",
        "m32-n32-k32768-fp32",
        "m64-n64-k65536-fp32",
        "m32-n32-k32768-tf32",
        "m64-n64-k65536-tf32",
    }
)
"""The cases that answer the question in a minute or two."""

PUBLISHED_LEAST_K = 8192
"""The published geometric means over 28 shapes leave out the shortest K of tritonbench's set: M = N in 16, 32, 48, 64
and K from 8192 to 32768 in steps of 4096 (shreyansh26/MLSys-Experiments, decompose-k, `plain_matmul_bf16.csv`)."""

_AUDIT_BESIDE = frozenset(
    {
        "m64-n64-k2048-bf16",
        "m64-n64-k4032-bf16",
        "m64-n64-k65536-bf16",
        "m32-n256-k16384-bf16",
        "m128-n128-k32768-bf16",
        "m256-n256-k65536-bf16",
        "m512-n512-k32768-bf16",
        "m512-n512-k512-bf16",
        "m32-n32-k32768-fp16",
        "m32-n32-k32768-fp32",
        "m32-n32-k32768-tf32",
        "m64-n64-k65536-tf32",
    }
)
"""Gate edges, larger outputs, a control and the other formats."""


def _is_audited(name: str, dtype: str, k: int, tags: tuple[str, ...]) -> bool:
    """Whether a compiler's choices are held against an exhaustive search: each case takes it some seconds.

    The 28 published shapes in bf16, and 12 beside them.
    """
    published = "tritonbench" in tags and dtype == "bf16" and k >= PUBLISHED_LEAST_K
    return published or name in _AUDIT_BESIDE


def case_name(m: int, n: int, k: int, dtype: str, precision: str) -> str:
    """`m32-n32-k32768-bf16`. fp32 is IEEE; where its products may be TF32, the name ends in `-tf32`."""
    return f"m{m}-n{n}-k{k}-{'tf32' if precision == 'tf32' else dtype}"


def case_of(
    m: int, n: int, k: int, dtype: str, precision: str, tags: tuple[str, ...] = (), origin: str = "given by the caller"
) -> Case:
    """A case of this family, of the catalog or not."""
    name = case_name(m, n, k, dtype, precision)
    return Case(FAMILY, name, {"m": m, "n": n, "k": k}, dtype, precision, tags=tags, origin=origin)


def make_case(
    dims: Mapping[str, int], dtype: str, precision: str, tags: tuple[str, ...] = (), origin: str = ""
) -> Case:
    """As `case_of`, with dimensions by name. Raises ValueError for what is no product of this family."""
    if set(dims) != {"m", "n", "k"} or min(dims.values()) < 1:
        raise ValueError(f"{FAMILY} has the dimensions m, n and k, each at least 1; not {dict(dims)}.")
    if dims["m"] * dims["n"] * dims["k"] > MOST_PRODUCTS:
        raise ValueError(f"{FAMILY} counts operations in 64 bits; {dict(dims)} has too many.")
    if (dtype, precision) not in FORMATS:
        known = ", ".join(" ".join(words) for words in FORMATS)
        raise ValueError(f"{FAMILY} computes in {known}; not in {dtype} {precision}.")
    return case_of(dims["m"], dims["n"], dims["k"], dtype, precision, tags, origin or "given by the caller")


def _catalog() -> Iterator[Case]:
    """Every shape once in each format, with the tags and origins of all its lines."""
    merged: dict[tuple[int, int, int], Shape] = {}
    for shape in SHAPES:
        seen = merged.get(shape[:3])
        merged[shape[:3]] = (
            shape if seen is None else Shape(*shape[:3], (*seen.tags, *shape.tags), f"{seen.origin}; {shape.origin}")
        )
    for dtype, precision in FORMATS:
        for m, n, k, tags, origin in merged.values():
            if "drawn" in tags and (dtype, precision) not in _DRAWN_FORMATS:
                continue
            name = case_name(m, n, k, dtype, precision)
            named = ["quick"] if name in _QUICK else []
            named += ["audit"] if _is_audited(name, dtype, k, tags) else []
            yield case_of(m, n, k, dtype, precision, (*named, *tags, "full"), origin)


CASES = tuple(_catalog())


def sizes(case: Case) -> tuple[int, int, int]:
    """(M, N, K)"""
    return case.dims["m"], case.dims["n"], case.dims["k"]


def flop(case: Case) -> int:
    """A multiplication and an addition for each product."""
    m, n, k = sizes(case)
    return 2 * m * n * k


def bytes_moved(case: Case) -> int:
    """A and B read once, C written once."""
    m, n, k = sizes(case)
    return (m * k + k * n + m * n) * ITEM_BYTES[case.dtype]


def legal_splits(case: Case) -> tuple[int, ...]:
    """Numbers of equal parts that K may be cut into, ascending; empty where there is none."""
    m, n, k = sizes(case)
    most_bytes = MAX_PARTIALS_PER_INPUT * (m * k + k * n) * ITEM_BYTES[case.dtype]
    most = min(MAX_SPLITS, k // MIN_K_PER_SPLIT)
    return tuple(s for s in range(2, most + 1) if k % s == 0 and s * m * n * 4 <= most_bytes)


SPLITS = tuple(sorted({s for case in CASES for s in legal_splits(case)}))
"""Every number of parts that is legal for a case of the catalog."""


def twin(case: Case) -> Case:
    """A case for the interpreter: at most 64 x 64 outputs and some hundred K.

    K keeps its remainder by 256, and so its alignment, and whether it has a legal split.
    """
    m, n, k = sizes(case)
    small = [case_of(min(m, 64), min(n, 64), 512 + k % 256 + 256 * i, case.dtype, case.precision) for i in range(8)]
    alike = [candidate for candidate in small if bool(legal_splits(candidate)) == bool(legal_splits(case))]
    chosen = case if k < 768 else alike[0]
    return case_of(min(m, 64), min(n, 64), chosen.dims["k"], case.dtype, case.precision, origin=f"twin of {case.name}")
