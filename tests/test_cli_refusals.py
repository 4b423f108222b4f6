"""What the command line refuses: values, options that contradict each other, and places, each by one sentence."""

# ruff: noqa: F811  a fixture is imported and then named by a parameter
from __future__ import annotations

from pathlib import Path

import pytest
from typer.main import get_command

from gemmgate.suite import cli
from gemmgate.suite.cli._options import refuse_same_file
from gemmgate.suite.store import Store
from tests.program import ID, Invoke, invoke, make_store, program, store  # noqa: F401  fixtures among them


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
        (["show", "--impl", ","], "--impl is empty: leave it out to mean all."),
        (["show", "--format", "xml"], "'table', 'markdown', 'csv', 'json'"),
        (["show", "--colour"], "No such option"),
        (["runs", "--machine", "tpu*"], "Known: nvidia-h200-141g."),
        (["runs", "--format", "csv"], "'table', 'json'"),
        (["compare", "latest", "20251129"], "No run matches '20251129'."),
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


def options_with_values() -> list[tuple[str, str]]:
    """Every command with every option of its that takes a value."""
    commands = get_command(cli.app)
    assert isinstance(commands, cli.Commands)
    found = []
    for name in commands.list_commands(None):
        options = [one for one in commands.get_command(None, name).params if one.param_type_name == "option"]
        found += [(name, option.opts[0]) for option in options if not option.is_flag]
    return found


@pytest.mark.parametrize(("command", "option"), options_with_values())
def test_an_empty_value_is_not_an_option_left_out(invoke: Invoke, command: str, option: str) -> None:
    """An option whose value is empty or blank ends every command with its name and exit code 2, and starts nothing."""
    for value in ("", " "):
        result = invoke(command, option, value)
        assert result.exit_code == 2
        assert result.stderr == f"gemmgate: {option} is empty: give it a value, or leave it out.\n"


def test_an_empty_argument(invoke: Invoke) -> None:
    """An empty argument is refused as an empty option is, unless it is one of another program."""
    assert "RUN is empty" in invoke("show", "").stderr
    assert "is empty" not in invoke("capture", "--", "no-such-program", "").stderr


@pytest.mark.parametrize(
    ("words", "one", "other"),
    [
        ("gate --watch --base HEAD", "--base", "--watch"),
        ("gate --base HEAD --show latest", "--base", "--show"),
        ("gate --show latest --replay all", "--show", "--replay"),
        ("gate --replay all --plan here", "--plan", "--replay"),
        ("gate --plan here --resume latest", "--resume", "--plan"),
        ("gate --resume latest --watch", "--resume", "--watch"),
        ("gate --watch --json gate.json", "--json", "--watch"),
        ("gate --watch --format markdown", "--format markdown", "--watch"),
        ("gate --replay all --format json", "--format json", "--replay"),
        ("calibrate --show latest --case a", "--case", "--show"),
        ("tune --show latest --plan h200", "--plan", "--show"),
        ("tune --plan h200 --seconds 5", "--seconds", "--plan"),
        ("tune --oracle --plan h200", "--oracle", "--plan"),
        ("run --sweep-data --data zeros", "--data", "--sweep-data"),
        ("run --data normal --sweep-data", "--data", "--sweep-data"),
        ("timers --show latest --repeats 5", "--repeats", "--show"),
        ("learn --score own --python tree.py", "--python", "--score"),
        ("learn latest --ranges table.json --depth 2", "--depth", "--ranges"),
        ("explain A B --case a --impl own --recorded --target h200", "--target", "--recorded"),
        ("runs --finish latest --machine cpu*", "--machine", "--finish"),
    ],
)
def test_what_contradicts_is_refused(store: Store, invoke: Invoke, words: str, one: str, other: str) -> None:
    """Two modes, or an option that does nothing in a mode, end with exit code 2 and both their names."""
    make_store(store)
    result = invoke(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{one} means nothing with {other}: " in result.stderr


@pytest.mark.parametrize(
    ("words", "one", "other"),
    [
        ("learn --family made --json out --explain ./out", "--json", "--explain"),
        ("learn --family made --python out --explain out", "--python", "--explain"),
        ("gate --show latest --markdown out --json out", "--markdown", "--json"),
    ],
)
def test_two_options_that_name_one_file(invoke: Invoke, words: str, one: str, other: str) -> None:
    """Two outputs into one file, however it is spelled, are refused before anything is read."""
    result = invoke(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{one} and {other} would both write out: name another file for one of them." in result.stderr


@pytest.mark.parametrize("option", ["--watch", "--replay=all", "--show=latest"])
def test_a_results_folder_that_is_not_there_has_no_gates(invoke: Invoke, option: str) -> None:
    """What shows stored gates says with exit code 2 that a folder that does not exist has none, and which it is."""
    result = invoke("gate", option, "--results", "no-such-folder")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "in no-such-folder" in result.stderr and result.stderr.startswith("gemmgate: No ")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("static --target sm_90", "--cache"),
        ("explain HEAD HEAD --impl triton_split_k --target sm_90", "--keep"),
    ],
)
@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/dev/null", "/proc/below"])
def test_a_folder_that_takes_no_files(invoke: Invoke, tmp_path: Path, words: str, option: str, place: str) -> None:
    """A file or a place without files, named as the folder to write in, is a sentence before anything is compiled."""
    (tmp_path / "a-file").touch()
    folder = tmp_path / place
    result = invoke(*words.split(), "--family", "dense_splitk", "--case", "m16-n16-k4096-bf16", option, str(folder))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Cannot write in {folder}: " in result.stderr
    assert result.stderr.endswith(f", or name another folder with {option}.\n")


@pytest.mark.parametrize("words", ["runs", "show", "history", "gate --watch", "calibrate --show latest", "run"])
def test_results_that_are_a_file(invoke: Invoke, tmp_path: Path, words: str) -> None:
    """A file given as the folder of results is refused by what reads and by what writes there."""
    (tmp_path / "a-file").touch()
    result = invoke(*words.split(), "--results", str(tmp_path / "a-file"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--results {tmp_path / 'a-file'} is no folder" in result.stderr


def test_what_is_no_file_may_be_named_twice() -> None:
    """Two outputs that are both thrown away, into /dev/null, are no contradiction."""
    refuse_same_file({"--markdown": Path("/dev/null"), "--json": Path("/dev/null")})
