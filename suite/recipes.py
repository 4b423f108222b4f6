"""Writes the files that a new kernel or family consists of: CONTRIBUTING's recipes, ready to be filled in.

What is written works at once: a new kernel computes the family's reference, a new family a small product.
"""

from __future__ import annotations

import ast
import importlib.util
import keyword
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from string import Template

from gemmgate.suite.cases import Family
from gemmgate.suite.catalog import Catalog
from gemmgate.suite.errors import UsageError

_TEMPLATES = Path(__file__).parent / "templates"
_CASES = "from gemmgate.suite.cases import Case, Implementation, Inputs, Prepared, Refusal, Target, Tile"


def new_family(known: Catalog, name: str, folder: Path, package: str) -> list[Path]:
    """The files of a family in `folder / name`. `package` is the folder's own, empty where it has none.

    Raises `UsageError` where the name is taken or is no name.
    """
    _refuse_name("family", name, known.families)
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise UsageError(
            f"'{name}' is a module that Python finds already and that a family could hide: choose another name."
        )
    home = folder / name
    if home.exists():
        raise UsageError(f"{home} exists already: choose another name.")
    words = {"name": name, "package": f"{package}.{name}" if package else "."}
    files = {
        path.name.removesuffix(".txt"): _filled(f"family/{path.name}", words)
        for path in sorted((_TEMPLATES / "family").glob("*.txt"))
    }
    return _write({home / file: text for file, text in files.items()})


def new_kernel(known: Catalog, name: str, family: Family, suite: Path | None) -> list[Path]:
    """The file of a kernel, and its line where the family's implementations are listed.

    Without `suite`, or where the family lives there, in the family's own folder; otherwise in a package
    of `suite` that extends the family. Raises `UsageError` where the name is taken or is no name.
    """
    _refuse_name("kernel", name, [entry.name for entry in family.implementations])
    package = known.packages[family.name]
    home = _folder(package)
    outside = suite is not None and not home.is_relative_to(suite.resolve())
    if outside and package.startswith("gemmgate_suite_"):
        raise UsageError(f"Family '{family.name}' lives in {home.parent}: write the kernel there, with --suite.")
    if suite is not None and outside:
        home = suite / family.name
    module, _, reference = family.reference.partition(":")
    imports = [f"from {package} import FAMILY", f"from {package}.{module} import {reference}", _CASES]
    if package.startswith("gemmgate_suite_"):  # a name that changes with the folder's place
        imports = [_CASES, "", "from . import FAMILY", f"from .{module} import {reference}"]
    words = {"name": name, "family": family.name, "reference": reference, "imports": "\n".join(imports)}
    kernel, listing = home / f"{name}.py", home / "__init__.py"
    if kernel.exists():
        raise UsageError(f"{kernel} exists already: choose another name.")
    if listing.exists():
        listed = with_entry(listing.read_text(encoding="utf-8"), name, listing)
        written = _write({kernel: _filled("kernel.py.txt", words)})
        listing.write_text(listed, encoding="utf-8")
        return [*written, listing]
    return _write({kernel: _filled("kernel.py.txt", words), listing: _filled("extension.py.txt", words)})


def with_entry(source: str, name: str, path: Path) -> str:
    """The source of a package with one line more in the `implementations` of its FAMILY or EXTENSION."""
    line = f'Entry("{name}", "{name}:IMPLEMENTATION"),'
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "implementations" and isinstance(node.value, ast.Tuple):
            end = max((element.end_lineno or 0 for element in node.value.elts), default=0)
            # Only a tuple with a line for each element, and its parenthesis on one of its own, is safe to add to.
            if end and end != node.value.end_lineno and lines[end - 1].endswith(",\n"):
                return "".join([*lines[:end], " " * node.value.elts[0].col_offset, line, "\n", *lines[end:]])
    raise UsageError(f"{path} lists its implementations in a way of its own: add this line there by hand first: {line}")


def _refuse_name(noun: str, name: str, taken: Collection[str]) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(
            f"'{name}' is no name for a {noun}: lower-case letters, digits and underscores, a letter first."
        )
    if name in taken:
        raise UsageError(f"There is a {noun} called '{name}' already: choose another name. `gemmgate list` shows all.")


def _folder(package: str) -> Path:
    """Where a package lies that the catalog has imported."""
    file = sys.modules[package].__file__
    assert file is not None
    return Path(file).resolve().parent


def _filled(template: str, words: Mapping[str, str]) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)


def _write(files: Mapping[Path, str]) -> list[Path]:
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise UsageError(f"Cannot write {path}: {error.strerror}. Name a folder that can be written.") from error
    return list(files)
