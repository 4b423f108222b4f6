"""A family that another distribution brings: the sum of each row. Standard library only."""

from gemmgate.suite.cases import Case, Entry, Family

FAMILY = Family(
    name="row_sums",
    runner="kernel",
    cases=(Case("row_sums", "m8-k100-fp32", {"m": 8, "k": 100}, "fp32", "ieee", tags=("quick",), origin="an example"),),
    implementations=(Entry("torch_sum", "sums:BY_SUM"), Entry("by_product", "sums:BY_PRODUCT")),
    yardsticks=("torch_sum",),
    flop=lambda case: case.dims["m"] * case.dims["k"],
    bytes_moved=lambda case: 4 * case.dims["m"] * (case.dims["k"] + 1),
    make_inputs="sums:make_inputs",
    reference="sums:reference",
    error_bound=lambda case: 1e-6,
)
