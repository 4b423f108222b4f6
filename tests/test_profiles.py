"""Figures of GPUs that are not here: each has a source, and what kernels see of them is right."""

from __future__ import annotations

import re

import pytest

from gemmgate.suite import profiles
from gemmgate.suite.errors import UsageError
from gemmgate.suite.records import machine_key

FIGURES = ("sm_count", "clock_hz", "memory_bytes", "bytes_per_s", "l2_bytes", "power_w", "shared_bytes")


@pytest.mark.parametrize("name", sorted(profiles.profiles()))
def test_every_figure_has_a_source(name: str) -> None:
    """A figure of a profile that is not zero says where it was published."""
    found = profiles.profile(name)
    given = {figure for figure in FIGURES if getattr(found, figure)} | set(found.flop_per_s)
    assert set(found.sources) == given
    assert all(len(source) > 20 for source in found.sources.values())
    assert all(mode.source and mode.clock_hz > 1e8 for mode in found.power_modes)


@pytest.mark.parametrize("name", sorted(set(profiles.profiles()) - {"cpu"}))
def test_targets_are_complete(name: str) -> None:
    """A GPU's target has multiprocessors, shared memory, cache and memory of plausible sizes, and the device's name."""
    target = profiles.target(name)
    assert 4 <= target.sm_count <= 512
    assert 48 * 1024 <= target.shared_bytes <= 256 * 1024
    assert 1 << 20 <= target.l2_bytes < 1 << 29
    assert 4 * 10**9 <= target.memory_bytes <= 400 * 10**9
    assert target.name == profiles.profile(name).device != ""


def test_names_are_those_of_the_devices() -> None:
    """A profile of an NVIDIA card is called as its tuned table is: the device's name as a folder name, or its start."""
    for found in profiles.profiles().values():
        if found.name.startswith("nvidia-"):
            assert machine_key(found.device).startswith(found.name)


def test_known_figures() -> None:
    """The H200 is what runs on one report, and the limits of a block are those of NVIDIA's tables."""
    h200 = profiles.target("h200")
    assert (h200.arch, h200.sm_count, h200.l2_bytes) == ("sm_90", 132, 60 * 2**20)
    limits = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
    found = {name: one.block_shared_bytes // 1024 for name, one in profiles.architectures().items()}
    assert found == {f"sm_{capability}": kibibytes for capability, kibibytes in limits.items()}


def test_architectures_name_products() -> None:
    """For each architecture stands a product of that architecture, which its name alone finds."""
    for arch, name in profiles.representatives().items():
        assert profiles.profile(name).arch == arch
        assert profiles.target(arch) == profiles.target(name)


def test_aliases_are_unique() -> None:
    """No name or alias means two profiles."""
    names = [name for found in profiles.profiles().values() for name in (found.name, *found.aliases)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names)


def test_unknown_machine_is_an_error_that_lists_those_there_are() -> None:
    """A misspelt name is answered with the nearest."""
    with pytest.raises(UsageError, match=r"Did you mean .*h200"):
        profiles.target("h20")
