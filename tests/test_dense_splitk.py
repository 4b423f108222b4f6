"""The family `dense_splitk`: its cases, its error bound, and its implementations on a CPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from gemmgate.kernels.dense_splitk import FAMILY, cases, cublas, decompose_k, triton_split_k
from gemmgate.kernels.dense_splitk.cases import case_of, legal_splits, sizes, twin
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.kernels.dense_splitk.reference import reference
from gemmgate.suite.cases import Case, Target

ROOT = Path(__file__).parent.parent
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
    assert case.tags == ("quick", "tritonbench", "edge", "full")
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


# the bound: what it must admit and what it must not

WORDS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
LONG_K = (8192, 65536, 200000)


def operands(k: int, dtype: str, size: int = 16) -> tuple[Tensor, Tensor]:
    """Normal operands of a size x size product, already in `dtype`, held in float64."""
    generator = torch.Generator().manual_seed(k)
    a = torch.randn(size, k, generator=generator).to(WORDS[dtype]).double()
    return a, torch.randn(k, size, generator=generator).to(WORDS[dtype]).double()


def error(out: Tensor, exact: Tensor) -> float:
    return float((out.double() - exact).norm() / exact.norm())


def allowed(exact: Tensor, k: int, dtype: str, precision: str) -> float:
    """What the harness allows: the rounding of the output, measured, and twice the bound."""
    return error(exact.to(WORDS[dtype]), exact) + 2 * FAMILY.error_bound(case_of(16, 16, k, dtype, precision))


def nearest_tf32(x: Tensor) -> Tensor:
    """fp32 values to 10 bits after the point: by arithmetic, not by bits."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


def truncated_tf32(x: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**11).trunc() / 2**11, exponent)


def parts(a: Tensor, b: Tensor, splits: int) -> Tensor:
    """Partial products [splits, M, N] over nearly equal ranges of K, exact."""
    pairs = zip(a.tensor_split(splits, dim=1), b.tensor_split(splits, dim=0), strict=True)
    return torch.stack([part_a @ part_b for part_a, part_b in pairs])


@pytest.mark.parametrize("k", LONG_K)
@pytest.mark.parametrize(("dtype", "precision"), cases.FORMATS)
@pytest.mark.parametrize("splits", [2, 16, 128])
def test_bound_catches_partials_in_16_bits(splits: int, dtype: str, precision: str, k: int) -> None:
    """Partial sums rounded to bf16 (to fp16 for fp16) exceed what is allowed, whatever the number of parts."""
    a, b = operands(k, dtype, size=32 if dtype == "fp16" else 16)
    kept = torch.float16 if dtype == "fp16" else torch.bfloat16
    out = parts(a, b, splits).to(kept).double().sum(0).to(WORDS[dtype])
    assert error(out, a @ b) > allowed(a @ b, k, dtype, precision)


@pytest.mark.parametrize("k", LONG_K)
def test_bound_catches_tf32_where_ieee_was_asked(k: int) -> None:
    """Operands rounded to TF32 exceed what is allowed for IEEE fp32."""
    a, b = operands(k, "fp32")
    out = (nearest_tf32(a) @ nearest_tf32(b)).float()
    assert error(out, a @ b) > allowed(a @ b, k, "fp32", "ieee")


@pytest.mark.parametrize("k", LONG_K)
@pytest.mark.parametrize(("dtype", "precision"), cases.FORMATS)
def test_bound_catches_a_dropped_tile(dtype: str, precision: str, k: int) -> None:
    """A product without its last 16 K exceeds what is allowed."""
    a, b = operands(k, dtype)
    out = (a[:, :-16] @ b[:-16]).to(WORDS[dtype])
    assert error(out, a @ b) > allowed(a @ b, k, dtype, precision)


def running_fp32_sum(a: Tensor, b: Tensor) -> Tensor:
    """Every product rounded to fp32 and added to a running fp32 sum, one after the other."""
    total: NDArray[np.float32] = np.zeros((1, a.shape[0], b.shape[1]), np.float32)
    for rows, columns in zip(a.split(4096, dim=1), b.split(4096, dim=0), strict=True):
        products = (rows.t()[:, :, None] * columns[:, None, :]).float().numpy()  # [4096, M, N]
        total = np.add.accumulate(np.concatenate([total, products]), axis=0, dtype=np.float32)[-1:]
    return torch.from_numpy(total[0])


@pytest.mark.parametrize("k", LONG_K)
def test_bound_admits_a_running_fp32_sum(k: int) -> None:
    """The least accurate honest order of an IEEE fp32 sum stays below a third of what is allowed."""
    a, b = operands(k, "fp32")
    assert error(running_fp32_sum(a, b), a @ b) < allowed(a @ b, k, "fp32", "ieee") / 3


def truncating_sum(a: Tensor, b: Tensor) -> Tensor:
    """A tensor core's running sum: 16 exact products at a time, the sum cut to 24 bits after each."""
    k, m, n = a.shape[1] // 16 * 16, a.shape[0], b.shape[1]
    steps = torch.bmm(a[:, :k].reshape(m, -1, 16).transpose(0, 1), b[:k].reshape(-1, 16, n)).numpy()
    total: NDArray[np.float64] = np.zeros((m, n))
    for step in steps:
        total += step
        total.view(np.uint64)[...] &= np.uint64(~((1 << 29) - 1) & 0xFFFFFFFFFFFFFFFF)
    return torch.from_numpy(total)


@pytest.mark.parametrize(("k", "splits"), [(8192, 1), (65536, 1), (200000, 4)])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_bound_admits_a_truncating_accumulator(dtype: str, k: int, splits: int) -> None:
    """16-bit products summed as tensor cores do are allowed: unsplit to K = 65536, in four parts at 200000."""
    a, b = operands(k, dtype)
    pairs = zip(a.tensor_split(splits, dim=1), b.tensor_split(splits, dim=0), strict=True)
    total = torch.stack([truncating_sum(part_a, part_b) for part_a, part_b in pairs]).sum(0)
    assert error(total.to(WORDS[dtype]), a @ b) <= allowed(a @ b, k, dtype, "acc32")


@pytest.mark.parametrize("k", LONG_K)
@pytest.mark.parametrize("rounded", [nearest_tf32, truncated_tf32])
def test_bound_admits_tf32(rounded: object, k: int) -> None:
    """Operands rounded to TF32 or truncated to it are allowed where TF32 was asked, summed in any order."""
    assert callable(rounded)
    a, b = operands(k, "fp32")
    assert error(running_fp32_sum(rounded(a), rounded(b)), a @ b) <= allowed(a @ b, k, "fp32", "tf32")


def test_rounding_in_the_bound_is_that_of_the_dtypes() -> None:
    """The rms rounding error that the bound is measured against is that of normal values."""
    from gemmgate.kernels.dense_splitk.bound import _ROUNDING

    exact = torch.randn(1 << 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for dtype, rounding in _ROUNDING.items():
        assert math.isclose(error(exact.to(WORDS[dtype]), exact), rounding, rel_tol=0.02)


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
        assert error(prepared.bind(inputs)(), inputs["a"].double() @ inputs["b"].double()) < 1e-6
        assert [tuple(workspace.shape) for workspace in prepared.workspaces] == [(tile["splits"], 5, 7)]
    with pytest.raises(ValueError, match="cannot be cut into 5 parts"):
        best.prepare(case, inputs, CPU, {"splits": 5})
    with pytest.raises(ValueError, match="cannot be cut into 3 parts"):
        decompose_k.IMPLEMENTATIONS["decompose_k_2"].prepare(case, inputs, CPU, {"splits": 3})


# the Triton kernel without a GPU


@pytest.mark.parametrize("case", FAMILY.cases[:: len(FAMILY.cases) // 40], ids=lambda case: case.name)
@pytest.mark.parametrize(
    "target",
    [CPU, Target("sm_80", sm_count=108, shared_bytes=166912), H200, Target("sm_120", sm_count=84, shared_bytes=101376)],
    ids=lambda target: target.arch,
)
def test_chosen_tile_fits(target: Target, case: Case) -> None:
    """A chosen tile leaves no range without work, at most one wave of programs where K is split, and fits."""
    m, n, k = sizes(case)
    tile = triton_split_k.choose_tile(case, target)
    k_tiles = math.ceil(k / tile.block_k)
    assert (tile.splits - 1) * math.ceil(k_tiles / tile.splits) < k_tiles
    programs = math.ceil(m / tile.block_m) * math.ceil(n / tile.block_n) * tile.splits
    assert tile.splits == 1 or programs <= (target.sm_count or 8)
    item_bytes = 4 if case.dtype == "fp32" else 2
    staged = tile.num_stages * (tile.block_m + tile.block_n) * tile.block_k * item_bytes
    assert staged <= (target.shared_bytes or 49152)


@pytest.mark.parametrize(("field", "value"), [("block_k", 48), ("block_m", 8), ("splits", 0), ("splits", 65536)])
def test_impossible_tile_is_refused(field: str, value: int) -> None:
    """Blocks that are no power of two or below 16, and impossible numbers of splits, are errors with the values."""
    sound = {"block_m": 16, "block_n": 16, "block_k": 64, "splits": 4, "num_warps": 4, "num_stages": 2}
    with pytest.raises(ValueError, match=str(value)):
        triton_split_k.Tile(**{**sound, "reduce_block": 32, field: value})


def test_triton_refuses_a_cpu() -> None:
    """A compiled kernel refuses a CPU by code, and the public function says what to do."""
    case = BY_NAME["m32-n32-k32768-bf16"]
    refusal = triton_split_k.IMPLEMENTATION.supports(case, CPU)
    assert refusal is not None and refusal[0] == "interpreter_only"
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        triton_split_k.split_k(torch.ones(2, 3), torch.ones(3, 2))


def test_triton_refuses_bf16_before_sm_80() -> None:
    """sm_75 multiplies fp16 but neither bf16 nor TF32."""
    turing = Target("sm_75", sm_count=40, shared_bytes=65536)
    codes = {}
    for word in ("bf16", "fp16", "fp32", "tf32"):
        refusal = triton_split_k.IMPLEMENTATION.supports(BY_NAME[f"m32-n32-k32768-{word}"], turing)
        codes[word] = refusal and refusal[0]
    assert codes == {"bf16": "needs_sm_80", "fp16": None, "fp32": None, "tf32": "needs_sm_80"}


@pytest.mark.parametrize(
    ("a", "b", "precision", "message"),
    [
        (torch.ones(2, 3), torch.ones(4, 2), None, r"\(2, 3\) and \(4, 2\)"),
        (torch.ones(2, 3, 4), torch.ones(4, 2), None, r"\(2, 3, 4\)"),
        (torch.ones(2, 3), torch.ones(3, 2).half(), None, "torch.float16"),
        (torch.ones(2, 3).double(), torch.ones(3, 2).double(), None, "torch.float64"),
        (torch.ones(2, 3), torch.ones(3, 2), "acc32", "ieee or tf32, got 'acc32'"),
        (torch.ones(2, 3).half(), torch.ones(3, 2).half(), "tf32", "acc32, got 'tf32'"),
    ],
)
def test_split_k_refuses_by_value(a: Tensor, b: Tensor, precision: str | None, message: str) -> None:
    """Operands that do not multiply are answered with their shapes, dtypes or precision."""
    with pytest.raises(ValueError, match=message):
        triton_split_k.split_k(a, b, precision=precision)


def test_exports_with_dynamic_sizes() -> None:
    """A module that calls `split_k` exports with M and K dynamic, and keeps the operator whole."""

    class Product(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return triton_split_k.split_k(a, b)

    m, k = torch.export.Dim("m", max=4096), torch.export.Dim("k", max=1 << 20)
    exported = torch.export.export(
        Product(), (torch.ones(32, 4096), torch.ones(4096, 16)), dynamic_shapes=({0: m, 1: k}, {0: k}), strict=False
    )
    targets = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert targets == ["gemmgate.dense_splitk_triton.default"]


def run_child(*arguments: str, **environment: str) -> str:
    """Output of a Python started from the root; its failure is the test's."""
    command = [sys.executable, *arguments]
    finished = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_split_k_in_the_interpreter() -> None:
    """The tests of interpreted_dense_splitk.py pass."""
    script = str(ROOT / "tests" / "interpreted_dense_splitk.py")
    printed = run_child("-m", "pytest", "-q", "-p", "no:cacheprovider", script, TRITON_INTERPRET="1")
    assert " passed" in printed


def test_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """Chosen tiles compile for sm_80, sm_90 and sm_100 in every format, and fit the shared memory they say."""
    script = str(ROOT / "tests" / "compile_dense_splitk.py")
    printed = run_child(script, PYTHONPATH=str(ROOT), TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    compiled = [json.loads(line) for line in printed.splitlines()]
    assert {(row["arch"], row["format"]) for row in compiled} == {
        (arch, word) for arch in (80, 90, 100) for word in ("bf16", "fp16", "fp32", "tf32")
    }
    assert [row for row in compiled if row["shared"] > row["shared_limit"]] == []
    assert {row["code_length"] for row in compiled} == {64}
    assert len({row["code"] for row in compiled}) == len(compiled)
