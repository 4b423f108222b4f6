"""A gate as a whole: its items, what the repository accepts of them, and the exit code. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import date

from gemmgate.suite import judged as _judged
from gemmgate.suite.acceptances import Acceptances, Applied, apply
from gemmgate.suite.block_values import WHY_SPOILED, values
from gemmgate.suite.errors import PASS, UNJUDGED
from gemmgate.suite.gate import GateResult, Policy, judge
from gemmgate.suite.judged import Judged
from gemmgate.suite.judged_static import judged_static
from gemmgate.suite.judged_static import notes as static_notes
from gemmgate.suite.looks import OWN
from gemmgate.suite.records import Run

NOTHING = Acceptances()


@dataclass(frozen=True)
class Judgement:
    """`items` are worst first. `notes` are sentences about the gate, beside those of `result`."""

    run: Run
    items: tuple[Judged, ...]
    result: GateResult
    applied: Applied
    notes: tuple[str, ...]

    @property
    def times_count(self) -> bool:
        return bool(self.run.selection["gates_time"])

    @property
    def is_failed(self) -> frozenset[str]:
        """Paths of what stops the change."""
        return frozenset(comparison.row.path for comparison in self.result.failed)


def judgement(run: Run, file: Acceptances = NOTHING, *, state: str = "finished") -> Judgement:
    """What a stored gate says, by the acceptances of its base; one that has not `finished`, by what it has so far.

    One that goes on or was interrupted fails already, or else has not been judged: it cannot have passed.
    """
    items = (*_judged.judged(run), *judged_static(run))
    today = date.fromisoformat(run.utc[:10])
    comparisons = [one.comparison for one in items]
    applied = apply(file, comparisons, today, _judged.since_release(run))
    items = tuple(_told(one, applied) for one in items)
    times = run.selection["gates_time"]
    noisy = tuple(one.path for one in items if times and one.standing == "reported")
    policy = Policy(noisy, tuple(applied.accepted), times)
    result = judge([one.comparison for one in items], policy)
    if state != "finished" and result.exit_code == PASS:
        result = replace(result, exit_code=UNJUDGED, sentence=f"Not judged to its end. So far: {result.sentence}")
    notes = (*_unfinished(run, state), *_notes(run, items, applied))
    late = sum(one.comparison.reason == _judged.NO_TIME for one in items)
    if late and state == "finished":
        notes = (*notes, f"Time ran out for {_items(late)}: `gemmgate gate --resume {run.id}` goes on with them.")
    return Judgement(run, tuple(_judged.worst_first(items)), result, applied, notes)


def _told(one: Judged, applied: Applied) -> Judged:
    """With what the acceptances say of it."""
    said = applied.accepted.get(one.path) or applied.refused.get(one.path)
    if not said:
        return one
    sentence = f"{one.comparison.sentence} {said[0].upper()}{said[1:]}."
    return replace(one, comparison=replace(one.comparison, sentence=sentence))


def _unfinished(run: Run, state: str) -> list[str]:
    if state == "finished":
        return []
    how = "It goes on" if state == "running" else f"It was {state}: `gemmgate gate --resume {run.id}` goes on"
    return [f"{how}. What it had measured by then is judged."]


def _notes(run: Run, items: tuple[Judged, ...], applied: Applied) -> list[str]:
    notes = []
    reasons = Counter(one.comparison.reason for one in items)
    if reasons["identical"]:
        notes.append(f"{_items(reasons['identical'])} the same on both sides, and so not timed (--all times them).")
    if reasons[_judged.UNTOUCHED]:
        said = "made of what did not change: neither prepared nor timed (--all does both)."
        notes.append(f"{_items(reasons[_judged.UNTOUCHED])} {said}")
    own = sum(one.noise is not None and one.noise.source == OWN for one in items)
    if own and run.selection["gates_time"]:
        notes.append(f"The noise of {_items(own)} is known from this gate's own blocks alone: no calibration has it.")
    spoiled = sum(value.spoiled for value in values(run.rows))
    if spoiled:
        notes.append(f"{spoiled} blocks were {WHY_SPOILED}, and count for nothing.")
    if run.machine.takes_turns and any(one.blocks for one in items):
        notes.append("The GPU admits one process at a time: the sides took turns, three processes a block.")
    notes += static_notes(run)
    return [*notes, *(f"Accepted: {report}" for report in applied.reports)]


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"
