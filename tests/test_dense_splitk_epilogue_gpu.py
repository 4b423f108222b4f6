"""The implementations of `dense_splitk_epilogue` on a GPU: results, launches, bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gemmgate.kernels._triton.host import target_of
from gemmgate.kernels.dense_splitk_epilogue import FAMILY
from gemmgate.kernels.dense_splitk_epilogue.cases import OWN, case_of
from gemmgate.kernels.dense_splitk_epilogue.inputs import make_inputs
from gemmgate.kernels.dense_splitk_epilogue.reference import reference
from gemmgate.suite.cases import Implementation
from gemmgate.suite.catalog import find, offered

pytestmark = pytest.mark.gpu

CATALOG = find()
DEVICE = torch.device("cuda", 0)
EPILOGUES = sorted({case.epilogue for case in FAMILY.cases})
SLOW = {entry.name for entry in FAMILY.implementations if entry.on_request}


@pytest.fixture(autouse=True)
def _reductions_in_fp32() -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction
    matmul.allow_bf16_reduced_precision_reduction = False
    yield
    matmul.allow_bf16_reduced_precision_reduction = before


@pytest.mark.parametrize("k", [8192, 8200])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_within_the_bound(epilogue: str, k: int) -> None:
    """Every implementation that a run takes gives every epilogue as exactly as the family demands, twice."""
    case = case_of(48, 40, k, "bf16", "acc32", epilogue)
    inputs = make_inputs(case, 1, DEVICE)
    exact = reference(case, inputs)
    beyond = {}
    for name in offered(FAMILY, case):
        implementation: Implementation = CATALOG.implementation(FAMILY.name, name)
        if name in SLOW or implementation.supports(case, target_of(DEVICE)) is not None:
            continue
        call = implementation.prepare(case, inputs, target_of(DEVICE), None).bind(inputs)
        for _ in range(2):
            out = call()
            rounding = (exact.to(out.dtype).double() - exact).norm() / exact.norm()
            error = (out.double() - exact).norm() / exact.norm()
            if out.shape != exact.shape or not error <= rounding + 2 * FAMILY.error_bound(case):
                beyond[name] = (tuple(out.shape), float(error), float(rounding), FAMILY.error_bound(case))
    assert beyond == {}


@pytest.mark.parametrize("name", [name for name in OWN if name not in ("atomic_fp32", "two_launches")])
def test_one_launch(name: str) -> None:
    """Product, bias and SiLU are one kernel."""
    case = case_of(64, 64, 8192, "bf16", "acc32", "bias-silu")
    inputs = make_inputs(case, 1, DEVICE)
    call = CATALOG.implementation(FAMILY.name, name).prepare(case, inputs, target_of(DEVICE), None).bind(inputs)
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    kernels = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert kernels == [f"_{name}"]


def test_fused_decompose_k_is_right() -> None:
    """What Inductor makes of batch, sum and epilogue is the same product."""
    case = case_of(32, 32, 8192, "bf16", "acc32", "bias-silu")
    inputs = make_inputs(case, 1, DEVICE)
    exact = reference(case, inputs)
    implementation = CATALOG.implementation(FAMILY.name, "decompose_k_fused")
    out = implementation.prepare(case, inputs, target_of(DEVICE), {"splits": 32}).bind(inputs)()
    assert (out.double() - exact).norm() <= 3e-3 * exact.norm()
