"""Calls timed one by one between two events, with the cache emptied by a write before each: how others publish.

It is the protocol of Triton's `do_bench`, and not this project's: the kernel finds dirty lines that it has to
write back, and the events and the launch are part of a time of some microseconds. Its rows stand beside those that
count, so that a published figure can be held against one that came about in the same way. Unlike there, calls of
all implementations take turns, so that a ratio is of samples that were taken together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gemmgate.suite.cases import Call
from gemmgate.suite.measure import check
from gemmgate.suite.measure.machine import Telemetry
from gemmgate.suite.measure.refusal import Refused, status_of
from gemmgate.suite.measure.rotation import CACHE_MULTIPLE, tensors_in
from gemmgate.suite.measure.sampler import balanced_orders
from gemmgate.suite.measure.work import Work
from gemmgate.suite.records import MIN_SAMPLES

FLUSH_BYTES = 256 * 2**20
"""Written before each call, as there."""
_ROUNDS = 60
_MOST_S = 0.1
"""For each implementation, as long as that leaves enough samples."""
_FLUSH_S = 1e-4
"""About how long the write takes: while it does, the host queues the call."""


def time_singly(
    work: Work, names: Sequence[str], cache: str, telemetry: Telemetry, at: Callable[[str, str], None]
) -> dict[str, dict[str, Any]]:
    """Facts of a row for each name, or a status with its reason. `work.medians_s[cache]` says how long calls take."""
    found: dict[str, dict[str, Any]] = {}
    calls: dict[str, Call] = {}
    for name in names:
        at(name, "time singly")
        try:
            calls[name] = work.ready[name].bind(work.ring.slots[0])
            check.poison(tensors_in(calls[name]()))
            torch.cuda.synchronize()
        except Exception as error:
            outcome = status_of(error)
            if outcome["fatal"]:
                raise
            found[name] = outcome
            calls.pop(name, None)
    if not calls:
        return found
    medians_s = [work.medians_s.get(cache, {}).get(name, 0.0) for name in calls]
    samples, outputs = _sample(list(calls.values()), _rounds(medians_s), work.device)
    clock_hz, marks = telemetry.sm_clock_hz, telemetry.marks()
    torch.cuda.synchronize()
    multiple = FLUSH_BYTES / work.cache_bytes
    shared = {
        "calls_per_sample": 1,
        "timer": "events",
        "sm_clock_hz": clock_hz,
        "cache_proof": "proven" if multiple >= CACHE_MULTIPLE else "unknown",
        "cache_evidence": f"{FLUSH_BYTES >> 20} MiB are written before each call, {multiple:.3g} times the cache",
    }
    for name, events, output in zip(calls, samples, outputs, strict=True):
        try:
            found[name] = {"samples_s": _seconds(events), "marks": sorted(marks), **shared}
            errors = work.verify(name, 0, output)
            if errors.reason:
                raise Refused("broken", errors.reason, f"in calls timed singly: {errors.detail}")
        except Exception as error:
            outcome = status_of(error)
            if outcome["fatal"]:
                raise
            found[name] = outcome
    return found


def _rounds(medians_s: Sequence[float]) -> int:
    round_s = sum(seconds + _FLUSH_S for seconds in medians_s)
    return max(MIN_SAMPLES, min(_ROUNDS, int(_MOST_S * len(medians_s) / round_s)))


def _sample(calls: Sequence[Call], rounds: int, device: torch.device) -> tuple[list[list[tuple[Any, Any]]], list[Any]]:
    """Pairs of events by call, the i-th of each from the same round, and what each returned last. Not waited for."""
    flushed = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)
    pairs: list[list[tuple[Any, Any]]] = [[] for _ in calls]
    outputs: list[Any] = [None] * len(calls)
    for order in balanced_orders(len(calls), rounds):
        for index in order:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flushed.zero_()
            begin.record()
            outputs[index] = calls[index]()
            end.record()
            pairs[index].append((begin, end))
    return pairs, outputs


def _seconds(pairs: Sequence[tuple[Any, Any]]) -> list[float]:
    seconds = [begin.elapsed_time(end) * 1e-3 for begin, end in pairs]
    if not all(math.isfinite(value) and value > 0 for value in seconds):
        raise Refused("invalid", "impossible_time", f"two events lie {statistics.median(seconds)} s apart")
    return seconds
