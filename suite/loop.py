"""The loop over cases with one worker: prepare, check, sample interleaved, hand on rows.

A crash, a hang, an illegal access or a full memory costs its own row: the worker names the step it
was at, a fresh one takes over, the others of that case are measured again, the loop goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from gemmgate.suite.case_rows import CaseState, Crossed, Singly, case_rows
from gemmgate.suite.catalog import Choice
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.workers import Worker, WorkerLost, told_steps

PREPARE_DEADLINE_S = 300.0
CHECK_DEADLINE_S = 180.0
SAMPLE_DEADLINE_S = 60.0
"""Beyond the seconds asked for."""
_PROBE_S = 0.2
_SPARE = 1.2
_LEAST_SHARE_S = 0.25
"""A smaller share of `seconds` for one cache state of a case is not held to: fewer cases are measured as usual then."""
_FIRST_S = 15.0
"""What sampling may take, whatever `seconds` is, as long as no case has a time."""


class Progress(Protocol):
    """Told what happens, as it happens."""

    def case(self, choice: Choice, index: int, count: int) -> None: ...
    def step(self, implementation: str, step: str) -> None: ...
    def row(self, row: Row) -> None: ...


@dataclass(frozen=True)
class Plan:
    """What to measure and how.

    `seconds` is for the whole loop and is filled; None takes default samples. With `precision` samples
    stop once every ratio is known within that share, and `seconds` is the most to take. `data` are
    distributions of the inputs, one after the other. With `cross_check`, the first cache state is timed by
    the other timers too; with `energy`, joules of a call are measured; with `singly`, calls are also timed one
    by one, with the cache emptied before each.
    """

    choices: Sequence[Choice]
    caches: tuple[str, ...]
    seed: int = 0
    data: tuple[str, ...] = ("normal",)
    seconds: float | None = None
    cross_check: bool = False
    precision: float | None = None
    energy: bool = False
    singly: bool = False


@dataclass
class Spent:
    """Seconds of the loop by what they went to; `waiting` is for workers to start and all that is not the others.

    `steps_s` divides the same time by the steps that the workers said they were at.
    """

    compiling: float = 0.0
    checking: float = 0.0
    measuring: float = 0.0
    total: float = 0.0
    steps_s: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, float]:
        known = {"compiling": self.compiling, "checking": self.checking, "measuring": self.measuring}
        waiting = max(self.total - sum(known.values()), 0.0)
        return {**known, "total": self.total, "waiting": waiting, **told_steps(self.steps_s)}


class Loop:
    """Measures a plan with one worker at a time. Rows go to `sink` as their case is done in a cache state.

    `begun` is the `time.monotonic()` from which `plan.seconds` counts.
    """

    def __init__(
        self,
        plan: Plan,
        worker: Worker,
        limits: Limits,
        *,
        restart: Callable[[], Worker],
        sink: Callable[[Sequence[Row]], object],
        progress: Progress,
        begun: float,
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._limits = limits
        self._board = worker.machine.board
        self._restart = restart
        self._sink = sink
        self._progress = progress
        self._begun = begun
        self._fixed_s: list[float] = []
        self._over_s: list[float] = []
        self._has_times = False
        self.spent = Spent()
        self.skipped: list[Choice] = []
        self.enough_s: float | None = None

    def run(self) -> None:
        """Emits the rows of each case as the case is done. Cases that `seconds` leave no time for are in `skipped`.

        The first case may take as long again, and `_FIRST_S` in any case, since a run without a number is of no use;
        where that was too short, `enough_s` are seconds that would have done.
        """
        steps = [(choice, data) for choice in self._plan.choices for data in self._plan.data]
        try:
            for index, (choice, data) in enumerate(steps):
                left_s = self._left_s()
                if left_s is not None and index and left_s < _SPARE * _mean(self._fixed_s):
                    for left, _ in steps[index:]:
                        self._skip(left)
                    break
                self._progress.case(choice, index, len(steps))
                self._measure(choice, data, None if left_s is None else left_s / (len(steps) - index))
        finally:
            self._worker.close()
            self.spent.steps_s.update(self._worker.steps_s)
            self.spent.total = time.monotonic() - self._begun

    def _left_s(self) -> float | None:
        return None if self._plan.seconds is None else self._plan.seconds - (time.monotonic() - self._begun)

    def _most_s(self) -> float | None:
        """What sampling a case may take."""
        left_s = self._left_s()
        if left_s is None or self._has_times:
            return left_s
        return max(left_s, self._plan.seconds or 0.0, _FIRST_S)

    def _skip(self, choice: Choice) -> None:
        if choice not in self.skipped:
            self.skipped.append(choice)

    def _measure(self, choice: Choice, data: str, share_s: float | None) -> None:
        begin = time.monotonic()
        state = CaseState(choice, data)
        self._make_ready(state, choice.implementations, check=True)
        fixed_s = time.monotonic() - begin
        for index, cache in enumerate(self._plan.caches):
            seconds = None
            if share_s is not None:
                seconds = max(share_s - (time.monotonic() - begin), 0.0) / (len(self._plan.caches) - index)
                seconds = max(seconds - _mean(self._over_s), 0.0)
                if seconds < _LEAST_SHARE_S and not self._plan.precision:
                    seconds = None
            reply = self._sample(state, cache, seconds)
            if reply is None:
                self._skip(choice)
                break
            measuring_s = reply["measure_s"] if reply else 0.0
            fixed_s += max(measuring_s - (seconds or 0.0), 0.0)
            if seconds is not None and reply and self._has_times:  # what comes once, before the first times, is past
                self._over_s.append(max(measuring_s - seconds, 0.0))
            crossed = self._cross_check(state, cache, reply) if self._plan.cross_check and not index else {}
            singly = self._singly(state, cache, reply) if self._plan.singly and not index else {}
            self._emit(state, cache, reply, crossed, singly)
        else:
            self._has_times = self._has_times or bool(state.ready)
        self._fixed_s.append(fixed_s)
        try:
            self._ask("drop", CHECK_DEADLINE_S, reuse=True)
        except WorkerLost:
            self._replace()

    def _make_ready(self, state: CaseState, names: Sequence[str], *, check: bool) -> None:
        """Prepares and checks each in the present worker. Whoever loses it has failed, and the others start again."""
        waiting = list(names)
        while waiting:
            name = waiting.pop(0)
            try:
                outcome = self._prepare(state, name, check=check and name not in state.facts)
            except WorkerLost as lost:
                outcome = {"status": lost.status, "reason": lost.reason, "detail": str(lost), "fatal": True}
            if outcome.get("ok"):
                state.ready.append(name)
                state.facts.setdefault(name, {}).update(outcome)
                continue
            state.fail(name, outcome)
            if outcome.get("fatal"):
                self._replace()
                waiting = state.ready + waiting
                state.ready = []

    def _prepare(self, state: CaseState, name: str, *, check: bool) -> dict[str, Any]:
        self._progress.step(name, "prepare")
        prepared = self._ask(
            "prepare",
            PREPARE_DEADLINE_S,
            case=state.choice.case.to_json(),
            implementation=name,
            seed=self._plan.seed,
            data=state.data,
            caches=self._plan.caches,
        )
        if not prepared.get("ok"):
            return prepared
        self.spent.compiling += prepared["compile_s"]
        if not check:
            return prepared
        self._progress.step(name, "check")
        checked = self._ask("check", CHECK_DEADLINE_S, implementation=name)
        if checked.get("ok"):
            self.spent.checking += checked["check_s"]
        return {**prepared, "ok": False, **checked}

    def _sample(self, state: CaseState, cache: str, seconds: float | None) -> dict[str, Any] | None:
        """The worker's reply for all that are ready, with those removed that cost a worker; None where time ran out.

        Time that a culprit took is not held against the others.
        """
        most_s = self._most_s()
        while state.ready:
            names = list(state.ready)
            self._progress.step("", f"sample {len(names)} implementations, {cache}")
            try:
                reply = self._ask_sample(names, cache, seconds, most_s)
                culprit = reply["at"].get("implementation", "")
            except WorkerLost as lost:
                reply = {"status": lost.status, "reason": lost.reason, "detail": str(lost), "fatal": True}
                culprit = lost.implementation
            if reply.get("ok"):
                self.spent.measuring += reply["measure_s"]
                return reply
            if reply["status"] == "skipped":
                if not self._has_times and self.enough_s is None:
                    self.enough_s = time.monotonic() - self._begun + _SPARE * reply["least_s"]
                return None
            if not reply.get("fatal"):
                return {"measured": dict.fromkeys(names, reply), "measure_s": 0.0, "roof_s": None}
            self._replace()
            most_s = None
            culprits = [culprit] if culprit else self._find_culprits(state, names, cache)
            for name in culprits or names:
                state.fail(name, reply)
            survivors, state.ready = list(state.ready), []
            self._make_ready(state, survivors, check=False)
        return {"measured": {}, "measure_s": 0.0, "roof_s": None}

    def _ask_sample(
        self, names: Sequence[str], cache: str, seconds: float | None, most_s: float | None
    ) -> dict[str, Any]:
        return self._ask(
            "sample",
            SAMPLE_DEADLINE_S + (seconds or 0.0),
            implementations=names,
            cache=cache,
            seconds=seconds,
            most_s=most_s,
            precision=self._plan.precision,
            energy=self._plan.energy,
            limits=asdict(self._limits),
        )

    def _cross_check(self, state: CaseState, cache: str, reply: Mapping[str, Any]) -> Crossed:
        """Facts of rows by other timers, by name and timer. Who launches other kernels in a graph loses its time."""
        names, answer = self._ask_again("cross_check", state, cache, reply, limits=asdict(self._limits))
        if not answer.get("ok"):
            return {name: {"cupti": answer} for name in names}
        for name, found in answer["crossed"].items():
            if found["kernels_differ"]:
                reply["measured"][name].update(status="invalid", reason="other_kernels", detail=found["kernels_differ"])
        return {name: found["rows"] for name, found in answer["crossed"].items()}

    def _singly(self, state: CaseState, cache: str, reply: Mapping[str, Any]) -> Singly:
        """Facts of rows of calls timed one by one, by name."""
        names, answer = self._ask_again("singly", state, cache, reply)
        timed: Singly = answer["timed"] if answer.get("ok") else dict.fromkeys(names, answer)
        return timed

    def _ask_again(
        self, op: str, state: CaseState, cache: str, reply: Mapping[str, Any], **fields: Any
    ) -> tuple[list[str], dict[str, Any]]:
        """Who was timed, and what a further look at them says, or how it failed: that costs nobody the time it has."""
        names = [name for name in state.ready if reply["measured"].get(name, {}).get("samples_s")]
        if not names:
            return names, {}
        self._progress.step("", f"{op.replace('_', '-')} {len(names)} implementations, {cache}")
        try:
            answer = self._ask(op, CHECK_DEADLINE_S, implementations=names, cache=cache, **fields)
        except WorkerLost as lost:
            answer = {"status": lost.status, "reason": lost.reason, "detail": str(lost), "fatal": True}
        if answer.get("ok"):
            self.spent.measuring += answer["measure_s"]
            return names, answer
        if answer.get("fatal"):
            self._replace()
            survivors, state.ready = list(state.ready), []
            self._make_ready(state, survivors, check=False)
        return names, {key: answer[key] for key in ("status", "reason", "detail")}

    def _find_culprits(self, state: CaseState, names: Sequence[str], cache: str) -> list[str]:
        """Those that lose a worker also when sampled alone."""
        culprits = []
        for name in names:
            alone = CaseState(state.choice, state.data)
            self._make_ready(alone, [name], check=False)
            if not alone.ready:
                culprits.append(name)
                continue
            try:
                lost = bool(self._ask_sample([name], cache, _PROBE_S, None).get("fatal"))
            except WorkerLost:
                lost = True
            if lost:
                culprits.append(name)
                self._replace()
        return culprits

    def _ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        return self._worker.ask(op, deadline_s, **fields)

    def _replace(self) -> None:
        self._worker.kill()
        self.spent.steps_s.update(self._worker.steps_s)
        self._worker = self._restart()
        if self._worker.machine.board != self._board:
            raise CannotMeasureError(
                "The fresh worker found another board than the run began on, which would not compare."
            )

    def _emit(self, state: CaseState, cache: str, reply: Mapping[str, Any], crossed: Crossed, singly: Singly) -> None:
        usual = "graph" if self._worker.target.is_gpu else "perf_counter"
        flags = self._worker.flags[state.choice.case.precision]
        more = {"crossed": crossed, "singly": singly}
        rows = [*case_rows(state, reply, **more, cache=cache, timer=usual, seed=self._plan.seed, flags=flags)]
        self._sink(rows)
        for row in rows:
            self._progress.row(row)


def _mean(seconds: Sequence[float]) -> float:
    return sum(seconds) / len(seconds) if seconds else 0.0
