"""Interleaved rounds over what is bound and ready: a pilot, the samples, and a look at what they wrote."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gemmgate.suite.measure.launching import Launching
from gemmgate.suite.measure.machine import Telemetry
from gemmgate.suite.measure.precise import Precise
from gemmgate.suite.measure.refusal import Refused
from gemmgate.suite.measure.sampler import Clock, ImpossibleTime, rounds_and_repeats, sample, sequential_rounds
from gemmgate.suite.measure.timed import Timed
from gemmgate.suite.measure.watched import WatchedClock

_PILOT_ROUNDS = 2
_PATIENCE = 3
"""Without a budget, rounds end after so many times the time that the pilot promised."""
_TELL_EVERY_S = 1.0


class Rounds:
    """Samples launches with one clock. `sample_s` is how long a sample lasts where no budget asks for more.

    `verify` raises `Refused` where the last launches wrote something wrong; `alive` is called now and
    then while rounds go on.
    """

    def __init__(
        self,
        clock: Clock,
        telemetry: Telemetry,
        sample_s: float,
        verify: Callable[[Timed], None],
        alive: Callable[[], None],
        launching: Launching | None = None,
    ) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._sample_s = sample_s
        self._verify = verify
        self._alive = alive
        self._launching = launching
        self._told = 0.0

    def measure(
        self,
        timed: Sequence[Timed],
        seconds: float | None,
        measured: dict[str, dict[str, Any]],
        *,
        yardsticks: Sequence[str] = (),
        precision: float | None = None,
    ) -> None:
        """Adds to `measured`, by name, samples and what explains them, or a status with its reason.

        `seconds` is the time to fill, or with `precision` the most to take until every ratio to the first of
        `yardsticks` is known within that share.
        """
        if not timed:
            return
        begin = time.perf_counter()
        self._alive()
        if self._launching:
            self._launching.steady()
        clock = WatchedClock(self._clock, self._telemetry, self._launching)
        precise = Precise([one.name for one in timed], yardsticks, precision) if precision else None
        try:
            launches_s = self._pilot(timed)
            left_s = None if seconds is None else max(seconds - (time.perf_counter() - begin), 0.0)
            plan = sequential_rounds if precise else rounds_and_repeats
            rounds, repeats = plan(launches_s, left_s, self._sample_s)
            repeats = [min(times, one.most_repeats or times) for one, times in zip(timed, repeats, strict=True)]
            launches = [one.repeated(times) for one, times in zip(timed, repeats, strict=True)]
            planned_s = rounds * sum(times * one_s for times, one_s in zip(repeats, launches_s, strict=True))
            end = time.perf_counter() + (_PATIENCE * planned_s if left_s is None else left_s)
            is_enough = precise.is_enough if precise else None
            samples = sample(clock, launches, rounds, partial(self._is_over, end), is_enough)
        except ImpossibleTime as impossible:
            name = timed[impossible.index].name
            measured[name] = {"status": "invalid", "reason": "impossible_time", "detail": str(impossible)}
            others = [one for one in timed if one.name != name]
            self.measure(others, seconds, measured, yardsticks=yardsticks, precision=precision)
            return
        for one, launch, values in zip(timed, launches, samples, strict=True):
            try:
                self._verify(one)
            except Refused as refused:
                measured[one.name] = {"status": refused.status, "reason": refused.reason, "detail": str(refused)}
                continue
            seen = clock.seen(launch)
            if one.captured and one.captured.programmatic:
                seen.update(marks=[*seen["marks"], "overlapped"], flags={"programmatic_launch": "on"})
            measured.setdefault(one.name, {}).update(
                samples_s=values,
                calls_per_sample=launch.calls,
                timer=one.timer,
                kernels=len(one.nodes) if one.nodes else None,
                kernel_names=one.nodes,
                workspace_bytes=one.workspace_bytes,
                **seen,
            )
            if precise:
                measured[one.name]["detail"] = precise.remark(one.name, samples)

    def _pilot(self, timed: Sequence[Timed]) -> list[float]:
        """Seconds of one launch of each, as they come interleaved: what a launch alone takes may be far from it."""
        _, repeats = rounds_and_repeats([one.launch_s for one in timed], None, self._sample_s)
        repeats = [min(times, one.most_repeats or times) for one, times in zip(timed, repeats, strict=True)]
        launches = [one.repeated(times) for one, times in zip(timed, repeats, strict=True)]
        clock = WatchedClock(self._clock, self._telemetry)
        piloted = [
            [seconds * launch.calls / times for seconds in values]
            for launch, times, values in zip(launches, repeats, sample(clock, launches, _PILOT_ROUNDS), strict=True)
        ]
        return [statistics.fmean(values) for values in piloted]

    def _is_over(self, end: float) -> bool:
        """Whether it is later than `end`."""
        now = time.perf_counter()
        if now - self._told > _TELL_EVERY_S:
            self._alive()
            self._told = now
        return now > end
