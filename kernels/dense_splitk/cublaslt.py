"""C = A @ B by the fastest of the algorithms that cuBLASLt's heuristics offer, through nvmath-python.

a [M, K] and b [K, N] row-major. `torch.mm` takes the heuristics' first answer; here each of them is
timed by the harness and the best kept: how much a search inside the library could gain. One plan a
case serves all inputs. Reductions in 16 bits are left out, as the error bound of the family demands.
Refuses a CPU, and a machine without nvmath-python (dependency group `peers`).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk.cases import sizes
from gemmgate.kernels.dense_splitk.cublas import gpu_only
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

MOST_ALGORITHMS = 32
"""Asked for; cuBLASLt offers fewer, 8 or so for a product with small M and N."""
_FACTS = ("algorithm_id", "tile", "stages", "split_k", "reduction_scheme", "cta_swizzling", "inner_shape")

_latest: dict[Case, Plan] = {}
"""The case under work: its algorithms are counted before they are prepared."""


class Plan:
    """A planned product and its algorithms, in the order of the heuristics."""

    def __init__(self, case: Case, a: Tensor, b: Tensor) -> None:
        advanced = importlib.import_module("nvmath.linalg.advanced")
        lt = importlib.import_module("nvmath.bindings.cublasLt")
        self._product = advanced.Matmul(a, b, options={"compute_type": _compute_type(case)})
        preferences = advanced.MatmulPlanPreferences(
            limit=MOST_ALGORITHMS, reduction_scheme_mask=lt.ReductionScheme.COMPUTE_TYPE
        )
        self.algorithms = tuple(self._product.plan(preferences=preferences))
        unchecked = getattr(self._product, "reset_operands_unchecked", None)
        self._reset = unchecked or self._product.reset_operands

    def run(self, index: int, a: Tensor, b: Tensor) -> Tensor:
        """The product by one algorithm, on the current stream."""
        self._reset(a=a, b=b)
        out: Tensor = self._product.execute(algorithm=self.algorithms[index])
        return out

    def describe(self, index: int) -> str:
        """`cublasLt algorithm_id=66 tile=(64, 64) ...`, with what this version can tell."""
        algorithm = self.algorithms[index]
        return " ".join(["cublasLt", *(f"{fact}={said}" for fact in _FACTS if (said := _said(algorithm, fact)))])


def supports(case: Case, target: Target) -> Refusal | None:
    if not target.is_gpu:
        return gpu_only("cuBLASLt")
    if not target.arch.startswith("sm_"):
        return "no_cublaslt", f"cuBLASLt is NVIDIA's; this is {target.arch}."
    if min(sizes(case)) == 0:
        return "empty", "cuBLASLt takes no empty product."
    return _missing()


def _missing() -> Refusal | None:
    if importlib.util.find_spec("nvmath") is None:
        return "nvmath_missing", "nvmath-python is not installed: `pip install --group peers` (pip 25.1 or newer)."
    try:
        advanced = importlib.import_module("nvmath.linalg.advanced")
        lt = importlib.import_module("nvmath.bindings.cublasLt")
        algorithm = "algorithm" in inspect.signature(advanced.Matmul.execute).parameters
        limit = "limit" in {field.name for field in fields(advanced.MatmulPlanPreferences)}
        offered = algorithm and limit and hasattr(lt, "ReductionScheme")
    except Exception as error:  # noqa: BLE001 - a broken installation raises whatever its loader does
        return "nvmath_broken", f"nvmath-python cannot be used: {type(error).__name__}: {error}"
    if not offered:
        return "nvmath_too_old", "This nvmath-python does not let a caller choose the algorithm. Install 0.5 or newer."
    return None


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    """Without a tile: the heuristics' first algorithm."""
    plan = _plan(case)
    index = int(tile["algorithm"]) if tile is not None else 0
    if not 0 <= index < len(plan.algorithms):
        raise ValueError(f"cuBLASLt offers {len(plan.algorithms)} algorithms for {case.name}, not number {index}.")

    def bind(inputs: Inputs) -> Call:
        a, b = inputs["a"], inputs["b"]
        return lambda: plan.run(index, a, b)

    return Prepared(bind, tile={"algorithm": index}, algorithm=plan.describe(index))


def tiles(case: Case, target: Target) -> Sequence[Tile]:
    """The algorithms that the heuristics offer, by their place."""
    return [{"algorithm": index} for index in range(len(_plan(case).algorithms))]


def _plan(case: Case) -> Plan:
    if case not in _latest:
        _latest.clear()
        inputs = make_inputs(case, 0, torch.device("cuda", torch.cuda.current_device()))
        _latest[case] = Plan(case, inputs["a"], inputs["b"])
    return _latest[case]


def _compute_type(case: Case) -> int:
    types = importlib.import_module("nvmath.bindings.cublas").ComputeType
    return int(types.COMPUTE_32F_FAST_TF32 if case.precision == "tf32" else types.COMPUTE_32F)


def _said(algorithm: Any, fact: str) -> str:
    try:
        return str(getattr(algorithm, fact)).replace(" ", "")
    except Exception:  # noqa: BLE001 - a fact that this library or this algorithm does not have
        return ""


IMPLEMENTATION = Implementation("cublaslt_best", "peer", True, supports, prepare, tiles=tiles, screened=True)
