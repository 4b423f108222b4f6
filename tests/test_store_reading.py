"""What a reference means, and what is said about files that cannot be read."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gemmgate.suite.errors import UnreadableError, UsageError
from gemmgate.suite.records import SCHEMA
from gemmgate.suite.store import Store
from tests.stored import H200, STACK, interrupted, make_row, make_run, stored, write_baseline


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "results")


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


def test_baseline_of_several_runs(store: Store) -> None:
    """A baseline of several runs has all their rows, oldest first, and the newest header, however it is ordered."""
    one = make_row(utc="2026-11-27T10:00:00Z", median_s=1.0)
    stored(store, make_run("20261127T100000Z-aaaaaaaaaa"), one, replace(one, case="only-here"))
    stored(store, make_run("20261128T100000Z-bbbbbbbbbb"), replace(one, median_s=2.0, utc="2026-11-28T10:00:00Z"))
    write_baseline(store, '{"runs": ["20261128T100000Z-bbbbbbbbbb", "20261127T100000Z-aaaaaaaaaa"]}')
    run = store.load(f"baseline:{H200.key}")
    assert [(row.case[:4], row.median_s) for row in run.rows] == [("m32-", 1.0), ("only", 1.0), ("m32-", 2.0)]
    assert (run.id, run.utc) == ("baseline:nvidia-h200-141g", "2026-11-28T10:00:00Z")


def test_baseline_of_one_run(store: Store) -> None:
    """A baseline of one run is that run, under its own id."""
    stored(store, make_run())
    write_baseline(store, '{"runs": ["20261129T160312Z-0a1b2c3d4e"]}')
    assert store.load(f"baseline:{H200.key}") == store.load("latest")


def test_several_references_are_one_run(store: Store) -> None:
    """Two halves named with a comma have the rows of both, whichever comes first, and the id says which they are."""
    ids = ["20261129T160312Z-0a1b2c3d4e", "20261129T170312Z-0a1b2c3d4e"]
    for run_id, case in zip(ids, ("first", "second"), strict=True):
        stored(store, make_run(run_id), make_row(case, utc=make_run(run_id).utc))
    for reference, name in ((",".join(ids), ",".join(ids)), (f"latest, {ids[0]}", f"{ids[1]},{ids[0]}")):
        run = store.load(reference)
        assert [row.case for row in run.rows] == ["first", "second"]
        assert (run.id, run.utc) == (name, make_run(ids[1]).utc)
    assert store.load(f"{ids[0]},{ids[0]}").id == ids[0]


def test_the_beginning_of_an_id_names_a_run(store: Store) -> None:
    """As far as no other run begins so; an id that is one counts before what begins with it."""
    for run_id in ("20261128T160312Z-0a1b2c3d4e", "20261128T160312Z-0a1b2c3d4e-dirty", "20261129T160312Z-0a1b2c3d4e"):
        stored(store, make_run(run_id))
    assert store.load("20261129T16").id == "20261129T160312Z-0a1b2c3d4e"
    assert store.load("20261128T160312Z-0a1b2c3d4e").id == "20261128T160312Z-0a1b2c3d4e"
    with pytest.raises(UsageError, match=r"begin with '20261128': 20261128T160312Z-0a1b2c3d4e, .*-dirty\. Name one"):
        store.load("20261128")
    with pytest.raises(UsageError, match="No run matches '202611'"):
        store.load("202611")


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


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, '{"runs": []}', '{"runs": "x"}', '{"rums": ["x"]}'])
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
    """A good file."""
    return stored(Store(tmp_path / "good"), make_run()).read_bytes()


def foreign_parquet(tmp_path: Path) -> bytes:
    """A Parquet file of somebody else."""
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "foreign")
    return (tmp_path / "foreign").read_bytes()


def with_header(tmp_path: Path, **changes: Any) -> bytes:
    """A Parquet file whose header differs from a good one."""
    table = pq.read_table(pa.BufferReader(parquet_bytes(tmp_path)))
    header = {**json.loads(table.schema.metadata[b"gemmgate"]), **changes}
    pq.write_table(table.replace_schema_metadata({b"gemmgate": json.dumps(header)}), tmp_path / "changed")
    return (tmp_path / "changed").read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.parquet", lambda tmp: b"", "truncated or damaged"),
        ("half.parquet", lambda tmp: parquet_bytes(tmp)[:-100], "truncated or damaged"),
        ("text.parquet", lambda tmp: b"hello\n", "truncated or damaged"),
        ("foreign.parquet", foreign_parquet, "not a run of gemmgate"),
        ("newer.parquet", lambda tmp: with_header(tmp, schema=SCHEMA + 1), "Update gemmgate"),
        ("numberless.parquet", lambda tmp: with_header(tmp, schema="one"), "no schema number"),
        ("headless.parquet", lambda tmp: with_header(tmp, machine=None), "damaged"),
        ("empty.jsonl", lambda tmp: b"", "no complete header"),
        ("torn-header.jsonl", lambda tmp: b'{"schema": 1, "id"', "no complete header"),
        ("text.jsonl", lambda tmp: b"hello\n", "line 1 is not JSON"),
        ("deep.jsonl", lambda tmp: b"[" * 100_000 + b"\n", "line 1 is not JSON"),
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


def test_no_flipped_bit_changes_a_number(tmp_path: Path) -> None:
    """A Parquet file with one byte changed anywhere in its data reads as it was or not at all."""
    content = parquet_bytes(tmp_path)
    data_end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path = tmp_path / "flipped.parquet"
    path.write_bytes(content)
    run = Store(tmp_path).load(str(path))
    unharmed = 0
    for place in range(4, data_end, 23):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with suppress(UnreadableError):
            assert Store(tmp_path).load(str(path)) == run, place
            unharmed += 1
    assert unharmed < len(range(4, data_end, 23))


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


@pytest.mark.parametrize("name", ["20261129T180312Z-0a1b2c3d4e.parquet", "20261129T180312Z-0a1b2c3d4e.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "locked"])
def test_what_is_no_file_does_not_stop_the_list(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """A pipe, a folder, a socket and a file that may not be read are listed as unreadable at once, with a reason."""
    good = stored(store, make_run())
    path = good.parent / name
    with socket.socket(socket.AF_UNIX) as held:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "socket":
            monkeypatch.chdir(path.parent)  # a socket's address may be short only
            held.bind(name)
        else:
            path.symlink_to(path.name)  # root may read everything else
        found = {info.path.name: info for info in store.runs()}
    assert (found[good.name].state, found[name].state) == ("finished", "unreadable")
    assert name in found[name].note
