"""A family whose tiles take known times, some with a fault. For tests of the search."""

from gemmgate.suite.cases import Case, Entry, Family


def _case(n: int) -> Case:
    return Case("tunable", f"n{n}-fp32", {"n": n}, "fp32", "ieee", tags=("quick", f"n{n}"), origin="made for the tests")


FAMILY = Family(
    name="tunable",
    runner="kernel",
    cases=(_case(8), _case(16)),
    implementations=(
        Entry("rounded", "products:ROUNDED", lambda case: case.dtype != "fp32"),
        Entry("plain", "products:PLAIN"),
        Entry("tiled", "products:TILED"),
        Entry("fixed", "products:FIXED"),
    ),
    yardsticks=("rounded", "plain"),
    flop=lambda case: 2 * case.dims["n"] ** 3,
    bytes_moved=lambda case: 3 * 4 * case.dims["n"] ** 2,
    make_inputs="products:make_inputs",
    reference="products:reference",
    error_bound=lambda case: 1e-5,
    about="square products that take as long as their tile says",
)
