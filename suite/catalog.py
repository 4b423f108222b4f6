"""Finds families and selects from them. Imports no torch: an implementation stays a name until a worker loads it.

Families are the packages in `gemmgate.kernels`, the entry points of group `gemmgate.families`
(each names a package), and the packages in folders given by `--suite`. The harness does not know
which are its own.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from gemmgate.suite.cases import Case, Entry, Family
from gemmgate.suite.errors import UsageError, unknown

ENTRY_POINT_GROUP = "gemmgate.families"


@dataclass(frozen=True)
class Choice:
    """One case with the implementations selected for it, in the family's order."""

    family: Family
    case: Case
    implementations: tuple[str, ...]


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
    """Families by name, with the package each came from."""

    families: Mapping[str, Family] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)

    def family(self, name: str) -> Family:
        if name not in self.families:
            raise unknown("family", name, self.families)
        return self.families[name]

    def load(self, family: str, where: str) -> Any:
        """The object that `module:attribute` means inside a family's package. Only workers call this."""
        module, _, attribute = where.partition(":")
        return getattr(importlib.import_module(f"{self.packages[family]}.{module}"), attribute)

    def implementation(self, family: str, name: str) -> Any:
        """The `Implementation` of that name. Imports what it needs, torch included."""
        entry = _entry(self.family(family), name)
        loaded = self.load(family, entry.where)
        found = loaded[name] if isinstance(loaded, Mapping) else loaded
        if found.name != name:
            raise UsageError(
                f"Family '{family}' lists '{name}' at '{entry.where}', but what stands there is called '{found.name}'."
            )
        return found

    def select(self, selection: Selection) -> list[Choice]:
        """Case by case, in the order of the families' definitions.

        Each name that matches nothing is an error listing what exists, and so is an empty product.
        Yardsticks are always measured beside the implementations asked for.
        """
        families = _matching("family", selection.families, list(self.families))
        cases = [case for name in families for case in self.families[name].cases]
        tags = {tag for case in cases for tag in case.tags}
        for tag in selection.tags:
            if tag not in tags:
                raise unknown("tag", tag, tags)
        case_names = set(_matching("case", selection.cases, [case.name for case in cases]))
        entries = [entry.name for name in families for entry in self.families[name].implementations]
        wanted = set(_matching("implementation", selection.implementations, entries))
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


def offered(family: Family, case: Case) -> tuple[str, ...]:
    """Names of the implementations that have a meaning for this case."""
    return tuple(entry.name for entry in family.implementations if entry.applies(case))


def find(suites: Sequence[Path] = ()) -> Catalog:
    """All families of this checkout or installation, of installed packages, and of `suites`."""
    packages = [f"gemmgate.kernels.{name}" for name in _subpackages("gemmgate.kernels")]
    packages += [point.value for point in entry_points(group=ENTRY_POINT_GROUP)]
    packages += [package for folder in suites for package in _outside(folder)]
    families: dict[str, Family] = {}
    origins: dict[str, str] = {}
    for package in packages:
        family = getattr(importlib.import_module(package), "FAMILY", None)
        if not isinstance(family, Family):
            raise UsageError(f"Package '{package}' defines no FAMILY: see CONTRIBUTING.md, 'A family'.")
        if family.name in families:
            raise UsageError(
                f"Two packages define family '{family.name}': {origins[family.name]} and {package}. "
                f"Rename one. Known: {', '.join(sorted(families))}."
            )
        families[family.name] = family
        origins[family.name] = package
    return Catalog(families, origins)


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
