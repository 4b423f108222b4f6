"""Each token's experts and weights in one launch or two: logits = x @ w^T, scores, groups, top-k, weights.

x [T, K] and w [N, K] in bf16 with K contiguous, `correction` [N] in fp32 or none; weights fp32 and experts int32,
[T, top_k] each, the best first, of equally good experts the one with the lower number.

`two_launches`: the router's logits in fp32, by whatever its dispatch chooses, from 8 tokens of many experts on by
split-K where that takes dot products, then one warp a token that holds a row of logits in registers. Where the first
launch is ours and cuts K, its programs leave their parts behind and the token's program adds them up itself. From sm_90
on the second launch is there before the first ends, and waits on the device. `one_launch`: the split-K kernel again,
but the last program to arrive for a block of tokens adds the parts up and chooses. It saves a launch, and has one
program a block of tokens do the rest, which on an H200 costs more.

Refuses more than 1024 experts, groups whose number or size is no power of two, more than 64 tokens in one launch, and a
CPU outside Triton's interpreter.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def,attr-defined"
from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from gemmgate.kernels._triton import host
from gemmgate.kernels._triton.arrival import is_last
from gemmgate.kernels.router import dispatch, dot_product, operands, split_k, tables
from gemmgate.kernels.router.binding import hold, overlaps
from gemmgate.kernels.router.cases import case_of as logits_case_of
from gemmgate.kernels.router.split_k import block_of
from gemmgate.kernels.router_topk.cases import Rule, rule_of, sizes
from gemmgate.kernels.router_topk.device import correction_of, route
from gemmgate.suite.cases import Call, Case, Implementation, Inputs, Prepared, Refusal, Target
from gemmgate.suite.cases import Tile as TileData

MOST_EXPERTS = 1024
MOST_TOKENS = 64
WARPS = 1
"""Of a token's program: several hand each expert over through shared memory, which one finds in an instruction."""
AT_ONCE = 8
"""Parts that are asked for together. One by one, the compiler keeps few of them on their way: on an H200, the 19 parts
of 16 tokens and 384 experts took 3.0 us longer.
"""
REGISTERS = 255
"""Of a thread of a token's program: all there are. Left to itself the assembler gives it 64 to 95 where parts are to be
added, and asks for a dozen of up to 60 pieces before it adds the first one: on an H200, that is up to 2.0 us.
"""
_SPLIT_TOKENS, _SPLIT_PRODUCTS = 8, 4e6
"""From so many tokens and products, T N K, split-K comes first where the router alone would take dot products: what
makes it slower there is a launch that adds its parts, which the choice does anyway. On an H200 it saves 2 to 19 % of 8
and 16 tokens with 128 experts and more; it costs up to 9 % of 4 tokens, and up to 10 % of 8 with 8 or 16 experts.
"""
_BLOCK_T = 8
"""Tokens of a block in one launch: more would leave the choice to fewer programs."""


@triton.jit
def _choose(
    parts_ptr, correction_ptr, weights_ptr, ids_ptr, T, scale, N: tl.constexpr,
    SPLITS: tl.constexpr, AT_ONCE: tl.constexpr, OVERLAP: tl.constexpr, N2: tl.constexpr, SCORE: tl.constexpr,
    TOP_K: tl.constexpr, TOP_K_2: tl.constexpr, GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr,
    CORRECTED: tl.constexpr, NORMALISED: tl.constexpr,
):  # fmt: skip
    """One token, whose logits are the sum of `SPLITS` parts [S, T, N]."""
    tokens = tl.program_id(0) + tl.arange(0, 1)  # [1]
    experts = tl.arange(0, N2)
    correction = correction_of(correction_ptr, experts, N, CORRECTED)
    if OVERLAP:
        gdc_wait()
    size = tl.cast(T, tl.int64) * N
    place = tl.program_id(0).to(tl.int64) * N + experts[None, :]  # [1, N2]
    is_there = (experts < N)[None, :]
    logits = tl.zeros((1, N2), dtype=tl.float32)
    for first in tl.static_range(0, SPLITS, AT_ONCE):
        logits += _sum_of(
            parts_ptr, first, size, place, is_there, SPLITS, min(AT_ONCE, triton.next_power_of_2(SPLITS - first))
        )
    route(
        logits, correction, tokens, T, N, weights_ptr, ids_ptr, scale,
        1, N2, SCORE, TOP_K, TOP_K_2, GROUPS, TOP_GROUPS, CORRECTED, NORMALISED,
    )  # fmt: skip


@triton.jit
def _sum_of(parts_ptr, first, size, place, is_there, SPLITS: tl.constexpr, ROWS: tl.constexpr):
    """[1, N2] of `ROWS` parts from `first` on, as far as there are so many."""
    parts = first + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    held = parts_ptr + parts * size + place
    block = tl.load(held, mask=(parts < SPLITS) & is_there, other=0.0, cache_modifier=".cg")
    return tl.sum(block, axis=0)[None, :]


@triton.jit
def _multiply_and_choose(
    x_ptr, w_ptr, correction_ptr, weights_ptr, ids_ptr, partials_ptr, counters_ptr,
    T, tiles_per_split, stride_xt, scale,
    N: tl.constexpr, K: tl.constexpr, STRIDE_WN: tl.constexpr, PACKED: tl.constexpr, WHOLE: tl.constexpr,
    BT: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WARP_GROUPS: tl.constexpr, SPLITS: tl.constexpr,
    PROGRAMS: tl.constexpr, N2: tl.constexpr, SCORE: tl.constexpr, TOP_K: tl.constexpr, TOP_K_2: tl.constexpr,
    GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr, CORRECTED: tl.constexpr, NORMALISED: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """A part of a block of logits; the last of a token block's `PROGRAMS` chooses for its tokens."""
    block_n = tl.program_id(0)
    split = tl.program_id(1)
    block_t = tl.program_id(2)
    tokens = block_t * BT + tl.arange(0, BT)  # [BT]
    experts = block_n * BN + tl.arange(0, BN)  # [BN]
    first = split * tiles_per_split
    last = tl.minimum(first + tiles_per_split, tl.cdiv(K, BK * WARP_GROUPS))
    part = block_of(
        x_ptr, w_ptr, tokens, experts, first, last, T, stride_xt, N, K, STRIDE_WN, PACKED, WHOLE,
        BT, BN, BK, WARP_GROUPS, True, INTERPRETED,
    )  # fmt: skip
    size = tl.cast(T, tl.int64) * N
    rows = tokens.to(tl.int64)[:, None] * N  # [BT, 1]
    stored = partials_ptr + split * size + rows + experts[None, :]
    tl.store(stored, part, mask=(tokens < T)[:, None] & (experts < N)[None, :])
    if is_last(counters_ptr + block_t, PROGRAMS):
        every = tl.arange(0, N2)  # [N2]
        is_there = (tokens < T)[:, None] & (every < N)[None, :]
        logits = tl.zeros((BT, N2), dtype=tl.float32)
        for other in tl.static_range(SPLITS):
            held = partials_ptr + other * size + rows + every[None, :]
            logits += tl.load(held, mask=is_there, other=0.0, cache_modifier=".cg")
        route(
            logits, correction_of(correction_ptr, every, N, CORRECTED), tokens, T, N, weights_ptr, ids_ptr, scale,
            BT, N2, SCORE, TOP_K, TOP_K_2, GROUPS, TOP_GROUPS, CORRECTED, NORMALISED,
        )  # fmt: skip


def choose_tile(case: Case, target: Target) -> split_k.Tile:
    """The router's own tile for its logits, with small blocks of tokens and few enough parts to add up at once."""
    t, n, k = sizes(case)
    tile = split_k.choose_tile(logits_case_of(min(t, _BLOCK_T), n, k, "bf16", "fp32"), target)
    blocks = triton.cdiv(n, tile.block_n) * triton.cdiv(max(t, 1), _BLOCK_T)
    splits = max(1, min(tile.splits, 16, 2 * (target.sm_count or 8) // max(blocks, 1)))
    return replace(tile, block_t=_BLOCK_T, swap=1, splits=splits, overlap=0)


def _rule_constants(rule: Rule, n: int) -> dict[str, Any]:
    return {
        "N2": max(2, triton.next_power_of_2(n)),
        "SCORE": rule.score,
        "TOP_K": rule.top_k,
        "TOP_K_2": triton.next_power_of_2(rule.top_k),
        "GROUPS": rule.groups,
        "TOP_GROUPS": rule.top_groups,
        "CORRECTED": rule.corrected,
        "NORMALISED": rule.normalised,
    }


def _outputs(x: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    size = (x.shape[0], rule.top_k)
    return torch.empty(size, dtype=torch.float32, device=x.device), torch.empty(
        size, dtype=torch.int32, device=x.device
    )


def choose_experts(
    parts: Tensor,
    correction: Tensor | None,
    rule: Rule,
    weights: Tensor,
    experts: Tensor,
    *,
    overlap: bool = False,
    registers: int = 0,
) -> tuple[Any, ...]:
    """The second launch: parts of logits, fp32 [S, T, N] or logits [T, N], row-major. No tokens take none.

    `registers` is how many a thread may take, on NVIDIA's GPUs alone; 0 is what the assembler likes.
    """
    t, n = parts.shape[-2:]
    if t == 0:
        return ()
    early = overlap and not host.is_interpreted(_choose)
    options: dict[str, Any] = {"launch_pdl": True} if early else {}
    if registers:
        options["maxnreg"] = registers
    return (
        _choose[(t,)](
            parts, parts if correction is None else correction, weights, experts, t, rule.scale, N=n,
            SPLITS=parts.shape[0] if parts.dim() == 3 else 1, AT_ONCE=AT_ONCE, OVERLAP=early,
            **_rule_constants(rule, n), num_warps=WARPS, **options,
        ),
    )  # fmt: skip


def _launch_one(
    x: Tensor,
    w: Tensor,
    correction: Tensor | None,
    rule: Rule,
    outputs: tuple[Tensor, Tensor],
    partials: Tensor,
    counters: Tensor,
    tile: split_k.Tile,
) -> tuple[Any, ...]:
    (t, k), n, packed = x.shape, w.shape[0], x.is_contiguous()
    blocks_n = triton.cdiv(n, tile.block_n)
    return (
        _multiply_and_choose[(blocks_n, tile.splits, triton.cdiv(t, tile.block_t))](
            x, w, partials if correction is None else correction, *outputs, partials, counters,
            t, triton.cdiv(triton.cdiv(k, tile.block_k), tile.splits), 0 if packed else x.stride(0), rule.scale,
            N=n, K=k, STRIDE_WN=w.stride(0), PACKED=packed, WHOLE=t % tile.block_t == 0,
            BT=tile.block_t, BN=tile.block_n, BK=tile.block_k // tile.groups, WARP_GROUPS=tile.groups,
            SPLITS=tile.splits, PROGRAMS=blocks_n * tile.splits, **_rule_constants(rule, n),
            INTERPRETED=host.is_interpreted(_multiply_and_choose),
            num_warps=tile.num_warps, num_stages=tile.num_stages,
        ),
    )  # fmt: skip


def supports(name: str, case: Case, target: Target) -> Refusal | None:
    t, n, _ = sizes(case)
    rule = rule_of(case)
    if n > MOST_EXPERTS:
        return "too_many_experts", f"{n} experts: a row of more than {MOST_EXPERTS} is not held in registers."
    each = n // rule.groups
    if rule.groups > 1 and (rule.groups & (rule.groups - 1) or each & (each - 1)):
        return "uneven_groups", f"{rule.groups} groups of {each} experts: both must be powers of two."
    if name == "one_launch" and t > MOST_TOKENS:
        return "too_many_tokens", f"{t} tokens: beyond {MOST_TOKENS}, few programs would choose for all of them."
    return host.needs_gpu(_choose, target)


def prepare_one(case: Case, example: Inputs, target: Target, tile: TileData | None = None) -> Prepared:
    chosen = choose_tile(case, target) if tile is None else tables.tile_of(split_k.Tile, "one_launch", tile)
    if (chosen.swap, chosen.overlap) != (1, 0):
        raise ValueError(f"one_launch has experts as rows and no launch after it: swap 1 and overlap 0, got {chosen}.")
    operands.refuse_strides("one_launch", example["x"], example["w"], None)
    workspaces: list[Tensor] = []
    state: list[Tensor] = []
    bind = partial(_bind_one, rule_of(case), chosen, workspaces, state)
    compiled = _launch_one(*_bound(rule_of(case), chosen, example)) if target.is_gpu else ()
    return Prepared(
        bind,
        tile=asdict(chosen),
        algorithm="one launch, last arrival chooses",
        workspaces=workspaces,
        state=state,
        device_code=host.device_code(*compiled),
    )


def _bound(rule: Rule, tile: split_k.Tile, inputs: Inputs) -> tuple[Any, ...]:
    """Arguments of `_launch_one`: operands, outputs, partial sums and counters."""
    x, w = inputs["x"], inputs["w"]
    partials = torch.empty(tile.splits, x.shape[0], w.shape[0], dtype=torch.float32, device=x.device)
    counters = torch.zeros(triton.cdiv(x.shape[0], tile.block_t), dtype=torch.int32, device=x.device)
    return x, w, inputs.get("correction"), rule, _outputs(x, rule), partials, counters, tile


def _bind_one(rule: Rule, tile: split_k.Tile, workspaces: list[Tensor], state: list[Tensor], inputs: Inputs) -> Call:
    arguments = _bound(rule, tile, inputs)
    outputs, partials, counters = arguments[4:7]
    workspaces.append(partials)
    state.append(counters)

    def call() -> tuple[Tensor, Tensor]:
        _launch_one(*arguments)
        return outputs

    return call


def prepare_two(case: Case, example: Inputs, target: Target, tile: TileData | None = None) -> Prepared:
    """A `tile` is one of the kernel that makes the logits, as an earlier choice of it reported."""
    t, n, k = sizes(case)
    rule = rule_of(case)
    logits_case = logits_case_of(t, n, k, "bf16", "fp32")
    choice = _choice_of(logits_case, target)
    choice = choice if tile is None else replace(choice, tile=tile)
    if choice.implementation in dispatch.OWN and (overlaps(target) or host.is_interpreted(_choose)):
        return _prepare_own_two(choice, logits_case, rule, example, target)
    first = dispatch.TIERS[choice.implementation].prepare(logits_case, example, target, choice.tile)
    choose = partial(choose_experts, registers=_registers(target))
    if target.is_gpu:
        logits = torch.empty(t, n, dtype=torch.float32, device=example["x"].device)
        choose(logits, example.get("correction"), rule, *_outputs(example["x"], rule))

    def bind(inputs: Inputs) -> Call:
        logits_of = first.bind(inputs)
        correction, outputs = inputs.get("correction"), _outputs(inputs["x"], rule)

        def call() -> tuple[Tensor, Tensor]:
            choose(logits_of(), correction, rule, *outputs)
            return outputs

        return call

    return Prepared(
        bind,
        tile=first.tile,
        algorithm=f"{choice.implementation} ({choice.why}), then a program a token",
        workspaces=first.workspaces,
        state=first.state,
        device_code=first.device_code,
    )


def _registers(target: Target) -> int:
    return REGISTERS if target.arch.startswith("sm_") else 0


def _choice_of(case: Case, target: Target) -> dispatch.Choice:
    """What makes the logits that a choice of experts follows."""
    choice = dispatch.choose(case, target)
    t, n, k = sizes(case)
    are_many = t >= _SPLIT_TOKENS and t * n * k >= _SPLIT_PRODUCTS
    if choice.implementation == dot_product.NAME and are_many and overlaps(target):
        return dispatch.Choice(split_k.NAME, None, "its parts are for the choice")
    return choice


def _prepare_own_two(
    choice: dispatch.Choice, logits_case: Case, rule: Rule, example: Inputs, target: Target
) -> Prepared:
    """The first launch is a kernel of ours, which lets the second come early and leaves it the parts to add."""
    kernel = dispatch.OWN[choice.implementation]
    tile = replace(dispatch.tile_of(choice, logits_case, target), overlap=1)
    operands.refuse_strides("two_launches", example["x"], example["w"], None)
    choose = partial(choose_experts, overlap=True, registers=_registers(target))
    workspaces: list[Tensor] = []

    def launch(inputs: Inputs, held: operands.Scratch, logits: Tensor, outputs: tuple[Tensor, Tensor]) -> list[Any]:
        if logits.numel() == 0:
            return []
        first = kernel.multiply(inputs["x"], inputs["w"], None, logits, held, tile)
        parts = held.partials if tile.splits > 1 else logits
        return [first, *choose(parts, inputs.get("correction"), rule, *outputs)]

    def bound(inputs: Inputs) -> tuple[Inputs, operands.Scratch, Tensor, tuple[Tensor, Tensor]]:
        x, w = inputs["x"], inputs["w"]
        return inputs, hold(x, w, tile), operands.new_logits(x, w, torch.float32), _outputs(x, rule)

    compiled = launch(*bound(example)) if target.is_gpu else []

    def bind(inputs: Inputs) -> Call:
        arguments = bound(inputs)
        _, held, logits, outputs = arguments
        workspaces.append(held.partials if tile.splits > 1 else logits)

        def call() -> tuple[Tensor, Tensor]:
            launch(*arguments)
            return outputs

        return call

    return Prepared(
        bind,
        tile=asdict(tile),
        algorithm=f"{choice.implementation} ({choice.why}), then a program a token adds its parts",
        workspaces=workspaces,
        device_code=host.device_code(*compiled),
    )


IMPLEMENTATIONS = {
    "one_launch": Implementation("one_launch", "own", True, partial(supports, "one_launch"), prepare_one),
    "two_launches": Implementation("two_launches", "own", True, partial(supports, "two_launches"), prepare_two),
}
