"""A family whose implementations fail in every way a worker must survive. For tests."""

from gemmgate.suite.cases import Case, Entry, Family

_NAMES = (
    "plain",
    "twin",
    "wrong",
    "crashes",
    "hangs",
    "hangs_when_timed",
    "exits",
    "leaves_children",
    "runs_out_of_memory",
    "raises",
    "refuses",
    "cannot_say",
    "writes_inputs",
    "writes_nothing",
    "forgets",
    "prints",
    "slow",
)


def _case(n: int) -> Case:
    return Case(
        family="faulty",
        name=f"n{n}-fp32",
        dims={"n": n},
        dtype="fp32",
        precision="ieee",
        tags=("quick", f"n{n}"),
        origin="made for the tests",
    )


FAMILY = Family(
    name="faulty",
    runner="kernel",
    cases=(_case(64), _case(128), _case(256)),
    implementations=tuple(Entry(name, "implementations:IMPLEMENTATIONS") for name in _NAMES),
    yardsticks=("plain",),
    flop=lambda case: 2 * case.dims["n"] ** 3,
    bytes_moved=lambda case: 3 * 4 * case.dims["n"] ** 2,
    make_inputs="implementations:make_inputs",
    reference="implementations:reference",
    error_bound=lambda case: 1e-5,
    about="square products, done well and badly",
)
