"""`dense_splitk`: C[M, N] = A[M, K] @ B[K, N], row-major, with K long and C small. Standard library only."""

from functools import partial

from gemmgate.kernels.dense_splitk import cases
from gemmgate.kernels.dense_splitk.bound import error_bound
from gemmgate.suite.cases import Case, Entry, Family


def _is_legal(splits: int, case: Case) -> bool:
    return splits in cases.legal_splits(case)


FAMILY = Family(
    name=cases.FAMILY,
    runner="kernel",
    cases=cases.CASES,
    implementations=(
        Entry("cublas", "cublas:IMPLEMENTATION"),
        Entry("triton_split_k", "triton_split_k:IMPLEMENTATION"),
        Entry("decompose_k_best", "decompose_k:IMPLEMENTATIONS"),
        *(
            Entry(f"decompose_k_{splits}", "decompose_k:IMPLEMENTATIONS", partial(_is_legal, splits))
            for splits in cases.SPLITS
        ),
    ),
    yardsticks=("cublas",),
    flop=cases.flop,
    bytes_moved=cases.bytes_moved,
    make_inputs="inputs:make_inputs",
    reference="reference:reference",
    error_bound=error_bound,
    twin=cases.twin,
    about="C = A @ B with K long and C small: too few output tiles to fill a GPU unless K is split.",
    activations=("a",),
)
