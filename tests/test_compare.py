"""What rows mean against their yardstick and against an earlier run."""

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmgate.suite.compare import Thresholds, Verdict, compare, newest, rate
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row
from tests.runs import H200, STACK, row, run, samples


def slowed(old: Row, factor: float, **fields: Any) -> Row:
    """The same row with every time multiplied, as a later run would report it."""
    assert old.median_s is not None
    times = samples(old.median_s * factor, seed=99)
    return replace(old, median_s=old.median_s * factor, low_s=None, high_s=None, samples_s=times, **fields)


def only(old: Row, new: Row, thresholds: Thresholds | None = None, **fields: Any) -> Any:
    (comparison,) = compare(run([old]), run([new], **fields), thresholds or Thresholds())
    return comparison


def test_newest_row_of_an_id_wins() -> None:
    """Of rows with one id the newest stays, in the place of the first; of equally old ones the last."""
    first, other = row(utc="2026-01-01T00:00:00Z"), row("cublas")
    later = replace(first, utc="2026-01-02T00:00:00Z", median_s=7e-6)
    last = replace(later, median_s=6e-6)
    assert newest([first, other, later, last]) == (last, other)
    assert newest([last, other, first]) == (last, other)


def test_ratio_against_the_yardstick() -> None:
    """8 us against cuBLAS's 10 us is a ratio of 1.25, a roof of 2 us is a share of 0.25, twice the error is 2."""
    yardstick, own = rate([row("cublas", 10e-6, error=1e-3), row(median_s=8e-6, error=2e-3)])
    assert own.ratio is not None
    assert own.ratio.estimate == pytest.approx(1.25, rel=1e-3)
    assert own.ratio.low < 1.25 < own.ratio.high
    assert (own.roof_share, own.error_vs_yardstick) == pytest.approx((0.25, 2.0))
    assert own.why == ""
    assert yardstick.ratio is not None
    assert (yardstick.ratio.low, yardstick.ratio.high) == pytest.approx((1.0, 1.0))


def test_rows_of_one_visit_are_paired() -> None:
    """A slow swing that both rows share cancels, since i-th samples share a round; with other lengths it cannot."""
    swing = np.exp(0.1 * np.sin(np.arange(41)))
    rows = [row("cublas", 10e-6, samples_s=tuple(1e-5 * swing)), row(samples_s=tuple(8e-6 * swing))]
    paired = rate(rows)[1].ratio
    unpaired = rate([rows[0], replace(rows[1], samples_s=rows[1].samples_s[:30])])[1].ratio
    assert paired is not None
    assert unpaired is not None
    assert paired.high / paired.low < 1.0001
    assert unpaired.high / unpaired.low > 1.05


@pytest.mark.parametrize(
    "other",
    [{"cache": "hot"}, {"timer": "events"}, {"phase": "x"}, {"target": "sm_80"}, {"visit": "v2"}, {"case": "x"}],
)
def test_only_the_same_visit_gives_a_ratio(other: dict[str, Any]) -> None:
    """A yardstick in another cache state, of another timer, phase, target, visit or case gives no ratio, but why."""
    rated = rate([row("cublas", **other), row()])[1]
    assert rated.ratio is None
    assert rated.error_vs_yardstick is None
    assert "not sampled in the same rounds" in rated.why


def test_a_remeasured_row_meets_the_yardstick_of_its_own_visit() -> None:
    """When a visit is repeated for one implementation, rows of the first visit keep its yardstick."""
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    rows = [
        row("cublas", 10e-6, utc=early),
        row("kept", 5e-6, utc=early),
        row("again", None, status="error", utc=early),
        row("cublas", 20e-6, utc=late, visit="v2"),
        row("again", 5e-6, utc=late, visit="v2"),
    ]
    rated = {found.row.implementation: found for found in rate(rows)}
    assert len(rated) == 3
    assert rated["kept"].ratio is not None
    assert rated["kept"].ratio.estimate == pytest.approx(2.0, rel=1e-3)
    assert rated["again"].ratio is not None
    assert rated["again"].ratio.estimate == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize(
    ("yardstick", "own", "why"),
    [
        (row("cublas"), row(yardstick=""), "No yardstick"),
        (row("cublas", None, status="broken"), row(), "'cublas' is 'broken'"),
        (row("cublas"), row(median_s=None, status="timeout"), "status is 'timeout'"),
        (row("cublas"), row(samples_s=()), "not kept"),
        (row("cublas"), row(kind="count", value=3.0), "kind 'count'"),
    ],
)
def test_no_ratio_has_a_reason(yardstick: Row, own: Row, why: str) -> None:
    """Where there is no ratio, a sentence says why."""
    rated = rate([yardstick, own])[1]
    assert rated.ratio is None
    assert why in rated.why


@pytest.mark.parametrize(
    ("own", "of", "multiple"), [(2e-3, 1e-3, 2.0), (0.0, 0.0, 1.0), (1e-9, 0.0, math.inf), (None, 1.0, None)]
)
def test_error_against_the_yardstick(own: float | None, of: float, multiple: float | None) -> None:
    """An error is a multiple of the yardstick's; against an exact yardstick it is 1 if exact too, else infinite."""
    assert rate([row("cublas", error=of), row(error=own)])[1].error_vs_yardstick == multiple


def test_repro_measures_this_row() -> None:
    """The command names family, case, yardstick and implementation, cache, data and seed, and quotes for a shell."""
    own, odd = rate([row(seed=3, data="zeros"), row("cublas", case="a b", cache="")])
    assert own.repro == (
        "gemmgate run --family dense_splitk --case m32-n32-k32768-bf16 "
        "--impl cublas,triton_split_k --cache cold --data zeros --seed 3"
    )
    assert odd.repro == "gemmgate run --family dense_splitk --case 'a b' --impl cublas --data normal --seed 0"


def test_change_of_a_tenth_is_seen() -> None:
    """Ten percent more time is SLOWER, ten percent less FASTER, in the words of time."""
    old = row()
    slower, faster = only(old, slowed(old, 1.1)), only(old, slowed(old, 0.9))
    assert (slower.verdict, slower.reason) == (Verdict.SLOWER, "slower")
    assert (faster.verdict, faster.reason) == (Verdict.FASTER, "faster")
    assert slower.change == pytest.approx(0.1)
    assert faster.change == pytest.approx(-0.1)
    assert slower.ratio.estimate == pytest.approx(1 / 1.1)
    assert slower.sentence.startswith("10.0% more time [")
    assert faster.sentence.startswith("10.0% less time [")


def test_interval_carries_the_launch_noise_of_both_runs() -> None:
    """Quiet samples still leave 1.96 x sqrt(2) x 1 % of doubt between two launches, and board noise on top of it."""
    still = row(samples_s=(8e-6,) * 41)
    found, other = only(still, still), only(still, replace(still, board="c1d2"))
    assert math.log(found.ratio.high) == pytest.approx(1.959964 * math.sqrt(2) * 0.01)
    assert math.log(other.ratio.high) == pytest.approx(1.959964 * math.sqrt(2) * math.hypot(0.01, 0.02))
    assert (found.verdict, found.reason) == (Verdict.SAME, "no_change")
    assert (other.verdict, other.reason) == (Verdict.UNCLEAR, "other_board")
    assert "another board" in other.sentence


def test_change_below_the_size_of_interest_is_the_same() -> None:
    """Two percent more time, known exactly, is SAME at a size of interest of 3 % and SLOWER at 1 %."""
    old = row()
    new = slowed(old, 1.02)
    quiet = Thresholds(launch_sd=0.0)
    assert only(old, new, quiet).reason == "below_size"
    assert only(old, new, replace(quiet, size=0.01)).verdict is Verdict.SLOWER


def test_noise_is_unclear_and_says_what_would_have_shown() -> None:
    """Samples that spread by tens of percent give UNCLEAR with the smallest change that would have stood out."""
    old = row(samples_s=samples(8e-6, spread=0.2))
    found = only(old, replace(old, samples_s=samples(8.1e-6, spread=0.2, seed=5)))
    assert (found.verdict, found.reason) == (Verdict.UNCLEAR, "too_noisy")
    assert "would have stood out" in found.sentence


def test_many_rows_need_more_certainty() -> None:
    """Five percent alone is SLOWER; as one of 200 rows it is UNCLEAR by chance, and a tenth is SLOWER still."""
    rows = [row(case=f"m{i}") for i in range(200)]
    new = [slowed(rows[0], 1.05), slowed(rows[1], 1.1), *rows[2:]]
    found = compare(run(rows), run(new))
    assert only(rows[0], new[0]).verdict is Verdict.SLOWER
    assert (found[0].verdict, found[0].reason) == (Verdict.UNCLEAR, "chance")
    assert found[1].verdict is Verdict.SLOWER
    assert {c.verdict for c in found[2:]} == {Verdict.SAME}


def test_unchanged_code_raises_no_alarm() -> None:
    """Of 60 pairs of runs of 50 unchanged rows, 1 % launch noise and 1 % sample noise, at most two raise an alarm."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(60):
        sides = [
            [
                row(case=f"m{i}", samples_s=tuple(8e-6 * np.exp(rng.normal(0, 0.01) + rng.normal(0, 0.01, 30))))
                for i in range(50)
            ]
            for _ in range(2)
        ]
        found = compare(run(sides[0]), run(sides[1]))
        alarms += any(c.verdict in (Verdict.SLOWER, Verdict.FASTER) for c in found)
    assert alarms <= 2


@pytest.mark.parametrize(
    ("reason", "row_fields", "run_fields"),
    [
        ("machine", {"machine": "nvidia-a100"}, {}),
        ("machine", {"machine": ""}, {"machine": replace(H200, key="nvidia-a100")}),
        ("method", {"method": 99}, {}),
        ("case", {"dims": {"m": 32, "n": 32, "k": 16384}}, {}),
        ("precision", {"precision": "tf32"}, {}),
        ("flags", {"flags": {"allow_tf32": "1"}}, {}),
        ("timer", {"timer": "events"}, {}),
        ("cache", {"cache": "hot"}, {}),
        ("cache_proof", {"cache_proof": "failed"}, {}),
        ("data", {"data": "zeros"}, {}),
        ("seed", {"seed": 1}, {}),
        ("target", {"target": "sm_80"}, {}),
        ("stack", {}, {"stack": replace(STACK, torch="2.13.0")}),
    ],
)
def test_another_identity_is_incomparable(reason: str, row_fields: dict[str, Any], run_fields: dict[str, Any]) -> None:
    """Whatever differs in how a row was measured is named, and a tenfold time is not called slower."""
    found = only(row(), slowed(row(), 10, **row_fields), **run_fields)
    assert (found.verdict, found.reason) == (Verdict.INCOMPARABLE, reason)
    assert found.ratio is None
    assert "differs" in found.sentence


def test_stacks_are_compared_when_asked() -> None:
    """Across stacks the times are judged, and the sentence names what differs."""
    found = only(row(), slowed(row(), 1.2), Thresholds(across_stacks=True), stack=replace(STACK, torch="2.13.0"))
    assert found.verdict is Verdict.SLOWER
    assert "torch 2.11.0 -> 2.13.0" in found.sentence


def test_same_identity_is_matched_first() -> None:
    """Cold and hot rows, and those of two seeds, each meet their own; a lost one is missing, not another state."""
    cold, hot = row(), row(cache="hot")
    both = compare(run([cold, hot]), run([hot, cold]))
    assert [c.verdict for c in both] == [Verdict.SAME, Verdict.SAME]
    seeds = [row(seed=1), row(seed=2)]
    assert {c.verdict for c in compare(run(seeds), run(seeds[::-1]))} == {Verdict.SAME}
    lost = compare(run([cold, hot]), run([hot]))
    assert sorted((c.row.cache, c.reason) for c in lost) == [("cold", "missing"), ("hot", "no_change")]


@pytest.mark.parametrize(
    ("old", "new", "verdict", "reason"),
    [
        ("ok", "broken", Verdict.BROKEN, "broken"),
        ("broken", "broken", Verdict.BROKEN, "broken"),
        ("ok", "timeout", Verdict.INCOMPARABLE, "missing"),
        ("ok", "unsupported", Verdict.INCOMPARABLE, "missing"),
        ("error", "ok", Verdict.INCOMPARABLE, "new"),
        ("unsupported", "unsupported", Verdict.INCOMPARABLE, "not_measured"),
    ],
)
def test_rows_without_a_time(old: Any, new: Any, verdict: Verdict, reason: str) -> None:
    """Wrong is BROKEN whatever it was; a time that is gone is missing; one that appears is new."""
    before, after = row(status=old), row(status=new, detail="K must be even.")
    found = only(before, after)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert old in found.sentence or old == "ok"


def test_other_machine_is_named_before_a_lost_row() -> None:
    """A row that another machine does not support is INCOMPARABLE for the machine, not missing."""
    assert only(row(), row(status="unsupported", machine="cpu-x")).reason == "machine"


def test_rows_of_one_side() -> None:
    """A row that the candidate lacks is missing, one that the baseline lacks is new."""
    found = compare(run([row("a"), row("b")]), run([row("b"), row("c")]))
    assert [(c.row.implementation, c.reason) for c in found] == [("a", "missing"), ("b", "no_change"), ("c", "new")]


def test_changed_pick() -> None:
    """Another tile with another time is PICK_CHANGED; with the same time it is SAME with a note."""
    old = row(tile={"bm": 16})
    moved, still = only(old, slowed(old, 1.2, tile={"bm": 32})), only(old, slowed(old, 1.0, tile={"bm": 32}))
    assert (moved.verdict, moved.reason) == (Verdict.PICK_CHANGED, "slower")
    assert still.verdict is Verdict.SAME
    for found in (moved, still):
        assert "The pick changed: bm=16 -> bm=32." in found.sentence


def test_disturbed_rows_are_not_judged() -> None:
    """A slow-down beside another process is UNCLEAR, and so is one that vanishes in clock cycles."""
    old = row(sm_clock_hz=1.98e9)
    assert only(old, slowed(old, 1.2, marks=("shared",))).reason == "disturbed"
    assert only(old, slowed(old, 1.2, sm_clock_hz=1.65e9)).reason == "clock"
    assert only(old, slowed(old, 1.2, sm_clock_hz=1.98e9)).verdict is Verdict.SLOWER


def test_likely_cause() -> None:
    """The sentence says whether the device code changed, and the number of kernels."""
    old = row(device_code="aa", kernels=1)
    assert "device code is the same" in only(old, slowed(old, 1.2)).sentence
    changed = only(old, slowed(old, 1.2, device_code="bb", kernels=2)).sentence
    assert "device code changed" in changed
    assert "Kernels launched: 1 -> 2." in changed


def test_values_without_samples() -> None:
    """Equal counts are SAME; other counts are UNCLEAR with both values, for nothing says which way is better."""
    old = row(kind="count", value=12.0, unit="launches")
    assert only(old, old).verdict is Verdict.SAME
    found = only(old, replace(old, value=14.0))
    assert found.verdict is Verdict.UNCLEAR
    assert "12 -> 14 launches" in found.sentence
    assert only(row(samples_s=()), row(samples_s=())).reason == "no_samples"


def test_nothing_in_common() -> None:
    """Runs without a common row are a usage error that names what each has."""
    with pytest.raises(UsageError, match=r"baseline has 1 rows? of dense_splitk, the candidate 1 rows? of router"):
        compare(run([row()]), run([row(family="router")]))
    with pytest.raises(UsageError, match="no rows at all"):
        compare(run(), run([row()]))


def test_the_pure_half_needs_no_torch() -> None:
    """Importing what judges results imports neither torch nor triton."""
    modules = ["statistics", "compare", "gate", "records", "catalog", "report"]
    code = (
        f"import sys; import {', '.join('gemmgate.suite.' + name for name in modules)}; "
        "print([name for name in ('torch', 'triton') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
