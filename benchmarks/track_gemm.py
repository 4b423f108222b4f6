"""asv's benchmarks: a class a family, a series for each case, implementation and cache state. See docs/history.md.

    asv run -E existing --set-commit-hash $(git rev-parse HEAD) --record-samples

asv starts a process for each combination of parameters; none of them measures. `setup_cache` does, once for all,
with one worker that interleaves the implementations of a case, and the processes read what came out.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from benchmarks import CACHES, CHOICES, Rows, measure
from gemmgate.suite.history import PARAM_NAMES, class_name
from gemmgate.suite.records import METHOD_VERSION


class _Series:
    family: ClassVar[str]
    params: ClassVar[list[list[str]]]
    param_names: ClassVar = list(PARAM_NAMES)
    unit = "seconds"
    version = str(METHOD_VERSION)
    """Of the method, and not of this code: another protocol begins another history."""

    def setup_cache(self) -> Rows:
        return measure()

    setup_cache.timeout = 7200  # type: ignore[attr-defined]

    def track_seconds(self, rows: Rows, case: str, implementation: str, conditions: str) -> Any:
        row = rows.get((self.family, case, implementation, conditions))
        if row is None or row.status == "unsupported":
            return math.nan  # asv's word for "skipped"
        if row.status != "ok":
            raise RuntimeError(f"{row.path}: {row.status} ({row.reason}) {row.detail}")
        return {"samples": list(row.samples_s), "number": 1}


def _params(family: str) -> list[list[str]]:
    mine = [choice for choice in CHOICES if choice.family.name == family]
    names = dict.fromkeys(name for choice in mine for name in choice.implementations)
    return [[choice.case.name for choice in mine], list(names), list(CACHES)]


for _name in dict.fromkeys(choice.family.name for choice in CHOICES):
    _fields = {"family": _name, "params": _params(_name), "__module__": __name__, "__doc__": _Series.__doc__}
    globals()[class_name(_name)] = type(class_name(_name), (_Series,), _fields)
