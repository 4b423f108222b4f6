"""`gemmgate try`: what a worker says of functions in a file that knows nothing of the harness."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmgate.suite import catalog, outside
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Choice, Selection
from gemmgate.suite.cli import _trial
from gemmgate.suite.errors import UsageError
from gemmgate.suite.measure.settings import own_settings
from gemmgate.suite.report.trial import fault, is_wrong
from gemmgate.suite.workers import Worker, WorkerLost
from tests.trials import kernels, outcome

__all__ = ["kernels"]


NAMES = """right in_order anything swapped product sloppy square_only transposed widened prints in_place reuses jitters
needs_more tile missing inferred sets_defaults in_a_list wants_gradients raises on_a_gpu in_an_array awaited yields two
elsewhere sparse lazy remembers looks_at_a_corner packs strided""".split()


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
        (
            "remembers",
            "kept a result, or part of one, from an earlier call: the inputs had other values, and the result",
        ),
        ("looks_at_a_corner", "kept a result, or part of one, from an earlier call: the inputs had other values"),
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
    torch = pytest.importorskip("torch", reason="what is measured holds tensors")
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


def test_a_yardstick_is_one_that_the_case_has() -> None:
    """A router whose logits keep their dtype is held against `linear`; a yardstick without a meaning names that one."""
    known = catalog.find([])
    selection = Selection(("router",), ("gpt-oss-120b-t4-bf16",), ("dot_product",), ())
    (choice,), _ = _trial.select(known, selection, "")
    assert (choice.family.yardsticks, choice.implementations) == (("linear",), ("linear", "dot_product"))
    with pytest.raises(UsageError, match=r"linear_float has no meaning .*, or --against linear"):
        _trial.select(known, selection, "linear_float")
