"""`triton_split_k` without a GPU: its choices, refusals, tracing, compilation, and its sums in the interpreter."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gemmgate.kernels.dense_splitk import FAMILY, triton_split_k
from gemmgate.kernels.dense_splitk.cases import sizes
from gemmgate.suite.cases import Case, Target

ROOT = Path(__file__).parent.parent
BY_NAME = {case.name: case for case in FAMILY.cases}
CPU = Target("cpu")
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)


@pytest.mark.parametrize("case", FAMILY.cases[:: len(FAMILY.cases) // 40], ids=lambda case: case.name)
@pytest.mark.parametrize(
    "target",
    [CPU, Target("sm_80", sm_count=108, shared_bytes=166912), H200, Target("sm_120", sm_count=84, shared_bytes=101376)],
    ids=lambda target: target.arch,
)
def test_a_tile_by_rule_fits(target: Target, case: Case) -> None:
    """A tile by rule leaves no range without work, at most one wave of programs (two in fp32), and fits."""
    m, n, k = sizes(case)
    tile = triton_split_k.rule(case, target)
    k_tiles = math.ceil(k / tile.block_k)
    assert (tile.splits - 1) * math.ceil(k_tiles / tile.splits) < k_tiles
    programs = math.ceil(m / tile.block_m) * math.ceil(n / tile.block_n) * tile.splits
    item_bytes = 4 if case.dtype == "fp32" else 2
    assert tile.splits == 1 or programs <= (target.sm_count or 8) * item_bytes // 2
    staged = tile.num_stages * (tile.block_m + tile.block_n) * tile.block_k * item_bytes
    assert staged <= (target.shared_bytes or 49152)


@pytest.mark.parametrize("case", FAMILY.cases[:: len(FAMILY.cases) // 12], ids=lambda case: case.name)
def test_every_tile_of_the_space_is_legal(case: Case) -> None:
    """A search may choose from tiles that all differ, fit, leave no range without work, and cost what they say."""
    m, n, k = sizes(case)
    tiles = triton_split_k.tiles(case, H200)
    assert len({tuple(tile.items()) for tile in map(dict, tiles)}) == len(tiles)
    item_bytes = 4 if case.dtype == "fp32" else 2
    for tile in tiles:
        block_m, block_n, block_k, splits = (int(tile[name]) for name in ("block_m", "block_n", "block_k", "splits"))
        k_tiles = math.ceil(k / block_k)
        assert (splits - 1) * math.ceil(k_tiles / splits) < k_tiles
        rows, columns = math.ceil(m / block_m), math.ceil(n / block_n)
        found = triton_split_k.footprint(case, H200, tile)
        assert (found.programs, found.warps, found.launches) == (rows * columns * splits, tile["num_warps"], 2)
        assert found.shared_bytes == int(tile["num_stages"]) * (block_m + block_n) * block_k * item_bytes <= 232448
        read = (columns * m * k + rows * k * n) * item_bytes
        assert found.bytes_moved == read + m * n * item_bytes + 2 * splits * m * n * 4


def test_the_space_holds_what_was_good() -> None:
    """The space of (32, 32768, 32) has a tile with each of the blocks, ranges and stages that were fast before."""
    tiles = triton_split_k.tiles(BY_NAME["m32-n32-k32768-bf16"], H200)
    fields = ("block_m", "block_n", "block_k", "splits", "num_stages")
    assert (16, 16, 256, 32, 4) in {tuple(tile[name] for name in fields) for tile in tiles}
    assert {tile["num_warps"] for tile in tiles} == {2, 4, 8}
    assert 100 < len(tiles) < 1000


def test_a_tuned_tile_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a table has a tile for the case and device it is chosen; one that does not fit is refused by name."""
    case = BY_NAME["m32-n32-k32768-bf16"]
    tile = dict(triton_split_k.tiles(case, H200)[7])
    asked = []

    def lookup(package: str, key: str, target: Target) -> dict[str, object]:
        asked.append((package, key, target))
        return {"implementation": "triton_split_k", "tile": tile}

    monkeypatch.setattr(triton_split_k._tuned, "lookup", lookup)
    assert triton_split_k.choose_tile(case, H200) == triton_split_k.Tile(**tile)
    assert asked == [("gemmgate.kernels.dense_splitk", "m32-n32-k32768-bf16/triton_split_k", H200)]
    tile |= {"block_k": 4096, "num_stages": 5}
    with pytest.raises(ValueError, match="tuned tile of m32-n32-k32768-bf16 does not fit sm_90"):
        triton_split_k.choose_tile(case, H200)


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
        (torch.ones(2, 3).to_sparse(), torch.ones(3, 2), None, r"a must .*sparse_coo: take a\.to_dense"),
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


def in_the_interpreter() -> list[str]:
    """What the second pytest runs, beside this module."""
    return [str(ROOT / "tests" / "interpreted_dense_splitk.py")]


def test_split_k_in_the_interpreter(interpreted: str) -> None:
    """The tests of interpreted_dense_splitk.py pass."""
    assert " passed" in interpreted


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


COMPILED_TWICE = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from gemmgate.kernels._triton import host
sys.path.insert(0, sys.argv[1])
import here, far_below
kernels = [
    triton.compile(ASTSource(m.add, {"x": "*fp32", "by": "constexpr"}, {"by": by}), target=GPUTarget("cuda", 90, 32))
    for m, by in ((here, 1.0), (far_below, 1.0), (here, 2.0))
]
print(json.dumps([[hash(kernel.kernel), host.device_code(kernel)] for kernel in kernels]))
"""


def test_device_code_ignores_where_the_source_lies(tmp_path: Path) -> None:
    """One kernel from two files and lines gives two binaries of one hash; another constant gives another hash."""
    source = (
        "import triton\nimport triton.language as tl\n\n"
        "@triton.jit\ndef add(x, by: tl.constexpr):\n    tl.store(x, tl.load(x) + by)\n"
    )
    (tmp_path / "here.py").write_text(source)
    (tmp_path / "far_below.py").write_text("\n" * 40 + source)
    printed = run_child(
        "-c", COMPILED_TWICE, str(tmp_path), TRITON_CACHE_DIR=str(tmp_path / "cache"), TRITON_INTERPRET="0"
    )
    (binary, code), (moved_binary, moved_code), (_, other_code) = json.loads(printed)
    assert binary != moved_binary
    assert code == moved_code != other_code
