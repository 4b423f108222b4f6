"""What a tuning's rows say, the tables made of them, and the tables that are committed."""

from __future__ import annotations

import errno
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gemmgate.kernels import _tuned
from gemmgate.suite import catalog, report
from gemmgate.suite.cases import Target
from gemmgate.suite.errors import UnreadableError
from gemmgate.suite.records import Row, Stack
from gemmgate.suite.store import UnwritableError
from gemmgate.suite.tuning import tables
from gemmgate.suite.tuning.picks import NO_TIME, Pick, picks, regret, searched
from tests.stored import make_row, make_run

H200 = Target("sm_90", "NVIDIA H200", sm_count=132, shared_bytes=232448)
STACK = Stack(python="3.12.1", torch="2.11.0", triton="3.6.0")
FOLDER = Path(__file__).resolve().parents[1] / "kernels"
TILE = {"block_m": 16, "splits": 4}


def sampled(median_s: float, **fields: Any) -> Row:
    """A row with 40 samples of exactly this time."""
    facts = {"median_s": median_s, "low_s": median_s, "high_s": median_s, "samples_s": (median_s,) * 40}
    return make_row(**{"implementation": "own", "visit": "v", "yardstick": "cublas", **facts, **fields})


def tuning(case: str = "m16", pick_s: float = 5e-6, name: str = "own", **fields: Any) -> list[Row]:
    """The rows of a confirmation: the yardstick at 8 us, the tile without a search at 6 us, the pick."""
    common = {"case": case, "visit": f"{case}-{name}", "run_id": "r1", **fields}
    return [
        sampled(8e-6, **{**common, "implementation": "cublas", "phase": "yardstick"}),
        sampled(6e-6, **common, implementation=name, phase="incumbent", tile={"block_m": 32, "splits": 4}),
        sampled(pick_s, **common, implementation=name, phase="pick", tile=TILE, screened_s={"x": 5e-6, "y": 7e-6}),
    ]


def test_a_pick_is_quoted_against_its_visit() -> None:
    """A pick of 5 us is 1.6 times the yardstick of 8 us and 1.2 times the tile without a search, of its own visit."""
    (first, second) = picks([*tuning(), *tuning("m32", pick_s=1e-5)])
    assert first.key == "m16/own"
    assert first.ratio is not None and first.ratio.estimate == pytest.approx(1.6)
    assert first.gain is not None and first.gain.estimate == pytest.approx(1.2)
    assert second.ratio is not None and second.ratio.estimate == pytest.approx(0.8)
    assert searched(tuning()) == {("dense_splitk", "m16", "own")}


def test_the_newest_search_counts() -> None:
    """Of a case that was searched twice the newer pick is the pick."""
    old, new = tuning(pick_s=7e-6, utc="2026-01-01T00:00:00Z"), tuning(pick_s=5e-6, utc="2026-01-02T00:00:00Z")
    (found,) = picks([*new, *old])
    assert found.row.median_s == 5e-6


def test_regret_is_scored_on_other_samples_than_chose() -> None:
    """Of equal tiles the luckiest is no better: the mean regret of a fixed pick is 0, not the luck of the draw."""
    draw = random.Random(1)
    found = []
    for _ in range(400):
        samples = {str(tile): [1 + draw.gauss(0, 0.02) for _ in range(8)] for tile in range(30)}
        found.append(regret(samples, "0"))
    assert abs(sum(found) / len(found)) < 0.003


def test_regret_by_hand() -> None:
    """A pick that takes 1.1 s where the best takes 1 s costs a tenth; the best itself costs nothing."""
    samples = {"pick": [1.1] * 4, "best": [1.0] * 4, "worse": [1.3] * 4}
    assert regret(samples, "pick") == pytest.approx(0.1)
    assert regret(samples, "best") == 0.0
    # Fastest on the rounds that choose, slower on those that score: it is chosen, and scores what it scores.
    assert regret({"pick": [1.0] * 4, "lucky": [0.5, 2.0, 0.5, 2.0]}, "pick") == pytest.approx(-0.5)


def test_a_table_names_picks_and_the_best_of_a_case() -> None:
    """Each pick has an entry; a case's own entry is the implementation furthest ahead, or the yardstick."""
    rows = [*tuning("m16"), *tuning("m16", 4e-6, "other"), *tuning("m32", 1e-5)]
    table = tables.updated(None, "nvidia-h200", H200, STACK, picks(rows))
    entries = table["entries"]
    assert entries["m16/own"] == {"implementation": "own", "tile": TILE, "ratio": 1.6, "run": "r1"}
    assert (entries["m16"]["implementation"], entries["m16"]["ratio"]) == ("other", 2.0)
    assert entries["m32"] == {"implementation": "cublas", "tile": None, "ratio": 1.0, "run": "r1"}
    assert (table["profile"], table["arch"]) == ("nvidia-h200", "sm_90")
    assert table["stack"] == {"python": "3.12.1", "torch": "2.11.0", "triton": "3.6.0"}


def test_an_update_keeps_what_it_does_not_replace() -> None:
    """Entries of other cases and ranges stay; a new pick replaces the old one and is weighed against the others."""
    ranges = {"k": [{"up_to": 8, "implementation": "own", "tile": None}]}
    old = tables.updated(None, "p", H200, STACK, picks([*tuning("m16", 2e-6, "other"), *tuning("m64")]))
    new = tables.updated({**old, "ranges": ranges}, "p", H200, STACK, picks(tuning("m16", run_id="r2")))
    assert set(new["entries"]) == {"m16", "m16/own", "m16/other", "m64", "m64/own"}
    assert new["entries"]["m16/own"]["run"] == "r2" and new["entries"]["m64/own"]["run"] == "r1"
    assert new["entries"]["m16"]["implementation"] == "other"
    assert new["ranges"] == ranges


def test_what_failed_makes_no_entry() -> None:
    """A search that came to nothing leaves the table as it was."""
    failed = replace(tuning()[2], status="error", median_s=None, low_s=None, high_s=None)
    assert tables.updated(None, "p", H200, STACK, [Pick(failed, None, None)])["entries"] == {}


def test_a_table_reads_as_it_was_written(tmp_path: Path) -> None:
    """What is written is read back equal, with a line an entry; nothing else is left in the folder."""
    table = tables.updated(None, "nvidia-h200", H200, STACK, picks([*tuning("m16"), *tuning("m32")]))
    path = tmp_path / "tuned" / "nvidia-h200.json"
    for _ in range(2):
        tables.write(path, table)
    assert tables.read(path) == table
    assert sum('"implementation"' in line for line in path.read_text().splitlines()) == 4
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert tables.read(tmp_path / "none.json") is None


@pytest.mark.parametrize("call", ["os.pwrite", "pathlib.Path.rename"])
def test_a_table_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Where the disk is full the old table stays, with nothing beside it, and the error says what to do."""
    path = tmp_path / "tuned" / "nvidia-h200.json"
    table = tables.updated(None, "nvidia-h200", H200, STACK, picks(tuning("m16")))
    tables.write(path, table)
    before = path.read_bytes()

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(call, refuse)
    newer = tables.updated(table, "nvidia-h200", H200, STACK, picks(tuning("m32")))
    with pytest.raises(UnwritableError, match=r"nvidia-h200\.json: No space left.*Free some space, then go on\."):
        tables.write(path, newer, ", then go on.")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_table_of_another_method_is_not_updated(tmp_path: Path) -> None:
    """A table that another search filled is refused with its path, so that nothing of it is mixed in."""
    path = tmp_path / "old.json"
    table = tables.updated(None, "p", H200, STACK, picks(tuning()))
    path.write_text(json.dumps({**table, "method": 99}), encoding="utf-8")
    with pytest.raises(UnreadableError, match=r"old\.json was found by method 99"):
        tables.read(path)


def swept_rows(pick: Row) -> list[Row]:
    """Beside a pick of 5 us one tile of 4 us, one that does not compile and two that had no turn."""
    best = replace(pick, samples_s=(4e-6,) * 40, median_s=4e-6, low_s=4e-6, high_s=4e-6, visit="")
    bare = {"samples_s": (), "median_s": None, "low_s": None, "high_s": None, "visit": ""}
    tiles = [{"splits": splits, "block_m": 32} for splits in (1, 2, 3, 4)]
    return [
        replace(best, phase="oracle a", tile=tiles[0]),
        replace(pick, phase="oracle pick", tile={"splits": 4, "block_m": 16}, visit=""),  # in another order
        replace(best, phase="sweep a", tile=tiles[0]),
        replace(pick, phase="sweep b", tile=tiles[1], status="error", reason="does_not_compile", **bare),
        *(replace(pick, phase=f"sweep {i}", tile=tiles[i], status="invalid", reason=NO_TIME, **bare) for i in (2, 3)),
    ]


def test_a_wider_search_scores_the_pick_and_is_counted() -> None:
    """A pick of 5 us beside a best of 4 us costs a quarter; two tiles had a turn, two had none."""
    rows = tuning()
    (found,) = picks([*rows, *swept_rows(rows[2])])
    assert found.regret == pytest.approx(0.25)
    assert (found.swept, found.left_out) == (2, 2)
    (alone,) = picks([*rows, *swept_rows(rows[2])[1:2]])
    assert alone.regret is None  # a pick that nothing was timed beside is no best


def test_the_report_says_what_was_gained() -> None:
    """Both ratios, the pick over the best, their mean, and what was left out stand in the table and the sentences."""
    rows = tuning()
    shown = report.show_tuning(make_run(rows=(*rows, *swept_rows(rows[2]))), "table")
    assert "1.600" in shown and "1.200" in shown and "1.250" in shown and "3 of 5" in shown
    assert "geometric mean 1.2500, worst 1.2500, at most 1.01 in 0 of 1" in shown
    assert "in 1 case: 2 were left out" in shown
    assert "| m16 | own | 5.00 |" in report.show_tuning(make_run(rows=tuple(rows)), "markdown")


def test_the_report_says_what_found_no_time() -> None:
    """Of two searches without time one that a later pick made up for does not count; the ratio is the incumbent's."""
    bare = {"samples_s": (), "median_s": None, "low_s": None, "high_s": None, "visit": "", "tile": None}
    rows = tuning()
    late = [
        replace(rows[2], phase="skipped", status="invalid", reason=NO_TIME, case=case, **bare)
        for case in ("m16", "m32")
    ]
    shown = report.show_tuning(make_run(rows=(*late, *rows)), "markdown")
    assert "1 pick of 1 searches; 1 more of 2 that were asked for had no time." in shown
    assert "| over yardstick | over incumbent |" in shown and "over rule" not in shown
    assert "had no time" not in report.show_tuning(make_run(rows=tuple(rows)), "markdown")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/tuned/*.json")), ids=lambda path: path.stem)
def test_committed_tables_fit_their_kernels(path: Path) -> None:
    """Each committed table is readable, and each of its tiles is one that its kernel can describe and hold."""
    table = _tuned.parse(path.read_text(encoding="utf-8"), path.name)
    known = catalog.find()
    family = known.family(path.parents[1].name)
    assert table["profile"] == path.stem
    for key, entry in table["entries"].items():
        name, _, implementation = key.partition("/")
        case = next((case for case in family.cases if case.name == name), None) or catalog.case_named(family, name)
        assert case is not None, key
        assert entry["implementation"] in catalog.offered(family, case) and implementation in (
            "",
            entry["implementation"],
        )
        found = known.implementation(family.name, entry["implementation"])
        if entry["tile"] is not None and found.footprint is not None and table["arch"] == H200.arch:
            assert found.footprint(case, H200, entry["tile"]).shared_bytes <= H200.shared_bytes
