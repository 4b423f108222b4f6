"""The family `router_topk`: rules by hand and against torch's own operations, ties, refusals, exact numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gemmgate.kernels.router import dispatch
from gemmgate.kernels.router.cases import case_of as logits_case_of
from gemmgate.kernels.router_topk import FAMILY, cases, fused
from gemmgate.kernels.router_topk.cases import MODELS, Rule, case_of, rule_of
from gemmgate.kernels.router_topk.eager import IMPLEMENTATIONS as EAGER
from gemmgate.kernels.router_topk.eager import route, sequence
from gemmgate.kernels.router_topk.fused import IMPLEMENTATIONS as FUSED
from gemmgate.kernels.router_topk.fused import choose_tile
from gemmgate.kernels.router_topk.inputs import make_inputs
from gemmgate.kernels.router_topk.reference import reference
from gemmgate.suite.cases import Target
from gemmgate.suite.measure import check

H200 = Target("sm_90", sm_count=132, shared_bytes=232448)
CPU = Target("cpu")


def _route(logits: list[float], rule: Rule, correction: list[float] | None = None) -> tuple[list[float], list[int]]:
    bias = None if correction is None else torch.tensor(correction, dtype=torch.float64)
    weights, experts = route(torch.tensor([logits], dtype=torch.float64), bias, rule)
    return weights[0].tolist(), experts[0].tolist()


def test_softmax_by_hand() -> None:
    """Two of three by softmax of (0, ln 2, ln 3): a half and a third, normalised to 3/5 and 2/5."""
    logits = [0.0, 0.6931471805599453, 1.0986122886681098]
    weights, experts = _route(logits, Rule("softmax", 2))
    assert experts == [2, 1]
    assert weights == pytest.approx([0.6, 0.4])
    weights, _ = _route(logits, Rule("softmax", 2, normalised=False))
    assert weights == pytest.approx([1 / 2, 1 / 3])


def test_correction_chooses_and_does_not_weigh() -> None:
    """A correction of 0.3 brings the last expert in before the second; its weight is its own sigmoid's, times 2."""
    weights, experts = _route([2.0, 0.0, 0.0], Rule("sigmoid", 2, corrected=True, scale=2.0), [0.0, 0.0, 0.3])
    first, second = 0.8807970779778823, 0.5
    assert experts == [0, 2]
    assert weights == pytest.approx([2 * first / (first + second), 2 * second / (first + second)])


def test_groups_limit_the_choice() -> None:
    """Of two groups the one with the better pair is taken, though the best single expert is in the other."""
    rule = Rule("sigmoid", 2, 2, 1, normalised=False)
    weights, experts = _route([3.0, -9.0, 2.0, 1.9], rule)
    assert experts == [2, 3]
    assert weights == pytest.approx([1 / (1 + 0.1353352832), 1 / (1 + 0.1495686192)])


def test_root_of_softplus_by_hand() -> None:
    """The score of a logit of 0 is the root of ln 2."""
    weights, _ = _route([0.0, -50.0], Rule("sqrtsoftplus", 1, normalised=False))
    assert weights == pytest.approx([0.8325546111576977])


def test_rules_survive_their_text() -> None:
    """Each model's rule is read back from its cases, and what is no rule is refused."""
    for model in MODELS:
        case = next(case for case in FAMILY.cases if model.name in case.tags)
        assert rule_of(case) == model.rule
    with pytest.raises(ValueError, match="no rule"):
        rule_of(case_of(1, 8, 64, Rule("softmax", 2)).__class__("router_topk", "a", {"t": 1}, "bf16", "acc32"))
    with pytest.raises(ValueError, match=r"s1\.2\.3', which is no rule"):
        rule_of(replace(case_of(1, 8, 64, Rule("softmax", 2)), epilogue="softmax-k2-g1x1-c0-n1-s1.2.3"))
    with pytest.raises(ValueError, match="give no 9"):
        case_of(1, 64, 64, Rule("sigmoid", 9, 8, 1))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule("tanh", 2), "'tanh-k2-.*no rule: scores are softmax"),
        (Rule("softmax", 2, scale=1e-7), "no rule: .* the scale a number"),
        (Rule("softmax", 2, scale=0.0), "the scale has to be more than 0"),
        (Rule("softmax", 0), "each has to be 1 or more"),
        (Rule("softmax", 2, 0, 0), "each has to be 1 or more"),
        (Rule("sigmoid", 2, 8, 4), "8 experts in 8 groups: a group's worth takes two"),
    ],
)
def test_what_is_no_rule(rule: Rule, said: str) -> None:
    """A rule that nothing computes, or that a case could not carry, is refused when the case is made."""
    with pytest.raises(ValueError, match=said):
        case_of(1, 8, 64, rule)


def test_catalog() -> None:
    """Seven models at nine T; quick ones among them; bytes by hand."""
    assert len(FAMILY.cases) == 63
    assert sum("quick" in case.tags for case in FAMILY.cases) == 7
    case = next(case for case in FAMILY.cases if case.name == "deepseek-v3-t8-bf16")
    assert FAMILY.bytes_moved(case) == 2 * (8 * 7168 + 256 * 7168) + 4 * 256 + 8 * 8 * 8


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_experts_cannot_be_mistaken(model: cases.Model) -> None:
    """The experts of each token are those of float64 also where logits are rounded to bf16: 64 tokens, two seeds."""
    case = case_of(64, model.experts, max(model.experts, 512), model.rule)
    for seed in (0, 1):
        inputs = make_inputs(case, seed, "cpu")
        weights, experts = sequence(model.rule, **inputs)
        exact_weights, exact = reference(case, inputs)
        assert torch.equal(experts.double(), exact)
        assert (weights - exact_weights).norm() / exact_weights.norm() < 2 * FAMILY.error_bound(case)
        assert (exact.sort(1).values.diff(dim=1) > 0).all()


@pytest.mark.parametrize("model", [model for model in MODELS if model.hidden <= 4096], ids=lambda model: model.name)
def test_tokens_are_as_clear_beside_weights_of_another_seed(model: cases.Model) -> None:
    """Where tokens stay and weights change, as in `serving`, bf16 logits still choose what float64 chooses."""
    case = case_of(16, model.experts, model.hidden, model.rule, model.name)
    mixed = {**make_inputs(case, 5, "cpu"), "x": make_inputs(case, 4, "cpu")["x"]}
    _, experts = sequence(model.rule, **mixed)
    assert torch.equal(experts.double(), reference(case, mixed)[1])


def test_inputs_follow_the_seed() -> None:
    """One seed gives one set of inputs; other data and more experts than K are refused by value."""
    case = case_of(3, 16, 64, Rule("sigmoid", 2, corrected=True))
    first, again, other = (make_inputs(case, seed, "cpu") for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in ("x", "w", "correction"))
    assert not torch.equal(first["x"], other["x"])
    with pytest.raises(ValueError, match="'zeros' is not one of normal"):
        make_inputs(case, 0, "cpu", "zeros")
    with pytest.raises(ValueError, match="128 experts"):
        make_inputs(case_of(3, 128, 64, Rule("softmax", 2)), 0, "cpu")


def test_a_wrong_expert_is_wrong() -> None:
    """One expert whose number is off by one fails the check, though the error in the norm is far below the bound."""
    case = case_of(16, 256, 512, Rule("softmax", 8))
    weights, experts = reference(case, make_inputs(case, 0, "cpu"))
    outputs = [weights.float(), experts.int()]
    allowance = FAMILY.error_bound(case)
    assert check.compare(outputs, [weights, experts], FAMILY.output_dtype(case), allowance).reason == ""
    outputs[1][3, 2] += 1
    found = check.compare(outputs, [weights, experts], FAMILY.output_dtype(case), allowance)
    assert found.reason == "wrong_numbers" and "1 of 128" in found.detail
    found = check.compare([outputs[0], experts], [weights, experts], FAMILY.output_dtype(case), allowance)
    assert found.reason == "output_dtype"


def test_refusals() -> None:
    """More experts than a row holds, uneven groups, too many tokens for one launch, and a CPU are refused by code."""
    found = [
        FUSED["two_launches"].supports(case_of(1, 2048, 4096, Rule("softmax", 8)), H200),
        FUSED["two_launches"].supports(case_of(1, 96, 4096, Rule("sigmoid", 8, 8, 4)), H200),
        FUSED["one_launch"].supports(case_of(65, 64, 4096, Rule("softmax", 8)), H200),
        FUSED["one_launch"].supports(case_of(1, 64, 4096, Rule("softmax", 8)), CPU),
        EAGER["inductor"].supports(case_of(1, 64, 4096, Rule("softmax", 8)), CPU),
    ]
    codes = [refusal and refusal[0] for refusal in found]
    assert codes == ["too_many_experts", "uneven_groups", "too_many_tokens", "interpreter_only", "gpu_only"]
    assert FUSED["two_launches"].supports(case_of(512, 256, 7168, MODELS[0].rule), H200) is None


def test_chosen_tiles_fit() -> None:
    """One launch has at most two programs a multiprocessor where K is split, and blocks of eight tokens."""
    for case in FAMILY.cases:
        if case.dims["t"] > 64:
            continue
        tile = choose_tile(case, H200)
        blocks = -(-case.dims["n"] // tile.block_n) * -(-case.dims["t"] // tile.block_t)
        assert tile.block_t == 8 and tile.swap == 1
        assert tile.splits == 1 or blocks * tile.splits <= 264


@pytest.mark.parametrize(
    ("model", "t", "kernel"),
    [
        ("deepseek-v3", 4, "dot_product"),
        ("deepseek-v3", 8, "split_k"),
        ("qwen3-235b-a22b", 16, "split_k"),
        ("mixtral-8x7b", 8, "dot_product"),
        ("qwen3-next", 512, "mm_out_dtype"),
    ],
)
def test_parts_are_left_to_the_choice(model: str, t: int, kernel: str) -> None:
    """From 8 tokens of many experts on an H200, logits come by split-K where the router alone takes dot products."""
    found = next(known for known in cases.MODELS if known.name == model)
    logits = logits_case_of(t, found.experts, found.hidden, "bf16", "fp32")
    assert fused._choice_of(logits, H200).implementation == kernel
    alone = dispatch.choose(logits, H200).implementation
    assert alone == ("dot_product" if t <= 16 else kernel)
