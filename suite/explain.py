"""Two sides of one implementation on one case: what was recorded of them, and what their code became.

A side is a stored run, of which the rows speak, or a commit; code is compiled where the commit is known. On a GPU it
is compiled as it runs there; elsewhere for a GPU that is named, with nothing launched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmgate.suite.anatomy import Difference, Kernel
from gemmgate.suite.cases import Case, Target
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.compare import newest
from gemmgate.suite.compiling.base import commit_named, overlay_of
from gemmgate.suite.compiling.occupancy import resident
from gemmgate.suite.compiling.pool import Child
from gemmgate.suite.disassembly import read_kernels
from gemmgate.suite.errors import CannotMeasureError, UsageError
from gemmgate.suite.profiles import architectures
from gemmgate.suite.records import Row, Run
from gemmgate.suite.store import Store
from gemmgate.suite.workers import Worker, own_overlay

_PREPARE_DEADLINE_S = 300.0
_DRIVER = Path("/proc/driver/nvidia/params")


@dataclass(frozen=True)
class Source:
    """A side as it was named. `run` where it is a stored run; `commit` is empty where its code cannot be had."""

    name: str
    commit: str
    run: Run | None = None


@dataclass(frozen=True)
class Call:
    """What preparing found, and the kernels. `nodes` are those of a graph of the call, where one was captured."""

    tile: Mapping[str, Any] | None
    algorithm: str
    kernels: tuple[Kernel, ...]
    nodes: tuple[str, ...] = ()
    fits: Mapping[str, str] | None = None


def source(text: str, store: Store) -> Source:
    """What a name means: a stored run, or else a commit of this repository. Raises `UsageError` for neither."""
    known = {info.id for info in store.runs()}
    if text in known or text.partition(":")[0] in ("latest", "baseline") or text.endswith((".parquet", ".jsonl")):
        run = store.load(text)
        return Source(run.id, "" if run.dirty else run.commit, run)
    commit = commit_named(own_overlay(), text)
    if not commit:
        raise UsageError(
            f"'{text}' is no stored run and no commit that git knows here. `gemmgate runs` lists the runs."
        )
    return Source(text, commit)


def recorded_row(side: Source, family: str, case: str, implementation: str) -> Row | None:
    """The newest ok time of a run, cold before others; None where the side is no run.

    Raises `UsageError` where the run has no such row.
    """
    if side.run is None:
        return None
    rows = [r for r in newest(side.run.rows) if (r.case, r.implementation) == (case, implementation)]
    rows = [r for r in rows if r.kind == "time" and r.status == "ok" and family in ("", r.family) and not r.phase]
    if not rows:
        raise UsageError(
            f"Run {side.name} has no time of {implementation} on {case}. `gemmgate show {side.name}` lists its rows."
        )
    return min(rows, key=lambda row: ("cold", "serving", "hot").index(row.cache) if row.cache else 3)


def recorded(before: Row, after: Row, runs: tuple[Run, Run]) -> tuple[Difference, ...]:
    """What two rows say of themselves, side by side."""
    sides = []
    for row, run in zip((before, after), runs, strict=True):
        stack = {name: str(value) for name, value in asdict(run.stack).items() if value}
        sides.append(
            {
                "us": f"{row.median_s * 1e6:.4g}" if row.median_s else "",
                "cycles": f"{row.cycles:.5g}" if row.cycles else "",
                "MHz": f"{row.sm_clock_hz / 1e6:.0f}" if row.sm_clock_hz else "",
                "W": f"{row.power_w:.0f}" if row.power_w else "",
                "error": f"{row.error:.3g}" if row.error is not None else "",
                "tile": words(row.tile),
                "algorithm": row.algorithm,
                "graph nodes": str(row.kernels or ""),
                "kernels": " ".join(row.kernel_names),
                "workspace bytes": str(row.workspace_bytes or ""),
                "machine code": row.device_code[:12],
                "marks": " ".join(row.marks),
                "board": row.board or run.machine.board,
                **stack,
            }
        )
    names = dict.fromkeys([*sides[0], *sides[1]])
    made = [Difference("", name, *(side.get(name, "") or "none" for side in sides)) for name in names]
    return tuple(one for one in made if not (one.before == one.after == "none"))


def on_this_device(side: Source, case: Case, implementation: str, device: str, cache: Path, tile: Any) -> Call | None:
    """The call as it is prepared on the GPU that is here; None where there is none."""
    with overlay(side) as folder:
        worker = Worker(device, overlay=folder, environment={"TRITON_CACHE_DIR": str(cache)})
        try:
            if not worker.target.is_gpu:
                return None
            asked = {"case": case.to_json(), "implementation": implementation, "seed": 0, "data": "normal"}
            reply = worker.ask("prepare", _PREPARE_DEADLINE_S, **asked, caches=["hot"], tile=tile)
            _refuse(reply, side, implementation)
            mounted = worker.ask("mount", _PREPARE_DEADLINE_S, implementation=implementation, cache="hot")
            kernels = read_kernels(cache)
            nodes = tuple(mounted.get("kernel_names") or ()) if mounted.get("ok") else ()
            fits = _fits(kernels, worker.target)
            return Call(reply.get("tile"), reply.get("algorithm", ""), kernels, nodes, fits)
        finally:
            worker.close()


def for_target(side: Source, case: Case, implementation: str, target: Target, cache: Path, tile: Any) -> Call:
    """The call as it is compiled for a GPU that need not be here."""
    with overlay(side) as folder:
        child = Child(folder, (), cache)
        try:
            item = {"case": case.to_json(), "implementation": implementation}
            for way in (tile,) if tile else ("tuned", "rule"):
                reply = child.ask("compile", item=item, target=asdict(target), tile=way)
                if reply.get("status") or reply.get("kernels") is not None:
                    break
        finally:
            child.close()
    _refuse(reply, side, implementation)
    kernels = read_kernels(cache)
    return Call(reply.get("tile"), "", kernels, fits=_fits(kernels, target))


@contextmanager
def overlay(side: Source) -> Iterator[Path]:
    """A folder with the kernels of that side and this harness. Raises `CannotMeasureError` where they are not here."""
    root = own_overlay()
    known = commit_named(root, side.commit) if side.commit else ""
    if not known:
        raise CannotMeasureError(
            f"The code of {side.name} cannot be had: it was measured with uncommitted changes, or at a commit that is "
            "not here. `--recorded` compares what was stored."
        )
    committed = describe_commit(root)
    if known == committed.name and not committed.dirty:
        yield root
        return
    with overlay_of(root, known) as folder:
        yield folder


def compared(before: Call, after: Call) -> tuple[Difference, ...]:
    """What holds for the whole call, and how many blocks of each kernel fit a multiprocessor."""
    found = [Difference("", "tile", words(before.tile) or "none", words(after.tile) or "none")]
    found.append(Difference("", "algorithm", before.algorithm or "none", after.algorithm or "none"))
    if before.nodes or after.nodes:
        found.append(Difference("", "graph nodes", str(len(before.nodes)), str(len(after.nodes))))
        found.append(Difference("", "nodes", " ".join(before.nodes), " ".join(after.nodes)))
    for name in {**(before.fits or {}), **(after.fits or {})}:
        sides = ((side.fits or {}).get(name, "none") for side in (before, after))
        found.append(Difference(name, "resident blocks", *sides))
    return tuple(found)


def words(values: Mapping[str, Any] | None) -> str:
    """`block_m=16 splits=32`"""
    return " ".join(f"{name}={value}" for name, value in (values or {}).items())


def counters(
    *, which: Callable[[str], str | None] = shutil.which, parameters: Path = _DRIVER, user: int | None = None
) -> str:
    """A sentence on the profiler's counters: why they cannot be read here, or the command that reads them."""
    if not parameters.exists():
        return "Counters were not read: there is no NVIDIA driver here."
    if which("ncu") is None:
        return "Counters were not read: Nsight Compute's `ncu` is not installed here."
    locked = "RmProfilingAdminOnly: 1" in parameters.read_text(encoding="utf-8")
    if locked and (os.getuid() if user is None else user) != 0:
        return (
            "Counters were not read: this driver keeps them to administrators (RmProfilingAdminOnly is 1). "
            "Whoever may, sets the option NVreg_RestrictProfilingToAdminUsers=0 of the module nvidia."
        )
    return "Counters can be read here: run `ncu --target-processes all --set full` before the command of either side."


def _fits(kernels: Sequence[Kernel], target: Target) -> dict[str, str]:
    """Blocks that a multiprocessor holds at once, and what keeps out one more; nothing for an unknown architecture."""
    architecture = architectures().get(target.arch)
    if architecture is None:
        return {}
    found = {}
    for kernel in kernels:
        facts = kernel.facts
        held = resident(
            architecture, registers=facts["registers"], warps=facts["warps"], shared_bytes=facts["shared bytes"]
        )
        found[kernel.name] = f"{held.blocks} ({held.warps} of {architecture.warps} warps, by {held.limit})"
    return found


def _refuse(reply: Mapping[str, Any], side: Source, implementation: str) -> None:
    if reply.get("status"):
        raise CannotMeasureError(f"{implementation} of {side.name} is {reply['status']} here: {reply['detail']}")
