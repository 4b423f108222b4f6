"""Compiling without a device: the binaries are those that a launch looks for, and each is made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgate.kernels.dense_splitk import FAMILY
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Item
from gemmgate.suite.tuning.candidates import Candidate
from gemmgate.suite.tuning.gpu import compile_ahead, compiled_key
from gemmgate.suite.tuning.pool import WITHOUT_DEVICE, Pool
from gemmgate.suite.workers import Worker, WorkerLost

ROOT = Path(__file__).resolve().parents[1]
H200 = Target("sm_90", "NVIDIA H200", sm_count=132, shared_bytes=232448)
ITEM = Item(FAMILY, FAMILY.cases[0], "triton_split_k")
TILE = {"block_m": 16, "block_n": 16, "block_k": 64, "num_warps": 2, "num_stages": 3, "reduce_block": 32}


def test_binaries_are_those_of_a_launch(tmp_path: Path) -> None:
    """A launch on memory finds in Triton's cache what was compiled on tensors without memory, odd sizes included."""
    first, again, odd, odd_again = _printed("compile_split_k_ahead.py", tmp_path)
    assert (first["binaries"], again["binaries"], odd["binaries"], odd_again["binaries"]) == (2, 2, 4, 4)
    assert first["kernels"] == again["kernels"] and odd["kernels"] == odd_again["kernels"]
    assert len(first["kernels"]) == 2 and all(first["kernels"].values())
    assert not set(first["kernels"]) & set(odd["kernels"])


def test_a_function_among_constants_is_compiled_ahead(tmp_path: Path) -> None:
    """A kernel whose activation is a constant is compiled ahead where Triton cannot spell a function for its hooks."""
    answer = _printed("compile_epilogue_ahead.py", tmp_path)
    assert "failed" not in answer, answer["failed"]
    assert len(answer["kernels"]) == len(list(tmp_path.rglob("*.cubin"))) == 2


def _printed(script: str, cache: Path) -> Any:
    """What a script of these tests prints, in a process of its own with that cache."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(ROOT / "tests" / script)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def compiled(folder: Path, chosen: list[Candidate], count: int) -> tuple[Pool, list[dict[str, Any]]]:
    """What so many compilers answer for these tiles with that cache."""
    environment = {**WITHOUT_DEVICE, "TRITON_CACHE_DIR": str(folder)}
    pool = Pool(partial(Worker, "cpu", warm=True, environment=environment), count)
    pool.target = H200
    try:
        for one in chosen:
            compile_ahead(pool, ITEM, one, 0.0)
        replies = pool.wait(compiled_key(ITEM, one) for one in chosen)
        return pool, [replies[compiled_key(ITEM, one)] for one in chosen]
    finally:
        pool.close()


def test_each_binary_is_made_once(tmp_path: Path) -> None:
    """Four tiles that differ in ranges and sums alone are one product and two sums: three binaries, not eight.

    A later tuning with the same cache makes none of them again.
    """
    tiles = [{**TILE, "splits": splits, "reduce_block": block} for splits in (2, 4) for block in (32, 64)]
    chosen = [Candidate(tile, 0.0) for tile in tiles]
    pool, replies = compiled(tmp_path, chosen, 2)
    kernels = {kernel for reply in replies for kernel in reply["kernels"]}
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")}
    assert [reply["failed"] for reply in replies] == [None] * 4
    assert len(kernels) == pool.compiled == len(made) < 8
    _, again = compiled(tmp_path, chosen, 1)
    assert [reply["failed"] for reply in again] == [None] * 4
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")} == made


def test_who_claims_a_kernel_first_compiles_it(tmp_path: Path) -> None:
    """Of two processes with one folder only the first compiles a kernel; without a folder each compiles its own."""
    from gemmgate.suite.measure.compile_only import Claims

    told: list[str] = []
    function = SimpleNamespace(module="kernels", name="product")
    one, other = (Claims(tmp_path, told.append) for _ in range(2))
    assert [claims.passes_over(key="16x16", fn=function) for claims in (one, other)] == [False, True]
    assert other.passes_over(key="32x32", fn=function) is False
    assert one.kernels.keys() < other.kernels.keys() and list(other.kernels.values()) == [False, True]
    assert told == [*one.kernels, *(set(other.kernels) - set(one.kernels))]
    assert not any(Claims(None, told.append).passes_over(key="16x16", fn=function) for _ in range(2))


class FakeWorker:
    """Answers as a script says."""

    pid = 2**22 + 1  # of no process

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._answer = answer

    def ask(self, op: str, deadline_s: float, **fields: Any) -> dict[str, Any]:
        return {"ok": True, **self._answer(fields)}

    def kill(self) -> None:
        """Nothing to end."""


@pytest.fixture
def make_pool() -> Iterator[Callable[..., Pool]]:
    """Pools of fake workers, closed at the end."""
    pools: list[Pool] = []

    def make(answer: Callable[[dict[str, Any]], dict[str, Any]], count: int = 1) -> Pool:
        start: Any = partial(FakeWorker, answer)
        pools.append(Pool(start, count))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def submit(pool: Pool, *names: str) -> None:
    for place, name in enumerate(names):
        pool.submit(name, "compile", ITEM, float(place), tile={"name": name})


def test_a_kernel_claimed_elsewhere_is_waited_for(make_pool: Callable[..., Pool]) -> None:
    """A tile whose kernel another process compiles is ready when that one is, and not before."""
    begun, finish = threading.Event(), threading.Event()

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        if fields["tile"]["name"] == "first":
            begun.set()
            assert finish.wait(10)
            return {"kernels": {"k": True}}
        return {"kernels": {"k": False}}

    pool = make_pool(answer, 2)
    submit(pool, "first")
    assert begun.wait(10)
    submit(pool, "second")
    waited = threading.Thread(target=pool.wait, args=(["second"],))
    waited.start()
    waited.join(0.2)
    assert waited.is_alive()
    finish.set()
    waited.join(10)
    assert not waited.is_alive()


def test_a_lost_compiler_costs_its_tile_and_who_shares_the_kernel(make_pool: Callable[..., Pool]) -> None:
    """A compiler that dies is replaced; the kernel it was at fails for all, those it had finished do not."""

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        name = fields["tile"]["name"]
        if name == "kills":
            raise WorkerLost("error", "sigabrt", "it ended", {"step": "done dead"})
        return {"kernels": {"shares": {"dead": False}, "lives": {"done": False}}.get(name, {"own": True})}

    pool = make_pool(answer)
    submit(pool, "kills", "shares", "lives", "other")
    replies = pool.wait(["kills", "shares", "lives", "other"])
    assert replies["kills"]["failed"]["reason"] == "sigabrt"
    assert replies["shares"]["failed"]["reason"] == "does_not_compile"
    assert replies["lives"]["failed"] is None and replies["other"]["failed"] is None


def test_what_fails_is_an_answer(make_pool: Callable[..., Pool]) -> None:
    """An error of the compiler, of the worker and of this process each fail their tile alone."""

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        name = fields["tile"]["name"]
        if name == "raises":
            raise ValueError("a bug")
        if name == "refuses":
            return {"ok": False, "status": "error", "reason": "LookupError", "detail": "no such operation"}
        if name == "wrong":
            failed = {"status": "error", "reason": "CompilationError", "detail": "bad"}
            return {"kernels": {"a": True, "b": True}, "failed": failed}
        return {"kernels": {"a": False}}

    pool = make_pool(answer)
    submit(pool, "raises", "refuses", "wrong", "fine")
    replies = pool.wait(["raises", "refuses", "wrong", "fine"])
    reasons = {key: reply["failed"] and reply["failed"]["reason"] for key, reply in replies.items()}
    assert reasons == {"raises": "ValueError", "refuses": "LookupError", "wrong": "CompilationError", "fine": None}


def test_a_worker_is_kept_for_what_cannot_wait(make_pool: Callable[..., Pool]) -> None:
    """Of four workers three are at work for later cases; what the present case then asks for is answered at once."""
    begun, go = threading.Semaphore(0), threading.Event()

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        begun.release()
        assert fields["tile"]["name"] == "now" or go.wait(10)
        return {"kernels": {}}

    pool = make_pool(answer, 4)
    pool.advance(0)
    for place in range(6):
        pool.submit(place, "compile", ITEM, 1.0 + place, tile={"name": str(place)})
    assert all(begun.acquire(timeout=10) for _ in range(3)) and not begun.acquire(timeout=0.1)
    pool.submit("now", "compile", ITEM, 0.5, tile={"name": "now"})
    assert pool.wait(["now"])["now"]["failed"] is None
    pool.advance(4)
    assert begun.acquire(timeout=10) and begun.acquire(timeout=10)
    go.set()
    assert [reply["failed"] for reply in pool.wait(range(6)).values()] == [None] * 6


def test_urgent_requests_come_first_and_none_twice(make_pool: Callable[..., Pool]) -> None:
    """Of waiting requests the one with the smallest priority is next, by the smallest asked for, and once; what has not
    come yet is said to be missing.
    """
    order: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        assert go.wait(10)
        order.append(fields["tile"]["name"])
        return {"kernels": {}}

    pool = make_pool(answer)
    submit(pool, "blocks")
    assert begun.wait(10)
    for name, priority in (("late", 3.0), ("soon", 4.0), ("middle", 2.0), ("soon", 0.0)):
        pool.submit(name, "compile", ITEM, priority, tile={"name": name})
    assert pool.said("soon") is None
    go.set()
    pool.wait(["late"])
    assert pool.said("soon") is not None
    assert order == ["blocks", "soon", "middle", "late"]
