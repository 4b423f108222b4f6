"""Finds families and selects from them. Imports no torch: an implementation stays a name until a worker loads it.

Families are the packages in `gemmgate.kernels`, the entry points of group `gemmgate.families`
(each names a package), and the packages in folders given by `--suite`. The harness does not know
which are its own. A package outside may also extend a family by implementations of its own.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from gemmgate.suite.cases import DTYPES, Case, Entry, Extension, Family
from gemmgate.suite.errors import UsageError, unknown
from gemmgate.suite.family_functions import FamilyError, applies, checked, guarded, require

ENTRY_POINT_GROUP = "gemmgate.families"


@dataclass(frozen=True)
class Choice:
    """One case with the implementations selected for it, in the family's order."""

    family: Family
    case: Case
    implementations: tuple[str, ...]

    @property
    def may_be_own(self) -> tuple[str, ...]:
        """Those that may be our own kernels: all but yardsticks and what is offered on request."""
        others = {entry.name for entry in self.family.implementations if entry.on_request} | {*self.family.yardsticks}
        return tuple(name for name in self.implementations if name not in others)


@dataclass(frozen=True)
class Item:
    """One implementation of one case."""

    family: Family
    case: Case
    implementation: str

    @property
    def path(self) -> str:
        """As `Row.path`."""
        return f"{self.family.name}/{self.implementation}/{self.case.name}"


@dataclass(frozen=True)
class Selection:
    """What a user asked for. Globs as in a shell; an empty tuple means all; tags are a union."""

    families: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {name: list(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        return cls(**{name: tuple(data.get(name, ())) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Catalog:
    """Families by name, with the package each came from.

    `extensions` maps (family, implementation) to another package where an extension brought it. `problems` are
    sentences about packages that had to be left out; `broken` has those about packages of `--suite` by their names, and
    `nothing_left` one about a folder of `--suite` that has no others.
    """

    families: Mapping[str, Family] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    extensions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    nothing_left: str = ""

    def family(self, name: str) -> Family:
        if name not in self.families:
            if name in self.broken:
                raise UsageError(self.broken[name])
            raise unknown("family", name, self.families)
        return self.families[name]

    def with_cases(self, cases: Sequence[Case]) -> Catalog:
        """The same families with these cases instead of their own; those without any are left out."""
        families = {
            name: replace(family, cases=tuple(case for case in cases if case.family == name))
            for name, family in self.families.items()
        }
        return replace(self, families={name: family for name, family in families.items() if family.cases})

    def load(self, family: str, where: str, package: str = "") -> Any:
        """What `module:attribute` means inside a package, by default the family's. Only workers call this."""
        module, _, attribute = where.partition(":")
        return getattr(importlib.import_module(f"{package or self.packages[family]}.{module}"), attribute)

    def implementation(self, family: str, name: str) -> Any:
        """The `Implementation` of that name. Imports what it needs, torch included."""
        entry = _entry(self.family(family), name)
        loaded = self.load(family, entry.where, self.extensions.get((family, name), ""))
        found = loaded[name] if isinstance(loaded, Mapping) else loaded
        if found.name != name:
            raise UsageError(
                f"Family '{family}' lists '{name}' at '{entry.where}', but what stands there is called '{found.name}'."
            )
        return checked(family, found)

    def implementation_for(self, case: Case, name: str) -> Any:
        """The same for a case. Raises `FamilyError` where the family cannot say what measuring that case needs."""
        family = self.family(case.family)
        require(family, case)
        _entry(family, name).applies(case)
        return self.implementation(case.family, name)

    def select(self, selection: Selection) -> list[Choice]:
        """Case by case, in the order of the families' definitions.

        Each name that matches nothing is an error listing what exists, and so is an empty product.
        A case that no family lists may be asked for by its full name, where the family can make it.
        Yardsticks are always measured beside the implementations asked for; what is only offered on
        request is left out where no implementation is asked for.
        """
        if self.nothing_left and not selection.families:
            raise UsageError(self.nothing_left)
        for name in selection.families:
            if name in self.broken and name not in self.families:
                raise UsageError(self.broken[name])
        families = _matching("family", selection.families, list(self.families))
        cases = [case for name in families for case in self.families[name].cases]
        listed = {case.name for case in cases}
        asked = [name for name in dict.fromkeys(selection.cases) if name not in listed]
        cases += self._cases_named(families, asked)
        tags = {tag for case in cases for tag in case.tags}
        for tag in selection.tags:
            if tag not in tags:
                raise unknown("tag", tag, tags)
        case_names = set(_matching("case", selection.cases, [case.name for case in cases]))
        entries = [entry for name in families for entry in self.families[name].implementations]
        wanted = set(_matching("implementation", selection.implementations, [entry.name for entry in entries]))
        if not selection.implementations:
            wanted -= {entry.name for entry in entries if entry.on_request}
        choices = []
        for case in cases:
            if case.name not in case_names or (selection.tags and not set(selection.tags) & set(case.tags)):
                continue
            family = self.families[case.family]
            names = offered(family, case)
            chosen = tuple(name for name in names if name in wanted)
            if chosen:
                kept = set(chosen) | set(family.yardsticks)
                choices.append(Choice(family, case, tuple(name for name in names if name in kept)))
        if not choices:
            raise UsageError(
                "No case has every property asked for "
                f"(family {_said(selection.families)}, case {_said(selection.cases)}, "
                f"implementation {_said(selection.implementations)}, tag {_said(selection.tags)}). "
                "`gemmgate list` shows the cases with their tags and implementations."
            )
        return choices

    def _cases_named(self, families: Sequence[str], names: Sequence[str]) -> list[Case]:
        """Cases that families make of these names. Raises `FamilyError` for a name that only failed to become one."""
        found: list[Case] = []
        for name in names:
            failed: FamilyError | None = None
            made: list[Case] = []
            for family in families:
                try:
                    case = case_named(self.families[family], name)
                except FamilyError as error:
                    failed = failed or error
                    continue
                made += [case] if case else []
            if failed and not made:
                raise failed
            found += made
        return found


def offered(family: Family, case: Case) -> tuple[str, ...]:
    """Names of the implementations that have a meaning for this case."""
    return tuple(entry.name for entry in family.implementations if applies(entry, case))


def case_named(family: Family, name: str) -> Case | None:
    """The case that a name such as `m1-n4096-k4096-bf16` spells, where the family makes cases that are called so."""
    dims: dict[str, int] = {}
    dtype, precision = "", ""
    for word in name.split("-"):
        if word in DTYPES or word == "tf32":
            dtype = "fp32" if word == "tf32" else word
            precision = {"tf32": "tf32", "fp32": "ieee"}.get(word, "acc32")
        elif found := re.fullmatch(r"([a-z]+)([1-9]\d*)", word):
            dims[found[1]] = int(found[2])
    if family.make_case is None or not dtype:
        return None
    try:
        made = family.make_case(dims, dtype, precision, (), "asked for by its name")
    except ValueError:
        return None
    return made if made.name == name else None


def find(suites: Sequence[Path] = ()) -> Catalog:
    """All families of this checkout or installation, of installed packages, and of `suites`, with their extensions.

    One of ours that cannot be used is an error; any other is left out and named among `problems`.
    """
    installed = {point.module: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    outside = {package: folder for folder in suites for package in _outside(folder)}
    named = [f"gemmgate.kernels.{name}" for name in _subpackages("gemmgate.kernels")]
    found = Catalog()
    extending = []
    failed: dict[str, UsageError] = {}
    for package in [*named, *installed, *outside]:
        try:
            module = _imported(package)
            if isinstance(getattr(module, "EXTENSION", None), Extension):
                extending.append((package, module.EXTENSION))
            else:
                found = _with_family(found, package, module.FAMILY)
        except UsageError as error:
            failed[package] = error
    for package, extension in extending:
        try:
            found = _with_extension(found, package, extension)
        except UsageError as error:
            failed[package] = error
    for package in named:
        if package in failed:
            raise failed[package]
    return replace(
        found,
        families={name: guarded(family) for name, family in found.families.items()},
        problems=tuple(_left_out(installed.get(package), outside, package, failed[package]) for package in failed),
        broken={package.rpartition(".")[2]: str(failed[package]) for package in outside if package in failed},
        nothing_left=_nothing_left(failed, outside),
    )


def _nothing_left(failed: Mapping[str, UsageError], outside: Mapping[str, Path]) -> str:
    """What is wrong with the first package of a folder in which all failed."""
    working = {folder for package, folder in outside.items() if package not in failed}
    return next((str(failed[package]) for package, folder in outside.items() if folder not in working), "")


def _left_out(point: EntryPoint | None, outside: Mapping[str, Path], package: str, error: UsageError) -> str:
    """What is wrong with a package of somebody else's, which must not keep others from working."""
    if point is None:
        return f"package '{package.rpartition('.')[2]}' of --suite {outside[package]} is left out: {error}"
    whose = f" of distribution '{point.dist.name}'" if point.dist else ""
    return f"entry point '{point.name}'{whose} is left out: {error}"


def _imported(package: str) -> ModuleType:
    try:
        module = importlib.import_module(package)
    except Exception as error:
        said = f"{type(error).__name__}: {error}".rstrip(".")
        raise UsageError(f"Package '{package}' cannot be imported: {said}.") from error
    if not (
        isinstance(getattr(module, "FAMILY", None), Family) or isinstance(getattr(module, "EXTENSION", None), Extension)
    ):
        raise UsageError(f"Package '{package}' defines no FAMILY and no EXTENSION: see CONTRIBUTING.md, 'A family'.")
    return module


def _with_family(found: Catalog, package: str, family: Family) -> Catalog:
    if family.name in found.families:
        raise UsageError(
            f"Two packages define family '{family.name}': {found.packages[family.name]} and {package}. "
            f"Rename one. Known: {', '.join(sorted(found.families))}."
        )
    return replace(
        found,
        families={**found.families, family.name: family},
        packages={**found.packages, family.name: package},
    )


def _with_extension(found: Catalog, package: str, extension: Extension) -> Catalog:
    family = found.family(extension.family)
    try:
        longer = replace(family, implementations=family.implementations + extension.implementations)
    except ValueError as error:
        raise UsageError(f"Package '{package}' cannot extend family '{family.name}': {error}") from error
    brought = {(family.name, entry.name): package for entry in extension.implementations}
    return replace(
        found,
        families={**found.families, family.name: longer},
        extensions={**found.extensions, **brought},
    )


def tree_hash(folder: Path) -> str:
    """16 hex digits over the names and contents of a folder's source files: which side a worker has imported."""
    digest = hashlib.sha256()
    root = folder.resolve()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".json", ".toml") and path.is_file():
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _entry(family: Family, name: str) -> Entry:
    for entry in family.implementations:
        if entry.name == name:
            return entry
    raise unknown("implementation", name, [entry.name for entry in family.implementations])


def _matching(noun: str, globs: Iterable[str], names: Sequence[str]) -> list[str]:
    wanted = list(globs)
    for glob in wanted:
        if not any(fnmatchcase(name, glob) for name in names):
            raise unknown(noun, glob, names)
    return [name for name in names if not wanted or any(fnmatchcase(name, glob) for glob in wanted)]


def _said(globs: Sequence[str]) -> str:
    return f"'{','.join(globs)}'" if globs else "any"


def _subpackages(package: str) -> list[str]:
    path = importlib.import_module(package).__path__
    return sorted(info.name for info in pkgutil.iter_modules(path) if info.ispkg and not info.name.startswith("_"))


def _outside(folder: Path) -> list[str]:
    """Packages below a folder, imported under a name that nothing else can have."""
    root = folder.resolve()
    if not root.is_dir():
        raise UsageError(f"--suite {folder}: no such folder.")
    prefix = f"gemmgate_suite_{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
    if prefix not in sys.modules:
        spec = importlib.util.spec_from_loader(prefix, loader=None, is_package=True)
        assert spec is not None
        package = importlib.util.module_from_spec(spec)
        package.__path__ = [str(root)]
        sys.modules[prefix] = package
    names = [name for name in _subpackages(prefix) if (root / name / "__init__.py").exists()]
    if not names:
        raise UsageError(
            f"--suite {folder}: no family packages there. A family is a folder with an __init__.py that defines FAMILY."
        )
    return [f"{prefix}.{name}" for name in names]
