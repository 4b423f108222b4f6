"""`gemmgate try`: a function from a file that knows nothing of the harness is checked, timed and judged."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmgate.suite import catalog, outside
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Choice
from gemmgate.suite.cli import _trial, try_
from gemmgate.suite.errors import UsageError
from gemmgate.suite.measure.settings import own_settings
from gemmgate.suite.records import Limits
from gemmgate.suite.report.trial import fault, is_wrong
from gemmgate.suite.report.trial import outcome as outcome_of
from gemmgate.suite.store import Store
from gemmgate.suite.workers import Worker, WorkerLost
from tests.called import called

ROOT = Path(__file__).resolve().parents[1]
CASE = "m8-n8-k256-fp32"
KERNELS = '''
"""Products of one kind and another."""
import time
import torch
import beside  # a module in the same folder

def right(a, b):
    return torch.mm(a, b)

def in_order(x, y):
    from later import product  # which nobody has imported before the call
    return product(x, y)

def anything(*args):
    return torch.mm(*args)

def swapped(b, *, a):
    return torch.mm(a, b)

def sloppy(a, b):
    return torch.mm(a, b) * 1.01

def square_only(a, b):
    assert a.shape[0] == 16, "m must be 16"
    return torch.mm(a, b)

def transposed(a, b):
    return torch.mm(a, b).T[:4].contiguous()

def widened(a, b):
    return torch.mm(a, b).double()

def prints(a, b):
    print(torch.mm(a, b).sum())

def in_place(a, b):
    a.mul_(2)
    return torch.mm(a, b) / 2

def jitters(a, b):
    out = torch.mm(a, b)
    return out * (1 + 1e-6 * torch.rand_like(out))

held = {}

def reuses(a, b):
    key = (a.shape, b.shape, a.dtype)
    if key not in held:
        held[key] = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    return torch.mm(a, b, out=held[key])

def hangs(a, b):
    time.sleep(3600)

def ends(a, b):
    import os
    os._exit(7)

def needs_more(a, b, bias):
    return torch.mm(a, b) + bias

@torch.inference_mode()
def inferred(a, b):
    return torch.mm(a, b)

def sets_defaults(a, b):
    torch.set_default_dtype(torch.float16)
    torch.set_default_device("meta")
    return torch.mm(a, b)

def in_a_list(a, b):
    return [torch.mm(a, b)]

def wants_gradients(a, b):
    return torch.mm(a.requires_grad_(True), b).detach()

def raises(a, b):
    raise ValueError("no,\\nnever")

def on_a_gpu(a, b):
    return torch.mm(a.cuda(), b.cuda()).cpu()

def in_an_array(a, b):
    return torch.mm(a, b).numpy()

async def awaited(a, b):
    return torch.mm(a, b)

def yields(a, b):
    yield torch.mm(a, b)

def two(a, b):
    return torch.mm(a, b), a.sum()

def elsewhere(a, b):
    return torch.mm(a, b).to("meta")

def sparse(a, b):
    return torch.mm(a, b).to_sparse()

results = {}

def remembers(a, b):
    key = (a.data_ptr(), b.data_ptr())
    if key not in results:
        results[key] = torch.mm(a, b)
    return results[key].clone()

packed = {}

def packs(a, b):
    if b.shape not in packed:
        packed[b.shape] = torch.empty(b.shape[::-1], dtype=b.dtype)
    return torch.mm(a, packed[b.shape].copy_(b.T).T)

def strided(a, b):
    out = torch.empty(a.shape[0], 2 * b.shape[1], dtype=a.dtype)
    out[:, ::2] = torch.mm(a, b)
    return out[:, ::2]

class Holder:
    @staticmethod
    def product(a, b):
        return torch.mm(a, b)

tile = 16
'''


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with functions, and two modules beside it that it imports at once and when it is called."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "beside.py").write_text("WHERE = 'beside'\n")
    (folder / "later.py").write_text("import torch\n\ndef product(x, y):\n    return torch.mm(x, y)\n")
    (folder / "kernels.py").write_text(KERNELS)
    return folder / "kernels.py"


NAMES = """right in_order anything swapped product sloppy square_only transposed widened prints in_place reuses jitters
needs_more tile missing inferred sets_defaults in_a_list wants_gradients raises on_a_gpu in_an_array awaited yields two
elsewhere sparse remembers packs strided""".split()


@pytest.fixture(scope="module")
def worker(kernels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that knows all of those functions as implementations; `jitters` twice, the second time excused."""
    folders = []
    for name in NAMES:
        attribute = f"Holder.{name}" if name == "product" else name
        scratch = tmp_path_factory.mktemp(name)
        folders.append(outside.write_suite(scratch, "dense_splitk", name, kernels, attribute, deterministic=True))
    excused = tmp_path_factory.mktemp("excused")
    folders.append(outside.write_suite(excused, "dense_splitk", "excused", kernels, "jitters", deterministic=False))
    started = Worker("cpu", suites=folders)
    yield started
    started.kill()


def outcome(worker: Worker, name: str, case_name: str = CASE) -> dict[str, Any]:
    """What preparing and checking say."""
    case = catalog.case_named(catalog.find().family("dense_splitk"), case_name)
    assert case is not None
    fields = {"case": case.to_json(), "seed": 0, "data": "normal", "caches": ["hot"]}
    prepared = worker.ask("prepare", 60.0, implementation=name, **fields)
    return worker.ask("check", 60.0, implementation=name) if prepared.get("ok") else prepared


@pytest.mark.parametrize(
    "name",
    "right in_order anything swapped product excused inferred sets_defaults packs strided".split(),
)
def test_right_functions_pass(worker: Worker, name: str) -> None:
    """Inputs go in by name or in order, modules beside the file and methods are found; autograd may be off for good,
    and torch's defaults may be changed, from which the float64 reference does not follow. A workspace may be kept,
    and the result may have gaps between its elements.
    """
    assert outcome(worker, name)["ok"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sloppy", "is wrong: error 0.01"),
        ("square_only", "raised AssertionError: m must be 16 (kernels.py, line 24)"),
        ("transposed", "returned the wrong shape: shape (4, 8) where the reference has (8, 8)"),
        ("widened", "returned the wrong dtype: dtype torch.float64 where the case says torch.float32"),
        ("prints", "did not return the result and nothing else: None"),
        ("in_an_array", "did not return the result and nothing else: numpy.ndarray, where a tensor of torch"),
        ("awaited", "did not return the result and nothing else: a coroutine: name a plain function"),
        ("yields", "did not return the result and nothing else: a generator: return the tensor"),
        ("two", "did not return the result and nothing else: 2 outputs where the reference has 1"),
        ("elsewhere", "returned a tensor on another device: it is on meta, and the inputs are on cpu"),
        ("sparse", "returned a tensor of another layout: its layout is torch.sparse_coo"),
        ("remembers", "returned an earlier result although its inputs had new values"),
        ("in_place", "wrote to its inputs: it should return a new tensor"),
        ("reuses", "returned the tensor of an earlier call again: it should return a new one"),
        ("jitters", "say --nondeterministic"),
        ("in_a_list", "did not return the result and nothing else: a list of one tensor"),
        ("wants_gradients", "set requires_grad on its inputs"),
        ("raises", "raised ValueError: no, never (kernels.py, line 78)"),
    ],
)
def test_each_fault_has_its_sentence(worker: Worker, name: str, said: str) -> None:
    """A function that raises, or returns or writes what it should not, is told so in words."""
    assert said in fault(outcome(worker, name))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("needs_more", "kernels.py:needs_more takes (a, b, bias), but family 'dense_splitk' passes a, b"),
        ("tile", "kernels.py:tile is a int, which cannot be called"),
        ("missing", "No function of kernels.py matches 'missing'"),
    ],
)
def test_what_cannot_be_called_is_a_usage_error(worker: Worker, name: str, said: str) -> None:
    """No such name, no function, other parameters: the worker's answer is a usage error that says which."""
    reply = outcome(worker, name)
    assert reply["reason"] == "UsageError"
    assert said in reply["detail"]


def test_a_hang_ends_the_checks(kernels: Path, tmp_path: Path) -> None:
    """A function that does not return is reported at the deadline, and the cases after it are not tried."""
    folder = outside.write_suite(tmp_path, "dense_splitk", "hangs", kernels, "hangs", deterministic=True)
    family = catalog.find([folder]).family("dense_splitk")
    choices = [Choice(family, case, ("cublas", "hangs")) for case in family.cases[:2]]
    tried = {"name": "hangs", "against": "cublas", "function": "kernels.py:hangs"}
    trial = _trial.Trial(tried, lambda: Worker("cpu", suites=[folder]), 1.0, None)
    (only,) = trial.check(choices)
    assert fault(only) == "did not return: no answer to 'prepare' within 1 s, at step 'first call' of hangs"


def test_a_function_that_ends_its_process_is_named(worker: Worker, kernels: Path, tmp_path: Path) -> None:
    """Where the process ended, the sentence has the exit code."""
    folder = outside.write_suite(tmp_path, "dense_splitk", "ends", kernels, "ends", deterministic=True)
    lost = Worker("cpu", suites=[folder])
    with pytest.raises(WorkerLost) as error:
        outcome(lost, "ends")
    said = fault({"status": error.value.status, "reason": error.value.reason, "detail": str(error.value)})
    assert said.startswith("ended its process: the worker ended with exit code 7")


# the file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import nowhere_at_all\n",
            "broken.py cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all' (line 1).",
        ),
        ("\ndef f(a, b:\n", "broken.py cannot be imported: SyntaxError: '(' was never closed (line 2)."),
        ("raise ValueError('one\\ntwo')\n", "broken.py cannot be imported: ValueError: one two (line 1)."),
        ("import broken_beside\n", "cannot be imported: SyntaxError: expected ':' (broken_beside.py, line 2)."),
        ("\n\nx = 1 / 0\n", "broken.py cannot be imported: ZeroDivisionError: division by zero (line 3)."),
        ("raise SystemExit(3)\n", "broken.py cannot be imported: SystemExit: 3 (line 1)."),
    ],
)
def test_a_file_that_cannot_be_run(tmp_path: Path, text: str, said: str) -> None:
    """A file that fails while it is imported is a usage error with the reason and the line."""
    (tmp_path / "broken.py").write_text(text)
    (tmp_path / "broken_beside.py").write_text("\nif True\n")
    with pytest.raises(UsageError) as error:
        outside.implementation("f", str(tmp_path / "broken.py"), "f", deterministic=True)
    assert said in str(error.value)


def test_a_triton_kernel_is_not_a_function(tmp_path: Path) -> None:
    """Who names the device function is told to name the host function."""
    (tmp_path / "kernel.py").write_text(
        textwrap.dedent("""
            class JITFunction:
                def __call__(self): ...

            kernel = JITFunction()
        """)
    )
    with pytest.raises(UsageError, match="needs a grid and an output"):
        outside.implementation("f", str(tmp_path / "kernel.py"), "kernel", deterministic=True)


def test_the_defaults_of_a_file_hold_in_its_calls_alone(tmp_path: Path) -> None:
    """A file that sets torch's default dtype and threads finds its dtype when it is called, and changes no other's."""
    torch = pytest.importorskip("torch")
    text = "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_num_threads(3)\n"
    (tmp_path / "mine.py").write_text(text + "def f(a, b):\n    return torch.ones(1)\n")
    before = (torch.get_default_dtype(), torch.get_num_threads())
    made = outside.implementation("f", str(tmp_path / "mine.py"), "f", deterministic=True)
    assert (torch.get_default_dtype(), torch.get_num_threads()) == before
    case = catalog.find().family("dense_splitk").cases[0]
    inputs = {"a": torch.ones(1), "b": torch.ones(1)}
    call = made.prepare(case, inputs, Target("cpu"), None).bind(inputs)
    with own_settings():
        assert call().dtype == torch.float64
    assert torch.get_default_dtype() == before[0]


def test_a_function_that_asks_for_a_gpu_is_not_judged_without_one(worker: Worker) -> None:
    """A function that calls `.cuda()` where there is none is not called wrong, and the line that asked is named."""
    found = outcome(worker, "on_a_gpu")
    assert not is_wrong(found)
    assert fault(found).startswith("cannot run here: it asks for a GPU, and this is a CPU: ")
    assert fault(found).endswith("(kernels.py, line 81)")


# the command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kernels.py"], "write FILE.py:FUNCTION"),
        (["kernel.py:right", "--family", "dense_splitk"], "No file in . matches 'kernel.py'. Did you mean kernels.py"),
        (["kernels.py:right"], "Say with --family what the function computes: dense_splitk"),
        (["kernels.py:right", "--family", "dense_splitc"], "Did you mean dense_splitk"),
        (["kernels.py:right", "--family", "dense_splitk", "--against", "cubla"], "Did you mean cublas"),
        (["kernels.py:right", "--family", "dense_splitk", "--tag", "quik"], "No tag matches 'quik'"),
        (["kernels.py:right", "--family", "dense_splitk", "--case", "m8"], "No case matches 'm8'"),
        (["kernels.py:right", "--family", "dense_splitk", "--device", "gpu"], "No device matches 'gpu'"),
    ],
)
def test_bad_input(kernels: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    """What does not exist is a sentence with exit code 2, before anything is imported or measured."""
    monkeypatch.chdir(kernels.parent)
    result = called("try", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.said


def test_a_right_function_is_checked_timed_and_compared(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0, a sentence with the interval, the rows as JSON, and no new file in the checkout or the folder."""
    monkeypatch.setattr(_trial, "measure_limits", lambda worker: Limits())
    monkeypatch.chdir(tmp_path)
    before = _state()
    options = ["--family", "dense_splitk", "--case", CASE, "--seconds", 2, "--device", "cpu", "--format", "json"]
    result = called("try", f"{kernels}:right", *options)
    assert result.exit_code == 0, result.stderr
    rows = {row["implementation"]: row for row in json.loads(result.stdout)["rows"]}
    assert list(rows) == ["cublas", "right"]
    assert rows["right"]["ratio_low"] < rows["right"]["ratio"] < rows["right"]["ratio_high"]
    assert rows["right"]["algorithm"] == "kernels.py:right"
    assert "Right: right agrees with the float64 reference on 1 case" in result.said
    assert "95% interval" in result.said
    assert "one case of dense_splitk (fp32), hot" in result.said
    assert _state() == before
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_function_has_exit_code_1_and_no_time(kernels: Path, tmp_path: Path) -> None:
    """The case and the error are named, nothing is timed, and what was asked to be stored says the same afterwards."""
    options = ["--family", "dense_splitk", "--case", CASE, "--device", "cpu", "--results", tmp_path / "r"]
    result = called("try", f"{kernels}:sloppy", *options)
    assert result.exit_code == 1
    first, second = result.stdout.splitlines()
    assert first == "Wrong: sloppy failed on 1 of 1 case, so nothing was timed."
    assert second.startswith(f"  {CASE}: sloppy is wrong: error 0.01")
    stored = Store(tmp_path / "r").load("latest")
    assert [(row.status, row.median_s) for row in stored.rows] == [("broken", None)]
    assert "\n".join(outcome_of(stored).lines) == result.stdout.rstrip()
    assert outcome_of(stored).exit_code == 1


def test_a_case_beyond_the_memory_is_not_tried(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3 where that is the only case; where another fits, that one is timed and its outcome counts."""
    monkeypatch.setattr(_trial, "measure_limits", lambda worker: Limits())
    options = ["--family", "dense_splitk", "--seconds", 2, "--device", "cpu"]
    alone = called("try", f"{kernels}:right", *options, "--case", "m300000-n300000-k300000-fp32")
    assert alone.exit_code == 3
    assert alone.stdout.startswith("Not tried: m300000-n300000-k300000-fp32: its inputs and results do not fit into")
    assert "Wrong" not in alone.stdout
    options += ["--case", f"{CASE},m300000-n300000-k300000-fp32", "--results", tmp_path]
    beside = called("try", f"{kernels}:right", *options)
    assert beside.exit_code == 0, beside.stdout
    assert "Right: right agrees with the float64 reference on 1 case" in beside.stdout
    rows = Store(tmp_path).load("latest").rows
    assert [(row.implementation, row.status, row.reason) for row in rows] == [
        ("right", "unsupported", "does_not_fit"),
        ("cublas", "ok", ""),
        ("right", "ok", ""),
    ]


@pytest.mark.parametrize(
    ("second", "timed"),
    [
        ({"ok": True}, ["m1", "m2"]),
        ({"status": "out_of_memory", "reason": "device_memory", "detail": "", "fatal": False}, ["m1"]),
        ({"status": "unsupported", "reason": "does_not_fit", "detail": "", "fatal": False}, ["m1"]),
        ({"status": "broken", "reason": "not_finite", "detail": "", "fatal": False}, []),
        ({"status": "error", "reason": "sigkill", "detail": "", "fatal": True}, []),
    ],
)
def test_what_can_be_timed(second: dict[str, Any], timed: list[str]) -> None:
    """What passed, unless another case is wrong or cost the worker."""
    family = catalog.find().family("dense_splitk")
    cases = [case for name in ("m1", "m2") if (case := catalog.case_named(family, f"{name}-n8-k256-fp32"))]
    choices = [Choice(family, case, ()) for case in cases]
    found = _trial.timeable(choices, [{"ok": True}, second])
    assert [choice.case.name.partition("-")[0] for choice in found] == timed


def _state() -> str:
    """What git sees of this checkout."""
    return subprocess.run(
        ["git", "status", "--porcelain", "--ignored=no"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


# which cases


def test_a_handful_is_spread_over_the_first_dtype() -> None:
    """Of eleven bf16 cases every second is tried, of two both, and none in another dtype."""
    family = catalog.find().family("dense_splitk")
    names = [f"m{m}-n8-k256-{dtype}" for dtype in ("bf16", "fp32") for m in range(1, 12)]
    choices = [Choice(family, case, ()) for name in names if (case := catalog.case_named(family, name))]
    assert [choice.case.name for choice in _trial._handful(choices)] == names[:11:2]
    assert _trial._handful(choices[9:15]) == choices[9:11]


def test_a_name_that_is_taken_gets_a_suffix() -> None:
    """A function called as an implementation of the family is is not taken for it."""
    family = catalog.find().family("dense_splitk")
    assert try_._free_name(family, "cublas") == "cublas_tried"
    assert try_._free_name(family, "Mine.forward") == "forward"
