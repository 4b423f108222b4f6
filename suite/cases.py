"""The contracts between kernels and harness: what is computed, by whom, and how it is called.

Standard library only, so that a catalog can be read where torch is not installed. Everything is
frozen. These classes only ever gain fields with defaults: an older commit's kernels run under a
newer harness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

DTYPES = ("bf16", "fp16", "fp32", "fp8e4m3", "int8")
PRECISIONS = ("ieee", "tf32", "3xtf32", "acc32")
Runner = Literal["kernel", "compile", "static", "collective"]
Kind = Literal["own", "yardstick", "peer", "compiler"]

_CASE_NAME = re.compile(r"[a-z0-9.-]+")
_NAME = re.compile(r"[a-z0-9_]+")

Inputs = Mapping[str, Any]
"""Tensors by argument name, as `Family.make_inputs` returns them."""
Tile = Mapping[str, int | str | bool]
"""Block sizes, warps, stages, splits: explicit, and recorded with the measurement."""
Call = Callable[[], Any]
"""What is timed: returns a tensor or a tuple of tensors."""
Refusal = tuple[str, str]
"""(reason code, sentence) of an implementation that does not take a case on a target."""


@dataclass(frozen=True)
class Case:
    """One named point of a family: data only.

    `name` matches `[a-z0-9.-]+` and spells every field that varies within the family. `dims` maps
    a dimension to its size, such as `{"m": 32, "n": 32, "k": 32768}`. `origin` says where the shape
    comes from.
    """

    family: str
    name: str
    dims: Mapping[str, int] = field(hash=False)
    dtype: str
    precision: str
    layout: str = "row"
    epilogue: str = "none"
    tags: tuple[str, ...] = ()
    origin: str = ""

    def __post_init__(self) -> None:
        for name in ("family", "name", "layout", "epilogue", "origin"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"Case '{self.name}': {name} is {getattr(self, name)!r:.100}, and should be text.")
        if not isinstance(self.tags, tuple) or not all(isinstance(tag, str) for tag in self.tags):
            raise ValueError(f"Case '{self.name}': tags are {self.tags!r:.100}, and should be a tuple of texts.")
        if not isinstance(self.dims, Mapping) or not all(_is_size(*pair) for pair in self.dims.items()):
            raise ValueError(f"Case '{self.name}': dims are {self.dims!r:.100}, and should be whole numbers by name.")
        if not _CASE_NAME.fullmatch(self.name):
            raise ValueError(f"Case name '{self.name}' of family '{self.family}' does not match [a-z0-9.-]+.")
        if self.dtype not in DTYPES:
            raise ValueError(f"Case '{self.name}': dtype '{self.dtype}' is not one of {', '.join(DTYPES)}.")
        if self.precision not in PRECISIONS:
            raise ValueError(f"Case '{self.name}': precision '{self.precision}' is not one of {', '.join(PRECISIONS)}.")
        object.__setattr__(self, "dims", MappingProxyType(dict(self.dims)))

    def to_json(self) -> dict[str, Any]:
        """The case as plain JSON values; `Case.from_json` gives it back."""
        return {
            "family": self.family,
            "name": self.name,
            "dims": dict(self.dims),
            "dtype": self.dtype,
            "precision": self.precision,
            "layout": self.layout,
            "epilogue": self.epilogue,
            "tags": list(self.tags),
            "origin": self.origin,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        """Fields that this version does not know are ignored: the sender may be newer."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{**known, "tags": tuple(data.get("tags", ()))})


def _is_size(name: object, size: object) -> bool:
    return isinstance(name, str) and isinstance(size, int)


@dataclass(frozen=True)
class Target:
    """A device as plain numbers, so that choices can be computed anywhere.

    `arch` is `cpu`, `sm_90`, `gfx942`, ...; `shared_bytes` the opt-in shared memory of one block.
    """

    arch: str
    name: str = ""
    sm_count: int = 0
    shared_bytes: int = 0
    l2_bytes: int = 0
    memory_bytes: int = 0
    features: tuple[str, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.arch != "cpu"

    @property
    def compute_capability(self) -> int:
        """90 for `sm_90`; 0 where the target is no NVIDIA GPU."""
        return int(self.arch[3:]) if self.arch.startswith("sm_") else 0


@dataclass(frozen=True)
class Prepared:
    """An implementation made ready for one case: compiled and searched, once.

    `bind(inputs)` gives the call for one set of inputs. It is untimed, may pack weights and allocate,
    and never compiles. The call runs on the current stream, does not synchronise with the host,
    launches the same kernels each time, and writes nothing but its outputs and the tensors that
    `bind` appended to `workspaces`, whose contents need not survive between calls, and to `state`, which
    `bind` fills and every call leaves as it found it, such as counters that are zero between calls.
    `readings_s` is what a tuner of its own measured while preparing, seconds by choice; `algorithm` then
    names the choice.
    """

    bind: Callable[[Inputs], Call]
    tile: Tile | None = None
    algorithm: str = ""
    capturable: bool = True
    workspaces: list[Any] = field(default_factory=list, compare=False)
    device_code: str = ""
    readings_s: Mapping[str, float] | None = None
    state: list[Any] = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Footprint:
    """What a tile asks of a device, so that a search can drop it before anything is compiled.

    `programs` and `warps` (of a program) and `shared_bytes` (of a program) are those of the largest launch;
    `bytes_moved` is all traffic with memory, what is read again and workspaces included; `launches` counts kernels.
    """

    programs: int
    warps: int
    shared_bytes: int
    bytes_moved: int
    launches: int = 1


@dataclass(frozen=True)
class Implementation:
    """One way to compute a family. A variant (another flag, split or format) has a name of its own.

    `supports(case, target)` is None or the refusal. `prepare(case, example, target, tile)` may
    compile; `tile` is None, one of `tiles(case, target)`, the space a search may choose from, or what was reported when
    the same case was prepared before: a gate hands it back, so that every block times the same.
    With `screened`, the harness itself chooses: it times the whole space on screening samples and
    reports the winner on fresh ones. `deterministic` promises equal bits for equal inputs.
    `prepare` launches each of its own kernels once on the example, which may hold meta tensors where the
    launches are only compiled, for a target that is not here. `footprint(case, target, tile)` is pure.
    `error_bound(case)` stands for the family's where what a library does by default, and says so, costs more than what
    is asked of everybody else; nothing of kind `own` has one.
    """

    name: str
    kind: Kind
    deterministic: bool
    supports: Callable[[Case, Target], Refusal | None]
    prepare: Callable[[Case, Inputs, Target, Tile | None], Prepared]
    tiles: Callable[[Case, Target], Sequence[Tile]] | None = None
    screened: bool = False
    footprint: Callable[[Case, Target, Tile], Footprint] | None = None
    error_bound: Callable[[Case], float] | None = None

    def __post_init__(self) -> None:
        if self.error_bound is not None and self.kind == "own":
            raise ValueError(f"Implementation '{self.name}' is our own: the family's error bound is its bound.")
        if self.screened and self.tiles is None:
            raise ValueError(f"Implementation '{self.name}' is screened but names no tiles to choose from.")


def _always(case: Case) -> bool:
    return True


def _case_dtype(case: Case) -> str:
    return case.dtype


@dataclass(frozen=True)
class Entry:
    """An implementation as the catalog knows it: a name and where it lives, nothing imported.

    `where` is `module:attribute` inside the family's package; the attribute is an `Implementation`
    or a mapping from names to them. `applies(case)` leaves out cases for which the name has no
    meaning, such as a split that does not divide K. With `on_request` it is selected only where an
    implementation glob matches it: for what takes long to prepare, or serves one question.
    """

    name: str
    where: str
    applies: Callable[[Case], bool] = _always
    on_request: bool = False


@dataclass(frozen=True)
class Family:
    """One operation with one argument contract.

    `make_inputs` and `reference` are `module:attribute` strings, imported only in a worker:
    `make_inputs(case, seed, device, data) -> Inputs` and `reference(case, inputs) -> outputs in
    float64`. `flop(case)` is a count, `bytes_moved(case)` the fewest bytes through device memory
    (every input read once, every output written once). `error_bound(case)` is the largest
    accumulation error, ||out - reference|| / ||reference||; the harness adds the rounding of the
    output dtype, which it measures on the reference. `yardsticks` are ordered: the first that is
    supported and ok on a case is the one that ratios are quoted against. `twin(case)` is a small
    case of the same kind, for the interpreter. `output_dtype(case)` is the case's dtype unless the
    family says otherwise; of several outputs all have it, or it names one for each, joined by commas.
    Outputs of `int32`, such as positions, have to be exact.
    `make_case` makes cases that no catalog lists, of somebody's own shapes:
    `make_case(dims, dtype, precision, tags, origin)`, where `dims` are those of a product
    C[m, n] = A[m, k] @ B[k, n]; it raises ValueError, with a sentence, for what the family does not compute.
    `activations` names the inputs that the layer before has just written, for
    the cache state `serving`; the others are weights. `decision`, a `module:attribute` string too, says what an error
    of the output does to what the output is for: `decision(case, inputs, output, reference)` gives numbers by name.
    """

    name: str
    runner: Runner
    cases: tuple[Case, ...]
    implementations: tuple[Entry, ...]
    yardsticks: tuple[str, ...]
    flop: Callable[[Case], int]
    bytes_moved: Callable[[Case], int]
    make_inputs: str
    reference: str
    error_bound: Callable[[Case], float]
    twin: Callable[[Case], Case] | None = None
    output_dtype: Callable[[Case], str] = _case_dtype
    about: str = ""
    make_case: Callable[[Mapping[str, int], str, str, tuple[str, ...], str], Case] | None = None
    activations: tuple[str, ...] = ()
    decision: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"Family name '{self.name}' does not match [a-z0-9_]+.")
        self._refuse_others("cases", Case)
        self._refuse_others("implementations", Entry)
        for name in ("flop", "bytes_moved", "error_bound", "output_dtype", "twin", "make_case"):
            function = getattr(self, name)
            if not callable(function) and not (function is None and name in ("twin", "make_case")):
                raise ValueError(f"Family '{self.name}': {name} is {function!r:.100}, and should be a function.")
        self._refuse_duplicates("case", [case.name for case in self.cases])
        self._refuse_duplicates("implementation", [entry.name for entry in self.implementations])
        for case in self.cases:
            if case.family != self.name:
                raise ValueError(f"Case '{case.name}' says family '{case.family}' but stands in family '{self.name}'.")
        names = {entry.name for entry in self.implementations}
        for yardstick in self.yardsticks:
            if yardstick not in names:
                raise ValueError(
                    f"Family '{self.name}': yardstick '{yardstick}' is none of its implementations: "
                    f"{', '.join(sorted(names))}."
                )

    def _refuse_others(self, field: str, kind: type) -> None:
        held = getattr(self, field)
        if not isinstance(held, tuple) or not all(isinstance(one, kind) for one in held):
            raise ValueError(f"Family '{self.name}': {field} is {held!r:.100}, not a tuple of {kind.__name__}.")

    def _refuse_duplicates(self, noun: str, names: Sequence[str]) -> None:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"Family '{self.name}' has two {noun}s of one name: {', '.join(twice)}. "
                f"Known: {', '.join(sorted(set(names)))}."
            )


@dataclass(frozen=True)
class Extension:
    """Implementations of a family that live in another package, which defines `EXTENSION` instead of `FAMILY`.

    `where` of an entry is a place inside that other package.
    """

    family: str
    implementations: tuple[Entry, ...]
