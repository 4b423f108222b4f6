"""The family `router`: its cases, inputs, reference, bound, decision metric, and what torch computes on a CPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gemmgate.kernels.router import FAMILY, cases, custom_op_autotune, decompose_k, dispatch, inductor, library
from gemmgate.kernels.router.bound import library_bound
from gemmgate.kernels.router.cases import case_of, legal_splits, make_case, sizes, twin
from gemmgate.kernels.router.decision import choice_of, decision
from gemmgate.kernels.router.inputs import make_inputs
from gemmgate.kernels.router.reference import reference
from gemmgate.suite.cases import Case, Target
from gemmgate.suite.catalog import Selection, case_named, find, offered
from gemmgate.suite.report import show
from tests.runs import row, run

BY_NAME = {case.name: case for case in FAMILY.cases}
CPU = Target("cpu")
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)


# the catalog


def test_every_model_at_every_number_of_tokens() -> None:
    """Twenty-one models at twenty-two T, with a tag for each model."""
    models = {case.name.rsplit("-t", 1)[0] for case in FAMILY.cases if "drawn" not in case.tags}
    assert len(models) == 21
    for model in models:
        tagged = [case for case in FAMILY.cases if model in case.tags]
        assert [case.dims["t"] for case in tagged] == [
            1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 64, 127, 128, 129, 256, 512, 513, 1024, 2048, 4096,
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "n", "k", "dtype", "out", "bias"),
    [
        ("deepseek-v3-t8-bf16", 256, 7168, "bf16", "fp32", False),
        ("kimi-k3-t1-bf16", 896, 7168, "bf16", "fp32", False),
        ("mistral-large-3-t1-bf16", 128, 7168, "bf16", "bf16", False),
        ("gpt-oss-20b-t16-bf16", 32, 2880, "bf16", "bf16", True),
        ("mixtral-8x22b-t2-bf16", 8, 6144, "bf16", "bf16", False),
        ("longcat-flash-t4096-fp32", 768, 6144, "fp32", "fp32", False),
    ],
)
def test_dtype_rules(name: str, n: int, k: int, dtype: str, out: str, bias: bool) -> None:
    """Sizes, operands' and logits' dtypes and the bias are those of the model."""
    case = BY_NAME[name]
    assert (case.dims["n"], case.dims["k"], case.dtype) == (n, k, dtype)
    assert (FAMILY.output_dtype(case), cases.has_bias(case)) == (out, bias)
    assert case.precision == ("ieee" if dtype == "fp32" else "acc32")


def test_drawn_shapes_are_pinned() -> None:
    """The drawn routers are these, on every Python and platform, at five T each, and no model's."""
    drawn = [(model.hidden, model.experts, model.dtype, model.out) for model in cases.DRAWN]
    assert drawn == [
        (5120, 120, "bf16", "fp32"),
        (2560, 44, "bf16", "bf16"),
        (1280, 34, "fp32", "fp32"),
        (1728, 53, "bf16", "fp32"),
        (2160, 576, "bf16", "bf16"),
        (6144, 32, "fp32", "fp32"),
        (6400, 32, "bf16", "fp32"),
        (4992, 8, "bf16", "bf16"),
        (3648, 496, "fp32", "fp32"),
        (5960, 296, "bf16", "fp32"),
        (6144, 60, "bf16", "bf16"),
        (3072, 94, "fp32", "fp32"),
    ]
    assert sum("drawn" in case.tags for case in FAMILY.cases) == 60
    assert not {(h, e) for h, e, _, _ in drawn} & {(model.hidden, model.experts) for model in cases.MODELS}


def test_subsets() -> None:
    """Twenty-one quick cases, fifteen for compilers (three models at five T), some to tune on, none of them drawn."""
    tuned = [case for case in FAMILY.cases if {"tune-dot", "tune-split"} & set(case.tags)]
    assert not any("drawn" in case.tags for case in tuned)
    assert {tag: sum(tag in case.tags for case in tuned) for tag in ("tune-dot", "tune-split")} == {
        "tune-dot": 17 * 2 + 4 * 4, "tune-split": 17,
    }  # fmt: skip
    by_model = {
        name: [case.dims["t"] for case in tuned if name in case.tags]
        for name in ("deepseek-v3", "mixtral-8x7b", "minimax-m2")
    }
    assert by_model == {"deepseek-v3": [2, 4, 16], "mixtral-8x7b": [4, 8, 32], "minimax-m2": [8, 32, 64, 128]}
    assert {case.name for case in FAMILY.cases if "models" not in case.tags} == {
        case.name for case in FAMILY.cases if "drawn" in case.tags
    }
    assert sum("quick" in case.tags for case in FAMILY.cases) == 21
    compiled = {case.name for case in FAMILY.cases if "inductor" in case.tags}
    assert compiled == {
        f"{model}-t{t}-bf16"
        for model in ("deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b")
        for t in (1, 8, 16, 128, 1024)
    }


@pytest.mark.parametrize(
    ("name", "yardstick"),
    [
        ("deepseek-v3-t8-bf16", "linear_float"),
        ("qwen3-next-t8-bf16", "linear"),
        ("gpt-oss-120b-t8-bf16", "linear"),
        ("minimax-m2-t8-fp32", "linear"),
    ],
)
def test_yardstick_is_what_the_model_runs(name: str, yardstick: str) -> None:
    """The first yardstick that a case has is the model's own call; the unrounded product stands beside the rounded."""
    names = offered(FAMILY, BY_NAME[name])
    assert next(entry for entry in FAMILY.yardsticks if entry in names) == yardstick
    assert ("mm_out_dtype" in names) == (yardstick == "linear_float")


def test_cheap_run_compiles_nothing() -> None:
    """Unasked, a run of all cases takes neither Inductor nor each split of K."""
    chosen = {name for choice in find().select(Selection(families=("router",))) for name in choice.implementations}
    assert chosen == {
        "linear", "linear_float", "mm_out_dtype", "upcast_fp32",
        "dispatch", "dot_product", "split_k", "hand_ranges", "single_choice",
    }  # fmt: skip


def test_flop_and_bytes() -> None:
    """2 T N K flop; x, w and bias read once, logits written once in their dtype: by hand."""
    plain, biased = case_of(8, 256, 7168, "bf16", "fp32"), case_of(8, 32, 2880, "bf16", bias=True)
    assert FAMILY.flop(plain) == 29360128
    assert FAMILY.bytes_moved(plain) == (8 * 7168 + 256 * 7168) * 2 + 8 * 256 * 4
    assert FAMILY.bytes_moved(biased) == (8 * 2880 + 32 * 2880 + 32) * 2 + 8 * 32 * 2


def test_legal_splits_by_hand() -> None:
    """Divisors of 7168 = 2^10 x 7 up to 56 that leave 128; 2880 = 2^6 x 45; a prime has none."""
    assert legal_splits(case_of(8, 256, 7168, "bf16", "fp32")) == (2, 4, 7, 8, 14, 16, 28, 32, 56)
    assert legal_splits(case_of(8, 32, 2880, "bf16")) == (2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20)
    assert legal_splits(case_of(8, 32, 2887, "bf16")) == ()


def test_cases_that_nobody_listed() -> None:
    """A name with sizes makes a case, m counts as t, and what is no router is refused with its numbers."""
    made = make_case({"m": 8, "n": 64, "k": 1000}, "bf16", "acc32", ("router",), "mine")
    assert (made.name, sizes(made), made.tags) == ("t8-n64-k1000-bf16", (8, 64, 1000), ("router",))
    assert case_named(FAMILY, "t8-n64-k1000-bf16") == make_case(
        {"t": 8, "n": 64, "k": 1000}, "bf16", "acc32", (), "asked for by its name"
    )
    for dims, dtype, precision in (
        ({"m": 8, "n": 64}, "bf16", "acc32"),
        ({"m": 8, "t": 8, "n": 64, "k": 9}, "bf16", "acc32"),
        ({"m": 8, "n": 64, "k": 9}, "int8", "acc32"),
        ({"m": 8, "n": 64, "k": 9}, "fp32", "tf32"),
    ):
        with pytest.raises(ValueError, match="router"):
            make_case(dims, dtype, precision)


def test_twins_are_small_and_alike() -> None:
    """A twin has at most 17 tokens, 40 experts and 640 of K, in the case's format and alignment."""
    for case in FAMILY.cases:
        small = twin(case)
        t, n, k = sizes(small)
        assert t <= 17 and n <= 40 and k < 640
        assert (small.dtype, small.precision, small.epilogue) == (case.dtype, case.precision, case.epilogue)
        assert k % 64 == case.dims["k"] % 64


def test_catalog_needs_no_torch() -> None:
    """The family is read without torch; asking it for its function imports it."""
    code = (
        "import sys; from gemmgate.kernels import router; assert 'torch' not in sys.modules; "
        "router.logits; assert 'torch' in sys.modules; print(router.logits.__module__)"
    )
    root = Path(__file__).parent.parent
    finished = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert finished.stdout.strip() == "gemmgate.kernels.router.dispatch", finished.stderr


# inputs, reference, bound


@pytest.mark.parametrize("data", ["normal", "uniform", "activations"])
def test_logits_are_about_one(data: str) -> None:
    """The rms of the logits is near 1, whatever K is."""
    for k in (1024, 7168):
        case = case_of(64, 64, k, "fp32")
        assert 0.7 < reference(case, make_inputs(case, 0, "cpu", data)).square().mean().sqrt() < 1.4


def test_inputs_follow_the_seed() -> None:
    """One seed gives one set of row-major inputs with K contiguous in both; another seed gives another."""
    case = case_of(3, 5, 130, "bf16", bias=True)
    first, again, other = (make_inputs(case, seed, "cpu") for seed in (1, 1, 2))
    assert {name: (tuple(x.shape), x.stride(), x.dtype) for name, x in first.items()} == {
        "x": ((3, 130), (130, 1), torch.bfloat16),
        "w": ((5, 130), (130, 1), torch.bfloat16),
        "bias": ((5,), (1,), torch.bfloat16),
    }
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def _error(case: Case, found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def _allowed(case: Case, exact: torch.Tensor) -> float:
    """As the harness does: the rounding of the output dtype, and twice the bound."""
    rounded = exact.to({"bf16": torch.bfloat16, "fp32": torch.float32}[FAMILY.output_dtype(case)])
    return _error(case, rounded, exact) + 2 * FAMILY.error_bound(case)


@pytest.mark.parametrize("name", ["deepseek-v3-t64-bf16", "qwen3-30b-a3b-t64-bf16", "mixtral-8x7b-t1-bf16"])
def test_bound_admits_one_rounding_and_not_two(name: str) -> None:
    """Logits rounded to bf16 once pass; sums of eight parts each kept in bf16 do not, where there are many."""
    case = BY_NAME[name]
    inputs = make_inputs(case, 3, "cpu")
    exact = reference(case, inputs)
    once = exact.bfloat16().to(library.PRODUCTS["linear"](inputs["x"], inputs["w"]).dtype)
    assert _error(case, once, exact) <= _allowed(case, exact)
    parts = [x.double() @ w.double().t() for x, w in zip(inputs["x"].chunk(8, 1), inputs["w"].chunk(8, 1), strict=True)]
    twice = sum((part.bfloat16() for part in parts), torch.zeros_like(exact, dtype=torch.bfloat16))
    assert case.dims["t"] == 1 or _error(case, twice, exact) > _allowed(case, exact)


@pytest.mark.parametrize("name", ["drawn1-t1-bf16", "drawn1-t8-bf16", "deepseek-v3-t4-bf16", "mixtral-8x7b-t1-bf16"])
@pytest.mark.parametrize("splits", [2, 8, 24])
def test_library_may_round_parts(name: str, splits: int) -> None:
    """Parts of K rounded to bf16, added in fp32 and rounded again pass as the library's own product, however many they
    are; without a part of 64 of K they do not.
    """
    case = BY_NAME[name]
    inputs = make_inputs(case, 3, "cpu")
    exact = reference(case, inputs)
    x, w = inputs["x"].double(), inputs["w"].double()
    parts = [a @ b.t() for a, b in zip(x.tensor_split(splits, 1), w.tensor_split(splits, 1), strict=True)]
    rounded = torch.stack([part.bfloat16().float() for part in parts]).sum(0) + inputs.get("bias", torch.zeros(()))
    final = rounded.bfloat16() if FAMILY.output_dtype(case) == "bf16" else rounded.bfloat16().float()
    library_own = library.IMPLEMENTATIONS[FAMILY.yardsticks[0] if final.dtype == torch.float32 else "linear"]
    assert library_own.error_bound is not None
    allowed = _allowed(case, exact) + 2 * (library_own.error_bound(case) - FAMILY.error_bound(case))
    assert _error(case, final, exact) <= allowed
    short = final.double() - x[:, :64] @ w[:, :64].t()
    assert _error(case, short, exact) > allowed


def test_candidates_keep_the_tight_bound() -> None:
    """Of all implementations only the library's products in the operands' dtype have a bound of their own, nothing in
    fp32 has another one, and ours cannot have any.
    """
    found = {name: library.IMPLEMENTATIONS[name] for name in ("linear", "linear_float", "mm_out_dtype", "upcast_fp32")}
    assert {name for name, one in found.items() if one.error_bound} == {"linear", "linear_float"}
    assert all(one.error_bound is None for one in dispatch.IMPLEMENTATIONS.values())
    single = BY_NAME["longcat-flash-t64-fp32"]
    assert library_bound(single) == FAMILY.error_bound(single)
    with pytest.raises(ValueError, match="'dispatch' is our own"):
        replace(dispatch.IMPLEMENTATIONS["dispatch"], error_bound=library_bound)


def test_bound_sees_a_dropped_tile() -> None:
    """Leaving out sixteen of 7168 products is above the bound, in every format."""
    for name in ("deepseek-v3-t64-bf16", "mistral-large-3-t64-bf16", "longcat-flash-t64-fp32"):
        case = BY_NAME[name]
        inputs = make_inputs(case, 3, "cpu")
        exact = reference(case, inputs)
        short = inputs["x"][:, 16:].double() @ inputs["w"][:, 16:].double().t()
        assert _error(case, short, exact) > _allowed(case, exact)


# the decision


def _decided(exact: list[list[float]], found: list[list[float]], name: str = "mixtral-8x7b") -> dict[str, float]:
    case = case_of(len(exact), len(exact[0]), 16, "bf16", name=f"{name}-t{len(exact)}-bf16")
    return dict(decision(case, {}, torch.tensor(found), torch.tensor(exact, dtype=torch.float64)))


def test_report_shows_the_decision() -> None:
    """A run's report has a line for each row with a decision, with the family's own numbers; other runs have none."""
    shares = {"agree": 0.998, "tied": 0.002, "differ": 0.0, "moved": 0.000123}
    shown = show(run([row("linear", decision=shares), row("cublas")]), "markdown")
    assert "| case | implementation | error | agree | tied | differ | moved |" in shown
    assert "| m32-n32-k32768-bf16 | linear | 3.0e-03 | 0.9980 | 0.0020 | 0.0000 | 0.0001 |" in shown
    assert "Decision" not in show(run([row("linear"), row("cublas")]), "markdown")


def test_same_experts_agree() -> None:
    """Errors that change no set of two experts move weight between them only: by hand, softmax of (1, 0) and (2, 0)."""
    found = _decided([[3.0, 2.0, 0.0]], [[4.0, 2.0, 0.0]])
    assert found["agree"] == 1.0 and found["differ"] == found["tied"] == 0.0
    assert found["moved"] == pytest.approx(0.8807970779 - 0.7310585786)


def test_another_expert_differs() -> None:
    """One of two tokens gets another second expert: half differ, and the weight of that expert has moved."""
    exact, found = [[3.0, 2.0, 1.9], [3.0, 2.0, 0.0]], [[3.0, 1.9, 2.0], [3.0, 2.0, 0.0]]
    result = _decided(exact, found)
    assert (result["agree"], result["differ"], result["tied"]) == (0.5, 0.5, 0.0)
    assert result["moved"] == pytest.approx((1 - 0.7310585786) / 2)


def test_ties_are_apart() -> None:
    """Logits that are equal where the reference is not leave the choice to top-k: tied, if it fell otherwise."""
    exact = [[3.0, 2.0, 2.0 + 1e-6], [3.0, 2.0 + 1e-6, 2.0]]
    result = _decided(exact, [[3.0, 2.0, 2.0], [3.0, 2.0, 2.0]])
    assert result["agree"] + result["tied"] == 1.0
    assert result["tied"] == 0.5
    assert result["differ"] == 0.0


def test_models_choose_in_their_own_way() -> None:
    """The number of experts a token and the score are the model's; a product without a name has 8 by softmax."""
    assert choice_of(BY_NAME["deepseek-v3-t8-bf16"]) == (8, "sigmoid")
    assert choice_of(BY_NAME["llama4-scout-t8-bf16"]) == (1, "sigmoid")
    assert choice_of(case_of(8, 64, 1000, "bf16")) == (8, "softmax")
    assert _decided([[3.0, 2.0]], [[3.0, 2.0]], "unknown")["agree"] == 1.0


def test_fp32_logits_agree_more_often() -> None:
    """Rounding the logits to bf16 changes the experts of some tokens, fp32 logits those of almost none."""
    case = case_of(512, 256, 512, "bf16", "fp32", name="deepseek-v3-t512-bf16")
    inputs = make_inputs(case, 0, "cpu")
    exact = reference(case, inputs)
    full = decision(case, inputs, library.upcast_fp32(inputs["x"], inputs["w"]), exact)
    rounded = decision(case, inputs, library.linear_float(inputs["x"], inputs["w"]), exact)
    assert full["agree"] > 0.995
    assert rounded["agree"] + rounded["tied"] + rounded["differ"] == pytest.approx(1.0)
    assert rounded["agree"] < 0.98 and rounded["moved"] > 10 * full["moved"]


# implementations


@pytest.mark.parametrize(("dtype", "out"), [("bf16", "bf16"), ("bf16", "fp32"), ("fp32", "fp32")])
@pytest.mark.parametrize("bias", [False, True])
def test_library_calls(dtype: str, out: str, bias: bool) -> None:
    """Every call of torch that a CPU has gives the logits within the bound."""
    case = case_of(9, 24, 300, dtype, out, bias=bias)
    inputs = make_inputs(case, 1, "cpu")
    exact = reference(case, inputs)
    for name in ("linear",) if dtype == out else ("linear_float", "upcast_fp32"):
        implementation = library.IMPLEMENTATIONS[name]
        assert implementation.supports(case, CPU) is None
        found = implementation.prepare(case, inputs, CPU, None).bind(inputs)()
        assert _error(case, found, exact) <= _allowed(case, exact), name


def test_refusals() -> None:
    """On a CPU, what needs a GPU says so; a split that does not divide K is refused with those that do."""
    case = BY_NAME["deepseek-v3-t8-bf16"]
    refused = {
        "mm_out_dtype": library.IMPLEMENTATIONS["mm_out_dtype"],
        "inductor_max_autotune": inductor.IMPLEMENTATIONS["inductor_max_autotune"],
        "custom_op_autotune": custom_op_autotune.IMPLEMENTATION,
    }
    for implementation in refused.values():
        refusal = implementation.supports(case, CPU)
        assert refusal is not None and refusal[0] == "gpu_only"
        assert implementation.supports(case, H200) is None
    refusal = decompose_k.IMPLEMENTATIONS["decompose_k_3"].supports(case, H200)
    assert refusal is not None and refusal[0] == "no_legal_split" and "Legal: 2, 4, 7, 8" in refusal[1]
    with pytest.raises(ValueError, match="cannot be cut into 3 parts"):
        decompose_k.IMPLEMENTATIONS["decompose_k_2"].prepare(case, {}, CPU, {"splits": 3})


@pytest.mark.parametrize("splits", [2, 3, 5])
def test_decompose_k_in_fp32(splits: int) -> None:
    """K in 2, 3 or 5 parts gives the logits, with a bias too."""
    case = case_of(7, 11, 1920, "fp32", bias=True)
    inputs = make_inputs(case, 1, "cpu")
    prepared = decompose_k.IMPLEMENTATIONS["decompose_k_best"].prepare(case, inputs, CPU, {"splits": splits})
    exact = reference(case, inputs)
    assert _error(case, prepared.bind(inputs)(), exact) <= _allowed(case, exact)


@pytest.mark.slow
def test_one_compilation_serves_all_ranges() -> None:
    """The operator with tuned ranges is compiled once, on 8 tokens, and right on either side of each split point."""
    case = case_of(8, 16, 512, "fp32")
    prepared = custom_op_autotune.prepare(case, make_inputs(case, 0, "cpu"), CPU)
    torch._dynamo.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for t in (1, 2, 128, 129, 512, 513):
        one = case_of(t, 16, 512, "fp32")
        inputs = make_inputs(one, t, "cpu")
        torch.testing.assert_close(prepared.bind(inputs)(), reference(one, inputs).float(), rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before
    assert prepared.algorithm == "ranges up to 1, 128, 512 and above, each tuned at its end"
