"""What a worker does with a case: prepare, check, sample. One case at a time; its ring and references are kept."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from gemmgate.suite.cases import Case, Family, Implementation, Inputs, Target, Tile
from gemmgate.suite.measure import check, launching, singly, states, witness
from gemmgate.suite.measure.clock import EventClock, HostClock
from gemmgate.suite.measure.correctness import check_afterwards, check_results
from gemmgate.suite.measure.load import Load
from gemmgate.suite.measure.machine import Telemetry, precision_flags
from gemmgate.suite.measure.refusal import Refused, status_of
from gemmgate.suite.measure.rotation import Ring, build_ring, no_room, storage_bytes, tensors_in
from gemmgate.suite.measure.rounds import Rounds
from gemmgate.suite.measure.sampler import Clock
from gemmgate.suite.measure.screening import screen
from gemmgate.suite.measure.settings import own_settings
from gemmgate.suite.measure.settle import Settled, settle
from gemmgate.suite.measure.timed import Timed, host_and_eager_s, make_timed
from gemmgate.suite.measure.work import Work
from gemmgate.suite.records import MIN_SAMPLES

_SAMPLE_S = {"cuda": 1e-3, "cpu": 5e-3}
"""How long a sample lasts where no budget asks for more."""
_ROUNDS_SHARE = 0.9
"""Of a budget; the rest is for proving the cache state."""
_PROOF_LEAST_S = 0.1
"""For that proof also where preparing has used the whole budget: a cold time that nobody proved says less."""
_UNKNOWN_CACHE_BYTES = 256 * 2**20
_SETTLE_FIRST_S, _SETTLE_S = 0.5, 0.05
_SETS_CHECKED = 2
"""Of inputs and results that a check holds at once, besides the float64 reference."""
ENERGY_S = 0.4
"""Load of each implementation where energy is asked for: long against the steps of the board's counter."""


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
        self.launching = launching.of_device(torch.cuda.current_device()) if device.type == "cuda" else None
        self.proves = device.type == "cuda"
        """Whether times are taken to prove cache states: those of a CPU in use are too unsteady to tell."""

    @property
    def _clock(self) -> Clock:
        """That of the rounds: launches of graphs and of single calls are timed by events alike."""
        return next(iter(self.clocks.values()))

    def touch(self) -> None:
        """Loads what the first call of anything would: random numbers, casts, the library of products. Untimed."""
        if self.device.type != "cuda":
            return
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            square = torch.randn(64, 64, device=self.device).to(dtype)
            torch.mm(square, square).isfinite().all()
        self._synchronize()

    def begin(
        self,
        family: Family,
        case: Case,
        make: Callable[[int], Inputs],
        reference: Callable[[Inputs], Any],
        *,
        cold: bool,
    ) -> Work:
        """Builds the ring; without `cold` it has one slot.

        Raises `Refused` where the case is too large for the memory: on a CPU the system would end the process, after
        a minute in which nothing else gets anywhere.
        """
        if why := no_room(_SETS_CHECKED * family.bytes_moved(case), self.device):
            raise Refused("unsupported", "does_not_fit", f"its inputs and results do not fit into memory: {why}")
        cache_bytes = self.target.l2_bytes
        if self.target.is_gpu and (not cache_bytes or torch.version.hip):
            # Not told, or with a larger cache behind the one that is told of.
            cache_bytes = max(cache_bytes, _UNKNOWN_CACHE_BYTES)
        if cold:
            ring = build_ring(make, cache_bytes, self.device)
        else:
            first = make(0)
            ring = Ring((first,), storage_bytes(first), cold=False, why="no cold state was asked for")
        return Work(case, family, make, lambda inputs: tensors_in(reference(inputs)), ring, self.device, cache_bytes)

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
        with precision_flags(work.case.precision), own_settings(), check.unchanged(example):
            self.at(name, "prepare")
            screened_s: dict[str, float] | None = None
            if implementation.screened and tile is None:
                prepared, screened_s = screen(work, implementation, self.target, self.clocks, self.at)
            else:
                prepared = implementation.prepare(work.case, example, self.target, tile)
            self.at(name, "first call")
            prepared.bind(example)()
            self._synchronize()
        work.ready[name] = prepared
        work.implementations[name] = implementation
        return {
            "timer": "events" if "events" in self.clocks and not prepared.capturable else self._clock.name,
            "tile": dict(prepared.tile) if prepared.tile is not None else None,
            "algorithm": prepared.algorithm,
            "device_code": prepared.device_code,
            "readings_s": dict(prepared.readings_s) if prepared.readings_s is not None else None,
            "screened_s": screened_s,
            "compile_s": time.perf_counter() - begin,
        }

    def check(self, work: Work, name: str) -> dict[str, Any]:
        """As `correctness.check_results`, under the case's precision."""
        self.at(name, "check")
        with precision_flags(work.case.precision), own_settings():
            return check_results(work, name, self._synchronize)

    def sample(
        self,
        work: Work,
        names: Sequence[str],
        cache: str,
        seconds: float | None,
        most_s: float | None,
        precision: float | None = None,
        *,
        energy: bool = False,
        prove: bool = True,
    ) -> dict[str, Any]:
        """Interleaved samples of all `names` in one cache state.

        `seconds` is the time to fill, or with `precision` the most to take: samples then stop once every
        ratio to the yardstick is known within that share. Raises `Refused` with status `skipped` where the
        fewest samples that give an interval would take longer than `most_s`. With `energy`, each then runs alone until
        the board's counter tells the joules of a call. Without `prove` no times are taken to prove the cache state.
        Returns `measured` by name: samples and what explains them, or
        a status with its reason.
        """
        begin = time.perf_counter()
        energy = energy and self.telemetry.joules is not None
        self.at("", "make inputs")
        work.ring_of(cache)
        measured: dict[str, dict[str, Any]] = {}
        with precision_flags(work.case.precision), own_settings():
            timed = self._make_all(work, names, cache, measured)
            if timed:
                self._settle(timed[0])
                spent_s = time.perf_counter() - begin
                least_s = MIN_SAMPLES * sum(one.launch_s for one in timed)
                if most_s is not None and spent_s + least_s > most_s:
                    detail = (
                        f"{MIN_SAMPLES} rounds take {least_s:.1f} s, and {most_s - spent_s:.1f} s are left of --seconds"
                    )
                    raise Refused("skipped", "budget", detail, least_s=least_s)
                if seconds is not None and energy:
                    seconds = max(seconds - ENERGY_S * len(timed), 0.0)
                left_s = None if seconds is None else max(seconds - spent_s, 0.0)
                proves = self.proves and prove
                share = _ROUNDS_SHARE if proves and cache != "hot" else 1.0
                rounds = Rounds(
                    self._clock,
                    self.telemetry,
                    _SAMPLE_S[self.device.type],
                    partial(self._verify_again, work, cache=cache),
                    partial(self.at, "", "rounds"),
                    self.launching,
                )
                budget_s = None if left_s is None else share * left_s
                rounds.measure(timed, budget_s, measured, yardsticks=work.family.yardsticks, precision=precision)
                end = math.inf if seconds is None else max(begin + seconds, time.perf_counter() + _PROOF_LEAST_S)
                self._show(work, cache, timed, measured, lambda: not proves or time.perf_counter() > end)
                for one in timed if energy else ():
                    if measured[one.name].get("samples_s"):
                        measured[one.name]["joules"] = self.settle(one, ENERGY_S).joules
                for one in timed:
                    if measured[one.name].get("samples_s"):
                        self._check_afterwards(work, one.name, measured)
        return {"measured": measured, "measure_s": time.perf_counter() - begin}

    def cross_check(self, work: Work, names: Sequence[str], cache: str, launch_floor_s: float) -> dict[str, Any]:
        """The same calls by the other timers, once `sample` has timed them in this cache state."""
        if self.device.type != "cuda":
            raise Refused("unsupported", "one_timer", "a CPU has one timer: there is nothing to check it against")
        begin = time.perf_counter()
        with precision_flags(work.case.precision), own_settings():
            found = witness.cross_check(work, names, cache, self.clocks, self.telemetry, launch_floor_s, self.at)
        return {"crossed": found, "measure_s": time.perf_counter() - begin}

    def compare_timers(self, work: Work, name: str, repeats: int) -> dict[str, Any]:
        """As `timers.compare`, once the board is steady under this load."""
        from gemmgate.suite.measure import timers  # Here, for what it calls takes long to import.

        if self.device.type != "cuda":
            raise Refused("unsupported", "one_timer", "a CPU has one timer: there is nothing to compare it with")
        at = partial(self.at, name)
        with precision_flags(work.case.precision), own_settings():
            self._settle(make_timed(name, work.ready[name], work.ring_of("hot"), "hot", self.clocks, at))
            if self.launching:
                self.launching.steady()
            return timers.compare(name, work.ready[name], work.ring_of("cold"), self.clocks, repeats, at)

    def singly(self, work: Work, names: Sequence[str], cache: str) -> dict[str, Any]:
        """The same calls timed as others do, once `sample` has timed them in this cache state."""
        if self.device.type != "cuda":
            raise Refused("unsupported", "no_events", "events time calls on a GPU")
        begin = time.perf_counter()
        with precision_flags(work.case.precision):
            found = singly.time_singly(work, names, cache, self.telemetry, self.at)
        return {"timed": found, "measure_s": time.perf_counter() - begin}

    def _show(
        self,
        work: Work,
        cache: str,
        timed: Sequence[Timed],
        measured: dict[str, dict[str, Any]],
        out_of_time: Callable[[], bool],
    ) -> None:
        """Adds to what was measured whether its cache state is what it is called."""
        medians_s = {
            name: statistics.median(outcome["samples_s"])
            for name, outcome in measured.items()
            if outcome.get("samples_s")
        }
        work.medians_s[cache] = medians_s
        work.clocks_hz[cache] = {name: measured[name].get("sm_clock_hz") for name in medians_s}
        by_name = {one.name: one for one in timed}
        for name, proof in states.show(work, cache, by_name, medians_s, self.clocks, self.at, out_of_time).items():
            measured[name].update(cache_proof=proof.verdict, cache_evidence=proof.evidence)

    def _make_all(
        self, work: Work, names: Sequence[str], cache: str, measured: dict[str, dict[str, Any]]
    ) -> list[Timed]:
        timed = []
        for name in names:
            try:
                with own_settings():
                    at = partial(self.at, name)
                    one = make_timed(name, work.ready[name], work.ring_of(cache), cache, self.clocks, at)
                    self.at(name, "check the timed launches")
                    self._check_launches(work, one, cache)
                    if self.device.type == "cuda":
                        self.at(name, "call one by one")
                        measured[name] = dict(zip(("host_s", "eager_s"), host_and_eager_s(one), strict=True))
                        self._synchronize()
                        # Those calls wrote outputs that are bound once, and only the samples may be seen to.
                        one.poison()
            except Exception as error:
                outcome = status_of(error)
                if outcome["fatal"]:
                    raise
                measured[name] = outcome
            else:
                timed.append(one)
        return timed

    def _check_launches(self, work: Work, timed: Timed, cache: str = "cold") -> None:
        """Leaves the outputs poisoned, so that the check after the samples sees what the samples wrote."""
        timed.poison()
        with check.unchanged(work.ring.slots[0]):
            timed.launch.enqueue()
            self._synchronize()
            self._verify(work, timed, cache)
        timed.poison()

    def _verify(self, work: Work, timed: Timed, cache: str = "cold") -> None:
        errors = timed.verify(partial(work.verify, timed.name, cache=cache))
        if errors is not None:
            raise Refused("broken", errors.reason, f"in the timed launches: {errors.detail}")

    def _verify_again(self, work: Work, timed: Timed, cache: str) -> None:
        """What the samples wrote."""
        self.at(timed.name, "check the timed launches")
        self._verify(work, timed, cache)

    def _check_afterwards(self, work: Work, name: str, measured: dict[str, dict[str, Any]]) -> None:
        """Replaces what was measured by a status where it is wrong by now."""
        self.at(name, "check after the samples")
        try:
            with own_settings():
                check_afterwards(work, name, self._synchronize)
        except Exception as error:
            outcome = status_of(error)
            if outcome["fatal"]:
                raise
            measured[name] = outcome

    def _settle(self, timed: Timed) -> None:
        """Runs the load itself until clock and power are steady: longer before the first case of a worker."""
        if self.device.type == "cuda":
            self.settle(timed, _SETTLE_S if self._settled else _SETTLE_FIRST_S)

    def settle(self, timed: Timed, least_s: float) -> Settled:
        """Runs the load itself, for `least_s` or longer, until clock and power are steady."""
        self.at(timed.name, "settle")
        self._settled = True
        load, highest_hz = Load(timed, self.device), self.telemetry.max_sm_clock_hz
        found = settle(load, self.telemetry.reading, time.perf_counter, least_s=least_s, highest_clock_hz=highest_hz)
        self._synchronize()
        return found

    def mount(self, work: Work, name: str, cache: str, passes: int | None) -> Timed:
        """Binds, captures and checks what visits will time; `passes` over the ring, or as many as fill a sample."""
        ring, at = work.ring_of(cache), partial(self.at, name)
        with precision_flags(work.case.precision), own_settings():
            timed = make_timed(name, work.ready[name], ring, cache, self.clocks, at, passes)
            self._check_launches(work, timed, cache)
        return timed

    def mount_elsewhere(self, work: Work, timed: Timed, cache: str, stream: int) -> Timed:
        """What was mounted, captured on another stream and checked: there a library's own workspace is elsewhere."""
        self.at(timed.name, f"capture on stream {stream + 1}")
        with precision_flags(work.case.precision), own_settings():
            other = timed.captured_elsewhere(stream)
            self._check_launches(work, other, cache)
        return other

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
