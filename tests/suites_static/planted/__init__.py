"""A family of small products whose launches `variant` decides: sound ones, or ones with a fault. For tests."""

from gemmgate.suite.cases import Case, Entry, Family

_NAMES = ("steady", "spiller", "oversize", "fallback", "refuser", "aborter", "raiser", "idle")


def _case(k: int, *tags: str) -> Case:
    return Case("planted", f"k{k}-bf16", {"m": 64, "n": 64, "k": k}, "bf16", "acc32", tags=tags)


def _flop(case: Case) -> int:
    return 2 * case.dims["m"] * case.dims["n"] * case.dims["k"]


def _bytes(case: Case) -> int:
    return 2 * (case.dims["m"] + case.dims["n"]) * case.dims["k"]


def _bound(case: Case) -> float:
    return 1e-2


FAMILY = Family(
    name="planted",
    runner="kernel",
    cases=(_case(4096, "quick"), _case(8192)),
    implementations=tuple(Entry(name, "launches:IMPLEMENTATIONS") for name in _NAMES),
    yardsticks=(),
    flop=_flop,
    bytes_moved=_bytes,
    make_inputs="launches:make_inputs",
    reference="launches:reference",
    error_bound=_bound,
)
