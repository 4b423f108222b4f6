"""What a person sees of a run: golden text, widths, colours, and the cases at the edge."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite import report
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row, Run
from tests.runs import row, run

GOLDEN = Path(__file__).parent / "golden"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
CASES: dict[str, dict[str, Any]] = {
    "m32-n32-k32768-bf16": {},
    "m64-n64-k65537-bf16": {"flop": 2 * 64 * 64 * 65537, "bytes_moved": 2 * 2 * 64 * 65537},
    "m4096-n4096-k4096-fp32-tf32": {
        "dtype": "fp32",
        "precision": "tf32",
        "flop": 2 * 4096**3,
        "bytes_moved": 3 * 4 * 4096**2,
        "roof_s": 3.927e-4,
    },
}


def measured(case: str, times_us: dict[str, float], **fields: Any) -> list[Row]:
    """Rows of one case in both cache states, 'hot' in half the time, with constant samples."""
    made = []
    for cache, factor in (("cold", 1.0), ("hot", 0.5)):
        for name, us in times_us.items():
            known = {"case": case, "cache": cache, "visit": f"{case} {cache}", **CASES[case], **fields}
            time = us * factor * 1e-6
            made.append(row(name, time, samples_s=(time,) * 40, **known))
    return made


def failed(case: str, name: str, status: str, reason: str, detail: str) -> list[Row]:
    fields: dict[str, Any] = {name: value for name, value in CASES[case].items() if name != "roof_s"}
    return [
        row(name, None, case=case, cache=cache, status=status, reason=reason, detail=detail, **fields)
        for cache in ("cold", "hot")
    ]


def whole_run() -> Run:
    """Three cases with a win, a loss, a tie, each kind of failure, marks, and host times."""
    first, second, third = CASES
    rows = measured(
        first, {"decompose_k_8": 12.5, "cublas": 10.0, "triton_split_k": 8.0}, host_s=9.3e-6, eager_s=14.25e-6
    )
    rows[0] = row("decompose_k_8", 12.5e-6, visit=f"{first} cold", marks=("drift", "two_modes"), kernels=2, error=6e-3)
    rows += measured(second, {"cublas": 16.0, "triton_split_k": 16.0})
    rows += failed(second, "decompose_k_8", "unsupported", "no_split", "K = 65537 is prime: no split divides it.")
    rows += measured(third, {"cublas": 500.0, "decompose_k_8": 1000.0})
    rows += failed(third, "triton_split_k", "broken", "error_bound", "Error 7.6e-04 is above the bound of 4.0e-04.")
    return run(rows)


def golden(name: str, text: str) -> None:
    """To accept a change that was meant, look at the text this prints and put it into the file."""
    assert text == (GOLDEN / name).read_text(), f"{name} is now:\n{text}"


@pytest.mark.parametrize("width", [160, 120, 80])
def test_table(width: int) -> None:
    """The table of a run reads as recorded: where nearly all fits, where cases are stacked, and where columns go."""
    golden(f"run-{width}.txt", report.show(whole_run(), "table", width=width, color=False))


def test_markdown() -> None:
    """The Markdown of a run reads as recorded, with underscores as they are and pipes escaped."""
    golden("run.md", report.show(whole_run(), "markdown"))


def test_markdown_summary() -> None:
    """The form for READMEs has a line a case, a column an implementation, losses and failures included."""
    golden("summary.md", report.markdown_summary(whole_run(), ["cublas", "triton_split_k", "decompose_k_8"], "cold"))


def test_summary_of_what_is_not_there() -> None:
    """An unknown implementation is an error that names the known ones; a cache state without rows is a sentence."""
    with pytest.raises(UsageError, match="Known: cublas, decompose_k_8, triton_split_k"):
        report.markdown_summary(whole_run(), ["cublass"])
    assert "no times in cache state 'serving'" in report.markdown_summary(whole_run(), cache="serving")


def test_colour_changes_no_text() -> None:
    """With colour the text is the same, the fastest row is green, a loss red, a tie dim."""
    plain = report.show(whole_run(), width=140)
    colored = report.show(whole_run(), width=140, color=True)
    without = "\n".join(line.rstrip() for line in ANSI.sub("", colored).splitlines()) + "\n"
    assert without == plain
    assert "\x1b" not in plain
    assert re.search(r"\x1b\[1;32mtriton_split_k", colored)
    assert re.search(r"\x1b\[31m *0\.800", colored)
    assert re.search(r"\x1b\[2m *~1\.000", colored)


@pytest.mark.parametrize("width", range(80, 170, 3))
def test_lines_keep_to_the_width(width: int) -> None:
    """No line is longer than the width, from 80 columns on."""
    for line in report.show(whole_run(), width=width).splitlines():
        assert len(line) <= width, line


def test_numbers_are_never_cut() -> None:
    """Even at 20 columns every time stands whole on its line."""
    text = report.show(whole_run(), width=20)
    for number in ("12.5", "1000", "1.250"):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", text)


def test_what_found_no_room_is_named() -> None:
    """Columns that do not fit are named beneath the table."""
    assert "No room for: eager us, x hot, host us." in report.show(whole_run(), width=120)
    assert "No room for" not in report.show(whole_run())


def test_an_empty_run() -> None:
    """A run without rows says so, with its machine, in every format."""
    empty = run()
    assert report.show(empty).startswith("This run has no rows.\n\nNVIDIA H200 (nvidia-h200-141g-700w, board b0a2)")
    assert report.show(empty, "markdown").startswith("This run has no rows.")
    assert report.rows_json(empty)["rows"] == []
    assert report.show(empty, "csv").startswith("family,case,implementation,")


def test_a_run_that_only_failed() -> None:
    """Without any time there is no table of times and no mean, but every failure with its detail."""
    text = report.show(
        run(
            [
                row("x", None, status="error", detail="The worker died of signal 11."),
                row("y", None, status="unsupported", reason="odd_k", detail="K is odd."),
                row("y", None, status="unsupported", reason="odd_k", detail="K is odd.", case="k3"),
            ]
        )
    )
    assert "nothing was measured" in text
    assert "The worker died of signal 11." in text
    assert re.search(r"^y +2  odd_k +m32-n32-k32768-bf16: K is odd\.$", text, re.MULTILINE)
    assert "Geometric mean" not in text


def test_only_hot_rows() -> None:
    """Where nothing is cold, the hot state leads: its ratios have the interval and the mean."""
    text = report.show(run([row("cublas", 10e-6, cache="hot"), row("own", 5e-6, cache="hot")]))
    assert re.search(r"hot us +x cublas +±", text)
    assert "cold" not in text
    assert "2.000 (1)" in text


def test_no_yardstick() -> None:
    """Without a yardstick the ratio is a dash, and a sentence says why."""
    text = report.show(run([row("own", 5e-6, yardstick=""), row("other", 5e-6)]))
    assert "No ratio for own in 1 measurement: No yardstick was measured for this case." in text
    assert "No ratio for other in 1 measurement: Yardstick 'cublas' was not sampled in the same rounds" in text


def test_other_kinds_have_values() -> None:
    """Phases and counts stand in a table of values with their units; whole numbers are whole."""
    rows = [
        row("cublas", None, kind="phase", phase="lowering", cache="warm_fx", value=12.3456, unit="s"),
        row("cublas", None, kind="count", value=1234567.0, unit="bytes", cache="", marks=("shared",)),
    ]
    text = report.show(run(rows))
    assert re.search(r"phase +lowering .* 12\.35 +s", text)
    assert re.search(r"count .* 1234567 +bytes +shared", text)


def test_errors_that_are_not_finite() -> None:
    """Against an exact yardstick a wrong result has an infinite multiple, shown as inf."""
    text = report.show(run([row("cublas", error=0.0), row("own", error=1e-9)]))
    assert re.search(r"own .* inf ", text)


def test_very_long_names() -> None:
    """Names that do not fit are folded, not cut: every character is there."""
    name = "implementation_" + "abcdefghij" * 8
    lines = report.show(run([row("cublas"), row(name)]), width=90).splitlines()
    start = next(i for i, line in enumerate(lines) if "implementation_" in line)
    folded = "".join(re.sub(r"^[* ] +", "", line)[:60].split("  ")[0].strip() for line in lines[start : start + 8])
    assert name[:60] in folded
    assert all(len(line) <= 90 for line in lines)


def test_what_a_table_cannot_claim() -> None:
    """Unproven and disproved cache states and an unusual timer are named."""
    rows = [row("cublas", cache_proof="unknown"), row("a", cache_proof="failed"), row("b", timer="events")]
    text = report.show(run(rows))
    assert "The cache state is not proven in 1 of 3 measurements." in text
    assert re.search(r"^[ *]+a .* not cold$", text, re.MULTILINE)
    assert re.search(r"^[ *]+b .* timer events$", text, re.MULTILINE)


def test_namesakes_are_told_apart() -> None:
    """Two rows of one implementation and case are labelled with what differs."""
    text = report.show(run([row("cublas", seed=1), row("cublas", seed=2)]))
    assert "cublas (seed 1)" in text
    assert "cublas (seed 2)" in text


def test_unknown_format() -> None:
    """An unknown format is an error that lists the known ones."""
    with pytest.raises(UsageError, match="csv, json, markdown, table"):
        report.show(run(), "html")


def test_means_count_their_cases() -> None:
    """The mean of 1.25 and 1 is 1.118 of 2 cases; a failure and a case never run are left out and said to be."""
    text = report.show(whole_run())
    line = next(line for line in text.splitlines() if line.startswith("triton_split_k "))
    assert math.isclose(math.sqrt(1.25), 1.118, abs_tol=5e-4)
    assert line.split()[1:3] == ["1.118", "(2)"]
    assert line.endswith("1     1       0  1 broken")
