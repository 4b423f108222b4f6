"""The implementations of `dense_splitk` on a GPU, where their own precision and launches show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from gemmgate.kernels._triton.host import target_of
from gemmgate.kernels.dense_splitk import FAMILY
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.kernels.dense_splitk.reference import reference
from gemmgate.kernels.dense_splitk.triton_split_k import split_k
from gemmgate.suite.cases import Case, Implementation, Prepared
from gemmgate.suite.catalog import find
from tests.gemm_layouts import FORMATS, LAYOUTS, SIZES, assert_product, matrix

pytestmark = pytest.mark.gpu

CATALOG = find()
QUICK = [case for case in FAMILY.cases if "quick" in case.tags]
DEVICE = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _library_flags(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reductions in fp32, and TF32 only where a parameter of the test says so."""
    parameters = getattr(request.node, "callspec", None)
    tf32 = parameters is not None and "tf32" in parameters.id
    matmul = torch.backends.cuda.matmul
    precision = torch.get_float32_matmul_precision()
    reductions = matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    matmul.allow_bf16_reduced_precision_reduction = matmul.allow_fp16_reduced_precision_reduction = False
    yield
    torch.set_float32_matmul_precision(precision)
    matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction = reductions


def _prepared(case: Case, name: str, inputs: Any) -> tuple[Implementation, Prepared]:
    implementation: Implementation = CATALOG.implementation(FAMILY.name, name)
    target = target_of(DEVICE)
    refusal = implementation.supports(case, target)
    if refusal is not None:
        pytest.skip(f"{refusal[0]}: {refusal[1]}")
    return implementation, implementation.prepare(case, inputs, target, None)


def _error(out: Tensor, exact: Tensor) -> float:
    return float((out.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_quick_cases_are_within_the_bound(case: Case) -> None:
    """Every implementation that a quick run takes for a quick case is as exact as the family demands."""
    inputs = make_inputs(case, 1, DEVICE)
    exact = reference(case, inputs)
    rounding = _error(exact.to(inputs["a"].dtype), exact)
    beyond = {}
    for entry in FAMILY.implementations:
        if entry.on_request or not entry.applies(case):
            continue
        implementation: Implementation = CATALOG.implementation(FAMILY.name, entry.name)
        if implementation.supports(case, target_of(DEVICE)) is not None:
            continue
        prepared = implementation.prepare(case, inputs, target_of(DEVICE), None)
        error = _error(prepared.bind(inputs)(), exact)
        if not error <= rounding + 2 * FAMILY.error_bound(case):
            beyond[entry.name] = (error, rounding, FAMILY.error_bound(case))
    assert beyond == {}


@pytest.mark.parametrize("name", ["cublas", "triton_split_k", "decompose_k_7", "decompose_k_best"])
@pytest.mark.parametrize(("dtype", "precision"), FORMATS)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_any_size(m: int, n: int, k: int, dtype: str, precision: str, name: str) -> None:
    """Every implementation gives the product at every size that it takes."""
    a, b = matrix(m, k, dtype, "cuda", 1), matrix(k, n, dtype, "cuda", 2)
    _, prepared = _prepared(case_of(m, n, k, dtype, precision), name, {"a": a, "b": b})
    assert_product(prepared.bind({"a": a, "b": b})(), a, b, precision)


@pytest.mark.parametrize("name", ["cublas", "triton_split_k", "decompose_k_7"])
@pytest.mark.parametrize(("dtype", "precision"), [("bf16", "acc32"), ("fp32", "tf32")])
@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_any_strides(layout_a: str, layout_b: str, dtype: str, precision: str, name: str) -> None:
    """Every implementation gives the product of the values that torch sees, in every pair of layouts."""
    a = LAYOUTS[layout_a](matrix(18, 1001, dtype, "cuda", 1))
    b = LAYOUTS[layout_b](matrix(1001, 17, dtype, "cuda", 2))
    _, prepared = _prepared(case_of(18, 17, 1001, dtype, precision), name, {"a": a, "b": b})
    assert_product(prepared.bind({"a": a, "b": b})(), a, b, precision)


@pytest.mark.parametrize(("dtype", "precision"), FORMATS)
@pytest.mark.parametrize("splits", [1, 2, 5, 7, 64, 300])
def test_any_number_of_splits(splits: int, dtype: str, precision: str) -> None:
    """K may be cut into fewer, as many or more ranges than it has tiles."""
    a, b = matrix(20, 1001, dtype, "cuda", 1), matrix(1001, 33, dtype, "cuda", 2)
    assert_product(split_k(a, b, splits=splits, precision=precision), a, b, precision)


@pytest.mark.parametrize(("dtype", "precision"), FORMATS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(value: float, dtype: str, precision: str) -> None:
    """NaN or infinity in one element of A reaches that row of C and no other element."""
    a, b = matrix(20, 1001, dtype, "cuda", 1), matrix(1001, 33, dtype, "cuda", 2)
    a[3, 1000] = value
    spoiled = ~torch.isfinite(split_k(a, b, precision=precision))
    assert spoiled[3].all()
    assert spoiled.sum() == 33


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0x7F800001, -0x00000001])
def test_no_nan_is_lost_in_tf32(bits: int) -> None:
    """A NaN stays one under rounding to TF32, whichever of its bits are set."""
    a, b = matrix(16, 64, "fp32", "cuda", 1), matrix(64, 16, "fp32", "cuda", 2)
    a.view(torch.int32)[3, 5] = bits
    assert torch.isnan(split_k(a, b, precision="tf32")[3]).all()


def test_tf32_rounds_to_nearest() -> None:
    """The error is that of two operands rounded to the nearest TF32: 2.9e-4, not the 7.6e-4 of truncated ones."""
    a, b = matrix(64, 8192, "fp32", "cuda", 1), matrix(8192, 64, "fp32", "cuda", 2)
    assert 2.5e-4 < _error(split_k(a, b, precision="tf32"), a.double() @ b.double()) < 3.5e-4


@pytest.mark.parametrize(("dtype", "small"), [("fp16", 2.0**-20), ("bf16", 2.0**-130), ("fp32", 2.0**-130)])
def test_denormals_count(dtype: str, small: float) -> None:
    """Operands below the smallest normal number are multiplied, not flushed."""
    a = torch.full((16, 64), small, device=DEVICE).to(matrix(1, 1, dtype, "cpu").dtype)
    b = torch.full_like(a.t(), 2.0**10)
    assert torch.equal(split_k(a, b), torch.full_like(a[:, :16], small * 2.0**16))


@pytest.mark.parametrize("name", ["cublas", "triton_split_k", "decompose_k_16"])
@pytest.mark.parametrize("word", ["bf16", "fp16", "fp32", "tf32"])
def test_captured_calls_repeat(word: str, name: str) -> None:
    """A captured call, replayed over NaN in outputs and workspaces, gives the bits of the first eager one."""
    case = next(case for case in FAMILY.cases if case.name == f"m32-n32-k32768-{word}")
    inputs = make_inputs(case, 1, DEVICE)
    _, prepared = _prepared(case, name, inputs)
    call = prepared.bind(inputs)
    expected = call().clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    for tensor in (out, *prepared.workspaces):
        tensor.fill_(float("nan"))
    graph.replay()
    assert torch.equal(out, expected)


def test_device_code_is_that_of_the_tile() -> None:
    """Preparing twice gives one hash, another tile another."""
    case = QUICK[0]
    inputs = make_inputs(case, 1, DEVICE)
    implementation, prepared = _prepared(case, "triton_split_k", inputs)
    again = implementation.prepare(case, inputs, target_of(DEVICE), prepared.tile)
    assert prepared.tile is not None
    other = implementation.prepare(case, inputs, target_of(DEVICE), {**prepared.tile, "block_n": 32})
    assert len(prepared.device_code) == 64
    assert prepared.device_code == again.device_code != other.device_code


def test_compiles_with_dynamic_sizes() -> None:
    """Inductor compiles the operator once for every M and K."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: split_k(a, b).relu(), dynamic=True, fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for m, k in ((4, 48), (9, 1000), (20, 4096)):
            a, b = matrix(m, k, "bf16", "cuda", 1), matrix(k, 18, "bf16", "cuda", 2)
            assert torch.equal(compiled(a, b), split_k(a, b).relu())


@pytest.mark.slow
def test_addresses_beyond_31_bits() -> None:
    """Operands of more than 2^31 elements are multiplied to their last element."""
    a = matrix(2, (1 << 30) + 1024, "fp16", "cuda", 1)
    b = torch.zeros(a.shape[1], 3, dtype=torch.float16, device=DEVICE)
    b[-64:] = matrix(64, 3, "fp16", "cuda", 2)
    exact = a[:, -64:].double() @ b[-64:].double()
    assert _error(split_k(a, b), exact) < 1e-3
