"""Kernels compiled for GPUs that are not here: what is read of them, and what a planted fault shows."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite.catalog import Selection
from gemmgate.suite.compiling import plan
from gemmgate.suite.compiling.base import commit_named, overlay_of
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import Row, Run
from gemmgate.suite.store import Store
from gemmgate.suite.workers import own_overlay
from tests.planted import PLANTED, entry, selected, targets
from tests.program import Invoke, Result, invoke, store

__all__ = ["invoke", "store"]

FAULTS = """
OPTIONS = {
    "steady": {"num_warps": 4, "num_stages": 3},
    "spiller": {"num_warps": 4, "num_stages": 3, "maxnreg": 56},
    "oversize": {"num_warps": 4, "num_stages": 16},
    "fallback": {"num_warps": 2, "num_stages": 3},
}
"""
"""As `variant.py` of the planted family: a spill, a tile too large, and too few warps for wgmma."""
COMPARED = "steady,spiller,oversize,fallback"


@dataclass(frozen=True)
class Compiled:
    """Rows of the planted family by implementation and target, and the folder that remembers them."""

    rows: dict[tuple[str, str], Row]
    cache: Path
    request: plan.Request


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """All but what fails, for one GPU with mma and one with wgmma."""
    cache = tmp_path_factory.mktemp("cache")
    request = plan.Request(
        selected("steady", "spiller", "oversize", "fallback", "refuser", "idle"),
        targets("sm_80", "sm_90", "sm_100"),
        ("rule",),
        (PLANTED,),
    )
    rows = plan.compile_rows(request, own_overlay(), cache, 2)
    return Compiled({(row.implementation.partition("/")[2], row.target): row for row in rows}, cache, request)


def tool(cache: Path, name: str, *options: str) -> str:
    """What a program of NVIDIA's says of the one cubin for Hopper in Triton's cache."""
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    made = {path: json.loads(path.with_suffix(".json").read_text()) for path in cache.rglob("*.cubin")}
    (cubin,) = (path for path, said in made.items() if said["target"]["arch"] == 90)
    return subprocess.run([path, *options, cubin], capture_output=True, text=True, check=True).stdout


def test_facts_are_those_of_other_tools(compiled: Compiled) -> None:
    """Registers and stack agree with cuobjdump, the number of instructions with a listing of the whole file."""
    row = compiled.rows["steady", "sm_90"]
    usage = tool(compiled.cache, "cuobjdump", "--dump-resource-usage")
    assert f"REG:{row.registers} STACK:{row.stack_bytes} " in usage
    listing = [line for line in tool(compiled.cache, "nvdisasm", "-c").splitlines() if line.lstrip().startswith("/*")]
    assert row.instructions is not None
    assert row.instructions["all"] == sum("NOP" not in line for line in listing)
    assert row.instructions["wgmma"] == sum("GMMA" in line for line in listing) > 0


def test_rows_say_what_the_compiler_made(compiled: Compiled) -> None:
    """The same source uses each architecture's own tensor-core instructions, and three stages of 16 KiB."""
    rows = [compiled.rows["steady", target] for target in ("sm_80", "sm_90", "sm_100")]
    assert [row.tensor_core for row in rows] == ["mma", "wgmma", "tcgen05"]
    assert [row.status for row in rows] == ["ok"] * 3
    assert all(row.kind == "static" and row.phase == "_product" and row.spill_bytes == 0 for row in rows)
    assert rows[1].shared_bytes == 3 * 2 * 64 * 64 * 2
    assert (rows[1].resident_blocks, rows[1].resident_warps, rows[1].resident_limit) == (4, 16, "shared memory")
    assert rows[2].tensor_memory == 64
    assert (rows[1].value, rows[1].unit) == (rows[1].registers, "registers")
    assert rows[1].tile == {"block_k": 64} and rows[1].flags == {"tile": "rule"}
    assert {"ttir", "ttgir", "llir", "ptx", "cubin"} < set(rows[1].stages_s or {})
    assert len({row.id for row in compiled.rows.values()}) == len(compiled.rows)


def test_equal_launches_have_equal_code(compiled: Compiled) -> None:
    """Two implementations that launch one kernel alike have the same code, on another architecture another."""
    shas = {name: compiled.rows[name, "sm_90"].cubin_sha for name in ("steady", "spiller")}
    assert shas["steady"] == shas["spiller"] != compiled.rows["steady", "sm_80"].cubin_sha


def test_a_compiler_that_aborts_costs_its_row(compiled: Compiled) -> None:
    """What ends its process is not supported, by the name of the signal, and what comes after it compiles."""
    selection = Selection(("planted",), ("k*",), ("fallback", "aborter"))
    request = plan.Request(selection, targets("sm_90"), ("rule",), (PLANTED,))
    rows = plan.compile_rows(request, own_overlay(), compiled.cache, 1)
    assert [row.status for row in rows] == ["ok", "unsupported"] * 2
    assert rows[1].reason == "compiler_died" and "SIGABRT" in rows[1].detail


def test_an_end_of_the_compiler_is_not_remembered(compiled: Compiled, tmp_path: Path) -> None:
    """Who is killed from outside is an error, who crashes is not supported, and neither outlives its cause."""
    suite, cause = tmp_path / "ended", tmp_path / "cause"
    shutil.copytree(PLANTED, suite)
    path = suite / "planted" / "launches.py"
    source = path.read_text().replace('name == "aborter"', f'os.path.exists("{cause}")')
    number = f'{signal.SIGKILL.value} if case.dims["k"] == 4096 else {signal.SIGSEGV.value}'
    path.write_text(source.replace("os.abort()", f"os.kill(os.getpid(), {number})"))
    cause.touch()
    request = plan.Request(Selection(("planted",), ("k*",), ("steady",)), targets("sm_90"), ("rule",), (suite,))
    rows = plan.compile_rows(request, own_overlay(), compiled.cache, 1)
    assert [(row.status, row.reason) for row in rows] == [("error", "compiler_died"), ("unsupported", "compiler_died")]
    assert "SIGKILL" in rows[0].detail and "SIGSEGV" in rows[1].detail
    cause.unlink()
    again = plan.compile_rows(request, own_overlay(), compiled.cache, 1)
    assert [row.status for row in again] == ["ok", "ok"]


def test_refusals_have_a_row_and_idle_ones_none(compiled: Compiled) -> None:
    """What refuses says so for each target; what launches nothing has nothing to show."""
    refused = compiled.rows["refuser", "sm_90"]
    assert (refused.status, refused.reason, refused.detail) == ("unsupported", "never", "It takes no case.")
    assert ("idle", "sm_90") not in compiled.rows


def test_what_did_not_change_is_not_compiled_again(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was answered is answered again without a process; another one needs one."""
    monkeypatch.setattr(plan, "Child", lambda *_: pytest.fail("a process was started"))
    again = plan.compile_rows(compiled.request, own_overlay(), compiled.cache, 2)
    assert {(row.implementation.partition("/")[2], row.target): row for row in again} == compiled.rows


def test_a_kernel_is_compiled_once_for_all_requests(compiled: Compiled) -> None:
    """Another request that needs the same kernel reads what its compilation took the first time."""
    request = plan.Request(selected("steady"), targets("sm_90"), ("rule",), (PLANTED,))
    (row,) = plan.compile_rows(request, own_overlay(), compiled.cache, 1)
    assert row.stages_s == compiled.rows["steady", "sm_90"].stages_s


def test_lost_facts_are_found_again(compiled: Compiled) -> None:
    """Where Triton remembers a kernel and we do not, the assembler is asked again."""
    shutil.rmtree(next(compiled.cache.glob("form-*")) / "kernels")
    request = plan.Request(selected("spiller"), targets("sm_90"), ("rule",), (PLANTED,))
    (row,) = plan.compile_rows(request, own_overlay(), compiled.cache, 1)
    assert row.registers == compiled.rows["spiller", "sm_90"].registers
    assert row.instructions == compiled.rows["spiller", "sm_90"].instructions


def test_all_tiles_are_rows_of_their_own(compiled: Compiled) -> None:
    """`all` compiles the tile space, each tile by its words; AMD's code has registers and no occupancy."""
    request = plan.Request(selected("steady"), targets("sm_80", "gfx942"), ("all",), (PLANTED,))
    rows = plan.compile_rows(request, own_overlay(), compiled.cache, 2)
    assert [row.flags["tile"] for row in rows] == ["block_k=32", "block_k=64", "block_k=128"] * 2
    assert [row.tile for row in rows][:3] == [{"block_k": size} for size in (32, 64, 128)]
    assert all(row.registers and row.status == "ok" for row in rows)
    assert [row.resident_warps is None for row in rows] == [False] * 3 + [True] * 3


def test_options_of_one_vendor_stay_there(invoke: Invoke, compiled: Compiled) -> None:
    """The routers' kernels, which limit registers on NVIDIA's GPUs, compile for AMD's, which know no such option."""
    options = ("--case", "mixtral-8x7b-t1-bf16,deepseek-v3-t4-bf16", "--target", "gfx942", "--tile", "rule")
    result = invoke("static", "--family", "router,router_topk", *options, "--cache", str(compiled.cache))
    assert result.exit_code == 0, result.stdout + result.stderr


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """The same family with a fault in each launch but one."""
    folder = tmp_path / "faulty"
    shutil.copytree(PLANTED, folder)
    (folder / "planted" / "variant.py").write_text(FAULTS)
    return folder


@pytest.fixture
def quick(invoke: Invoke, compiled: Compiled) -> Invoke:
    """`gemmgate static` on the planted family, which remembers what was compiled."""

    def run(suite: Path, *arguments: str) -> Result:
        options = ("--cache", str(compiled.cache), "--target", "sm_80,sm_90", "--tile", "rule", "--jobs", "2")
        return invoke("static", "--suite", str(suite), "--family", "planted", *options, *arguments)

    return run


def latest(store: Store) -> Run:
    return store.load("latest:static")


def test_planted_faults_are_found(quick: Invoke, store: Store, faulty: Path) -> None:
    """Against the sound run, the spill, the tile that does not fit and the loss of wgmma fail, and nothing else."""
    sound = quick(PLANTED, "--impl", COMPARED)
    assert sound.exit_code == 0 and "wgmma 64r 16w" in sound.stdout
    judged = quick(faulty, "--impl", COMPARED, "--against", latest(store).id, "--format", "markdown")
    assert judged.exit_code == 1
    lines = [line for line in judged.stdout.splitlines() if line.startswith("| ")][2:]
    found = {tuple(cell.strip(" *") for cell in line.strip("| ").split("|")[1:6:2]) for line in lines}
    assert ("spills", "k4096-bf16", "sm_80") in found  # wgmma needs more registers than 56, so sm_90 does not compile
    assert ("missing", "k4096-bf16", "sm_90") in found
    assert ("tensor_core", "k4096-bf16", "sm_90") in found
    names = {line.split("|")[3].strip() for line in lines}
    assert names == {f"planted/{name}" for name in ("spiller", "oversize", "fallback")}
    assert "needs 262144 bytes of shared memory a block; sm\\_90" in judged.stdout.replace("sm_90", "sm\\_90")
    assert "2 with the same code" in judged.stdout


def test_unchanged_code_passes(quick: Invoke, store: Store) -> None:
    """The same kernels against their own run pass, also where that run holds more than is asked for now."""
    quick(PLANTED, "--impl", COMPARED)
    judged = quick(PLANTED, "--impl", "steady,fallback", "--against", "latest:static")
    assert (judged.exit_code, "4 with the same code" in judged.stdout) == (0, True)


def test_a_crash_of_ours_cannot_be_judged(quick: Invoke) -> None:
    """An error that is no refusal ends with exit code 3, with the row stored and said."""
    result = quick(PLANTED, "--impl", "steady,raiser")
    assert result.exit_code == 3
    assert "planted/raiser k4096-bf16 sm_80: 'planted'" in result.stderr


@pytest.mark.parametrize(
    ("line", "said"), [("def (", "SyntaxError"), ("import nosuchmodule", "No module named 'nosuchmodule'")]
)
def test_a_module_that_cannot_be_imported_is_named(quick: Invoke, tmp_path: Path, line: str, said: str) -> None:
    """What compiled before and can no longer be imported fails; the other way round it is new; alone, it is unknown."""
    broken = tmp_path / "broken"
    shutil.copytree(PLANTED, broken)
    path = broken / "planted" / "launches.py"
    path.write_text(f"{path.read_text()}\n{line}\n")
    assert quick(PLANTED, "--impl", "steady").exit_code == 0
    judged = quick(broken, "--impl", "steady", "--against", "latest:static")
    assert (judged.exit_code, said in judged.stdout, said in judged.stderr) == (1, True, True), judged
    assert "planted/steady" in judged.stdout and "sm_80" in judged.stdout
    if "nosuchmodule" in line:
        alone = quick(broken, "--impl", "steady")
        assert (alone.exit_code, f"steady cannot be imported: {said}" in alone.stderr) == (3, True), alone
    back = quick(PLANTED, "--impl", "steady", "--against", "latest:static")
    assert (back.exit_code, "2 rows new, without a baseline" in back.stdout) == (0, True), back


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--against", "nothing"), "Git knows no such revision either"),
        (("--target", "sm_91"), "Did you mean"),
        (("--target", "cpu"), "compiled for GPUs"),
        (("--impl", "stedy"), "Did you mean steady"),
    ],
)
def test_misuse_is_explained(quick: Invoke, arguments: tuple[str, ...], said: str) -> None:
    """What does not exist is an error of usage that names what does."""
    result = quick(PLANTED, *arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_another_commit_is_compiled_beside(tmp_path: Path, compiled: Compiled) -> None:
    """The kernels of a commit and those of the tree after it differ where they were changed, under one harness."""
    root = tmp_path / "checkout"
    (root / "kernels").mkdir(parents=True)
    (root / "gemmgate").mkdir()
    (root / "kernels" / "__init__.py").write_text('"""Kernels."""\n')
    shutil.copytree(PLANTED / "planted", root / "kernels" / "planted")
    for path in (own_overlay() / "gemmgate").glob("*.py"):
        shutil.copy(path, root / "gemmgate")
    (root / "gemmgate" / "suite").symlink_to((own_overlay() / "gemmgate" / "suite").resolve())
    (root / "gemmgate" / "kernels").symlink_to(root / "kernels")
    git = ("git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "sound")):
        subprocess.run([*git, *command], check=True, capture_output=True)
    (root / "kernels" / "planted" / "variant.py").write_text(FAULTS)
    request = plan.Request(selected("steady", "fallback"), targets("sm_90"), ("rule",))
    commit = commit_named(root, "HEAD")
    with overlay_of(root, commit) as overlay:
        before = plan.compile_rows(request, overlay, compiled.cache, 1)
    after = plan.compile_rows(request, root, compiled.cache, 1)
    assert [row.tensor_core for row in before] == ["wgmma", "wgmma"]
    assert [row.tensor_core for row in after] == ["wgmma", "mma"]
    assert before[0].cubin_sha == after[0].cubin_sha
    assert commit_named(root, "no-such-revision") == ""
    with pytest.raises(UsageError, match="no folder `kernels`"), overlay_of(root, "0" * 40):
        pass


TABLE = {"schema": 1, "profile": "nvidia-h200", "arch": "sm_90", "method": 1, "stack": {}}


def with_table(folder: Path, entries: Mapping[str, Any]) -> Path:
    """The planted family with a table for the H200, which its kernels read."""
    shutil.copytree(PLANTED, folder)
    package = folder / "planted"
    (package / "tuned").mkdir()
    (package / "tuned" / "nvidia-h200.json").write_text(json.dumps({**TABLE, "entries": entries}))
    source = (package / "launches.py").read_text()
    own = 'dict((lookup(__package__, f"{case.name}/{name}", target) or {"tile": {"block_k": 64}})["tile"])'
    source = source.replace('tile or {"block_k": 64}', f"tile or {own}")
    imported = "from gemmgate.kernels._tuned import lookup\n"
    (package / "launches.py").write_text(source.replace("from .variant", f"{imported}from .variant"))
    return folder


def test_rule_and_table_are_both_compiled(tmp_path: Path, compiled: Compiled) -> None:
    """The rule's tile is compiled as if there were no table, and of a table's for that GPU the smallest and largest."""
    entries = {"k4096-bf16/steady": entry(128), "k8192-bf16/steady": entry(32), "k4096-bf16/spiller": entry(64)}
    suite = with_table(tmp_path / "tuned", entries)
    request = plan.Request(selected("steady"), targets("sm_80", "sm_90"), suites=(suite,))
    rows = plan.compile_rows(request, own_overlay(), compiled.cache, 1)
    found = [(row.target, row.flags["tile"], row.case, (row.tile or {})["block_k"]) for row in rows]
    assert found == [
        ("sm_80", "rule", "k4096-bf16", 64),
        ("sm_90", "rule", "k4096-bf16", 64),
        ("sm_90", "tuned", "k8192-bf16", 32),
        ("sm_90", "tuned", "k4096-bf16", 128),
    ]


def test_nothing_to_compile_is_said(tmp_path: Path, invoke: Invoke, compiled: Compiled) -> None:
    """Where no table has a tile of what was selected, that is the sentence, with exit code 3, and nothing is stored."""
    suite = with_table(tmp_path / "tuned", {})
    options = ("--suite", str(suite), "--family", "planted", "--impl", "steady", "--cache", str(compiled.cache))
    result = invoke("static", *options, "--target", "sm_90", "--tile", "tuned")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "No table has a tuned tile of this selection for sm_90: --tile rule" in " ".join(result.stderr.split())


def test_an_illegal_tuned_tile_fails(tmp_path: Path, invoke: Invoke, compiled: Compiled) -> None:
    """A table's tile that does not fit its GPU, and one for no case, end with exit code 1, each with its reason.

    So they do where the code is compared with itself. On another architecture nothing is wrong.
    """
    suite = with_table(tmp_path / "tuned", {"k4096-bf16/steady": entry(512), "k1-fp16/steady": entry(32)})
    options = ("--suite", str(suite), "--family", "planted", "--impl", "steady", "--cache", str(compiled.cache))
    for more in ((), ("--against", "latest:static")):
        result = invoke("static", *options, "--target", "sm_80,sm_90", *more)
        assert result.exit_code == 1
        assert "planted/steady k4096-bf16 is illegal on sm_90: _product needs 393216 bytes" in result.stderr
        assert "planted/steady k1-fp16 is illegal on sm_90: The family has no case" in result.stderr
        assert "sm_80" not in result.stderr


def test_entries_that_stand_for_others_hide_none(tmp_path: Path, invoke: Invoke, compiled: Compiled) -> None:
    """Of a table an entry that contradicts its key and one of another's fields are named, though neither is compiled;
    and a table that cannot be read is named with its path on the architecture it is for.
    """
    entries = {"k4096-bf16/steady": {**entry(64), "implementation": "fallback"}, "k8192-bf16/steady": entry(-1)}
    entries["k8192-bf16"] = {**entry(64), "implementation": "nobody"}
    suite = with_table(tmp_path / "tuned", entries)
    options = ("--suite", str(suite), "--family", "planted", "--impl", "steady", "--cache", str(compiled.cache))
    result = invoke("static", *options, "--target", "sm_80,sm_90")
    assert result.exit_code == 1 and "sm_80" not in result.stderr
    assert "steady k4096-bf16 is illegal on sm_90: The entry of 'k4096-bf16/steady' is of" in result.stderr
    assert "steady k8192-bf16 is illegal on sm_90: block_k must be a whole number" in result.stderr
    assert "nobody k8192-bf16 is illegal on sm_90: The family has no implementation 'nobody'." in result.stderr
    path = suite / "planted" / "tuned" / "nvidia-h200.json"
    path.write_bytes(b"")
    result = invoke("static", *options, "--target", "sm_80,sm_90")
    assert result.exit_code == 1 and "sm_80" not in result.stderr
    assert f"steady is illegal on sm_90: Tuned table {path} is not JSON" in result.stderr


def test_another_tuned_tile_is_not_a_lost_kernel(tmp_path: Path, invoke: Invoke, compiled: Compiled) -> None:
    """Where other cases' entries stand for a table than before, those that stood for it are not missing."""
    options = ("--family", "planted", "--impl", "steady", "--cache", str(compiled.cache), "--target", "sm_90")
    before = with_table(tmp_path / "before", {"k4096-bf16/steady": entry(32)})
    after = with_table(tmp_path / "after", {"k8192-bf16/steady": entry(32)})
    assert invoke("static", "--suite", str(before), *options).exit_code == 0
    judged = invoke("static", "--suite", str(after), *options, "--against", "latest:static")
    assert (judged.exit_code, "1 with the same code" in judged.stdout) == (0, True), judged.stdout
