"""A family whose functions raise or return nonsense for the cases that are called so. For tests."""

from collections.abc import Callable
from typing import Any

from gemmgate.suite.cases import Case, Entry, Family

ANSWERS: dict[str, Any] = {
    "flop-none": None,
    "flop-nan": float("nan"),
    "flop-beyond": 2**63,
    "bytes-negative": -1,
    "bytes-text": "12",
    "bound-nan": float("nan"),
    "bound-infinite": float("inf"),
    "bound-text": "small",
    "bound-negative": -1.0,
    "dtype-none": None,
}
RAISING = ("flop-raises", "bytes-raises", "bound-raises", "dtype-raises")


def _answer(word: str, right: Callable[[Case], Any]) -> Callable[[Case], Any]:
    def answer(case: Case) -> Any:
        if case.name == f"{word}-raises":
            raise KeyError(word)
        return ANSWERS[case.name] if case.name.startswith(word) else right(case)

    return answer


def _applies(case: Case) -> bool:
    if case.name == "applies-raises":
        raise IndexError("nobody knows")
    return True


def _make_case(dims: Any, dtype: str, precision: str, tags: tuple[str, ...], origin: str) -> Any:
    if dims["m"] == 1:
        raise TypeError("one row is too few")
    if dims["m"] == 2:
        return "a case"
    raise ValueError("no more than two rows.")


CASES = ("sound", *ANSWERS, *RAISING, "applies-raises")

FAMILY = Family(
    name="nonsense",
    runner="kernel",
    cases=tuple(Case("nonsense", name, {"n": 64}, "fp32", "ieee", tags=("quick",)) for name in CASES),
    implementations=(
        Entry("plain", "product:IMPLEMENTATION", applies=_applies),
        Entry("vague", "product:VAGUE", on_request=True),
        Entry("boundless", "product:BOUNDLESS", on_request=True),
    ),
    yardsticks=("plain",),
    flop=_answer("flop", lambda case: 2 * case.dims["n"] ** 3),
    bytes_moved=_answer("bytes", lambda case: 3 * 4 * case.dims["n"] ** 2),
    make_inputs="product:make_inputs",
    reference="product:reference",
    error_bound=_answer("bound", lambda case: 1e-5),
    output_dtype=_answer("dtype", lambda case: case.dtype),
    twin=lambda case: None,  # type: ignore[arg-type, return-value]
    make_case=_make_case,
)
