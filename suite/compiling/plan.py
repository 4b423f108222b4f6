"""From a request to rows: which preparations are compiled for which targets, and what came of each."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from gemmgate.suite import catalog
from gemmgate.suite.cases import Case, Target
from gemmgate.suite.catalog import Selection
from gemmgate.suite.compiling.cubin import tensor_core
from gemmgate.suite.compiling.facts import FactStore
from gemmgate.suite.compiling.instructions import COMPILER_DIED, NOT_INSTALLED
from gemmgate.suite.compiling.occupancy import Resident, resident
from gemmgate.suite.compiling.pool import Child, Job, Reply, compile_all
from gemmgate.suite.compiling.representative import CHOSEN, TUNED, is_representative
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.profiles import architectures
from gemmgate.suite.records import Row, Status

FAMILY = "static"
Tell = Callable[[int, int], None]
_MANY_TARGETS = 4
"""From so many on a representative selection keeps all children busy, so they start while the first one lists it."""
_FORM = 2
"""Of the rows of a request that is remembered."""
_ALSO = ("cases.py", "catalog.py", "measure/compile_only.py")
"""Files that rows depend on, beside this folder and the machines."""


@dataclass(frozen=True)
class Request:
    """What to compile: `targets` by the name that rows carry, `tiles` of `CHOSEN` or `all`."""

    selection: Selection
    targets: Mapping[str, Target]
    tiles: tuple[str, ...] = CHOSEN
    suites: tuple[Path, ...] = ()


def compile_rows(
    request: Request, overlay: Path, cache: Path, children: int, tell: Tell = lambda done, of: None
) -> tuple[Row, ...]:
    """A row a kernel launched, or a row for a preparation that has none, from the kernels of `overlay`.

    What was compiled before is read from `cache`. `tell` hears how many preparations are done, and of how many.
    Raises CannotMeasureError where nothing of the selection launches a Triton kernel.
    """
    cache = cache.resolve()
    store = FactStore(cache)
    key = _key(request, overlay)
    known = store.read_request(key)
    if known is not None:
        return tuple(Row.from_json(row) for row in known)
    with ExitStack() as stack:
        begin = partial(Child, overlay, request.suites, cache)
        many = is_representative(request.selection) and len(request.targets) >= _MANY_TARGETS
        starting = stack.enter_context(ThreadPoolExecutor(children))
        early = [starting.submit(begin) for _ in range(children - 1 if many else 0)]
        for child in early:
            stack.callback(_close, child)
        first = begin()
        stack.callback(first.close)
        listed = first.ask("list", selection=request.selection.to_json())
        if "items" not in listed:
            raise CannotMeasureError(f"The implementations cannot be listed: {listed['detail']}.")
        jobs, illegal = _jobs(listed["items"], request, first)
        if not jobs and not illegal and not listed["failed"]:
            raise CannotMeasureError(_nothing_in(request))
        waiting: SimpleQueue[Callable[[], Child]] = SimpleQueue()
        for ready in (lambda: first, *(child.result for child in early)):
            waiting.put(ready)

        def start() -> Child:
            try:
                return waiting.get_nowait()()
            except Empty:
                return begin()

        replies = compile_all(jobs, start, children, lambda done: tell(done, len(jobs)))
        disassembler = first.disassembler
    rows = [row for job, reply in zip(jobs, replies, strict=True) for row in _rows(job, reply)]
    rows = _counted(rows, store, disassembler, children)
    rows += [*illegal, *(_unlisted(*failed) for failed in listed["failed"])]
    if not rows:
        raise CannotMeasureError(_nothing_in(request))
    if all(_is_lasting(row) for row in rows):
        store.write_request(key, [row.to_json() for row in rows])
    return tuple(rows)


def _nothing_in(request: Request) -> str:
    if request.tiles == (TUNED,):
        targets = ", ".join(request.targets)
        return f"No table has a tuned tile of this selection for {targets}: --tile rule compiles what a rule chooses."
    return "Nothing of this selection launches a Triton kernel of its own: `gemmgate list` shows what there is."


def illegal_tuned(rows: Iterable[Row]) -> list[Row]:
    """Entries of tuned tables that cannot run on the GPUs they are for."""
    return [row for row in rows if row.status == "unsupported" and row.flags.get("tile") == TUNED]


def _jobs(items: Sequence[dict[str, Any]], request: Request, child: Child) -> tuple[list[Job], list[Row]]:
    """What is to be compiled; and a row for each tuned tile of which it is known beforehand that it cannot run."""
    jobs, illegal = [], []
    for label, target in request.targets.items():
        device = asdict(target)
        if request.tiles == ("all",):
            for item in items:
                space = child.ask("tiles", item=item, target=device)
                if "tiles" not in space:
                    raise CannotMeasureError(f"The tiles of {item['implementation']} are not known: {space['detail']}.")
                jobs += [Job(item, label, target, tile) for tile in space["tiles"]]
        elif is_representative(request.selection) and TUNED in request.tiles:
            jobs += [Job(item, label, target, tile) for item in items for tile in request.tiles if tile != TUNED]
            found = child.ask("tuned", items=items, target=device)
            if "items" not in found:
                raise CannotMeasureError(f"The tuned tiles for {label} cannot be read: {found['detail']}.")
            jobs += [Job(item, label, target, TUNED) for item in found["items"]]
            illegal += [_illegal(one, label) for one in found["illegal"]]
        else:
            jobs += [Job(item, label, target, tile) for item in items for tile in request.tiles]
    return jobs, illegal


def _illegal(entry: Mapping[str, Any], label: str) -> Row:
    return Row(
        family=FAMILY,
        case=entry["case"],
        implementation=f"{entry['family']}/{entry['implementation']}",
        kind="static",
        status="unsupported",
        reason=entry["reason"],
        detail=entry["detail"],
        target=label,
        flags={"tile": TUNED},
        tile=entry["tile"],
    )


def _rows(job: Job, reply: Reply) -> list[Row]:
    case = Case.from_json(job.item["case"])
    common = Row(
        family=FAMILY,
        case=case.name,
        implementation=f"{case.family}/{job.item['implementation']}",
        kind="static",
        target=job.label,
        flags={"tile": job.tile if isinstance(job.tile, str) else _words(job.tile)},
        tags=case.tags,
        dims=dict(case.dims),
        dtype=case.dtype,
        precision=case.precision,
        layout=case.layout,
        epilogue=case.epilogue,
        origin=case.origin,
        tile=reply.get("tile"),
    )
    if "status" in reply:
        return [replace(common, status=reply["status"], reason=reply["reason"], detail=reply["detail"])]
    launched = reply["kernels"] or []
    common = replace(
        common,
        kernels=len(launched),
        kernel_names=tuple(name for name, _ in launched),
        device_code=reply.get("device_code", ""),
    )
    times: Counter[str] = Counter()
    rows = []
    for name, facts in launched:
        times[name] += 1
        phase = name if times[name] == 1 else f"{name}.{times[name]}"
        rows.append(_row(common, phase, facts, job.target))
    return rows


def _row(common: Row, phase: str, facts: Mapping[str, Any], target: Target) -> Row:
    fits = _resident(facts, target)
    status, reason, detail = _fit(phase, facts, target, fits)
    return replace(
        common,
        phase=phase,
        status=status,
        reason=reason,
        detail=detail,
        value=float(facts["registers"]) if status == "ok" else None,
        unit="registers",
        registers=facts["registers"],
        spill_bytes=facts["spill_bytes"],
        stack_bytes=facts["stack_bytes"],
        shared_bytes=facts["shared_bytes"],
        tensor_memory=facts["tensor_memory"],
        resident_blocks=fits.blocks if fits else None,
        resident_warps=fits.warps if fits else None,
        resident_limit=fits.limit if fits else "",
        cubin_sha=facts["cubin_sha"],
        cubin_bytes=facts["cubin_bytes"],
        stages_s=facts["stages_s"],
        compile_s=sum(facts["stages_s"].values()),
    )


def _resident(facts: Mapping[str, Any], target: Target) -> Resident | None:
    architecture = architectures().get(target.arch)
    if architecture is None:
        return None
    return resident(
        architecture,
        registers=facts["registers"],
        warps=facts["warps"],
        shared_bytes=facts["shared_bytes"],
        tensor_memory=facts["tensor_memory"],
    )


def _fit(kernel: str, facts: Mapping[str, Any], target: Target, fits: Resident | None) -> tuple[Status, str, str]:
    """Whether a launch would be accepted, with reason code and sentence where it would not."""
    if target.shared_bytes and facts["shared_bytes"] > target.shared_bytes:
        said = f"{facts['shared_bytes']} bytes of shared memory a block; {target.arch} allows {target.shared_bytes}"
        return "unsupported", "shared_memory", f"{kernel} needs {said}."
    if fits is not None and fits.blocks == 0:
        said = f"{facts['registers']} registers, {facts['warps']} warps, {facts['tensor_memory']} tensor memory columns"
        return "unsupported", fits.limit.replace(" ", "_"), f"{kernel} takes more {fits.limit} than there is: {said}."
    return "ok", "", ""


def _counted(rows: Sequence[Row], store: FactStore, disassembler: Path, children: int) -> list[Row]:
    """The rows with their instructions, where a disassembler knows the architecture; architectures at the same time."""
    arch_of: dict[str, str] = {}
    for row in rows:
        if row.cubin_sha and row.target.startswith("sm_"):
            arch_of.setdefault(row.cubin_sha, row.target.partition(":")[0])
    shas: dict[str, list[str]] = {}
    for sha, arch in arch_of.items():
        shas.setdefault(arch, []).append(sha)
    counts: dict[str, dict[str, int]] = {}
    with ThreadPoolExecutor(children) as threads:
        for found in threads.map(lambda arch: store.counts(shas[arch], arch, disassembler), shas):
            counts |= found
    return [
        replace(row, instructions=counts[row.cubin_sha], tensor_core=tensor_core(counts[row.cubin_sha]))
        if row.cubin_sha in counts
        else row
        for row in rows
    ]


def _close(starting: Future[Child]) -> None:
    """Ends a child that may never have started."""
    if not starting.cancel() and starting.exception() is None:
        starting.result().close()


def _unlisted(family: str, implementation: str, reason: str, detail: str) -> Row:
    """Of a module that fails; one that needs what is not installed may be another's, and is no error by itself."""
    status: Status = "unsupported" if reason == NOT_INSTALLED else "error"
    return Row(FAMILY, "", f"{family}/{implementation}", "static", status, reason, detail)


def _is_lasting(row: Row) -> bool:
    """Whether the same request would come to the same again: a process that crashed might not, the next time."""
    return row.status not in ("error", "timeout") and row.reason != COMPILER_DIED


def _words(tile: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(tile.items()))


def _key(request: Request, overlay: Path) -> str:
    """Everything that the rows of a request depend on."""
    here = Path(__file__).parent
    harness = [catalog.tree_hash(folder) for folder in (here, here.parent / "machines")]
    harness += [hashlib.sha256((here.parent / name).read_bytes()).hexdigest() for name in _ALSO]
    settings = {
        name: value for name, value in os.environ.items() if name.startswith("TRITON_") and name != "TRITON_CACHE_DIR"
    }
    parts = {
        "form": _FORM,
        "harness": harness,
        "kernels": catalog.tree_hash(overlay / "gemmgate" / "kernels"),
        "suites": [catalog.tree_hash(suite) for suite in request.suites],
        "selection": request.selection.to_json(),
        "targets": {label: asdict(target) for label, target in request.targets.items()},
        "tiles": request.tiles,
        "versions": _all_installed() | {"python": sys.version},
        "settings": settings,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _all_installed() -> dict[str, str]:
    """Versions by name: what a module of kernels imports is there, or is not."""
    return {str(found.name): found.version for found in distributions()}


def installed(name: str) -> str:
    """A distribution's version, without importing it; empty where it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
