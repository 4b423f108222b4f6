"""`gemmgate learn`: trees, ranges and scores from stored runs."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from gemmgate.suite.catalog import find
from gemmgate.suite.errors import UnreadableError, UsageError
from gemmgate.suite.records import Row
from gemmgate.suite.store import Store, UnwritableError
from gemmgate.suite.tuning import tables
from tests.learnable import HIDDEN, rows_of
from tests.runs import row
from tests.stored import make_run, stored

FLAGS = ("--python", "--json", "--explain")
TABLE = {"schema": 1, "profile": "nvidia-h200", "arch": "sm_90", "method": 1, "stack": {}, "entries": {}}
KEPT = {"kept": {"implementation": "library", "tile": None}}


def _run_learn(tmp_path: Path, *arguments: str, rows: list[Row] | None = None) -> Any:
    import typer

    from gemmgate.suite.cli.learn import command

    store = Store(tmp_path / "results")
    stored(store, make_run(), *(rows or rows_of(tokens=(1, 8, 64, 512), experts=(32, 128, 512))))
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [*arguments, "--results", str(tmp_path / "results")])


def test_command_writes_all_three(tmp_path: Path) -> None:
    """`learn` prints the tree with its cost on held-out sizes and writes a function, JSON with split points, a map."""
    files = {flag: tmp_path / name for flag, name in zip(FLAGS, ("choose.py", "tree.json", "map.svg"), strict=True)}
    options = [text for flag, path in files.items() for text in (flag, str(path))]
    result = _run_learn(tmp_path, "--family", "made", *options)
    assert result.exit_code == 0, result.output
    assert "On groups held out: mean regret 1.000" in result.output
    compile(files["--python"].read_text(), "choose.py", "exec")
    data = json.loads(files["--json"].read_text())
    (some,) = [one for one in data["split_points"] if one["where"]["n"] == 128 and one["where"]["k"] == 1024]
    assert some["along"] == "t" and some["implementations"] == ["few", "some", "library"]
    assert len(some["split_points"]) == 2
    ElementTree.fromstring(files["--explain"].read_text())


def test_command_scores_what_ran(tmp_path: Path) -> None:
    """`--score` learns nothing and shows the regret of an implementation by tokens, with the worst case."""
    result = _run_learn(tmp_path, "--family", "made", "--score", "library")
    assert result.exit_code == 0, result.output
    assert "Regret by t, library" in result.output
    assert "1.250" in result.output


def test_command_learns_from_no_dispatcher(tmp_path: Path) -> None:
    """What says that another one ran is nothing to choose, unless it is asked for by name; its score is its own."""
    rows = [
        *rows_of(tokens=(1, 8, 64, 512), experts=(32, 128, 512)),
        *rows_of(lambda t, n: {"chooser": 3e-6}, (1, 8, 64, 512), (32, 128, 512), algorithm="few (tuned)"),
    ]
    options = ((), ("--impl", "chooser,few,some,library"), ("--score", "chooser"))
    every, named, scored = (
        _run_learn(tmp_path / str(index), "--family", "made", *more, rows=rows).output
        for index, more in enumerate(options)
    )
    assert "chooser" not in every and "chooser" in named
    assert "mean regret 1.000" in scored


def test_score_leaves_out_what_was_chosen_and_not_timed(tmp_path: Path) -> None:
    """Cases on which the choice itself has no time say nothing of what it cost: they are counted and left out."""
    whole = [
        *rows_of(tokens=(1, 8, 64, 512), experts=(32, 128)),
        *rows_of(lambda t, n: {"chooser": 8e-6}, (1, 8, 64, 512), (32, 128), algorithm="few (tuned)"),
    ]
    # 12 shapes at 4 T. With 8 tokens nothing but the library is timed beside the dispatcher.
    rows = [one for one in whole if one.dims["t"] != 8 or one.implementation in ("library", "chooser")]
    result = _run_learn(tmp_path, "--family", "made", "--score", "chooser", rows=rows)
    assert "12 cases left out: what chooser chose was not timed by itself there." in result.output
    assert "36 cases" in result.output and "mean regret 2.000" in result.output


def test_command_writes_ranges(tmp_path: Path) -> None:
    """`--ranges` puts split points between the rule's into a table that is there, and says the regret; entries stay as
    they are, a line each.
    """
    path = tmp_path / "table.json"
    path.write_text(json.dumps({**TABLE, "entries": KEPT, "ranges": {"other": []}}))
    result = _run_learn(tmp_path, "--family", "made", "--ranges", str(path))
    assert result.exit_code == 0, result.output
    table = json.loads(path.read_text())
    assert table["entries"] == KEPT and table["ranges"]["other"] == []
    # `few` takes 4 us at 8 tokens and 5 at 64, `some` 8 and 4: 8 * 8^(ln 2 / (ln 2 + ln 1.25)) = 38.6. `some` takes 4
    # at 64 and 8 at 512, `library` the other way round: 64 sqrt(8) = 181.02.
    assert table["ranges"]["n128-k2048-bf16-acc32-row-none"] == [
        {"up_to": 38, "implementation": "few", "tile": None, "measured": [1, 8]},
        {"up_to": 181, "implementation": "some", "tile": None, "measured": [64, 64]},
        {"up_to": 512, "implementation": "library", "tile": None, "measured": [512, 512]},
    ]
    assert len(table["ranges"]) == 1 + 3 * len(HIDDEN)
    assert "mean regret 1.000" in result.output
    assert path.read_text().count("\n") == len(table["ranges"]) + 12


def test_ranges_say_where_nothing_was_measured(tmp_path: Path) -> None:
    """An end between sizes far apart, and a first range below the least size, are said to be assumed."""
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))
    rows = rows_of(tokens=(4, 8, 64, 256), experts=(128,))
    said = _run_learn(tmp_path, "--family", "made", "--ranges", str(path), rows=rows).output
    joined = " ".join(said.split())
    assert "Between 8 and 64 nothing was measured, and a range of n128-k1024-bf16-acc32" in joined
    assert "and 4 more" in joined
    assert "Between 4 and 8" not in joined
    assert "Below 4 the first range goes on" in joined


@pytest.mark.parametrize("content", [None, "[]", "{}", '{"entries": ["a"]}', "not JSON"])
def test_ranges_need_a_table(tmp_path: Path, content: str | None) -> None:
    """Ranges go into a table that is there: a missing file and one that is none are answered with the path."""
    path = tmp_path / "table.json"
    if content is not None:
        path.write_text(content)
    result = _run_learn(tmp_path, "--family", "made", "--ranges", str(path))
    assert isinstance(result.exception, UnreadableError)
    assert str(path) in str(result.exception)


@pytest.mark.parametrize(
    ("changes", "family", "said"),
    [
        (
            {"profile": "nvidia-a100-sxm4-80gb"},
            "made",
            "of nvidia-a100-sxm4-80gb, and these times are of nvidia-h200: ",
        ),
        (
            {"entries": {"deepseek-v3-t1-bf16/split_k": KEPT["kept"]}},
            "made",
            "of router, and these times are of made: ",
        ),
        (
            {"entries": {"m1-n1-k1-bf16/own": KEPT["kept"]}},
            "router",
            "of another family, and these times are of router",
        ),
    ],
)
def test_ranges_of_another_table_are_refused(tmp_path: Path, changes: dict[str, Any], family: str, said: str) -> None:
    """A table of another device or family is named with what it is of, and stays as it is."""
    path = tmp_path / "table.json"
    path.write_text(json.dumps({**TABLE, **changes}))
    before = path.read_bytes()
    rows = rows_of(tokens=(1, 8, 64, 512), experts=(32, 128, 512), family=family)
    result = _run_learn(tmp_path, "--family", family, "--ranges", str(path), rows=rows)
    assert isinstance(result.exception, UsageError)
    assert f"{path} is a table {said}" in str(result.exception)
    assert path.read_bytes() == before


def test_a_table_is_of_the_family_that_has_most_of_its_cases(tmp_path: Path) -> None:
    """The router's table is the router's and not `router_topk`'s, which has some of the same cases."""
    known = find()
    path = Path(tables.folder_of("gemmgate.kernels.router")) / "nvidia-h200.json"
    table = tables.read(path)
    assert table is not None
    tables.refuse_other(path, table, known, "router", "nvidia-h200")
    with pytest.raises(UsageError, match="is a table of router, and these times are of router_topk"):
        tables.refuse_other(path, table, known, "router_topk", "nvidia-h200")


@pytest.mark.parametrize("flag", FLAGS)
def test_what_finds_no_space_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    """Where the disk is full an older file stays whole, with nothing beside it, and the error names it."""
    folder, write = tmp_path / "out", os.pwrite
    folder.mkdir()
    path = folder / "written"
    path.write_text("older")

    def full(file: int, data: bytes, start: int) -> int:
        if str(folder) in str(Path(f"/proc/self/fd/{file}").readlink()):
            write(file, data[:10], start)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data, start)

    monkeypatch.setattr(os, "pwrite", full)
    result = _run_learn(tmp_path, "--family", "made", flag, str(path))
    assert isinstance(result.exception, UnwritableError)
    assert f"Cannot write {path}: No space left" in str(result.exception)
    assert path.read_text() == "older" and list(folder.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """A link that is named as output, as /dev/stdout is one, leads to what is written and is not replaced."""
    path = tmp_path / "link.py"
    path.symlink_to(tmp_path / "choose.py")
    assert _run_learn(tmp_path, "--family", "made", "--python", str(path)).exit_code == 0
    assert path.is_symlink() and "def choose(" in (tmp_path / "choose.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"), [((), "Name a --family"), (("--family", "mde"), "No family with times")]
)
def test_command_says_what_is_missing(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """Without a family, or with one that no row has, the families there are named."""
    result = _run_learn(tmp_path, *arguments)
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception) and "made" in str(result.exception)


def test_exports_name_what_is_offered(tmp_path: Path) -> None:
    """On every case of `router`, of every dtype rule, the function names what the family offers for the case, inside
    and beyond what was measured; a kind that the family does not have is an error.
    """
    family = find().family("router")
    applies = {entry.name: entry.applies for entry in family.implementations}
    rows = []
    for case in family.cases:
        if "drawn" in case.tags or case.dims["t"] > 512:
            continue
        yardstick = "linear_float" if case.epilogue == "out_fp32" else "linear"
        where = {"family": "router", "case": case.name, "dims": dict(case.dims), "visit": case.name, "cache": "serving"}
        words = {name: getattr(case, name) for name in ("dtype", "precision", "layout", "epilogue")}
        for name, seconds in ((yardstick, 5e-6), ("dispatch", 4e-6 if case.dims["t"] < 99 else 6e-6)):
            rows.append(row(name, seconds, yardstick=yardstick, **where, **words))
    files = [tmp_path / "choose.py", tmp_path / "tree.json"]
    options = ["--python", str(files[0]), "--json", str(files[1]), "--impl", "dispatch,linear,linear_float"]
    result = _run_learn(tmp_path, "--family", "router", *options, rows=rows)
    assert result.exit_code == 0, result.output
    space: dict[str, Any] = {}
    exec(files[0].read_text(), space)
    for case in family.cases:
        words = {name: getattr(case, name) for name in ("dtype", "precision", "layout", "epilogue")}
        for machine in ("nvidia-h200-141g-700w", "elsewhere"):
            chosen = space["choose"](**case.dims, **words, machine=machine)
            assert applies[chosen](case), (case.name, chosen)
    for one in json.loads(files[1].read_text())["split_points"]:
        assert one["fallback"] == ("linear_float" if one["where"]["epilogue"] == "out_fp32" else "linear")
    with pytest.raises(ValueError, match="no case of 'int8,acc32,row,none'"):
        space["choose"](t=1, n=8, k=8, dtype="int8", precision="acc32", layout="row", epilogue="none", machine="m")
