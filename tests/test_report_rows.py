"""The public JSON and CSV of a run, and the units of people."""

import io
import json
import math
from types import MappingProxyType
from typing import Any

import pandas as pd
import pytest

from gemmgate.suite import report
from gemmgate.suite.compare import Rated
from gemmgate.suite.records import Limits
from gemmgate.suite.report import units
from gemmgate.suite.report.best import counts, fastest
from gemmgate.suite.statistics import Interval
from tests.runs import LIMITS, row, run

PROMISED = """
run_id family case implementation kind status reason tags dtype precision epilogue cache cache_proof timer
phase target median_s host_s value unit samples_n ratio ratio_low ratio_high roof_share error error_vs_yardstick kernels
tile algorithm repro detail low_s high_s eager_s yardstick marks calls_per_sample error_bound error_worst_tile roof_s
machine board commit utc"""


def test_every_promised_field_is_there() -> None:
    """A row of any status has every field that the interface promises, and the file names its schema."""
    made = report.rows_json(run([row("cublas"), row("own", None, status="error")]))
    assert made["schema"] == 1
    assert made["run"]["id"] == "20260131T120000Z-0a1b2c3d4e"
    for fields in made["rows"]:
        assert set(PROMISED.split()) <= set(fields)


def test_values_of_a_row() -> None:
    """Ratio, share and multiple are those of the times and errors; tags, tile and marks keep their form."""
    rows = [
        row("cublas", 10e-6, samples_s=(10e-6,) * 30, error=1e-3),
        row("own", 8e-6, samples_s=(8e-6,) * 30, error=2e-3, tile={"bm": 16}, marks=("drift",)),
    ]
    own = json.loads(report.show(run(rows), "json"))["rows"][1]
    assert (own["median_s"], own["samples_n"], own["kernels"]) == (8e-6, 30, 1)
    assert (own["ratio"], own["ratio_low"], own["ratio_high"]) == pytest.approx((1.25, 1.25, 1.25))
    assert (own["roof_share"], own["error_vs_yardstick"]) == pytest.approx((0.25, 2.0))
    assert (own["tags"], own["tile"], own["marks"]) == (["quick", "tritonbench"], {"bm": 16}, ["drift"])
    assert "samples_s" not in own


def test_json_is_strict() -> None:
    """NaN and infinity become null, mappings that are no dicts are objects, and a strict parser reads it all."""
    rows = [
        row("cublas", error=0.0),
        row("own", error=1e-9, power_w=math.nan, flags=MappingProxyType({"tf32": "0"})),
        row("bad", None, status="broken", error=math.inf),
    ]

    def refuse(word: str) -> None:
        raise AssertionError(word)

    limits = Limits(bytes_per_s=math.inf)
    read = json.loads(report.show(run(rows, limits=limits), "json"), parse_constant=refuse)
    assert [fields["error_vs_yardstick"] for fields in read["rows"]] == [1.0, None, None]
    assert (read["rows"][1]["power_w"], read["rows"][1]["flags"]) == (None, {"tf32": "0"})
    assert read["run"]["limits"]["bytes_per_s"] is None


def test_what_a_row_does_not_say_comes_from_its_run() -> None:
    """Machine, board, commit, date and run id fall back to the run's."""
    made = run([row(machine="", board="", commit="", utc="", run_id="")])
    (fields,) = report.rows_json(made)["rows"]
    assert (fields["machine"], fields["board"]) == (made.machine.key, made.machine.board)
    assert (fields["commit"], fields["utc"], fields["run_id"]) == (made.commit, made.utc, made.id)


def test_superseded_rows_are_left_out() -> None:
    """Of two rows with one id only the newer is shown."""
    rows = [row("a", None, utc="2026-01-01T00:00:00Z", status="error"), row("a", utc="2026-01-02T00:00:00Z")]
    assert [fields["status"] for fields in report.rows_json(run(rows))["rows"]] == ["ok"]


def test_csv_is_read_by_pandas() -> None:
    """The CSV has the fields of the JSON, in its order, and its numbers survive a round trip."""
    made = run([row("cublas", 10e-6), row("own", 8e-6, detail='a "quoted", long\nline', tile={"bm": 16})])
    frame = pd.read_csv(io.StringIO(report.show(made, "csv")))
    fields = report.rows_json(made)["rows"][1]
    assert list(frame.columns) == list(fields)
    assert frame.ratio[1] == fields["ratio"]
    assert frame.detail[1] == fields["detail"]
    assert json.loads(frame.tile[1]) == {"bm": 16}
    assert frame.tags[1] == "quick tritonbench"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8.314, "8.31"),
        (9.999, "10.0"),
        (12.34, "12.3"),
        (0.05, "0.0500"),
        (0.0, "0"),
        (999.6, "1000"),
        (81234.4, "81234"),
        (-1.5, "-1.50"),
        (math.inf, "inf"),
    ],
)
def test_significant_digits(value: float, text: str) -> None:
    """Three digits, no exponent, and none cut off before the point."""
    assert units.significant(value) == text


def test_times_ratios_and_shares() -> None:
    """8.31 us, 0.92x and 57 % look like that; what is missing is a dash."""
    assert units.microseconds(8.314e-6) == "8.31"
    assert units.microseconds(None) == "-"
    assert [units.speedup(x) for x in (0.9213, 1.0, 12.3456)] == ["0.921", "1.000", "12.35"]
    assert [units.share(x) for x in (0.573, 0.001, 1.034, None)] == ["57%", "<1%", "103%", "-"]
    assert [units.multiple(x) for x in (0.984, 23.14, math.inf, None)] == ["0.98", "23.1", "inf", "-"]
    assert [units.plain(x) for x in (3.0, 3.14159, None)] == ["3", "3.142", "-"]
    assert [units.counted(n, "case") for n in (1, 2)] == ["1 case", "2 cases"]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.99, 1.02, "±2.0%"), (0.8, 1.1, "±25%"), (0.9999, 1.00001, "±0.1%"), (1.0, 1.0, "±0.0%"), (0.0, 9.0, "±?")],
)
def test_half_widths_are_rounded_up(low: float, high: float, text: str) -> None:
    """The wider side counts, rounded up to a tenth, or to a percent from ten on; unbounded is a question mark."""
    assert units.plus_minus(Interval(1.0, low, high, 0.95)) == text


@pytest.mark.parametrize(
    ("fields", "header", "text"),
    [
        ({"flop": 10**6, "bytes_moved": 8 * 10**6}, "TB/s", "1.00"),
        ({"flop": 4 * 10**9, "bytes_moved": 8 * 10**6}, "TFLOP/s", "500"),
        ({"flop": 4 * 10**8, "bytes_moved": 8 * 10**6, "dtype": "fp32", "precision": "ieee"}, "TFLOP/s", "50.0"),
        ({"flop": 4 * 10**8, "bytes_moved": 8 * 10**6, "dtype": "fp32", "precision": "tf32"}, "TB/s", "1.00"),
        ({"flop": 4 * 10**4, "bytes_moved": 0}, "GFLOP/s", "5.00"),
        ({"flop": 0, "bytes_moved": 80}, "MB/s", "10.0"),
        ({"flop": 8 * 10**6, "bytes_moved": 8 * 10**6, "dtype": "int8"}, "TFLOP/s", "1.00"),
    ],
)
def test_a_rate_is_of_what_bounds_the_case(fields: dict[str, Any], header: str, text: str) -> None:
    """Bytes a second where the roofs say that bytes bound the case, by dtype and precision; else operations."""
    found = row(median_s=8e-6, **fields)
    (column,) = units.rate_columns([found], LIMITS)
    assert (column.header, column.text(found, LIMITS)) == (header, text)


def test_a_column_of_rates_has_one_unit() -> None:
    """Rows of 1.00 TB/s and 73.8 GB/s share a column of TB/s; an operation's rate has a column of its own."""
    fast = row(median_s=8e-6, flop=10**6, bytes_moved=8 * 10**6)
    slow = row(median_s=8e-6, flop=10**5, bytes_moved=590_400)
    counted = row(median_s=8e-6, flop=4 * 10**9, bytes_moved=8 * 10**6)
    columns = units.rate_columns([slow, fast, counted], LIMITS)
    said = [[column.text(one, LIMITS) for one in (fast, slow, counted)] for column in columns]
    assert [column.header for column in columns] == ["TB/s", "TFLOP/s"]
    assert said == [["1.00", "0.0738", ""], ["", "", "500"]]


def test_without_a_count_there_is_no_rate() -> None:
    """A row that counts neither bytes nor operations has no column, and a dash in that of others."""
    none, counted = row(median_s=8e-6, flop=0, bytes_moved=0), row(median_s=8e-6, flop=0, bytes_moved=80)
    assert units.rate_columns([none], LIMITS) == []
    assert [column.text(none, LIMITS) for column in units.rate_columns([none, counted], LIMITS)] == ["-"]


def _rated(name: str, median_s: float, ratio: tuple[float, float, float] | None) -> Rated:
    """`ratio` as (estimate, low, high)."""
    return Rated(row(name, median_s), "cublas", ratio and Interval(*ratio, 0.95), None, None, "")


@pytest.mark.parametrize(
    ("members", "names"),
    [
        # The least median is another's: the ratio, of the same rounds, decides.
        ({"cublas": (10e-6, (1, 1, 1)), "a": (8.0e-6, (1.2, 1.19, 1.21)), "b": (8.1e-6, (1.3, 1.29, 1.31))}, ["b"]),
        # Whose interval reaches that of the fastest cannot be told from it.
        ({"cublas": (10e-6, (1, 1, 1)), "a": (8e-6, (1.2, 1.1, 1.3)), "b": (7e-6, (1.3, 1.2, 1.4))}, ["a", "b"]),
        ({"cublas": (10e-6, (1, 1, 1)), "a": (10e-6, (1.001, 0.999, 1.003))}, ["cublas", "a"]),
        ({"cublas": (10e-6, (1, 1, 1)), "a": (10e-6, (1.001, 1.0005, 1.0015))}, ["a"]),
        # A row without a ratio was not in the rounds.
        ({"cublas": (10e-6, (1, 1, 1)), "a": (20e-6, (0.5, 0.49, 0.51)), "b": (1e-6, None)}, ["cublas"]),
        # Where there is none at all, the median has to do.
        ({"a": (10e-6, None), "b": (9e-6, None)}, ["b"]),
        ({"cublas": (10e-6, (1, 1, 1))}, []),
    ],
)
def test_the_fastest_are_those_that_nothing_was_shown_to_beat(members: dict[str, Any], names: list[str]) -> None:
    """By the ratio, ties within noise included; nothing is the fastest of one."""
    found = fastest([_rated(name, *facts) for name, facts in members.items()])
    assert [rated.row.implementation for rated in found] == names


@pytest.mark.parametrize(
    ("fields", "selection", "command"),
    [
        ({"phase": "singly", "timer": "events"}, {}, "gemmgate run {what} --timer events --data normal --seed 0"),
        ({"phase": "cross_check", "timer": "cupti"}, {}, "gemmgate run {what} --cross-check --data normal --seed 0"),
        ({}, {"suites": ["my kernels"]}, "gemmgate run {what} --data normal --seed 0 --suite 'my kernels'"),
        (
            {},
            {"tried": {"function": "my.py:f", "against": "cublas"}},
            "gemmgate try my.py:f --family dense_splitk --case m32-n32-k32768-bf16 --against cublas",
        ),
    ],
)
def test_a_command_repeats_what_the_row_was(fields: dict[str, Any], selection: dict[str, Any], command: str) -> None:
    """The way of timing, another folder of families and a function that was tried are in the command."""
    what = "--family dense_splitk --case m32-n32-k32768-bf16 --impl cublas,triton_split_k --cache cold"
    (shown,) = report.rows_json(run([row(**fields)], selection=selection))["rows"]
    assert shown["repro"] == command.format(what=what)


@pytest.mark.parametrize(
    ("ratio", "counted"),
    [
        ((1.5, 1.4, 1.6), (1, 0, 0)),
        ((0.999, 0.9985, 0.9995), (0, 1, 0)),  # certain, and of no interest
        ((1.009, 1.008, 1.0095), (0, 1, 0)),
        ((1.011, 1.0105, 1.0115), (1, 0, 0)),
        ((0.98, 0.97, 0.99), (0, 0, 1)),
        ((0.98, 0.95, 1.01), (0, 1, 0)),
    ],
)
def test_a_tenth_of_a_percent_is_neither_faster_nor_slower(
    ratio: tuple[float, float, float], counted: tuple[int, int, int]
) -> None:
    """Faster and slower are certain and at least 1 %: another process would differ by some tenths of a percent."""
    assert counts([Interval(*ratio, 0.95)]) == counted
