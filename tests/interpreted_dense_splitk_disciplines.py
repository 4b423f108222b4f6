"""The disciplines of splitting K in Triton's interpreter: test_dense_splitk_disciplines.py runs it in a process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gemmgate.kernels._triton.epilogue import ACTIVATIONS
from gemmgate.kernels.dense_splitk import atomic_fp32
from gemmgate.kernels.dense_splitk.discipline import loads_of
from tests.gemm_layouts import FORMATS, LAYOUTS, SIZES, matrix
from tests.jit_functions import square
from tests.splitk_checks import (
    NAMES,
    TILE,
    TILES,
    check_product,
    discipline,
    epilogues,
    expected,
    fitting,
    integers,
    poisoned,
    problem,
    product,
)

each = pytest.mark.parametrize("name", NAMES)


FEW_SIZES = [SIZES[0], (33, 1, 1001), (0, 5, 16), (1, 37, 17)]
FULL = "last_arrival"
"""Shares its loop with all others: what the loop can meet is tried on this one alone."""
PAIRS = [*((layout, "row") for layout in LAYOUTS), *(("row", layout) for layout in LAYOUTS)]


@pytest.mark.parametrize(
    ("name", "m", "n", "k"), [(name, *size) for name in NAMES for size in (SIZES if name == FULL else FEW_SIZES)]
)
def test_any_size(name: str, m: int, n: int, k: int) -> None:
    """Every size gives the product, an empty K zeros, an empty M or N an empty tensor."""
    check_product(name, matrix(m, k, "fp32", "cpu", 1), matrix(k, n, "fp32", "cpu", 2), "ieee")


@pytest.mark.parametrize(("dtype", "precision"), [*FORMATS, ("fp32", "3xtf32")])
@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
def test_any_precision(tile: Any, dtype: str, precision: str) -> None:
    """Every number of splits and slices gives the product in every precision."""
    check_product(FULL, matrix(20, 90, dtype, "cpu", 1), matrix(90, 33, dtype, "cpu", 2), precision, tile)


@each
@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
def test_any_tile(tile: Any, name: str) -> None:
    """One split, several, and more than there are K tiles give the product."""
    check_product(name, matrix(20, 90, "fp32", "cpu", 1), matrix(90, 33, "fp32", "cpu", 2), "ieee", tile)


def test_bulk_reductions_are_left_to_gpus() -> None:
    """Where there is no copy engine threads add, and nothing waits for a launch that has ended."""
    tile = atomic_fp32.Tile(**TILE.as_data() | {"overlap": True}, adds="bulk")
    check_product("atomic_fp32", matrix(20, 90, "fp32", "cpu", 1), matrix(90, 36, "fp32", "cpu", 2), "ieee", tile)


@pytest.mark.parametrize(("layout_a", "layout_b"), PAIRS)
@pytest.mark.parametrize("loads", ["pointers", "tma"])
def test_any_strides(loads: str, layout_a: str, layout_b: str) -> None:
    """Every layout gives the product, by descriptors where they can hold it, else by pointers."""
    a = LAYOUTS[layout_a](matrix(20, 72, "fp32", "cpu", 1))
    b = LAYOUTS[layout_b](matrix(72, 20, "fp32", "cpu", 2))
    check_product(FULL, a, b, "ieee", replace(TILE, loads=loads))


def test_descriptors_hold_rows_and_columns() -> None:
    """Rows or columns that lie contiguous and 16-byte aligned are read by descriptors, all else by pointers."""
    tile = replace(TILE, loads="tma")
    a, b = matrix(20, 72, "fp32", "cpu"), matrix(72, 20, "fp32", "cpu")
    found = {layout: loads_of(problem(FULL, change(a), b, "ieee"), tile) for layout, change in LAYOUTS.items()}
    assert found["row"] == "tma_nn"
    assert found["column"] == "tma_tn"
    assert {found[layout] for layout in ("one_off", "every_second", "one_row_expanded")} == {"pointers"}


@each
def test_integers_are_exact(name: str) -> None:
    """Sums of small integers come out exactly."""
    a, b = integers(20, 300, "cpu", 1), integers(300, 33, "cpu", 2)
    assert torch.equal(product(name, a, b, "ieee").double(), a.double() @ b.double())


@each
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_what_is_not_finite_shows(value: float, name: str) -> None:
    """NaN or infinity in one element of A reaches that row of C and no other element."""
    a, b = matrix(20, 70, "fp32", "cpu", 1), matrix(70, 33, "fp32", "cpu", 2)
    a[3, 69] = value
    spoiled = ~torch.isfinite(product(name, a, b, "ieee"))
    assert spoiled[3].all() and spoiled.sum() == 33


@each
def test_scratch_serves_again(name: str) -> None:
    """Launches over one scratch, its parts poisoned between them, give equal bits."""
    a, b = matrix(20, 200, "fp32", "cpu", 1), matrix(200, 33, "fp32", "cpu", 2)
    made, tile = problem(name, a, b, "ieee"), fitting(name, TILE)
    scratch = poisoned(name, made, tile)
    bits = []
    for _ in range(3):
        made.c.fill_(float("nan"))
        if scratch.partials is not None:
            scratch.partials.fill_(float("nan"))
        discipline(name).launch(made, tile, scratch)
        bits.append(made.c.clone())
    # The interpreter runs programs in one order, so that atomics repeat here too.
    assert torch.equal(bits[0], bits[1]) and torch.equal(bits[0], bits[2])


@each
@pytest.mark.parametrize(
    ("said", "rest"), list(epilogues(20, 33, "cpu")), ids=lambda x: x if isinstance(x, str) else ""
)
def test_what_follows_the_sum(said: str, rest: dict[str, Any], name: str) -> None:
    """Scales, biases and residuals are applied once, however many parts there are."""
    a, b = matrix(20, 90, "fp32", "cpu", 1), matrix(90, 33, "fp32", "cpu", 2)
    exact = expected(a, b, **rest)
    assert (product(name, a, b, "ieee", **rest).double() - exact).norm() <= 1e-6 * exact.norm()


@each
@pytest.mark.parametrize("tile", [TILE, TILES["one split"]], ids=["several splits", "one split"])
def test_an_addend_times_zero_is_not_read(tile: Any, name: str) -> None:
    """As `torch.addmm` has it: where beta is 0, NaN and infinities of the addend stay out of the result."""
    a, b = matrix(20, 90, "fp32", "cpu", 1), matrix(90, 33, "fp32", "cpu", 2)
    bias = torch.tensor([float("nan"), float("inf"), float("-inf")]).repeat(11)
    exact = torch.addmm(bias.double(), a.double(), b.double(), beta=0, alpha=0.5)
    assert exact.isfinite().all()
    found = product(name, a, b, "ieee", tile, addend=bias, alpha=0.5, beta=0.0)
    assert (found.double() - exact).norm() <= 1e-6 * exact.norm()


@pytest.mark.parametrize("name", [FULL, "atomic_fp32"])
@pytest.mark.parametrize("activation", [*ACTIVATIONS, "square"])
def test_activations(activation: str, name: str) -> None:
    """ReLU, GELU, SiLU and anybody's jit function follow the whole sum and its bias."""
    a, b, bias = matrix(20, 90, "fp32", "cpu", 1), matrix(90, 33, "fp32", "cpu", 2), matrix(1, 33, "fp32", "cpu", 3)
    peer = {
        "square": torch.square,
        "relu": torch.relu,
        "silu": torch.nn.functional.silu,
        "gelu": torch.nn.functional.gelu,
    }
    exact = peer[activation](expected(a, b, addend=bias))
    jit = {**ACTIVATIONS, "square": square}[activation]
    c = product(name, a, b, "ieee", addend=bias, activation=jit)
    assert (c.double() - exact).norm() <= 1e-6 * exact.norm()


def test_atomics_on_c_refuse_an_activation() -> None:
    """What cannot know when a sum is complete says so."""
    a, b = matrix(20, 90, "fp32", "cpu", 1), matrix(90, 33, "fp32", "cpu", 2)
    with pytest.raises(ValueError, match="activation"):
        product("atomic_out", a, b, "ieee", activation=ACTIVATIONS["relu"])


@each
def test_c_of_other_dtype_and_layout(name: str) -> None:
    """C may be fp32 for 16-bit operands, and a transposed view."""
    a, b = matrix(20, 90, "fp16", "cpu", 1), matrix(90, 33, "fp16", "cpu", 2)
    c = torch.full((33, 20), float("nan")).t()
    exact = a.double() @ b.double()
    assert (product(name, a, b, "acc32", c=c).double() - exact).norm() <= 1e-6 * exact.norm()


@each
def test_operands_are_converted_and_scaled_along_k(name: str) -> None:
    """A in fp32 is scaled along K and rounded to the dtype of the product; B in int8 is converted to it."""
    a, b = matrix(20, 90, "fp32", "cpu", 1), integers(90, 33, "cpu", 2).to(torch.int8)
    scale = matrix(1, 90, "fp32", "cpu", 3)[0]
    c = torch.full((20, 33), float("nan"))
    product(name, a, b, "acc32", c=c, k_scale=scale, dtype=torch.float16)
    exact = (a * scale).half().double() @ b.double()
    assert (c.double() - exact).norm() <= 1e-6 * exact.norm()


@each
def test_addresses_beyond_31_bits(name: str, tmp_path: Path) -> None:
    """Rows, and steps along K, are found where their offset passes 2^31 though index and stride do not."""
    apart = 2**30 + 32
    parent = torch.from_file(str(tmp_path / "sparse"), shared=True, size=2 * apart + 64, dtype=torch.float16)
    a = parent.as_strided((3, 64), (apart, 1))
    a.copy_(matrix(3, 64, "fp16", "cpu", 1))
    b = matrix(64, 3, "fp16", "cpu", 2)
    check_product(name, a, b, "acc32")
    check_product(name, b.t(), a.t(), "acc32")
