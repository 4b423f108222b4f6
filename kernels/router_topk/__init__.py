"""`router_topk`: from tokens to each one's experts and their weights. Standard library only."""

from gemmgate.kernels.router_topk import cases
from gemmgate.suite.cases import Entry, Family

FAMILY = Family(
    name=cases.FAMILY,
    runner="kernel",
    cases=cases.CASES,
    implementations=(
        Entry("eager", "eager:IMPLEMENTATIONS"),
        Entry("one_launch", "fused:IMPLEMENTATIONS"),
        Entry("two_launches", "fused:IMPLEMENTATIONS"),
        Entry("inductor", "eager:IMPLEMENTATIONS", on_request=True),
    ),
    yardsticks=("eager",),
    flop=cases.flop,
    bytes_moved=cases.bytes_moved,
    make_inputs="inputs:make_inputs",
    reference="reference:reference",
    error_bound=cases.error_bound,
    twin=cases.twin,
    output_dtype=cases.output_dtype,
    about="The router with what follows it: scores, groups, top-k and weights, in one launch or two.",
    activations=("x",),
)
