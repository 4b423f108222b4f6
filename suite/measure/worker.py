"""A worker: one process that imports one side's kernels and measures what its parent asks for.

Started as `python -P -m gemmgate.suite.measure.worker <parent pid>`. One JSON object a line, requests
on standard input, replies on what was standard output (which is then pointed at standard error, so
that no library can write between the replies):

    {id, op, deadline_s, ...}  ->  {id, ok: true, ...}  or  {id, status, reason, detail, fatal?}

and between them `{id, at: {implementation, step}}`, sent before each step, so that the parent can name
the culprit when nothing more comes. Operations: `warm hello limits supports prepare check sample cross_check
singly drop bye`, for blocks `mount settle lead visit`, for searches over tiles `space compile race`, and `timers`.
`fatal` says that this process cannot be used further.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

from gemmgate.suite.cases import PRECISIONS, Case, Refusal, Target
from gemmgate.suite.measure.lifetime import die_with_parent, take_children_along
from gemmgate.suite.measure.refusal import status_of

PROTOCOL = 1
_MAY_TIME = ("peer", "compiler")
"""Kinds of implementation that may tune themselves when they are prepared."""
_ROOM = 0.5
"""Share of the memory: while more is free, a case leaves the allocator what the case before it had."""


class Worker:
    """Answers requests until `bye` or the end of the pipe."""

    def __init__(self, replies: IO[str]) -> None:
        self._replies = replies
        self._request: dict[str, Any] = {}
        self._catalog: Any = None
        self._is_warm = False
        self._has_dropped = False
        self._examples: dict[Case, Any] = {}

    def serve(self, requests: IO[str]) -> None:
        for line in requests:
            self._request = json.loads(line)
            operation = self._request["op"]
            if operation == "bye":
                self._reply(ok=True)
                return
            self._answer(operation)

    def _answer(self, operation: str) -> None:
        # Imported in the first request, not at the top: a torch that cannot be imported is an answer too.
        try:
            handler = getattr(self, f"_{operation}", None)
            if handler is None:
                raise LookupError(f"this worker has no operation '{operation}'")
            self._reply(ok=True, **handler(self._request))
        except Exception as error:
            self._reply(**status_of(error))

    def _warm(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """All imports that `hello` and `prepare` will need, and nothing that touches the device."""
        self._is_warm = True
        found = self._imported(request)
        for family, name in request["modules"]:
            # A module that cannot be imported is for `prepare` to report, where there is a row for it.
            with suppress(Exception):
                found.implementation(family, name)
        _read_compiler()
        return {}

    def _hello(self, request: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        from gemmgate.suite.measure import machine
        from gemmgate.suite.measure.bench import Bench

        self._imported(request)
        device = machine.pick_device(request["device"])
        if device.type == "cuda":
            torch.cuda.set_device(device)
        telemetry = machine.Telemetry(device, beside=request.get("beside", ()))
        target = machine.describe_target(device)
        self._telemetry = telemetry
        self._device = device
        self._bench = Bench(device, target, telemetry, self._at)
        self._works: dict[str, Any] = {}
        self._work: Any = None
        self._visits: dict[str, Any] = {}
        self._racing: Any = None
        if self._bench.launching:
            self._bench.launching.begin()
        if self._is_warm:
            self._bench.touch()
        # What is imported by now stays: to look through it costs each case that is dropped a tenth of a second.
        gc.freeze()
        return {
            "protocol": PROTOCOL,
            "device": str(device),
            "machine": asdict(machine.describe_machine(device, telemetry)),
            "stack": asdict(machine.describe_stack(device)),
            "target": asdict(target),
            "flags": {precision: _flags(precision) for precision in PRECISIONS},
            "kernels_path": str(self._kernels.resolve()),
            "kernels_tree": self._kernels_tree,
        }

    def _imported(self, request: Mapping[str, Any]) -> Any:
        """The catalog. The hash of the kernels is taken before the first of them is imported, and once."""
        if self._catalog is None:
            from gemmgate.suite import catalog

            self._kernels = Path(importlib.import_module("gemmgate.kernels").__path__[0])
            self._kernels_tree = catalog.tree_hash(self._kernels)
            self._catalog = catalog.find([Path(folder) for folder in request.get("suites", ())])
            importlib.import_module("gemmgate.suite.measure.visit")
        return self._catalog

    def _limits(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from gemmgate.suite.measure.roofs import measure_limits

        self._at("", "measure the machine's limits")
        if self._bench.launching:
            self._bench.launching.steady()
        return {"limits": asdict(measure_limits(self._device, self._telemetry, long=request.get("long", False)))}

    def _supports(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Refusals of many (case, implementations) pairs at once: [[None or [code, sentence], ...], ...].

        For the device's target, or for one that is named. Who is not refused is also said to be screened, our own, or
        `timed`: that `prepare` may take times, for a search or because others made it.
        """
        target = _target_of(request) if "target" in request else self._bench.target
        answers, screened, own, timed = [], [], [], []
        for data, names in request["pairs"]:
            case = Case.from_json(data)
            refusals = [self._refusal(case, name, target) for name in names]
            found = [
                self._catalog.implementation(case.family, name) if refusal is None else None
                for name, refusal in zip(names, refusals, strict=True)
            ]
            answers.append(refusals)
            screened.append([one is not None and one.screened for one in found])
            own.append([one is not None and one.kind == "own" for one in found])
            timed.append([one is not None and (one.screened or one.kind in _MAY_TIME) for one in found])
        return {"refusals": answers, "screened": screened, "own": own, "timed": timed}

    def _refusal(self, case: Case, name: str, target: Target) -> Refusal | None:
        """Who cannot be imported or asked is refused for that reason, and does not hide the others."""
        try:
            refusal: Refusal | None = self._catalog.implementation_for(case, name).supports(case, target)
        except Exception as error:
            outcome = status_of(error)
            return outcome["reason"], outcome["detail"]
        return refusal

    def _prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begins its case, which the requests after it are about. Other cases are dropped unless it says `keep`."""
        case = Case.from_json(request["case"])
        implementation = self._catalog.implementation_for(case, request["implementation"])
        key = json.dumps([case.to_json(), request["seed"], request["data"], request["caches"]])
        if key not in self._works:
            if self._works and not request.get("keep"):
                self._drop(request)
            self._works[key] = self._begin(case, request)
        self._work = self._works[key]
        return self._bench.prepare(self._work, implementation, request.get("tile"))

    def _begin(self, case: Case, request: Mapping[str, Any]) -> Any:
        family = self._catalog.family(case.family)
        make_inputs = self._catalog.load(case.family, family.make_inputs)
        reference = self._catalog.load(case.family, family.reference)
        seed, data = request["seed"], request["data"]
        self._at("", "make inputs")
        work = self._bench.begin(
            family,
            case,
            lambda slot: make_inputs(case, seed + slot, self._device, data),
            lambda inputs: reference(case, inputs),
            cold=bool({"cold", "serving"} & set(request["caches"])),
        )
        if family.decision:
            work.decide = partial(self._catalog.load(case.family, family.decision), case)
        return work

    def _check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._bench.check(self._work, request["implementation"])

    def _sample(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from gemmgate.suite.measure.limits import impossible, roof_s
        from gemmgate.suite.records import Limits

        work, cache = self._work, request["cache"]
        result = self._bench.sample(
            work,
            request["implementations"],
            cache,
            request.get("seconds"),
            request.get("most_s"),
            request.get("precision"),
            energy=request.get("energy", False),
            prove=request.get("prove", True),
        )
        limits = Limits(**request["limits"])
        flop, bytes_moved = work.family.flop(work.case), work.family.bytes_moved(work.case)
        if cache == "serving":
            bytes_moved -= work.activation_bytes
        from_where = "hot" if cache == "hot" else "cold"
        for measured in result["measured"].values():
            samples = sorted(measured.get("samples_s", ()))
            if samples:
                median_s, clock_hz = samples[len(samples) // 2], measured.get("sm_clock_hz")
                why = impossible(limits, work.case, from_where, median_s, flop, bytes_moved, clock_hz)
                if why:
                    measured.update(status="invalid", reason="faster_than_possible", detail=why)
        return {**result, "roof_s": roof_s(limits, work.case, from_where, flop, bytes_moved)}

    def _cross_check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        names, floor_s = request["implementations"], request["limits"]["launch_floor_s"]
        return self._bench.cross_check(self._work, names, request["cache"], floor_s)

    def _timers(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Other people's benchmark functions and ours on what was prepared last."""
        name = request["implementation"]
        return self._bench.compare_timers(self._work, name, request["repeats"])

    def _singly(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._bench.singly(self._work, request["implementations"], request["cache"])

    def _mount(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Holds what was prepared last ready for visits, under the name `item`, beside what is mounted already.

        `again` says that its facts are known, which takes to read a while: each node of a graph is looked at.
        """
        from gemmgate.suite.measure.rotation import free_share
        from gemmgate.suite.measure.visit import Visits

        visits = Visits(self._bench, self._work, request["implementation"], request["cache"], request.get("passes"))
        self._visits[request["item"]] = visits
        levels = {float(level): extra for level, extra in request.get("extras", {}).items()}
        made = visits.inject(levels)
        facts = {} if request.get("again") else visits.facts()
        return {**facts, "extras": made, "free_share": free_share(self._device)}

    def _settle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return asdict(self._visits[request["item"]].settle(request["least_s"]))

    def _lead(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A visit that does not count, after `warm_s` of load: one straight after a long load is unlike the others."""
        self._visits[request["item"]].visit(0.0, 1, request["warm_s"])
        return {}

    def _visit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        visits = self._visits[request["item"]]
        return asdict(visits.visit(request["level"], request["replays"], request["warm_s"]))

    def _space(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The legal tiles of a case with their footprints, for a target; none where there is nothing to search."""
        case, implementation, target = self._searched(request)
        names, estimate = implementation.tiles, implementation.footprint
        if implementation.kind != "own" or names is None or implementation.screened:
            return {"refusal": None, "tiles": [], "footprints": None}
        refusal = implementation.supports(case, target)
        tiles = [dict(tile) for tile in names(case, target)] if refusal is None else []
        footprints = [asdict(estimate(case, target, tile)) for tile in tiles] if estimate else None
        return {"refusal": refusal, "tiles": tiles, "footprints": footprints}

    def _compile(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from gemmgate.suite.measure.compile_only import compile_ahead, meta_inputs

        case, implementation, target = self._searched(request)
        if case not in self._examples:
            make_inputs = self._catalog.load(case.family, self._catalog.family(case.family).make_inputs)
            self._examples = {case: meta_inputs(partial(make_inputs, case, 0, "cpu", "normal"))}
        claims = Path(request["claims"]) if request["claims"] else None
        at = partial(self._at, implementation.name)
        return compile_ahead(implementation, case, self._examples[case], target, request["tile"], claims, at)

    def _searched(self, request: Mapping[str, Any]) -> tuple[Case, Any, Target]:
        catalog, case = self._imported(request), Case.from_json(request["case"])
        return case, catalog.implementation_for(case, request["implementation"]), _target_of(request)

    def _race(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from gemmgate.suite.measure.race import Race

        if request["step"] == "begin":
            case = Case.from_json(request["case"])
            self._drop({"reuse": True})
            self._work, self._key = self._begin(case, request), None
            found = partial(self._catalog.implementation_for, case)
            self._racing = Race(self._bench, self._work, found)
        return self._racing.answer(request)

    def _drop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Lets go of all cases. With `reuse` the allocator keeps what it holds while there is room.

        To give it back, and to have it again, takes the device some hundredths of a second each.
        """
        from gemmgate.suite.measure.rotation import free_share

        had_any = self._work is not None
        self._work = self._racing = None
        self._works.clear()
        self._visits.clear()
        gc.collect()
        if had_any and not self._has_dropped:  # what a first case imports and keeps, such as the compilers, stays too
            gc.freeze()
            self._has_dropped = True
        if self._device.type == "cuda" and not (request.get("reuse") and free_share(self._device) >= _ROOM):
            import torch

            torch.cuda.empty_cache()
        return {}

    def _at(self, implementation: str, step: str) -> None:
        self._write({"id": self._request["id"], "at": {"implementation": implementation, "step": step}})

    def _reply(self, **fields: Any) -> None:
        self._write({"id": self._request["id"], **fields})

    def _write(self, message: Mapping[str, Any]) -> None:
        self._replies.write(json.dumps(message) + "\n")
        self._replies.flush()


def _read_compiler() -> None:
    """Lets Triton, where it is imported and may be needed, hash all of itself, which takes most of a second.

    It does so in any case, before the first kernel that a process looks up in the cache.
    """
    import torch

    read = getattr(sys.modules.get("triton.runtime.cache"), "triton_key", None)
    if read is not None and (torch.version.cuda or torch.version.hip):
        read()


def _target_of(request: Mapping[str, Any]) -> Target:
    return Target(**{**request["target"], "features": tuple(request["target"]["features"])})


def _flags(precision: str) -> dict[str, str]:
    from gemmgate.suite.measure.machine import precision_flags

    with precision_flags(precision) as flags:
        return flags


def main() -> None:
    """Serves the parent named by the first argument."""
    die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    take_children_along()
    channel = os.dup(1)
    os.register_at_fork(after_in_child=partial(os.close, channel))  # or a child would keep the parent waiting
    replies = os.fdopen(channel, "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    Worker(replies).serve(sys.stdin)


if __name__ == "__main__":
    main()
