"""The store: nothing measured is lost, nothing stored is overwritten, and whatever cannot be read says why."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgate.suite.cases import Case
from gemmgate.suite.errors import CannotMeasureError, UnreadableError, UsageError
from gemmgate.suite.records import MAX_SAMPLES, SCHEMA, Limits, Machine, Row, Run, Stack
from gemmgate.suite.store import Journal, Store, UnwritableError
from tests import strategies

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


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


# what comes back is what went in


@settings(max_examples=60, deadline=None)
@given(strategies.runs(), st.lists(strategies.rows(), min_size=1, max_size=4, unique_by=lambda row: row.id))
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
        assert row.utc.startswith("20") and row.utc.endswith("Z")
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
        noisy = {name: float(rng.lognormal()) for name in ("host_s", "eager_s", "error", "error_worst_tile", "roof_s")}
        costs = {name: float(rng.lognormal()) for name in ("compile_s", "check_s", "measure_s", "power_w")}
        return make_row(
            case=f"m{number}-n32-k32768-bf16",
            samples_s=tuple(samples),
            median_s=float(np.median(samples)),
            dims={"m": number, "n": 32, "k": 32768},
            kernel_names=(f"_split_k_{number % 7}", "_reduce"),
            tile={"bm": 16, "bn": 16, "bk": 2 ** int(rng.integers(5, 10)), "splits": int(rng.integers(1, 65))},
            visit=f"{number // 10}",
            device_code=rng.bytes(8).hex(),
            **noisy,
            **costs,
        )

    size = stored(store, make_run(), *map(row, range(1500))).stat().st_size
    assert size <= 1_000_000


# rows that are measured again


def test_a_row_measured_again_replaces_the_earlier_one(store: Store) -> None:
    """Of two rows with one id the later counts: a failure that went away is not shown."""
    failed = make_row(status="timeout", median_s=None, low_s=None, high_s=None)
    (row,) = store.load(str(stored(store, make_run(), failed, make_row()))).rows
    assert row.status == "ok"


def test_a_quoted_yardstick_stays(store: Store) -> None:
    """A yardstick measured again does not take their ratio from rows of its earlier visit."""
    rows = [
        make_row(visit="1", yardstick="cublas"),
        make_row(implementation="a", visit="1", yardstick="cublas"),
        make_row(visit="2", yardstick="cublas"),
        make_row(implementation="b", visit="2", yardstick="cublas"),
    ]
    assert len(store.load(str(stored(store, make_run(), *rows))).rows) == 4
    again = [*rows, make_row(implementation="a", visit="2", yardstick="cublas")]
    kept = store.load(str(stored(store, make_run(), *again))).rows
    assert [(row.implementation, row.visit) for row in kept] == [("cublas", "2"), ("b", "2"), ("a", "2")]


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


# references


def test_references(store: Store) -> None:
    """A run is found by path, id, `latest` and `latest:<machine>`, where the newest is the last by time."""
    other = replace(H200, key="cpu-epyc", model="EPYC")
    old = stored(store, make_run("20261127T100000Z-aaaaaaaaaa"))
    stored(store, make_run("20261128T100000Z-bbbbbbbbbb"))
    stored(store, make_run("20261129T100000Z-cccccccccc", machine=other))
    assert store.load(str(old)).id.endswith("aaaaaaaaaa")
    assert store.load("20261128T100000Z-bbbbbbbbbb").id.endswith("bbbbbbbbbb")
    assert store.load("latest").id.endswith("cccccccccc")
    assert store.load("latest:nvidia-h200-141g").id.endswith("bbbbbbbbbb")


def test_latest_passes_over_empty_and_unreadable_files(store: Store) -> None:
    """`latest` is the newest run with rows; a newer file that cannot be read is mentioned."""
    stored(store, make_run("20261127T100000Z-aaaaaaaaaa"))
    with store.begin(make_run("20261128T100000Z-bbbbbbbbbb")):
        assert store.load("latest").id.endswith("aaaaaaaaaa")
    (store.root / "runs" / H200.key / "20261129T100000Z-cccccccccc.parquet").write_bytes(b"PAR1")
    reading = store.read("latest")
    assert reading.run.id.endswith("aaaaaaaaaa")
    assert "cccccccccc.parquet" in reading.notes[0]


def write_baseline(store: Store, content: str) -> None:
    (store.root / "baselines").mkdir(parents=True, exist_ok=True)
    (store.root / "baselines" / f"{H200.key}.json").write_text(content)


def test_baseline_of_several_runs(store: Store) -> None:
    """In a baseline of several runs the newest row of each id counts, however the ids are ordered."""
    one = make_row(utc="2026-11-27T10:00:00Z", median_s=1.0)
    stored(store, make_run("20261127T100000Z-aaaaaaaaaa"), one, replace(one, case="only-here"))
    stored(store, make_run("20261128T100000Z-bbbbbbbbbb"), replace(one, median_s=2.0, utc="2026-11-28T10:00:00Z"))
    write_baseline(store, '{"runs": ["20261128T100000Z-bbbbbbbbbb", "20261127T100000Z-aaaaaaaaaa"]}')
    run = store.load(f"baseline:{H200.key}")
    assert {row.case: row.median_s for row in run.rows} == {"only-here": 1.0, "m32-n32-k32768-bf16": 2.0}


def test_baseline_of_one_run(store: Store) -> None:
    """A baseline of one run is that run, under its own id."""
    stored(store, make_run())
    write_baseline(store, '{"runs": ["20261129T160312Z-0a1b2c3d4e"]}')
    assert store.load(f"baseline:{H200.key}") == store.load("latest")


def test_baseline_of_different_stacks_is_refused(store: Store) -> None:
    """Rows of two stacks in one baseline are an error: the merged run could name only one of them."""
    stored(store, make_run("20261127T100000Z-aaaaaaaaaa"))
    stored(store, make_run("20261128T100000Z-bbbbbbbbbb", stack=replace(STACK, torch="2.11.0")))
    write_baseline(store, '{"runs": ["20261128T100000Z-bbbbbbbbbb", "20261127T100000Z-aaaaaaaaaa"]}')
    with pytest.raises(UsageError, match="different stacks"):
        store.load(f"baseline:{H200.key}")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("20261129T160312Z-0a1b2c3d4f", "Did you mean 20261129T160312Z-0a1b2c3d4e"),
        ("latest:nvidia-h100", "Known: nvidia-h200-141g"),
        ("baseline:nvidia-h100", "Known: nvidia-h200-141g"),
        ("nowhere/run.parquet", "no file"),
        ("gone.jsonl", "no file"),
        ("/", "a folder"),
    ],
)
def test_unknown_references_name_what_exists(store: Store, reference: str, said: str) -> None:
    """A reference that means nothing is a usage error that says what there is."""
    stored(store, make_run())
    write_baseline(store, '{"runs": ["20261129T160312Z-0a1b2c3d4e"]}')
    with pytest.raises(UsageError, match=said):
        store.load(reference)


@pytest.mark.parametrize("content", ["", "[]", '{"runs": []}', '{"runs": "x"}', '{"rums": ["x"]}'])
def test_damaged_baselines_are_unreadable(store: Store, content: str) -> None:
    """A baseline file that is no list of runs is an error that names the file."""
    stored(store, make_run())
    write_baseline(store, content)
    with pytest.raises(UnreadableError, match=r"nvidia-h200-141g\.json"):
        store.load(f"baseline:{H200.key}")


def test_a_baseline_that_names_a_missing_run(store: Store) -> None:
    """A baseline whose run is not stored says which, and what is."""
    stored(store, make_run())
    write_baseline(store, '{"runs": ["20250101T000000Z-ffffffffff"]}')
    with pytest.raises(UsageError, match=r"ffffffffff.*Known: 20261129T160312Z-0a1b2c3d4e"):
        store.load(f"baseline:{H200.key}")


@pytest.mark.parametrize("reference", ["latest", "latest:x", "20261129T160312Z-0a1b2c3d4e"])
def test_an_empty_store_says_what_to_do(store: Store, reference: str) -> None:
    """Where nothing is stored the error says how to measure, and reading creates no folder."""
    with pytest.raises(UsageError, match="gemmgate run"):
        store.load(reference)
    assert store.runs() == []
    assert not store.root.exists()


def test_one_id_in_two_folders_is_ambiguous(store: Store) -> None:
    """An id that two machines' folders hold is an error with both paths."""
    stored(store, make_run())
    stored(store, make_run(machine=replace(H200, key="cpu-epyc")))
    with pytest.raises(UsageError, match=r"cpu-epyc.*nvidia-h200"):
        store.load("20261129T160312Z-0a1b2c3d4e")


def test_the_list_of_runs(store: Store) -> None:
    """`runs` tells finished, interrupted, running and unreadable apart, oldest first."""
    stored(store, make_run("20261126T100000Z-aaaaaaaaaa"), make_row(), make_row(case="b"))
    interrupted(store, make_run("20261127T100000Z-bbbbbbbbbb"))
    (store.root / "runs" / H200.key / "20261128T100000Z-cccccccccc.parquet").write_bytes(b"")
    with store.begin(make_run("20261129T100000Z-dddddddddd")) as journal:
        journal.append(make_row())
        infos = store.runs()
    assert [info.state for info in infos] == ["finished", "interrupted", "unreadable", "running"]
    assert [info.rows for info in infos] == [2, 1, 0, 1]
    assert infos[0].families == ("dense_splitk",)
    assert (infos[0].machine, infos[0].gpu, infos[0].commit) == (H200.key, "NVIDIA H200", "0a1b2c3d4e5f")
    assert "cccccccccc.parquet" in infos[2].note


# unreadable files


def parquet_bytes(tmp_path: Path) -> bytes:
    return stored(Store(tmp_path / "good"), make_run()).read_bytes()


def foreign_parquet(tmp_path: Path) -> bytes:
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "foreign")
    return (tmp_path / "foreign").read_bytes()


def with_header(tmp_path: Path, **changes: Any) -> bytes:
    """A Parquet file whose header differs from a good one."""
    table = pq.read_table(pa.BufferReader(parquet_bytes(tmp_path)))
    header = {**json.loads(table.schema.metadata[b"gemmgate"]), **changes}
    pq.write_table(table.replace_schema_metadata({b"gemmgate": json.dumps(header)}), tmp_path / "changed")
    return (tmp_path / "changed").read_bytes()


def flipped(tmp_path: Path) -> bytes:
    """A Parquet file with one byte of its data changed."""
    content = bytearray(parquet_bytes(tmp_path))
    content[len(content) // 4] ^= 0xFF
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.parquet", lambda tmp: b"", "truncated or damaged"),
        ("half.parquet", lambda tmp: parquet_bytes(tmp)[:-100], "truncated or damaged"),
        ("flipped.parquet", flipped, "truncated or damaged"),
        ("text.parquet", lambda tmp: b"hello\n", "truncated or damaged"),
        ("foreign.parquet", foreign_parquet, "not a run of gemmgate"),
        ("newer.parquet", lambda tmp: with_header(tmp, schema=SCHEMA + 1), "Update gemmgate"),
        ("numberless.parquet", lambda tmp: with_header(tmp, schema="one"), "no schema number"),
        ("headless.parquet", lambda tmp: with_header(tmp, machine=None), "damaged"),
        ("empty.jsonl", lambda tmp: b"", "no complete header"),
        ("torn-header.jsonl", lambda tmp: b'{"schema": 1, "id"', "no complete header"),
        ("text.jsonl", lambda tmp: b"hello\n", "line 1 is not JSON"),
        ("list.jsonl", lambda tmp: b"[1]\n", "line 1 is no JSON object"),
        ("foreign.jsonl", lambda tmp: b'{"a": 1}\n', "no schema number"),
        ("binary.jsonl", lambda tmp: b"\xff\xfe\n", "line 1 is not JSON"),
        ("newer.jsonl", lambda tmp: b'{"schema": 99, "id": "x"}\n', "Update gemmgate"),
        ("headless.jsonl", lambda tmp: b'{"schema": 1, "id": "x"}\n', "damaged"),
    ],
)
def test_unreadable_files_say_why(tmp_path: Path, name: str, content: Callable[[Path], bytes], said: str) -> None:
    """Whatever is truncated, damaged, newer or not ours is an `UnreadableError` that names the file."""
    path = tmp_path / name
    path.write_bytes(content(tmp_path))
    with pytest.raises(UnreadableError, match=said) as caught:
        Store(tmp_path).load(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    """A Parquet file cut at any length is unreadable, never shorter."""
    content = parquet_bytes(tmp_path)
    for size in range(0, len(content), 997):
        path = tmp_path / "cut.parquet"
        path.write_bytes(content[:size])
        with pytest.raises(UnreadableError):
            Store(tmp_path).load(str(path))


def test_a_torn_line_is_dropped_and_noted(store: Store) -> None:
    """A journal cut anywhere in its last line reads as the rows before it, and says so."""
    path = interrupted(store, make_run(), make_row(), make_row(case="torn"))
    content = path.read_bytes()
    last = content[:-1].rfind(b"\n") + 1
    for size in (last + 1, (last + len(content)) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        reading = store.read(str(path))
        assert [row.case for row in reading.run.rows] == ["m32-n32-k32768-bf16"]
        assert "torn" in reading.notes[0]


def test_damage_in_the_middle_of_a_journal_is_an_error(store: Store) -> None:
    """A damaged line that is not the last names its number: rows after it are not dropped in silence."""
    path = interrupted(store, make_run(), make_row(), make_row(case="b"))
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:-5]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(UnreadableError, match="line 3 is not JSON"):
        store.load(str(path))


# going on


def test_an_interrupted_run_goes_on_in_its_journal(store: Store) -> None:
    """Resuming cuts a torn line, keeps id and rows, and new rows name the board and commit of now."""
    path = interrupted(store, make_run(), make_row(), make_row(case="torn"))
    path.write_bytes(path.read_bytes()[:-1500])
    now = make_run("20261201T100000Z-ffffffffff", machine=replace(H200, board="second"), commit="f" * 12)
    with store.resume("latest", now) as journal:
        assert [row.case for row in journal.rows] == ["m32-n32-k32768-bf16"]
        assert journal.run.id == "20261129T160312Z-0a1b2c3d4e"
        new = journal.append(make_row(case="x"))
        finished = journal.finish()
    assert (new.run_id, new.board, new.commit) == ("20261129T160312Z-0a1b2c3d4e", "second", "f" * 12)
    assert finished == path.with_suffix(".parquet")
    run = store.load(str(finished))
    assert [row.case for row in run.rows] == ["m32-n32-k32768-bf16", "x"]
    assert run.machine.board == "b0a4d1"


def test_a_finished_run_is_carried_over(store: Store) -> None:
    """Resuming a finished run begins another that holds its rows unchanged and names it; the first stays."""
    first = stored(store, make_run())
    before = first.read_bytes()
    now = make_run("20261201T100000Z-ffffffffff", machine=replace(H200, board="second"), commit="f" * 12)
    with store.resume("20261129T160312Z-0a1b2c3d4e", now) as journal:
        journal.append(make_row(case="x"))
        second = store.load(str(journal.finish()))
    assert first.read_bytes() == before
    assert (second.id, second.resumed) == ("20261201T100000Z-ffffffffff", "20261129T160312Z-0a1b2c3d4e")
    assert second.rows[0] == store.load(str(first)).rows[0]
    assert [row.run_id for row in second.rows] == ["20261129T160312Z-0a1b2c3d4e", "20261201T100000Z-ffffffffff"]
    assert [row.board for row in second.rows] == ["b0a4d1", "second"]


def test_a_carried_run_that_is_interrupted_goes_on(store: Store) -> None:
    """Rows that were carried over are on disk from the first moment, and can be resumed again."""
    stored(store, make_run())
    with store.resume("latest", make_run("20261201T100000Z-ffffffffff")) as journal:
        journal.append(make_row(case="x"))
    with store.resume("latest", make_run("20261202T100000Z-eeeeeeeeee")) as journal:
        assert len(journal.rows) == 2
        assert journal.run.id == "20261201T100000Z-ffffffffff"
        assert journal.run.resumed == "20261129T160312Z-0a1b2c3d4e"


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False)])
@pytest.mark.parametrize("end", [stored, interrupted])
def test_one_dirty_part_makes_the_run_dirty(store: Store, first: bool, second: bool, end: Callable[..., Path]) -> None:
    """A run of which any part was measured on a changed tree says dirty, after resuming too."""
    end(store, make_run(dirty=first))
    with store.resume("latest", make_run("20261201T100000Z-ffffffffff", dirty=second)) as journal:
        journal.append(make_row(case="x"))
        assert store.load(str(journal.path)).dirty
        assert store.load(str(journal.finish())).dirty


@pytest.mark.parametrize("end", [stored, interrupted])
def test_other_conditions_cannot_resume(store: Store, end: Callable[..., Path]) -> None:
    """Another machine, stack or method is refused with what differs, and nothing changes on disk."""
    path = end(store, make_run())
    before = path.read_bytes()
    now = make_run("20261201T100000Z-ffffffffff")
    for other, said in [
        (replace(now, machine=replace(H200, key="nvidia-h100-80g")), "machine nvidia-h200-141g, now nvidia-h100-80g"),
        (replace(now, stack=replace(STACK, triton="3.8.0")), r"triton 3\.7\.1, now 3\.8\.0"),
        (replace(now, method=now.method + 1), "method 1, now 2"),
    ]:
        with pytest.raises(UsageError, match=said):
            store.resume("latest", other)
    assert path.read_bytes() == before
    assert len(store.runs()) == 1


def test_several_runs_cannot_be_resumed(store: Store) -> None:
    """A baseline of two runs is no run to resume."""
    stored(store, make_run("20261127T100000Z-aaaaaaaaaa"))
    stored(store, make_run("20261128T100000Z-bbbbbbbbbb"))
    write_baseline(store, '{"runs": ["20261128T100000Z-bbbbbbbbbb", "20261127T100000Z-aaaaaaaaaa"]}')
    with pytest.raises(UsageError, match="only one can be resumed"):
        store.resume(f"baseline:{H200.key}", make_run("20261201T100000Z-ffffffffff"))


def test_a_journal_has_one_writer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that a live process writes cannot be resumed, and the error names that process."""
    monkeypatch.setattr("gemmgate.suite.store.journal.LOCK_PATIENCE_S", 0.0)
    with store.begin(make_run()) as journal:
        journal.append(make_row())
        with pytest.raises(CannotMeasureError, match=f"process {os.getpid()}"):
            store.resume("latest", make_run("20261201T100000Z-ffffffffff"))
        journal.append(make_row(case="x"))
        assert store.read("latest").state == "running"
    assert store.read("latest").state == "interrupted"


def test_an_exception_keeps_what_was_measured(store: Store) -> None:
    """A journal with rows outlives the exception that ends its run; one without rows is no litter."""
    with pytest.raises(KeyboardInterrupt), store.begin(make_run()):
        raise KeyboardInterrupt
    assert store.runs() == []
    with pytest.raises(KeyboardInterrupt), store.begin(make_run()) as journal:
        journal.append(make_row())
        raise KeyboardInterrupt
    assert [(info.state, info.rows) for info in store.runs()] == [("interrupted", 1)]


def test_a_run_that_measured_nothing_is_not_stored(store: Store) -> None:
    """Finishing without a row is an error of exit code 3, and leaves nothing behind."""
    with store.begin(make_run()) as journal, pytest.raises(CannotMeasureError, match="measured nothing") as caught:
        journal.finish()
    assert caught.value.exit_code == 3
    assert store.runs() == []


# disks that do not take it


def refuse(code: int) -> Callable[..., NoReturn]:
    def call(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("function", ["pwrite", "fsync"])
def test_a_full_disk_costs_one_row_at_most(store: Store, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """A row that finds no space is an error that says so; rows before and after it are whole."""
    with store.begin(make_run()) as journal:
        journal.append(make_row(case="a"))
        with monkeypatch.context() as patch:
            patch.setattr(os, function, refuse(errno.ENOSPC))
            with pytest.raises(UnwritableError, match=r"No space left.*Free some space.*its 1 rows are safe") as caught:
                journal.append(make_row(case="b"))
        assert caught.value.exit_code == 2
        assert journal.path.name in str(caught.value)
        journal.append(make_row(case="c"))
        assert [row.case for row in store.load(str(journal.finish())).rows] == ["a", "c"]


def test_half_a_line_is_taken_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that stops halfway for want of space leaves no half line for the next row to be glued to."""
    write = os.pwrite

    def half(file: int, data: bytes, start: int) -> int:
        monkeypatch.setattr(os, "pwrite", refuse(errno.ENOSPC))
        return write(file, data[: len(data) // 2], start)

    with store.begin(make_run()) as journal:
        monkeypatch.setattr(os, "pwrite", half)
        with pytest.raises(UnwritableError):
            journal.append(make_row(case="a"))
        monkeypatch.setattr(os, "pwrite", write)
        journal.append(make_row(case="b"))
    reading = store.read(str(journal.path))
    assert [row.case for row in reading.run.rows] == ["b"]
    assert reading.notes == ()


@pytest.mark.parametrize("function", ["rename", "pwrite", "fsync"])
def test_a_finish_that_fails_keeps_the_journal(store: Store, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """If the Parquet file cannot be written, all rows stay in the journal and resuming finishes the run."""
    with store.begin(make_run()) as journal:
        journal.append(make_row())
        with monkeypatch.context() as patch:
            patch.setattr(os, function, refuse(errno.ENOSPC))
            with pytest.raises(UnwritableError, match="--resume 20261129T160312Z-0a1b2c3d4e"):
                journal.finish()
    assert list(journal.path.parent.iterdir()) == [journal.path]
    with store.resume("latest", make_run()) as again:
        assert len(store.load(str(again.finish())).rows) == 1


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder_is_noticed_before_measuring(
    store: Store, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """`begin` fails with a sentence where results cannot be written."""
    monkeypatch.setattr(Path, "mkdir", refuse(code))
    with pytest.raises(UnwritableError, match=r"Make it writable, or name another folder with --results") as caught:
        store.begin(make_run())
    assert str(store.root) in str(caught.value)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    """A file where the results folder should be is named as what is in the way."""
    (tmp_path / "results").write_text("")
    with pytest.raises(UnwritableError, match="Move what stands there out of the way"):
        Store(tmp_path / "results").begin(make_run())


def test_a_full_disk_at_the_start_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal whose header finds no space is removed again."""
    (store.root / "runs" / H200.key).mkdir(parents=True)
    monkeypatch.setattr(os, "pwrite", refuse(errno.ENOSPC))
    with pytest.raises(UnwritableError, match="No space left"):
        store.begin(make_run())
    assert store.runs() == []


# kills

CHILD = """
import os, sys
from pathlib import Path
from gemmgate.suite.store import Store
from tests.test_store import make_row, make_run
with Store(Path(sys.argv[1])).begin(make_run()) as journal:
    for number in range(100_000):
        journal.append(make_row(case=f"c{number}"))
        os.write(1, b"%d\\n" % number)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_loses_no_row(tmp_path: Path, seed: int) -> None:
    """After SIGKILL at a random moment every row whose `append` returned is readable, and the run resumes."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(random.Random(seed).randrange(2, 60))]
        child.send_signal(signal.SIGKILL)
        seen += child.stdout.readlines()
    store = Store(tmp_path)
    (info,) = store.runs()
    assert info.state == "interrupted"
    held = [row.case for row in store.load("latest").rows]
    assert held == [f"c{number}" for number in range(len(held))]
    assert len(held) > int(seen[-1])
    with store.resume("latest", make_run()) as journal:
        journal.append(make_row(case="after"))
        assert len(store.load(str(journal.finish())).rows) == len(held) + 1


@pytest.mark.parametrize("function", ["rename", "unlink"])
def test_a_kill_while_finishing_loses_no_row(store: Store, function: str) -> None:
    """A process that dies before the Parquet file is in place, or before the journal is gone, leaves one whole run."""
    script = f"""
import os, sys
from pathlib import Path
from gemmgate.suite.store import Store
from tests.test_store import make_row, make_run
with Store(Path(sys.argv[1])).begin(make_run()) as journal:
    journal.append(make_row())
    owner = {{"rename": os, "unlink": Path}}["{function}"]
    setattr(owner, "{function}", lambda *_, **__: os.kill(os.getpid(), 9))
    journal.finish()
"""
    killed = subprocess.run([sys.executable, "-c", script, str(store.root)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (info,) = store.runs()
    assert info.rows == 1
    assert info.state == ("interrupted" if function == "rename" else "finished")
    with store.resume("latest", make_run("20261201T100000Z-ffffffffff")) as journal:
        journal.append(make_row(case="x"))
        assert len(store.load(str(journal.finish())).rows) == 2


def test_closing_twice_is_harmless(store: Store) -> None:
    """`close` after `finish` does nothing."""
    with store.begin(make_run()) as journal:
        assert isinstance(journal, Journal)
        journal.append(make_row())
        journal.finish()
        journal.close()
    assert [info.state for info in store.runs()] == ["finished"]
