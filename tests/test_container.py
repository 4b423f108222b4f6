"""The container recipe: the base is the builder's choice, and every step is one that a shell accepts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECIPE = re.sub(
    r"\\\n\s*", " ", re.sub(r"^#.*\n", "", (ROOT / "containers/gpu-runner.Containerfile").read_text(), flags=re.M)
)
LINES = [line.partition(" ")[::2] for line in RECIPE.splitlines() if line]
RUNNERS = (ROOT / "docs" / "runners.md").read_text(encoding="utf-8")


def said(word: str) -> list[str]:
    """What stands behind an instruction, in order."""
    return [rest for first, rest in LINES if first == word]


def test_the_base_is_an_argument() -> None:
    """The image begins from whatever BASE names, by default an image without a registry's name."""
    assert said("FROM") == ["${BASE}"]
    base = said("ARG")[0].removeprefix("BASE=")
    assert re.fullmatch(r"[a-z]+:[\d.]+", base)


@pytest.mark.parametrize("step", said("RUN"))
def test_each_step_is_a_command(step: str) -> None:
    """A shell parses every step."""
    subprocess.run(["sh", "-n"], input=step, text=True, check=True)


def test_what_is_copied_is_what_the_page_fills() -> None:
    """The one folder that is copied is the wheelhouse that docs/runners.md makes, where pip then looks."""
    assert said("COPY") == ["wheelhouse/ /wheelhouse/"]
    assert "PIP_FIND_LINKS=/wheelhouse " in said("ENV")[0] + " "
    assert "mkdir -p wheelhouse" in RUNNERS
    assert "--file containers/gpu-runner.Containerfile" in RUNNERS


def test_nox_is_what_runs() -> None:
    """The container starts nox in the mounted checkout, and by default measures."""
    assert said("WORKDIR") == ["/checkout"]
    assert said("ENTRYPOINT") == ['["nox"]']
    assert said("CMD") == ['["-s", "bench"]']
