"""The command line: every bad input ends with one sentence that says what exists and what to do, and an exit code."""

# ruff: noqa: F811  a fixture is imported and then named by a parameter
from __future__ import annotations

import inspect
import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import gemmgate
from gemmgate.suite import cli
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Choice
from gemmgate.suite.cli import _options, _terminal, run
from gemmgate.suite.cli import list as list_
from gemmgate.suite.errors import UsageError
from gemmgate.suite.store import Store
from tests.program import ID, Invoke, invoke, make_store, program, store  # noqa: F401  fixtures among them
from tests.stored import ROOT, interrupted, make_row, make_run, stored

# help


def test_help_names_every_command(invoke: Invoke) -> None:
    """The help lists each module of suite/cli with the first line of its command's docstring."""
    text = invoke("--help").stdout
    for path in (ROOT / "suite" / "cli").glob("[a-z]*.py"):
        assert f"\n  {path.stem.strip('_')}" in text
    assert "\n  options" not in text
    assert "Show a run, also one that goes on or was interrupted." in text
    assert text.index("\n  show") < text.index("\n  runs") < text.index("\n  compare")


@pytest.mark.parametrize("command", ["show", "runs", "compare"])
def test_help_of_each_command(invoke: Invoke, command: str) -> None:
    """Every command has a help."""
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"Usage: gemmgate {command}" in result.stdout


def test_version(invoke: Invoke) -> None:
    """`--version` prints the distribution's version."""
    assert invoke("--version").stdout == f"gemmgate {gemmgate.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["show"], ["runs"]])
def test_torch_is_not_imported(store: Store, arguments: list[str]) -> None:
    """Help and what reads stored runs import neither torch nor Triton."""
    make_store(store)
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print([m for m in ('torch', 'triton') if m in sys.modules], file=sys.stderr))\n"
        "from gemmgate.suite.cli import main; main()"
    )
    environment = {**os.environ, "GEMMGATE_RESULTS": str(store.root)}
    done = subprocess.run(
        program(*arguments, code=code), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_a_command_that_cannot_be_imported_harms_no_other(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help shows a command whose module cannot be imported, and calling it says what is missing."""
    (tmp_path / "heavy_task.py").write_text(
        'import nowhere\n\nORDER = 1\n\ndef command():\n    """Do it.\n\n    More."""\n'
    )
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(cli, "__path__", [str(tmp_path)])
    assert "heavy-task  Do it.\n" in invoke("--help").stdout
    result = invoke("heavy-task")
    assert result.exit_code == 3
    assert "No module named 'nowhere'" in result.stderr
    assert "Traceback" not in result.stderr


# bad input


@pytest.mark.parametrize(("option", "value"), [("--seconds", "inf"), ("--seconds", "1e300"), ("--seed", "9" * 30)])
def test_numbers_that_nothing_can_hold(invoke: Invoke, option: str, value: str) -> None:
    """A time beyond all clocks or a seed beyond all generators is refused before anything is measured."""
    result = invoke("run", option, value)
    assert result.exit_code == 2
    assert option in result.stderr


def test_a_cache_state_is_measured_once() -> None:
    """A state that is named twice counts once, in the order of first mention; spaces do not matter."""
    assert run._caches("hot, cold,hot") == ("hot", "cold")


@pytest.mark.parametrize("options", [["--seed", "5"], ["--data", "zeros"], ["--sweep-data"], ["--energy"]])
def test_a_run_is_resumed_with_its_own_inputs(store: Store, invoke: Invoke, options: list[str]) -> None:
    """Other inputs than those of the run, and what it did not measure, are refused, not ignored."""
    interrupted(store, make_run(selection={"caches": ["hot"], "seed": 0, "data": "normal"}))
    result = invoke("run", "--resume", ID, *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr


def test_a_run_that_does_not_say_what_it_selected(store: Store, invoke: Invoke) -> None:
    """A run of another program cannot be resumed, which is a sentence with exit code 2."""
    stored(store, make_run())
    result = invoke("run", "--resume", ID)
    assert result.exit_code == 2
    assert "does not say what it selected" in result.stderr


def test_a_complete_run_is_not_stored_again(store: Store, invoke: Invoke) -> None:
    """Resuming a finished run that lacks nothing says so and writes no second file."""
    selection = {"cases": ["m32-n32-k32768-bf16"], "implementations": ["cublas"]}
    run = make_run(selection={**selection, "caches": ["cold"], "seed": 0, "data": "normal"})
    stored(store, run, make_row("m32-n32-k32768-bf16", "cublas", data="normal"))
    result = invoke("run", "--resume", ID)
    assert result.exit_code == 0
    assert "nothing is missing" in result.stderr
    assert len(store.runs()) == 1


@pytest.mark.parametrize("name", ["torn.parquet", "foreign.jsonl"])
def test_unreadable_files(store: Store, invoke: Invoke, tmp_path: Path, name: str) -> None:
    """A file that cannot be read ends with exit code 2 and one line that names it."""
    (tmp_path / name).write_bytes(b"PAR1")
    result = invoke("show", str(tmp_path / name))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert name in result.stderr


@pytest.mark.parametrize("arguments", [["show"], ["show", ID], ["compare", "latest", "latest"]])
def test_an_empty_store(invoke: Invoke, arguments: list[str]) -> None:
    """Where nothing is stored, showing says how to measure."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "`gemmgate run`" in result.stderr


def test_debug_shows_where(store: Store, invoke: Invoke) -> None:
    """An expected error has no traceback, unless one asks for it; message and exit code are the same."""
    assert "Traceback" not in invoke("show").stderr
    result = invoke("--debug", "show")
    assert "Traceback" in result.stderr
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == invoke("show").stderr.strip()


def test_a_bug_is_no_verdict() -> None:
    """An unexpected exception ends with its traceback and exit code 3, for 1 would say that something got slower."""
    code = (
        "import gemmgate.suite.cli._options as options\n"
        "options.store = lambda results: 1 / 0\n"
        "from gemmgate.suite.cli import main; main()"
    )
    done = subprocess.run(program("runs", code=code), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "ZeroDivisionError" in done.stderr
    assert "this is a bug in gemmgate" in done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interruption_is_a_sentence(name: str) -> None:
    """Ctrl-C, or a runner that cancels, ends with exit code 130 and without a traceback."""
    code = (
        "import os, signal\n"
        "import gemmgate.suite.cli._options as options\n"
        f"options.store = lambda results: os.kill(os.getpid(), signal.{name})\n"
        "from gemmgate.suite.cli import main; main()"
    )
    done = subprocess.run(
        program("runs", code=code),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == 130
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error(store: Store) -> None:
    """Piping into a program that stops reading, such as head, is quiet."""
    make_store(store)
    with subprocess.Popen(
        program("show", "--format", "json", "--results", str(store.root)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", ["show", "list"])
def test_a_full_output_is_a_sentence(store: Store, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Output that finds no space ends with exit code 2 and one sentence."""
    make_store(store)
    monkeypatch.setenv("GEMMGATE_RESULTS", str(store.root))
    options = ["--device", "cpu", "--case", "m16-n16-k4096-fp32"] if command == "list" else []
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            program(command, *options),
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert (
        done.stderr == "gemmgate: Cannot write the output: No space left on device. Send it to where there is space.\n"
    )


@pytest.mark.parametrize("width", [60, 80, 170])
def test_a_list_keeps_names_and_width(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """However narrow the terminal, a case's name stands whole, to be copied, and each reason with its names below."""
    monkeypatch.setattr(_terminal, "width", lambda: width)
    monkeypatch.setattr(list_, "_worker", lambda device, suites: (None, "no worker."))
    monkeypatch.setattr(list_, "_refusals", lambda worker, choices: [_refused(choice) for choice in choices])
    lines = invoke("list", "--family", "dense_splitk", "--case", "m256-n256-k65536-bf16").stdout.splitlines()
    assert lines[0] == "dense_splitk: 1 case"
    assert any(line.startswith("m256-n256-k65536-bf16  ") for line in lines)
    assert any(line.startswith("odd_k: K is odd. (") for line in lines)
    assert all(len(line) <= width for line in lines)


def _refused(choice: Choice) -> list[list[str] | None]:
    return [None, *[["odd_k", "K is odd."]] * (len(choice.implementations) - 1)]


def test_a_closed_output_is_no_bug(store: Store) -> None:
    """A caller who closed standard output gets nothing and no complaint."""
    make_store(store)
    line = f"exec {shlex.join(program('show', '--results', str(store.root)))} >&-"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cache", "warm"], "--cache 'warm' is none of cold, hot, serving."),
        (["--data", "ones"], "--data 'ones' is none of normal"),
        (["--cross-check", "--device", "cpu"], "--cross-check compares the timers of a GPU; on a CPU there is one."),
    ],
)
def test_what_run_refuses(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    """Another cache state or distribution, and a cross-check without a GPU, end with exit code 2 and a sentence."""
    from gemmgate.suite.cli import run

    class Worker:
        target = Target("cpu")

        def __init__(self, device: str, **options: object) -> None: ...

        def greet(self) -> None: ...

        def meet(self) -> None: ...

        def kill(self) -> None: ...

    monkeypatch.setattr(run, "Worker", Worker)
    result = invoke("run", *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


# options


def test_where_results_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results belong to the checkout that the current folder is in, else to that folder; --results is stronger."""
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert _options.store(None).root == Path("results")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert _options.store(None).root == Path("results")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "gemmgate"\n')
    assert _options.store(None).root == Path("../../results")
    assert _options.store(Path("x")).root == Path("x")


def test_results_option_is_stronger_than_the_environment(store: Store, invoke: Invoke, tmp_path: Path) -> None:
    """--results wins over GEMMGATE_RESULTS."""
    make_store(store)
    assert json.loads(invoke("runs", "--format", "json", "--results", str(tmp_path / "none")).stdout) == []


def test_globs_are_separated_by_commas_or_repeated() -> None:
    """`a,b` and repeating the option mean the same, blanks around commas do not count, and nothing means all."""
    chosen = _options.selection(family=["a, b", "c"], tag=["quick,"])
    assert (chosen.families, chosen.cases, chosen.tags) == (("a", "b", "c"), (), ("quick",))


def test_options_that_come_together_are_one_parameter() -> None:
    """A command that takes a group has an option for each of its fields, in its place, and gets the group made."""
    got: list[object] = []

    @_options.grouped
    def command(first: int, selected: _options.Selected, last: str = "x") -> None:
        got.extend((first, selected, last))

    assert list(inspect.signature(command).parameters) == ["first", "family", "case", "impl", "tag", "last"]
    command(first=1, family=["a"], case=None, impl=["b,c"], tag=None, last="y")
    assert got == [1, _options.Selected(family=["a"], impl=["b,c"]), "y"]
    assert _options.Selected(impl=["b,c"]).selection().implementations == ("b", "c")


@pytest.mark.parametrize("given", [["--results", "/some/where"], ["--results=/some/where"]])
def test_a_recorded_command_does_not_say_where_the_run_lies(given: list[str]) -> None:
    """The folder of the results is left out, all else stays, quoted for a shell."""
    assert _options.command_line(["run", *given, "--case", "*k1*"]) == "gemmgate run --case '*k1*'"


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:3"])
def test_devices(name: str) -> None:
    """Names of devices pass."""
    assert _options.device(name) == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "CUDA", "cuda:x", ""])
def test_what_is_no_device(name: str) -> None:
    """Any other name is an error that lists devices."""
    with pytest.raises(UsageError, match="auto, cpu, cuda"):
        _options.device(name)
