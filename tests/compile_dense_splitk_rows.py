"""Compiles two launches for Hopper where rows are no multiple of 16 elements: a JSON line each."""

from __future__ import annotations

import json
import re
from typing import Any

import torch

from gemmgate.kernels.dense_splitk import triton_split_k, two_launches
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.discipline import plain_problem
from gemmgate.suite.cases import Target
from tests.compile_only import compile_for

SIZES = ((24, 15360), (56, 58368), (24, 40756), (40, 64527))
"""M = N, and K: rows of A begin at 16 bytes in the first two, at 8 and at 2 in the others."""


def widths(kernel: Any) -> dict[str, Any]:
    """Bytes of its copies to shared memory, and how many loads bring a single element."""
    text = kernel.asm["ptx"]
    copies = {int(width, 16) for width in re.findall(r"cp\.async\.c[ag]\.shared\.global .*?, 0x(\w+), ", text)}
    return {"copies": sorted(copies), "element_loads": len(re.findall(r"ld\.global\.b16", text))}


def main() -> None:
    """The multiplying launch of both kernels of two launches."""
    compile_for(90, 232448)
    target = Target("sm_90", sm_count=132, shared_bytes=232448)
    for size, k in SIZES:
        case = case_of(size, size, k, "bf16", "acc32")
        a = torch.empty(size, k, dtype=torch.bfloat16, device="meta")
        b = torch.empty(k, size, dtype=torch.bfloat16, device="meta")
        problem = plain_problem(case, {"a": a, "b": b})
        found = two_launches.DISCIPLINE
        tile = found.choose_tile(case, target)
        first = found.launch(problem, tile, found.scratch(problem, tile))[0]
        print(json.dumps({"name": found.name, "m": size, "k": k, **widths(first)}))
        chosen = triton_split_k.rule(case, target)
        first = triton_split_k._launch(a, b, *triton_split_k._outputs(a, b, chosen.splits), chosen, "acc32")[0]
        print(json.dumps({"name": "triton_split_k", "m": size, "k": k, **widths(first)}))


if __name__ == "__main__":
    main()
