"""Tuned tables as kernels read them: which table answers, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gemmgate.kernels import _tuned
from gemmgate.suite.cases import Target

H200 = Target("sm_90", "NVIDIA H200")
H100 = Target("sm_90", "NVIDIA H100 80GB HBM3")
A100 = Target("sm_80", "NVIDIA A100-SXM4-80GB")
Package = Callable[..., str]


def entry(block: int, implementation: str = "own") -> dict[str, Any]:
    """An entry whose tile has one number."""
    return {"implementation": implementation, "tile": {"block": block}, "ratio": 1.5, "run": "r"}


def table(profile: str, arch: str, entries: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A table that is right unless fields say otherwise."""
    known = {"schema": 1, "profile": profile, "arch": arch, "method": 1, "stack": {"triton": "3"}, "entries": entries}
    return {**known, **fields}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Writes a package that holds the tables given and no other; returns its name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(*tables: dict[str, Any] | str) -> str:
        name = f"tuned_{abs(hash(str(tmp_path)))}_{len(list(tmp_path.iterdir()))}"
        folder = tmp_path / name / "tuned"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
        for index, content in enumerate(tables):
            text = content if isinstance(content, str) else json.dumps(content)
            stem = f"t{index}" if isinstance(content, str) else content["profile"]
            (folder / f"{stem}.json").write_text(text, encoding="utf-8")
        return name

    yield write
    for name in [name for name in sys.modules if name.startswith("tuned_")]:
        del sys.modules[name]


def test_the_devices_own_table_answers_first(package: Package) -> None:
    """A key that stands in the table of the device and in one of its arch is answered by the device's."""
    name = package(
        table("nvidia-a", "sm_90", {"m1/own": entry(1)}),
        table("nvidia-h200", "sm_90", {"m1/own": entry(2)}),
    )
    found = _tuned.lookup(name, "m1/own", H200)
    assert found is not None and found["tile"] == {"block": 2}


def test_a_table_of_the_arch_answers_what_the_own_lacks(package: Package) -> None:
    """Another device of the same arch, and a device with a table that lacks the key, get the arch's entry."""
    name = package(
        table("nvidia-h200", "sm_90", {"m1/own": entry(2)}), table("nvidia-gh200", "sm_90", {"m2": entry(3)})
    )
    for target, key, block in ((H100, "m1/own", 2), (H200, "m2", 3)):
        found = _tuned.lookup(name, key, target)
        assert found is not None and found["tile"] == {"block": block}


def test_all_entries_are_those_that_a_lookup_finds(package: Package) -> None:
    """Entries of the device's table stand before equal keys of its arch's; another arch has none."""
    name = package(
        table("nvidia-a", "sm_90", {"m1/own": entry(1), "m2": entry(3)}),
        table("nvidia-h200", "sm_90", {"m1/own": entry(2)}),
    )
    found = _tuned.entries(name, H200)
    assert {key: value["tile"]["block"] for key, value in found.items()} == {"m1/own": 2, "m2": 3}
    assert all(found[key] == _tuned.lookup(name, key, H200) for key in found)
    assert not _tuned.entries(name, A100)


def test_another_arch_gets_nothing(package: Package) -> None:
    """A table of sm_90 says nothing for sm_80, and a package without tables says nothing at all."""
    name = package(table("nvidia-h200", "sm_90", {"m1": entry(2)}, ranges={"m1": []}))
    assert _tuned.lookup(name, "m1", A100) is None
    assert _tuned.ranges(name, "m1", A100) == ()
    assert _tuned.lookup("gemmgate.kernels._triton", "m1", H200) is None


def test_ranges_come_in_order(package: Package) -> None:
    """The pieces of a key are those of the file, and a key without any has none."""
    pieces = [{"up_to": 8, "implementation": "a", "tile": {}}, {"up_to": 64, "implementation": "b", "tile": None}]
    name = package(table("nvidia-h200", "sm_90", {}, ranges={"k": pieces}))
    assert [dict(piece) for piece in _tuned.ranges(name, "k", H200)] == pieces
    assert _tuned.ranges(name, "other", H200) == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"arch": "sm_90"', "is not JSON"),
        (table("p", "sm_90", {}, schema=2), "has schema 2, not 1"),
        (table("p", "sm_90", {}, method=7), "by method 7 of the search, not 1"),
        (table("p", "sm_90", {}, stack=None), "lacks stack"),
        (table("p", "sm_90", {"m1": {"tile": {}}}), "entry 'm1' needs"),
        (table("p", "sm_90", {"m1": {"implementation": "own"}}), "entry 'm1' needs"),
        (table("p", "sm_90", {}, ranges={"k": [{**entry(1), "up_to": 8}, {**entry(1), "up_to": 4}]}), "ranges of 'k'"),
        (table("p", "sm_90", {}, ranges={"k": [{"up_to": 8}]}), "ranges of 'k'"),
        (
            table("p", "sm_90", {}, ranges={"k": [{**entry(1), "up_to": 8}, {**entry(1), "up_to": "9"}]}),
            "ranges of 'k'",
        ),
        (table("p", "sm_90", {}, ranges={"k": [{**entry(1), "up_to": [8]}]}), "ranges of 'k'"),
        (table("p", "sm_90", {}, ranges={"k": [entry(1)]}), "ranges of 'k'"),
        (table("p", "sm_90", {}, ranges={"k": 5}), "ranges of 'k'"),
        (table("p", "sm_90", {}, ranges=[]), "ranges is no object"),
        ('{"arch": "sm_90", "entries":' + "[" * 100_000, "is not JSON"),
    ],
)
def test_what_is_no_table_is_refused(package: Package, content: dict[str, Any] | str, reason: str) -> None:
    """A damaged table, or one of another schema or method, is refused with its name and the reason."""
    name = package(content)
    with pytest.raises(ValueError, match=reason) as refused:
        _tuned.lookup(name, "m1", H200)
    assert f"{name}/tuned/" in str(refused.value)


@pytest.mark.parametrize("damage", ["folder", "bytes", "empty", "truncated", "method"])
def test_a_damaged_table_fails_only_those_who_need_it(package: Package, tmp_path: Path, damage: str) -> None:
    """Its own device is told the path; another architecture, and who finds the key in its own table, are not.

    What is left of a file tells its architecture, whose other devices then need it too.
    """
    good = table("nvidia-a100-sxm4-80gb", "sm_80", {"m1": entry(1)})
    name = package(good, table("nvidia-h100-80gb-hbm3", "sm_90", {"m1": entry(2)}))
    path = tmp_path / name / "tuned" / "nvidia-h200.json"
    whole = json.dumps(table("nvidia-h200", "sm_90", {"m1": entry(3)}, **({"method": 9} if damage == "method" else {})))
    if damage == "folder":
        path.mkdir()
    else:
        content = {"bytes": b"\xff" + whole.encode(), "empty": b"", "truncated": whole.encode()[:-20]}
        path.write_bytes(content.get(damage, whole.encode()))
    for key in ("m1", "m2"):
        with pytest.raises(ValueError, match=r"(?i)(tune again|tune).*") as refused:
            _tuned.lookup(name, key, H200)
        assert f"{path} " in str(refused.value)
    found = [_tuned.lookup(name, "m1", target) for target in (A100, H100)]
    assert [one and one["tile"]["block"] for one in found] == [1, 2]
    assert _tuned.lookup(name, "m2", A100) is None and not _tuned.ranges(name, "m1", A100)
    if damage in ("folder", "empty"):
        assert str(path) in _tuned.damaged(name)["nvidia-h200"] and _tuned.lookup(name, "m2", H100) is None
    else:
        assert not _tuned.damaged(name)
        with pytest.raises(ValueError, match="nvidia-h200"):
            _tuned.lookup(name, "m2", H100)


@pytest.mark.parametrize(
    ("target", "profile"),
    [(H200, "nvidia-h200"), (H100, "nvidia-h100-80gb-hbm3"), (Target("cpu"), "cpu"), (Target("sm_87"), "sm_87")],
)
def test_a_profile_is_the_devices_name(target: Target, profile: str) -> None:
    """A table is named after the device as its driver calls it, or after the arch where it has no name."""
    assert _tuned.profile_of(target) == profile
