"""Compiles `triton_split_k` for GPUs that need not be here, a JSON line each: run in a process of its own."""

from __future__ import annotations

import json
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmgate.kernels._triton import host
from gemmgate.kernels.dense_splitk import triton_split_k as module
from gemmgate.kernels.dense_splitk.cases import FORMATS, case_of
from gemmgate.kernels.dense_splitk.tiling import GROUP
from gemmgate.suite.cases import Case, Target

TARGETS = {80: (108, 166912), 90: (132, 232448), 100: (148, 232448)}
"""Compute capability: multiprocessors, shared bytes of a block."""


def compile_for(kernel: Any, kinds: dict[str, str], constants: dict[str, Any], arch: int, **options: int) -> Any:
    """One kernel with 16-byte aligned pointers and even sizes, as a case has them."""
    signature = {name: "constexpr" if name in constants else kinds.get(name, "i32") for name in kernel.arg_names}
    attributes = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if name not in constants and not name.startswith("tiles_")
    }
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def compile_case(case: Case, arch: int) -> None:
    multiprocessors, shared_bytes = TARGETS[arch]
    tile = module.choose_tile(case, Target(f"sm_{arch}", sm_count=multiprocessors, shared_bytes=shared_bytes))
    pointer = f"*{case.dtype}"
    multiplied = compile_for(
        module._multiply,
        {"a_ptr": pointer, "b_ptr": pointer, "partials_ptr": "*fp32"},
        {
            "stride_ak": 1,
            "stride_bn": 1,
            "units": None,
            "GROUP": GROUP,
            "BM": tile.block_m,
            "BN": tile.block_n,
            "BK": tile.block_k,
            "TF32": case.precision == "tf32",
            "OVERLAP": tile.overlap,
            "INTERPRETED": False,
        },
        arch,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    added = compile_for(
        module._add,
        {"partials_ptr": "*fp32", "out_ptr": pointer},
        {"BLOCK": tile.reduce_block, "AT_ONCE": 16, "OVERLAP": tile.overlap, "INTERPRETED": False},
        arch,
    )
    code = host.device_code(multiplied, added)
    print(
        json.dumps(
            {
                "arch": arch,
                "format": case.name.rsplit("-", 1)[1],
                "shared": max(multiplied.metadata.shared, added.metadata.shared),
                "shared_limit": shared_bytes,
                "code": code,
                "code_length": len(code),
            }
        )
    )


if __name__ == "__main__":
    for arch in TARGETS:
        for dtype, precision in FORMATS:
            for m, n, k in ((16, 16, 8192), (64, 128, 200000)):
                compile_case(case_of(m, n, k, dtype, precision), arch)
