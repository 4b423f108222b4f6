"""Workers: what they say, how they end, and that none outlives its parent."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from gemmgate.suite import workers
from gemmgate.suite.errors import CannotMeasureError, UsageError
from gemmgate.suite.records import Limits
from gemmgate.suite.workers import Worker, WorkerLost

SUITES = [Path(__file__).parent / "suites"]
ROOT = Path(__file__).parent.parent
CASE = {
    "family": "faulty",
    "name": "n64-fp32",
    "dims": {"n": 64},
    "dtype": "fp32",
    "precision": "ieee",
}
PREPARE = {"case": CASE, "seed": 0, "data": "normal", "caches": ["hot"]}
LONG_S = 120.0


@pytest.fixture
def worker():
    started = Worker("cpu", suites=SUITES)
    yield started
    started.close()


def _gone(pid):
    """Whether a process ends; a zombie has ended. Polls without a limit of its own: a hang is the test's failure."""
    while psutil.pid_exists(pid):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return True


def test_hello_says_which_machine_stack_and_kernels(worker):
    """The first answer names the machine, the versions and the hash of the kernels the parent itself sees."""
    assert worker.machine.key.startswith("cpu-")
    assert worker.stack.torch
    assert worker.target.arch == "cpu"
    assert len(worker.kernels_tree) == 16


def test_a_reply_is_not_disturbed_by_what_the_implementation_prints(worker):
    """Noise on standard output, through Python and past it, does not reach the protocol."""
    reply = worker.ask("prepare", LONG_S, implementation="prints", **PREPARE)
    assert reply["ok"]


def test_an_exception_is_an_answer(worker):
    """A kernel that raises is `error` with its own words and their place, and the worker goes on."""
    reply = worker.ask("prepare", LONG_S, implementation="raises", **PREPARE)
    assert (reply["status"], reply["reason"]) == ("error", "RuntimeError")
    assert reply["detail"] == "the kernel does not like this shape (implementations.py, line 85)"
    assert worker.ask("prepare", LONG_S, implementation="plain", **PREPARE)["ok"]


def test_a_crash_names_the_culprit_and_the_signal(worker):
    """A segmentation fault comes back as the implementation and the step it happened in."""
    with pytest.raises(WorkerLost) as lost:
        worker.ask("prepare", LONG_S, implementation="crashes", **PREPARE)
    assert (lost.value.status, lost.value.reason) == ("error", "sigsegv")
    assert (lost.value.implementation, lost.value.step) == ("crashes", "first call")


def test_a_hang_passes_its_deadline_and_is_killed(worker):
    """No answer by the deadline is `timeout`, names the culprit, and the process is gone."""
    with pytest.raises(WorkerLost) as lost:
        worker.ask("prepare", 1.0, implementation="hangs", **PREPARE)
    assert (lost.value.status, lost.value.implementation) == ("timeout", "hangs")
    assert _gone(worker.pid)


def test_a_worker_that_goes_on_may_take_longer_than_its_deadline(worker):
    """A deadline counts from the last sign of life, so rounds may fill twice the time."""
    names = ["plain", "slow"]
    for name in names:
        assert worker.ask("prepare", LONG_S, implementation=name, **PREPARE)["ok"]
    limits = asdict(Limits())
    sampling = {"cache": "hot", "seconds": 10.0, "most_s": None, "limits": limits}
    reply = worker.ask("sample", 5.0, implementations=names, **sampling)
    assert reply["measure_s"] > 5.0
    assert {len(one["samples_s"]) >= 30 for one in reply["measured"].values()} == {True}


def test_a_worker_that_ends_by_itself_is_noticed(worker):
    """An exit inside a call is `error` with the exit code in the sentence."""
    with pytest.raises(WorkerLost, match="exit code 3"):
        worker.ask("prepare", LONG_S, implementation="exits", **PREPARE)


def test_who_cannot_say_what_it_supports_hides_no_other(worker):
    """An implementation whose `supports` raises is refused with its words, and the one beside it answers."""
    reply = worker.ask("supports", LONG_S, pairs=[[CASE, ["cannot_say", "plain"]]])
    assert reply["refusals"] == [[["LookupError", "no table for n64-fp32 (implementations.py, line 142)"], None]]


def test_a_worker_killed_while_idle_is_an_error_with_a_sentence(worker):
    """Where no row can bear the loss, the command line has a sentence and exit code 3 for it, not a traceback."""
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(CannotMeasureError, match="SIGKILL"):
        worker.ask("limits", LONG_S)


def test_children_of_a_worker_end_with_it(worker):
    """A worker that ends is noticed though a copy of it lives on, and what it had started ends too."""
    with pytest.raises(WorkerLost, match="exit code 3") as lost:
        worker.ask("prepare", LONG_S, implementation="leaves_children", **PREPARE)
    children = [int(pid) for pid in str(lost.value).rpartition("children: ")[2].split()]
    assert len(children) == 2
    assert all(map(_gone, children))


@pytest.mark.parametrize("device", ["cuda", "cuda:99"])
def test_a_device_that_is_not_there_is_a_usage_error(device, monkeypatch):
    """A GPU asked for where there is none is refused in a sentence that says what to use."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match="--device"):
        Worker(device)


def test_without_torch_the_sentence_says_what_is_needed(tmp_path, monkeypatch):
    """Where torch cannot be imported, the worker says so and names the command that sets it up."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CannotMeasureError, match="nox -s bench"):
        Worker("cpu")


def test_a_worker_on_another_sides_kernels_is_refused(tmp_path):
    """An overlay whose kernels are not those that the worker imports is an error, not a measurement."""
    package = tmp_path / "gemmgate"
    package.mkdir()
    for name in ("__init__.py", "__main__.py"):
        (package / name).write_text((ROOT / "gemmgate" / name).read_text())
    (package / "suite").symlink_to(ROOT / "suite")
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "__init__.py").write_text("")
    (package / "kernels").symlink_to(kernels)
    ours = Worker("cpu", overlay=tmp_path)
    ours.close()
    (kernels / "__init__.py").write_text(f"__path__ = [{str(ROOT / 'kernels')!r}]\n")
    with pytest.raises(CannotMeasureError, match="other kernels"):
        Worker("cpu", overlay=tmp_path)


def test_compiler_caches_are_private_and_keyed_by_the_stack(monkeypatch, tmp_path):
    """Triton's and Inductor's caches lie below our own folder, under a name with both versions."""
    monkeypatch.setenv("GEMMGATE_CACHE", str(tmp_path))
    folders = workers.private_caches()
    assert set(folders) == {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"}
    for folder in folders.values():
        below = Path(folder).relative_to(tmp_path).parts[0]
        assert "torch" in below and "triton" in below


@pytest.mark.parametrize("how", ["idle", "hangs"])
def test_no_worker_outlives_a_parent_that_is_killed(how):
    """SIGKILL to the parent ends the worker too, also while the worker hangs inside a call."""
    ask = f"worker.ask('prepare', 600, implementation='hangs', **{PREPARE!r})" if how == "hangs" else "time.sleep(600)"
    code = f"""
        import time
        from pathlib import Path
        from gemmgate.suite.workers import Worker
        worker = Worker("cpu", suites=[Path({str(SUITES[0])!r})])
        print(worker.pid, flush=True)
        {ask}
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pid = int(parent.stdout.readline())
    time.sleep(0.5)
    family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert all(map(_gone, family))
