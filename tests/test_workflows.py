"""The workflows call what exists, pin what they use, and let nobody onto a runner who should not be there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> dict[Any, Any]:
    """A workflow; YAML reads its key `on` as true."""
    content: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in content.items()}


def jobs() -> list[Any]:
    """Every job of every workflow, with the events that start it."""
    return [
        pytest.param(set(read(path)["on"]), job, id=f"{path.stem}-{name}")
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_githubs_and_pinned(path: Path) -> None:
    """Every action is one of GitHub's own, at the hash of a commit with its version behind it."""
    lines = [line.strip().removeprefix("- ") for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    assert [
        line for line in lines if not re.fullmatch(r"uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    ] == []


def test_an_action_has_one_version() -> None:
    """An action is at the same commit in all workflows."""
    found = re.findall(r"uses: (\S+)@(\S+)", "".join(path.read_text() for path in WORKFLOWS))
    assert len({name for name, _ in found}) == len(set(found))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_as_such_may_only_read(path: Path) -> None:
    """Rights to write are given to single jobs."""
    assert read(path)["permissions"] in ({}, {"contents": "read"})


@pytest.mark.parametrize(("events", "job"), jobs())
def test_who_may_write_runs_no_stranger_and_who_runs_on_a_gpu_waits(events: set[str], job: dict[str, Any]) -> None:
    """A job on a GPU runner may only read, queues for its GPU, and starts for no event that runs a fork's workflow."""
    assert job["timeout-minutes"] <= 120
    rights = job.get("permissions", {"contents": "read"})
    checked_out = [step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/checkout")]
    assert all(settings["persist-credentials"] is False for settings in checked_out)
    if "self-hosted" not in job["runs-on"]:
        # What writes never has the pull request's files.
        assert "write" not in rights.values() or not any("ref" in settings for settings in checked_out)
        return
    assert rights == {"contents": "read"}
    assert job["concurrency"] == {"group": "gpu-${{ matrix.gpu }}", "cancel-in-progress": False}
    assert "vars.GPU_RUNNERS != ''" in job["if"]
    assert not events & {"pull_request", "push", "issue_comment"}
    if "pull_request_target" in events:
        assert "github.event.label.name == 'gate'" in job["if"]
        assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]
        assert [settings["ref"] for settings in checked_out] == ["${{ github.event.pull_request.head.sha }}"]


def test_nothing_from_outside_stands_in_a_script() -> None:
    """Scripts take what an event says from the environment: in the text of a script it could be a command."""
    for path in WORKFLOWS:
        for job in read(path)["jobs"].values():
            assert not [step["run"] for step in job["steps"] if "${{" in step.get("run", "")], path


def test_sessions_and_scripts_exist() -> None:
    """Every nox session and every script that a workflow calls is there."""
    text = "".join(path.read_text() for path in WORKFLOWS)
    sessions = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(), re.MULTILINE))
    assert {"gate", "bench", "publish", "calibrate", "static"} <= set(re.findall(r"nox -s (\w+)", text)) <= sessions
    assert all((ROOT / name).is_file() for name in re.findall(r"bash (\.ci/\w+)", text))


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    who = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    return subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_store_adds_and_never_changes(tmp_path: Path) -> None:
    """`.ci/store` makes the branch, adds runs to it, keeps a run that is there already, and hands out all of them."""
    remote, checkout = tmp_path / "remote.git", tmp_path / "checkout"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    checkout.mkdir()
    git(checkout, "init", "--quiet")
    git(checkout, "remote", "add", "origin", str(remote))
    (checkout / "results" / "runs" / "m").mkdir(parents=True)
    (checkout / "results" / "runs" / "m" / "committed").write_text("0")
    for number, content in enumerate(("first", "second")):
        measured = checkout / "measured" / "runs" / "m"
        measured.mkdir(parents=True, exist_ok=True)
        (measured / "same").write_text(content)
        (measured / f"run-{number}").write_text(content)
        subprocess.run(["bash", ROOT / ".ci" / "store", "measured", "stored"], cwd=checkout, check=True)
    subprocess.run(["bash", ROOT / ".ci" / "store", "measured", "stored"], cwd=checkout, check=True)
    names = git(remote, "ls-tree", "-r", "--name-only", "results").splitlines()
    assert names == ["runs/m/run-0", "runs/m/run-1", "runs/m/same"]
    assert git(remote, "show", "results:runs/m/same") == "first"
    assert git(remote, "rev-list", "--count", "results") == "2"
    stored = checkout / "stored" / "runs" / "m"
    assert sorted(path.name for path in stored.iterdir()) == ["committed", "run-0", "run-1", "same"]
