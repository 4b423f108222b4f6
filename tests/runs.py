"""Runs made by hand: rows with known times, so that every expected number can be worked out on paper."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmgate.suite.records import Limits, Machine, Row, Run, Stack

H200 = Machine(
    key="nvidia-h200-141g-700w", model="NVIDIA H200", memory_bytes=141 << 30, power_limit_w=700, board="b0a2"
)
STACK = Stack(python="3.11.9", torch="2.11.0", triton="3.6.0", cuda="13.0", driver="580.65", cublas="13.1")
LIMITS = Limits(bytes_per_s=4e12, flop_per_s={"bf16": 700e12, "fp32.tf32": 350e12, "fp32.ieee": 50e12})


def samples(median_s: float, *, spread: float = 0.002, n: int = 41, seed: int = 0) -> tuple[float, ...]:
    """Log-normal quantiles around a median, shuffled: independent by construction, the median exact for odd `n`."""
    quantiles = np.linspace(-2, 2, n)
    return tuple(float(x) for x in median_s * np.exp(spread * np.random.default_rng(seed).permutation(quantiles)))


def row(implementation: str = "triton_split_k", median_s: float | None = 8e-6, **fields: Any) -> Row:
    """An ok time row of a bf16 32 x 32 x 32768 case unless fields say otherwise; `samples_s` defaults to `samples`."""
    status = fields.get("status", "ok")
    kind = fields.get("kind", "time")
    defaults: dict[str, Any] = {
        "family": "dense_splitk",
        "case": "m32-n32-k32768-bf16",
        "tags": ("quick", "tritonbench"),
        "dims": {"m": 32, "n": 32, "k": 32768},
        "dtype": "bf16",
        "precision": "acc32",
        "layout": "row",
        "epilogue": "none",
        "flop": 2 * 32 * 32 * 32768,
        "bytes_moved": 2 * 2 * 32 * 32768 + 2 * 32 * 32,
        "cache": "cold",
        "cache_proof": "proven",
        "timer": "graph",
        "data": "normal",
        "visit": "v1",
        "yardstick": "cublas",
        "target": "sm_90",
        "machine": H200.key,
        "board": H200.board,
        "commit": "0a1b2c3d4e5f",
        "utc": "2026-01-31T12:00:00Z",
        "run_id": "20260131T120000Z-0a1b2c3d4e",
    }
    if status == "ok" and kind == "time":
        assert median_s is not None
        defaults |= {
            "median_s": median_s,
            "low_s": median_s * 0.999,
            "high_s": median_s * 1.001,
            "samples_s": samples(median_s, seed=sum(map(ord, implementation))),
            "calls_per_sample": 20,
            "error": 3e-3,
            "error_bound": 4e-3,
            "kernels": 1,
            "roof_s": 2e-6,
        }
    return Row(implementation=implementation, **{**defaults, **fields})


def run(rows: Sequence[Row] = (), **fields: Any) -> Run:
    """A run on one H200 unless fields say otherwise."""
    defaults: dict[str, Any] = {
        "id": "20260131T120000Z-0a1b2c3d4e",
        "utc": "2026-01-31T12:00:00Z",
        "commit": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        "dirty": False,
        "machine": H200,
        "stack": STACK,
        "limits": LIMITS,
        "seconds": {"compiling": 12.5, "checking": 3.25, "measuring": 41.0, "waiting": 1.5},
    }
    return Run(**{**defaults, **fields}, rows=tuple(rows))
