"""What is only offered on request is measured where somebody asks for it, and nowhere else."""

from __future__ import annotations

from gemmgate.suite.cases import Case, Entry, Family
from gemmgate.suite.catalog import Catalog, Selection

CASE = Case("sums", "n8", {"n": 8}, "fp32", "ieee", tags=("quick",), origin="a test")
FAMILY = Family(
    name="sums",
    runner="kernel",
    cases=(CASE,),
    implementations=(
        Entry("library", "sums:LIBRARY"),
        Entry("plain", "sums:PLAIN"),
        Entry("compiled_slowly", "sums:SLOW", on_request=True),
        Entry("compiled_twice", "sums:TWICE", on_request=True),
    ),
    yardsticks=("library",),
    flop=lambda case: 8,
    bytes_moved=lambda case: 32,
    make_inputs="sums:make_inputs",
    reference="sums:reference",
    error_bound=lambda case: 1e-6,
)
CATALOG = Catalog({"sums": FAMILY}, {"sums": "sums"})


def selected(*globs: str) -> tuple[str, ...]:
    """The implementations that these globs select for the one case."""
    (choice,) = CATALOG.select(Selection(implementations=globs))
    return choice.implementations


def test_nobody_asked() -> None:
    """Without an implementation glob, those on request are left out."""
    assert selected() == ("library", "plain")


def test_somebody_asked() -> None:
    """A glob that matches an implementation on request selects it, beside the yardstick."""
    assert selected("compiled_slowly") == ("library", "compiled_slowly")
    assert selected("compiled_*") == ("library", "compiled_slowly", "compiled_twice")


def test_everything_is_everything() -> None:
    """The glob that matches all names selects all implementations."""
    assert selected("*") == ("library", "plain", "compiled_slowly", "compiled_twice")
