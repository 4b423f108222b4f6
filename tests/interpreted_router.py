"""The router's kernels and operator in Triton's interpreter: run by test_router_triton.py in a process of its own."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gemmgate.kernels.router import dispatch, dot_product, logits, split_k
from gemmgate.kernels.router.inputs import TORCH_DTYPE
from gemmgate.kernels.router.operands import case_for
from gemmgate.kernels.router_topk.cases import MODELS, Model, Rule
from gemmgate.kernels.router_topk.cases import case_of as topk_case_of
from gemmgate.kernels.router_topk.fused import IMPLEMENTATIONS as FUSED
from gemmgate.kernels.router_topk.fused import choose_experts
from gemmgate.kernels.router_topk.inputs import make_inputs as make_topk_inputs
from gemmgate.kernels.router_topk.reference import reference as topk_reference
from gemmgate.suite.cases import Target
from tests.router_operands import FORMATS, ROWS_ANYWHERE, SIZES, assert_logits, pair

CPU = Target("cpu")
DOT = dot_product.Tile(block_t=4, block_n=4, splits=3, num_warps=1, unroll=2)
SPLIT = split_k.Tile(block_t=8, block_n=16, block_k=64, splits=3, groups=2, swap=1, num_warps=2, num_stages=2)
UNSWAPPED = split_k.Tile(block_t=16, block_n=8, block_k=32, splits=2, groups=1, swap=0, num_warps=1, num_stages=2)
KERNELS: list[Any] = [
    (dot_product, DOT),
    (dot_product, replace(DOT, overlap=1)),
    (dot_product, replace(DOT, held=1)),
    (split_k, SPLIT),
    (split_k, UNSWAPPED),
    (split_k, replace(SPLIT, overlap=1)),
]
NAMES = ["dot", "dot-second", "dot-held", "split", "unswapped", "split-second"]
each_kernel = pytest.mark.parametrize(("kernel", "tile"), KERNELS, ids=NAMES)


def _run(kernel: Any, tile: Any, x: Tensor, w: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    case = case_for(x, w, bias, out_dtype)
    inputs = {"x": x, "w": w, **({} if bias is None else {"bias": bias})}
    out: Tensor = kernel.prepare(case, inputs, CPU, asdict(tile)).bind(inputs)()
    return out


@each_kernel
@pytest.mark.parametrize(("t", "n", "k"), SIZES)
def test_any_size(t: int, n: int, k: int, kernel: Any, tile: Any) -> None:
    """Every size gives the logits, ragged ones included, with and without a bias."""
    x, w = pair(t, n, k, "bf16", "cpu")
    assert_logits(_run(kernel, tile, x, w, None, torch.float32), x, w, None, torch.float32)
    bias = torch.randn(n).bfloat16()
    assert_logits(_run(kernel, tile, x, w, bias, torch.bfloat16), x, w, bias, torch.bfloat16)


@each_kernel
@pytest.mark.parametrize(("dtype", "out"), FORMATS)
def test_any_format(dtype: str, out: str, kernel: Any, tile: Any) -> None:
    """Operands in each dtype give logits in theirs and in fp32; tensor cores are not asked for fp32."""
    if kernel is split_k and dtype == "fp32":
        pytest.skip("split_k refuses fp32 operands: the refusal is tested in test_router_triton")
    x, w = pair(6, 9, 130, dtype, "cpu")
    assert_logits(_run(kernel, tile, x, w, None, TORCH_DTYPE[out]), x, w, None, TORCH_DTYPE[out])


@each_kernel
@pytest.mark.parametrize("layout_w", ROWS_ANYWHERE)
@pytest.mark.parametrize("layout_x", ROWS_ANYWHERE[1:])
def test_rows_anywhere(layout_x: str, layout_w: str, kernel: Any, tile: Any) -> None:
    """Rows may lie in a wider parent, off alignment, or be one row again and again; what surrounds them is not read."""
    x, w = pair(6, 9, 70, "bf16", "cpu", layout_x, layout_w)
    assert_logits(_run(kernel, tile, x, w, None, torch.float32), x, w, None, torch.float32)


@each_kernel
def test_rows_far_apart(kernel: Any, tile: Any) -> None:
    """Rows of x may be 2^31 elements apart and more, as last tokens of long sequences are."""
    apart, k = 2**32, 64
    try:
        x = torch.empty(apart + k, dtype=torch.bfloat16).as_strided((2, k), (apart, 1))  # between, nothing is touched
    except RuntimeError:
        pytest.skip("8.6 GB of addresses are not to be had here")
    close, w = pair(2, 9, k, "bf16", "cpu")
    x.copy_(close)
    assert_logits(_run(kernel, tile, x, w, None, torch.float32), close, w, None, torch.float32)


@each_kernel
def test_columns_are_refused(kernel: Any, tile: Any) -> None:
    """A weight whose K is not contiguous is refused with the strides, and the sentence names what takes it."""
    x, w = pair(6, 9, 70, "bf16", "cpu", "row", "column")
    with pytest.raises(ValueError, match=r"\(1, 9\).*gemmgate\.kernels\.router\.logits"):
        _run(kernel, tile, x, w, None, torch.float32)


@pytest.mark.parametrize(("splits", "overlap"), [(1, 0), (2, 0), (5, 0), (16, 0), (1, 1), (5, 1), (20, 1)])
def test_any_number_of_splits(splits: int, overlap: int) -> None:
    """K may be cut into fewer, as many or more parts than there are steps: one without work adds nothing."""
    x, w = pair(5, 20, 600, "bf16", "cpu")
    for kernel, tile in ((dot_product, DOT), (split_k, SPLIT)):
        out = _run(kernel, replace(tile, splits=splits, overlap=overlap), x, w, None, torch.float32)  # type: ignore[type-var]
        assert_logits(out, x, w, None, torch.float32)


@each_kernel
def test_calls_repeat_over_any_scratch(kernel: Any, tile: Any) -> None:
    """Three calls give equal bits whatever partial sums held before; whoever counts leaves its counter at 0."""
    x, w = pair(5, 20, 600, "bf16", "cpu")
    case = case_for(x, w, None, torch.float32)
    prepared = kernel.prepare(case, {"x": x, "w": w}, CPU, asdict(tile))
    call = prepared.bind({"x": x, "w": w})
    first = call().clone()
    for _ in range(2):
        for tensor in prepared.workspaces:
            tensor.fill_(float("nan"))
        assert torch.equal(call(), first)


@each_kernel
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_what_is_not_finite_shows(value: float, kernel: Any, tile: Any) -> None:
    """NaN or infinity in one token reaches its logits and no other token's."""
    x, w = pair(6, 9, 70, "bf16", "cpu")
    x[3, 69] = value
    spoiled = ~torch.isfinite(_run(kernel, tile, x, w, None, torch.float32))
    assert spoiled[3].all()
    assert spoiled.sum() == 9


def test_more_tokens_than_a_program_takes() -> None:
    """A dot product of 13 tokens in blocks of 4 covers all of them."""
    x, w = pair(13, 3, 70, "bf16", "cpu")
    assert_logits(_run(dot_product, DOT, x, w, None, torch.float32), x, w, None, torch.float32)


# the operator


class Block(torch.nn.Module):
    """A toy mixture of experts: each token goes to two of eight experts, weighted by its logits."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.gate = torch.nn.Parameter(torch.randn(8, 64, generator=generator) / 8, requires_grad=False)
        self.experts = torch.nn.Parameter(torch.randn(8, 64, 64, generator=generator) / 8, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.softmax(logits(x, self.gate), dim=-1).topk(2, dim=-1)
        every = torch.einsum("tk,ekn->ten", x, self.experts).relu()
        picked = every.gather(1, chosen.unsqueeze(-1).expand(-1, -1, 64))
        return x + (weights.unsqueeze(-1) * picked).sum(1)


def test_compiled_block_matches_eager() -> None:
    """One compilation of the block, without a graph break, serves 0, 1, 16, 17 and 4096 tokens as eager does."""
    compilations = 0

    def backend(graph: torch.fx.GraphModule, example: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal compilations
        compilations += 1
        return graph

    torch._dynamo.reset()
    block = Block()
    compiled = torch.compile(block, dynamic=True, fullgraph=True, backend=backend)
    counts = []
    for t in (16, 17, 4096, 1, 0):
        x = torch.randn(t, 64, generator=torch.Generator().manual_seed(t))
        torch.testing.assert_close(compiled(x), block(x), rtol=1e-5, atol=1e-5)
        counts.append(compilations)
    # Dynamo compiles sizes of 0 and 1 by themselves, whatever a program calls.
    assert counts[:3] == [1, 1, 1] and counts[-1] <= 3


@pytest.mark.parametrize("t", [1, 5, 65])
@pytest.mark.parametrize(("dtype", "out"), FORMATS)
def test_operator_in_every_tier(t: int, dtype: str, out: str) -> None:
    """Whatever tier the rule takes, the operator gives the logits."""
    x, w = pair(t, 9, 130, dtype, "cpu")
    assert_logits(logits(x, w, out_dtype=TORCH_DTYPE[out]), x, w, None, TORCH_DTYPE[out])


@pytest.mark.parametrize("layout_w", ["column", "every_second", "one_value_expanded"])
def test_operator_takes_any_strides(layout_w: str) -> None:
    """Where K is not contiguous the library computes the logits."""
    x, w = pair(4, 9, 70, "fp32", "cpu", "every_second", layout_w)
    assert_logits(logits(x, w), x, w, None, torch.float32)


def test_operator_contract() -> None:
    """torch's own checks of a custom operator hold: schema, aliasing, fake tensors, dynamic tracing."""
    x, w = pair(5, 9, 48, "fp32", "cpu")
    torch.library.opcheck(torch.ops.gemmgate.router_logits.default, (x, w, None, torch.float32))
    torch.library.opcheck(torch.ops.gemmgate.router_logits.default, (x, w, w[:, 0].contiguous(), torch.float32))


def test_dispatch_runs_what_it_says() -> None:
    """`dispatch` and its two rivals name the tier they chose, give the logits, and take the tile that they reported."""
    x, w = pair(3, 20, 600, "bf16", "cpu")
    case = case_for(x, w, None, torch.float32)
    tiers = {}
    for name, implementation in dispatch.IMPLEMENTATIONS.items():
        prepared = implementation.prepare(case, {"x": x, "w": w}, CPU, None)
        assert_logits(prepared.bind({"x": x, "w": w})(), x, w, None, torch.float32)
        tiers[name] = prepared.algorithm
        again = implementation.prepare(case, {"x": x, "w": w}, CPU, prepared.tile)
        assert (again.tile, again.algorithm) == (prepared.tile, prepared.algorithm)
    assert tiers == {
        "dispatch": "dot_product (rule)",
        "hand_ranges": "split_k (up to 128)",
        "single_choice": "split_k (the tile for 16 tokens)",
    }


# experts


@pytest.mark.parametrize("name", ["one_launch", "two_launches"])
@pytest.mark.parametrize("score", ["softmax", "sigmoid", "sqrtsoftplus"])
def test_equally_good_experts_come_in_order(score: str, name: str) -> None:
    """Where all logits are equal, experts 0, 1 and 2 are taken, and share the weight evenly."""
    case = topk_case_of(2, 16, 64, Rule(score, 3))
    inputs = {"x": torch.ones(2, 64).bfloat16(), "w": torch.ones(16, 64).bfloat16() / 64}
    weights, experts = FUSED[name].prepare(case, inputs, CPU, None).bind(inputs)()
    assert experts.tolist() == [[0, 1, 2], [0, 1, 2]]
    torch.testing.assert_close(weights, torch.full((2, 3), 1 / 3))


@pytest.mark.parametrize("name", ["one_launch", "two_launches"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_experts_of_every_rule(model: Model, name: str) -> None:
    """Each model's rule over 32 experts gives the experts of float64 exactly, and weights to seven digits."""
    case = topk_case_of(9, min(model.experts, 32), 160, model.rule)
    inputs = make_topk_inputs(case, 1, "cpu")
    weights, experts = FUSED[name].prepare(case, inputs, CPU, None).bind(inputs)()
    exact_weights, exact = topk_reference(case, inputs)
    assert torch.equal(experts.double(), exact)
    torch.testing.assert_close(weights.double(), exact_weights, rtol=1e-5, atol=1e-7)


def test_experts_from_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product whose K is cut into parts leaves them to the second launch, which finds the experts of float64."""
    parts = dispatch.Choice("split_k", asdict(replace(SPLIT, splits=4)), "given")
    monkeypatch.setattr(dispatch, "choose", lambda case, target: parts)
    case = topk_case_of(5, 12, 1100, Rule("sigmoid", 3, corrected=True))
    inputs = make_topk_inputs(case, 1, "cpu")
    prepared = FUSED["two_launches"].prepare(case, inputs, CPU, None)
    assert prepared.tile is not None and int(prepared.tile["splits"]) > 1
    weights, experts = prepared.bind(inputs)()
    exact_weights, exact = topk_reference(case, inputs)
    assert torch.equal(experts.double(), exact)
    torch.testing.assert_close(weights.double(), exact_weights, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["one_launch", "two_launches"])
def test_groups_and_corrections_by_hand(name: str) -> None:
    """A group counts by its two best; its experts are taken though a correction makes one worth less than 0."""
    case = topk_case_of(1, 4, 16, Rule("sigmoid", 2, 2, 1, corrected=True, normalised=False))
    x = torch.zeros(1, 16).bfloat16()
    x[0, :4] = torch.tensor([3.0, -9.0, 2.0, 1.0])
    inputs = {"x": x, "w": torch.eye(4, 16).bfloat16(), "correction": torch.tensor([0.0, 0.0, 0.0, -0.25])}
    call = FUSED[name].prepare(case, inputs, CPU, None).bind(inputs)
    weights, experts = call()
    assert experts.tolist() == [[2, 3]]
    torch.testing.assert_close(weights, torch.sigmoid(torch.tensor([[2.0, 1.0]])))
    inputs["correction"][2:] = -2.0
    inputs["correction"][:2] = torch.tensor([-0.5, -0.8])
    assert call()[1].tolist() == [[0, 1]]


def _sorted_experts(logits: Tensor, correction: Tensor, rule: Rule) -> tuple[list[int], Tensor]:
    """One token's experts and weights in float64: a stable sort, one after the other."""
    scores = {
        "softmax": lambda: torch.softmax(logits.double(), 0),
        "sigmoid": lambda: torch.sigmoid(logits.double()),
        "sqrtsoftplus": lambda: torch.nn.functional.softplus(logits.double()).sqrt(),
    }[rule.score]()
    worth = (scores + correction.double()).tolist()
    each = len(worth) // rule.groups
    pairs = [sum(sorted(worth[g * each : (g + 1) * each])[-2:]) for g in range(rule.groups)] if rule.groups > 1 else [0]
    groups = sorted(range(rule.groups), key=lambda g: (-pairs[g], g))[: rule.top_groups]
    left = [expert for group in groups for expert in range(group * each, (group + 1) * each)]
    chosen = sorted(left, key=lambda expert: (-worth[expert], expert))[: rule.top_k]
    weights = scores[chosen]
    return chosen, rule.scale * (weights / weights.sum() if rule.normalised else weights)


TIED = (
    Rule("softmax", 24),
    Rule("softmax", 3, normalised=False, scale=2.0),
    Rule("sigmoid", 5, corrected=True),
    Rule("sigmoid", 6, 8, 3),
    Rule("sqrtsoftplus", 4, 4, 2, corrected=True, normalised=False),
    Rule("sqrtsoftplus", 2),
)


@pytest.mark.parametrize(
    ("rule", "n"),
    [pytest.param(rule, n, id=f"{rule.text}-n{n}") for rule in TIED for n in (32, 45) if n % rule.groups == 0],
)
def test_experts_of_logits_with_many_ties(rule: Rule, n: int) -> None:
    """Of logits of seven values, both zeros and minus infinity among them, the experts are those of a stable sort."""
    generator = torch.Generator().manual_seed(rule.top_k)
    values = torch.tensor([-0.0, 0.0, 1.5, -1.5, 0.25, -20.0, float("-inf")])
    logits = values[torch.randint(0, 7, (6, n), generator=generator)]
    correction = torch.randint(-1, 2, (n,), generator=generator) / 8 * float(rule.corrected)
    weights, experts = torch.empty(6, rule.top_k), torch.empty(6, rule.top_k, dtype=torch.int32)
    choose_experts(logits, correction if rule.corrected else None, rule, weights, experts)
    for token in range(6):
        chosen, exact = _sorted_experts(logits[token], correction, rule)
        assert experts[token].tolist() == chosen
        torch.testing.assert_close(weights[token].double(), exact, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_all_experts_of_an_odd_number(count: int, corrected: bool) -> None:
    """Where every expert is taken, down to a single one, each comes once, the best first."""
    rule = Rule("sigmoid", count, corrected=corrected)
    logits = torch.randn(4, count, generator=torch.Generator().manual_seed(count))
    correction = torch.linspace(-0.5, 0.5, count)
    weights, experts = torch.empty(4, count), torch.empty(4, count, dtype=torch.int32)
    choose_experts(logits, correction if corrected else None, rule, weights, experts)
    for token in range(4):
        chosen, exact = _sorted_experts(logits[token], correction * float(corrected), rule)
        assert experts[token].tolist() == chosen
        torch.testing.assert_close(weights[token].double(), exact, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("corrected", [False, True])
def test_scores_of_far_negative_logits_keep_their_precision(corrected: bool) -> None:
    """Where exp of a logit is below the rounding of 1, the root of softplus ranks and weighs experts as in float64."""
    rule = Rule("sqrtsoftplus", 3, corrected=corrected)
    logits = torch.tensor([[-20.0, -18.0, -19.0, -25.0], [-12.0, -11.0, -40.0, -12.5], [-0.1, -3.0, 2.0, -7.0]])
    correction = torch.zeros(4)
    weights, experts = torch.empty(3, 3), torch.empty(3, 3, dtype=torch.int32)
    choose_experts(logits, correction if corrected else None, rule, weights, experts)
    for token in range(3):
        chosen, exact = _sorted_experts(logits[token], correction, rule)
        assert experts[token].tolist() == chosen
        torch.testing.assert_close(weights[token].double(), exact, rtol=1e-5, atol=0.0)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_logit_that_is_no_number_shows() -> None:
    """An expert whose logit is NaN comes first, and no weight of its token is a number; other tokens' are."""
    logits = torch.arange(12.0).repeat(2, 1)
    logits[1, 4] = float("nan")
    weights, experts = torch.empty(2, 2), torch.empty(2, 2, dtype=torch.int32)
    choose_experts(logits, None, Rule("softmax", 2), weights, experts)
    assert experts.tolist() == [[11, 10], [4, 11]]
    assert weights[0].isfinite().all() and weights[1].isnan().all()
