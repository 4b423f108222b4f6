"""`dense_splitk`: C[M, N] = A[M, K] @ B[K, N], row-major, with K long and C small. Standard library only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gemmgate.kernels.dense_splitk import cases
from gemmgate.kernels.dense_splitk.bound import error_bound
from gemmgate.suite.cases import Case, Entry, Family

if TYPE_CHECKING:
    from gemmgate.kernels.dense_splitk.dispatch import matmul as matmul


def __getattr__(name: str) -> Any:
    """`matmul`, which needs torch, is imported where it is asked for."""
    if name != "matmul":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from gemmgate.kernels.dense_splitk.dispatch import matmul

    return matmul


def _is_legal(splits: int, case: Case) -> bool:
    return splits in cases.legal_splits(case)


def _is_16_bit(case: Case) -> bool:
    return case.dtype in ("bf16", "fp16")


def _has_few(case: Case) -> bool:
    return min(case.dims["m"], case.dims["n"]) < 16


def _is_fp32(case: Case) -> bool:
    return case.dtype == "fp32"


DISCIPLINES = ("last_arrival", "grid_barrier", "atomic_arrival", "atomic_fp32", "two_launches", "turnstile", "stream_k")
"""Ways to bring the parts of a split K together, in one launch but for `atomic_fp32` and `two_launches`."""

FAMILY = Family(
    name=cases.FAMILY,
    runner="kernel",
    cases=cases.CASES,
    implementations=(
        Entry("cublas", "cublas:IMPLEMENTATION"),
        Entry("cublas_full_reduction", "cublas_flags:IMPLEMENTATIONS", _is_16_bit),
        Entry("cublas_reduced_reduction", "cublas_flags:IMPLEMENTATIONS", _is_16_bit),
        Entry("cublaslt_best", "cublaslt:IMPLEMENTATION"),
        Entry("triton_split_k", "triton_split_k:IMPLEMENTATION"),
        *(Entry(name, f"{name}:IMPLEMENTATION") for name in DISCIPLINES),
        Entry("dispatch", "dispatch:IMPLEMENTATION"),
        Entry("dot_product", "dot_product:IMPLEMENTATION", _has_few),
        Entry("atomic_out", "atomic_out:IMPLEMENTATION", _is_fp32),
        Entry("decompose_k_best", "decompose_k:IMPLEMENTATIONS"),
        *(
            Entry(f"decompose_k_{splits}", "decompose_k:IMPLEMENTATIONS", partial(_is_legal, splits))
            for splits in cases.SPLITS
        ),
        Entry("inductor_default", "inductor:IMPLEMENTATIONS", on_request=True),
        Entry("inductor_max_autotune", "inductor:IMPLEMENTATIONS", on_request=True),
        Entry("inductor_decompose_k", "inductor:IMPLEMENTATIONS", on_request=True),
        Entry("inductor_no_decompose_k", "inductor:IMPLEMENTATIONS", on_request=True),
        Entry("inductor_best_choice", "inductor:IMPLEMENTATIONS", on_request=True),
        Entry("custom_op_autotune", "custom_op_autotune:IMPLEMENTATION", on_request=True),
    ),
    yardsticks=("cublas",),
    flop=cases.flop,
    bytes_moved=cases.bytes_moved,
    make_inputs="inputs:make_inputs",
    reference="reference:reference",
    error_bound=error_bound,
    twin=cases.twin,
    make_case=cases.make_case,
    about="C = A @ B with K long and C small: too few output tiles to fill a GPU unless K is split.",
    activations=("a",),
)
