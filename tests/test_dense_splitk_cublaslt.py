"""`cublaslt_best` against a stand-in for nvmath-python, which needs a GPU: what is planned, chosen and refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from gemmgate.kernels.dense_splitk import cublaslt
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.suite.cases import Case, Target

H200 = Target("sm_90", sm_count=132, shared_bytes=232448)
CASE = case_of(4, 8, 64, "fp32", "ieee")
Install = Callable[..., list["Matmul"]]


class ReductionScheme(IntEnum):
    NONE = 0
    INPLACE = 1
    COMPUTE_TYPE = 2
    OUTPUT_TYPE = 4


class ComputeType(IntEnum):
    COMPUTE_32F = 68
    COMPUTE_32F_FAST_TF32 = 77


@dataclass
class MatmulPlanPreferences:
    limit: int = 8
    reduction_scheme_mask: ReductionScheme | None = None


class Matmul:
    """Three algorithms; the product by number i is i times too large, so that a result tells who made it."""

    made: list[Matmul]

    def __init__(self, a: Any, b: Any, *, options: Any) -> None:
        self.operands, self.options = (a, b), options
        Matmul.made.append(self)

    def plan(self, *, preferences: MatmulPlanPreferences) -> list[Any]:
        self.preferences = preferences
        self.algorithms = [SimpleNamespace(algorithm_id=60 + i, tile=(64, 32), split_k=i) for i in range(3)]
        return self.algorithms

    def reset_operands(self, *, a: Any, b: Any) -> None:
        self.operands = (a, b)

    def execute(self, *, algorithm: Any = None) -> Any:
        return torch.mm(*self.operands) * (1 + self.algorithms.index(algorithm))


@pytest.fixture
def nvmath(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts the stand-in where nvmath-python would be, with what is given in place of its own; returns the products."""

    def install(**replaced: Any) -> list[Matmul]:
        modules = {
            "nvmath": {},
            "nvmath.linalg": {},
            "nvmath.linalg.advanced": {"Matmul": Matmul, "MatmulPlanPreferences": MatmulPlanPreferences},
            "nvmath.bindings": {},
            "nvmath.bindings.cublasLt": {"ReductionScheme": ReductionScheme},
            "nvmath.bindings.cublas": {"ComputeType": ComputeType},
        }
        for name, attributes in modules.items():
            module = ModuleType(name)
            module.__spec__ = ModuleSpec(name, None)
            module.__dict__.update({key: replaced.get(key, value) for key, value in attributes.items()})
            monkeypatch.setitem(sys.modules, name, module)
        Matmul.made = []
        monkeypatch.setattr(cublaslt, "_latest", {})
        # The plan is made on inputs of its own, which would be on a GPU.
        monkeypatch.setattr(cublaslt, "make_inputs", lambda case, seed, device: make_inputs(case, seed, "cpu"))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        return Matmul.made

    return install


def test_every_algorithm_is_a_tile(nvmath: Install) -> None:
    """The heuristics' three algorithms are the tiles 0, 1 and 2 of one plan, which asks for more than there are."""
    made = nvmath()
    assert cublaslt.tiles(CASE, H200) == [{"algorithm": 0}, {"algorithm": 1}, {"algorithm": 2}]
    (product,) = made
    assert product.preferences.limit == 32


def test_each_tile_runs_its_algorithm_on_its_inputs(nvmath: Install) -> None:
    """Calls of several algorithms on several inputs give, in any order, what that algorithm makes of those inputs."""
    made = nvmath()
    inputs = [make_inputs(CASE, seed, "cpu") for seed in (1, 2)]
    calls = {
        (index, seed): cublaslt.prepare(CASE, inputs[0], H200, {"algorithm": index}).bind(inputs[seed])
        for index in range(3)
        for seed in (0, 1)
    }
    for (index, seed), call in reversed(calls.items()):
        expected = (inputs[seed]["a"].double() @ inputs[seed]["b"].double()).float() * (index + 1)
        torch.testing.assert_close(call(), expected, rtol=1e-4, atol=1e-4)
    assert len(made) == 1


def test_first_algorithm_without_a_tile(nvmath: Install) -> None:
    """Without a tile the heuristics' first answer is taken, and it is described by what the library tells of it."""
    nvmath()
    prepared = cublaslt.prepare(CASE, make_inputs(CASE, 0, "cpu"), H200)
    assert prepared.tile == {"algorithm": 0}
    assert prepared.algorithm == "cublasLt algorithm_id=60 tile=(64,32) split_k=0"


def test_an_algorithm_that_is_not_offered(nvmath: Install) -> None:
    """A number beyond the last algorithm is refused with how many there are."""
    nvmath()
    with pytest.raises(ValueError, match="cuBLASLt offers 3 algorithms for m4-n8-k64-fp32, not number 3"):
        cublaslt.prepare(CASE, make_inputs(CASE, 0, "cpu"), H200, {"algorithm": 3})


@pytest.mark.parametrize(
    ("case", "compute_type"),
    [
        (CASE, ComputeType.COMPUTE_32F),
        (case_of(4, 8, 64, "bf16", "acc32"), ComputeType.COMPUTE_32F),
        (case_of(4, 8, 64, "fp32", "tf32"), ComputeType.COMPUTE_32F_FAST_TF32),
    ],
)
def test_arithmetic_is_the_case_s(case: Case, compute_type: ComputeType, nvmath: Install) -> None:
    """TF32 is used where the case says so and nowhere else, and parts of a split are added in fp32."""
    made = nvmath()
    cublaslt.tiles(case, H200)
    (product,) = made
    assert product.options["compute_type"] == compute_type
    assert product.preferences.reduction_scheme_mask is ReductionScheme.COMPUTE_TYPE


def test_refused_where_it_cannot_run(nvmath: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU, another maker's GPU, an empty product, an old, a broken and a missing nvmath-python each have a code."""

    class Fixed(Matmul):
        def execute(self) -> Any:
            raise NotImplementedError

    nvmath()
    assert cublaslt.supports(CASE, H200) is None
    codes = [
        cublaslt.supports(CASE, Target("cpu")),
        cublaslt.supports(CASE, Target("gfx942")),
        cublaslt.supports(case_of(4, 8, 0, "fp32", "ieee"), H200),
    ]
    nvmath(Matmul=Fixed)
    codes.append(cublaslt.supports(CASE, H200))
    nvmath(Matmul=None)
    codes.append(cublaslt.supports(CASE, H200))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    codes.append(cublaslt.supports(CASE, H200))
    assert [code[0] for code in codes if code] == [
        "gpu_only",
        "no_cublaslt",
        "empty",
        "nvmath_too_old",
        "nvmath_broken",
        "nvmath_missing",
    ]
