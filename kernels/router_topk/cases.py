"""The cases of `router_topk`: from tokens x[T, K] to each token's experts and their weights. Standard library only.

A model is one line of `MODELS`; how its logits choose experts is a `Rule`, which a case carries as its `epilogue`:
`sigmoid-k8-g8x4-c1-n1-s2.5` is eight experts by sigmoid, out of the best 4 of 8 groups, corrected, normalised, and
times 2.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gemmgate.suite.cases import Case

FAMILY = "router_topk"
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 512)
SCORES = ("softmax", "sigmoid", "sqrtsoftplus")
_RULE = re.compile(r"(softmax|sigmoid|sqrtsoftplus)-k(\d+)-g(\d+)x(\d+)-c([01])-n([01])-s(\d+(?:\.\d+)?)")


class Rule(NamedTuple):
    """How logits choose: scores, `top_k` experts out of the `top_groups` best of `groups`, and the weights.

    A group's worth is the sum of its two best scores. `corrected` adds a bias to the scores for choosing, not for the
    weights. `normalised` divides the weights by their sum; `scale` multiplies them.
    """

    score: str
    top_k: int
    groups: int = 1
    top_groups: int = 1
    corrected: bool = False
    normalised: bool = True
    scale: float = 1.0

    @property
    def text(self) -> str:
        groups = f"g{self.groups}x{self.top_groups}"
        return f"{self.score}-k{self.top_k}-{groups}-c{self.corrected:d}-n{self.normalised:d}-s{self.scale:g}"


class Model(NamedTuple):
    name: str
    hidden: int
    experts: int
    rule: Rule
    origin: str


MODELS = (
    Model("deepseek-v3", 7168, 256, Rule("sigmoid", 8, 8, 4, corrected=True, scale=2.5), "DeepSeek-V3"),
    Model("kimi-k2", 7168, 384, Rule("sigmoid", 8, corrected=True, scale=2.827), "Kimi-K2"),
    Model("qwen3-235b-a22b", 4096, 128, Rule("softmax", 8), "Qwen3-235B-A22B"),
    Model("qwen3-next", 2048, 512, Rule("softmax", 10), "Qwen3-Next"),
    Model("mixtral-8x7b", 4096, 8, Rule("softmax", 2), "Mixtral 8x7B"),
    Model("llama4-scout", 5120, 16, Rule("sigmoid", 1, normalised=False), "Llama 4 Scout"),
    Model(
        "softplus",
        7168,
        256,
        Rule("sqrtsoftplus", 8, corrected=True),
        "root of softplus, sizes of DeepSeek-V3",
    ),
)

_QUICK = {"deepseek-v3": (1, 8, 64), "qwen3-235b-a22b": (1, 16), "mixtral-8x7b": (4,), "softplus": (8,)}


def case_of(t: int, n: int, k: int, rule: Rule, name: str = "", origin: str = "", tags: tuple[str, ...] = ()) -> Case:
    """A case of any sizes. Raises ValueError where the rule does not fit the number of experts, or is none."""
    if not _RULE.fullmatch(rule.text):
        raise ValueError(
            f"'{rule.text}' is no rule: scores are {', '.join(SCORES)}, the scale a number from 0.0001 to 999999."
        )
    if not rule.scale > 0:
        raise ValueError(f"'{rule.text}' multiplies the weights by {rule.scale:g}: the scale has to be more than 0.")
    if min(rule.top_k, rule.groups, rule.top_groups) < 1:
        raise ValueError(
            f"{rule.top_k} experts, {rule.groups} groups and {rule.top_groups} of them: each has to be 1 or more."
        )
    if rule.groups > 1 and n < 2 * rule.groups:
        raise ValueError(f"{n} experts in {rule.groups} groups: a group's worth takes two experts.")
    if n % rule.groups or rule.top_groups > rule.groups or rule.top_k > n // rule.groups * rule.top_groups:
        raise ValueError(
            f"{n} experts in {rule.groups} groups, of which {rule.top_groups}, give no {rule.top_k} of them."
        )
    return Case(
        FAMILY,
        name or f"t{t}-n{n}-k{k}-{rule.text}-bf16",
        {"t": t, "n": n, "k": k},
        "bf16",
        "acc32",
        epilogue=rule.text,
        tags=tags,
        origin=origin or "given by the caller",
    )


def rule_of(case: Case) -> Rule:
    """Raises ValueError where the case has none."""
    found = _RULE.fullmatch(case.epilogue)
    if not found:
        raise ValueError(f"Case '{case.name}' says '{case.epilogue}', which is no rule such as {MODELS[0].rule.text}.")
    score, top_k, groups, top_groups, corrected, normalised, scale = found.groups()
    return Rule(score, int(top_k), int(groups), int(top_groups), corrected == "1", normalised == "1", float(scale))


def _catalog() -> Iterator[Case]:
    for model in MODELS:
        for t in TOKENS:
            quick = ("quick",) if t in _QUICK.get(model.name, ()) else ()
            name = f"{model.name}-t{t}-bf16"
            yield case_of(
                t,
                model.experts,
                model.hidden,
                model.rule,
                name,
                f"{model.origin}, router",
                (*quick, model.name, "full"),
            )


CASES = tuple(_catalog())


def sizes(case: Case) -> tuple[int, int, int]:
    """(T, N, K)"""
    return case.dims["t"], case.dims["n"], case.dims["k"]


def flop(case: Case) -> int:
    """That of the product: what follows is less than a hundredth of it."""
    t, n, k = sizes(case)
    return 2 * t * n * k


def bytes_moved(case: Case) -> int:
    """x, w and the correction read once, weights and numbers of the experts written once."""
    t, n, k = sizes(case)
    rule = rule_of(case)
    return 2 * (t * k + n * k) + (4 * n if rule.corrected else 0) + 8 * t * rule.top_k


def error_bound(case: Case) -> float:
    """||weights - reference|| / ||reference||: of logits about 3 that were rounded to bf16 once, as models' are.

    A weight changes by at most twice as much, relatively, as the logit does absolutely: 2 x 3 x 2^-9. The numbers of
    the experts have to be exact.
    """
    return 6 * 2.0**-9 / 2


def output_dtype(case: Case) -> str:
    return "fp32,int32"


def twin(case: Case) -> Case:
    """At most 9 tokens, 32 experts and 320 of K, by the same rule."""
    t, n, k = sizes(case)
    return case_of(min(t, 9), min(n, 32), min(k, 320), rule_of(case), origin=f"twin of {case.name}")
