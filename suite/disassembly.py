"""Compiled kernels as Triton's cache holds them, with their machine code disassembled.

Triton leaves every stage in its cache, for a GPU that is here as for one that is only compiled for. A cache of its
own for each side is therefore all that is needed to look at both.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gemmgate.suite.anatomy import STAGES, Kernel
from gemmgate.suite.errors import CannotMeasureError

_RESOURCES = re.compile(r"Function \S+:\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)


def read_kernels(cache: Path) -> tuple[Kernel, ...]:
    """All kernels of NVIDIA's in a Triton cache, in the order in which they were compiled.

    Where a kernel was compiled more than once, as by a search, the last counts: what was chosen is compiled last.
    Raises `CannotMeasureError` where the disassembler that Triton brings is missing or fails.
    """
    found: dict[str, Kernel] = {}
    for cubin in sorted(cache.rglob("*.cubin"), key=lambda path: (path.stat().st_mtime_ns, path.name)):
        found[cubin.stem] = _kernel(cubin)
    return tuple(found.values())


def _kernel(cubin: Path) -> Kernel:
    metadata: dict[str, Any] = json.loads(cubin.with_suffix(".json").read_text(encoding="utf-8"))
    listing = _disassembled(cubin)
    opcodes = Counter(name.split(".")[0] for name in _INSTRUCTION.findall(listing))
    opcodes.pop("NOP", None)
    used = _RESOURCES.search(listing)
    registers, stack, static, local = map(int, used.groups()) if used else (0, 0, 0, 0)
    facts = {
        "warps": metadata["num_warps"],
        "stages": metadata.get("num_stages", 0),
        "registers": registers,
        "shared bytes": metadata["shared"] + static,
        "stack bytes": stack + local,
        "spill instructions": opcodes["STL"] + opcodes["LDL"],
        "instructions": opcodes.total(),
    }
    stages = {stage: cubin.with_suffix(f".{stage}") for stage in STAGES[:-1]}
    texts = {stage: path.read_text(encoding="utf-8") for stage, path in stages.items() if path.exists()}
    return Kernel(cubin.stem, facts, +opcodes, {**texts, "sass": listing})


def _disassembled(cubin: Path) -> str:
    """Resources and machine code as NVIDIA's tool lists them."""
    triton = find_spec("triton")
    tool = Path(triton.origin or "").parent / "backends/nvidia/bin/cuobjdump" if triton else Path("cuobjdump")
    try:
        done = subprocess.run([tool, "-res-usage", "-sass", cubin], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotMeasureError(
            f"The machine code of {cubin.stem} cannot be read: {error}. Triton for NVIDIA brings cuobjdump; "
            "`nox -s bench` sets up an environment that has it."
        ) from error
    return done.stdout
