"""The menu: `nox -l` explains every session in a line, `nox -s bench` measures, `nox` alone checks the code.

What follows `--` goes to the program behind the session, so `nox -s bench -- --help` is its help. Sessions that
compute share one environment, `.nox/torch-...`. Which torch it holds is decided here alone (docs/install.md).
"""

from __future__ import annotations

import ctypes.util
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nox

PINNED = ("torch==2.13.0", "triton==3.7.1; sys_platform == 'linux'")
"""Where no GPU is found. A CPU build of torch brings no Triton, so it is named; the pair belongs together."""
NEWEST = ("torch>=2.11",)
"""Where one is: the build that pip resolves to, with the Triton it asks for."""
LOCK = "requirements/lock.txt"
LOCKED = ((3, 11), "linux", "x86_64")
HERE = (sys.version_info[:2], sys.platform, platform.machine())
"""The lock holds exact versions of everything, for the machine that LOCKED describes and the pinned torch."""

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")

nox.needs_version = ">=2026.7.11"  # older ones do not tell a session the exit code of what it ran
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"


@dataclass(frozen=True)
class Torch:
    """An environment's name and what pip installs into it; nothing, where the running interpreter's torch is used."""

    name: str
    requirements: tuple[str, ...]


def torch_choice(environ: Mapping[str, str], *, gpu: bool) -> Torch:
    """GEMMGATE_TORCH decides: `system`, or requirements for pip. Unset: the newest for a GPU, else the pinned pair."""
    asked = environ.get("GEMMGATE_TORCH", "").strip()
    if asked == "system":
        return Torch("torch-system", ())
    if asked:
        return Torch("torch-" + re.sub(r"[^a-z0-9.]+", "-", asked.lower()).strip("-."), tuple(shlex.split(asked)))
    return Torch("torch-gpu", NEWEST) if gpu else Torch("torch-cpu", PINNED)


def lock_options(choice: Torch | None, host: tuple[object, ...] = HERE) -> list[str]:
    """Pip's constraint option where the lock describes this machine; a session without torch has no choice to match."""
    return ["--constraint", LOCK] if host == LOCKED and (choice is None or choice.requirements == PINNED) else []


def gpu_present() -> bool:
    """Whether an NVIDIA driver is here: a device node (Jetson's too) or its library. No CUDA call."""
    nodes = ("nvidiactl", "nvidia0", "nvmap", "dxg")
    return any(Path("/dev", node).exists() for node in nodes) or ctypes.util.find_library("cuda") is not None


def show_system_packages(session: nox.Session, home: Path) -> None:
    """Let an environment see, behind its own packages, all that the interpreter that runs nox sees."""
    # --system-site-packages reaches the base interpreter only; torch may be in another environment or on PYTHONPATH.
    ask = "import importlib.util, json, sys; print(json.dumps(sys.path if importlib.util.find_spec('torch') else []))"
    answer = session.run(sys.executable, "-P", "-c", ask, silent=True, log=False, external=True)
    folders = json.loads(str(answer).splitlines()[-1])
    if not folders:
        session.error(
            f"GEMMGATE_TORCH=system, but {sys.executable}, which runs nox, has no torch. "
            "Install nox beside the torch you mean and start it with that interpreter: `python -m nox`"
        )
    (site_packages,) = home.glob("lib/python3*/site-packages")
    # addsitedir and not a bare path: it reads .pth files too, and so sees a torch installed for development.
    lines = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders)
    (site_packages / "zz-system-packages.pth").write_text(lines, encoding="utf-8")


def torch_environment(session: nox.Session, *groups: str) -> str:
    """The interpreter of the shared environment, with what gemmgate and the groups need; gemmgate is not installed."""
    if sys.version_info < (3, 11):  # noqa: UP036 - nox may run on any
        session.error(f"gemmgate needs Python 3.11 or newer; {sys.executable} is {platform.python_version()}.")
    choice = torch_choice(os.environ, gpu=gpu_present())
    home = ROOT / ".nox" / f"{choice.name}-py{sys.version_info[0]}{sys.version_info[1]}"
    python = str(home / "bin" / "python")
    fresh = not Path(python).exists()
    if fresh:
        session.run(sys.executable, "-m", "virtualenv", "--quiet", str(home), external=True)
    if not choice.requirements:
        show_system_packages(session, home)
    needs = PROJECT["project"]["dependencies"] + list(nox.project.dependency_groups(PROJECT, *groups))
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", *([] if fresh else ["--quiet"])]
    session.run(*pip, *lock_options(choice), *choice.requirements, *needs, external=True, log=fresh)
    return python


def gemmgate(session: nox.Session, command: str, *groups: str) -> None:
    """Run one of gemmgate's commands. Its exit code becomes nox's, which by itself knows only 0 and 1."""
    python = torch_environment(session, *groups)
    try:
        # After Ctrl-C a run closes its file, and has a minute for that.
        session.run(python, "-m", "gemmgate", command, *session.posargs, external=True, interrupt_timeout=60)
    except nox.command.CommandFailed as failure:
        sys.exit(failure.return_code or 1)


def install_tools(session: nox.Session, group: str) -> None:
    """Prepare nox's own environment of a session that needs no torch."""
    session.install(*lock_options(None), *nox.project.dependency_groups(PROJECT, group))


computing = nox.session(default=False, venv_backend="none")  # in the shared environment, when asked for


@computing
def bench(session: nox.Session) -> None:
    """Check and measure what is selected, store the run, show the table (`-- --help` lists the selections)."""
    gemmgate(session, "run")


@computing
def gate(session: nox.Session) -> None:
    """Judge a change: slower, wrong, or slow to compile? The exit code is the verdict."""
    gemmgate(session, "gate")


@computing
def publish(session: nox.Session) -> None:
    """Write the stored runs out as a history with pages."""
    gemmgate(session, "publish", "publish")


@computing
def calibrate(session: nox.Session) -> None:
    """Measure this machine's noise by comparing code with itself."""
    gemmgate(session, "calibrate")


@computing
def tune(session: nox.Session) -> None:
    """Search tiles for this GPU and write the tuned tables."""
    gemmgate(session, "tune")


@computing
def static(session: nox.Session) -> None:
    """Compile for every architecture without a GPU: registers, shared memory, spills."""
    gemmgate(session, "static")


@computing
def compile(session: nox.Session) -> None:  # noqa: A001 - the session's name is the command's
    """Measure compile times, phase by phase, cold and warm."""
    gemmgate(session, "compile")


@computing
def fleet(session: nox.Session) -> None:
    """Measure one selection on many machines."""
    gemmgate(session, "fleet")


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the tests (`-- -k word` and all else that pytest takes)."""
    python = torch_environment(session, "tests", "publish", "learn")
    session.run(python, "-m", "pytest", *session.posargs, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, spelling, the direction of dependencies, the workflows and the changelog's fragments."""
    install_tools(session, "lint")
    for check in ("ruff check .", "ruff format --check .", "codespell", "lint-imports", "actionlint"):
        session.run(*check.split())
    session.run("zizmor", "--quiet", "--offline", ".github")
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def types(session: nox.Session) -> None:
    """Check the types, strictly and without torch."""
    install_tools(session, "types")
    session.run("mypy", "-p", "gemmgate")
    session.run("mypy", "noxfile.py", "benchmarks")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the pages into docs/_build; a warning is an error."""
    install_tools(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "docs", "docs/_build", *session.posargs)
