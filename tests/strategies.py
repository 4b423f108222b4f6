"""Hypothesis strategies for rows and runs, with the values that files and JSON find hard."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from gemmgate.suite.records import MAX_SAMPLES, STATUSES, Limits, Machine, Row, RowKind, Run, Stack

texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.from_regex(r"[a-z0-9_.-]{1,12}", fullmatch=True)
integers = st.integers(-(2**63), 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.floats(allow_nan=False)
float32s = st.floats(width=32, allow_nan=False)
rates = st.dictionaries(names, finite, max_size=3)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """None or that."""
    return st.none() | strategy


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Any row that `Row` accepts. Samples are exact in float32, as a stored row's are."""
    kind = draw(st.sampled_from(get_args(RowKind)))
    status = draw(st.sampled_from(STATUSES))
    timed = kind == "time" and status == "ok"
    drawn: dict[str, Any] = {
        **{name: draw(texts) for name in ("reason", "detail", "layout", "epilogue", "origin", "data", "phase")},
        **{name: draw(names) for name in ("family", "case", "implementation", "cache", "timer", "target", "visit")},
        **{name: draw(names) for name in ("yardstick", "run_id", "machine", "board", "commit", "utc")},
        **{name: draw(texts) for name in ("unit", "algorithm", "device_code", "dtype", "precision", "cache_proof")},
        **{name: draw(integers) for name in ("flop", "bytes_moved", "seed", "method", "calls_per_sample")},
        **{name: draw(maybe(numbers)) for name in ("host_s", "eager_s", "value", "error", "error_worst_tile")},
        **{name: draw(maybe(numbers)) for name in ("error_bound", "roof_s", "sm_clock_hz", "power_w", "compile_s")},
        **{name: draw(maybe(numbers)) for name in ("check_s", "measure_s")},
        **{name: tuple(draw(st.lists(texts, max_size=3))) for name in ("tags", "kernel_names", "marks")},
    }
    return Row(
        **drawn,
        kind=kind,
        status=status,
        dims=draw(st.dictionaries(names, integers, max_size=3)),
        flags=draw(st.dictionaries(names, texts, max_size=3)),
        tile=draw(maybe(st.dictionaries(names, integers | texts | st.booleans(), max_size=3))),
        kernels=draw(maybe(integers)),
        median_s=draw(finite) if timed else None,
        low_s=draw(finite) if timed else None,
        high_s=draw(finite) if timed else None,
        samples_s=tuple(draw(st.lists(float32s, max_size=MAX_SAMPLES))),
    )


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A run without rows, whose id and machine key can name a file and a folder."""
    return Run(
        id=draw(names),
        utc=draw(texts),
        commit=draw(texts),
        dirty=draw(st.booleans()),
        machine=Machine(key="cpu-" + draw(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)), model=draw(texts)),
        stack=Stack(python=draw(texts), torch=draw(texts), threads=draw(st.integers(0, 512))),
        limits=Limits(bytes_per_s=draw(finite), flop_per_s=draw(rates), launch_floor_s=draw(finite)),
        selection={"families": draw(st.lists(texts, max_size=2))},
        command=draw(texts),
        seconds=draw(rates),
    )
