"""Compiles the router's kernels for GPUs that need not be here, a JSON line each: run in a process of its own."""

from __future__ import annotations

import json
import re
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmgate.kernels.router import dot_product, split_k
from gemmgate.kernels.router.cases import case_of
from gemmgate.suite.cases import Case, Target

TARGETS = {80: (108, 166912), 90: (132, 232448), 100: (148, 232448)}
"""Compute capability: multiprocessors, shared bytes of a block."""
COMMON = {"partials_ptr": "*fp32", "counters_ptr": "*i32"}


def compile_for(kernel: Any, kinds: dict[str, str], constants: dict[str, Any], arch: int, **options: int) -> Any:
    """One kernel with 16-byte aligned pointers and sizes, as models have them, but for the number of tokens."""
    signature = {name: "constexpr" if name in constants else kinds.get(name, "i32") for name in kernel.arg_names}
    attributes = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if name not in constants and name not in ("T", "tiles_per_split")
    }
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def _said(kernel: str, case: Case, arch: int, compiled: Any) -> None:
    print(
        json.dumps(
            {
                "kernel": kernel,
                "case": case.name,
                "arch": arch,
                "shared": compiled.metadata.shared,
                "shared_limit": TARGETS[arch][1],
                "loads": len(re.findall(r"ld\.(?:volatile\.)?global\S*\.v4\.b32|cp\.async\.cg", compiled.asm["ptx"])),
                "narrow": len(re.findall(r"ld\.(?:volatile\.)?global\S*\.b16|cp\.async\.ca", compiled.asm["ptx"])),
                "mma": len(re.findall(r"(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)", compiled.asm["ptx"])),
            }
        )
    )


def compile_dot(case: Case, arch: int) -> None:
    tile = dot_product.choose_tile(case, _target(arch))
    each = 4 if case.dtype == "fp32" else 8
    pointer = f"*{case.dtype}"
    compiled = compile_for(
        dot_product._dot,
        {"x_ptr": pointer, "w_ptr": pointer, "bias_ptr": pointer, "out_ptr": "*fp32", **COMMON},
        {
            "BT": tile.block_t,
            "BN": tile.block_n,
            "LANES": 32 * tile.num_warps,
            "EACH": each,
            "UNROLL": tile.unroll,
            "X_AHEAD": True,
            "STRONG": tile.strong == 1,
            "SPLITS": tile.splits,
            "AT_ONCE": tile.splits,
            "OVERLAP": tile.overlap == 1,
            "HAS_BIAS": False,
            "INTERPRETED": False,
        },
        arch,
        num_warps=tile.num_warps,
    )
    _said("dot_product", case, arch, compiled)


def compile_split(case: Case, arch: int) -> None:
    tile = split_k.choose_tile(case, _target(arch))
    pointer = f"*{case.dtype}"
    compiled = compile_for(
        split_k._multiply,
        {"x_ptr": pointer, "w_ptr": pointer, "bias_ptr": pointer, "out_ptr": "*fp32", **COMMON},
        {
            "BT": tile.block_t,
            "BN": tile.block_n,
            "BK": tile.block_k // tile.groups,
            "GROUPS": tile.groups,
            "SWAP": tile.swap == 1,
            "SPLITS": tile.splits,
            "AT_ONCE": tile.splits,
            "OVERLAP": tile.overlap == 1,
            "HAS_BIAS": False,
            "INTERPRETED": False,
        },
        arch,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    _said("split_k", case, arch, compiled)


def _target(arch: int) -> Target:
    multiprocessors, shared_bytes = TARGETS[arch]
    return Target(f"sm_{arch}", sm_count=multiprocessors, shared_bytes=shared_bytes)


if __name__ == "__main__":
    for arch in TARGETS:
        compile_dot(case_of(1, 256, 7168, "bf16", "fp32"), arch)
        compile_dot(case_of(8, 8, 4096, "bf16", "fp32"), arch)
        compile_dot(case_of(4, 256, 3072, "fp32"), arch)
        compile_split(case_of(8, 256, 7168, "bf16", "fp32"), arch)
        compile_split(case_of(512, 256, 7168, "bf16", "fp32"), arch)
