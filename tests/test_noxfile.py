"""The menu is complete, and which torch an environment gets depends on its arguments alone."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SESSIONS = "bench gate publish calibrate tune static compile fleet tests lint types docs".split()


@pytest.fixture(scope="module")
def noxfile() -> ModuleType:
    """The noxfile as a module."""
    spec = spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["noxfile"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    """Versions by canonical name, as the lock gives them."""
    lines = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_menu_is_complete() -> None:
    """`nox -l` lists every session with an explanation, and `nox` alone runs tests, lint and types."""
    listing = subprocess.run([sys.executable, "-m", "nox", "-l"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = dict(re.findall(r"^([*-] \w+) -> (.+)$", listing.stdout, re.MULTILINE))
    assert [name[2:] for name in found] == SESSIONS
    assert all(len(line) > 20 for line in found.values())
    assert [name[2:] for name in found if name.startswith("*")] == ["tests", "lint", "types"]


def test_menu_stays_a_menu() -> None:
    """The noxfile has at most 200 lines."""
    assert len((ROOT / "noxfile.py").read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize(
    ("asked", "gpu", "name", "requirements"),
    [
        (None, False, "torch-cpu", ("torch==2.13.0", "triton==3.7.1; sys_platform == 'linux'")),
        (None, True, "torch-gpu", ("torch>=2.11",)),
        ("", True, "torch-gpu", ("torch>=2.11",)),
        ("system", False, "torch-system", ()),
        ("system", True, "torch-system", ()),
        ("torch==2.12.*", True, "torch-torch-2.12", ("torch==2.12.*",)),
        ("torch==2.11.* numpy<2.4", False, "torch-torch-2.11.-numpy-2.4", ("torch==2.11.*", "numpy<2.4")),
    ],
)
def test_torch_choice(
    noxfile: ModuleType, asked: str | None, gpu: bool, name: str, requirements: tuple[str, ...]
) -> None:
    """GEMMGATE_TORCH decides where it is set; otherwise the presence of a GPU does."""
    environ = {} if asked is None else {"GEMMGATE_TORCH": asked}
    choice = noxfile.torch_choice(environ, gpu=gpu)
    assert (choice.name, choice.requirements) == (name, requirements)


def test_lock_is_used_where_it_fits(noxfile: ModuleType) -> None:
    """The lock constrains the pinned torch on CPython 3.11 on x86-64 Linux, and nothing else."""
    host = ((3, 11), "linux", "x86_64")
    pinned = noxfile.torch_choice({}, gpu=False)
    assert noxfile.lock_options(pinned, host) == ["--constraint", "requirements/lock.txt"]
    assert noxfile.lock_options(None, host) == ["--constraint", "requirements/lock.txt"]
    for other in (((3, 12), "linux", "x86_64"), ((3, 11), "linux", "aarch64"), ((3, 11), "darwin", "x86_64")):
        assert noxfile.lock_options(pinned, other) == []
    assert noxfile.lock_options(noxfile.torch_choice({}, gpu=True), host) == []
    assert noxfile.lock_options(noxfile.torch_choice({"GEMMGATE_TORCH": "system"}, gpu=False), host) == []


def test_lock_satisfies_every_requirement(noxfile: ModuleType, pins: dict[str, str]) -> None:
    """Every dependency, every group's entry and the pinned torch is in the lock, at a version that it allows."""
    wanted = [*noxfile.PINNED, *noxfile.PROJECT["project"]["dependencies"]]
    wanted += [entry for group in noxfile.PROJECT["dependency-groups"].values() for entry in group]
    for requirement in map(Requirement, wanted):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in the lock"
        assert requirement.specifier.contains(version), f"the lock's {requirement.name} {version} is not {requirement}"
