"""C = f(A @ B) by cuBLASLt with its own epilogue, the fastest of the algorithms that its heuristics offer.

a [M, K] and b [K, N] row-major, bias [N]. The library thinks in columns and adds a bias along them, so it is asked for
C^T = B^T @ A^T, and what comes back is C, row-major. Through nvmath-python; one plan a case serves all inputs. GELU
is left out, which the library approximates by tanh. Refuses what `cublaslt_best` of `dense_splitk` refuses.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk import cublaslt
from gemmgate.kernels.dense_splitk_epilogue.inputs import make_inputs
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target, Tile

_EPILOGS = {"none": None, "relu": "RELU", "bias-relu": "RELU_BIAS"}
"""By epilogue, nvmath-python's name."""

_latest: dict[Case, Plan] = {}
"""The case under work: its algorithms are counted before they are prepared."""


class Plan:
    """A planned product with its epilogue, and its algorithms in the order of the heuristics."""

    def __init__(self, case: Case, inputs: Inputs) -> None:
        advanced = importlib.import_module("nvmath.linalg.advanced")
        lt = importlib.import_module("nvmath.bindings.cublasLt")
        types = importlib.import_module("nvmath.bindings.cublas").ComputeType
        compute = types.COMPUTE_32F_FAST_TF32 if case.precision == "tf32" else types.COMPUTE_32F
        a, b = inputs["a"], inputs["b"]
        self._product = advanced.Matmul(b.t(), a.t(), options={"compute_type": int(compute)})
        preferences = advanced.MatmulPlanPreferences(
            limit=cublaslt.MOST_ALGORITHMS, reduction_scheme_mask=lt.ReductionScheme.COMPUTE_TYPE
        )
        epilog = _EPILOGS[case.epilogue]
        self.algorithms = tuple(
            self._product.plan(
                preferences=preferences,
                epilog=getattr(advanced.MatmulEpilog, epilog) if epilog else None,
                epilog_inputs=_beside(inputs),
            )
        )

    def run(self, index: int, inputs: Inputs) -> Tensor:
        """The product by one algorithm, on the current stream."""
        self._product.reset_operands(a=inputs["b"].t(), b=inputs["a"].t(), epilog_inputs=_beside(inputs))
        out: Tensor = self._product.execute(algorithm=self.algorithms[index])
        return out.t()


def _beside(inputs: Inputs) -> dict[str, Any] | None:
    return {"bias": inputs["bias"]} if "bias" in inputs else None


def supports(case: Case, target: Target) -> Refusal | None:
    return cublaslt.supports(case, target)


def prepare(case: Case, example: Inputs, target: Target, tile: Tile | None = None) -> Prepared:
    """Without a tile: the heuristics' first algorithm."""
    plan = _plan(case)
    index = int(tile["algorithm"]) if tile is not None else 0
    if not 0 <= index < len(plan.algorithms):
        raise ValueError(f"cuBLASLt offers {len(plan.algorithms)} algorithms for {case.name}, not number {index}.")

    def bind(inputs: Inputs) -> Call:
        return lambda: plan.run(index, inputs)

    return Prepared(bind, tile={"algorithm": index}, algorithm=f"cublasLt epilogue {_EPILOGS[case.epilogue]}")


def tiles(case: Case, target: Target) -> Sequence[Tile]:
    """The algorithms that the heuristics offer, by their place."""
    return [{"algorithm": index} for index in range(len(_plan(case).algorithms))]


def _plan(case: Case) -> Plan:
    if case not in _latest:
        _latest.clear()
        _latest[case] = Plan(case, make_inputs(case, 0, torch.device("cuda", torch.cuda.current_device())))
    return _latest[case]


IMPLEMENTATION = Implementation("cublaslt_fused", "peer", True, supports, prepare, tiles=tiles, screened=True)
