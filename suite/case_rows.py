"""One case under way in the loop, and the rows that come of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmgate.suite.catalog import Choice
from gemmgate.suite.outcomes import row_of
from gemmgate.suite.records import CROSS_CHECK, RETRIED, SINGLY, Row

Crossed = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Facts of rows by other timers, by implementation and timer."""
Singly = Mapping[str, Mapping[str, Any]]
"""Facts of rows of calls timed one by one, by implementation."""


@dataclass
class CaseState:
    """One case under way: what each implementation came to so far, and which are ready in the present worker."""

    choice: Choice
    data: str
    ready: list[str] = field(default_factory=list)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def fail(self, name: str, outcome: Mapping[str, Any]) -> None:
        """What it was before it failed (its timer, its tile) stays among the facts."""
        if name in self.ready:
            self.ready.remove(name)
        self.facts[name] = {**self.facts.get(name, {}), **outcome}
        self.failed[name] = {key: outcome.get(key, "") for key in ("status", "reason", "detail")}


def case_rows(
    state: CaseState,
    reply: Mapping[str, Any],
    *,
    crossed: Crossed,
    singly: Singly,
    cache: str,
    timer: str,
    seed: int,
    flags: Mapping[str, str],
) -> Iterator[Row]:
    """One row for each implementation, those that failed earlier included, and one for each other way of timing.

    `reply` is what the worker said of samples in this cache state; `timer` the word for who took them.
    """
    measured: Mapping[str, Mapping[str, Any]] = reply["measured"]
    outcomes = {name: measured.get(name) or state.failed[name] for name in state.choice.implementations}
    ok = [name for name, outcome in outcomes.items() if outcome.get("samples_s") and not outcome.get("status")]
    yardstick = next((name for name in state.choice.family.yardsticks if name in ok), "")
    shared = {
        "cache": cache,
        "data": state.data,
        "seed": seed,
        "flags": flags,
        "visit": uuid.uuid4().hex[:12],
        "roof_s": reply.get("roof_s"),
    }
    family, case = state.choice.family, state.choice.case
    for name, outcome in outcomes.items():
        facts = {**state.facts.get(name, {}), **outcome}
        yield row_of(family, case, name, facts, timer=timer, yardstick=yardstick, **shared)
        # A trace is taken of one implementation after the other: it gives no ratio.
        for other, found in crossed.get(name, {}).items():
            quoted = {"yardstick": yardstick} if other == "events" else {"visit": ""}
            yield row_of(family, case, name, found, **{**shared, "timer": other, "phase": CROSS_CHECK, **quoted})
        if name in singly:
            alone = {"timer": "events", "phase": SINGLY, "cache": "cold", "yardstick": yardstick}
            yield row_of(family, case, name, singly[name], **{**shared, **alone})


def missing(
    choices: Sequence[Choice], caches: Sequence[str], rows: Sequence[Row], data: Sequence[str] = ("normal",)
) -> list[Choice]:
    """Cases of which a selected implementation has no finished row in one of the cache states or distributions.

    Such a case is measured again whole, since only what was interleaved can be compared.
    """
    finished = {
        (row.family, row.case, row.implementation, row.cache, row.data)
        for row in rows
        if row.status not in RETRIED and not row.phase
    }
    return [
        choice
        for choice in choices
        if any(
            (choice.family.name, choice.case.name, name, cache, word) not in finished
            for name in choice.implementations
            for cache in caches
            for word in data
        )
    ]
