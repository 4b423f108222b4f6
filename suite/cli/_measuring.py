"""What commands that measure share: the machine's limits, the loop under a progress display, the usual cache states."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.console import Console

from gemmgate.suite.cli import _terminal
from gemmgate.suite.cli._progress import Display
from gemmgate.suite.cli._stored import say_left_out
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.loop import Loop, Plan
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.store import Store
from gemmgate.suite.workers import Worker

CACHES = ("cold", "hot")
LIMITS_DEADLINE_S = 120.0


def usual_caches(worker: Worker) -> tuple[str, ...]:
    """Both states on a GPU; a CPU's last-level cache is too large for a ring."""
    return CACHES if worker.target.is_gpu else ("hot",)


def known_limits(worker: Worker, store: Store) -> Limits:
    """Those of the machine's newest calibration in `store`, else a short version measured now; says which."""
    stored, lost = store.limits(worker.machine.key)
    say_left_out(lost)
    if stored is None:
        _terminal.say("roofs are a short version, for no calibration of this machine is stored: `gemmgate calibrate`.")
        return measure_limits(worker)
    _terminal.say(f"roofs and floors are those of calibration {stored.source}.")
    return stored


def short_of_time(started_s: float, seconds: float, cases: int) -> str:
    """What to know before a run whose start has left less than half of its `seconds`; empty where it left more."""
    if started_s <= seconds / 2:
        return ""
    more = f"; --seconds {math.ceil(started_s) + cases} leaves about a second for each of {cases}" if cases > 1 else ""
    return (
        f"starting took {started_s:.1f} s of --seconds {seconds:g}: the first case is measured in any case, "
        f"others while time is left{more}."
    )


def too_short(done: Loop, seconds: float) -> str:
    """That nothing was measured, and how many seconds would have done."""
    enough = f"--seconds {math.ceil(done.enough_s)} is enough for one" if done.enough_s else "give more time"
    return f"No case found time within --seconds {seconds:g}: {enough}."


def measure_limits(worker: Worker, *, long: bool = False) -> Limits:
    """Asks the worker; raises `CannotMeasureError` where it cannot say."""
    reply = worker.ask("limits", LIMITS_DEADLINE_S, long=long)
    if not reply.get("ok"):
        raise CannotMeasureError(f"This machine's limits could not be measured: {reply['detail']}.")
    return Limits(**reply["limits"])


def run_loop(
    plan: Plan,
    worker: Worker,
    limits: Limits,
    *,
    restart: Callable[[], Worker],
    sink: Callable[[Sequence[Row]], object],
    console: Console,
    begun: float,
) -> Loop:
    """Runs the plan to its end; the loop says what was spent and skipped."""
    with Display(console) as display:
        running = Loop(plan, worker, limits, restart=restart, sink=sink, progress=display, begun=begun)
        running.run()
    return running
