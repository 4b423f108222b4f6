"""Parts of compiling for GPUs that are not here: children, refusals, a full disk, entries that are looked at."""

from __future__ import annotations

import ast
import errno
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gemmgate.suite.cases import Case, Implementation, Target
from gemmgate.suite.catalog import Selection
from gemmgate.suite.compiling import plan, pool
from gemmgate.suite.compiling.facts import FactStore
from gemmgate.suite.compiling.legality import tuned_refusal
from gemmgate.suite.compiling.pool import Child
from gemmgate.suite.errors import CannotMeasureError
from gemmgate.suite.workers import own_overlay
from tests.planted import targets


def test_a_refusal_of_triton_keeps_its_sentence_and_line() -> None:
    """Where a called function is at fault, the sentence and the line are those in it, and not the mark below a call."""
    from triton.compiler.errors import CompilationError

    from gemmgate.suite.compiling.driver import said

    outer, inner = "def kernel(x):\n    return helper(x)", "def helper(x):\n    y = x + 1\n    return tl.dot(x, y)"
    call, dot = (ast.parse(source).body[0].body[-1] for source in (outer, inner))  # type: ignore[attr-defined]
    cause = CompilationError(inner, dot, "Input shapes should have\nM >= 16, got 8")
    with pytest.raises(CompilationError) as raised:
        raise CompilationError(outer, call, None) from cause
    assert str(raised.value).splitlines()[-1].strip() == "^"
    assert said(raised.value) == "Input shapes should have M >= 16, got 8 (line 3: `return tl.dot(x, y)`)"
    with pytest.raises(CompilationError) as alone:
        raise CompilationError(outer, call, None) from AssertionError("a plain cause")
    assert said(alone.value) == "a plain cause (line 2: `return helper(x)`)"
    assert said(CompilationError(outer, call, None)) == "CompilationError (line 2: `return helper(x)`)"
    assert said(RuntimeError("PTXAS error\nstderr:\nptxas fatal : (C7600) no")) == "(C7600) no"


def test_a_cache_that_is_a_file_knows_nothing(tmp_path: Path) -> None:
    """Where no folder can be, nothing is remembered, and that is no error of who asks."""
    (tmp_path / "file").touch()
    store = FactStore(tmp_path / "file")
    assert (store.read_kernel("key"), store.read_request("key")) == (None, None)
    store.write_request("key", [])


def test_a_cache_without_space_remembers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk a request is not remembered, no half file is left, and nothing fails for that."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = FactStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", refuse)
        store.write_request("key", [{"family": "static"}])
    assert store.read_request("key") is None and not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_nothing_to_compile_is_an_error(tmp_path: Path) -> None:
    """An implementation that launches no kernel of its own has nothing to show."""
    request = plan.Request(Selection(implementations=("cublas",)), targets("sm_90"))
    with pytest.raises(CannotMeasureError, match="launches a Triton kernel"):
        plan.compile_rows(request, own_overlay(), tmp_path, 1)


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer in time there is a status instead, and no process."""
    child = Child(own_overlay(), (), tmp_path)
    monkeypatch.setattr(pool, "DEADLINE_S", 0.001)
    reply = child.ask("list", selection=Selection().to_json())
    assert (reply["status"], reply["reason"], child.is_alive) == ("timeout", "deadline", False)


def test_other_kernels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that imports other kernels than those of its side, or none, compiles nothing."""
    monkeypatch.setattr(pool.catalog, "tree_hash", lambda folder: "other")
    with pytest.raises(CannotMeasureError, match="imported other kernels"):
        Child(own_overlay(), (), tmp_path)
    with pytest.raises(CannotMeasureError, match="cannot be compiled here"):
        Child(tmp_path, (), tmp_path)


@pytest.mark.parametrize(
    ("key", "entry", "said"),
    [
        ("k/own", {"implementation": "own", "tile": {"block_k": 64, "num_warps": 3}}, "power of two up to 32, got 3"),
        ("k/own", {"implementation": "own", "tile": {"block_k": 64, "num_warps": 64}}, "power of two up to 32, got 64"),
        ("k/own", {"implementation": "own", "tile": {"block_k": 0, "num_warps": 4}}, "block_k must be a whole number"),
        ("k/own", {"implementation": "own", "tile": {"block_k": 64}}, "fields block_k, num_warps, got block_k"),
        (
            "k/own",
            {"implementation": "other", "tile": {"block_k": 64, "num_warps": 4}},
            "of the implementation 'other'",
        ),
        ("k/own", {"implementation": "own", "tile": None}, "has no tile"),
        ("k/own", {"implementation": "own", "tile": {"block_k": 64, "num_warps": 4}}, ""),
        ("k", {"implementation": "own", "tile": {"block_k": 64, "num_warps": 3}}, "got 3"),
        ("k", {"implementation": "own", "tile": None}, ""),
    ],
)
def test_an_entry_is_looked_at_without_compiling(key: str, entry: dict[str, Any], said: str) -> None:
    """A launch that Triton never takes, fields that no tile has, and a contradiction to the key are refused."""

    def tiles(case: Case, target: Target) -> list[dict[str, int]]:
        return [{"block_k": 32, "num_warps": 4}]

    def never(*_: object) -> NoReturn:
        raise AssertionError("it was prepared")

    found = Implementation("own", "own", True, lambda case, target: None, never, tiles=tiles)
    refusal = tuned_refusal(found, Case("f", "k", {"k": 1}, "bf16", "acc32"), Target("sm_90"), key, entry)
    assert (refusal is None) == (not said) and (refusal is None or said in refusal[1]), refusal


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are fixed on Linux alone")
def test_what_a_compiling_process_starts_has_fixed_addresses(tmp_path: Path) -> None:
    """Programs that such a process starts have their stacks at one place, and every child is such a process."""
    script = (
        "import subprocess\n"
        "from gemmgate.suite.compiling.reproducible import fix_addresses\n"
        "print(fix_addresses(), flush=True)\n"
        "for _ in range(3):\n"
        "    subprocess.run(['cat', '/proc/self/maps'])\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    allowed, _, maps = said.partition("\n")
    if allowed != "True":
        pytest.skip("fixed addresses are forbidden here")
    stacks = [line.partition(" ")[0] for line in maps.splitlines() if line.endswith("[stack]")]
    assert (len(stacks), len(set(stacks))) == (3, 1)
    child = Child(own_overlay(), (), tmp_path)
    try:
        assert int(Path(f"/proc/{child._process.pid}/personality").read_text(), 16) & 0x0040000
    finally:
        child.close()
