"""What is installed is what the checkout holds, and both leave Hugging Face's `kernels` its name."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BESIDE_TRANSFORMERS = """
import gemmgate.suite.catalog, gemmgate.kernels
import kernels
import transformers
import transformers.integrations.hub_kernels
from importlib.metadata import files
assert transformers.utils.import_utils.is_kernels_available(), "transformers does not use the installed kernels"
print(any(str(file.locate()) == kernels.__file__ for file in files("kernels")), gemmgate.__file__)
"""


def run(*command: str, cwd: Path, path: str = "") -> str:
    """What a process started in a folder prints, with `path` as its PYTHONPATH where one is given."""
    environ = {**os.environ, **({"PYTHONPATH": path} if path else {})}
    result = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout.strip()


def build(source: Path, target: str, into: Path) -> Path:
    """A wheel or an sdist, built without the network."""
    run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into), cwd=source)
    (artifact,) = into.iterdir()
    return artifact


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of this checkout."""
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the wheel."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    run(*pip, str(wheel), cwd=target)
    return target


def modules(folder: Path) -> set[str]:
    """Python files below `suite` and `kernels`, as they are named in a wheel."""
    found = [path for half in ("suite", "kernels") for path in (folder / half).rglob("*.py")]
    return {f"gemmgate/{path.relative_to(folder).as_posix()}" for path in found}


def test_wheel_holds_suite_and_kernels(wheel: Path) -> None:
    """The wheel has every module of both halves, the type marker, and nothing outside its one package."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert modules(ROOT) <= names
    assert "gemmgate/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"gemmgate", "gemmgate-0.1.0.dist-info"}


def test_sdist_gives_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    """The source distribution holds no links, and a wheel built from it alone has the same contents."""
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if not member.isfile() and not member.isdir()]
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    rebuilt = zipfile.ZipFile(build(source, "wheel", tmp_path / "rebuilt"))
    original = zipfile.ZipFile(wheel)
    assert sorted(rebuilt.namelist()) == sorted(original.namelist())
    changed = [name for name in original.namelist() if rebuilt.read(name) != original.read(name)]
    assert changed == []


def test_installed_metadata(installed: Path) -> None:
    """The installed distribution has its licence, its console script, and a module behind that."""
    (info,) = installed.glob("*.dist-info")
    distribution = PathDistribution(info)
    assert distribution.metadata["License-Expression"] == "BSD-3-Clause"
    assert (info / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    (script,) = distribution.entry_points.select(group="console_scripts")
    assert (script.name, script.value) == ("gemmgate", "gemmgate.suite.cli:main")
    assert (installed / "gemmgate" / "suite" / "cli" / "__init__.py").is_file()
    assert not [path for path in installed.rglob("*") if path.is_symlink()]


def test_wheel_leaves_kernels_to_hugging_face(installed: Path, tmp_path: Path) -> None:
    """Beside the installed wheel, `kernels` is Hugging Face's and transformers imports it."""
    theirs, ours = run(sys.executable, "-c", BESIDE_TRANSFORMERS, cwd=tmp_path, path=str(installed)).split()
    assert theirs == "True"
    assert Path(ours).is_relative_to(installed)


def test_checkout_leaves_kernels_to_hugging_face() -> None:
    """At the root of a checkout, where a folder `kernels` stands first on the path, it is the same."""
    theirs, ours = run(sys.executable, "-c", BESIDE_TRANSFORMERS, cwd=ROOT).split()
    assert theirs == "True"
    assert Path(ours).is_relative_to(ROOT)


def test_checkout_answers_to_kernels_where_nobody_else_does() -> None:
    """Without Hugging Face's package, the bare name at the root of a checkout is that folder, and nothing breaks."""
    bare = [sys.executable, "-S", "-E"]  # -S: without site-packages
    assert (
        Path(run(*bare, "-c", "import kernels; print(kernels.__file__)", cwd=ROOT)) == ROOT / "kernels" / "__init__.py"
    )
