"""The disciplines of splitting K, and `matmul`, on a GPU, where programs run at the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from gemmgate.kernels._triton import zeros
from gemmgate.kernels._triton.epilogue import ACTIVATIONS
from gemmgate.kernels._triton.host import target_of
from gemmgate.kernels.dense_splitk import atomic_fp32, dispatch, dot_product, matmul
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.discipline import Scratch
from gemmgate.kernels.dense_splitk.dispatch import choose
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from tests.gemm_layouts import FORMATS, LAYOUTS, SIZES, assert_product, matrix
from tests.rounded_once import BIAS_SHAPES, SUMS_BEYOND_FP16, check_beyond_fp16, check_bias
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

pytestmark = pytest.mark.gpu

DETERMINISTIC = [name for name in NAMES if discipline(name).deterministic]
PRECISIONS = [*FORMATS, ("fp32", "3xtf32")]
LARGE = {
    "wgmma": replace(TILE, block_m=64, block_n=64, block_k=64, splits=8, num_stages=3),
    "descriptors": replace(TILE, block_m=64, block_n=64, block_k=64, splits=8, num_stages=3, loads="tma"),
    "sliced": replace(TILE, block_m=32, block_n=32, block_k=128, splits=8, slices=4, num_stages=3),
}

each = pytest.mark.parametrize("name", NAMES)


@pytest.mark.parametrize(("dtype", "precision"), [("bf16", "acc32"), ("fp32", "tf32")])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_any_size(m: int, n: int, k: int, dtype: str, precision: str) -> None:
    """Every size gives the product."""
    check_product("last_arrival", matrix(m, k, dtype, "cuda", 1), matrix(k, n, dtype, "cuda", 2), precision)


@pytest.mark.parametrize(
    ("name", "dtype", "precision"),
    [("last_arrival", *words) for words in PRECISIONS] + [(name, "bf16", "acc32") for name in NAMES[1:]],
)
@pytest.mark.parametrize("tile", {**TILES, **LARGE}.values(), ids={**TILES, **LARGE})
def test_any_tile(tile: Any, dtype: str, precision: str, name: str) -> None:
    """One split, several, and more than there are K tiles give the product, however operands are read."""
    check_product(name, matrix(80, 1000, dtype, "cuda", 1), matrix(1000, 72, dtype, "cuda", 2), precision, tile)


@pytest.mark.parametrize(("m", "n"), [(256, 256), (200, 132), (64, 20)])
@pytest.mark.parametrize("loads", ["pointers", "tma"])
@pytest.mark.parametrize(("block_m", "block_n", "num_warps"), [(128, 256, 8), (256, 64, 4), (64, 64, 4)])
def test_bulk_reductions(block_m: int, block_n: int, num_warps: int, loads: str, m: int, n: int) -> None:
    """Parts handed over in bulk, a piece at a time, add up exactly, within C and nowhere else, launch after launch."""
    tile = atomic_fp32.Tile(block_m, block_n, 64, 7, num_warps, 3, 1, loads, overlap=True, adds="bulk")
    a, b = integers(m, 2048, "cuda", 1).bfloat16(), integers(2048, n, "cuda", 2).bfloat16()
    exact = a.double() @ b.double()
    made = problem("atomic_fp32", a, b, "acc32", c=torch.full((m, n), float("nan"), device="cuda"))
    guarded = torch.zeros(m * n + 2048, device="cuda")
    scratch = Scratch(None, None, guarded[:-2048])
    for _ in range(20):
        made.c.fill_(float("nan"))
        discipline("atomic_fp32").launch(made, tile, scratch)
        assert torch.equal(made.c.double(), exact)
        assert not guarded.any()


@pytest.mark.parametrize(("dtype", "precision"), [("bf16", "acc32"), ("fp32", "tf32")])
@pytest.mark.parametrize("loads", ["pointers", "tma"])
@pytest.mark.parametrize(
    ("layout_a", "layout_b"), [*((layout, "row") for layout in LAYOUTS), *(("row", layout) for layout in LAYOUTS)]
)
def test_any_strides(layout_a: str, layout_b: str, loads: str, dtype: str, precision: str) -> None:
    """Every layout gives the product, by descriptors where they can hold it."""
    a = LAYOUTS[layout_a](matrix(24, 1000, dtype, "cuda", 1))
    b = LAYOUTS[layout_b](matrix(1000, 16, dtype, "cuda", 2))
    check_product("last_arrival", a, b, precision, replace(TILE, loads=loads))


@each
@pytest.mark.parametrize("splits", [2, 7, 132])
def test_integers_are_exact(splits: int, name: str) -> None:
    """Sums of small integers come out exactly, with as many splits as there are multiprocessors too."""
    a, b = integers(20, 5000, "cuda", 1), integers(5000, 33, "cuda", 2)
    tile = replace(TILE, splits=splits) if name != "grid_barrier" else replace(TILE, splits=min(splits, 20))
    assert torch.equal(product(name, a, b, "ieee", tile).double(), a.double() @ b.double())


@pytest.mark.parametrize("name", DETERMINISTIC)
@pytest.mark.parametrize(("dtype", "precision"), FORMATS)
def test_bits_repeat_on_two_streams(dtype: str, precision: str, name: str) -> None:
    """Two hundred launches on two streams, each with one scratch used again, give equal bits."""
    a, b = matrix(64, 8192, dtype, "cuda", 1), matrix(8192, 48, dtype, "cuda", 2)
    tile = fitting(name, replace(TILE, block_m=32, splits=15))
    torch.cuda.synchronize()
    found = []
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            made = problem(name, a, b, precision)
            found.append((stream, made, poisoned(name, made, tile), []))
    for _ in range(100):
        for stream, made, scratch, bits in found:
            with torch.cuda.stream(stream):
                discipline(name).launch(made, tile, scratch)
                bits.append(made.c.clone())
                made.c.fill_(float("nan"))
    torch.cuda.synchronize()
    every = [each for _, _, _, bits in found for each in bits]
    assert all(torch.equal(every[0], other) for other in every[1:])
    assert all(not x.any() for _, _, scratch, _ in found for x in scratch.state)


@each
def test_replays_after_an_aborted_capture(name: str) -> None:
    """A capture that is given up harms nothing: a later one, replayed over NaN, gives the product each time."""
    a, b = integers(64, 8192, "cuda", 1), integers(8192, 48, "cuda", 2)
    made, tile = problem(name, a, b, "ieee"), fitting(name, replace(TILE, block_m=32, splits=15))
    scratch = poisoned(name, made, tile)
    discipline(name).launch(made, tile, scratch)

    def give_up() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            discipline(name).launch(made, tile, scratch)
            raise RuntimeError("given up")

    with pytest.raises(RuntimeError, match="given up"):
        give_up()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        discipline(name).launch(made, tile, scratch)
    for _ in range(20):
        made.c.fill_(float("nan"))
        if scratch.partials is not None:
            scratch.partials.fill_(float("nan"))
        graph.replay()
        assert torch.equal(made.c.double(), a.double() @ b.double())


@each
@pytest.mark.parametrize("which", range(8))
def test_what_follows_the_sum(which: int, name: str) -> None:
    """Scales, biases and residuals are applied once, however many parts there are."""
    a, b = matrix(20, 900, "fp32", "cuda", 1), matrix(900, 33, "fp32", "cuda", 2)
    _, rest = list(epilogues(20, 33, "cuda"))[which]
    exact = expected(a, b, **rest)
    assert (product(name, a, b, "ieee", **rest).double() - exact).norm() <= 2e-6 * exact.norm()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "atomic_out"])
@pytest.mark.parametrize("activation", [*ACTIVATIONS])
def test_activations(activation: str, name: str) -> None:
    """ReLU, GELU and SiLU follow the whole sum and its bias."""
    a, b, bias = matrix(20, 90, "fp32", "cuda", 1), matrix(90, 33, "fp32", "cuda", 2), matrix(1, 33, "fp32", "cuda", 3)
    peers = {"relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}
    exact = peers[activation](expected(a, b, addend=bias))
    c = product(name, a, b, "ieee", addend=bias, activation=activation)
    assert (c.double() - exact).norm() <= 2e-6 * exact.norm()


@pytest.mark.parametrize(("dtype", "precision"), FORMATS)
def test_error_is_no_larger_than_the_librarys(dtype: str, precision: str) -> None:
    """Against float64, every discipline errs at most half as much again as the library in the same precision."""
    case = case_of(64, 64, 32768, dtype, precision)
    inputs = make_inputs(case, 1, "cuda", "uniform")
    a, b = inputs["a"], inputs["b"]
    exact = a.double() @ b.double()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    library = (torch.mm(a, b).double() - exact).norm()
    torch.set_float32_matmul_precision(before)
    for name in NAMES:
        tile = discipline(name).choose_tile(case, target_of(a.device))
        made = problem(name, a, b, precision)
        discipline(name).launch(made, tile, poisoned(name, made, tile))
        c = made.c.to(a.dtype)
        assert (c.double() - exact).norm() <= 1.5 * library, name


@pytest.mark.parametrize(("dtype", "precision"), FORMATS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 37, 5000), (8, 256, 7168), (37, 1, 5000), (3, 3, 0), (15, 15, 1001)])
def test_dot_product(m: int, n: int, k: int, dtype: str, precision: str) -> None:
    """A few rows or columns are multiplied without tensor cores, alike each time."""
    a, b = matrix(m, k, dtype, "cuda", 1), matrix(k, n, dtype, "cuda", 2)
    case = case_of(m, n, k, dtype, precision)
    prepared = dot_product.IMPLEMENTATION.prepare(case, {"a": a, "b": b}, target_of(a.device), None)
    call = prepared.bind({"a": a, "b": b})
    first = call().clone()
    assert_product(first, a, b, precision)
    assert torch.equal(call(), first)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("m", "n", "k"), [*SIZES, (64, 64, 8192), (100, 100, 4096), (512, 512, 512)])
def test_matmul(m: int, n: int, k: int, dtype: str) -> None:
    """`matmul` gives the product at every size: where it is the library's, that of the library to the bit."""
    a, b = matrix(m, k, dtype, "cuda", 1), matrix(k, n, dtype, "cuda", 2)
    precision = "ieee" if dtype == "fp32" else "acc32"
    if choose(case_of(m, n, k, dtype, precision), target_of(a.device)).name == "cublas":
        assert torch.equal(matmul(a, b), a @ b)
    else:
        assert_product(matmul(a, b), a, b, precision)


@pytest.mark.parametrize("case", SUMS_BEYOND_FP16, ids=lambda case: "-".join(map(str, (case[0], *case[2:]))))
@pytest.mark.parametrize("k", [16, 1024])
def test_sums_beyond_fp16(k: int, case: tuple[Any, ...]) -> None:
    """Whoever computes: a sum that fp16 does not hold is finite until bias and activation are done."""
    check_beyond_fp16("cuda", k, *case)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("shape", BIAS_SHAPES)
@pytest.mark.parametrize("bias_dtype", [None, torch.float32])
@pytest.mark.parametrize("k", [16, 600])
def test_a_bias_is_added_before_the_rounding(
    k: int, bias_dtype: torch.dtype | None, shape: tuple[int, ...], dtype: str
) -> None:
    """Whoever computes: with a bias of any shape, the operands' dtype or fp32, C is rounded once."""
    check_bias("cuda", k, bias_dtype, shape, dtype)


def test_captured_matmuls_do_not_share_zeros() -> None:
    """Two graphs of one call, replayed at the same time on two streams, each give the product."""
    a, b = integers(64, 32768, "cuda", 1), integers(32768, 64, "cuda", 2)
    exact = a.double() @ b.double()
    assert dispatch._choice(64, 64, 32768, "fp32", "ieee", a.device, True, False).tile is not None
    assert torch.equal(matmul(a, b).double(), exact)
    used = zeros._reserve[torch.device("cuda", torch.cuda.current_device())][1]
    graphs = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            c = matmul(a, b)
        graphs.append((torch.cuda.Stream(), graph, c))
    assert zeros._reserve[torch.device("cuda", torch.cuda.current_device())][1] > used
    for _ in range(50):
        for stream, graph, c in graphs:
            with torch.cuda.stream(stream):
                c.fill_(float("nan"))
                graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(c.double(), exact) for _, _, c in graphs)


def test_matmul_compiles_with_dynamic_sizes() -> None:
    """Inductor compiles the operator once for every M and K."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: matmul(a, b, activation="relu") + 1, dynamic=True, fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for m, k in ((4, 48), (9, 1000), (20, 4096)):
            a, b = matrix(m, k, "bf16", "cuda", 1), matrix(k, 18, "bf16", "cuda", 2)
            assert torch.equal(compiled(a, b), matmul(a, b, activation="relu") + 1)


@pytest.mark.slow
def test_addresses_beyond_31_bits() -> None:
    """Operands of more than 2^31 elements are multiplied to their last element."""
    a = matrix(2, (1 << 30) + 1024, "fp16", "cuda", 1)
    b = torch.zeros(a.shape[1], 3, dtype=torch.float16, device="cuda")
    b[-64:] = matrix(64, 3, "fp16", "cuda", 2)
    exact = a[:, -64:].double() @ b[-64:].double()
    for name in NAMES:
        c = product(name, a, b, "acc32", replace(TILE, block_k=256, splits=8))
        assert (c.double() - exact).norm() < 1e-3 * exact.norm(), name
