"""Compiling beforehand on a GPU: the worker that measures finds the binaries of workers without a device."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from gemmgate.suite import cli, warming
from gemmgate.suite.catalog import Selection, find
from gemmgate.suite.store import Store
from gemmgate.suite.tuning.pool import WITHOUT_DEVICE
from gemmgate.suite.workers import Worker, private_caches

pytestmark = pytest.mark.gpu
CASES = ("m16-n16-k4096-bf16", "m16-n16-k8192-bf16", "m32-n32-k4096-fp16", "m32-n32-k8192-fp32")
NAMES = ("cublas", "triton_split_k", "dispatch")


def command(folder: Path, *more: str) -> None:
    """`gemmgate run` of these cases, hot, without an error."""
    asked = ["--family", "dense_splitk", "--case", ",".join(CASES), "--impl", ",".join(NAMES), "--cache", "hot"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["gemmgate", "run", *asked, "--results", str(folder / "results"), *more])
        with pytest.raises(SystemExit) as end:
            cli.main()
    assert not end.value.code


def test_binaries_compiled_beforehand_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run after its workers without a device makes no binary of a kernel that they made."""
    monkeypatch.setenv("GEMMGATE_CACHE", str(tmp_path / "caches"))
    cache = Path(private_caches()["TRITON_CACHE_DIR"])
    choices = warming.without_device(find().select(Selection(("dense_splitk",), CASES, NAMES)))
    assert len(choices) == len(CASES)
    (tmp_path / "claims").mkdir()
    asked = Worker("cuda")
    asked.kill()
    known = warming.Known(cache, asked.kernels_tree, (), asked.target)
    start = partial(Worker, "cpu", warm=True, environment=WITHOUT_DEVICE)
    do = partial(warming.compile_only, asked.target, tmp_path / "claims", known)
    warmed = warming.warm([warming.Crew(choices, 4, start, do, False)])
    assert (warmed.cases, warmed.problem) == (len(CASES), "")
    made = set(cache.rglob("*.cubin"))
    assert made
    command(tmp_path, "--compile-workers", "0")
    after = set(cache.rglob("*.cubin"))
    assert made <= after
    assert not {path.name for path in after - made} & {path.name for path in made}
    rows = Store(tmp_path / "results").load("latest").rows
    assert {row.status for row in rows if row.implementation != "cublas"} == {"ok"}


def test_a_run_compiles_beforehand_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of some cases says how long its workers compiled, the second has nothing left for them.

    Among its worker's steps is that it started, which takes seconds.
    """
    monkeypatch.setenv("GEMMGATE_CACHE", str(tmp_path / "caches"))
    for _ in range(2):
        command(tmp_path, "--compile-workers", "4")
    first, second = sorted((tmp_path / "results").rglob("*.parquet"))
    store = Store(tmp_path / "results")
    assert store.load(str(first)).seconds["warming"] > 0
    assert store.load(str(first)).seconds["hello"] > 0
    assert "warming" not in store.load(str(second)).seconds
