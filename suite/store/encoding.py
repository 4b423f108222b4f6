"""Runs as bytes: the lines of a journal and the columns of a Parquet file, and the way back.

Knows no folder: `journal` and `folder` decide where the bytes live. Both encodings hold the same rows with the
same values, so a run reads the same before and after it is finished.

A journal is JSON lines: first `Run.header()`, then a line a row (`Row.to_json()` without the derived
id), and between them updates of the header such as `{"limits": {...}}`; the last value counts.

A Parquet file has a row a measurement and a column a field of `Row`, plus `id`, `dirty` and the fields
of `Stack` (`driver`, `cuda`, `torch`, ...), so that `pandas.read_parquet` alone is enough. `samples_s`
is a list of float32, names are lists of text, and mappings (`dims`, `flags`, `tile`, ...) are JSON
text, which pandas can group and filter by. What was measured again has two rows of one `id`: the newer
`utc` counts, and an earlier yardstick still serves the rows of its own `visit`. The header stands as JSON
in the file's metadata under `gemmgate`, with the run's `families` beside it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from types import NoneType, UnionType
from typing import Any, BinaryIO, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gemmgate.suite.errors import UnreadableError
from gemmgate.suite.records import MAX_SAMPLES, Row, Run, Stack

METADATA_KEY = b"gemmgate"
UPDATES = ("limits", "seconds", "dirty")
"""Header fields that a later line of a journal may replace."""

_TYPES: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    tuple[str, ...]: pa.list_(pa.string()),
    tuple[float, ...]: pa.list_(pa.float32()),
    Mapping: pa.string(),
}


def settle(row: Row) -> Row:
    """The row as every later reader will see it: samples in float32, at most `MAX_SAMPLES`, text in UTF-8.

    More samples than that are thinned evenly over time, so that a drift stays visible.
    """
    samples = np.asarray(row.samples_s, dtype=np.float32)
    if len(samples) > MAX_SAMPLES:
        samples = samples[np.linspace(0, len(samples) - 1, MAX_SAMPLES).round().astype(int)]
    return Row.from_json(json.loads(line(_plain(replace(row, samples_s=tuple(samples.tolist()))))))


def line(data: Mapping[str, Any]) -> bytes:
    """One line of a journal."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def row_line(row: Row) -> bytes:
    """The line of a row."""
    return line(_plain(row))


@dataclass(frozen=True)
class Journalled:
    """What a journal holds. `end` is where its last whole line ends; `process` who wrote it last."""

    run: Run
    end: int
    torn: bool
    process: Mapping[str, Any]


def read_journal(data: bytes) -> Journalled:
    """Drops a torn last line: its `append` never returned. Raises `UnreadableError` for anything else."""
    end = data.rfind(b"\n") + 1
    if end == 0:
        raise UnreadableError(
            "it has no complete header: its run was interrupted as it began, or it is not ours. Delete it."
        )
    header, rows = _object(data[: data.index(b"\n")], 1), []
    process: Mapping[str, Any] = {}
    for number, text in enumerate(data[:end].split(b"\n")[1:-1], start=2):
        entry = _object(text, number)
        if "family" in entry:
            rows.append(entry)
        else:
            header |= {name: entry[name] for name in UPDATES if name in entry}
            process = entry.get("process", process)
    return Journalled(build(header, rows), end, end < len(data), process)


def write_parquet(run: Run) -> bytes:
    """The whole file. Floats are split by byte, which halves samples; text is held once per distinct value."""
    buffer = io.BytesIO()
    table = to_table(run, run.rows)
    floats = [f.name for f in table.schema if pa.types.is_float64(f.type)] + ["samples_s.list.element"]
    texts = [f.name for f in table.schema if pa.types.is_string(f.type)]
    texts += [f"{f.name}.list.element" for f in table.schema if f.type == _TYPES[tuple[str, ...]]]
    pq.write_table(
        table,
        buffer,
        compression="zstd",
        use_dictionary=texts,
        use_byte_stream_split=floats,
        write_page_checksum=True,
    )
    return buffer.getvalue()


def read_parquet(source: BinaryIO) -> Run:
    """Raises `UnreadableError` where the file is not ours, and pyarrow's errors where it is damaged."""
    file = pq.ParquetFile(source, page_checksum_verification=True)
    header = _header(file)
    rows = file.read(use_threads=False).to_pylist()
    for row in rows:
        row |= {name: json.loads(row[name]) for name in _JSON_COLUMNS if row.get(name) is not None}
    return build(header, rows)


def read_parquet_header(source: BinaryIO) -> tuple[Run, tuple[str, ...], int]:
    """The run without its rows, its families and its number of rows, from the file's last bytes alone."""
    file = pq.ParquetFile(source)
    header = _header(file)
    return build(header, []), tuple(header.get("families", ())), file.metadata.num_rows


def to_table(run: Run, rows: Iterable[Row]) -> pa.Table:
    """Raises pyarrow's errors, `TypeError` or `OverflowError` where a value does not fit its column."""
    rows = list(rows)
    columns: dict[str, pa.Array] = {"id": pa.array([row.id for row in rows], pa.string())}
    for name, kind in _COLUMNS.items():
        values = [getattr(row, name) for row in rows]
        if name in _JSON_COLUMNS:
            values = [None if value is None else json.dumps(dict(value), separators=(",", ":")) for value in values]
        columns[name] = pa.array(values, kind)
    columns["dirty"] = pa.array([run.dirty] * len(rows), pa.bool_())
    for field in fields(Stack):
        columns[field.name] = pa.array([getattr(run.stack, field.name)] * len(rows), _arrow_type(_STACK[field.name]))
    header = {**run.header(), "families": families(rows)}
    return pa.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(header)})


def families(rows: Iterable[Row]) -> tuple[str, ...]:
    """Whose cases these rows are, by name."""
    return tuple(sorted({row.family for row in rows}))


def build(header: Mapping[str, Any], rows: list[dict[str, Any]]) -> Run:
    """A run from plain values of any schema that this version knows."""
    if not isinstance(header.get("schema"), int) or header["schema"] not in LOADERS:
        return Run.from_header(header)  # says what is wrong with it
    try:
        return LOADERS[header["schema"]](header, rows)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableError(
            f"its header or a row is damaged ({error!r}). Restore it from version control."
        ) from error


def _build_1(header: Mapping[str, Any], rows: list[dict[str, Any]]) -> Run:
    return Run.from_header(header, tuple(Row.from_json(row) for row in rows))


LOADERS: Mapping[int, Callable[[Mapping[str, Any], list[dict[str, Any]]], Run]] = {1: _build_1}
"""By schema version: each turns the plain header and rows of its version into today's `Run`."""


def _plain(row: Row) -> dict[str, Any]:
    data = row.to_json()
    del data["id"]
    return data


def _object(text: bytes, number: int) -> dict[str, Any]:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"its line {number} is not JSON: it is damaged, or not a journal of gemmgate.") from error
    if not isinstance(entry, dict):
        raise UnreadableError(f"its line {number} is no JSON object: it is not a journal of gemmgate.")
    return entry


def _header(file: pq.ParquetFile) -> dict[str, Any]:
    metadata = file.schema_arrow.metadata or {}
    if METADATA_KEY not in metadata:
        raise UnreadableError("it is a Parquet file, but not a run of gemmgate: its metadata has no key 'gemmgate'.")
    return _object(metadata[METADATA_KEY], 1)


def _arrow_type(hint: Any) -> pa.DataType:
    if get_origin(hint) is UnionType:  # X | None: every column may hold nulls
        hint = next(kind for kind in get_args(hint) if kind is not NoneType)
    return _TYPES[{Literal: str, Mapping: Mapping}.get(get_origin(hint), hint)]


_STACK = get_type_hints(Stack)
_COLUMNS = {name: _arrow_type(hint) for name, hint in get_type_hints(Row).items()}
_JSON_COLUMNS = tuple(name for name, hint in get_type_hints(Row).items() if "Mapping[" in str(hint))
