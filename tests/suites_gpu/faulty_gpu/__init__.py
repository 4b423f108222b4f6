"""A family whose implementations fail in the ways only a GPU can. For tests."""

from gemmgate.suite.cases import Case, Entry, Family

NAMES = (
    "plain",
    "late",
    "writes_far_away",
    "never_ends",
    "waits_for_the_host",
    "not_capturable",
    "copies",
    "allocates_all",
)

FAMILY = Family(
    name="faulty_gpu",
    runner="kernel",
    cases=(
        Case(
            family="faulty_gpu",
            name="n4096-fp32",
            dims={"n": 4096},
            dtype="fp32",
            precision="ieee",
            tags=("quick",),
            origin="made for the tests",
        ),
    ),
    implementations=tuple(Entry(name, "implementations:IMPLEMENTATIONS") for name in NAMES),
    yardsticks=("plain",),
    flop=lambda case: case.dims["n"],
    bytes_moved=lambda case: 8 * case.dims["n"],
    make_inputs="implementations:make_inputs",
    reference="implementations:reference",
    error_bound=lambda case: 1e-6,
    about="doubling a vector, well and badly",
)
