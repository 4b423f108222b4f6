"""From logits to experts inside a kernel: shared by one launch and two.

A choice is a chain of steps that each wait for the one before, and its length is what it costs. So numbers become
integers in the same order: a maximum over a warp's integers is one instruction from sm_80 on, over its floats five
shuffles. Where neither a correction nor a group asks for scores, logits are compared as they are, and only the chosen
ones become scores.
"""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

_TAKEN = tl.constexpr(-(2**31))
"""Less than the key of any number, minus infinity included."""


@triton.jit
def correction_of(correction_ptr, experts, N, CORRECTED: tl.constexpr):
    """[1, N2] in fp32 for experts [N2], 0 where there is none. No launch before makes it: ask for it before a wait."""
    correction = tl.zeros_like(experts).to(tl.float32)
    if CORRECTED:
        correction = tl.load(correction_ptr + experts, mask=experts < N, other=0.0)
    return correction[None, :]


@triton.jit
def route(
    logits, correction, tokens, T, N, weights_ptr, ids_ptr, scale,
    BT: tl.constexpr, N2: tl.constexpr, SCORE: tl.constexpr, TOP_K: tl.constexpr, TOP_K_2: tl.constexpr,
    GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr, CORRECTED: tl.constexpr, NORMALISED: tl.constexpr,
):  # fmt: skip
    """Stores weights and numbers of the experts of tokens [BT], from logits [BT, N2] and a correction [1, N2] in fp32.

    Of experts that are equally good the one with the lower number comes first; of groups, too. With groups N is N2.
    """
    BY_SCORE: tl.constexpr = CORRECTED or GROUPS > 1
    experts = tl.arange(0, N2)[None, :]  # [1, N2]
    known = tl.where(experts < N, logits, float("-inf"))
    worth = known
    if BY_SCORE:
        scores = _score(known, SCORE)
        worth = scores + correction
    keys = tl.where(experts < N, _key(worth), _TAKEN)
    if GROUPS > 1:
        keys = _best_groups(keys, BT, N2, GROUPS, TOP_GROUPS)
    # Of two that one thread holds the better one is in front: half as many are searched each time. Where rows have an
    # even length threads ask for neighbours together; else for one number each, and hold those half a row apart.
    APART: tl.constexpr = 1 if N % 2 == 0 else N2 // 2
    left, right = _pairs(keys, BT, N2, APART)
    is_turned = right > left
    front, behind = tl.maximum(left, right), tl.minimum(left, right)  # [BT, N2 / 2]
    STEP: tl.constexpr = 2 if APART == 1 else 1
    front_id = STEP * tl.arange(0, N2 // 2)[None, :] + is_turned.to(tl.int32) * APART
    if BY_SCORE:
        left_score, right_score = _pairs(scores.to(tl.int32, bitcast=True), BT, N2, APART)
        front_score = tl.where(is_turned, right_score, left_score)
        behind_score = tl.where(is_turned, left_score, right_score)
    slots = tl.arange(0, TOP_K_2)[None, :]  # [1, TOP_K_2]
    ids = tl.zeros((BT, TOP_K_2), dtype=tl.int32)
    weights = tl.zeros((BT, TOP_K_2), dtype=tl.float32)
    total = tl.zeros((BT, 1), dtype=tl.float32)
    highest = total
    for slot in tl.static_range(TOP_K):
        most = tl.max(front, axis=1)[:, None]  # [BT, 1]
        best = tl.min(tl.where(front == most, front_id, N2 - 1), axis=1)[:, None]
        is_best = front_id == best
        if BY_SCORE:
            weight = tl.sum(tl.where(is_best, front_score, 0), axis=1)[:, None].to(tl.float32, bitcast=True)
            front_score = tl.where(is_best, behind_score, front_score)
        elif SCORE == "softmax":
            if slot == 0:
                highest = _number(most)
            weight = tl.exp(_number(most) - highest)
        else:
            weight = _score(_number(most), SCORE)
        ids = tl.where(slots == slot, best, ids)
        weights = tl.where(slots == slot, weight, weights)
        total += weight
        front, behind = tl.where(is_best, behind, front), tl.where(is_best, _TAKEN, behind)
        front_id = front_id ^ (is_best.to(tl.int32) * APART)
    if NORMALISED:
        weights = weights / (total + 1e-20)
    elif SCORE == "softmax" and not BY_SCORE:
        weights = weights / tl.sum(tl.exp(known - highest), axis=1)[:, None]
    place = tokens.to(tl.int64)[:, None] * TOP_K + slots
    is_there = (tokens < T)[:, None] & (slots < TOP_K)
    tl.store(weights_ptr + place, weights * scale, mask=is_there)
    tl.store(ids_ptr + place, ids, mask=is_there)


@triton.jit
def _pairs(row, BT: tl.constexpr, N2: tl.constexpr, APART: tl.constexpr):
    """[BT, N2] as the first and the second ones of pairs so far apart, [BT, N2 / 2] each: 1 or N2 / 2."""
    if APART == 1:
        pairs = tl.reshape(row, (BT, N2 // 2, 2))
    else:
        pairs = tl.permute(tl.reshape(row, (BT, 2, N2 // 2)), (0, 2, 1))
    return tl.split(pairs)


@triton.jit
def _score(logits, SCORE: tl.constexpr):
    """Of each expert; softmax over the experts of a token."""
    if SCORE == "softmax":
        powers = tl.exp(logits - tl.max(logits, axis=1)[:, None])
        scores = powers / tl.sum(powers, axis=1)[:, None]
    elif SCORE == "sigmoid":
        scores = 1.0 / (1.0 + tl.exp(-logits))
    else:
        scores = tl.sqrt(tl.maximum(logits, 0.0) + _log1p(tl.exp(-tl.abs(logits))))
    return scores


@triton.jit
def _log1p(x):
    """log(1 + x) for x from 0 to 1, to a few units in the last place: what 1 + x rounds off is put back as a factor."""
    rounded = 1.0 + x
    seen = tl.where(rounded == 1.0, 1.0, rounded - 1.0)
    return tl.where(rounded == 1.0, x, tl.log(rounded) * (x / seen))


@triton.jit
def _key(number):
    """fp32 as int32 in the same order, NaN first. Adding 0 makes both zeros one, and on NVIDIA's GPUs all NaNs too."""
    bits = (number + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _number(key):
    """What a key was made of."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _best_groups(keys, BT: tl.constexpr, N2: tl.constexpr, GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr):
    """`keys` [BT, N2] taken outside the best groups, by the sum of a group's two best.

    Groups are counted that come before each one: all pairs at once are sooner done than one best after another.
    """
    EACH: tl.constexpr = N2 // GROUPS
    grouped = tl.reshape(keys, (BT, GROUPS, EACH))
    first, second = tl.reduce((grouped, tl.full((BT, GROUPS, EACH), _TAKEN, tl.int32)), 2, _two_best)
    sums = _key(_number(first) + _number(second))  # [BT, GROUPS]
    groups = tl.arange(0, GROUPS)
    mine, others = sums[:, :, None], sums[:, None, :]
    is_before = (others > mine) | ((others == mine) & (groups[None, None, :] < groups[None, :, None]))
    before = tl.sum(is_before.to(tl.int32), axis=2)  # [BT, GROUPS]
    return tl.reshape(tl.where(before[:, :, None] < TOP_GROUPS, grouped, _TAKEN), (BT, N2))


@triton.jit
def _two_best(first, second, other_first, other_second):
    """The best two of two pairs, each the better one first."""
    lower = tl.minimum(first, other_first)
    return tl.maximum(first, other_first), tl.maximum(lower, tl.maximum(second, other_second))
