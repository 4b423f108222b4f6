"""The command line: every bad input ends with one sentence that says what exists and what to do, and an exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import gemmgate
from gemmgate.suite import cli
from gemmgate.suite.cli import _options, show
from gemmgate.suite.errors import UsageError
from gemmgate.suite.store import Store
from tests.stored import H200, ROOT, STACK, interrupted, make_row, make_run, stored, write_baseline

ID = "20261129T160312Z-0a1b2c3d4e"
Invoke = Callable[..., "Result"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "results")


@dataclass(frozen=True)
class Result:
    """What a call of the program left behind."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def invoke(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Invoke:
    """Runs the program on that store."""
    monkeypatch.setenv("GEMMGATE_RESULTS", str(store.root))
    monkeypatch.delenv("GEMMGATE_DEBUG", raising=False)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["gemmgate", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return Result(int(end.value.code or 0), *capsys.readouterr())

    return run


def program(*arguments: str, code: str = "from gemmgate.suite.cli import main; main()") -> list[str]:
    """The program as a process of its own."""
    return [sys.executable, "-c", code, *arguments]


def make_store(store: Store) -> None:
    """Two implementations, and one that is broken, sampled together."""
    stored(
        store,
        make_run(),
        make_row(visit="1", yardstick="cublas"),
        make_row(implementation="own", visit="1", yardstick="cublas"),
        make_row(
            implementation="bad", visit="1", yardstick="cublas", status="broken", median_s=None, low_s=None, high_s=None
        ),
    )


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shwo"], "No command matches 'shwo'. Did you mean show?"),
        (["show", "20261129T160312Z-0a1b2c3d4f"], f"Did you mean {ID}?"),
        (["show", "latest:nvidia-h100"], "Known: nvidia-h200-141g."),
        (["show", "baseline:nvidia-h100"], "No baseline matches 'nvidia-h100'."),
        (["show", "missing.parquet"], "missing.parquet is no file. `gemmgate runs` lists what is stored."),
        (["show", "--family", "dense_splitc"], "Did you mean dense_splitk?"),
        (["show", "--case", "m33*"], "No case matches 'm33*'."),
        (["show", "--impl", "cublas,oan"], "No implementation matches 'oan'."),
        (["show", "--status", "fine"], "No status matches 'fine'. Known: broken, ok."),
        (["show", "--status", "broken", "--impl", "own"], "Ask for less."),
        (["show", "--impl", ""], "--impl is empty: leave it out to mean all."),
        (["show", "--format", "xml"], "'table', 'markdown', 'csv', 'json'"),
        (["show", "--colour"], "No such option"),
        (["runs", "--machine", "tpu*"], "Known: nvidia-h200-141g."),
        (["runs", "--format", "csv"], "'table', 'json'"),
        (["compare", "latest", "20261129"], "No run matches '20261129'."),
        (["compare", "latest"], "Missing argument 'B'"),
    ],
)
def test_bad_input(store: Store, invoke: Invoke, arguments: list[str], said: str) -> None:
    """What does not exist ends with exit code 2 and a sentence on stderr that names what does; stdout stays empty."""
    make_store(store)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert result.stdout == ""


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


def test_an_interruption_is_a_sentence() -> None:
    """Ctrl-C ends with exit code 130 and without a traceback."""
    code = (
        "import os, signal\n"
        "import gemmgate.suite.cli._options as options\n"
        "options.store = lambda results: os.kill(os.getpid(), signal.SIGINT)\n"
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
def test_a_full_output_is_a_sentence(store: Store) -> None:
    """Output that finds no space ends with exit code 2 and one sentence."""
    make_store(store)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            program("show", "--results", str(store.root)),
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


# show


def test_show_in_every_format(store: Store, invoke: Invoke) -> None:
    """The latest run is shown as a table, Markdown, CSV and JSON, with every row."""
    make_store(store)
    assert "own" in invoke("show").stdout
    assert "| " in invoke("show", "--format", "markdown").stdout
    table = list(csv.DictReader(io.StringIO(invoke("show", "--format", "csv").stdout)))
    assert [row["implementation"] for row in table] == ["cublas", "own", "bad"]
    data = json.loads(invoke("show", ID, "--format", "json").stdout)
    assert data["run"]["id"] == ID
    assert [row["status"] for row in data["rows"]] == ["ok", "ok", "broken"]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (["--impl", "own"], ["cublas", "own"]),
        (["--impl", "bad"], ["bad"]),
        (["--status", "broken"], ["bad"]),
        (["--impl", "o*", "--impl", "c*"], ["cublas", "own"]),
        (["--impl", "own,bad", "--family", "dense*", "--case", "m32*"], ["cublas", "own", "bad"]),
    ],
)
def test_show_narrowed(store: Store, invoke: Invoke, options: list[str], rows: list[str]) -> None:
    """Only rows that match are shown, each with the yardstick that its ratio needs."""
    make_store(store)
    result = invoke("show", "--format", "json", *options)
    assert [row["implementation"] for row in json.loads(result.stdout)["rows"]] == rows


def test_the_yardstick_of_another_visit_does_not_stay() -> None:
    """Narrowing keeps the yardstick of the row's own visit and cache state alone."""
    rows = (
        make_row(visit="1", yardstick="cublas"),
        make_row(visit="2", yardstick="cublas", cache="hot"),
        make_row(visit="2", yardstick="cublas"),
        make_row(implementation="own", visit="2", yardstick="cublas"),
    )
    kept = show.narrowed(make_run(rows=rows), {"implementation": ("own",)}).rows
    assert [(row.visit, row.cache, row.implementation) for row in kept] == [
        ("2", "cold", "cublas"),
        ("2", "cold", "own"),
    ]


def test_show_says_that_a_run_is_not_finished(store: Store, invoke: Invoke) -> None:
    """Journals are shown too: stderr says whether the run goes on or how to go on with it, and what was torn."""
    path = interrupted(store, make_run(), make_row(), make_row(implementation="own"))
    path.write_bytes(path.read_bytes()[:-10])
    result = invoke("show", "--format", "json")
    assert len(json.loads(result.stdout)["rows"]) == 1
    assert f"was interrupted after 1 rows: `gemmgate run --resume {ID}`" in result.stderr
    assert "torn" in result.stderr
    with store.resume("latest", make_run()):
        assert f"run {ID} goes on: 1 rows so far." in invoke("show").stderr


def test_show_a_baseline(store: Store, invoke: Invoke) -> None:
    """`baseline:<machine>` is a run like any other."""
    make_store(store)
    write_baseline(store, json.dumps({"runs": [ID]}))
    assert json.loads(invoke("show", f"baseline:{H200.key}", "--format", "json").stdout)["run"]["id"] == ID


# runs


def test_runs_as_json(store: Store, invoke: Invoke) -> None:
    """The JSON of `runs` is a list of objects with the documented keys."""
    make_store(store)
    (found,) = json.loads(invoke("runs", "--format", "json").stdout)
    assert found == {
        "id": ID,
        "machine": "nvidia-h200-141g",
        "gpu": "NVIDIA H200",
        "utc": "2026-11-29T16:03:12Z",
        "commit": "0a1b2c3d4e5f",
        "families": ["dense_splitk"],
        "rows": 3,
        "state": "finished",
        "path": str(store.root / "runs" / "nvidia-h200-141g" / f"{ID}.parquet"),
        "note": "",
    }


def test_runs_as_a_table(store: Store, invoke: Invoke) -> None:
    """The table has a line a run that `--machine` narrows, and names unreadable files on stderr."""
    make_store(store)
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb", machine=replace(H200, key="cpu-epyc", model="EPYC 9654")))
    (store.root / "runs" / "cpu-epyc" / "junk.parquet").write_text("junk")
    result = invoke("runs")
    assert result.exit_code == 0
    assert [line.split()[-1] for line in result.stdout.splitlines()[-3:]] == ["finished", "finished", "unreadable"]
    assert "junk.parquet is truncated or damaged" in result.stderr
    narrowed = invoke("runs", "--machine", "nvidia*")
    assert "cpu-epyc" not in narrowed.stdout + narrowed.stderr
    assert ID in narrowed.stdout


def test_no_runs(invoke: Invoke) -> None:
    """An empty store is an empty list and a remark, not an error."""
    result = invoke("runs", "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    result = invoke("runs", "--machine", "nvidia*")
    assert result.exit_code == 0
    assert "`gemmgate run` measures one" in result.stderr


# compare


def test_compare(store: Store, invoke: Invoke) -> None:
    """Two runs are shown side by side with exit code 0, also where a row got slower."""
    make_store(store)
    slow = make_row(median_s=9e-6, low_s=8.9e-6, high_s=9.1e-6, samples_s=tuple(2 * x for x in make_row().samples_s))
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb"), slow)
    for form in ("table", "markdown", "json"):
        result = invoke("compare", ID, "latest", "--format", form)
        assert result.exit_code == 0
        assert "SLOWER" in result.stdout


def test_compare_across_stacks(store: Store, invoke: Invoke) -> None:
    """Runs of two stacks end with exit code 3, unless one asks to compare across stacks."""
    stored(store, make_run())
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb", stack=replace(STACK, torch="2.11.0")))
    result = invoke("compare", ID, "latest")
    assert result.exit_code == 3
    assert "not a single row" in result.stderr
    assert "INCOMPARABLE" in result.stdout
    assert invoke("compare", ID, "latest", "--across-stacks").exit_code == 0


def test_runs_with_nothing_in_common(store: Store, invoke: Invoke) -> None:
    """Runs without a common row are a usage error."""
    stored(store, make_run())
    stored(store, make_run("20261130T100000Z-bbbbbbbbbb"), make_row(case="other"))
    assert invoke("compare", ID, "latest").exit_code == 2


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


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:3"])
def test_devices(name: str) -> None:
    """Names of devices pass."""
    assert _options.device(name) == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "CUDA", "cuda:x", ""])
def test_what_is_no_device(name: str) -> None:
    """Any other name is an error that lists devices."""
    with pytest.raises(UsageError, match="auto, cpu, cuda"):
        _options.device(name)
