"""`dense_splitk`: C[M, N] = A[M, K] @ B[K, N], row-major, with K long and C small. Standard library only."""

from functools import partial

from gemmgate.kernels.dense_splitk import cases
from gemmgate.kernels.dense_splitk.bound import error_bound
from gemmgate.suite.cases import Case, Entry, Family


def _is_legal(splits: int, case: Case) -> bool:
    return splits in cases.legal_splits(case)


def _is_16_bit(case: Case) -> bool:
    return case.dtype in ("bf16", "fp16")


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
