"""`router`: logits[T, N] = x[T, K] @ w[N, K]^T + bias, the product that chooses experts. Standard library only.

`logits`, the public function, is imported with what it needs when it is first asked for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gemmgate.kernels.router import cases
from gemmgate.kernels.router.bound import error_bound
from gemmgate.suite.cases import Case, Entry, Family

if TYPE_CHECKING:
    from gemmgate.kernels.router.dispatch import logits

__all__ = ["FAMILY", "logits"]


def __getattr__(name: str) -> Any:
    if name != "logits":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from gemmgate.kernels.router.dispatch import logits as found

    globals()["logits"] = found
    return found


def _gives_float(case: Case) -> bool:
    return cases.output_dtype(case) != case.dtype


def _keeps_dtype(case: Case) -> bool:
    return not _gives_float(case)


def _is_16_bit(case: Case) -> bool:
    return case.dtype != "fp32"


def _is_legal(splits: int, case: Case) -> bool:
    return splits in cases.legal_splits(case)


def _is_few(most: int, case: Case) -> bool:
    return case.dims["t"] <= most


def _is_few_for_dots(case: Case) -> bool:
    """Beyond 16 tokens, tensor cores are always faster where they compute the dtype."""
    return _is_few(16 if _is_16_bit(case) else 128, case)


FAMILY = Family(
    name=cases.FAMILY,
    runner="kernel",
    cases=cases.CASES,
    implementations=(
        Entry("linear_float", "library:IMPLEMENTATIONS", _gives_float),
        Entry("mm_out_dtype", "library:IMPLEMENTATIONS", _gives_float),
        Entry("linear", "library:IMPLEMENTATIONS", _keeps_dtype),
        Entry("upcast_fp32", "library:IMPLEMENTATIONS", _gives_float),
        Entry("dispatch", "dispatch:IMPLEMENTATIONS"),
        Entry("dot_product", "dot_product:IMPLEMENTATION", _is_few_for_dots),
        Entry("split_k", "split_k:IMPLEMENTATION", _is_16_bit),
        Entry("hand_ranges", "dispatch:IMPLEMENTATIONS"),
        Entry("single_choice", "dispatch:IMPLEMENTATIONS"),
        Entry("decompose_k_best", "decompose_k:IMPLEMENTATIONS", on_request=True),
        *(
            Entry(f"decompose_k_{splits}", "decompose_k:IMPLEMENTATIONS", partial(_is_legal, splits), on_request=True)
            for splits in cases.SPLITS
        ),
        Entry("inductor_default", "inductor:IMPLEMENTATIONS", on_request=True),
        Entry("inductor_max_autotune", "inductor:IMPLEMENTATIONS", on_request=True),
        Entry("inductor_gemv", "inductor:IMPLEMENTATIONS", partial(_is_few, 16), on_request=True),
        Entry("custom_op_autotune", "custom_op_autotune:IMPLEMENTATION", on_request=True),
    ),
    yardsticks=("linear_float", "mm_out_dtype", "linear"),
    flop=cases.flop,
    bytes_moved=cases.bytes_moved,
    make_inputs="inputs:make_inputs",
    reference="reference:reference",
    error_bound=error_bound,
    twin=cases.twin,
    output_dtype=cases.output_dtype,
    make_case=cases.make_case,
    about="The product that chooses experts: weights that fit the L2 cache, and from one to thousands of tokens.",
    activations=("x",),
    decision="decision:decision",
)
