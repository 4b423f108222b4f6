"""The router's kernels without a GPU: choices, refusals, tracing, compilation, and their sums in the interpreter."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor

from gemmgate.kernels import _tuned
from gemmgate.kernels.router import FAMILY, dispatch, dot_product, logits, split_k, tables
from gemmgate.kernels.router.cases import ITEM_BYTES, case_of, sizes
from gemmgate.kernels.router.inputs import TORCH_DTYPE
from gemmgate.suite.cases import Case, Target
from tests.test_dense_splitk_triton import run_child

ROOT = Path(__file__).parent.parent
CPU = Target("cpu")
H200 = Target("sm_90", name="NVIDIA H200", sm_count=132, shared_bytes=232448)
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
        assert dot_product._by_rule(case, target).splits == 1


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


def test_footprint_by_hand() -> None:
    """Eight tokens, 256 experts, K = 7168 in bf16, two experts a program, K in four parts: each program reads what it
    takes of x and w, and the parts are written in fp32, and read by a second launch.
    """
    case = case_of(8, 256, 7168, "bf16", "fp32")
    tile = {"block_t": 8, "block_n": 2, "splits": 4, "num_warps": 4, "unroll": 2, "strong": 1, "overlap": 1}
    footprint = dot_product.footprint(case, H200, tile)
    assert (footprint.programs, footprint.launches) == (128 * 4, 2)
    assert footprint.bytes_moved == 256 * 7168 * 2 + 128 * 8 * 7168 * 2 + 8 * 256 * 4 + 2 * 4 * 8 * 256 * 4


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: dot_product.Tile(3, 1, 1, 4, 1), "powers of two"),
        (lambda: dot_product.Tile(4, 1, 0, 4, 1), "at least 1"),
        (lambda: dot_product.Tile(4, 1, 1, 4, 1, strong=3), "strong must be 0, 1 or 2"),
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
    single = case_of(8, 256, 3072, "fp32")
    found = [
        (dot_product.supports(many, H200) or ("", ""))[0],
        (dot_product.supports(few, CPU) or ("", ""))[0],
        (split_k.supports(single, H200) or ("", ""))[0],
        (split_k.supports(few, turing) or ("", ""))[0],
        dot_product.supports(single, turing),
        split_k.supports(many, H200),
    ]
    assert found == ["too_many_tokens", "interpreter_only", "ieee_fp32", "needs_sm_80", None, None]


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


def test_fp16_is_not_held_back() -> None:
    """A space has tiles that hold products back in bf16 and fp32, and none in fp16, which would not."""
    held = {
        dtype: any(tile["strong"] == dot_product.HELD for tile in dot_product.tiles(case_of(4, 256, 4096, dtype), H200))
        for dtype in ("bf16", "fp16", "fp32")
    }
    assert held == {"bf16": True, "fp16": False, "fp32": True}


# dispatch


def _tuned_with(monkeypatch: pytest.MonkeyPatch, entries: dict[str, Any], ranges: dict[str, Any]) -> None:
    table = {"profile": "nvidia-h200", "arch": "sm_90", "entries": entries, "ranges": ranges}
    monkeypatch.setattr(_tuned, "_tables", lambda package: (MappingProxyType(table),))


def test_rule_by_tokens() -> None:
    """Without a table: dot products for few tokens, tensor cores up to 65,536 logits, then the library's unrounded
    call.
    """
    chosen = {}
    for t in (1, 4, 5, 8, 64, 218, 219, 4096):
        for dtype, out in (("bf16", "fp32"), ("bf16", "bf16"), ("fp32", "fp32")):
            case = case_of(t, 300, 4000, dtype, out)
            chosen[t, dtype, out] = dispatch.choose(case, H200).implementation
    # 5 tokens are 6 million products; 218 are 65,400 logits.
    few, some = dict.fromkeys((1, 4, 5), "dot_product"), dict.fromkeys((8, 64, 218), "split_k")
    assert {t: name for (t, d, o), name in chosen.items() if (d, o) == ("bf16", "fp32")} == {
        **few, **some, 219: "mm_out_dtype", 4096: "mm_out_dtype",
    }  # fmt: skip
    assert {t: name for (t, d, o), name in chosen.items() if (d, o) == ("bf16", "bf16")} == {
        **few, **some, 219: "linear", 4096: "linear",
    }  # fmt: skip
    assert {t: name for (t, d, o), name in chosen.items() if d == "fp32"} == {
        **few, 8: "dot_product", **dict.fromkeys((64, 218, 219, 4096), "linear"),
    }  # fmt: skip


UNNAMED = Target("sm_90", sm_count=132, shared_bytes=232448, name="another of its kind")


@pytest.mark.parametrize(
    ("t", "n", "k", "name"),
    [
        (2, 896, 7168, "dot_product"),  # 5.88 us on an H200; a second launch makes it 6.75
        (4, 256, 7168, "dot_product"),  # 3.84 and 4.50 us
        (4, 384, 7168, "dot_product"),  # 4.66 and 4.93 us
        (4, 896, 7168, "split_k"),  # 7.10 and 6.80 us
        (8, 128, 2048, "dot_product"),  # 2.43 and 3.42 us
        (8, 512, 2048, "dot_product"),  # 3.53 and 3.97 us
        (8, 128, 5120, "dot_product"),  # 3.17 and 3.74 us
        (8, 256, 6144, "dot_product"),  # 4.33 and 4.46 us
        (8, 256, 7168, "split_k"),  # 5.03 and 4.51 us
        (8, 512, 4096, "split_k"),  # 4.85 and 4.60 us
        (8, 576, 2160, "split_k"),  # 4.25 us, and dot products 4.81 for half as many tokens
        (16, 128, 2880, "dot_product"),  # 3.19 and 3.96 us
        (16, 128, 4096, "split_k"),  # 4.12 and 3.73 us
        (17, 16, 5120, "split_k"),  # 3.47 us at 64 tokens, where dot products were never timed
        (64, 896, 7168, "split_k"),  # 9.25 us, the library 9.92
        (128, 384, 7168, "split_k"),  # 8.06 us, the library 11.6
        (128, 896, 7168, "mm_out_dtype"),  # 12.2 us, as tensor cores
        (256, 128, 2048, "split_k"),  # 5.16 us, the library 5.70
        (256, 256, 2048, "mm_out_dtype"),  # 5.86 us, tensor cores 6.11
        (256, 256, 7168, "split_k"),  # 8.34 us, the library 9.32
        (256, 384, 7168, "mm_out_dtype"),  # 8.98 us, tensor cores 10.6
        (1024, 32, 2880, "split_k"),  # 5.93 us, the library 7.86
        (4096, 32, 2880, "mm_out_dtype"),  # 6.84 us, tensor cores 9.51
        (129, 256, 2048, "split_k"),  # 5.13 us, the library 5.70
        (512, 128, 2880, "split_k"),  # 6.50 us, the library 8.08
        (513, 128, 7168, "mm_out_dtype"),  # 9.16 us, tensor cores 10.1
        (2048, 32, 2880, "split_k"),  # 7.61 us, the library 8.01
        (4096, 8, 4096, "split_k"),  # 8.85 us, the library 9.71
    ],
)
def test_rule_is_what_was_measured(t: int, n: int, k: int, name: str) -> None:
    """The rule takes what runs and searches on an H200 found to be faster."""
    assert dispatch._by_rule(case_of(t, n, k, "bf16", "fp32"), UNNAMED) == name


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        # Fastest of a search on an H200, or within 1 % of it; block_t, block_n, num_warps, unroll, strong.
        ((2, 256, 7168), (2, 1, 16, 2, 2)),
        ((2, 256, 6144), (2, 1, 8, 3, 2)),
        ((2, 128, 7168), (2, 1, 8, 4, 2)),
        ((2, 160, 5120), (2, 2, 4, 5, 2)),
        ((4, 128, 2048), (2, 2, 4, 2, 2)),
        ((4, 128, 2880), (2, 2, 4, 3, 2)),
        ((4, 128, 4096), (2, 2, 4, 4, 2)),
        ((4, 128, 7168), (2, 2, 8, 4, 2)),
        ((4, 256, 2048), (2, 2, 4, 2, 2)),
        ((4, 256, 6144), (4, 2, 8, 3, 2)),
        ((4, 512, 2048), (4, 2, 4, 2, 2)),
        ((4, 896, 7168), (4, 2, 4, 7, 0)),
        ((8, 128, 2048), (2, 2, 4, 2, 2)),
        ((8, 128, 2880), (2, 2, 4, 3, 2)),
        ((8, 256, 2048), (4, 2, 4, 2, 2)),
        ((1, 256, 7168), (1, 1, 16, 2, 0)),
        # Not searched: one token at a time, this took 2.05 us with four times the programs, and 2.39 without 2.
        ((1, 16, 5120), (1, 1, 8, 3, 2)),
        # 3.11 us for two tokens; with blocks of four, whose loads wait for products, 4.81 for four.
        ((4, 576, 2160), (2, 2, 2, 5, 2)),
    ],
)
def test_rule_takes_tiles_that_searches_found(shape: tuple[int, int, int], tile: tuple[int, ...]) -> None:
    """Tiles by rule ask for everything before they multiply, in two pieces or more, as the fastest tiles do."""
    made = asdict(dot_product._by_rule(case_of(*shape, "bf16", "fp32"), UNNAMED))
    assert tuple(made[name] for name in ("block_t", "block_n", "num_warps", "unroll", "strong")) == tile
    assert made["splits"] == 1


def test_tuned_ranges_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call lies in the first range that reaches it, with that range's tile; beyond the last the rule decides."""
    tile = {"block_t": 8, "block_n": 2, "splits": 1, "num_warps": 4, "unroll": 2, "strong": 1}
    pieces = [
        {"up_to": 7, "implementation": "dot_product", "tile": tile},
        {"up_to": 128, "implementation": "decompose_k_8", "tile": {"splits": 8}},
    ]
    entries = {"t3-n256-k7168-bf16-to-float": {"implementation": "linear_float"}}
    _tuned_with(monkeypatch, entries, {"n256-k7168-bf16-acc32-row-out_fp32": pieces})
    found = {}
    for t in (3, 7, 8, 257):
        choice = dispatch.choose(case_of(t, 256, 7168, "bf16", "fp32"), H200)
        found[t] = (choice.implementation, choice.tile and dict(choice.tile), choice.why)
    assert found == {
        3: ("dot_product", tile, "tuned range up to 7"),
        7: ("dot_product", tile, "tuned range up to 7"),
        8: ("decompose_k_8", {"splits": 8}, "tuned range up to 128"),
        257: ("mm_out_dtype", None, "rule"),
    }
    assert dispatch.choose(case_of(3, 256, 7168, "bf16", "bf16"), H200).why == "rule"


def test_tuned_cases_come_before_what_a_range_assumes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a range goes on beyond the T that were measured for it, a case that was tuned itself knows better; the next
    larger tuned T does not.
    """
    pieces = [
        {"up_to": 100, "implementation": "dot_product", "tile": None, "measured": [2, 64]},
        {"up_to": 256, "implementation": "linear", "tile": None, "measured": [256, 256]},
    ]
    tile = asdict(split_k.Tile(8, 16, 128, 8, 4, 1, 4, 4, 1))
    names = [f"deepseek-v3-t{t}-bf16" for t in (1, 32, 128)]
    _tuned_with(
        monkeypatch,
        {key: {"implementation": "split_k", "tile": tile} for key in names},
        {"n256-k7168-bf16-acc32-row-out_fp32": pieces},
    )
    why = {t: dispatch.choose(case_of(t, 256, 7168, "bf16", "fp32"), H200).why for t in (1, 31, 32, 64, 127, 128, 129)}
    low, high = "tuned range up to 100", "tuned range up to 256"
    assert why == {
        1: f"tuned for {names[0]}",
        31: low,
        32: low,
        64: low,
        127: high,
        128: f"tuned for {names[2]}",
        129: high,
    }


def test_next_larger_tuned_case_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no range was tuned, a call takes what was best for its model at its own T or the next larger one, up to
    the next power of two, whatever the case is called; an unrounded call stands for `linear_float`, at its own T alone.
    """
    tile = asdict(split_k.Tile(8, 16, 128, 8, 4, 1, 4, 4, 1))
    entries = {
        "deepseek-v3-t8-bf16": {"implementation": "split_k", "tile": tile},
        "deepseek-v3-t16-bf16": {"implementation": "linear_float", "tile": None},
    }
    _tuned_with(monkeypatch, entries, {})
    found = {}
    for t in (4, 5, 8, 9, 16, 17):
        choice = dispatch.choose(case_of(t, 256, 7168, "bf16", "fp32"), H200)
        found[t] = (choice.implementation, choice.why)
    split, library = ("split_k", "tuned for deepseek-v3-t8-bf16"), ("mm_out_dtype", "tuned for deepseek-v3-t16-bf16")
    assert found == {
        4: ("dot_product", "rule"), 5: split, 8: split, 9: ("split_k", "rule"), 16: library, 17: ("split_k", "rule"),
    }  # fmt: skip


def test_shapes_of_a_model_share_its_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that has DeepSeek-V3's sizes and dtypes takes the tile tuned for the model, whatever it is called; the
    next larger T that was tuned serves, up to the next power of two.
    """
    tile = {"block_t": 1, "block_n": 4, "splits": 2, "num_warps": 2, "unroll": 4, "strong": 0}
    _tuned_with(monkeypatch, {"deepseek-v3-t1-bf16/dot_product": {"implementation": "dot_product", "tile": tile}}, {})
    assert dot_product.choose_tile(case_of(1, 256, 7168, "bf16", "fp32"), H200) == dot_product.Tile(**tile)
    assert dot_product.choose_tile(case_of(2, 256, 7168, "bf16", "fp32"), H200) != dot_product.Tile(**tile)
    _tuned_with(monkeypatch, {"deepseek-v3-t8-bf16/dot_product": {"implementation": "dot_product", "tile": tile}}, {})
    chosen = {t: dot_product.choose_tile(case_of(t, 256, 7168, "bf16", "fp32"), H200) for t in (3, 5, 8, 9)}
    assert [t for t, one in chosen.items() if one == dot_product.Tile(**tile)] == [5, 8]
    assert tables.tuned_tile("dot_product", case_of(1, 256, 7168, "bf16", "bf16"), H200) is None


@pytest.mark.parametrize(("name", "splits"), [("decompose_k_best", 8), ("decompose_k_4", 4)])
def test_operator_decomposes_as_its_table_says(name: str, splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range may name decompose-K without parts: its name or the default says how many the operator makes."""
    table = {"profile": "cpu", "arch": "cpu", "entries": {}, "ranges": {}}
    table["ranges"] = {"n16-k1024-fp32-ieee-row-none": [{"up_to": 9, "implementation": name, "tile": None}]}
    monkeypatch.setattr(_tuned, "_tables", lambda package: (MappingProxyType(table),))
    dispatch._chosen.cache_clear()
    chosen = dispatch._chosen(9, 16, 1024, torch.float32, torch.float32, False, True, torch.device("cpu"))
    dispatch._chosen.cache_clear()
    assert chosen.keywords == {"splits": splits}  # type: ignore[attr-defined]
    x, w = torch.eye(9, 1024), torch.arange(16.0 * 1024).view(16, 1024)
    assert torch.equal(chosen(x, w, None, torch.float32), w[:, :9].t())


def test_rivals_of_the_dispatch() -> None:
    """Ranges by hand take the tile of their upper end; the single choice has one tile for all T."""
    hand = {t: dispatch.hand_choice(case_of(t, 256, 7168, "bf16", "fp32"), H200) for t in (1, 2, 128, 129, 513)}
    names = [choice.implementation for choice in hand.values()]
    assert names == ["dot_product", "split_k", "split_k", "decompose_k_best", "mm_out_dtype"]
    assert hand[2].tile == hand[128].tile
    single = {t: dispatch.single_choice(case_of(t, 256, 7168, "bf16", "fp32"), H200) for t in (1, 4096)}
    assert single[1] == single[4096]
    assert single[1].implementation == "split_k"


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        (torch.ones(2, 3), torch.ones(4, 2), {}, r"\(2, 3\) and \(4, 2\)"),
        (torch.ones(2, 3), torch.ones(4, 3).half(), {}, r"torch\.float16.*Cast one"),
        (torch.ones(2, 3).double(), torch.ones(4, 3).double(), {}, "torch.float64"),
        (torch.ones(2, 3), torch.ones(4, 3), {"out_dtype": torch.float16}, "not torch.float16"),
        (torch.ones(2, 3), torch.ones(4, 3), {"bias": torch.ones(3)}, r"must be \[4\]"),
    ],
)
def test_operator_refuses_by_value(x: Tensor, w: Tensor, options: dict[str, Any], message: str) -> None:
    """Operands that are no product are answered with their shapes or dtypes."""
    with pytest.raises(ValueError, match=message):
        logits(x, w, **options)


def test_operator_keeps_leading_dimensions() -> None:
    """Logits of [2, 3, K] are [2, 3, N], those of no tokens empty, and their dtype is what was asked for."""
    x, w = torch.ones(2, 3, 16).bfloat16(), torch.ones(5, 16).bfloat16()
    assert torch.equal(logits(x, w, out_dtype=torch.float32), torch.full((2, 3, 5), 16.0))
    assert logits(x[:0], w).shape == (0, 3, 5)
    assert logits(x[:, :0], w, out_dtype=torch.float32).shape == (2, 0, 5)
    assert torch.equal(logits(torch.ones(2, 0), torch.ones(3, 0)), torch.zeros(2, 3))


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


# child processes


def in_the_interpreter() -> list[str]:
    """What the second pytest runs, beside this module."""
    return [str(ROOT / "tests" / "interpreted_router.py")]


def test_kernels_in_the_interpreter(interpreted: str) -> None:
    """The tests of interpreted_router.py pass."""
    assert " passed" in interpreted


def test_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """Chosen tiles compile for sm_80, sm_90 and sm_100, read operands 16 bytes at a time, and fit shared memory; where
    products are held back, the machine code has the last load before the first of them.
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
        assert (row["mma"] > 0) == (row["kernel"] == "split_k"), row
    # Eight experts: a maximum, the first that has it, and with a correction its score. Groups and the sum are shuffled.
    assert {(row["choice"], row["arch"], row["reductions"]) for row in choices} == {
        (model, arch, reductions)
        for model, reductions in (("deepseek-v3", 24), ("qwen3-235b-a22b", 16))
        for arch in (80, 90, 100)
    }
    assert all(row["shuffles"] <= 20 for row in choices), choices
