"""Compiles the router's kernels for GPUs that need not be here, a JSON line each: run in a process of its own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmgate.kernels.router import dot_product, split_k
from gemmgate.kernels.router.binding import OVERLAP_CAPABILITY
from gemmgate.kernels.router.cases import case_of, sizes
from gemmgate.kernels.router_topk import fused
from gemmgate.kernels.router_topk.cases import MODELS, Rule
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
                "ahead": _ahead_of_loads(compiled.asm["sass"]),
                "mma": len(re.findall(r"(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)", compiled.asm["ptx"])),
            }
        )
    )


def _ahead_of_loads(sass: str) -> int:
    """Instructions in front of the first load."""
    code = re.findall(r"\t(?:@!?U?P\d+ )?([A-Z][A-Z0-9_.]+)", sass)
    return next(index for index, name in enumerate(code) if name.startswith("LDG"))


def _said_order(case: Case, arch: int, compiled: Any) -> None:
    """Where in the machine code the last load of an operand and the first product stand."""
    code = re.findall(r"\b(LDG\.E\.128|FMUL2?|FFMA2?)\b", compiled.asm["sass"])
    last_load = max(index for index, name in enumerate(code) if name.startswith("LDG"))
    first_product = next(index for index, name in enumerate(code) if not name.startswith("LDG"))
    print(json.dumps({"order": case.name, "arch": arch, "last_load": last_load, "first_product": first_product}))


def compile_dot(case: Case, arch: int, held: int | None = None) -> None:
    tile = dot_product.choose_tile(case, _target(arch))
    tile = tile if held is None else replace(tile, held=held)
    is_held = tile.held == 1
    in_pairs = is_held and case.dtype == "bf16"
    each = 4 if case.dtype == "fp32" or in_pairs else 8
    (t, n, k), ratio = sizes(case), 2 if in_pairs else 1
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
            **_sizes(t, n, k // ratio, tile.block_t),
            "ONE_BLOCK": t <= tile.block_t,
            "UNIT": 1,
            "X_AHEAD": True,
            "HELD": is_held,
            "PAIRS": in_pairs,
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
    if is_held:
        _said_order(case, arch, compiled)


def compile_split(case: Case, arch: int) -> None:
    tile = split_k.choose_tile(case, _target(arch))
    pointer = f"*{case.dtype}"
    compiled = compile_for(
        split_k._multiply,
        {"x_ptr": pointer, "w_ptr": pointer, "bias_ptr": pointer, "out_ptr": "*fp32", **COMMON},
        {
            **_sizes(*sizes(case), tile.block_t),
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


def compile_choice(model: str, arch: int) -> None:
    """The choice for one token: by how many steps over a warp it goes, and how many loads come after an addition."""
    _, _, experts, rule, _ = next(known for known in MODELS if known.name == model)
    compiled = _choice(experts, rule, 19, arch)
    code = re.findall(r"\b(LDG|FADD)\b", compiled.asm["sass"])
    late = code[code.index("FADD") :].count("LDG")
    reductions, shuffles = (len(re.findall(name, compiled.asm["ptx"])) for name in (r"redux\.sync", r"shfl\.sync"))
    print(json.dumps({"choice": model, "arch": arch, "reductions": reductions, "shuffles": shuffles, "late": late}))


def compile_odd_choice(experts: int, parts: int, arch: int) -> None:
    """How often a thread's numbers go to memory and back."""
    compiled = _choice(experts, Rule("sigmoid", 8, corrected=True), parts, arch)
    print(json.dumps({"odd": experts, "arch": arch, "spills": len(re.findall(r"\b(LDL|STL)\b", compiled.asm["sass"]))}))


def _choice(experts: int, rule: Rule, parts: int, arch: int) -> Any:
    return compile_for(
        fused._choose,
        {"parts_ptr": "*fp32", "correction_ptr": "*fp32", "weights_ptr": "*fp32", "ids_ptr": "*i32", "scale": "fp32"},
        {
            "N": experts,
            "SPLITS": parts,
            "AT_ONCE": fused.AT_ONCE,
            "OVERLAP": arch >= OVERLAP_CAPABILITY,
            **fused._rule_constants(rule, experts),
        },
        arch,
        num_warps=fused.WARPS,
        maxnreg=fused.REGISTERS,
    )


def _sizes(t: int, n: int, k: int, block_t: int) -> dict[str, int]:
    """Constants of contiguous operands; K and the strides in elements or in pairs of them."""
    return {"N": n, "K": k, "STRIDE_WN": k, "PACKED": True, "WHOLE": t % block_t == 0}


def _target(arch: int) -> Target:
    multiprocessors, shared_bytes = TARGETS[arch]
    return Target(f"sm_{arch}", sm_count=multiprocessors, shared_bytes=shared_bytes)


if __name__ == "__main__":
    for arch in TARGETS:
        compile_dot(case_of(1, 256, 7168, "bf16", "fp32"), arch)
        compile_dot(case_of(8, 8, 4096, "bf16", "fp32"), arch)
        compile_dot(case_of(4, 256, 3072, "fp32"), arch)
        for held in (case_of(4, 256, 7168, "bf16", "fp32"), case_of(8, 256, 3072, "fp32")):
            compile_dot(held, arch, held=1)
        compile_split(case_of(8, 256, 7168, "bf16", "fp32"), arch)
        compile_split(case_of(512, 256, 7168, "bf16", "fp32"), arch)
        for model in ("deepseek-v3", "qwen3-235b-a22b"):
            compile_choice(model, arch)
        compile_odd_choice(255, 28, arch)
        compile_odd_choice(513, 1, arch)
