"""What is stored is what was measured, under names that nothing else has."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgate.suite.cases import Case
from gemmgate.suite.records import MAX_SAMPLES, SCHEMA, Limits, Row, Run, run_id
from gemmgate.suite.store import Store, UnwritableError
from gemmgate.suite.store.files import write_named
from tests import strategies
from tests.stored import H200, interrupted, make_row, make_run, stored


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "results")


# what comes back is what went in


@settings(max_examples=60, deadline=None)
@given(strategies.runs(), st.lists(strategies.rows(), min_size=1, max_size=4))
def test_round_trip(run: Run, rows: list[Row]) -> None:
    """A run reads from its journal and from its Parquet file as it was written, bit for bit."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))
        with store.begin(run) as journal:
            for row in rows:
                assert journal.append(row) == row
            assert store.load(str(journal.path)) == replace(run, rows=tuple(rows))
            path = journal.finish()
        assert store.load(str(path)) == replace(run, rows=tuple(rows))


def test_special_floats(store: Store) -> None:
    """NaN and infinity survive both encodings."""
    row = make_row(status="broken", median_s=None, low_s=None, high_s=None, error=float("nan"), value=float("inf"))
    for path in (interrupted(store, make_run(), row), stored(store, make_run(), row)):
        (back,) = store.load(str(path)).rows
        assert back.error is not None
        assert np.isnan(back.error)
        assert back.value == float("inf")


def test_samples_are_rounded_to_float32(store: Store) -> None:
    """A sample comes back as its nearest float32, from the journal as from the Parquet file."""
    samples = tuple(1e-5 + i * 1e-12 for i in range(40))
    nearest = tuple(np.array(samples).astype(np.float32).astype(np.float64))
    assert samples != nearest
    for path in (
        interrupted(store, make_run(), make_row(samples_s=samples)),
        stored(store, make_run(), make_row(samples_s=samples)),
    ):
        assert store.load(str(path)).rows[0].samples_s == nearest


def test_too_many_samples_are_thinned_over_time(store: Store) -> None:
    """Of 640 samples 64 stay, from the first to the last in their order."""
    with store.begin(make_run()) as journal:
        kept = journal.append(make_row(samples_s=tuple(map(float, range(640))))).samples_s
    assert len(kept) == MAX_SAMPLES
    assert (kept[0], kept[-1]) == (0.0, 639.0)
    assert set(np.diff(kept)) <= {10.0, 11.0}


def test_text_that_utf8_cannot_hold_is_replaced(store: Store) -> None:
    """A lone surrogate, as undecodable output of a compiler has it, does not cost the row."""
    assert store.load(str(stored(store, make_run(), make_row(detail="a\udcffb")))).rows[0].detail == "a?b"


def test_dims_of_a_case_can_be_stored(store: Store) -> None:
    """The read-only mapping that a `Case` holds is stored like any other."""
    case = Case("dense_splitk", "m32-bf16", {"m": 32}, "bf16", "ieee")
    assert store.load(str(stored(store, make_run(), make_row(dims=case.dims)))).rows[0].dims == {"m": 32}


def test_what_no_column_can_hold_is_refused_at_once(store: Store) -> None:
    """A row with an integer of more than 64 bits fails as it is appended, and the journal goes on."""
    with store.begin(make_run()) as journal:
        with pytest.raises(OverflowError):
            journal.append(make_row(flop=2**64))
        journal.append(make_row())
        assert len(store.load(str(journal.finish())).rows) == 1


def test_rows_say_where_they_come_from(store: Store) -> None:
    """What a row leaves empty is filled from its run; what it says itself stays."""
    with store.begin(make_run()) as journal:
        row = journal.append(make_row())
        assert (row.run_id, row.machine, row.board, row.commit) == (
            "20261129T160312Z-0a1b2c3d4e",
            "nvidia-h200-141g",
            "b0a4d1",
            "0a1b2c3d4e5f",
        )
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", row.utc)
        assert journal.append(make_row(board="other")).board == "other"


def test_updates_of_the_header(store: Store) -> None:
    """Limits and seconds that are known only later are part of the run, interrupted or finished."""
    limits = Limits(bytes_per_s=4.2e12, flop_per_s={"bf16": 7e14})
    with store.begin(make_run()) as journal:
        journal.append(make_row())
        journal.update(limits=limits)
        journal.update(seconds={"compile": 1.5})
        journal.update(seconds={"compile": 2.5, "wait": 1.0})
        early = store.load(str(journal.path))
        late = store.load(str(journal.finish()))
    for run in (early, late):
        assert run.limits == limits
        assert run.seconds == {"compile": 2.5, "wait": 1.0}


def test_pandas_alone_is_enough(store: Store) -> None:
    """`pandas.read_parquet` shows a row a measurement, with run, machine and stack beside it."""
    path = stored(
        store, make_run(dirty=True), make_row(tile={"bm": 16}, tags=("quick",)), make_row(implementation="own")
    )
    frame = pd.read_parquet(path)
    assert list(frame["implementation"]) == ["cublas", "own"]
    first = frame.iloc[0]
    assert first["run_id"] == "20261129T160312Z-0a1b2c3d4e"
    assert (first["machine"], first["board"], first["commit"]) == ("nvidia-h200-141g", "b0a4d1", "0a1b2c3d4e5f")
    assert (first["driver"], first["cuda"], first["torch"], first["triton"]) == ("580.95", "13.0", "2.13.0", "3.7.1")
    assert (first["cublas"], first["python"], bool(first["dirty"])) == ("13.1", "3.11.9", True)
    assert json.loads(first["tile"]) == {"bm": 16}
    assert list(first["tags"]) == ["quick"]
    assert first["samples_s"].dtype == np.float32
    assert frame["id"].nunique() == 2


def test_header_stands_in_the_metadata(store: Store) -> None:
    """The metadata key `gemmgate` holds the run's header as JSON."""
    header = json.loads(pq.read_schema(stored(store, make_run())).metadata[b"gemmgate"])
    assert header["id"] == "20261129T160312Z-0a1b2c3d4e"
    assert header["machine"]["model"] == "NVIDIA H200"
    assert header["schema"] == SCHEMA


def test_a_full_run_is_small(store: Store) -> None:
    """1500 rows of 40 random samples, with names, tiles and errors, take 1 MB or less."""
    rng = np.random.default_rng(7)

    def row(number: int) -> Row:
        samples = rng.lognormal(np.log(8e-6), 0.05, 40)
        noisy: dict[str, Any] = {
            name: float(rng.lognormal()) for name in ("host_s", "eager_s", "error", "error_worst_tile", "roof_s")
        }
        costs: dict[str, Any] = {
            name: float(rng.lognormal()) for name in ("compile_s", "check_s", "measure_s", "power_w")
        }
        return replace(
            make_row(),
            **noisy,
            **costs,
            case=f"m{number}-n32-k32768-bf16",
            samples_s=tuple(samples),
            median_s=float(np.median(samples)),
            dims={"m": number, "n": 32, "k": 32768},
            kernel_names=(f"_split_k_{number % 7}", "_reduce"),
            tile={"bm": 16, "bn": 16, "bk": 2 ** int(rng.integers(5, 10)), "splits": int(rng.integers(1, 65))},
            visit=f"{number // 10}",
            device_code=rng.bytes(8).hex(),
        )

    size = stored(store, make_run(), *map(row, range(1500))).stat().st_size
    assert size <= 1_000_000


def test_a_row_measured_again_keeps_the_earlier_one(store: Store) -> None:
    """Both rows of an id are stored, in the order of measuring: nothing is dropped, least of all a quoted yardstick."""
    failed = make_row(status="timeout", median_s=None, low_s=None, high_s=None)
    for path in (interrupted(store, make_run(), failed, make_row()), stored(store, make_run(), failed, make_row())):
        rows = store.load(str(path)).rows
        assert [row.status for row in rows] == ["timeout", "ok"]
        assert rows[0].id == rows[1].id


# names


def test_nothing_is_overwritten(store: Store) -> None:
    """Runs of one id get -2 and -3, finished or not, and the first files stay as they were."""
    first = stored(store, make_run())
    before = first.read_bytes()
    second = interrupted(store, make_run())
    third = stored(store, make_run())
    assert [path.name for path in (second, third)] == [
        "20261129T160312Z-0a1b2c3d4e-2.jsonl",
        "20261129T160312Z-0a1b2c3d4e-3.parquet",
    ]
    assert first.read_bytes() == before
    assert store.load("20261129T160312Z-0a1b2c3d4e-3").rows[0].run_id == "20261129T160312Z-0a1b2c3d4e-3"


def test_a_file_that_appears_meanwhile_is_not_overwritten(store: Store) -> None:
    """`finish` refuses to replace a file, and the journal stays."""
    with store.begin(make_run()) as journal:
        journal.append(make_row())
        target = journal.path.with_suffix(".parquet")
        target.write_text("precious")
        with pytest.raises(UnwritableError, match="exists already"):
            journal.finish()
    assert target.read_text() == "precious"
    assert journal.path.exists()


def test_names_are_legal_everywhere(store: Store) -> None:
    """A machine key that is no plain lowercase name is refused before anything is created."""
    with pytest.raises(ValueError, match="cannot name"):
        store.begin(make_run(machine=replace(H200, key="NVIDIA:H200")))
    assert not store.root.exists()


def test_only_the_run_remains(store: Store) -> None:
    """A finished run leaves one file and neither journal nor temporary file."""
    path = stored(store, make_run())
    assert list(path.parent.iterdir()) == [path]


def test_a_named_file_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    """An older file keeps its mode, and what else lies in the folder, such as a link called .tmp, stays as it is."""
    path, kept = tmp_path / "a.html", tmp_path / "kept"
    path.write_text("older")
    path.chmod(0o640)
    kept.write_text("mine")
    path.with_name("a.html.tmp").symlink_to(kept)
    write_named(path, "newer")
    assert (path.read_text(), kept.read_text()) == ("newer", "mine")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.html", "a.html.tmp", "kept"]


def test_two_boards_that_begin_in_one_second_have_two_ids() -> None:
    """What tells them apart is the beginning of the board; without one, and without a commit, an id says so or less."""
    utc = "2026-11-29T16:03:12Z"
    ids = [run_id(utc, "0a1b2c3d4e5f", board, dirty=False) for board in ("8f3a11", "b2c4d5", "")]
    assert ids == [
        "20261129T160312Z-0a1b2c3d4e-8f3a",
        "20261129T160312Z-0a1b2c3d4e-b2c4",
        "20261129T160312Z-0a1b2c3d4e",
    ]
    assert run_id(utc, "", "8f3a11", dirty=True) == "20261129T160312Z-nocommit-8f3a-dirty"
