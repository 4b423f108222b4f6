"""The family `dense_splitk`: its cases, inputs, reference, and what the libraries compute on a CPU."""

from __future__ import annotations

import pytest
import torch

from gemmgate.kernels.dense_splitk import FAMILY, cases, cublas, decompose_k
from gemmgate.kernels.dense_splitk.cases import case_of, legal_splits, sizes, twin
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.kernels.dense_splitk.reference import reference
from gemmgate.suite.cases import Target

BY_NAME = {case.name: case for case in FAMILY.cases}
CPU = Target("cpu")
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)


# the catalog


def test_tritonbench_set_is_whole() -> None:
    """M = N in 16, 32, 48, 64 with K the multiples of 4096 to 32768, each in four formats: 128 cases."""
    expected = {
        f"m{s}-n{s}-k{k}-{word}"
        for s in (16, 32, 48, 64)
        for k in (4096, 8192, 12288, 16384, 20480, 24576, 28672, 32768)
        for word in ("bf16", "fp16", "fp32", "tf32")
    }
    assert {case.name for case in FAMILY.cases if "tritonbench" in case.tags} == expected


def test_shape_of_two_sets_is_one_case() -> None:
    """A shape named by two sources has the tags and origins of both."""
    case = BY_NAME["m32-n32-k32768-bf16"]
    assert case.tags == ("quick", "audit", "tritonbench", "edge", "full")
    assert case.origin == "tritonbench split-K set; PyTorch's decompose-K tests"


def test_drawn_shapes_are_pinned() -> None:
    """The drawn shapes are these, on every Python and platform."""
    drawn = [sizes(case) for case in FAMILY.cases if "drawn" in case.tags and case.dtype == "bf16"]
    assert drawn == [
        (56, 56, 56320),
        (56, 56, 58368),
        (24, 24, 15360),
        (56, 56, 52224),
        (24, 24, 58368),
        (24, 24, 52224),
        (40, 40, 25776),
        (40, 40, 64527),
        (40, 40, 39505),
        (56, 56, 44537),
        (56, 56, 22617),
        (24, 24, 40756),
    ]
    assert all(k % 2048 == 1024 for _, _, k in drawn[:6])
    assert all(k % 1024 for _, _, k in drawn[6:])


def test_quick_cases_exist() -> None:
    """Every name of the quick set is a case, and there are eighteen."""
    assert sum("quick" in case.tags for case in FAMILY.cases) == len(cases._QUICK) == 18


def test_precision_follows_the_name() -> None:
    """The last word of a name says dtype and precision."""
    formats = {case.name.rsplit("-", 1)[1]: (case.dtype, case.precision) for case in FAMILY.cases}
    assert formats == {
        "bf16": ("bf16", "acc32"),
        "fp16": ("fp16", "acc32"),
        "fp32": ("fp32", "ieee"),
        "tf32": ("fp32", "tf32"),
    }


def test_flop_and_bytes() -> None:
    """2 M N K flop; A, B and C once each: by hand for (16, 32, 4096)."""
    case = case_of(16, 32, 4096, "bf16", "acc32")
    assert FAMILY.flop(case) == 4194304
    assert FAMILY.bytes_moved(case) == (65536 + 131072 + 512) * 2


@pytest.mark.parametrize(
    ("m", "n", "k", "splits"),
    [
        (48, 48, 24576, (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)),
        (64, 64, 177147, (3, 9, 27, 81, 243)),
        (32, 32, 65537, ()),
        (32, 32, 131074, (2,)),
        (32, 32, 32767, (7, 31, 151, 217)),
        (512, 512, 512, (2, 4)),
        (4096, 4096, 4096, (2, 4)),
        (1, 1, 255, ()),
        (1, 1, 256, (2,)),
        (4, 4, 0, ()),
    ],
)
def test_legal_splits(m: int, n: int, k: int, splits: tuple[int, ...]) -> None:
    """Divisors of K from 2 to 256 that leave 128 and keep partials within four times the input: by hand, bf16."""
    assert legal_splits(case_of(m, n, k, "bf16", "acc32")) == splits


def test_split_is_offered_where_it_is_legal() -> None:
    """`decompose_k_3` applies to K = 24576 and not to K = 32768."""
    entry = next(entry for entry in FAMILY.implementations if entry.name == "decompose_k_3")
    assert entry.applies(BY_NAME["m48-n48-k24576-bf16"])
    assert not entry.applies(BY_NAME["m32-n32-k32768-bf16"])


def test_twins_are_small_and_alike() -> None:
    """A twin has at most 64 x 64 outputs and 2600 K, and keeps format, alignment of K, and whether K divides."""
    for case in FAMILY.cases:
        small = twin(case)
        m, n, k = sizes(small)
        assert m <= 64 and n <= 64 and k < 2600
        assert (small.dtype, small.precision) == (case.dtype, case.precision)
        assert k % 256 == case.dims["k"] % 256
        assert bool(legal_splits(small)) == bool(legal_splits(case))


# inputs and reference


@pytest.mark.parametrize("data", ["normal", "uniform", "activations"])
def test_outputs_are_about_one(data: str) -> None:
    """The rms of the product is near 1, whatever K is."""
    for k in (1024, 16384):
        inputs = make_inputs(case_of(64, 64, k, "fp32", "ieee"), 0, "cpu", data)
        rms = (inputs["a"].double() @ inputs["b"].double()).square().mean().sqrt()
        assert 0.7 < rms < 1.4


@pytest.mark.parametrize("data", ["normal", "uniform", "integers", "zeros", "activations"])
def test_inputs_follow_the_seed(data: str) -> None:
    """One seed gives one set of row-major inputs; another seed gives another."""
    case = case_of(3, 5, 130, "bf16", "acc32")
    first, again, other = (make_inputs(case, seed, "cpu", data) for seed in (1, 1, 2))
    assert {name: (tuple(x.shape), x.stride(), x.dtype) for name, x in first.items()} == {
        "a": ((3, 130), (130, 1), torch.bfloat16),
        "b": ((130, 5), (5, 1), torch.bfloat16),
    }
    assert torch.equal(first["a"], again["a"]) and torch.equal(first["b"], again["b"])
    assert data == "zeros" or not torch.equal(first["a"], other["a"])


def test_activations_have_outlier_columns() -> None:
    """A few columns of A are an order of magnitude above the rest in every row; B has none."""
    inputs = make_inputs(case_of(64, 64, 4096, "fp32", "ieee"), 0, "cpu", "activations")
    columns = inputs["a"].square().mean(0).sqrt()
    large = columns > 5 * columns.median()
    assert 10 < large.sum() < 80
    rows = inputs["b"].square().mean(1).sqrt()
    assert not (rows > 5 * rows.median()).any()


def test_unknown_data_is_refused() -> None:
    """A kind of data that does not exist is answered with those that do."""
    with pytest.raises(ValueError, match="'ones' is not one of normal, uniform, integers, zeros, activations"):
        make_inputs(case_of(3, 5, 7, "bf16", "acc32"), 0, "cpu", "ones")


def test_reference_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summing over pieces of K gives the product: integers, so to the last bit."""
    monkeypatch.setattr("gemmgate.kernels.dense_splitk.reference._CHUNK_BYTES", 8 * 7 * 11)
    case = case_of(3, 4, 130, "fp32", "ieee")
    inputs = make_inputs(case, 0, "cpu", "integers")
    assert torch.equal(reference(case, inputs), inputs["a"].double() @ inputs["b"].double())


# implementations


@pytest.mark.parametrize(
    ("name", "code"),
    [("m32-n32-k32768-fp16", "cpu_fp16"), ("m32-n32-k32768-tf32", "cpu_tf32"), ("m32-n32-k32768-fp32", None)],
)
def test_cublas_refusals(name: str, code: str | None) -> None:
    """On a CPU, fp16 and TF32 are refused by code, fp32 is not; a GPU takes all."""
    refusal = cublas.IMPLEMENTATION.supports(BY_NAME[name], CPU)
    assert (refusal and refusal[0]) == code
    assert cublas.IMPLEMENTATION.supports(BY_NAME[name], H200) is None


def test_cublas_on_a_cpu_says_so() -> None:
    """The algorithm names the CPU, so that no one reads it as cuBLAS."""
    case = case_of(4, 4, 256, "fp32", "ieee")
    prepared = cublas.IMPLEMENTATION.prepare(case, make_inputs(case, 0, "cpu"), CPU, None)
    assert prepared.algorithm.startswith("torch.mm on CPU (")


def test_decompose_k_names_what_is_legal() -> None:
    """A prime K is refused with the numbers; a split that is not legal with those that are."""
    refusal = decompose_k.IMPLEMENTATIONS["decompose_k_best"].supports(BY_NAME["m32-n32-k65537-fp32"], CPU)
    assert refusal is not None and refusal[0] == "no_legal_split" and "65537" in refusal[1]
    refusal = decompose_k.IMPLEMENTATIONS["decompose_k_4"].supports(BY_NAME["m32-n32-k131074-fp32"], CPU)
    assert refusal is not None and refusal[0] == "no_legal_split" and "Legal: 2." in refusal[1]


def test_decompose_k_without_fp32_partials(monkeypatch: pytest.MonkeyPatch) -> None:
    """16-bit operands are refused where a product of them cannot be had in fp32."""
    monkeypatch.setattr(decompose_k, "_bmm_returns_fp32", lambda device: False)
    best = decompose_k.IMPLEMENTATIONS["decompose_k_best"]
    refusal = best.supports(BY_NAME["m32-n32-k32768-bf16"], CPU)
    assert refusal is not None and refusal[0] == "no_fp32_partials"
    assert best.supports(BY_NAME["m32-n32-k32768-fp32"], CPU) is None


def test_decompose_k_best_offers_every_legal_split() -> None:
    """Its space is the legal splits, each tile gives that split's result, and any other is an error."""
    case = case_of(5, 7, 768, "fp32", "ieee")
    best = decompose_k.IMPLEMENTATIONS["decompose_k_best"]
    assert best.screened and best.tiles is not None
    assert list(best.tiles(case, CPU)) == [{"splits": 2}, {"splits": 3}, {"splits": 4}, {"splits": 6}]
    inputs = make_inputs(case, 0, "cpu")
    for tile in best.tiles(case, CPU):
        prepared = best.prepare(case, inputs, CPU, tile)
        assert prepared.tile == tile
        exact = reference(case, inputs)
        assert (prepared.bind(inputs)().double() - exact).norm() < 1e-6 * exact.norm()
        assert [tuple(workspace.shape) for workspace in prepared.workspaces] == [(tile["splits"], 5, 7)]
    with pytest.raises(ValueError, match="cannot be cut into 5 parts"):
        best.prepare(case, inputs, CPU, {"splits": 5})
    with pytest.raises(ValueError, match="cannot be cut into 3 parts"):
        decompose_k.IMPLEMENTATIONS["decompose_k_2"].prepare(case, inputs, CPU, {"splits": 3})
