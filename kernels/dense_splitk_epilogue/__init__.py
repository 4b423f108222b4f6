"""`dense_splitk_epilogue`: C = f(A[M, K] @ B[K, N], ...), K long, C small, and what follows the sum. Stdlib only."""

from gemmgate.kernels.dense_splitk_epilogue import cases
from gemmgate.kernels.dense_splitk_epilogue.bound import error_bound
from gemmgate.suite.cases import Case, Entry, Family


def _is_fused_by_library(case: Case) -> bool:
    return case.epilogue in cases.FUSED_BY_LIBRARY


def _is_activation_with_relu(case: Case) -> bool:
    return case.epilogue in ("relu", "bias-relu")


def _may_add_to_c(case: Case) -> bool:
    return cases.output_dtype(case) == "fp32" and case.epilogue not in cases.WITH_ACTIVATION


def _is_plain(case: Case) -> bool:
    return case.epilogue not in cases.PROLOGUES


FAMILY = Family(
    name=cases.FAMILY,
    runner="kernel",
    cases=cases.CASES,
    implementations=(
        Entry("cublas", "cublas:IMPLEMENTATION"),
        Entry("cublaslt_fused", "cublaslt_fused:IMPLEMENTATION", _is_fused_by_library),
        Entry("addmm_activation", "addmm_activation:IMPLEMENTATION", _is_activation_with_relu),
        Entry("decompose_k_then_epilogue", "decompose_k:IMPLEMENTATIONS", _is_plain),
        Entry("decompose_k_fused", "decompose_k:IMPLEMENTATIONS", _is_plain, on_request=True),
        Entry("inductor_max_autotune", "inductor:IMPLEMENTATIONS", on_request=True),
        Entry("inductor_no_decompose_k", "inductor:IMPLEMENTATIONS", on_request=True),
        *(Entry(name, "own:IMPLEMENTATIONS") for name in cases.OWN),
        Entry("atomic_out", "own:IMPLEMENTATIONS", _may_add_to_c),
        Entry("dispatch", "own:IMPLEMENTATIONS"),
    ),
    yardsticks=("cublas",),
    flop=cases.flop,
    bytes_moved=cases.bytes_moved,
    make_inputs="inputs:make_inputs",
    reference="reference:reference",
    error_bound=error_bound,
    twin=cases.twin,
    output_dtype=cases.output_dtype,
    about="C = f(A @ B) with K long and C small, where what follows the sum can be part of the launch that sums.",
    activations=("a",),
)
