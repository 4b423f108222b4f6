"""Shapes in CSV files: our own, and those of profilers and benchmarks that name m, n and k in their own way.

Our own form has a first line with `m,n,k` and, in any order, perhaps `dtype`, `count`, `name`, `role`, `batch`
and `layout`. Also read: other case, semicolons or tabs, one column `(M, N, K)` that holds tuples, CUTLASS's
`A` and `B` columns such as `bf16:row`, columns that mean nothing here, lines that begin with `#`.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from gemmgate.suite.errors import UnreadableError, UsageError
from gemmgate.suite.shapes import ROLES, Shape, dtype_word

COLUMNS = ("op", "m", "n", "k", "batch", "dtype", "layout", "device", "count")
"""What `write_shapes` writes."""
_ALIASES = {
    "calls": "count",
    "type": "dtype",
    "batch_count": "batch",
    "op": "name",
}
_READ = ("m", "n", "k", "a", "b", "batch", "dtype", "layout", "count", "name", "role")
"""Columns that are read."""
_TUPLES = ("x_val", "shape")
"""Headers of a column of tuples that do not say what stands in them: then it is M, N, K."""


def read_shapes(path: Path) -> tuple[list[Shape], list[str]]:
    """The shapes of a file, in its order, and a sentence for each line that cannot be read and is left out.

    Raises `UsageError` where it is missing, `UnreadableError` where no line can be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path} is no text, so no CSV file: byte {error.start} is not UTF-8.") from error
    lines = ["" if line.lstrip().startswith("#") else line for line in lines]
    header = next((line for line in lines if line.strip()), "")
    reader = csv.reader(lines, delimiter=_delimiter(header), skipinitialspace=True)
    columns: Columns | None = None
    shapes: list[Shape] = []
    broken: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if columns is None:
                columns = Columns(cells, path)
                continue
            try:
                shapes.append(columns.shape(cells, f"{path.name}, line {reader.line_num}"))
            except ValueError as error:
                broken.append(f"{path}, line {reader.line_num}: {error}")
    except csv.Error as error:  # behind a quote that nothing closes there are no lines
        raise UnreadableError(f"{path}, line {reader.line_num}: {error}. Correct the line or remove it.") from error
    if broken and not shapes:
        more = f" No other line can be read either ({len(broken)} in all)." if len(broken) > 1 else ""
        raise UnreadableError(f"{broken[0]}. Correct the line or remove it.{more}")
    if not shapes:
        raise UnreadableError(f"{path} has no shapes: after a first line such as `m,n,k,dtype,count`, a line a shape.")
    return shapes, [f"{said}; left out." for said in broken]


def write_shapes(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """A new file of `COLUMNS`. An existing one is not overwritten."""
    with path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


_MOST_PRODUCTS = 2**61
"""Counts of operations are 64-bit numbers in a run's file."""


class Columns:
    """What the first line says about the cells below it."""

    def __init__(self, header: Sequence[str], path: Path) -> None:
        names = [cell.strip().lower() for cell in header]
        twice = next((name for name, count in Counter(names).items() if count > 1 and _has_meaning(name)), "")
        if twice:
            raise UnreadableError(f"{path}: its first line names column '{twice}' twice. Remove or rename one of them.")
        self._length = len(names)
        self._at: dict[str, int] = {}
        for index, name in enumerate(names):
            self._at.setdefault(_ALIASES.get(name, name), index)
        self._tuple_at, self._order = -1, ("m", "n", "k")
        if {"m", "n", "k"} <= set(self._at):
            return
        for index, name in enumerate(names):
            if _is_tuple(name):
                self._tuple_at = index
                self._order = self._order if name in _TUPLES else tuple(re.findall(r"\w+", name))
                return
        shown = ", ".join(cell.strip() for cell in header[:8]) + (", ..." if len(header) > 8 else "")
        raise UnreadableError(
            f"{path}: its first line names no m, n and k, nor one column (M, N, K). It has: {shown}. "
            "Write `m,n,k` there, and if known dtype, count and name."
        )

    def shape(self, cells: Sequence[str], where: str) -> Shape:
        """Raises ValueError with what is wrong about the line."""
        if len(cells) < self._length:
            raise ValueError(f"it has {len(cells)} cells where the first line has {self._length}")
        sizes = self._sizes(cells)
        name, role = self._cell(cells, "name"), self._cell(cells, "role") or "dense"
        if role not in ROLES:
            raise ValueError(f"role '{role}' is none of {', '.join(ROLES)}")
        if sizes["m"] * sizes["n"] * sizes["k"] > _MOST_PRODUCTS:
            raise ValueError(f"{sizes['m']} x {sizes['n']} x {sizes['k']} is more than a row can count operations of")
        return Shape(
            sizes["m"],
            sizes["n"],
            sizes["k"],
            dtype=self._dtype(cells),
            calls=self._number(cells, "count", None),
            role=role,
            origin=f"{where}: {name}" if name else where,
            batch=sizes.get("b") or self._number(cells, "batch", None) or self._number(cells, "b", 1) or 1,
            layout=self._layout(cells),
        )

    def _sizes(self, cells: Sequence[str]) -> dict[str, int]:
        if self._tuple_at < 0:
            return {name: _whole(name, self._cell(cells, name)) for name in ("m", "n", "k")}
        text = cells[self._tuple_at]
        parts = re.findall(r"[^\s,()\[\]]+", text)
        if len(parts) < len(self._order):
            raise ValueError(f"'{text}' is no tuple ({', '.join(self._order)})")
        found = dict(zip(self._order, parts, strict=False))
        return {name: _whole(name, found[name]) for name in ("m", "n", "k", "b") if name in found}

    def _dtype(self, cells: Sequence[str]) -> str:
        operand = self._cell(cells, "a")
        text = self._cell(cells, "dtype") or (operand.partition(":")[0] if ":" in operand else "")
        return dtype_word(text) if text else ""

    def _layout(self, cells: Sequence[str]) -> str:
        operands = [self._cell(cells, name).partition(":")[2] for name in ("a", "b")]
        return self._cell(cells, "layout") or ("-".join(operands) if all(operands) else "")

    def _number(self, cells: Sequence[str], name: str, default: int | None) -> int | None:
        text = self._cell(cells, name)
        return _whole(name, text) if text and ":" not in text else default

    def _cell(self, cells: Sequence[str], name: str) -> str:
        return cells[self._at[name]].strip() if name in self._at else ""


def _is_tuple(name: str) -> bool:
    return name in _TUPLES or {"m", "n", "k"} <= set(re.findall(r"\w+", name))


def _has_meaning(name: str) -> bool:
    return name in _READ or name in _ALIASES or _is_tuple(name)


def _whole(name: str, text: str) -> int:
    """A whole number from 1 up, also as `4096.0`."""
    if not re.fullmatch(r"\d+(\.0*)?", text) or not float(text):
        raise ValueError(f"{name} is '{text}', which is no whole number above 0")
    return int(text.partition(".")[0])


def _delimiter(header: str) -> str:
    """The one of semicolon, comma and tab that separates most, outside parentheses; the first where none does."""
    bare = re.sub(r"\([^)]*\)", "", header)
    return max(";,\t", key=bare.count)
