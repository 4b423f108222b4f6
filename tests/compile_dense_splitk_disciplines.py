"""Compiles the disciplines of splitting K for GPUs that need not be here, a JSON line each: a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton

from gemmgate.kernels.dense_splitk import atomic_fp32
from gemmgate.kernels.dense_splitk.cases import FORMATS, case_of
from gemmgate.kernels.dense_splitk.discipline import plain_problem
from gemmgate.kernels.dense_splitk.tiling import Tile, shared_bytes
from gemmgate.suite.cases import Case, Target
from tests.compile_only import compile_for
from tests.gemm_layouts import DTYPE
from tests.splitk_checks import NAMES, discipline

TARGETS = {
    80: (108, 166912), 86: (84, 101376), 87: (16, 166912), 89: (128, 101376), 90: (132, 232448),
    100: (148, 232448), 103: (148, 232448), 110: (20, 232448), 120: (84, 101376),
}  # fmt: skip
"""Compute capability: multiprocessors, shared bytes of a block."""
WORDS = (
    "wgmma", "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "add.v4.f32", "cp.async.cg", "griddepcontrol.wait",
)  # fmt: skip
_CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def spilled_bytes(binary: bytes) -> int:
    """Local memory of a thread, which a kernel without local arrays has only from spills."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        said = subprocess.run([_CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True)
    return sum(int(size) for size in re.findall(r"(?:STACK|LOCAL):(\d+)", said.stdout + said.stderr))


def clears_early(ttgir: str) -> bool:
    """Whether sums are put back to zero with no barrier after they were read: other threads may yet read them."""
    is_read = False
    for line in ttgir.splitlines():
        if "tt.load" in line and "xf32>" not in line and "!tt.ptr<f32>" in line and "= cg" in line:
            is_read = True
        elif "barrier" in line:
            is_read = False
        elif is_read and "tt.store" in line and "!tt.ptr<f32>" in line and ", %cst" in line:
            return True
    return False


def compile_case(name: str, case: Case, arch: int, tile: Tile | None = None) -> dict[str, Any]:
    multiprocessors, limit = TARGETS[arch]
    target = Target(f"sm_{arch}", sm_count=multiprocessors, shared_bytes=limit)
    found = discipline(name)
    chosen = tile or found.choose_tile(case, target)
    m, n, k = (case.dims[dim] for dim in "mnk")
    dtype = DTYPE[case.dtype]
    inputs = {"a": torch.empty(m, k, dtype=dtype, device="meta"), "b": torch.empty(k, n, dtype=dtype, device="meta")}
    made = plain_problem(case, inputs)
    compile_for(arch, limit)
    launched = found.launch(made, chosen, found.scratch(made, chosen))
    text = "".join(kernel.asm["ptx"] for kernel in launched)
    return {
        "name": name,
        "arch": arch,
        "case": case.name,
        "shared": max(kernel.metadata.shared for kernel in launched),
        "said": shared_bytes(case, chosen),
        "limit": limit,
        "spilled": sum(spilled_bytes(kernel.asm["cubin"]) for kernel in launched),
        "has": [word for word in WORDS if word in text],
        "descriptors": sum(str(kind).startswith("tensordesc") for kind in launched[0].src.signature.values()),
        "clears_early": any(clears_early(kernel.asm["ttgir"]) for kernel in launched),
        "cooperative": launched[0].metadata.launch_cooperative_grid,
    }


SLICED = Tile(32, 32, 128, 132, 4, 4, 4)
"""A block that each warp has a slice of K for: its sums are read in another order than they are added."""
HOPPER_TMA = Tile(64, 64, 128, 33, 4, 4, 1, "tma")
BULK = (
    atomic_fp32.Tile(256, 64, 64, 33, 4, 4, 1, "tma", overlap=True, adds="bulk"),
    atomic_fp32.Tile(128, 256, 64, 66, 8, 4, 1, "tma", overlap=True, adds="bulk"),
    atomic_fp32.Tile(128, 128, 64, 33, 8, 5, 1, "pointers", overlap=True, adds="bulk"),
)
"""Of the tiles for large C that a search may choose, some of the largest."""


def main() -> None:
    """The loop for every GPU; every discipline for Hopper, in each format and by descriptors, and for Blackwell."""
    plain = case_of(64, 64, 8192, "bf16", "acc32")
    for arch in TARGETS:
        print(json.dumps(compile_case("last_arrival", plain, arch)))
    for name in sys.argv[1:] or NAMES:
        formats = [each for each in FORMATS if each[0] == "fp32" or name != "atomic_out"]
        for dtype, precision in formats[:: 1 if name == "grid_barrier" else 3]:
            print(json.dumps(compile_case(name, case_of(64, 64, 8192, dtype, precision), 90)))
        print(json.dumps(compile_case(name, case_of(64, 64, 8192, *formats[0]), 100)))
        if name in ("atomic_arrival", "atomic_fp32"):
            sliced = compile_case(name, case_of(32, 32, 32768, *formats[0]), 90, SLICED)
            print(json.dumps({**sliced, "tile": "sliced"}))
        if name in ("last_arrival", "grid_barrier", "atomic_arrival"):
            print(json.dumps({**compile_case(name, plain, 90, HOPPER_TMA), "tile": "tma"}))
        for bulk in BULK if name == "atomic_fp32" else ():
            large = case_of(256, 256, 65536, "bf16", "acc32")
            print(json.dumps({**compile_case(name, large, 90, bulk), "tile": f"bulk {bulk.loads}"}))


if __name__ == "__main__":
    main()
