"""What all tests share: which wait for a CUDA device, and a second pytest in the interpreter beside a module's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import pytest

from tests.beside import Interpreted


@cache
def cuda_available() -> bool:
    """Asked when the first test marked `gpu` is about to run, so that collecting tests imports no torch."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu") is not None and not cuda_available():
        pytest.skip("needs a CUDA device")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who waits for a module's second pytest comes last in the module."""
    modules = {item.path: place for place, item in reversed(list(enumerate(items)))}
    items.sort(key=lambda item: (modules[item.path], "interpreted" in getattr(item, "fixturenames", ())))


@pytest.fixture(scope="module", autouse=True)
def _interpreting(request: pytest.FixtureRequest) -> Iterator[Interpreted | None]:
    """Begins a module's second pytest with the module, where one of the tests to be run asks for its output."""
    module = request.module
    asking = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is module and "interpreted" in item.fixturenames
    ]
    child = None
    if asking and os.environ.get("TRITON_INTERPRET") != "1":
        child = Interpreted(module.in_the_interpreter())
    yield child
    if child is not None:
        child.close()


@pytest.fixture
def interpreted(_interpreting: Interpreted) -> str:
    """What the module's second pytest printed; its failure is the test's."""
    return _interpreting.output()
