"""From a callable and a clock to samples: knows no family and no file. Runs inside a worker.

`do_bench` and `measure` are for programs of their own: they are imported when asked for, and torch with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmgate.suite.measure.drop_in import Measured, do_bench, measure

__all__ = ["Measured", "do_bench", "measure"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gemmgate.suite.measure import drop_in

    return getattr(drop_in, name)
