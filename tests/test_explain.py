"""Two sides of a kernel: what is compared, what is no difference, and where it comes from."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgate.suite import explain
from gemmgate.suite.anatomy import Difference, Kernel, changed_lines, differences
from gemmgate.suite.disassembly import read_kernels
from gemmgate.suite.errors import UsageError
from gemmgate.suite.store import Store
from tests.called import called
from tests.runs import STACK, row, run

ROOT = Path(__file__).parents[1]
COMPILE = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def double(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at))

signature = {"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}
for block in (128, 1024):
    source = ASTSource(double, signature, constexprs={"BLOCK": block})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
print(made.metadata.shared)
"""


def kernel(name: str = "multiply", registers: int = 32, sass: str = "", **counts: int) -> Kernel:
    """A kernel with little to it."""
    return Kernel(name, {"registers": registers}, counts, {"sass": sass})


def told(before: list[Kernel], after: list[Kernel]) -> dict[str, tuple[str, str]]:
    """What differs, by name."""
    return {one.what: (one.before, one.after) for one in differences(before, after) if not one.is_equal}


def test_facts_and_opcodes_that_differ() -> None:
    """Facts that differ stand on both sides, and opcodes come with the largest change first."""
    old, new = kernel(registers=32, HMMA=8, LDG=4, EXIT=1), kernel(registers=40, HMMA=8, LDG=2, LDGSTS=9, EXIT=1)
    found = told([old], [new])
    assert found == {"registers": ("32", "40"), "LDGSTS": ("0", "9"), "LDG": ("4", "2")}
    assert list(found)[1:] == ["LDGSTS", "LDG"]


def test_kernels_of_one_side_are_named() -> None:
    """A kernel that the other side does not launch is seen in the list of kernels, and compared with nothing."""
    assert told([kernel("a"), kernel("b", 1)], [kernel("a")]) == {"Triton kernels": ("a b", "a")}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  /*0010*/  MOV R1, R2 ;  /* 0x00ff */\n", "  /*0020*/  MOV R1, R2 ;  /* 0x00fe */\n"),
        (
            '#loc = loc("/a/x.py":1:2)\n%0 = tt.load %1 loc(#loc3)',
            '#loc = loc("/b/x.py":9:2)\n%0 = tt.load %1 loc(#loc7)',
        ),
        ('.file 1 "/a"\n.loc 1 2 3\nadd.s32 %r1;', '.file 1 "/b"\n.loc 1 9 3\nadd.s32 %r1;'),
    ],
)
def test_places_are_no_difference(before: str, after: str) -> None:
    """Addresses, encodings, files and lines of the source are not compared."""
    assert changed_lines(before, after) == []


def test_changed_lines_are_shown_in_their_place() -> None:
    """A changed line stands with its sign among its neighbours, also where addresses and encodings are left out."""
    listing = "  /*0010*/  {} ;  /* 0x00ff */\n                   /* 0x00fe */\n  /*0020*/  EXIT ;  /* 0x00fd */\n"
    changed = changed_lines(listing.format("MOV R1, R2"), listing.format("MOV R1, R3"))
    assert [" ".join(line.split()) for line in changed[1:]] == ["- MOV R1, R2 ;", "+ MOV R1, R3 ;", "EXIT ;"]
    assert changed_lines("a\nb\nc", "a\nx\nc") == ["@@ -1,3 +1,3 @@", " a", "-b", "+x", " c"]


def test_stage_counts_lines_of_either_side() -> None:
    """Of each stage the lines that the other side lacks are counted, and equal texts have one digest."""
    found = told([kernel(sass="MOV\nADD\nEXIT")], [kernel(sass="MOV\nEXIT")])
    assert [text.partition(": ")[2] for text in found["sass"]] == ["1 of 3 lines", "0 of 2 lines"]
    assert told([kernel(sass="MOV")], [kernel(sass="MOV  ")]) == {}


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_kernels_are_read_from_the_cache_of_triton(tmp_path: Path) -> None:
    """Of a kernel that was compiled twice the last is read: its stages, registers, and a store for each float."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    script = tmp_path / "double.py"
    script.write_text(COMPILE)
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    (found,) = read_kernels(tmp_path)
    assert found.name == "double"
    assert (found.facts["warps"], found.facts["shared bytes"]) == (4, int(done.stdout))
    assert 8 <= found.facts["registers"] <= 64
    assert found.facts["spill instructions"] == found.facts["stack bytes"] == 0
    assert found.instructions["STG"] == 8  # 1024 floats, by 128 threads, at an address that need not be aligned
    assert found.instructions["EXIT"] >= 1
    assert "tt.store" in found.texts["ttgir"] and "st.global" in found.texts["ptx"]


def test_recorded_rows_side_by_side() -> None:
    """What rows and runs say is compared, what neither says is left out."""
    old, new = row("own", 8e-6, tile={"splits": 8}), row("own", 9.5e-6, tile={"splits": 16}, marks=("throttled",))
    runs = run([old]), run([new], stack=replace(STACK, torch="2.13.0"))
    found = {one.what: (one.before, one.after) for one in explain.recorded(old, new, runs) if not one.is_equal}
    assert found == {
        "us": ("8", "9.5"),
        "tile": ("splits=8", "splits=16"),
        "marks": ("none", "throttled"),
        "torch": ("2.11.0", "2.13.0"),
    }
    assert "workspace bytes" not in {one.what for one in explain.recorded(old, new, runs)}


def test_whole_call() -> None:
    """Tiles, nodes of the graph and resident blocks of two calls are compared."""
    old = explain.Call({"splits": 8}, "", (), ("a",), {"multiply": "4 (by registers)"})
    new = explain.Call({"splits": 8}, "", (), ("a", "b"), {"multiply": "8 (by warps)"})
    assert [one for one in explain.compared(old, new) if not one.is_equal] == [
        Difference("", "graph nodes", "1", "2"),
        Difference("", "nodes", "a", "a b"),
        Difference("multiply", "resident blocks", "4 (by registers)", "8 (by warps)"),
    ]


def test_counters_are_read_or_it_is_said_why_not(tmp_path: Path) -> None:
    """Without a driver, without the profiler and without the right to it, a sentence says which of the three it is."""
    parameters = tmp_path / "params"
    assert "no NVIDIA driver" in explain.counters(parameters=parameters)
    parameters.write_text("RmProfilingAdminOnly: 1\n")
    assert "not installed" in explain.counters(which=lambda name: None, parameters=parameters)
    there = "/usr/bin/ncu"
    assert "administrators" in explain.counters(which=lambda name: there, parameters=parameters, user=1000)
    assert "can be read" in explain.counters(which=lambda name: there, parameters=parameters, user=0)
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    assert "can be read" in explain.counters(which=lambda name: there, parameters=parameters, user=1000)


# the command


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two runs, of which the newer has another tile."""
    store = Store(tmp_path / "results")
    for number, splits in ((1, 8), (2, 16)):
        utc = f"2026-02-0{number}T12:00:00Z"
        with store.begin(run(id=f"2026020{number}T120000Z-0a1b2c3d4e", utc=utc)) as journal:
            journal.append(row("own", number * 1e-5, tile={"splits": splits}, cache="hot", utc=utc))
            journal.append(row("own", number * 2e-5, tile={"splits": splits}, utc=utc))
            journal.finish()
    return store


def test_explain_recorded_runs(store: Store) -> None:
    """Two stored runs are compared by their rows alone, cold ones before others, and as JSON for programs."""
    words = ["20260201T120000Z-0a1b2c3d4e", "latest", "--case", "m32-n32-k32768-bf16", "--impl", "own", "--recorded"]
    result = called("explain", *words, "--results", store.root)
    assert result.exit_code == 0, result.stderr
    assert "splits=16" in result.stdout
    made = json.loads(called("explain", *words, "--format", "json", "--results", store.root).stdout)
    (time,) = (one for one in made["recorded"] if one["what"] == "us")
    assert (time["before"], time["after"]) == ("20", "40")
    assert made["code"] == []


def test_rows_must_be_there(store: Store) -> None:
    """A run without such a row is a usage error that says how to list its rows."""
    side = explain.source("latest", store)
    with pytest.raises(UsageError, match="gemmgate show"):
        explain.recorded_row(side, "", "m32-n32-k32768-bf16", "other")


@pytest.mark.slow
def test_explain_code_of_two_commits(tmp_path: Path) -> None:
    """One commit against itself, compiled for an H100 that is not here, has kernels and no difference."""
    words = ["HEAD", "HEAD", "--case", "m16-n16-k8192-bf16", "--impl", "triton_split_k", "--target", "sm_90"]
    result = called("explain", *words, "--keep", tmp_path / "kept", "--format", "json")
    assert result.exit_code == 0, result.stderr
    code = json.loads(result.stdout)["code"]
    assert [one for one in code if one["before"] != one["after"]] == []
    assert {"registers", "ttgir", "ptx", "sass", "resident blocks", "instructions"} <= {one["what"] for one in code}
    assert len(list((tmp_path / "kept" / "b").glob("*.sass"))) == 2
