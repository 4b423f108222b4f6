"""What an implementation changes for its whole process is put back before the next one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the settings are torch's")

from gemmgate.suite.cases import Case, Implementation, Prepared, Target  # noqa: E402  torch first
from gemmgate.suite.measure.machine import precision_flags  # noqa: E402
from gemmgate.suite.measure.settings import matmul_precision, own_settings  # noqa: E402
from tests.fakes import FakeClock, make_bench  # noqa: E402

ROOT = Path(__file__).parents[1]
MATMUL = torch.backends.cuda.matmul


def state() -> dict[str, Any]:
    """Everything that is put back, read anew."""
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "tf32": MATMUL.allow_tf32,
        "bf16": MATMUL.allow_bf16_reduced_precision_reduction,
        "cudnn": torch.backends.cudnn.benchmark,
        "library": torch.backends.cuda.preferred_blas_library(),
    }


def change_all() -> None:
    """Sets each of them to another value."""
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(not torch.is_grad_enabled())
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("medium")
    MATMUL.allow_bf16_reduced_precision_reduction = not MATMUL.allow_bf16_reduced_precision_reduction
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    if torch.cuda.is_available():
        torch.backends.cuda.preferred_blas_library("cublaslt")


def test_every_setting_is_put_back() -> None:
    """After all of them were changed all are what they were, also where the change ended in an error."""
    before = state()
    with own_settings():
        change_all()
        assert all(value != before[name] for name, value in state().items() if name != "library")
    assert state() == before
    with pytest.raises(ZeroDivisionError):
        _change_and_fail()
    assert state() == before


def _change_and_fail() -> None:
    with own_settings():
        change_all()
        _ = 1 / 0


def test_what_was_not_changed_costs_no_import() -> None:
    """Where nothing was set, none of Inductor is imported to put it back: that takes seconds in every fresh worker."""
    code = (
        "import sys, torch\n"
        "from gemmgate.suite.measure.settings import own_settings\n"
        "with own_settings(): pass\n"
        "print('torch._inductor.config' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_a_bench_puts_back_what_binding_and_calling_changed() -> None:
    """An implementation that changes settings whenever it is prepared, bound or called leaves none behind."""

    def prepare(case: Case, example: Any, target: Target, tile: Any) -> Prepared:
        change_all()

        def bind(inputs: Any) -> Any:
            MATMUL.allow_tf32 = True

            def call() -> Any:
                torch.set_grad_enabled(False)
                return torch.mm(inputs["a"], inputs["b"])

            return call

        return Prepared(bind)

    before = state()
    bench, work = make_bench(FakeClock(lambda n: 1e-3), names=())
    bench.prepare(work, Implementation("loud", "own", True, lambda case, target: None, prepare))
    assert state() == before
    bench.check(work, "loud")
    assert state() == before
    bench.sample(work, ["loud"], "hot", None, None)
    assert state() == before


def test_references_do_not_follow_what_calls_set() -> None:
    """Where calls set torch's default dtype, inputs and references that are made after them are made as before."""

    def prepare(case: Case, example: Any, target: Target, tile: Any) -> Prepared:
        def bind(inputs: Any) -> Any:
            def call() -> Any:
                torch.set_default_dtype(torch.float16)
                return torch.mm(inputs["a"], inputs["b"])

            return call

        return Prepared(bind)

    seen = []

    def noting(make: Any) -> Any:
        def made(argument: Any) -> Any:
            seen.append(torch.get_default_dtype())
            return make(argument)

        return made

    bench, work = make_bench(FakeClock(lambda n: 1e-3), names=())
    work.make, work.reference = noting(work.make), noting(work.reference)
    bench.prepare(work, Implementation("half", "own", True, lambda case, target: None, prepare))
    bench.check(work, "half")
    assert seen == [torch.float32] * 5  # the second set; references of both sets and of two changes of the first
    assert bench.sample(work, ["half"], "cold", None, None)["measured"]["half"]["samples_s"]
    assert len(seen) > 5
    assert set(seen) == {torch.float32}


def test_the_newer_switch_of_fp32_products_is_put_back_too() -> None:
    """Who sets TF32 by `fp32_precision` makes the older way unreadable; afterwards it reads what it did before."""
    if not hasattr(MATMUL, "fp32_precision"):
        pytest.skip("this torch has no newer switch")
    before = torch.get_float32_matmul_precision()
    with own_settings():
        MATMUL.fp32_precision = "ieee" if before != "highest" else "tf32"
        with pytest.raises(RuntimeError):
            torch.get_float32_matmul_precision()
    assert torch.get_float32_matmul_precision() == before
    MATMUL.fp32_precision = "tf32"
    assert matmul_precision() == "high"
    with precision_flags("ieee") as flags:
        assert flags["float32_matmul_precision"] == "highest"
    torch.set_float32_matmul_precision(before)
