"""One call timed in three ways, and why they differ: a replayed graph, blocked events, kernels in a trace.

Nothing here measures; `witness` takes what this judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gemmgate.suite.measure.trace import Activity

AGREEMENT = 0.05
"""Two timers that differ by less agree; what is more has to be explained."""
_GAP_FACTOR = 2.0
_GAP_SLACK_S = 1e-6
_GROUPS = 60


@dataclass(frozen=True)
class Traced:
    """A trace cut into calls. `call_s` are seconds in kernels a call; `busy_s` the same with overlaps counted once."""

    call_s: tuple[float, ...]
    busy_s: float
    names: tuple[str, ...]
    copies: int

    @property
    def kernel_s(self) -> float:
        return sum(self.call_s) / len(self.call_s)


@dataclass(frozen=True)
class Explained:
    """Why a timer gave another number than the one that counts; `reason` is `agrees` where it did not."""

    reason: str
    sentence: str


def cut(activities: Sequence[Activity], calls: int) -> Traced | None:
    """A trace of `calls` equal calls, or None where it does not divide into such."""
    if not activities or len(activities) % calls:
        return None
    each = len(activities) // calls
    counts = Counter(activity.name for activity in activities)
    if any(count % calls for count in counts.values()):
        return None
    sums = [
        sum(one.duration_s for one in activities[start : start + each]) for start in range(0, len(activities), each)
    ]
    first = activities[:each]
    return Traced(
        call_s=tuple(sums),
        busy_s=_busy_s(activities) / calls,
        names=tuple(activity.name for activity in first),
        copies=sum(activity.kind != "kernel" for activity in first),
    )


def thinned(values: Sequence[float]) -> list[float]:
    """Means of neighbouring calls, so many that they are samples."""
    size = max(1, len(values) // _GROUPS)
    return [sum(values[i : i + size]) / size for i in range(0, len(values) - size + 1, size)]


def difference_of_kernels(eager: Traced, graph: Traced) -> str:
    """What a captured call lacks or has besides, against the same call without a graph; empty where nothing.

    A copy may be a kernel in one and a copy in the other: that is told by `explain`, for it may be meant.
    """
    here, there = Counter(_without_copies(eager)), Counter(_without_copies(graph))
    missing, besides = list((here - there).elements()), list((there - here).elements())
    copied = graph.copies - eager.copies
    if copied > 0 and len(missing) <= copied and not besides and all("copy" in name.lower() for name in missing):
        return ""
    said = [f"the graph lacks {', '.join(missing)}"] if missing else []
    said += [f"the graph has {', '.join(besides)}, which the call alone does not launch"] if besides else []
    return "; ".join(said)


def explain(
    timer: str,
    seconds: float,
    graph_s: float,
    traced: Traced,
    launch_floor_s: float,
    *,
    eager: Traced,
    starved: bool,
    clock_ratio: float = 1.0,
) -> Explained:
    """Why `timer`, which is `events` or `cupti`, says `seconds` where the graph says `graph_s`.

    `clock_ratio` is the board's highest clock over the one that the graph was timed at: a trace is too short to
    reach the power limit.
    """
    change = seconds / graph_s - 1
    if abs(change) <= AGREEMENT:
        return Explained("agrees", f"{timer} and graph differ by {abs(change):.1%}")
    said = f"{timer} says {change:+.0%}"
    kernels = len(traced.names)
    gap_s = abs(seconds - graph_s) / kernels
    gap_limit_s = _GAP_FACTOR * launch_floor_s + _GAP_SLACK_S
    if starved:
        return Explained("host_bound", f"{said}: the host was too slow to keep the queue full, and is part of it")
    if traced.copies and (timer == "events" or traced.copies != eager.copies):
        sentence = (
            f"{said}: {traced.copies} nodes of the graph are copies or fills, which a stream runs at another speed"
        )
        return Explained("memcpy_node", sentence)
    overlap_s = traced.kernel_s - traced.busy_s
    if timer == "cupti" and seconds > graph_s and overlap_s >= 0.5 * (seconds - graph_s):
        return Explained("overlap", f"{said}: kernels overlap by {overlap_s * 1e6:.2f} us a call")
    if gap_s <= gap_limit_s and (timer == "events") == (seconds > graph_s):
        return Explained("launch_gap", f"{said}: {gap_s * 1e6:.2f} us before each of {kernels} launches")
    if timer == "events" and traced.busy_s <= seconds < graph_s and gap_s <= gap_limit_s:
        own_us, node_us = ((one - traced.busy_s) / kernels * 1e6 for one in (seconds, graph_s))
        sentence = (
            f"{said}: {own_us:.2f} us before each of {kernels} launches, and {node_us:.2f} us before a graph's node"
        )
        return Explained("launch_gap", sentence)
    if timer == "cupti" and seconds < graph_s <= seconds * clock_ratio * (1 + AGREEMENT):
        held = f"the graph was timed at {1 / clock_ratio:.0%} of the highest clock, which a trace is too short to leave"
        return Explained("clock", f"{said}: {held}")
    return Explained("unexplained", f"{said}: {gap_s * 1e6:.2f} us a launch, more than launching takes")


def _without_copies(traced: Traced) -> list[str]:
    return [name for name in traced.names if not name.lower().startswith(("memcpy", "memset"))]


def _busy_s(activities: Sequence[Activity]) -> float:
    """Seconds in which at least one of them ran."""
    total, end = 0.0, float("-inf")
    for activity in activities:
        total += max(activity.end_s - max(activity.begin_s, end), 0.0)
        end = max(end, activity.end_s)
    return total
