"""What the adapters for asv and pytest-benchmark measure: a selection of the catalog, once, by one worker.

GEMMGATE_BENCH_FAMILY, _CASE, _IMPL and _TAG select as the options of `gemmgate run` do, by default the cases tagged
quick; _DEVICE, _CACHE and _SECONDS are those options too. Nothing here imports torch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # asv imports this folder without its parent

from gemmgate.suite import catalog, loop
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.records import Limits, Row
from gemmgate.suite.workers import Worker

Rows = dict[tuple[str, str, str, str], Row]  # by family, case, implementation and cache state


def asked(name: str, default: str = "") -> tuple[str, ...]:
    """The words of GEMMGATE_BENCH_<name>, which are separated by commas."""
    return tuple(filter(None, (os.environ.get(f"GEMMGATE_BENCH_{name}") or default).split(",")))


CACHES = asked("CACHE", "cold,hot")
CHOICES = catalog.find().select(
    catalog.Selection(asked("FAMILY"), asked("CASE"), asked("IMPL"), asked("TAG", "" if asked("CASE") else "quick"))
)


class _Quiet:  # asv and pytest show a progress of their own
    def case(self, choice: catalog.Choice, index: int, count: int) -> None: ...
    def step(self, implementation: str, step: str) -> None: ...
    def row(self, row: Row) -> None: ...


def measure() -> Rows:
    """Checks and measures the whole selection with one worker; a CPU has no cold cache state."""
    rows: list[Row] = []
    begun, device = time.monotonic(), asked("DEVICE", "auto")[0]
    worker = Worker(device)
    reply = worker.ask("limits", 120.0)
    if not reply.get("ok"):
        worker.kill()
        raise CannotMeasureError(f"This machine's limits could not be measured: {reply['detail']}.")
    caches = CACHES if worker.target.is_gpu else ("hot",)
    plan = loop.Plan(CHOICES, caches, seconds=float(asked("SECONDS", "0")[0]) or None)
    limits, again = Limits(**reply["limits"]), lambda: Worker(device)
    loop.Loop(plan, worker, limits, restart=again, sink=rows.extend, progress=_Quiet(), begun=begun).run()
    return {(row.family, row.case, row.implementation, row.cache): row for row in rows}
