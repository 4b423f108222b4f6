"""The steps of `gemmgate try`: which cases, checks before anything is timed, then the measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gemmgate.suite import loop
from gemmgate.suite.catalog import Catalog, Choice, Selection, offered
from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._beginning import begin_run
from gemmgate.suite.cli._measuring import measure_limits, run_loop, too_short, usual_caches
from gemmgate.suite.commits import Commit, describe_commit
from gemmgate.suite.errors import CannotMeasureError, UsageError
from gemmgate.suite.outcomes import row_of
from gemmgate.suite.records import Row, Run
from gemmgate.suite.report import units
from gemmgate.suite.report.trial import is_wrong
from gemmgate.suite.store import Store
from gemmgate.suite.workers import START_DEADLINE_S, Worker, WorkerLost, own_overlay

HANDFUL = 6
"""Cases that are tried where none are asked for."""


class Trial:
    """One function under trial, with the worker that runs it."""

    def __init__(
        self, tried: Mapping[str, str], start: Callable[[], Worker], deadline_s: float, results: Path | None
    ) -> None:
        """`tried` has the `name` of the implementation, the `function` as it was named, and what it is `against`."""
        self.tried = tried
        self.name = tried["name"]
        self.against = tried["against"]
        self.start = start
        self.deadline_s = deadline_s
        self.results = results
        self.worker = start()

    def narrow(self, choices: Sequence[Choice], *, handful: bool) -> list[Choice]:
        """Those that `against` takes here, or a handful of them. Runs the file for the first time."""
        pairs = [[choice.case.to_json(), [self.name, self.against]] for choice in choices]
        try:
            reply = self.worker.ask("supports", max(self.deadline_s, START_DEADLINE_S), pairs=pairs)
        except WorkerLost as lost:
            raise UsageError(f"The file could not be imported: {lost}.") from lost
        if not reply.get("ok"):
            raise UsageError(reply["detail"])
        refusals = [refusals[1] for refusals in reply["refusals"]]
        taken = [choice for choice, refusal in zip(choices, refusals, strict=True) if refusal is None]
        if not taken:
            raise CannotMeasureError(f"{self.against} takes none of these cases here: {refusals[0][1]}")
        if handful:
            return _handful(taken)
        if len(taken) < len(choices):
            left = units.counted(len(choices) - len(taken), "case")
            _terminal.say(f"{left} left out, which {self.against} refuses here.")
        return taken

    def check(self, choices: Sequence[Choice]) -> list[dict[str, Any]]:
        """What the family's checks say, case by case, before anything is timed; ends early where the worker is lost."""
        _terminal.say(f"checking {self.name} on {units.counted(len(choices), 'case')}.")
        outcomes = []
        for choice in choices:
            try:
                outcome = self._check(choice)
            except WorkerLost as lost:
                outcome = {"status": lost.status, "reason": lost.reason, "detail": str(lost), "fatal": True}
            if outcome.get("reason") == "UsageError":
                raise UsageError(outcome["detail"])
            outcomes.append(outcome)
            if outcome.get("fatal"):
                break
        else:
            self.worker.ask("drop", self.deadline_s)
        return outcomes

    def _check(self, choice: Choice) -> dict[str, Any]:
        fields = {"case": choice.case.to_json(), "seed": 0, "data": "normal", "caches": ["hot"]}
        outcome = self.worker.ask("prepare", self.deadline_s, implementation=self.name, **fields)
        return self.worker.ask("check", self.deadline_s, implementation=self.name) if outcome.get("ok") else outcome

    def begun(
        self,
        choices: Sequence[Choice],
        outcomes: Sequence[Mapping[str, Any]],
        timed: Sequence[Choice],
        selection: Selection,
        commit: Commit,
    ) -> Run:
        """The run after its checks, without rows; `timed` are the choices that can be timed."""
        checked = [choice.case.name for choice, _ in zip(choices, outcomes, strict=False)]
        conditions = {
            **selection.to_json(),
            "caches": list(usual_caches(self.worker)),
            "tried": {**self.tried, "checked": checked, "of": len(choices), "timed": bool(timed)},
        }
        return begin_run(self.worker.machine, self.worker.stack, conditions, commit)

    def failed(self, choices: Sequence[Choice], outcomes: Sequence[Mapping[str, Any]]) -> list[Row]:
        """A row for each case whose check failed."""
        wrong = [(c, o) for c, o in zip(choices, outcomes, strict=False) if not o.get("ok")]
        return [row_of(c.family, c.case, self.name, o, cache="", timer="", data="normal", seed=0) for c, o in wrong]

    def measure(self, run: Run, choices: Sequence[Choice], seconds: float, failed: Sequence[Row]) -> Run:
        """The run with its rows, those that failed first. It is kept in memory unless `results` says where to store it.

        Without `choices` nothing is timed.
        """
        run = replace(run, limits=measure_limits(self.worker)) if choices else run
        with self._sink(run) as (keep, finish):
            if failed:
                keep(failed)
            if not choices:
                return finish({})
            done = run_loop(
                loop.Plan(choices, tuple(run.selection["caches"]), seconds=seconds),
                self.worker,
                run.limits,
                restart=self.start,
                sink=keep,
                console=Console(stderr=True),
                begun=time.monotonic(),
            )
            if len(done.skipped) == len(choices):
                _terminal.say(too_short(done, seconds))
            elif done.skipped:
                _terminal.say(f"{units.counted(len(done.skipped), 'case')} found no time: ask for more --seconds.")
            return finish(done.spent.to_json())

    @contextmanager
    def _sink(
        self, run: Run
    ) -> Iterator[tuple[Callable[[Sequence[Row]], object], Callable[[Mapping[str, float]], Run]]]:
        """What takes the rows, and what makes the run of them when its seconds are known."""
        if self.results is None:
            rows: list[Row] = []
            yield rows.extend, lambda seconds: replace(run, rows=tuple(rows), seconds=seconds)
            return
        store = Store(self.results)
        with store.begin(run) as journal:

            def finish(seconds: Mapping[str, float]) -> Run:
                journal.update(seconds=seconds)
                path = journal.finish()
                _terminal.say(f"stored as {path}")
                return store.load(str(path))

            yield journal.extend, finish


def timeable(choices: Sequence[Choice], outcomes: Sequence[Mapping[str, Any]]) -> list[Choice]:
    """Those that passed, unless one of the others is wrong or left no worker: then nothing is timed."""
    if any(outcome.get("fatal") or (not outcome.get("ok") and is_wrong(outcome)) for outcome in outcomes):
        return []
    return [choice for choice, outcome in zip(choices, outcomes, strict=False) if outcome.get("ok")]


def find_commit(asked: str) -> Commit:
    """Of the checkout. One without git needs none, since what is tried is not the checkout."""
    try:
        return describe_commit(own_overlay(), asked)
    except UsageError:
        if asked:
            raise
        return Commit("", dirty=False)


def select(known: Catalog, selection: Selection, against: str) -> tuple[list[Choice], bool]:
    """The cases selected, each with what it is held `against` and the selection's one implementation; and whether
    nobody chose them. Where nothing was named, it is the family's first yardstick that has a meaning for any of them.
    """
    (name,) = selection.families
    family = known.family(name)
    default = not selection.cases and not selection.tags
    if default and any("quick" in case.tags for case in family.cases):
        selection = replace(selection, tags=("quick",))
    cases = [choice.case for choice in known.select(selection)]
    meant = {case: offered(family, case) for case in cases}
    for one in [against] if against else family.yardsticks:
        held = replace(family, yardsticks=(one,))
        choices = [Choice(held, case, (one, *selection.implementations)) for case in cases if one in meant[case]]
        if choices:
            return choices, default
    others = [one for one in family.yardsticks if any(one in names for names in meant.values())]
    raise UsageError(
        f"{against or ', '.join(family.yardsticks)} has no meaning for any of these cases: choose others"
        + (f", or --against {' or '.join(others)}." if others else ".")
    )


def _handful(choices: Sequence[Choice]) -> list[Choice]:
    """Evenly out of those in the first one's dtype: a first kernel is often written for one dtype."""
    first = choices[0].case
    alike = [c for c in choices if (c.case.dtype, c.case.precision) == (first.dtype, first.precision)]
    step = max((len(alike) - 1) / (HANDFUL - 1), 1)
    return [alike[round(i * step)] for i in range(min(HANDFUL, len(alike)))]
