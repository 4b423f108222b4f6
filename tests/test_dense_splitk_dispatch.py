"""`dispatch` and `matmul` without a GPU: the choice, refusals, tracing, zeros, and results in the interpreter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gemmgate.kernels import _tuned, dense_splitk
from gemmgate.kernels._triton import host, zeros
from gemmgate.kernels._triton.epilogue import ACTIVATIONS, OWN_ACTIVATIONS
from gemmgate.kernels.dense_splitk import FAMILY, dispatch, eager, matmul, triton_split_k
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.tiling import Tile
from gemmgate.suite.cases import Target
from tests.jit_functions import square

ROOT = Path(__file__).parent.parent
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)
BY_NAME = {case.name: case for case in FAMILY.cases}


def tuned(monkeypatch: pytest.MonkeyPatch, entries: Mapping[str, Any]) -> None:
    """Only these entries are tuned, for whichever family and device."""
    monkeypatch.setattr(_tuned, "lookup", lambda package, key, target: entries.get(key))


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("m32-n32-k32768-bf16", "triton_split_k"),
        ("m40-n40-k25776-bf16", "triton_split_k"),
        ("m64-n64-k65536-bf16", "two_launches"),
        ("m32-n256-k16384-bf16", "triton_split_k"),
        ("m32-n256-k16384-fp32", "two_launches"),
        ("m128-n128-k32768-bf16", "triton_split_k"),
        ("m128-n128-k32768-fp32", "cublas"),
        ("m256-n256-k65536-bf16", "cublas"),
        ("m512-n512-k512-bf16", "cublas"),
        ("m4096-n4096-k4096-fp32", "cublas"),
        ("m32-n256-k16384-tf32", "cublas"),
        ("m24-n24-k58368-tf32", "triton_split_k"),
        ("m56-n56-k56320-tf32", "two_launches"),
        ("m56-n56-k44537-tf32", "cublas"),
        ("m64-n64-k65536-fp32", "two_launches"),
        ("m64-n64-k177147-fp32", "cublas"),
        ("m32-n32-k65537-fp32", "triton_split_k"),
    ],
)
def test_rule(name: str, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a table a small C takes launches that overlap, a larger one, or fp32 with a long odd K, the library."""
    tuned(monkeypatch, {})
    choice = dispatch.choose(BY_NAME[name], H200)
    assert (choice.name, choice.why) == (chosen, "rule")
    assert (choice.tile is None) == (chosen == "cublas")


@pytest.mark.parametrize(
    ("sizes", "dtype", "is_own"),
    [
        ((1, 4096, 4096), "bf16", True),
        ((8, 4096, 4096), "fp16", True),
        ((8, 4096, 16384), "bf16", True),
        ((8, 64, 65536), "bf16", True),
        ((1, 16384, 7168), "bf16", False),
        ((8, 4096, 16), "bf16", False),
        ((8, 100000, 1), "bf16", False),
        ((1, 129280, 7168), "bf16", False),
        ((4096, 8, 4096), "bf16", False),
        ((8, 4096, 4096), "fp32", False),
    ],
)
def test_rule_of_few_rows(
    sizes: tuple[int, int, int], dtype: str, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows are split where an H200 was measured to gain, and the library's beyond; one launch is never taken."""
    tuned(monkeypatch, {})
    precision = "ieee" if dtype == "fp32" else "acc32"
    name = dispatch.choose(case_of(*sizes, dtype, precision), H200).name
    assert name in (("two_launches", "triton_split_k") if is_own else ("cublas",))


def test_rule_before_launches_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """On sm_80 a small C is added by its last programs, a larger one by all behind a barrier."""
    tuned(monkeypatch, {})
    a100 = Target("sm_80", sm_count=108, shared_bytes=166912)
    names = [dispatch.choose(BY_NAME[name], a100).name for name in ("m32-n32-k32768-bf16", "m64-n64-k65536-bf16")]
    assert names == ["last_arrival", "grid_barrier"]
    assert dispatch.choose(BY_NAME["m128-n128-k32768-bf16"], a100).name == "cublas"


def test_table_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuned case is computed as its entry says, tile included; a tuned `cublas` by the library."""
    tile = {"block_m": 32, "block_n": 16, "block_k": 64, "splits": 7, "num_warps": 2, "num_stages": 3}
    entries = {
        "m32-n32-k32768-bf16": {"implementation": "turnstile", "tile": tile},
        "m64-n64-k65536-bf16": {"implementation": "cublas", "tile": None},
    }
    tuned(monkeypatch, entries)
    first = dispatch.choose(BY_NAME["m32-n32-k32768-bf16"], H200)
    assert (first.name, first.why) == ("turnstile", "tuned")
    assert first.tile is not None and tile.items() <= first.tile.as_data().items()
    assert dispatch.choose(BY_NAME["m64-n64-k65536-bf16"], H200) == dispatch.Choice("cublas", None, "tuned")


def test_deterministic_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bits have to repeat, an entry that adds in the order of arrival is passed over."""
    case = BY_NAME["m64-n64-k65536-bf16"]
    tuned(monkeypatch, {case.name: {"implementation": "atomic_arrival", "tile": None}})
    assert dispatch.choose(case, H200).name == "atomic_arrival"
    assert dispatch.choose(case, H200, deterministic=True).name == "two_launches"


PLAIN = {"block_m": 32, "block_n": 32, "block_k": 64, "splits": 64, "num_warps": 4, "num_stages": 3}
TSK_ENTRY = {"implementation": "triton_split_k", "tile": PLAIN | {"reduce_block": 16, "overlap": True}}
OF_TWO = {"implementation": "two_launches", "tile": PLAIN | {"block_n": 16, "splits": 7, "overlap": True}}


def test_a_plain_product_is_what_was_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case tuned for `triton_split_k` is computed by it, with the tile of the entry; bits repeat with it."""
    case = BY_NAME["m64-n64-k28672-fp32"]
    tuned(monkeypatch, {case.name: TSK_ENTRY, f"{case.name}/two_launches": OF_TWO})
    choice = dispatch.choose(case, H200)
    assert (choice.name, choice.why, choice.tile_data) == ("triton_split_k", "tuned", TSK_ENTRY["tile"])
    assert dispatch.choose(case, H200, deterministic=True) == choice
    # Its kernel refuses TF32 and bf16 before sm_80.
    assert dispatch.choose(BY_NAME["m64-n64-k28672-bf16"], Target("sm_75", sm_count=40)).name == "cublas"


@pytest.mark.parametrize("is_tuned", [True, False])
def test_an_epilogue_takes_two_launches(is_tuned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an epilogue such a case takes `two_launches`: its own tile where that was tuned, else the entry's."""
    case = BY_NAME["m64-n64-k28672-fp32"]
    tuned(monkeypatch, {case.name: TSK_ENTRY} | ({f"{case.name}/two_launches": OF_TWO} if is_tuned else {}))
    choice = dispatch.choose(case, H200, plain=False)
    wanted = OF_TWO["tile"] if is_tuned else PLAIN | {"overlap": True}
    assert (choice.name, choice.why) == ("two_launches", "tuned")
    assert choice.tile_data is not None and wanted.items() <= choice.tile_data.items()


@pytest.mark.parametrize("name", ["m40-n40-k25776-bf16", "m32-n32-k32768-tf32", "m16-n16-k4096-fp32"])
def test_untuned_products_of_triton_split_k(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `triton_split_k` computes an untuned product it does so by its own rule, and never with an epilogue."""
    tuned(monkeypatch, {})
    case = BY_NAME[name]
    choice = dispatch.choose(case, H200)
    assert (choice.name, choice.why, choice.tile) == ("triton_split_k", "rule", triton_split_k.rule(case, H200))
    assert dispatch.choose(case, H200, plain=False).name == "two_launches"


def test_entry_of_another_implementation_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that names what dispatch cannot call, or what refuses the device, leaves the choice to the rule."""
    case = BY_NAME["m32-n32-k32768-bf16"]
    tuned(monkeypatch, {case.name: {"implementation": "cublaslt_best", "tile": {"algorithm": 3}}})
    assert dispatch.choose(case, H200).why == "rule"
    tuned(monkeypatch, {case.name: {"implementation": "last_arrival", "tile": None}})
    assert dispatch.choose(case, Target("sm_75", sm_count=40)).name == "cublas"


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("implementation", ["triton_split_k", "two_launches", "atomic_fp32"])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block_k": None}, "is damaged: No tile of"),
        ({"splits": float("inf")}, "is damaged: No tile of"),
        ({"block_m": 24}, "is damaged: Blocks must be powers of two"),
        ({"num_warps": 3}, "is damaged: num_warps must be"),
        ({"num_stages": 0}, "is damaged: num_warps must be"),
        ({"block_n": 256, "block_k": 512}, "does not fit sm_90"),
        ({"num_stages": 50}, "does not fit sm_90"),
    ],
)
def test_a_tile_that_cannot_run_is_refused_before_a_launch(
    changes: dict[str, Any], said: str, implementation: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuned tile with a field missing, of no value, or too large for the device: the case, why, and what to do."""
    case = BY_NAME["m32-n32-k32768-bf16"]
    sound = {"block_m": 16, "block_n": 16, "block_k": 128, "splits": 4, "num_warps": 4, "num_stages": 2}
    sound |= {"reduce_block": 32} if implementation == "triton_split_k" else {}
    tuned(monkeypatch, {case.name: {"implementation": implementation, "tile": sound}})
    assert dispatch.choose(case, H200, plain=plain).why == "tuned"
    damaged = {name: value for name, value in (sound | changes).items() if value is not None}
    tuned(monkeypatch, {case.name: {"implementation": implementation, "tile": damaged}})
    with pytest.raises(ValueError, match=f"tuned tile of {case.name}.*{said}.*Tune again, or remove it"):
        dispatch.choose(case, H200, plain=plain)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(2, 3), torch.ones(4, 2)), r"\(2, 3\) and \(4, 2\)"),
        ((torch.ones(2, 3), torch.ones(3, 2).half()), "torch.float16"),
        ((torch.ones(2, 3), torch.ones(3, 2), None, "swish"), "'swish' is none of gelu, relu, silu"),
        ((torch.ones(2, 3), torch.ones(3, 2), torch.ones(1, 1, 2)), r"got \(1, 1, 2\)"),
        ((torch.ones(1, 3), torch.ones(3, 2), torch.ones(5, 2)), r"are \(1, 2\), got \(5, 2\)"),
        ((torch.ones(5, 3), torch.ones(3, 1), torch.ones(7)), r"are \(5, 1\), got \(7,\)"),
        ((torch.ones(1, 0), torch.ones(0, 2), torch.ones(5, 2)), r"got \(5, 2\)"),
        ((torch.ones(2, 3), torch.ones(3, 2), torch.ones(2).to(torch.complex64)), "fp64, bool or .*torch.complex64"),
        ((torch.ones(2, 3), torch.ones(3, 2), torch.ones(2).to(torch.float8_e4m3fn)), "fp64, bool or .*float8_e4m3fn"),
        ((torch.ones(2, 3), torch.ones(3, 2), torch.ones(2, device="meta")), r"on cpu, got \(2,\) on meta"),
        ((torch.ones(2, 3), torch.ones(3, 2), torch.ones(2).to_sparse()), r"bias must .*sparse_coo: take bias\.to_"),
        ((torch.ones(2, 3).to_sparse(), torch.ones(3, 2)), r"a must .*sparse_coo: take a\.to_dense"),
        ((torch.ones(2, 3), torch.ones(3, 2).to_sparse()), r"b must .*sparse_coo: take b\.to_dense"),
        ((torch.ones(2, 3), torch.ones(3, 2).to_mkldnn()), r"b must .*mkldnn: take b\.to_dense"),
    ],
)
def test_matmul_refuses_by_value(arguments: tuple[Any, ...], message: str) -> None:
    """What does not multiply, add or exist is answered with its values."""
    with pytest.raises(ValueError, match=message):
        matmul(*arguments)


@pytest.mark.parametrize(
    "dtype",
    [torch.int32, torch.uint8, torch.bool, torch.float64, torch.float8_e4m3fn, torch.complex64],
    ids=str,
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_other_dtypes_of_the_output_are_refused(device: str, dtype: torch.dtype) -> None:
    """Traced or not, an output is bf16, fp16 or fp32, and who asks for another dtype is told so."""
    a, b = torch.ones(2, 3, device=device), torch.ones(3, 2, device=device)
    with pytest.raises(ValueError, match=rf"torch.bfloat16, torch.float16 or torch.float32, got {dtype}\."):
        matmul(a, b, out_dtype=dtype)


@pytest.mark.parametrize("name", ["square", "relu"])
def test_an_activation_of_ones_own_needs_a_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, where the library computes and does not know it, its name and what to do are said; a name that had
    another function before is no exception.
    """
    monkeypatch.setitem(ACTIVATIONS, name, square)
    with pytest.raises(ValueError, match=rf"'{name}' is a kernel's.*TRITON_INTERPRET=1"):
        matmul(torch.ones(5, 7), torch.ones(7, 3), activation=name)


@pytest.mark.parametrize("function", [torch.relu, lambda x: x, "relu", None])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_an_activation_is_a_jit_function(device: str, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no kernel can call is refused by its name and kind, before anything runs and where it is traced."""
    monkeypatch.setitem(ACTIVATIONS, "mine", function)
    with pytest.raises(ValueError, match=f"'mine' is a {type(function).__name__}, .*`triton.jit`"):
        matmul(torch.ones(5, 7, device=device), torch.ones(7, 3, device=device), activation="mine")


def test_the_library_has_each_activation() -> None:
    """torch has a function for each name that is there from the start."""
    assert set(eager.FUNCTIONS) == set(OWN_ACTIVATIONS) == {"relu", "gelu", "silu"}


def test_matmul_on_a_cpu_is_the_library() -> None:
    """Without GPU and interpreter the product is torch's, with what follows it."""
    a, b, bias = torch.randn(5, 7), torch.randn(7, 3), torch.randn(3)
    assert torch.equal(matmul(a, b, bias, "relu"), torch.addmm(bias, a, b).relu())


def test_family_has_nothing_else() -> None:
    """The family's package answers for `matmul` alone."""
    with pytest.raises(AttributeError, match="'split'"):
        _ = dense_splitk.split  # type: ignore[attr-defined]


def test_exports_with_dynamic_sizes() -> None:
    """A module that calls `matmul` exports with M and K dynamic, and keeps the operator whole."""

    class Product(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return matmul(a, b, activation="gelu")

    m, k = torch.export.Dim("m", max=4096), torch.export.Dim("k", max=1 << 20)
    exported = torch.export.export(
        Product(), (torch.ones(32, 4096), torch.ones(4096, 16)), dynamic_shapes=({0: m, 1: k}, {0: k}), strict=False
    )
    targets = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert targets == ["gemmgate.dense_splitk_matmul.default"]


def test_zeros_on_a_cpu_are_new() -> None:
    """Two calls do not share their zeros where there is no stream."""
    first, second = (zeros.zeros(8, torch.float32, torch.device("cpu")) for _ in range(2))
    first += 1
    assert second.eq(0).all() and second.dtype == torch.float32


def in_threads(work: Callable[[int], object]) -> None:
    """Two calls at the same time."""
    both = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()


def test_threads_do_not_mix_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel whose first launch adds to sums that the second reads, a thread makes both before another begins."""
    launches = []

    def launch(*arguments: object) -> None:
        for _ in range(2):
            launches.append(threading.get_ident())
            time.sleep(0.02)

    twice = SimpleNamespace(
        launch=launch, sums=lambda m, n, tile: m * n, counters=lambda *of: 0, partials=lambda *of: 0
    )
    monkeypatch.setattr(dispatch, "load", lambda name: twice)
    chosen = dispatch.Choice("atomic_fp32", Tile(16, 16, 16, 1, 1, 1), "tuned")
    monkeypatch.setattr(dispatch, "_choice", lambda *of: chosen)
    in_threads(lambda number: matmul(torch.ones(2, 3), torch.ones(3, 2)))
    assert launches[0] == launches[1] != launches[2] == launches[3]


def test_a_call_that_is_broken_off_leaves_no_sums_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is interrupted between two launches does not leave half a sum to the next call on the stream."""

    def launch(*arguments: object) -> None:
        raise KeyboardInterrupt

    broken = SimpleNamespace(launch=launch, sums=lambda *of: 4, counters=lambda *of: 0, partials=lambda *of: 0)
    monkeypatch.setattr(dispatch, "load", lambda name: broken)
    chosen = dispatch.Choice("atomic_fp32", Tile(16, 16, 16, 1, 1, 1), "tuned")
    monkeypatch.setattr(dispatch, "_choice", lambda *of: chosen)
    left: list[torch.device] = []
    monkeypatch.setattr(zeros, "forget", left.append)
    with pytest.raises(KeyboardInterrupt):
        matmul(torch.ones(2, 3), torch.ones(3, 2))
    assert left == [torch.device("cpu")]


def test_forgotten_zeros_are_those_of_the_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another stream keeps its zeros, and a CPU has none to forget."""
    device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=7))
    kept = {(device, 7): torch.ones(1), (device, 8): torch.zeros(1)}
    monkeypatch.setattr(zeros, "_of_stream", kept)
    zeros.forget(torch.device("cpu"))
    assert len(kept) == 2
    zeros.forget(device)
    assert list(kept) == [(device, 8)]


def test_threads_that_capture_get_zeros_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two captures at the same time do not get the same part of the reserve."""

    class Slow(dict[torch.device, tuple[Tensor, int]]):
        def get(self, *key: Any) -> Any:
            found = super().get(*key)
            time.sleep(0.02)
            return found

    cpu = torch.device("cpu")
    monkeypatch.setattr(zeros, "_reserve", Slow({cpu: (torch.zeros(256, dtype=torch.int32), 0)}))
    found: list[Tensor] = []
    in_threads(lambda number: found.append(zeros._own(8, cpu)))
    assert found[0].data_ptr() != found[1].data_ptr()


def in_the_interpreter() -> list[str]:
    """What the second pytest runs, beside this module."""
    return [str(ROOT / "tests" / "interpreted_dense_splitk_dispatch.py")]


def test_matmul_in_the_interpreter(interpreted: str) -> None:
    """The tests of interpreted_dense_splitk_dispatch.py pass."""
    assert " passed" in interpreted


@pytest.mark.parametrize("k", [64, 2048])
def test_autocast_changes_no_dtype(k: int) -> None:
    """Under autocast a product has the dtype that was asked for, compiled or not, and fp32 is not rounded to bf16."""
    a, b = torch.randn(16, k), torch.randn(k, 16)
    exact = a.double() @ b.double()
    with torch.autocast("cpu", torch.bfloat16):
        found = matmul(a, b)
        assert matmul(a.bfloat16(), b.bfloat16(), out_dtype=torch.float32).dtype == torch.float32
    assert found.dtype == torch.float32
    assert (found.double() - exact).norm() <= 1e-6 * exact.norm()


def test_fp32_set_by_the_newer_switch() -> None:
    """Where TF32 was set by `fp32_precision`, which torch's older way cannot read, products are TF32 ones."""
    matmul_switch = torch.backends.cuda.matmul
    if not hasattr(matmul_switch, "fp32_precision"):
        pytest.skip("this torch has no newer switch")
    before = torch.get_float32_matmul_precision()
    try:
        matmul_switch.fp32_precision = "tf32"
        assert host.precision_of_fp32() == "tf32"
        matmul(torch.randn(16, 2048), torch.randn(2048, 16))
    finally:
        torch.set_float32_matmul_precision(before)
