"""What a run leaves behind: machine, stack, rows. Immutable, standard library only.

Schema history
    1  first version
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from gemmgate.suite.errors import UnreadableError

SCHEMA = 1
METHOD_VERSION = 4
"""The protocol that yields a sample. A change makes older runs INCOMPARABLE, never 'slower'."""

RowKind = Literal["time", "phase", "count", "static"]
Status = Literal["ok", "broken", "unsupported", "invalid", "error", "out_of_memory", "timeout"]
STATUSES: tuple[Status, ...] = ("ok", "broken", "unsupported", "invalid", "error", "out_of_memory", "timeout")
RETRIED: tuple[Status, ...] = ("error", "out_of_memory", "timeout")
"""What `--resume` measures again: these may have had a cause outside the kernel."""

CROSS_CHECK = "cross_check"
"""`phase` of a time that another timer took, to check the one that counts."""
TIMERS = "timers"
"""`phase` of what a benchmark function read, in a comparison of such functions."""
SINGLY = "singly"
"""`phase` of a time of calls that were timed one by one, as published figures are, beside the one that counts."""
BESIDE = (CROSS_CHECK, SINGLY)
"""Phases of times that stand beside the one that counts: in no mean and in no history."""
MAX_SAMPLES = 64
"""Samples kept in a row."""
MIN_SAMPLES = 30
"""Below this a measurement is not `ok`."""
PLACES = 4
"""Workspaces of a library that a visit of a block averages over: it has a multiple of so many replays."""
STATES_APART = 0.12
"""Nodes of graphs are in two states of launching where one takes less than another by more than this share: on an H200
the states are 0.25 apart.
"""

IDENTITY = (
    "family",
    "case",
    "implementation",
    "kind",
    "cache",
    "timer",
    "data",
    "seed",
    "phase",
    "target",
    "flags",
    "method",
)
"""Fields whose hash is a row's id: rows with equal ids measured the same thing the same way."""


@dataclass(frozen=True)
class Machine:
    """The key of a history. `key` names its folder; `board` is a hash of the board's UUID, no part of the key.

    `power_default_w`, `clock_set_hz` (0 where nobody set one), `compute_mode` and `ecc` are what an
    administrator chose; `mig` is the profile of a slice, or `on` where the whole GPU is in that mode.
    """

    key: str
    model: str
    memory_bytes: int = 0
    power_limit_w: float = 0.0
    mig: str = ""
    power_mode: str = ""
    cores: int = 0
    board: str = ""
    power_default_w: float = 0.0
    clock_set_hz: float = 0.0
    compute_mode: str = ""
    ecc: str = ""

    @property
    def is_gpu(self) -> bool:
        return not self.key.startswith("cpu-")

    @property
    def takes_turns(self) -> bool:
        """Whether it admits one process at a time, so that workers hold it one after the other."""
        return self.compute_mode == "exclusive_process"


@dataclass(frozen=True)
class Stack:
    """Versions that a time depends on. Empty where it does not apply; `threads` are those of a CPU's library."""

    python: str = ""
    torch: str = ""
    triton: str = ""
    cuda: str = ""
    driver: str = ""
    cublas: str = ""
    blas: str = ""
    threads: int = 0


@dataclass(frozen=True)
class Limits:
    """What this machine can do, measured at the start of the run: the roofs and the floors.

    `flop_per_s` maps a case's dtype or `dtype.precision` (`bf16`, `fp32.tf32`) to a rate.
    `ceiling_*` are what no number may beat: hardware figures where they are known, for the clock
    `ceiling_sm_clock_hz`. `bytes_per_s` and `flop_per_s` are the best that was seen;
    `settled_flop_per_s` is what remains once clock and power are steady under that load.
    `bytes_per_s_by_size` maps a number of bytes, as text, to the rate at which a kernel moves them.
    `source` is `short` where a run measured these itself, else the calibration they come from.
    """

    bytes_per_s: float = 0.0
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    ceiling_bytes_per_s: float = 0.0
    ceiling_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    launch_floor_s: float = 0.0
    l2_bytes_per_s: float = 0.0
    copy_bytes_per_s: float = 0.0
    read_bytes_per_s: float = 0.0
    bytes_per_s_by_size: Mapping[str, float] = field(default_factory=dict)
    settled_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    settled_sm_clock_hz: Mapping[str, float] = field(default_factory=dict)
    ceiling_sm_clock_hz: float = 0.0
    event_floor_s: float = 0.0
    timer_resolution_s: float = 0.0
    source: str = ""


@dataclass(frozen=True)
class Row:
    """One measurement: one implementation on one case in one cache state, with all that explains it.

    Times are seconds a call. `median_s`, `low_s`, `high_s` are set only where `status` is `ok`.
    `visit` is shared by the rows that were sampled interleaved with each other: only those give a
    ratio, and `yardstick` names the one of them that it is quoted against. `error` is
    ||out - reference|| / ||reference||; `error_worst_tile` that of the 16 x 16 tile nearest to its
    bound; `error_bound` what was allowed for the whole. `roof_s` is the least time that the measured
    roofs allow. Of the choices behind it, `readings_s` is what the implementation's own tuner measured and
    `screened_s` what the harness did when it chose. `cycles` is the time in cycles of the SM clock, `joules`
    the energy, each a call; `node_s` is how long a graph node that does nothing took before the samples.
    `decision` are the family's own numbers about what the error does. A static row is one kernel, `phase` its
    name, compiled for `target`; registers are those of a thread, bytes of shared memory those of a block,
    `resident_*` what a multiprocessor holds at once.
    """

    family: str
    case: str
    implementation: str
    kind: RowKind = "time"
    status: Status = "ok"
    reason: str = ""
    detail: str = ""
    # the case
    tags: tuple[str, ...] = ()
    dims: Mapping[str, int] = field(default_factory=dict)
    dtype: str = ""
    precision: str = ""
    layout: str = ""
    epilogue: str = ""
    origin: str = ""
    flop: int = 0
    bytes_moved: int = 0
    # how it was measured
    cache: str = ""
    cache_proof: str = "unknown"
    cache_evidence: str = ""
    timer: str = ""
    data: str = ""
    seed: int = 0
    phase: str = ""
    target: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    method: int = METHOD_VERSION
    visit: str = ""
    yardstick: str = ""
    # what came out
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    samples_s: tuple[float, ...] = ()
    calls_per_sample: int = 0
    host_s: float | None = None
    eager_s: float | None = None
    value: float | None = None
    unit: str = ""
    error: float | None = None
    error_worst_tile: float | None = None
    error_bound: float | None = None
    decision: Mapping[str, float] | None = None
    kernels: int | None = None
    kernel_names: tuple[str, ...] = ()
    tile: Mapping[str, Any] | None = None
    algorithm: str = ""
    device_code: str = ""
    readings_s: Mapping[str, float] | None = None
    screened_s: Mapping[str, float] | None = None
    roof_s: float | None = None
    workspace_bytes: int | None = None
    marks: tuple[str, ...] = ()
    sm_clock_hz: float | None = None
    power_w: float | None = None
    cycles: float | None = None
    joules: float | None = None
    node_s: float | None = None
    # what the compiler made of a kernel, where `kind` is static
    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    shared_bytes: int | None = None
    tensor_memory: int | None = None
    tensor_core: str = ""
    resident_blocks: int | None = None
    resident_warps: int | None = None
    resident_limit: str = ""
    instructions: Mapping[str, int] | None = None
    cubin_sha: str = ""
    cubin_bytes: int | None = None
    stages_s: Mapping[str, float] | None = None
    # what it cost
    compile_s: float | None = None
    check_s: float | None = None
    measure_s: float | None = None
    # where and when
    run_id: str = ""
    machine: str = ""
    board: str = ""
    commit: str = ""
    utc: str = ""

    def __post_init__(self) -> None:
        if (self.median_s is not None) != (self.status == "ok" and self.kind == "time"):
            raise ValueError(
                f"Row {self.path}: median_s is {self.median_s} though status is '{self.status}' and kind '{self.kind}'."
            )

    @property
    def id(self) -> str:
        """16 hex digits over `IDENTITY`."""
        named = {name: getattr(self, name) for name in IDENTITY}
        named["flags"] = sorted(self.flags.items())
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def path(self) -> str:
        """`dense_splitk/cublas/m32-n32-k32768-bf16`"""
        return f"{self.family}/{self.implementation}/{self.case}"

    @property
    def samples_n(self) -> int:
        return len(self.samples_s)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, floats as they are."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**{name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}, "id": self.id}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        """Fields that this version does not know are dropped; a missing one takes its default."""
        known = {f.name: data[f.name] for f in fields(cls) if data.get(f.name) is not None}
        for name in ("tags", "samples_s", "kernel_names", "marks"):
            known[name] = tuple(known.get(name, ()))
        return cls(**known)


@dataclass(frozen=True)
class Run:
    """One execution of a selection, on one machine, at one commit, by one method."""

    id: str
    utc: str
    commit: str
    dirty: bool
    machine: Machine
    stack: Stack
    limits: Limits = field(default_factory=Limits)
    selection: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    resumed: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    schema: int = SCHEMA
    method: int = METHOD_VERSION
    rows: tuple[Row, ...] = ()

    def header(self) -> dict[str, Any]:
        """Everything but the rows, as plain JSON values."""
        return {
            **{
                f.name: getattr(self, f.name)
                for f in fields(self)
                if f.name not in ("machine", "stack", "limits", "rows")
            },
            "selection": dict(self.selection),
            "seconds": dict(self.seconds),
            "machine": asdict(self.machine),
            "stack": asdict(self.stack),
            "limits": {**asdict(self.limits)},
        }

    @classmethod
    def from_header(cls, data: Mapping[str, Any], rows: tuple[Row, ...] = ()) -> Run:
        """Raises `UnreadableError` where the header is not ours or of a newer schema."""
        schema = data.get("schema")
        if not isinstance(schema, int):
            raise UnreadableError("This is not a gemmgate run: it has no schema number.")
        if schema > SCHEMA:
            raise UnreadableError(
                f"Run {data.get('id', '?')} has schema {schema}; this gemmgate reads up to {SCHEMA}. "
                "Update gemmgate to read it."
            )
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data and f.name != "rows"}
        known["machine"] = _build(Machine, data["machine"])
        known["stack"] = stack_on(known["machine"], data["stack"])
        known["limits"] = _build(Limits, data.get("limits", {}))
        return cls(**known, rows=rows)


def stack_on(machine: Machine, data: Mapping[str, Any]) -> Stack:
    """A stack as it was stored. Of a GPU the host's threads are no part, though older runs name them."""
    stack: Stack = _build(Stack, data)
    return replace(stack, threads=0) if machine.is_gpu else stack


def run_id(utc: str, commit: str, board: str, *, dirty: bool) -> str:
    """`20261129T160312Z-0a1b2c3d4e-8f3a`, with `-dirty` where the tree was: legal on every filesystem.

    Boards of one host may begin in the same second, each in a checkout of its own, so the board's beginning is in it.
    """
    stamp = re.sub(r"[-:]", "", utc)
    told = [stamp, commit[:10] or "nocommit", board[:4], "dirty" if dirty else ""]
    return "-".join(filter(None, told))


def machine_key(*parts: object) -> str:
    """A folder name from free text: `NVIDIA H200`, `141g` -> `nvidia-h200-141g`."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(str(part) for part in parts).lower()).strip("-")


def _build(kind: Any, data: Mapping[str, Any]) -> Any:
    return kind(**{f.name: data[f.name] for f in fields(kind) if f.name in data})
