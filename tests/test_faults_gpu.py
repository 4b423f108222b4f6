"""Faults of a GPU's own: each costs its row, none the run, and none outlives the parent."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from gemmgate.suite import catalog, loop
from gemmgate.suite.records import Limits
from gemmgate.suite.workers import Worker
from tests.loops import Quiet

pytestmark = pytest.mark.gpu
SUITES = (Path(__file__).parent / "suites_gpu",)
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def rows():
    """Cold rows of the one case, by implementation."""
    start = partial(Worker, "cuda", suites=SUITES)
    found = []
    choices = catalog.find(SUITES).select(catalog.Selection(families=("faulty_gpu",)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PREPARE_DEADLINE_S", 20.0)
        plan = loop.Plan(choices, ("hot",))
        running = loop.Loop(
            plan, start(), Limits(), restart=start, sink=found.extend, progress=Quiet(), begun=time.monotonic()
        )
        running.run()
    return {row.implementation: row for row in found}


EXPECTED = {
    "plain": ("ok", ""),
    "late": ("ok", ""),
    "not_capturable": ("ok", ""),
    "writes_far_away": ("error", "illegal_access"),
    "never_ends": ("timeout", "deadline"),
    "allocates_all": ("out_of_memory", "device_memory"),
    "copies": ("invalid", "no_kernel"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_of_the_gpu_costs_its_own_row(rows, name):
    """An illegal access, a hang, a full memory and a graph without kernels end where they began."""
    assert (rows[name].status, rows[name].reason) == EXPECTED[name], rows[name].detail


def test_a_call_that_waits_for_the_host_is_an_error_unless_it_says_so(rows):
    """The same call is refused where it claims to be capturable, and timed by events where it does not."""
    assert rows["waits_for_the_host"].status == "error"
    assert rows["not_capturable"].timer == "events"


def test_what_is_known_to_take_long_is_measured_so(rows):
    """A call that sleeps 500,000 cycles takes between 200 and 600 us, and one that does not under 20."""
    assert 2e-4 < rows["late"].median_s < 6e-4
    assert rows["plain"].median_s < 2e-5


def test_no_worker_outlives_its_parent_inside_a_kernel_that_hangs():
    """SIGKILL to the parent ends a worker whose GPU never finishes."""
    case = catalog.find(SUITES).families["faulty_gpu"].cases[0].to_json()
    code = f"""
        from pathlib import Path
        from gemmgate.suite.workers import Worker
        worker = Worker("cuda", suites=[Path({str(SUITES[0])!r})])
        print(worker.pid, flush=True)
        worker.ask("prepare", 600, implementation="never_ends", case={case!r}, seed=0, data="normal", caches=["hot"])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(5)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.1)
