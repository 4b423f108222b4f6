"""`matmul` of dense_splitk in Triton's interpreter: test_dense_splitk_dispatch.py runs it in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gemmgate.kernels import _tuned
from gemmgate.kernels._triton.epilogue import ACTIVATIONS
from gemmgate.kernels.dense_splitk import dispatch, matmul, triton_split_k
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.suite.cases import Target
from tests.gemm_layouts import LAYOUTS, SIZES, assert_product, matrix
from tests.jit_functions import square
from tests.rounded_once import BIAS_SHAPES, SUMS_BEYOND_FP16, check_beyond_fp16, check_bias


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("m", "n", "k"), [*SIZES[::2], (20, 33, 600), (70, 64, 1100)])
def test_any_size(m: int, n: int, k: int, dtype: str) -> None:
    """Every size gives the product, whatever computes it."""
    a, b = matrix(m, k, dtype, "cpu", 1), matrix(k, n, dtype, "cpu", 2)
    assert_product(matmul(a, b), a, b, "ieee" if dtype == "fp32" else "acc32")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(layout: str) -> None:
    """Every layout of either operand gives the product."""
    a, b = LAYOUTS[layout](matrix(20, 600, "fp32", "cpu", 1)), matrix(600, 18, "fp32", "cpu", 2)
    assert_product(matmul(a, b), a, b, "ieee")
    assert_product(matmul(b.t(), a.t()), b.t(), a.t(), "ieee")


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("shape", [(33,), (1, 33), (20, 1), (20, 33), ()])
@pytest.mark.parametrize("k", [16, 600])
def test_bias_and_activation(k: int, shape: tuple[int, ...], activation: str | None) -> None:
    """Whoever computes: a bias of any shape that broadcasts is added, and the activation follows."""
    a, b = matrix(20, k, "fp32", "cpu", 1), matrix(k, 33, "fp32", "cpu", 2)
    bias = matrix(20, 33, "fp32", "cpu", 3)[tuple(slice(size) for size in (1,) * (2 - len(shape)) + shape)].reshape(
        shape
    )
    exact = a.double() @ b.double() + bias.double()
    peers = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu}
    exact = peers[activation](exact) if activation else exact
    assert (matmul(a, b, bias, activation).double() - exact).norm() <= 1e-6 * exact.norm()


@pytest.mark.parametrize("k", [16, 600])
def test_out_dtype(k: int) -> None:
    """16-bit operands give fp32 outputs where that is asked."""
    a, b = matrix(20, k, "fp16", "cpu", 1), matrix(k, 33, "fp16", "cpu", 2)
    c = matmul(a, b, out_dtype=torch.float32)
    assert c.dtype == torch.float32
    assert (c.double() - a.double() @ b.double()).norm() <= 1e-3 * c.norm()


@pytest.mark.parametrize("case", SUMS_BEYOND_FP16, ids=lambda case: "-".join(map(str, (case[0], *case[2:]))))
@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")  # SiLU's, which is meant
@pytest.mark.parametrize("k", [16, 1024])
def test_sums_beyond_fp16(k: int, case: tuple[Any, ...]) -> None:
    """Whoever computes: a sum that fp16 does not hold is finite until bias and activation are done."""
    check_beyond_fp16("cpu", k, *case)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("shape", BIAS_SHAPES)
@pytest.mark.parametrize("bias_dtype", [None, torch.float32])
@pytest.mark.parametrize("k", [16, 600])
def test_a_bias_is_added_before_the_rounding(
    k: int, bias_dtype: torch.dtype | None, shape: tuple[int, ...], dtype: str
) -> None:
    """Whoever computes: with a bias of any shape, the operands' dtype or fp32, C is rounded once."""
    check_bias("cpu", k, bias_dtype, shape, dtype)


@pytest.mark.parametrize("name", ["square", "relu"])
@pytest.mark.parametrize("k", [16, 600])
def test_a_function_of_ones_own(k: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jit function that somebody named is applied, also where the library would have computed the rest, and in the
    place of another.
    """
    monkeypatch.setitem(ACTIVATIONS, name, square)
    a, b = matrix(20, k, "fp32", "cpu", 1), matrix(k, 33, "fp32", "cpu", 2)
    exact = (a.double() @ b.double()).square()
    assert (matmul(a, b, activation=name).double() - exact).norm() <= 1e-6 * exact.norm()


@pytest.mark.parametrize("beside", [{}, {"bias": True}, {"activation": "relu"}, {"out_dtype": torch.float16}])
def test_a_tuned_product_and_what_follows_it(beside: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A size tuned for `triton_split_k` reaches it, and with anything beside another kernel; both are right."""
    tile = {
        "block_m": 16,
        "block_n": 16,
        "block_k": 64,
        "splits": 5,
        "num_warps": 4,
        "num_stages": 2,
        "reduce_block": 16,
    }
    entry = {"implementation": "triton_split_k", "tile": tile}
    monkeypatch.setattr(_tuned, "lookup", lambda package, key, target: entry if "/" not in key else None)
    monkeypatch.setattr(dispatch, "_choice", dispatch._choice.__wrapped__)
    ran = []
    multiply = triton_split_k.multiply
    monkeypatch.setattr(
        triton_split_k, "multiply", lambda a, b, tile, how: (ran.append(tile.splits), multiply(a, b, tile, how))[1]
    )
    a, b, bias = matrix(20, 600, "fp32", "cpu", 1), matrix(600, 33, "fp32", "cpu", 2), matrix(20, 33, "fp32", "cpu", 3)
    exact = a.double() @ b.double()
    exact = exact + bias.double() if "bias" in beside else exact.relu() if "activation" in beside else exact
    found = matmul(a, b, **(beside | ({"bias": bias} if "bias" in beside else {})))
    assert found.dtype == beside.get("out_dtype", torch.float32)
    assert (found.double() - exact).norm() <= (1e-3 if "out_dtype" in beside else 1e-6) * exact.norm()
    assert ran == ([] if beside else [5])


def test_what_computes_is_not_always_the_same() -> None:
    """The sizes of these tests reach kernels and the library."""
    names = {
        dispatch._choice(m, n, k, "fp32", "ieee", torch.device("cpu"), True, False).name
        for m, n, k in ((20, 33, 600), (5, 37, 1001), (20, 33, 16), (70, 64, 1100))
    }
    assert names == {"last_arrival", "cublas", "grid_barrier"}


@pytest.mark.parametrize(("m", "k"), [(20, 640), (16, 4096), (20, 16)])
def test_dispatch_takes_the_tile_that_it_reported(m: int, k: int) -> None:
    """A choice that is made again, as in paired blocks, is given the tile of the first time and takes it."""
    inputs = {"a": matrix(m, k, "fp32", "cpu", 1), "b": matrix(k, 16, "fp32", "cpu", 2)}
    case, target = case_of(m, 16, k, "fp32", "ieee"), Target("cpu")
    first = dispatch.IMPLEMENTATION.prepare(case, inputs, target, None)
    again = dispatch.IMPLEMENTATION.prepare(case, inputs, target, first.tile)
    assert again.tile == first.tile
    assert_product(again.bind(inputs)(), inputs["a"], inputs["b"], "ieee")


def test_compiles_with_dynamic_sizes() -> None:
    """One compilation serves every M and K, and gives the eager result."""
    compilations = 0

    def backend(graph: torch.fx.GraphModule, example: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal compilations
        compilations += 1
        return graph

    compiled = torch.compile(
        lambda a, b: matmul(a, b, activation="relu"), dynamic=True, fullgraph=True, backend=backend
    )
    for m, k in ((4, 48), (20, 640), (17, 80)):
        a, b = matrix(m, k, "fp32", "cpu", 1), matrix(k, 18, "fp32", "cpu", 2)
        assert torch.equal(compiled(a, b), matmul(a, b, activation="relu"))
    assert compilations == 1


def test_operator_contract() -> None:
    """torch's own checks of a custom operator hold: schema, aliasing, fake tensors, dynamic tracing."""
    a, b, bias = matrix(20, 640, "fp32", "cpu", 1), matrix(640, 18, "fp32", "cpu", 2), matrix(1, 18, "fp32", "cpu", 3)
    torch.library.opcheck(torch.ops.gemmgate.dense_splitk_matmul.default, (a, b, bias, "relu", torch.float16))
