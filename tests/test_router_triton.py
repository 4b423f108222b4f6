"""The router's kernels without a GPU: tiles, refusals, tracing, compilation, interpreted sums."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gemmgate.kernels.router import FAMILY, binding, dot_product, dot_product_tiles, logits, operands, split_k, tables
from gemmgate.kernels.router.cases import ITEM_BYTES, case_of, sizes
from gemmgate.kernels.router.inputs import TORCH_DTYPE
from gemmgate.suite.cases import Case, Target
from gemmgate.suite.compiling.legality import tuned_refusal
from tests.router_gpus import CPU, H200
from tests.test_dense_splitk_triton import run_child

ROOT = Path(__file__).parent.parent
TARGETS = [CPU, Target("sm_80", sm_count=108, shared_bytes=166912), H200]
SOME = FAMILY.cases[::13]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
def test_chosen_tiles_fit(target: Target) -> None:
    """A chosen tile is legal, leaves no part of K without work that would cost a program, and fits shared memory."""
    for case in SOME:
        _, _, k = sizes(case)
        split = split_k.choose_tile(case, target)
        staged = split.num_stages * (split.block_t + split.block_n) * split.block_k * ITEM_BYTES[case.dtype]
        assert case.dtype == "fp32" or staged <= (target.shared_bytes or 49152)  # fp32 is refused
        assert split.splits <= math.ceil(k / split.block_k)
        dot = dot_product.choose_tile(case, target)
        assert dot.block_t * dot.block_n <= 64
        # A search may find that parts of K are worth handing over; a rule takes all of it.
        assert dot_product_tiles._by_rule(case, target).splits == 1


@pytest.mark.parametrize("n", [1, 16, 128, 384, 768])
@pytest.mark.parametrize("t", [17, 32, 64, 128])
def test_many_tokens_of_fp32_keep_the_gpu_busy(t: int, n: int) -> None:
    """Without a search, every multiprocessor has a program and seven warps, as far as there are tokens and experts."""
    tile = dot_product_tiles._by_rule(case_of(t, n, 6144, "fp32"), H200)
    programs = math.ceil(t / tile.block_t) * math.ceil(n / tile.block_n)
    assert programs >= H200.sm_count or (tile.block_t, tile.block_n) == (1, 1)
    assert tile.num_warps == 8 or programs * tile.num_warps >= 7 * H200.sm_count
    assert tile.block_t * tile.block_n == 32 or programs < 2 * H200.sm_count  # as many products a piece as there can be


@pytest.mark.parametrize("case", [case for case in SOME if case.dtype == "bf16"][::3], ids=lambda case: case.name)
def test_every_tile_is_legal(case: Case) -> None:
    """Each tile of a space constructs, is there once, and its footprint fits the device; the space is not endless."""
    for module, most in ((dot_product, 600), (split_k, 200)):
        found = module.tiles(case, H200)
        assert 1 <= len(found) <= most
        assert len({json.dumps(dict(tile), sort_keys=True) for tile in found}) == len(found)
        for tile in found:
            module.Tile(**tile)
            footprint = module.footprint(case, H200, tile)
            assert footprint.shared_bytes <= H200.shared_bytes
            assert footprint.programs >= 1
            assert footprint.launches == 1 + (tile["splits"] > 1 and tile["overlap"] == 1)
            assert footprint.bytes_moved >= FAMILY.bytes_moved(case) - 2 * sizes(case)[1]


@pytest.mark.parametrize(("t", "n", "k"), [(4, 8, 0), (4, 0, 64), (0, 8, 64)])
def test_sizes_of_zero_have_tiles(t: int, n: int, k: int) -> None:
    """Nothing to multiply is no reason to fail before a launch is left out: every rule and space gives a legal tile."""
    case = case_of(t, n, k, "bf16", "fp32")
    for module in (dot_product, split_k):
        assert module.choose_tile(case, H200).splits == 1
        assert module.tiles(case, H200)


def test_footprint_by_hand() -> None:
    """Eight tokens, 256 experts, K = 7168 in bf16, two experts a program, K in four parts: each program reads what it
    takes of x and w, and the parts are written in fp32, and read by a second launch.
    """
    case = case_of(8, 256, 7168, "bf16", "fp32")
    tile = {"block_t": 8, "block_n": 2, "splits": 4, "num_warps": 4, "unroll": 2, "held": 0, "overlap": 1}
    footprint = dot_product.footprint(case, H200, tile)
    assert (footprint.programs, footprint.launches) == (128 * 4, 2)
    assert footprint.bytes_moved == 256 * 7168 * 2 + 128 * 8 * 7168 * 2 + 8 * 256 * 4 + 2 * 4 * 8 * 256 * 4


_PLAIN = {"block_t": 4, "block_n": 1, "splits": 1, "num_warps": 4, "unroll": 1}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: dot_product.Tile(3, 1, 1, 4, 1), "powers of two"),
        (lambda: dot_product.Tile(4, 1, 0, 4, 1), "at least 1"),
        (lambda: dot_product.Tile(4, 1, 1, 4, 1, held=2), "held and overlap must be 0 or 1"),
        (lambda: dot_product.Tile(4, 1, 3, 4, 1, overlap=-3), "held and overlap must be 0 or 1"),
        (lambda: dot_product.Tile(4, 1, 1, 64, 1), "at most 32 warps"),
        (lambda: split_k.Tile(8, 16, 128, 3, 1, 1, 4, 2, overlap=2), "swap and overlap must be 0 or 1"),
        (lambda: split_k.Tile(8, 16, 128, 3, 1, 5, 4, 2), "swap and overlap must be 0 or 1"),
        (lambda: split_k.Tile(8, 16, 128, 3, 1, 1, 64, 2), "at most 32 warps"),
        (lambda: split_k.Tile(8, 16, 128, 3, 1, 1, 4, 0), "one stage at least"),
        (
            lambda: tables.tile_of(dot_product.Tile, "dot_product", {**_PLAIN, "strong": 2}),
            "held.* got .*strong.* tune again",
        ),
        *(
            (
                lambda value=value: tables.tile_of(dot_product.Tile, "dot_product", {**_PLAIN, "unroll": value}),
                "unroll must be a whole number, got .* tune again",
            )
            for value in (None, 2.7, "two", True, [1], float("nan"))
        ),
        (
            lambda: tables.tile_of(dot_product.Tile, "dot_product", {"block_t": 4}),
            "fields block_t.* got block_t.* tune",
        ),
        (lambda: split_k.Tile(8, 16, 128, 1, 1, 0, 4, 2), "8, 16 and 128"),
        (lambda: split_k.Tile(8, 16, 32, 1, 4, 1, 4, 2), "16, 8 and 8"),
        (lambda: split_k.Tile(8, 16, 128, 65, 1, 1, 4, 2), "splits must be 1 to 64, got 65"),
    ],
)
def test_impossible_tiles_are_refused(make: Any, said: str) -> None:
    """A tile that no launch can have is an error with its numbers."""
    with pytest.raises(ValueError, match=said):
        make()


def test_refusals() -> None:
    """Too many tokens, fp32 on tensor cores, bf16 before sm_80 and a CPU are refused by code."""
    turing = Target("sm_75", sm_count=40, shared_bytes=65536)
    few, many = case_of(8, 256, 7168, "bf16", "fp32"), case_of(65, 256, 7168, "bf16", "fp32")
    most = case_of(128, 256, 3072, "fp32")
    single = case_of(8, 256, 3072, "fp32")
    found = [
        (dot_product.supports(many, H200) or ("", ""))[0],
        (dot_product.supports(few, CPU) or ("", ""))[0],
        (split_k.supports(single, H200) or ("", ""))[0],
        (split_k.supports(few, turing) or ("", ""))[0],
        dot_product.supports(single, turing),
        dot_product.supports(most, H200),
        split_k.supports(many, H200),
    ]
    assert found == ["too_many_tokens", "interpreter_only", "ieee_fp32", "needs_sm_80", None, None, None]


def test_overlap_needs_sm_90() -> None:
    """Before sm_90 no tile overlaps and one that does is refused; there, fewer than a quarter leave their parts to the
    last program.
    """
    case = case_of(8, 256, 7168, "bf16", "fp32")
    for module in (dot_product, split_k):
        old = module.tiles(case, TARGETS[1])
        assert not any(tile["overlap"] for tile in [*old, asdict(module.choose_tile(case, TARGETS[1]))])
        new = module.tiles(case, H200)
        assert sum(tile["splits"] > 1 and tile["overlap"] == 0 for tile in new) < len(new) / 4
        x, w = torch.ones(8, 7168, device="meta").bfloat16(), torch.ones(256, 7168, device="meta").bfloat16()
        with pytest.raises(ValueError, match="overlap needs sm_90, this is sm_80"):
            module.prepare(case, {"x": x, "w": w}, TARGETS[1], next(tile for tile in new if tile["overlap"]))


@pytest.mark.parametrize(
    ("splits", "overlap", "counted"),
    [(1, 0, 0), (4, 1, 0), (4, 0, 6)],
    ids=["one split", "two launches", "last arrival"],
)
def test_counters_are_there_where_arrivals_are_counted(
    splits: int, overlap: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The six blocks of a last arrival have zeros; one split has none, nor has what a second launch adds."""
    asked, got = [], []

    def common(device: torch.device) -> None:
        asked.append(device)

    def multiply(
        x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor, held: operands.Scratch, tile: dot_product.Tile
    ) -> None:
        got.append(held)

    monkeypatch.setattr(operands, "common_counters", common)
    monkeypatch.setattr(binding, "launch_sum", lambda *of: None)
    tile = dot_product.Tile(4, 2, splits, 4, 1, overlap=overlap)
    binding.run(multiply, torch.ones(5, 64), torch.ones(6, 64), None, torch.float32, tile)
    assert len(asked) == (counted > 0)
    assert [held.counters.tolist() for held in got] == [[0] * counted]
    assert [held.partials.shape[0] for held in got] == [splits if splits > 1 else 0]


@pytest.mark.parametrize(
    ("dtype", "k", "stride", "pairs"),
    [("bf16", 70, 70, True), ("bf16", 71, 71, False), ("bf16", 70, 71, False), ("fp32", 70, 70, False)],
)
def test_pairs_are_whole(dtype: str, k: int, stride: int, pairs: bool) -> None:
    """Two bf16 are read as one where all rows begin and end with a pair."""
    x = torch.zeros(3 * stride, dtype=TORCH_DTYPE[dtype]).as_strided((3, k), (stride, 1))
    w = torch.zeros(5 * k, dtype=TORCH_DTYPE[dtype]).as_strided((5, k), (k, 1))
    assert dot_product._come_in_pairs(x, w) == pairs
    off = torch.zeros(3 * k + 1, dtype=TORCH_DTYPE[dtype])[1:].view(3, k)
    assert not dot_product._come_in_pairs(off, w)


@pytest.mark.parametrize(
    ("dtype", "k", "can"),
    [("bf16", 4096, True), ("fp16", 4096, False), ("fp32", 4096, True), ("bf16", 4095, False), ("fp32", 4095, True)],
)
def test_what_cannot_be_held_back_has_no_such_tile(dtype: str, k: int, can: bool) -> None:
    """Products wait in fp32, and in bf16 where a row is whole pairs: else no tile of a space or rule is."""
    cases = [case_of(t, 256, k, dtype, "fp32") for t in (2, 4)]
    assert any(tile["held"] for case in cases for tile in dot_product.tiles(case, H200)) is can
    assert bool(dot_product_tiles._by_rule(cases[0], H200).held) is can


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        (torch.ones(2, 3), torch.ones(4, 2), {}, r"\(2, 3\) and \(4, 2\)"),
        (torch.ones(2, 2, 8), torch.ones(3, 7), {}, r"\(2, 2, 8\) and \(3, 7\)"),
        (torch.ones(8), torch.ones(3, 7), {}, r"\(8,\) and \(3, 7\)"),
        (torch.ones(2, 3), torch.ones(4, 3).half(), {}, r"torch\.float16.*Cast one"),
        (torch.ones(2, 3).double(), torch.ones(4, 3).double(), {}, "torch.float64"),
        (torch.ones(2, 3), torch.ones(4, 3), {"out_dtype": torch.float16}, "not torch.float16"),
        (torch.ones(2, 3), torch.ones(4, 3), {"bias": torch.ones(3)}, r"must be \[4\]"),
        (torch.ones(2, 3), torch.ones(4, 3), {"bias": torch.ones(4).half()}, r"must be .*torch\.float16"),
        (torch.ones(2, 3), torch.ones(4, 3), {"bias": torch.ones(4, device="meta")}, "of torch.float32 on meta"),
        (torch.ones(2, 3), torch.ones(4, 3), {"bias": torch.ones(4).to_sparse()}, r"take bias\.to_dense"),
        (torch.ones(2, 3).to_sparse(), torch.ones(4, 3), {}, r"x must .*sparse_coo: take x\.to_dense"),
        (torch.ones(2, 2, 3).to_sparse(), torch.ones(4, 3), {}, r"x must .*sparse_coo: take x\.to_dense"),
        (torch.ones(2, 3), torch.ones(4, 3).to_mkldnn(), {}, r"w must .*mkldnn: take w\.to_dense"),
        (torch.ones(2, 3, device="meta"), torch.ones(4, 3), {}, "torch.float32 on meta and torch.float32 on cpu"),
        (torch.tensor(1.0), torch.ones(4, 3), {}, r"got \(\) and \(4, 3\)"),
        (torch.ones(2, 3), torch.ones(1, 4, 3), {}, r"got \(2, 3\) and \(1, 4, 3\)"),
        (torch.ones(2, 3).to(torch.complex64), torch.ones(4, 3), {}, "torch.complex64"),
    ],
)
def test_operator_refuses_by_value(x: Tensor, w: Tensor, options: dict[str, Any], message: str) -> None:
    """Operands that are no product are answered with their shapes or dtypes."""
    with pytest.raises(ValueError, match=message):
        logits(x, w, **options)


def test_operator_keeps_leading_dimensions() -> None:
    """Logits of [2, 3, K] are [2, 3, N], of [K] [N], of no tokens empty, of an empty K zeros, in the dtype asked."""
    x, w = torch.ones(2, 3, 16).bfloat16(), torch.ones(5, 16).bfloat16()
    assert torch.equal(logits(x, w, out_dtype=torch.float32), torch.full((2, 3, 5), 16.0))
    assert logits(x[:0], w).shape == (0, 3, 5)
    assert logits(x[:, :0], w, out_dtype=torch.float32).shape == (2, 0, 5)
    assert torch.equal(logits(x[0, 0], w), torch.full((5,), 16.0).bfloat16())
    for leading in ((2,), (2, 3), (0, 2), ()):
        assert torch.equal(logits(torch.ones(*leading, 0), torch.ones(5, 0)), torch.zeros(*leading, 5))


def test_exports_with_any_number_of_tokens() -> None:
    """A module that calls `logits` exports with T dynamic, and keeps the operator whole."""

    class Gate(torch.nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return logits(x, w, out_dtype=torch.float32)

    t = torch.export.Dim("t", max=4096)
    arguments = (torch.ones(16, 64).bfloat16(), torch.ones(8, 64).bfloat16())
    exported = torch.export.export(Gate(), arguments, dynamic_shapes=({0: t}, {}), strict=False)
    targets = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert targets == ["gemmgate.router_logits.default"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"registers": None}, "registers must be a whole number or a word, got None."),
        ({"registers": 1.5}, "registers must be a whole number or a word, got 1.5."),
        ({"splits": ...}, "The tile has no field 'splits'."),
        ({"block_t": 0}, "block_t must be a whole number from 1 up, got 0."),
    ],
    ids=str,
)
def test_tables_with_other_values_are_refused(changed: dict[str, Any], said: str) -> None:
    """What is no value of a tile, and a field that is missing, are named in a sentence."""
    case = case_of(4, 256, 7168, "bf16", "fp32")
    tile = {**asdict(dot_product.choose_tile(case, H200)), **changed}
    entry = {"implementation": "dot_product", "tile": {name: x for name, x in tile.items() if x is not ...}}
    assert tuned_refusal(dot_product.IMPLEMENTATION, case, H200, "it/dot_product", entry) == ("refused", said)


class _Noting:
    """A kernel that notes what it would be compiled for: constants, and what Triton tells apart of other numbers."""

    def __init__(self) -> None:
        self.binaries: set[tuple[Any, ...]] = set()

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **named: Any) -> None:
            numbers = [value for value in arguments if isinstance(value, int)]
            told = tuple((value == 1, value % 16 == 0) for value in numbers)
            self.binaries.add((told, tuple(sorted(named.items()))))

        return launch


@pytest.mark.parametrize(("module", "name"), [(dot_product, "_dot"), (split_k, "_multiply")])
def test_one_binary_for_rows_anywhere(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Last tokens of sequences of any length compile once, twice where 16 does not divide all of their strides; so do
    tokens that are whole blocks, and that are not.
    """
    kernel = _Noting()
    monkeypatch.setattr(module, name, kernel)
    w, out = torch.ones(32, 256).bfloat16(), torch.ones(1)
    tile = module.choose_tile(case_of(16, 32, 256, "bf16"), H200)

    def compiled(x: Tensor) -> int:
        module.multiply(x, w, None, out, operands.Scratch(out, out), tile)
        return len(kernel.binaries)

    whole = 16 * tile.block_t
    assert {compiled(torch.ones(whole, length, 256).bfloat16()[:, -1]) for length in range(3, 10)} == {1}
    assert {compiled(torch.ones(count * whole, 256).bfloat16()) for count in range(1, 5)} == {2}
    assert {compiled(torch.ones(count * whole - 1, 256).bfloat16()) for count in range(1, 5)} == {3}
    assert {compiled(torch.ones(whole, length, 256).bfloat16()[:, -1]) for length in range(3, 10)} == {3}


# child processes


def in_the_interpreter() -> list[str]:
    """What the second pytest runs, beside this module."""
    return [str(ROOT / "tests" / name) for name in ("interpreted_router.py", "interpreted_tiles.py")]


def test_kernels_in_the_interpreter(interpreted: str) -> None:
    """The tests of interpreted_router.py and interpreted_tiles.py pass."""
    assert " passed" in interpreted


def test_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """Chosen tiles compile for sm_80, sm_90 and sm_100, read operands 16 bytes at a time, and fit shared memory; where
    products are held back, the machine code has the last load before the first of them. A dot product
    asks for its first operand soon: what is known beforehand is not computed. A choice asks for all parts at once, and
    keeps an odd number of experts in registers, too.
    """
    script = str(ROOT / "tests" / "compile_router.py")
    printed = run_child(script, PYTHONPATH=str(ROOT), TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    lines = [json.loads(line) for line in printed.splitlines()]
    compiled = [line for line in lines if "kernel" in line]
    choices = [line for line in lines if "choice" in line]
    held = [line for line in lines if "order" in line]
    assert len(held) >= 6 and all(line["last_load"] < line["first_product"] for line in held), held
    assert {(row["arch"], row["kernel"]) for row in compiled} == {
        (arch, kernel) for arch in (80, 90, 100) for kernel in ("dot_product", "split_k")
    }
    for row in compiled:
        assert row["shared"] <= row["shared_limit"]
        assert row["loads"] >= 2 and row["narrow"] == 0, row
        assert row["kernel"] == "split_k" or row["ahead"] <= 40, row
        assert (row["mma"] > 0) == (row["kernel"] == "split_k"), row
    # Eight experts: a maximum, the first that has it, and with a correction its score. Groups and the sum are shuffled.
    assert {(row["choice"], row["arch"], row["reductions"]) for row in choices} == {
        (model, arch, reductions)
        for model, reductions in (("deepseek-v3", 24), ("qwen3-235b-a22b", 16))
        for arch in (80, 90, 100)
    }
    assert all(row["shuffles"] <= 20 for row in choices), choices
    # 19 parts of 128 or 256 logits, 19 or 40 pieces a thread: all but two are under way before any are added.
    assert all(row["late"] <= 2 for row in choices), choices
    odd = [line for line in lines if "odd" in line]
    assert len(odd) == 2 * 3 and all(row["spills"] == 0 for row in odd), odd
