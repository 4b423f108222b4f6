"""The device of a search that is real: compilers that run ahead, and a worker that times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from gemmgate.suite.catalog import Item, offered
from gemmgate.suite.records import Limits
from gemmgate.suite.tuning.candidates import Candidate
from gemmgate.suite.tuning.pool import Pool
from gemmgate.suite.workers import Worker, WorkerLost

DEADLINE_S = 120.0
CONFIRM_S = 0.25
"""Samples of the confirmation fill this, beside what binding and checking take."""


class Lost(Exception):
    """The racing worker cannot be used further. `culprit` is the key it was at, perhaps none."""

    def __init__(self, outcome: Mapping[str, Any], culprit: str) -> None:
        super().__init__(outcome["detail"])
        self.outcome = {name: outcome[name] for name in ("status", "reason", "detail")}
        self.culprit = culprit


@dataclass
class Gpu:
    """One item on one worker, as `racing.Device`.

    `excluded` are outcomes of keys that cost an earlier worker. `facts` collects what is known of each key, for
    its row; `measured` the worker's answer to the confirmation.
    """

    worker: Worker
    pool: Pool
    item: Item
    limits: Limits
    priority: float
    seed: int
    excluded: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    yardsticks: tuple[str, ...] = ()
    cold: bool = False

    @property
    def cache(self) -> str:
        """The cache state of its times."""
        return "cold" if self.cold else "hot"

    def begin(self) -> None:
        """Makes inputs and the first of the case's yardsticks that is right: the confirmation is quoted against it."""
        case = self.item.case.to_json()
        # A CPU's last-level cache is too large for a ring.
        caches = ["cold" if self.worker.target.is_gpu else "hot"]
        begun = self._ask("race", step="begin", case=case, seed=self.seed, data="normal", caches=caches)
        self.cold = begun["cold"]
        meant = offered(self.item.family, self.item.case)
        right = (
            name
            for name in self.item.family.yardsticks
            if name in meant
            and name not in self.excluded
            and not self._mount(name, {name: None})[name]
            and not self.check(name)
        )
        self.yardsticks = tuple(islice(right, 1))

    def mount(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        wrong = {one.key: self.excluded[one.key]["detail"] for one in candidates if one.key in self.excluded}
        self.facts.update({key: self.excluded[key] for key in wrong})
        for place, one in enumerate(candidates):
            compile_ahead(self.pool, self.item, one, self.priority + 1e-4 * place)
        for key, failed in self._not_compiled(candidates).items():
            if key not in wrong:
                self.facts[key] = failed
                wrong[key] = failed["detail"] or failed["reason"]
        ready = {one.key: dict(one.tile) for one in candidates if one.key not in wrong}
        return {**wrong, **(self._mount(self.item.implementation, ready) if ready else {})}

    def compile_soon(self, candidates: Sequence[Candidate]) -> None:
        """Asks for kernels that are needed later in the same item."""
        for place, one in enumerate(candidates):
            compile_ahead(self.pool, self.item, one, self.priority + 0.5 + 1e-5 * place)

    def _not_compiled(self, candidates: Sequence[Candidate]) -> dict[str, dict[str, Any]]:
        """What the compilers could not make; where that is all, it may be them, and the device is asked instead."""
        replies = self.pool.wait(compiled_key(self.item, one) for one in candidates)
        found = {one.key: replies.get(compiled_key(self.item, one), {}).get("failed") for one in candidates}
        failed = {key: outcome for key, outcome in found.items() if outcome}
        return failed if len(failed) < len(candidates) else {}

    def time(self, keys: Sequence[str], rounds: int, *, fresh: bool = False) -> dict[str, list[float]]:
        reply = self._ask("race", step="time", keys=list(keys), rounds=rounds, fresh=fresh)
        return dict(reply["samples_s"])

    def check(self, key: str) -> str:
        reply = self._ask("race", step="check", key=key, may_fail=True)
        self._learn(key, reply)
        return "" if reply.get("ok") else str(reply["detail"] or reply["reason"])

    def drop(self, keys: Sequence[str]) -> None:
        if keys:
            self._ask("race", step="drop", keys=list(keys))

    def confirm(self, keys: Sequence[str]) -> dict[str, list[float]]:
        names = [*keys, *self.yardsticks]
        self.measured = self._ask(
            "sample",
            implementations=names,
            cache=self.cache,
            seconds=CONFIRM_S,
            most_s=None,
            precision=None,
            limits=asdict(self.limits),
            prove=False,
        )
        for name in names:
            self._learn(name, self.measured["measured"].get(name, {}))
        return {key: list(self.facts[key]["samples_s"]) for key in keys if self._is_measured(key)}

    def _is_measured(self, key: str) -> bool:
        return bool(self.facts[key].get("samples_s")) and not self.facts[key].get("status")

    def _mount(self, implementation: str, tiles: Mapping[str, Any]) -> dict[str, str]:
        outcomes = self._ask("race", step="mount", implementation=implementation, tiles=tiles)["outcomes"]
        for key, outcome in outcomes.items():
            self._learn(key, outcome)
        return {key: "" if outcome.get("ok") else str(outcome["detail"]) for key, outcome in outcomes.items()}

    def _learn(self, key: str, outcome: Mapping[str, Any]) -> None:
        known = {name: value for name, value in outcome.items() if name not in ("id", "ok", "at", "fatal")}
        self.facts.setdefault(key, {}).update(known)

    def _ask(self, op: str, *, may_fail: bool = False, **fields: Any) -> dict[str, Any]:
        """The reply. Raises `Lost` where the worker is lost, or says that it cannot go on."""
        try:
            reply = self.worker.ask(op, DEADLINE_S, **fields)
        except WorkerLost as lost:
            outcome = {"status": lost.status, "reason": lost.reason, "detail": str(lost)}
            raise Lost(outcome, lost.implementation) from lost
        if not reply.get("ok") and (reply.get("fatal") or not may_fail):
            raise Lost(reply, reply["at"].get("implementation", "") or str(fields.get("key", "")))
        return reply


def compiled_key(item: Item, candidate: Candidate) -> tuple[str, str]:
    """What the pool knows the compilation of a candidate by."""
    return item.path, candidate.key


def guess(pool: Pool, item: Item, candidates: Sequence[Candidate], index: int) -> None:
    """Asks for candidates that may join in the case of this number: after what the next two cases begin with."""
    for place, one in enumerate(candidates):
        compile_ahead(pool, item, one, index + 1.5 + 1e-5 * place)


def compile_ahead(pool: Pool, item: Item, candidate: Candidate, priority: float) -> None:
    """Asks for a candidate's kernels, once."""
    pool.submit(compiled_key(item, candidate), "compile", item, priority, tile=dict(candidate.tile))
