"""`split_k` in Triton's interpreter: run by test_dense_splitk_triton.py in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk.triton_split_k import Tile, split_k
from tests.gemm_layouts import FORMATS, LAYOUTS, SIZES, assert_product, matrix

TILE = Tile(block_m=16, block_n=16, block_k=32, splits=3, num_warps=4, num_stages=2, reduce_block=32)


@pytest.mark.parametrize(("dtype", "precision"), FORMATS)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_any_size(m: int, n: int, k: int, dtype: str, precision: str) -> None:
    """Every size gives the product, an empty K zeros, an empty M or N an empty tensor."""
    a, b = matrix(m, k, dtype, "cpu", 1), matrix(k, n, dtype, "cpu", 2)
    assert_product(split_k(a, b, precision=precision), a, b, precision)


@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_any_strides(layout_a: str, layout_b: str) -> None:
    """Every pair of layouts gives the product of the values that torch sees."""
    a = LAYOUTS[layout_a](matrix(18, 70, "fp32", "cpu", 1))
    b = LAYOUTS[layout_b](matrix(70, 17, "fp32", "cpu", 2))
    assert_product(split_k(a, b, tile=TILE), a, b, "ieee")


def test_size_one_with_a_wild_stride() -> None:
    """The stride of a dimension of size 1 has no meaning and is not followed."""
    a = matrix(1, 70, "fp32", "cpu", 1).as_strided((1, 70), (10**12, 1))
    b = matrix(70, 1, "fp32", "cpu", 2).as_strided((70, 1), (1, 10**12))
    assert_product(split_k(a, b, tile=TILE), a, b, "ieee")


@pytest.mark.parametrize("splits", [1, 2, 5, 7, 64])
def test_any_number_of_splits(splits: int) -> None:
    """Three K tiles may be cut into fewer, as many or more ranges: one without work adds nothing."""
    a, b = matrix(20, 90, "fp32", "cpu", 1), matrix(90, 33, "fp32", "cpu", 2)
    assert_product(split_k(a, b, tile=TILE, splits=splits), a, b, "ieee")


def test_more_splits_than_are_added_at_once() -> None:
    """Sums of several passes of the second launch are complete: seven ranges, four at a time."""
    a, b = matrix(20, 210, "fp32", "cpu", 1), matrix(210, 33, "fp32", "cpu", 2)
    assert_product(split_k(a, b, tile=replace(TILE, reduce_block=1024, splits=7)), a, b, "ieee")


@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")
@pytest.mark.parametrize(("dtype", "precision"), FORMATS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(value: float, dtype: str, precision: str) -> None:
    """NaN or infinity in one element of A reaches that row of C and no other element."""
    a, b = matrix(20, 70, dtype, "cpu", 1), matrix(70, 33, dtype, "cpu", 2)
    a[3, 69] = value
    c = split_k(a, b, tile=TILE, precision=precision)
    spoiled = ~torch.isfinite(c)
    assert spoiled[3].all()
    assert spoiled.sum() == 33
    if value == float("inf"):
        assert torch.equal(c[3], torch.sign(b[69]) * torch.inf)


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0x7F800001, -0x00000001])
def test_no_nan_is_lost_in_tf32(bits: int) -> None:
    """A NaN stays one under rounding to TF32, whichever of its bits are set."""
    a, b = matrix(16, 32, "fp32", "cpu", 1), matrix(32, 16, "fp32", "cpu", 2)
    a.view(torch.int32)[3, 5] = bits
    assert torch.isnan(split_k(a, b, tile=TILE, precision="tf32")[3]).all()


def test_tf32_rounds_to_nearest() -> None:
    """1 + 2^-11 and above becomes 1 + 2^-10, what lies below becomes 1, of either sign."""
    x = torch.tensor([1 + 2**-11, 1 + 2**-11 - 2**-23, 1 + 3 * 2**-12, -1 - 2**-11, -1 - 2**-12, 3e38])
    a = torch.diag(x)
    expected = torch.diag(torch.tensor([1 + 2**-10, 1.0, 1 + 2**-10, -1 - 2**-10, -1.0, 2.99990684e38]))
    c = split_k(a, torch.eye(6), precision="tf32")
    assert torch.equal(c[:5], expected[:5])
    assert abs(c[5, 5] / 3e38 - 1) < 2**-11


def test_bits_repeat() -> None:
    """Equal inputs give equal bits."""
    a, b = matrix(20, 333, "fp16", "cpu", 1), matrix(333, 33, "fp16", "cpu", 2)
    assert torch.equal(split_k(a, b, splits=7), split_k(a, b, splits=7))


def test_denormals_count() -> None:
    """fp16 values below 2^-14 are multiplied, not flushed."""
    a = torch.full((16, 32), 2.0**-20, dtype=torch.float16)
    b = torch.full((32, 16), 2.0**10, dtype=torch.float16)
    assert torch.equal(split_k(a, b), torch.full((16, 16), 2.0**-5, dtype=torch.float16))


def test_addresses_beyond_31_bits(tmp_path: Path) -> None:
    """Rows and columns are found where their offset passes 2^31 though index and stride do not."""
    apart = 2**30 + 32
    parent = torch.from_file(str(tmp_path / "sparse"), shared=True, size=2 * apart + 64, dtype=torch.float16)
    a = parent.as_strided((3, 64), (apart, 1))
    a.copy_(matrix(3, 64, "fp16", "cpu", 1))
    b = matrix(64, 3, "fp16", "cpu", 2)
    assert_product(split_k(a, b), a, b, "acc32")
    assert_product(split_k(b.t(), a.t()), b.t(), a.t(), "acc32")


def test_compiles_with_dynamic_sizes() -> None:
    """One compilation serves every M and K, and gives the eager result."""
    compilations = 0

    def backend(graph: torch.fx.GraphModule, example: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal compilations
        compilations += 1
        return graph

    compiled = torch.compile(lambda a, b: split_k(a, b).relu(), dynamic=True, fullgraph=True, backend=backend)
    for m, k in ((4, 48), (9, 64), (20, 80)):
        a, b = matrix(m, k, "fp32", "cpu", 1), matrix(k, 18, "fp32", "cpu", 2)
        assert torch.equal(compiled(a, b), split_k(a, b).relu())
    assert compilations == 1


def test_operator_contract() -> None:
    """torch's own checks of a custom operator hold: schema, aliasing, fake tensors, dynamic tracing."""
    a, b = matrix(5, 48, "fp32", "cpu", 1), matrix(48, 18, "fp32", "cpu", 2)
    torch.library.opcheck(torch.ops.gemmgate.dense_splitk_triton.default, (a, b, 0, [], "ieee"))
