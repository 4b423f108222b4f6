"""Families and implementations that live outside the checkout: by entry point, by `--suite`, by the name of a case."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gemmgate.suite import catalog, offers
from gemmgate.suite.catalog import Selection, case_named, find
from gemmgate.suite.errors import UsageError
from gemmgate.suite.workers import Worker
from tests.called import called

EXAMPLE = Path(__file__).parent / "example"
EXTENSION = """
from gemmgate.suite.cases import Entry, Extension
EXTENSION = Extension("{family}", (Entry("{name}", "{where}"),))
"""


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *points: str) -> None:
    """A distribution `example` with these entry points, and the example package, on everybody's path."""
    info = folder / "example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{catalog.ENTRY_POINT_GROUP}]", *points]) + "\n")
    for path in (folder, EXAMPLE):
        monkeypatch.syspath_prepend(str(path))
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), str(EXAMPLE), before])))


def extend(folder: Path, family: str, name: str, where: str = "none:NONE") -> Path:
    """A suite whose one package extends a family."""
    package = folder / "suite" / "more"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(EXTENSION.format(family=family, name=name, where=where))
    return package.parent


def test_an_installed_family_is_found_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package named by an entry point stands beside ours, and a worker prepares and checks what it brings."""
    install(monkeypatch, tmp_path, "row_sums = row_sums")
    (choice,) = find().select(Selection(families=("row_sums",)))
    assert choice.implementations == ("torch_sum", "by_product")
    assert "dense_splitk" in find().families
    worker = Worker("cpu")
    try:
        fields = {"case": choice.case.to_json(), "seed": 0, "data": "normal", "caches": ["hot"]}
        assert worker.ask("prepare", 60.0, implementation="by_product", **fields)["ok"]
        assert worker.ask("check", 60.0, implementation="by_product")["ok"]
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("broken = no_such_package_here", "No module named 'no_such_package_here'"),
        ("broken = json", "Package 'json' defines no FAMILY and no EXTENSION"),
    ],
)
def test_a_broken_installed_package_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, said: str
) -> None:
    """An entry point that leads nowhere costs a sentence with its distribution, and no family but its own."""
    install(monkeypatch, tmp_path, point, "row_sums = row_sums")
    (problem,) = find().problems
    assert problem.startswith("entry point 'broken' of distribution 'example' is left out: ")
    assert said in problem
    assert {"dense_splitk", "row_sums"} <= set(find().families)
    result = called("new", "kernel", "mine", "--family", "no_such_family")
    assert "row_sums" in result.said


def test_a_broken_folder_is_an_error(tmp_path: Path) -> None:
    """What --suite names must work: a package that fails on import is named with the reason."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "__init__.py").write_text("raise RuntimeError('not today')\n")
    result = called("list", "--suite", tmp_path)
    assert result.exit_code == 2
    assert "bad' cannot be imported: RuntimeError: not today." in result.said


def with_a_broken_package(folder: Path) -> Path:
    """A suite of two packages: `good` extends a family, `bad` needs what is not there."""
    suite = extend(folder, "dense_splitk", "borrowed")
    (suite / "bad").mkdir()
    (suite / "bad" / "__init__.py").write_text("import nosuch_package\n")
    return suite


@pytest.mark.parametrize("options", [[], ["--family", "dense_splitk"]])
def test_a_broken_package_in_a_folder_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """A package below --suite that cannot be imported costs a sentence on standard error, and no other its place."""
    monkeypatch.setattr("gemmgate.suite.cli.list._worker", lambda device, suites: (None, "no worker"))
    suite = with_a_broken_package(tmp_path)
    result = called("list", "--suite", suite, *options, "--case", "m1-n48-k64-fp32", "--json")
    assert result.exit_code == 0
    assert "borrowed" in result.stdout
    assert f"package 'bad' of --suite {suite} is left out: " in result.stderr
    assert "No module named 'nosuch_package'" in result.stderr


def test_a_broken_package_that_is_asked_for_is_an_error(tmp_path: Path) -> None:
    """Who names the package that cannot be imported as a family is told why, with exit code 2."""
    result = called("list", "--suite", with_a_broken_package(tmp_path), "--family", "bad")
    assert result.exit_code == 2
    assert "bad' cannot be imported: ModuleNotFoundError: No module named 'nosuch_package'" in result.said


def test_a_folder_of_broken_packages_is_in_the_way_of_nothing_else(tmp_path: Path) -> None:
    """With nothing left in its folder, families of the checkout can still be selected by their names."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "__init__.py").write_text("import nosuch_package\n")
    known = find([tmp_path])
    assert known.select(Selection(families=("dense_splitk",)))
    with pytest.raises(UsageError, match="nosuch_package"):
        known.select(Selection())


def test_a_side_does_not_pass_for_whole_with_a_broken_package(tmp_path: Path) -> None:
    """What a side offers is an error where everything is asked for and a package failed, and not for another family."""
    asked = [Selection(), Selection(families=("dense_splitk",))]
    request = {"suites": [str(with_a_broken_package(tmp_path))], "selections": [one.to_json() for one in asked]}
    everything, one = offers.answer(request)
    assert "nosuch_package" in everything["error"]
    assert {offer["implementation"] for offer in one["offers"]} == {"borrowed"}


def test_an_extension_adds_to_a_family(tmp_path: Path) -> None:
    """A package may bring an implementation for a family that lives elsewhere; it is loaded from that package."""
    folder = extend(tmp_path, "dense_splitk", "borrowed", "twice:IMPLEMENTATION")
    (folder / "more" / "twice.py").write_text(
        "from dataclasses import replace\n"
        "from gemmgate.kernels.dense_splitk.cublas import IMPLEMENTATION as cublas\n"
        "IMPLEMENTATION = replace(cublas, name='borrowed')\n"
    )
    found = find([folder])
    assert found.family("dense_splitk").implementations[-1].name == "borrowed"
    assert found.implementation("dense_splitk", "borrowed").name == "borrowed"
    assert found.implementation("dense_splitk", "cublas").name == "cublas"


@pytest.mark.parametrize(
    ("family", "name", "said"),
    [
        ("dense_splitc", "new", "Did you mean dense_splitk?"),
        ("dense_splitk", "cublas", "cannot extend family 'dense_splitk': .* two implementations of one name: cublas"),
    ],
)
def test_an_extension_of_nothing_or_by_a_taken_name(tmp_path: Path, family: str, name: str, said: str) -> None:
    """An extension of a family that nobody has, or by a name it has already, is an error."""
    with pytest.raises(UsageError, match=said):
        find([extend(tmp_path, family, name)]).select(Selection())


# cases that no family lists


@pytest.mark.parametrize(
    ("name", "dims", "words"),
    [
        ("m1-n4096-k4097-bf16", (1, 4096, 4097), ("bf16", "acc32")),
        ("m7-n3-k5-tf32", (7, 3, 5), ("fp32", "tf32")),
        ("m7-n3-k5-fp32", (7, 3, 5), ("fp32", "ieee")),
    ],
)
def test_a_name_spells_a_case(name: str, dims: tuple[int, ...], words: tuple[str, str]) -> None:
    """A full name of sizes and dtype selects a case that the catalog does not list."""
    (choice,) = find().select(Selection(families=("dense_splitk",), cases=(name,), implementations=("cublas",)))
    assert choice.case.name == name
    assert tuple(choice.case.dims.values()) == dims
    assert (choice.case.dtype, choice.case.precision) == words


@pytest.mark.parametrize(
    "name",
    ["m1-n2-bf16", "m1-n2-k3", "m1-n2-k3-int8", "k3-n2-m1-bf16", "m0-n2-k3-bf16", "m1-n2-k03-bf16", "m1-n2-k3-x2-bf16"],
)
def test_what_spells_no_case(name: str) -> None:
    """A size too few or too many, no dtype, one the family lacks, another order, a zero: the name is unknown."""
    assert case_named(find().family("dense_splitk"), name) is None
    with pytest.raises(UsageError, match="No case matches"):
        find().select(Selection(cases=(name,)))


def test_a_listed_case_is_not_made_again() -> None:
    """A name that the catalog has keeps its tags and origin."""
    choices = find().select(Selection(families=("dense_splitk",), cases=("m32-n32-k32768-bf16",)))
    assert [choice.case.tags[0] for choice in choices] == ["quick"]


def test_list_shows_a_case_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`gemmgate list` takes such a name too."""
    monkeypatch.setattr("gemmgate.suite.cli.list._worker", lambda device, suites: (None, "no worker"))
    result = called("list", "--case", "m1-n48-k64-fp32", "--impl", "cublas", "--device", "cpu", "--json")
    (entry,) = json.loads(result.stdout)
    assert entry["dims"] == {"m": 1, "n": 48, "k": 64}
