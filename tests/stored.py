"""Runs and rows as tests store them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gemmgate.suite.records import Machine, Row, Run, Stack
from gemmgate.suite.store import Store

ROOT = Path(__file__).parents[1]
H200 = Machine(key="nvidia-h200-141g", model="NVIDIA H200", memory_bytes=151 * 10**9, board="b0a4d1")
STACK = Stack(python="3.11.9", torch="2.13.0", triton="3.7.1", cuda="13.0", driver="580.95", cublas="13.1")


def make_run(run_id: str = "20261129T160312Z-0a1b2c3d4e", **changes: Any) -> Run:
    """A run on an H200, without rows."""
    stamp = f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}T{run_id[9:11]}:{run_id[11:13]}:{run_id[13:16]}"
    run = Run(id=run_id, utc=stamp, commit="0a1b2c3d4e5f", dirty=False, machine=H200, stack=STACK)
    return replace(run, **changes)


def make_row(case: str = "m32-n32-k32768-bf16", implementation: str = "cublas", **changes: Any) -> Row:
    """A measured row of the first family."""
    samples = tuple(float(np.float32(1e-6 * (7 + 0.01 * i))) for i in range(40))
    row = Row("dense_splitk", case, implementation, median_s=7.2e-6, low_s=7.1e-6, high_s=7.3e-6, samples_s=samples)
    return replace(row, **{"cache": "cold", "timer": "graph", **changes})


def stored(store: Store, run: Run, *rows: Row) -> Path:
    """The file of a finished run with these rows."""
    with store.begin(run) as journal:
        for row in rows or (make_row(),):
            journal.append(row)
        return journal.finish()


def interrupted(store: Store, run: Run, *rows: Row) -> Path:
    """The journal of a run that ended before its end."""
    with store.begin(run) as journal:
        for row in rows or (make_row(),):
            journal.append(row)
    return journal.path


def write_baseline(store: Store, content: str) -> Path:
    """The baseline file of the H200."""
    path = store.root / "baselines" / f"{H200.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path
