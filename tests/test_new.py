"""`gemmgate new`: what it writes works at once, and what is there already is left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gemmgate.suite import recipes
from gemmgate.suite.cases import Target
from gemmgate.suite.catalog import Catalog, case_named, find
from gemmgate.suite.errors import UsageError
from tests.called import called

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A program in a folder."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def found_in(suite: Path) -> Catalog:
    """What another process would find there: packages are read again."""
    for name in [name for name in sys.modules if name.startswith("gemmgate_suite_")]:
        del sys.modules[name]
    return find([suite])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout without kernels, to which a family and a second kernel of it were added."""
    root = tmp_path_factory.mktemp("checkout")
    (root / "gemmgate").mkdir()
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "gemmgate" / name, root / "gemmgate")
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "kernels").mkdir()
    shutil.copy(ROOT / "kernels" / "__init__.py", root / "kernels")
    (root / "gemmgate" / "suite").symlink_to(ROOT / "suite")
    (root / "gemmgate" / "kernels").symlink_to(root / "kernels")
    (root / "tests").mkdir()
    for name in ("__init__.py", "beside.py", "conftest.py", "guarded.py", "test_conformance.py"):
        shutil.copy(ROOT / "tests" / name, root / "tests")
    for arguments in (["family", "fresh"], ["kernel", "quicker", "--family", "fresh"]):
        done = run(sys.executable, "-m", "gemmgate", "new", *arguments, cwd=root)
        assert done.returncode == 0, done.stderr
    return root


def test_a_new_family_and_its_kernels_conform_at_once(checkout: Path) -> None:
    """The conformance tests find the family and a second implementation of it in that checkout, and pass."""
    pytest_options = ["-v", "-p", "no:cacheprovider", "tests/test_conformance.py"]
    done = run(sys.executable, "-m", "pytest", *pytest_options, cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("fresh/torch/m16-n64-k1024-bf16", "fresh/quicker/m33-n40-k1001-fp32"):
        assert f"test_calls_repeat[{name}] PASSED" in done.stdout


def test_a_new_family_has_the_files_of_the_recipe(checkout: Path) -> None:
    """Cases, inputs, reference, a yardstick, the listing and a README, and the kernel added later."""
    assert {path.name for path in (checkout / "kernels" / "fresh").iterdir()} == {
        "README.md", "__init__.py", "cases.py", "inputs.py", "quicker.py", "reference.py", "torch_linear.py"
    }  # fmt: skip


def test_new_files_follow_the_rules_of_the_checkout(checkout: Path) -> None:
    """Ruff has nothing to say about what was written."""
    pytest.importorskip("ruff", reason="the linter is not installed beside the tests")
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = run(sys.executable, "-m", "ruff", *command, "kernels", cwd=checkout)
        assert done.returncode == 0, done.stdout


def test_a_kernel_is_added_to_a_familys_list() -> None:
    """Adding a line to the first family's own listing changes nothing else in it."""
    path = ROOT / "kernels" / "dense_splitk" / "__init__.py"
    before = path.read_text(encoding="utf-8")
    after = recipes.with_entry(before, "mine", path)
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert added == ['        Entry("mine", "mine:IMPLEMENTATION"),']
    assert after.replace(added[0] + "\n", "") == before


@pytest.mark.parametrize(
    "source",
    [
        "FAMILY = Family(implementations=ENTRIES)\n",
        "FAMILY = Family(implementations=())\n",
        "FAMILY = Family(implementations=(A, B))\n",
        "FAMILY = Family(\n    implementations=(\n        A\n    ),\n)\n",
    ],
)
def test_a_list_of_another_form_is_not_touched(source: str) -> None:
    """Where a line cannot be added safely, the sentence has the line."""
    with pytest.raises(UsageError, match=r'add this line there by hand first: Entry\("mine", "mine:IMPLEMENTATION"\),'):
        recipes.with_entry(source, "mine", Path("x.py"))


def test_kernels_outside_extend_a_family(tmp_path: Path) -> None:
    """With --suite, two kernels for a family of the checkout are written outside it, found there, and right."""
    for name in ("mine", "mine_too"):
        assert called("new", "kernel", name, "--family", "dense_splitk", "--suite", tmp_path).exit_code == 0
    found = found_in(tmp_path)
    assert [entry.name for entry in found.family("dense_splitk").implementations[-2:]] == ["mine", "mine_too"]
    case = case_named(found.family("dense_splitk"), "m4-n3-k5-fp32")
    assert case is not None
    inputs = {"a": torch.arange(20.0).reshape(4, 5), "b": torch.ones(5, 3)}
    out = found.implementation("dense_splitk", "mine_too").prepare(case, inputs, Target("cpu"), None).bind(inputs)()
    assert torch.equal(out, torch.tensor([10.0, 35.0, 60.0, 85.0])[:, None].expand(4, 3))
    assert not (ROOT / "kernels" / "dense_splitk" / "mine.py").exists()


def test_a_family_outside_takes_a_kernel_there(tmp_path: Path) -> None:
    """A family written with --suite gets its kernels in its own folder."""
    assert called("new", "family", "elsewhere", "--suite", tmp_path).exit_code == 0
    result = called("new", "kernel", "mine", "--family", "elsewhere", "--suite", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == str(tmp_path / "elsewhere" / "mine.py")
    found = found_in(tmp_path)
    case = found.family("elsewhere").cases[0]
    example = found.load("elsewhere", "inputs:make_inputs")(case, 0, "cpu")
    outputs = [
        found.implementation("elsewhere", name).prepare(case, example, Target("cpu"), None).bind(example)().double()
        for name in ("torch", "mine")
    ]
    exact = example["a"].double() @ example["w"].double().T
    for out in outputs:
        assert (out - exact).norm() / exact.norm() < 2e-3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["family", "dense_splitk"], "There is a family called 'dense_splitk' already"),
        (["family", "Fresh"], "'Fresh' is no name for a family"),
        (["family", "class"], "'class' is no name for a family"),
        (["family", "torch"], "'torch' is a module that Python finds already"),
        (["family", "statistics"], "'statistics' is a module that Python finds already"),
        (["family", "taken"], "exists already: choose another name"),
        (["family", "fresh", "--family", "dense_splitk"], "--family is for a new kernel"),
        (["kernel", "cublas", "--family", "dense_splitk"], "There is a kernel called 'cublas' already"),
        (["kernel", "mine"], "Say with --family what the kernel computes: dense_splitk"),
        (["kernel", "mine", "--family", "dense_splitc"], "Did you mean dense_splitk"),
        (["thing", "mine"], "'thing' is not one of 'kernel', 'family'"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: list[str], said: str) -> None:
    """Names that are taken or none, and options that do not fit, end with exit code 2 and write nothing."""
    (tmp_path / "taken").mkdir()
    result = called("new", *arguments, "--suite", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.said
    assert [path.name for path in tmp_path.rglob("*")] == ["taken"]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    """A file that has the kernel's name, though no implementation has it, stays as it is."""
    called("new", "family", "elsewhere", "--suite", tmp_path)
    before = (tmp_path / "elsewhere" / "cases.py").read_text()
    result = called("new", "kernel", "cases", "--family", "elsewhere", "--suite", tmp_path)
    assert result.exit_code == 2
    assert "cases.py exists already" in result.said
    assert (tmp_path / "elsewhere" / "cases.py").read_text() == before
