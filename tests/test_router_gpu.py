"""The router on a GPU: every implementation on quick cases, the operator under graphs and compilers, experts exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gemmgate.kernels._triton.host import target_of
from gemmgate.kernels.router import FAMILY, dot_product, logits, split_k
from gemmgate.kernels.router.cases import MODELS, case_of
from gemmgate.kernels.router.decision import decision
from gemmgate.kernels.router.inputs import TORCH_DTYPE, make_inputs
from gemmgate.kernels.router.reference import reference
from gemmgate.kernels.router_topk import FAMILY as TOPK
from gemmgate.kernels.router_topk.inputs import make_inputs as make_topk_inputs
from gemmgate.kernels.router_topk.reference import reference as topk_reference
from gemmgate.suite.cases import Case, Inputs
from gemmgate.suite.catalog import find
from tests.router_operands import FORMATS, ROWS_ANYWHERE, SIZES, assert_logits, pair, sums_on_a_gpu

pytestmark = pytest.mark.gpu

CATALOG = find()
DEVICE = torch.device("cuda", 0)
QUICK = [case for case in FAMILY.cases if "quick" in case.tags]
QUICK_TOPK = [case for case in TOPK.cases if "quick" in case.tags]


def _supported(case: Case, name: str) -> Any:
    implementation = CATALOG.implementation(case.family, name)
    return implementation if implementation.supports(case, target_of(DEVICE)) is None else None


def _cheap(case: Case) -> list[str]:
    family = CATALOG.family(case.family)
    return [entry.name for entry in family.implementations if entry.applies(case) and not entry.on_request]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_quick_cases_are_within_the_bound(case: Case) -> None:
    """Each implementation of a cheap run is within the bound, and those with unrounded fp32 logits far below it."""
    inputs = make_inputs(case, 1, DEVICE)
    exact = reference(case, inputs)
    rounded = exact.to(TORCH_DTYPE[FAMILY.output_dtype(case)])
    rounding = float((rounded.double() - exact).norm() / exact.norm())
    errors, bounds = {}, {}
    for name in _cheap(case):
        implementation = _supported(case, name)
        if implementation is not None:
            out = implementation.prepare(case, inputs, target_of(DEVICE), None).bind(inputs)()
            errors[name] = float((out.double() - exact).norm() / exact.norm())
            bounds[name] = rounding + 2 * (implementation.error_bound or FAMILY.error_bound)(case)
    assert {name: e for name, e in errors.items() if not e <= bounds[name]} == {}
    if FAMILY.output_dtype(case) == "fp32" and case.dtype == "bf16":
        assert max(error for name, error in errors.items() if name != "linear_float") < 1e-4


@pytest.mark.parametrize("name", ["dot_product", "split_k"])
def test_every_tile_is_right(name: str) -> None:
    """Every thirteenth tile of both spaces gives the logits of DeepSeek-V3 and Mixtral at 8 tokens."""
    module = {"dot_product": dot_product, "split_k": split_k}[name]
    for n, k, out in ((256, 7168, "fp32"), (8, 4096, "bf16")):
        case = case_of(8, n, k, "bf16", out)
        inputs = make_inputs(case, 1, DEVICE)
        for tile in module.tiles(case, target_of(DEVICE))[::13]:
            prepared = module.prepare(case, inputs, target_of(DEVICE), tile)
            call = prepared.bind(inputs)
            for _ in range(3):
                assert_logits(call(), inputs["x"], inputs["w"], None, TORCH_DTYPE[out], sums_on_a_gpu(k))
            assert all(not counters.any() for counters in prepared.state), tile


@pytest.mark.parametrize(("dtype", "out"), FORMATS)
@pytest.mark.parametrize(("t", "n", "k"), [*SIZES, (64, 896, 1024), (65, 896, 1024), (513, 53, 1728)])
def test_operator_at_any_size(t: int, n: int, k: int, dtype: str, out: str) -> None:
    """The operator gives the logits at every size and format."""
    x, w = pair(t, n, k, dtype, "cuda")
    assert_logits(logits(x, w, out_dtype=TORCH_DTYPE[out]), x, w, None, TORCH_DTYPE[out], sums_on_a_gpu(k))


@pytest.mark.parametrize("layout_w", [*ROWS_ANYWHERE, "column", "every_second"])
@pytest.mark.parametrize("layout_x", [*ROWS_ANYWHERE, "every_second"])
@pytest.mark.parametrize("t", [2, 30])
def test_operator_takes_any_strides(t: int, layout_x: str, layout_w: str) -> None:
    """Any layout of x and w gives the logits of the values that torch sees."""
    x, w = pair(t, 33, 1001, "bf16", "cuda", layout_x, layout_w)
    assert_logits(logits(x, w, out_dtype=torch.float32), x, w, None, torch.float32, sums_on_a_gpu(1001))


def _captured(call: Any) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


@pytest.mark.parametrize("t", [1, 8, 64])
def test_captured_operator_repeats(t: int) -> None:
    """A captured call, replayed a hundred times, gives the bits of the eager one, which may run in between."""
    x, w = pair(t, 8, 4096, "bf16", "cuda")
    expected = logits(x, w, out_dtype=torch.float32).clone()
    graph, out = _captured(lambda: logits(x, w, out_dtype=torch.float32))
    for _ in range(100):
        out.fill_(float("nan"))
        graph.replay()
        again = logits(x, w, out_dtype=torch.float32)
        assert torch.equal(out, expected) and torch.equal(again, expected)


def test_compiled_block_matches_eager() -> None:
    """Inductor compiles a gate once for every T from 2 on, with the tier that runs eagerly."""
    torch._dynamo.reset()
    w = torch.randn(256, 2048, device=DEVICE).bfloat16()

    def gate(x: Tensor) -> Tensor:
        return torch.sigmoid(logits(x, w, out_dtype=torch.float32))

    compiled = torch.compile(gate, dynamic=True, fullgraph=True)
    tokens = {t: torch.randn(t, 2048, device=DEVICE).bfloat16() for t in (16, 17, 4096, 1, 0)}
    for t, x in tokens.items():
        torch.testing.assert_close(compiled(x), gate(x))
        if t == 16:
            before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        if t == 4096:
            assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


@pytest.mark.parametrize("model", [model.name for model in MODELS])
def test_experts_agree_as_often_as_in_fp32(model: str) -> None:
    """On 512 tokens `dispatch` gives the experts of float64 no less often than the library's fp32 product."""
    case = next(case for case in FAMILY.cases if model in case.tags and case.dims["t"] == 512)
    inputs: Inputs = make_inputs(case, 3, DEVICE)
    exact = reference(case, inputs)
    single = inputs["x"].float() @ inputs["w"].float().t()
    ours = logits(inputs["x"], inputs["w"], out_dtype=torch.float32)
    found, usual = decision(case, inputs, ours, exact), decision(case, inputs, single, exact)
    assert found["agree"] + found["tied"] >= usual["agree"] + usual["tied"] - 0.002


@pytest.mark.parametrize("case", QUICK_TOPK, ids=lambda case: case.name)
def test_experts_are_exact(case: Case) -> None:
    """Each implementation gives the experts of float64 and their weights, three times over."""
    inputs = make_topk_inputs(case, 1, DEVICE)
    exact_weights, exact = topk_reference(case, inputs)
    for name in _cheap(case):
        implementation = _supported(case, name)
        if implementation is None:
            continue
        call = implementation.prepare(case, inputs, target_of(DEVICE), None).bind(inputs)
        for _ in range(3):
            weights, experts = call()
            assert torch.equal(experts.double(), exact), name
            assert (weights - exact_weights).norm() <= 2 * TOPK.error_bound(case) * exact_weights.norm(), name
