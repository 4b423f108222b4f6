"""Which of the router's implementations and tiles are chosen, by rule and by tables."""

from __future__ import annotations

from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import pytest
import torch

from gemmgate.kernels import _tuned
from gemmgate.kernels.router import dispatch, dot_product, dot_product_tiles, split_k, tables
from gemmgate.kernels.router.cases import case_of
from gemmgate.suite.cases import Target
from tests.router_gpus import H200


def _tuned_with(monkeypatch: pytest.MonkeyPatch, entries: dict[str, Any], ranges: dict[str, Any]) -> None:
    table = {"profile": "nvidia-h200", "arch": "sm_90", "entries": entries, "ranges": ranges}
    monkeypatch.setattr(_tuned, "_tables", lambda package: (MappingProxyType(table),))


def test_rule_by_tokens() -> None:
    """Without a table: dot products for few tokens, tensor cores up to 65,536 logits, then the library's unrounded
    call; in fp32 dot products up to 128 of few products.
    """
    chosen = {}
    for t in (1, 4, 5, 8, 32, 64, 218, 219, 4096):
        for dtype, out in (("bf16", "fp32"), ("bf16", "bf16"), ("fp32", "fp32")):
            case = case_of(t, 300, 4000, dtype, out)
            chosen[t, dtype, out] = dispatch.choose(case, H200).implementation
    # 8 tokens are 9.6 million products; 218 are 65,400 logits.
    few, some = dict.fromkeys((1, 4, 5, 8), "dot_product"), dict.fromkeys((32, 64, 218), "split_k")
    assert {t: name for (t, d, o), name in chosen.items() if (d, o) == ("bf16", "fp32")} == {
        **few, **some, 219: "mm_out_dtype", 4096: "mm_out_dtype",
    }  # fmt: skip
    assert {t: name for (t, d, o), name in chosen.items() if (d, o) == ("bf16", "bf16")} == {
        **few, **some, 219: "linear", 4096: "linear",
    }  # fmt: skip
    assert {t: name for (t, d, o), name in chosen.items() if d == "fp32"} == {
        **dict.fromkeys((*few, 32, 64), "dot_product"), **dict.fromkeys((218, 219, 4096), "linear"),
    }  # fmt: skip


UNNAMED = Target("sm_90", sm_count=132, shared_bytes=232448, name="another of its kind")


@pytest.mark.parametrize(
    ("t", "n", "k", "name"),
    [
        (2, 896, 7168, "dot_product"),  # 5.88 us on an H200; a second launch makes it 6.75
        (4, 256, 7168, "dot_product"),  # 3.84 and 4.50 us
        (4, 384, 7168, "dot_product"),  # 4.66 and 4.93 us
        (4, 896, 7168, "dot_product"),  # 6.37 and 6.71 us
        (8, 128, 2048, "dot_product"),  # 2.43 and 3.42 us
        (8, 512, 2048, "dot_product"),  # 3.53 and 3.97 us
        (8, 128, 5120, "dot_product"),  # 3.17 and 3.74 us
        (8, 256, 6144, "dot_product"),  # 4.33 and 4.46 us
        (8, 256, 7168, "dot_product"),  # 4.31 and 4.40 us
        (7, 512, 4096, "dot_product"),  # within 4 %
        (9, 512, 4096, "split_k"),  # dot products take 1.17 times as long
        (8, 384, 7168, "split_k"),  # 5.03 and 4.93 us
        (16, 128, 2880, "dot_product"),  # 3.19 and 3.96 us
        (16, 128, 4096, "dot_product"),  # 3.42 and 3.59 us
        (15, 160, 5120, "split_k"),  # dot products take 1.06 times as long
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
        # Fastest of a search on an H200, or within 1 % of it; block_t, block_n, num_warps, unroll, held, registers.
        ((2, 256, 7168), (2, 1, 16, 2, 1, 0)),
        ((2, 256, 6144), (2, 1, 8, 3, 1, 0)),
        ((2, 128, 7168), (2, 1, 8, 4, 1, 0)),
        ((2, 160, 5120), (2, 2, 4, 5, 1, 0)),
        ((4, 128, 2048), (2, 2, 4, 2, 0, 255)),
        ((4, 128, 2880), (2, 2, 4, 3, 0, 255)),
        ((4, 128, 4096), (2, 2, 4, 4, 0, 255)),
        ((4, 128, 7168), (2, 2, 8, 4, 0, 255)),
        ((4, 256, 2048), (2, 2, 4, 2, 0, 255)),
        ((4, 256, 6144), (4, 2, 8, 3, 0, 255)),
        ((4, 512, 2048), (4, 2, 4, 2, 0, 255)),
        ((4, 896, 7168), (4, 2, 4, 7, 0, 0)),
        ((8, 128, 2048), (2, 2, 4, 2, 0, 255)),
        ((8, 128, 2880), (2, 2, 4, 3, 0, 255)),
        ((8, 256, 2048), (4, 2, 4, 2, 0, 255)),
        ((1, 256, 7168), (1, 1, 16, 2, 0, 0)),
        # Not searched: one token at a time, this took 2.05 us with four times the programs, and 2.39 if not held.
        ((1, 16, 5120), (1, 1, 8, 3, 1, 0)),
        # 3.11 us for two tokens; with blocks of four, whose loads wait for products, 4.81 for four.
        ((4, 576, 2160), (2, 2, 2, 5, 0, 200)),
    ],
)
def test_rule_takes_tiles_that_searches_found(shape: tuple[int, int, int], tile: tuple[int, ...]) -> None:
    """Tiles by rule ask for everything before they multiply, in two pieces or more, as the fastest tiles do; from four
    tokens on they do so by the registers that the assembler may take.
    """
    made = asdict(dot_product_tiles._by_rule(case_of(*shape, "bf16", "fp32"), UNNAMED))
    assert tuple(made[name] for name in ("block_t", "block_n", "num_warps", "unroll", "held", "registers")) == tile
    assert made["splits"] == 1


def test_tuned_ranges_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call lies in the first range that reaches it, with that range's tile; beyond the last the rule decides."""
    tile = {"block_t": 8, "block_n": 2, "splits": 1, "num_warps": 4, "unroll": 2, "held": 0}
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


@pytest.mark.parametrize(
    ("t", "n", "k", "name"),
    [
        (32, 768, 6144, "dot_product"),  # 19.8 us by the rule's tile, the library 25.1
        (33, 768, 6144, "linear"),
        (128, 384, 3072, "dot_product"),  # 18.3 us, the library 20.1
        (129, 256, 3072, "linear"),
    ],
)
def test_rule_of_fp32(t: int, n: int, k: int, name: str) -> None:
    """In fp32 dot products serve tokens of few products, as far as an H200 was faster with them."""
    assert dispatch._by_rule(case_of(t, n, k, "fp32", "fp32"), UNNAMED) == name


def test_ranges_say_nothing_of_fewer_tokens_than_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the least T that the first range was measured at the rule decides, however far the range goes."""
    pieces = [{"up_to": 64, "implementation": "linear", "tile": None, "measured": [17, 64]}]
    _tuned_with(monkeypatch, {}, {"n768-k6144-fp32-ieee-row-none": pieces})
    chosen = {t: dispatch.choose(case_of(t, 768, 6144, "fp32", "fp32"), H200) for t in (2, 16, 17, 64, 65)}
    assert {t: choice.why for t, choice in chosen.items()} == {
        2: "rule",
        16: "rule",
        17: "tuned range up to 64",
        64: "tuned range up to 64",
        65: "rule",
    }
    assert chosen[2].implementation == "dot_product"


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
    tile = {"block_t": 1, "block_n": 4, "splits": 2, "num_warps": 2, "unroll": 4, "held": 0}
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
