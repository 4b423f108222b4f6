"""Matrix products C[m, n] = A[m, k] @ B[k, n] that a program or a model makes, as cases with counts of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemmgate.suite.cases import Case, Family
from gemmgate.suite.catalog import Catalog
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.family_functions import FamilyError

ROLES = ("dense", "router", "expert", "attention")
DTYPE_WORDS = {
    "bf16": ("bfloat16",),
    "fp16": ("float16", "f16", "half"),
    "fp32": ("float32", "f32", "float"),
    "tf32": (),
    "fp64": ("float64", "f64", "double"),
    "fp8e4m3": ("float8_e4m3fn", "e4m3", "fp8"),
    "fp8e5m2": ("float8_e5m2", "e5m2"),
    "int8": ("s8", "i8"),
    "uint8": ("u8",),
    "int32": ("s32", "i32"),
    "int64": ("s64", "i64"),
    "complex64": ("cf32",),
    "complex128": ("cf64",),
}
"""Our words, and what others call the same; a family need not compute in all of them."""
_PRECISIONS = {"tf32": "tf32", "fp32": "ieee"}
_ORIGINS = 3
"""Places that a case names as its origin; more are counted."""


@dataclass(frozen=True)
class Shape:
    """One product. `calls` is how often it is made, None where nobody counted; calls of one `group` belong together.

    `role` is one of `ROLES`, `dtype` one of our words or empty, `layout` empty or two words such as `row-column`.
    """

    m: int
    n: int
    k: int
    dtype: str = ""
    calls: int | None = None
    group: str = ""
    role: str = "dense"
    origin: str = ""
    batch: int = 1
    layout: str = ""


@dataclass(frozen=True)
class Made:
    """Cases made of shapes. `calls` maps a group, and in it `family/case`, to a count; `notes` say what was lost."""

    cases: tuple[Case, ...]
    calls: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For a run's selection; `Made.from_json` gives it back, without the notes."""
        return {
            "cases": [case.to_json() for case in self.cases],
            "calls": {group: dict(calls) for group, calls in self.calls.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Made:
        return cls(tuple(Case.from_json(case) for case in data["cases"]), data["calls"])


def dtype_word(text: str) -> str:
    """Our word for a dtype as torch, CUTLASS or a person writes it. Raises ValueError for none at all."""
    asked = text.strip().lower().removeprefix("torch.")
    for word, others in DTYPE_WORDS.items():
        if asked == word or asked in others:
            return word
    raise ValueError(f"'{text}' is no dtype known here ({', '.join(DTYPE_WORDS)})")


def make_cases(shapes: Sequence[Shape], known: Catalog, family: str = "", dtype: str = "bf16") -> Made:
    """A case for each different product, in the order of the shapes.

    `family` takes all of them; by default one that is called like a shape's role, where there is one, and
    else the first that makes cases. `dtype` is for shapes that name none. Raises `UsageError` where nothing is left.
    """
    makers = {name: found for name, found in known.families.items() if found.make_case is not None}
    if family and family not in makers:
        raise unknown("family that makes cases of m, n and k", family, makers)
    usual = next((name for name in makers if name not in ROLES), "")
    if not usual:
        raise UsageError("No family makes cases of m, n and k, so shapes and models cannot be measured.")
    cases: dict[tuple[str, str], list[Case]] = {}
    calls: dict[str, Counter[str]] = {}
    taken: Counter[tuple[str, str]] = Counter()
    lost: Counter[str] = Counter()
    for shape in shapes:
        name = family or (shape.role if shape.role in makers else usual)
        try:
            case = _case(shape, makers[name], shape.dtype or dtype)
        except (ValueError, FamilyError) as error:
            lost[str(error)] += 1
            continue
        cases.setdefault((name, case.name), []).append(case)
        taken[shape.role, name] += 1
        if shape.calls is not None:
            calls.setdefault(shape.group, Counter())[f"{name}/{case.name}"] += shape.calls
    notes = [f"{_counted(count)} left out: {why}" for why, count in lost.items()]
    if not cases:
        raise UsageError(" ".join(["None of the shapes can be measured.", *notes]))
    notes += _mapping_notes(taken, shapes)
    counts = {group: dict(found) for group, found in calls.items()}
    return Made(tuple(map(_merged, cases.values())), counts, tuple(notes))


def _case(shape: Shape, family: Family, dtype: str) -> Case:
    if shape.batch != 1:
        raise ValueError("batched products, which no family computes.")
    assert family.make_case is not None
    words = ("fp32" if dtype == "tf32" else dtype, _PRECISIONS.get(dtype, "acc32"))
    return family.make_case({"m": shape.m, "n": shape.n, "k": shape.k}, *words, (shape.role,), shape.origin)


def _merged(same: Sequence[Case]) -> Case:
    origins = list(dict.fromkeys(case.origin for case in same))
    said = "; ".join(origins[:_ORIGINS]) + (f"; and {len(origins) - _ORIGINS} more" if len(origins) > _ORIGINS else "")
    return replace(same[0], origin=said, tags=tuple(dict.fromkeys(tag for case in same for tag in case.tags)))


def _mapping_notes(taken: Mapping[tuple[str, str], int], shapes: Sequence[Shape]) -> list[str]:
    """Which family measures what, where that is not the one of the role's name."""
    notes = []
    for name in dict.fromkeys(name for _, name in taken):
        roles = {role: count for (role, other), count in taken.items() if other == name and role != name}
        if roles:
            said = ", ".join(f"{count} {role}" for role, count in roles.items())
            notes.append(f"measured as {name}: {said}.")
    turned = sum("column" in shape.layout for shape in shapes)
    if turned:
        notes.append(f"{_counted(turned)} with a column-major operand: measured with the family's own layout.")
    return notes


def _counted(count: int) -> str:
    return "1 shape" if count == 1 else f"{count} shapes"
