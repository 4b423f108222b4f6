"""Takes what a cross-check compares: a trace of the call and of its graph, and blocked events over the same ring."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from gemmgate.suite.measure.crosscheck import Explained, Traced, cut, difference_of_kernels, explain, thinned
from gemmgate.suite.measure.machine import Telemetry
from gemmgate.suite.measure.refusal import status_of
from gemmgate.suite.measure.sampler import Clock, rounds_and_repeats, sample
from gemmgate.suite.measure.timed import Timed, make_timed, one_by_one
from gemmgate.suite.measure.trace import trace
from gemmgate.suite.measure.watched import WatchedClock
from gemmgate.suite.measure.work import Work
from gemmgate.suite.records import MIN_SAMPLES

_EAGER_CALLS = 3
_LEAST_TRACED = 40
_SAMPLE_S = 1e-3


def cross_check(
    work: Work,
    names: Sequence[str],
    cache: str,
    clocks: dict[str, Clock],
    telemetry: Telemetry,
    launch_floor_s: float,
    at: Callable[[str, str], None],
) -> dict[str, dict[str, Any]]:
    """For each name: `kernels_differ`, a sentence or empty, and the facts of a row for each other timer.

    `work.medians_s` has what the timer that counts gave.
    """
    found: dict[str, dict[str, Any]] = {}
    queued: list[tuple[Timed, Traced, Traced]] = []
    for name in names:
        at(name, "cross-check")
        try:
            timed = make_timed(name, work.ready[name], work.ring_of(cache), cache, clocks, lambda step: None)
            eager, traced = _traced(timed)
            if eager is None or traced is None:
                found[name] = {"kernels_differ": "", "rows": {"cupti": _no_trace(eager, timed)}}
                continue
            differ = difference_of_kernels(eager, traced) if timed.captured else ""
            counts = work.medians_s[cache].get(name)
            facts = {"samples_s": thinned(traced.call_s), "kernels": len(traced.names), "kernel_names": traced.names}
            why = None
            if counts:
                ratio = _clock_ratio(work.clocks_hz[cache].get(name), telemetry)
                seconds = traced.kernel_s
                why = explain(
                    "cupti", seconds, counts, traced, launch_floor_s, eager=eager, starved=False, clock_ratio=ratio
                )
            found[name] = {"kernels_differ": differ, "rows": {"cupti": {**facts, **_told(why)}}}
            if timed.captured:
                alone = one_by_one(name, "events", timed.calls, work.ready[name], clocks["events"])
                queued.append((alone, eager, traced))
        except Exception as error:
            outcome = status_of(error)
            if outcome["fatal"]:
                raise
            found[name] = {"kernels_differ": "", "rows": {"cupti": outcome}}
    _add_events(work, cache, queued, clocks, telemetry, launch_floor_s, found)
    return found


def _clock_ratio(clock_hz: float | None, telemetry: Telemetry) -> float:
    """The highest clock over the one seen; 1 where either is not known."""
    highest_hz = telemetry.max_sm_clock_hz
    return max(highest_hz / clock_hz, 1.0) if highest_hz and clock_hz else 1.0


def _traced(timed: Timed) -> tuple[Traced | None, Traced | None]:
    """Some calls alone, and as many of the timed launches as give samples."""
    calls = list(itertools.islice(itertools.cycle(timed.calls), _EAGER_CALLS))
    eager = cut(trace(lambda: _run(calls)), _EAGER_CALLS)
    times = max(1, -(-_LEAST_TRACED // timed.launch.calls))
    return eager, cut(trace(timed.repeated(times).enqueue), times * timed.launch.calls)


def _run(calls: Sequence[Callable[[], Any]]) -> None:
    for call in calls:
        call()


def _add_events(
    work: Work,
    cache: str,
    queued: Sequence[tuple[Timed, Traced, Traced]],
    clocks: dict[str, Clock],
    telemetry: Telemetry,
    launch_floor_s: float,
    found: dict[str, dict[str, Any]],
) -> None:
    """Samples all of them interleaved, so that their ratios mean something too."""
    if not queued:
        return
    timed = [alone for alone, _, _ in queued]
    _, repeats = rounds_and_repeats([alone.launch_s for alone in timed], None, _SAMPLE_S)
    launches = [
        alone.repeated(min(times, alone.most_repeats or times)) for alone, times in zip(timed, repeats, strict=True)
    ]
    clock = WatchedClock(clocks["events"], telemetry)
    for (alone, eager, traced), launch, values in zip(
        queued, launches, sample(clock, launches, MIN_SAMPLES), strict=True
    ):
        seen = clock.seen(launch)
        counts = work.medians_s[cache].get(alone.name)
        why = None
        if counts:
            seconds = sorted(values)[len(values) // 2]
            starved = "host_bound" in seen["marks"]
            why = explain("events", seconds, counts, traced, launch_floor_s, eager=eager, starved=starved)
        told = _told(why)
        seen["marks"] = [*seen["marks"], *told.pop("marks", ())]
        found[alone.name]["rows"]["events"] = {
            "samples_s": values,
            "calls_per_sample": launch.calls,
            **seen,
            **told,
        }


def _told(why: Explained | None) -> dict[str, Any]:
    if why is None:
        return {}
    marks = {"marks": ["unexplained"]} if why.reason == "unexplained" else {}
    return {"reason": why.reason, "detail": why.sentence, **marks}


def _no_trace(eager: Traced | None, timed: Timed) -> dict[str, Any]:
    what = "the calls alone" if eager is None else f"{timed.launch.calls} calls of the {timed.timer}"
    detail = f"the profiler's trace of {what} is empty or does not divide into equal calls"
    return {"status": "unsupported", "reason": "no_trace", "detail": detail}
