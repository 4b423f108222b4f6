"""Whether two sides of an implementation are one and the same, so that no time can tell them apart.

Pure but for reading source files. The Python sources behind an implementation are followed through their imports;
comments, docstrings and layout do not count. What a worker found (machine code, launches, pick) must agree too.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

AGREE = ("device_code", "launches", "tile", "algorithm", "kernels")
"""Facts of a side that must be equal, beside its sources."""
_BY_NAME = re.compile(r"'(?:import_module|__import__)'")
"""In the syntax of a module that imports another by a name that it makes up."""


def source_hash(files: Iterable[Path], root: Path) -> str:
    """Over the syntax of `files` and of all below `root` that they import; empty where one cannot be read.

    `root` is a side's folder: with `gemmgate` in it, and with whatever else its modules import beside themselves.
    """
    seen = _closure(files, root)
    return _digest(f"{file.relative_to(root.resolve())}\0{text}".encode() for file, text in seen.items())


def made_of_hash(files: Iterable[Path], root: Path) -> str:
    """Over the same and all else that they read at run time; empty where a source cannot be read.

    That is the tables in the folders of those sources and, where one of them imports modules by name, all sources in
    its folder. Of a folder above another one of them, such as that of all families, its own files alone count.
    """
    seen = _closure(files, root)
    folders = {file.parent for file in seen}
    by_name = {file.parent for file in seen if _BY_NAME.search(seen[file])}
    found: set[Path] = set()
    for folder in folders:
        is_above = any(folder in other.parents for other in folders)
        suffixes = (".json", ".toml", ".py") if folder in by_name else (".json", ".toml")
        inside = folder.iterdir() if is_above else folder.rglob("*")
        found |= {path for path in inside if path.suffix in suffixes}
    parts = {path: path.read_bytes() for path in found} | {file: text.encode() for file, text in seen.items()}
    return _digest(f"{path.relative_to(root.resolve())}\0".encode() + content for path, content in parts.items())


def _closure(files: Iterable[Path], root: Path) -> Mapping[Path, str]:
    """Syntax by file, of `files` and of all below `root` that they import; nothing where one cannot be read."""
    seen: dict[Path, str] = {}
    waiting = [file.resolve() for file in files]
    try:
        while waiting:
            file = waiting.pop()
            if file in seen:
                continue
            seen[file], imported = _read(file, root.resolve(), file.stat().st_mtime_ns)
            waiting += imported
    except (OSError, SyntaxError, ValueError):
        return {}
    return seen


@cache
def _read(file: Path, root: Path, mtime_ns: int) -> tuple[str, tuple[Path, ...]]:
    """Syntax of a file as it was at that time, and what it imports: many implementations share most of theirs."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = tuple(_imported(tree, file, root))
    return ast.dump(_bare(tree)), imported


def _digest(parts: Iterable[bytes]) -> str:
    """In any order; empty for nothing."""
    digest, ordered = hashlib.sha256(), sorted(parts)
    for part in ordered:
        digest.update(part)
    return digest.hexdigest() if ordered else ""


def same(baseline: Mapping[str, Any], candidate: Mapping[str, Any], *, on_gpu: bool) -> bool:
    """Whether facts of both sides, with `sources` and `stack` among them, describe one thing.

    On a GPU the launches must be known: a driver that does not show a graph's nodes proves nothing.
    """
    if not baseline.get("sources") or baseline["sources"] != candidate.get("sources"):
        return False
    if baseline.get("stack") != candidate.get("stack") or (on_gpu and not baseline.get("launches")):
        return False
    return all(baseline.get(name) == candidate.get(name) for name in AGREE)


def _bare(tree: ast.Module) -> ast.Module:
    """Without docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return tree


def _imported(tree: ast.Module, file: Path, root: Path) -> list[Path]:
    """Files below `root` that a module imports, at its top or inside a function."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names]
            names += [node.module] if node.module else []
        else:
            continue
        base = file.parents[node.level - 1] if isinstance(node, ast.ImportFrom) and node.level else None
        for name in names:
            for start in [base] if base else [root, file.parent]:
                stem = start.joinpath(*name.split("."))
                for path in (stem.parent / f"{stem.name}.py", stem / "__init__.py"):
                    if name and path.is_file() and path.resolve().is_relative_to(root):
                        found.append(path.resolve())
    return found
