"""A GPU that is not here: launches are compiled for it, and nothing runs."""

from __future__ import annotations

from triton.runtime.driver import driver

from gemmgate.suite.cases import Target
from gemmgate.suite.measure.compile_only import CompileOnly


def compile_for(compute_capability: int, shared_bytes: int) -> None:
    """From here on, Triton's launches in this process are compilations for that GPU."""
    driver.set_active(CompileOnly(Target(f"sm_{compute_capability}", shared_bytes=shared_bytes)))
