"""What the device did, kernel by kernel, as the profiler saw it: names, begins and durations.

On an NVIDIA GPU the profiler behind `torch.profiler` is CUPTI, which reports each kernel of a replayed
graph on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


@dataclass(frozen=True)
class Activity:
    """One kernel, copy or fill. `kind` is `kernel`, `memcpy` or `memset`."""

    name: str
    kind: str
    begin_s: float
    duration_s: float

    @property
    def end_s(self) -> float:
        return self.begin_s + self.duration_s


def trace(work: Callable[[], None]) -> tuple[Activity, ...]:
    """The activities of `work` on the device, in the order in which they began; none where nobody may look."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        work()
        torch.cuda.synchronize()
    return activities(profiler.profiler.kineto_results.events())


def activities(events: Any) -> tuple[Activity, ...]:
    """Those of the profiler's events that ran on the device."""
    found = []
    for event in events:
        if "CUDA" not in str(event.device_type()):
            continue
        # Older profilers do not tell the type of an activity, but their names of copies and fills do.
        word = event.name().partition(" ")[0].lower()
        named = word if word in ("memcpy", "memset") else "kernel"
        kind = _KINDS.get(event.activity_type()) if hasattr(event, "activity_type") else named
        if kind is None:
            continue  # an annotation that spans kernels
        found.append(Activity(event.name(), kind, event.start_ns() * 1e-9, event.duration_ns() * 1e-9))
    return tuple(sorted(found, key=lambda activity: activity.begin_s))
