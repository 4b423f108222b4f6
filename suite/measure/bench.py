"""What a worker does with a case: prepare, check, sample. One case at a time; its ring and references are kept."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from gemmgate.suite.cases import Case, Family, Implementation, Inputs, Prepared, Target, Tile
from gemmgate.suite.measure import check
from gemmgate.suite.measure.check import Errors
from gemmgate.suite.measure.clock import EventClock, HostClock
from gemmgate.suite.measure.machine import Telemetry, precision_flags
from gemmgate.suite.measure.precise import Precise
from gemmgate.suite.measure.refusal import Refused, status_of
from gemmgate.suite.measure.rotation import Ring, build_ring, tensors_in
from gemmgate.suite.measure.sampler import Clock, ImpossibleTime, rounds_and_repeats, sample, sequential_rounds
from gemmgate.suite.measure.settle import Settled, settle
from gemmgate.suite.measure.timed import Timed, host_and_eager_s, make_timed
from gemmgate.suite.measure.watched import WatchedClock
from gemmgate.suite.records import MIN_SAMPLES

SCREENING_ROUNDS = 8
_PILOT_ROUNDS = 2
_SAMPLE_S = {"cuda": 1e-3, "cpu": 5e-3}
"""How long a sample lasts where no budget asks for more."""
_PATIENCE = 3
"""Without a budget, rounds end after so many times the time that the pilot promised."""
_OTHER_SEED = 7919
"""Added to the seed for the second set of inputs that every implementation is checked on."""
_SETTLE_FIRST_S, _SETTLE_S, _LOAD_S = 0.5, 0.05, 5e-3


@dataclass
class Work:
    """A case being measured: its inputs, its float64 references by slot, what has been prepared."""

    case: Case
    family: Family
    make: Callable[[int], Inputs]
    reference: Callable[[Inputs], list[torch.Tensor]]
    ring: Ring
    ready: dict[str, Prepared] = field(default_factory=dict)
    implementations: dict[str, Implementation] = field(default_factory=dict)
    references: dict[int, list[torch.Tensor]] = field(default_factory=dict)

    def expected(self, slot: int) -> list[torch.Tensor]:
        if slot not in self.references:
            inputs = self.ring.slots[slot] if slot < len(self.ring.slots) else self.make(slot)
            self.references[slot] = self.reference(inputs)
        return self.references[slot]

    def verify(self, slot: int, output: Any) -> Errors:
        return check.compare(
            tensors_in(output),
            self.expected(slot),
            self.family.output_dtype(self.case),
            self.family.error_bound(self.case),
        )


class Bench:
    """The measuring half of a worker. `at` is told each step before it begins: whoever dies there is named."""

    def __init__(
        self, device: torch.device, target: Target, telemetry: Telemetry, at: Callable[[str, str], None]
    ) -> None:
        self.device = device
        self.target = target
        self.telemetry = telemetry
        self.at = at
        self.clocks: dict[str, Clock] = (
            {"perf_counter": HostClock()}
            if device.type == "cpu"
            else {"graph": EventClock("graph"), "events": EventClock("events")}
        )
        self._settled = False

    def begin(
        self,
        family: Family,
        case: Case,
        make: Callable[[int], Inputs],
        reference: Callable[[Inputs], Any],
        *,
        cold: bool,
    ) -> Work:
        """Builds the ring; without `cold` it has one slot."""
        cache_bytes = self.target.l2_bytes if cold else 0
        ring = (
            build_ring(make, cache_bytes, self.device)
            if cold
            else Ring((make(0),), 0, cold=False, why="no cold state was asked for")
        )
        return Work(case, family, make, lambda inputs: tensors_in(reference(inputs)), ring)

    def prepare(self, work: Work, implementation: Implementation, tile: Tile | None = None) -> dict[str, Any]:
        """Compiles, searches and calls once; a `tile` that was chosen earlier needs no search.

        Raises `Refused` where the implementation does not take the case.
        """
        name = implementation.name
        refusal = implementation.supports(work.case, self.target)
        if refusal is not None:
            raise Refused("unsupported", *refusal)
        example = work.ring.slots[0]
        begin = time.perf_counter()
        with precision_flags(work.case.precision), check.unchanged(example):
            self.at(name, "prepare")
            if implementation.screened and tile is None:
                prepared = self._screen(work, implementation)
            else:
                prepared = implementation.prepare(work.case, example, self.target, tile)
            self.at(name, "first call")
            prepared.bind(example)()
            self._synchronize()
        work.ready[name] = prepared
        work.implementations[name] = implementation
        return {
            "tile": dict(prepared.tile) if prepared.tile is not None else None,
            "algorithm": prepared.algorithm,
            "device_code": prepared.device_code,
            "compile_s": time.perf_counter() - begin,
        }

    def check(self, work: Work, name: str) -> dict[str, Any]:
        """Right on two sets of inputs, alike when repeated over poisoned outputs, inputs left as they were.

        Raises `Refused` with status `broken` (or `invalid` where inputs changed).
        """
        self.at(name, "check")
        begin = time.perf_counter()
        prepared, implementation = work.ready[name], work.implementations[name]
        worst = Errors(0.0, 0.0, 0.0)
        with precision_flags(work.case.precision):
            for slot in (0, _OTHER_SEED):
                inputs = work.ring.slots[0] if slot == 0 else work.make(slot)
                prepared.workspaces.clear()
                with check.unchanged(inputs):
                    call = prepared.bind(inputs)
                    first = self._correct(work, slot, call())
                    worst = max(worst, first[1], key=lambda errors: errors.error)
                    kept = [tensor.clone() for tensor in first[0]]
                    check.poison(first[0])
                    check.poison(tensors_in(prepared.workspaces))
                    again = self._correct(work, slot, call())
                if implementation.deterministic and not all(map(torch.equal, kept, again[0])):
                    raise Refused(
                        "broken",
                        "not_repeatable",
                        "the second call gave other bits than the first, though it promises equal ones",
                    )
        return {
            "error": worst.error,
            "error_worst_tile": worst.worst_tile,
            "error_bound": worst.bound,
            "check_s": time.perf_counter() - begin,
        }

    def sample(
        self,
        work: Work,
        names: Sequence[str],
        cache: str,
        seconds: float | None,
        most_s: float | None,
        precision: float | None = None,
    ) -> dict[str, Any]:
        """Interleaved samples of all `names` in one cache state.

        `seconds` is the time to fill, or with `precision` the most to take: samples then stop once every
        ratio to the yardstick is known within that share. Raises `Refused` with status `skipped` where the
        fewest samples that give an interval would take longer than `most_s`. Returns `measured` by name: samples and
        what explains them, or a status with its reason.
        """
        begin = time.perf_counter()
        if cache == "cold" and not work.ring.cold:
            raise Refused("unsupported", "ring_too_large", work.ring.why)
        measured: dict[str, dict[str, Any]] = {}
        with precision_flags(work.case.precision):
            timed = self._make_all(work, names, cache, measured)
            if timed:
                self._settle(timed[0])
                spent_s = time.perf_counter() - begin
                least_s = MIN_SAMPLES * sum(one.launch_s for one in timed)
                if most_s is not None and spent_s + least_s > most_s:
                    detail = (
                        f"{MIN_SAMPLES} rounds take {least_s:.1f} s, and {most_s - spent_s:.1f} s are left of --seconds"
                    )
                    raise Refused("skipped", "budget", detail)
                left_s = None if seconds is None else max(seconds - spent_s, 0.0)
                self._rounds(work, timed, left_s, measured, precision)
        return {"measured": measured, "measure_s": time.perf_counter() - begin}

    def _correct(self, work: Work, slot: int, output: Any) -> tuple[list[torch.Tensor], Errors]:
        self._synchronize()
        errors = work.verify(slot, output)
        if errors.reason:
            raise Refused("broken", errors.reason, errors.detail)
        return tensors_in(output), errors

    def _make_all(
        self, work: Work, names: Sequence[str], cache: str, measured: dict[str, dict[str, Any]]
    ) -> list[Timed]:
        timed = []
        for name in names:
            try:
                at = partial(self.at, name)
                one = make_timed(name, work.ready[name], work.ring, cache, self.clocks, at)
                self.at(name, "check the timed launches")
                self._check_launches(work, one)
                if self.device.type == "cuda":
                    measured[name] = dict(zip(("host_s", "eager_s"), host_and_eager_s(one.calls), strict=True))
                    self._synchronize()
            except Exception as error:
                outcome = status_of(error)
                if outcome["fatal"]:
                    raise
                measured[name] = outcome
            else:
                timed.append(one)
        return timed

    def _check_launches(self, work: Work, timed: Timed) -> None:
        """Leaves the outputs poisoned, so that the check after the samples sees what the samples wrote."""
        timed.poison()
        with check.unchanged(work.ring.slots[0]):
            timed.launch.enqueue()
            self._synchronize()
            self._verify(work, timed)
        timed.poison()

    def _verify(self, work: Work, timed: Timed) -> None:
        count = len(timed.calls)
        errors = timed.verify(work.verify, sorted({0, count // 2, count - 1}))
        if errors is not None:
            raise Refused("broken", errors.reason, f"in the timed launches: {errors.detail}")

    def _rounds(
        self,
        work: Work,
        timed: list[Timed],
        seconds: float | None,
        measured: dict[str, dict[str, Any]],
        precision: float | None = None,
    ) -> None:
        if not timed:
            return
        begin = time.perf_counter()
        self.at("", "rounds")
        try:
            launches_s = self._pilot(timed)
            left_s = None if seconds is None else max(seconds - (time.perf_counter() - begin), 0.0)
            plan = sequential_rounds if precision else rounds_and_repeats
            rounds, repeats = plan(launches_s, left_s, _SAMPLE_S[self.device.type])
            launches = [one.repeated(times) for one, times in zip(timed, repeats, strict=True)]
            clock = WatchedClock(self.clocks, timed, launches, self.telemetry)
            planned_s = rounds * sum(times * one_s for times, one_s in zip(repeats, launches_s, strict=True))
            end = time.perf_counter() + (_PATIENCE * planned_s if left_s is None else left_s)
            precise = Precise([one.name for one in timed], work.family.yardsticks, precision) if precision else None
            is_enough = precise.is_enough if precise else None
            samples = sample(clock, launches, rounds, lambda: time.perf_counter() > end, is_enough)
        except ImpossibleTime as impossible:
            name = timed[impossible.index].name
            measured[name] = {"status": "invalid", "reason": "impossible_time", "detail": str(impossible)}
            self._rounds(work, [one for one in timed if one.name != name], seconds, measured, precision)
            return
        for one, launch, values in zip(timed, launches, samples, strict=True):
            try:
                self._verify(work, one)
            except Refused as refused:
                measured[one.name] = {"status": refused.status, "reason": refused.reason, "detail": str(refused)}
                continue
            measured.setdefault(one.name, {}).update(
                samples_s=values,
                calls_per_sample=launch.calls,
                timer=one.timer,
                kernels=len(one.nodes) if one.nodes else None,
                kernel_names=one.nodes,
                **clock.seen(),
            )
            if precise:
                measured[one.name]["detail"] = precise.remark(one.name, samples)

    def _pilot(self, timed: list[Timed]) -> list[float]:
        """Seconds of one launch of each, as they come interleaved: what a launch alone takes may be far from it."""
        _, repeats = rounds_and_repeats([one.launch_s for one in timed], None, _SAMPLE_S[self.device.type])
        launches = [one.repeated(times) for one, times in zip(timed, repeats, strict=True)]
        clock = WatchedClock(self.clocks, timed, launches, self.telemetry)
        piloted = [
            [seconds * launch.calls / times for seconds in values]
            for launch, times, values in zip(launches, repeats, sample(clock, launches, _PILOT_ROUNDS), strict=True)
        ]
        return [statistics.fmean(values) for values in piloted]

    def _settle(self, timed: Timed) -> None:
        """Runs the load itself until clock and power are steady: longer before the first case of a worker."""
        if self.device.type == "cuda":
            self.settle(timed, _SETTLE_S if self._settled else _SETTLE_FIRST_S)

    def settle(self, timed: Timed, least_s: float) -> Settled:
        """Runs the load itself, for `least_s` or longer, until clock and power are steady."""
        self.at(timed.name, "settle")
        together = max(1, round(_LOAD_S / timed.launch_s))

        def load() -> int:
            for _ in range(together):
                timed.launch.enqueue()
            self._synchronize()
            return together * timed.launch.calls

        self._settled = True
        highest_hz = self.telemetry.max_sm_clock_hz
        return settle(load, self.telemetry.reading, time.perf_counter, least_s=least_s, highest_clock_hz=highest_hz)

    def mount(self, work: Work, name: str, cache: str, passes: int | None) -> Timed:
        """Binds, captures and checks what visits will time; `passes` over the ring, or as many as fill a sample."""
        if cache == "cold" and not work.ring.cold:
            raise Refused("unsupported", "ring_too_large", work.ring.why)
        with precision_flags(work.case.precision):
            timed = make_timed(name, work.ready[name], work.ring, cache, self.clocks, partial(self.at, name), passes)
            self._check_launches(work, timed)
        return timed

    def _screen(self, work: Work, implementation: Implementation) -> Prepared:
        """Times every tile of the implementation's space on screening samples; the fastest is measured afresh later."""
        assert implementation.tiles is not None
        candidates: list[tuple[Prepared, Timed]] = []
        problems: list[str] = []
        cache = "cold" if work.ring.cold else "hot"
        for tile in implementation.tiles(work.case, self.target):
            self.at(implementation.name, f"screen {dict(tile)}")
            try:
                prepared = implementation.prepare(work.case, work.ring.slots[0], self.target, tile)
                candidates.append(
                    (
                        prepared,
                        make_timed(implementation.name, prepared, work.ring, cache, self.clocks, lambda step: None),
                    )
                )
            except Exception as error:
                if status_of(error)["fatal"]:
                    raise
                problems.append(f"{dict(tile)}: {error}")
        if not candidates:
            raise Refused("unsupported", "no_candidate", "; ".join(problems) or "the space of tiles is empty")
        clock = next(iter(self.clocks.values())) if len(self.clocks) == 1 else self.clocks[candidates[0][1].timer]
        samples = sample(clock, [timed.launch for _, timed in candidates], SCREENING_ROUNDS)
        medians = [statistics.median(values) for values in samples]
        return candidates[medians.index(min(medians))][0]

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
