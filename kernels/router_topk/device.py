"""From logits to experts inside a kernel: shared by one launch and two."""

# Triton ships no types, and a jit function is Triton's language, not Python:
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def route(
    logits, tokens, T, N, correction_ptr, weights_ptr, ids_ptr, scale,
    BT: tl.constexpr, N2: tl.constexpr, SCORE: tl.constexpr, TOP_K: tl.constexpr, TOP_K_2: tl.constexpr,
    GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr, CORRECTED: tl.constexpr, NORMALISED: tl.constexpr,
):  # fmt: skip
    """Stores weights and numbers of the experts of tokens [BT], from logits [BT, N2] in fp32.

    Of experts that are equally good the one with the lower number comes first; of groups, too.
    """
    experts = tl.arange(0, N2)  # [N2]
    inside = (experts < N)[None, :]
    if SCORE == "softmax":
        known = tl.where(inside, logits, float("-inf"))
        powers = tl.exp(known - tl.max(known, axis=1)[:, None])
        scores = powers / tl.sum(powers, axis=1)[:, None]
    elif SCORE == "sigmoid":
        scores = 1.0 / (1.0 + tl.exp(-logits))
    else:
        scores = tl.sqrt(tl.maximum(logits, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(logits))))
    worth = scores
    if CORRECTED:
        worth += tl.load(correction_ptr + experts, mask=experts < N, other=0.0)[None, :]
    worth = tl.where(inside, worth, float("-inf"))
    if GROUPS > 1:
        worth = _best_groups(worth, BT, N2, GROUPS, TOP_GROUPS)
    slots = tl.arange(0, TOP_K_2)[None, :]  # [1, TOP_K_2]
    weights = tl.zeros((BT, TOP_K_2), dtype=tl.float32)
    ids = tl.zeros((BT, TOP_K_2), dtype=tl.int32)
    for slot in tl.static_range(TOP_K):
        best = tl.argmax(worth, axis=1, tie_break_left=True)  # [BT]
        is_best = experts[None, :] == best[:, None]
        weight = tl.sum(tl.where(is_best, scores, 0.0), axis=1)
        weights = tl.where(slots == slot, weight[:, None], weights)
        ids = tl.where(slots == slot, best[:, None], ids)
        worth = tl.where(is_best, float("-inf"), worth)
    if NORMALISED:
        weights = weights / (tl.sum(weights, axis=1)[:, None] + 1e-20)
    place = tokens.to(tl.int64)[:, None] * TOP_K + slots
    is_there = (tokens < T)[:, None] & (slots < TOP_K)
    tl.store(weights_ptr + place, weights * scale, mask=is_there)
    tl.store(ids_ptr + place, ids, mask=is_there)


@triton.jit
def _best_groups(worth, BT: tl.constexpr, N2: tl.constexpr, GROUPS: tl.constexpr, TOP_GROUPS: tl.constexpr):
    """`worth` [BT, N2] with minus infinity outside the best groups, by the sum of a group's two best."""
    EACH: tl.constexpr = N2 // GROUPS
    grouped = tl.reshape(worth, (BT, GROUPS, EACH))
    first = tl.max(grouped, axis=2)  # [BT, GROUPS]
    at_first = tl.argmax(grouped, axis=2, tie_break_left=True)
    others = tl.where(tl.arange(0, EACH)[None, None, :] == at_first[:, :, None], float("-inf"), grouped)
    left = first + tl.max(others, axis=2)  # [BT, GROUPS]
    groups = tl.arange(0, GROUPS)[None, :]
    kept = tl.zeros((BT, GROUPS), dtype=tl.int32)
    for _ in tl.static_range(TOP_GROUPS):
        best = tl.argmax(left, axis=1, tie_break_left=True)[:, None]  # [BT, 1]
        kept = tl.where(groups == best, 1, kept)
        left = tl.where(groups == best, float("-inf"), left)
    return tl.reshape(tl.where(kept[:, :, None] == 1, grouped, float("-inf")), (BT, N2))
