"""Loops over cases that nobody watches, and a worker that answers at once on a clock of its own."""

from pathlib import Path
from types import SimpleNamespace

from gemmgate.suite import catalog

SUITES = (Path(__file__).parent / "suites",)


class Quiet:
    """A progress display for nobody."""

    def case(self, choice, index, count): ...
    def step(self, implementation, step): ...
    def row(self, row): ...


def select(case="n64-fp32", implementations=()):
    return catalog.find(SUITES).select(
        catalog.Selection(families=("faulty",), cases=(case,), implementations=tuple(implementations))
    )


class FakeWorker:
    """Answers at once, on a clock of its own: preparing and checking take 0.1 s each, sampling what it is given."""

    def __init__(self, clock, *, sampling_s=0.05, over_s=0.0):
        self.over_s = over_s
        self.clock = clock
        self.sampling_s = sampling_s
        self.machine = SimpleNamespace(board="a")
        self.target = SimpleNamespace(is_gpu=False)
        self.flags = {"ieee": {}}
        self.sampled = []
        self.steps_s = {"prepare": 0.0}

    def ask(self, op, deadline_s, **fields):
        if op == "sample":
            least_s = 30 * self.sampling_s * len(fields["implementations"])
            if fields["most_s"] is not None and least_s > fields["most_s"]:
                return {"status": "skipped", "reason": "budget", "least_s": least_s, "at": {}}
            taken_s = max(fields["seconds"] or 0.0, least_s) + self.over_s
            self.clock.now += taken_s
            self.sampled.append(fields["seconds"])
            measured = {name: {"samples_s": [1e-3, 1.1e-3] * 20} for name in fields["implementations"]}
            return {"ok": True, "measured": measured, "measure_s": taken_s, "roof_s": None, "at": {}}
        self.clock.now += 0.1 if op in ("prepare", "check") else 0.0
        return {"ok": True, "compile_s": 0.1, "check_s": 0.1, "at": {}}

    def close(self): ...
