"""Made runs whose best rule is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from gemmgate.suite.records import Row
from tests.runs import row

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
EXPERTS = (32, 64, 128, 256, 512)
HIDDEN = (1024, 2048, 3072, 4096, 5120, 6144)


def best_of(t: int, n: int) -> str:
    """The rule behind the made times: tokens times experts decide, at 2048 and at 32768."""
    return "few" if t * n <= 2048 else "some" if t * n <= 32768 else "library"


def times_of(t: int, n: int) -> dict[str, float]:
    """What the rule says takes 4 us, the others 5 and 8."""
    best = best_of(t, n)
    others = [name for name in ("few", "library", "some") if name != best]
    return {best: 4e-6, others[0]: 5e-6, others[1]: 8e-6}


def rows_of(
    times: Callable[[int, int], dict[str, float]] = times_of,
    tokens: tuple[int, ...] = TOKENS,
    experts: tuple[int, ...] = EXPERTS,
    **fields: Any,
) -> list[Row]:
    return [
        row(
            name,
            seconds,
            **{
                "family": "made",
                "case": f"t{t}-n{n}-k{k}-bf16",
                "dims": {"t": t, "n": n, "k": k},
                "visit": f"{t}-{n}-{k}",
                "yardstick": "library",
                "cache": "serving",
                **fields,
            },
        )
        for t, n, k in itertools.product(tokens, experts, HIDDEN)
        for name, seconds in times(t, n).items()
    ]
