"""Rows for programs: the public JSON and CSV form of a run. A field is only ever added."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gemmgate.suite.compare import Rated, rate
from gemmgate.suite.records import Row, Run

SCHEMA = 1
"""Version of this form, not of the files that runs are stored in."""

_OF_ROW = tuple(field.name for field in fields(Row) if field.name != "samples_s")
_BESIDE = (
    "id",
    "samples_n",
    "ratio",
    "ratio_low",
    "ratio_high",
    "why_no_ratio",
    "roof_share",
    "error_vs_yardstick",
    "repro",
)
FIELDS = _OF_ROW + _BESIDE


def rows_json(run: Run) -> dict[str, Any]:
    """`{"schema": 1, "run": {...}, "rows": [...]}`: strict JSON, null for what is unknown or not finite."""
    made = {
        "schema": SCHEMA,
        "run": run.header(),
        "rows": [_row(rated, run) for rated in rate(run.rows, run.selection)],
    }
    clean: dict[str, Any] = finite(made)
    return clean


def rows_csv(run: Run) -> str:
    """One line a row with the fields of `rows_json`; lists are joined by spaces, mappings are JSON, null is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in rows_json(run)["rows"]:
        writer.writerow({name: _flat(value) for name, value in row.items()})
    return out.getvalue()


def finite(value: Any) -> Any:
    """Plain JSON values without NaN and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _row(rated: Rated, run: Run) -> dict[str, Any]:
    row, ratio = rated.row, rated.ratio
    beside = (
        row.id,
        row.samples_n,
        ratio.estimate if ratio else None,
        ratio.low if ratio else None,
        ratio.high if ratio else None,
        rated.why,
        rated.roof_share,
        rated.error_vs_yardstick,
        rated.repro,
    )
    return {
        **{name: getattr(row, name) for name in _OF_ROW},
        "run_id": row.run_id or run.id,
        "machine": row.machine or run.machine.key,
        "board": row.board or run.machine.board,
        "commit": row.commit or run.commit,
        "utc": row.utc or run.utc,
        **dict(zip(_BESIDE, beside, strict=True)),
    }


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True)
    return " ".join(str(item) for item in value) if isinstance(value, list) else value
