"""What is known of a GPU that is not here: figures with their sources, as data in `machines/`. Standard library only.

A profile is a product, `machines/<profile>.toml`; an architecture is what all products of a compute capability
share, one table of `machines/architectures.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gemmgate.suite.cases import Target
from gemmgate.suite.errors import unknown

MACHINES = Path(__file__).parent / "machines"


@dataclass(frozen=True)
class Architecture:
    """What a multiprocessor holds. `profile` is the product that stands for it where none is named.

    `shared_bytes` is all of its shared memory; `registers` are 32 bits wide and given to a warp in multiples of
    `register_unit`; each of the `partitions` has its share of them. `tensor_memory` counts columns, 0 without any.
    """

    name: str
    profile: str
    warps: int
    blocks: int
    shared_bytes: int
    registers: int
    register_unit: int
    partitions: int
    shared_unit_bytes: int
    reserved_shared_bytes: int
    block_warps: int
    warp_size: int
    tensor_memory: int = 0
    sources: tuple[str, ...] = ()

    @property
    def block_shared_bytes(self) -> int:
        """What one block may take, once it has opted in."""
        return self.shared_bytes - self.reserved_shared_bytes


@dataclass(frozen=True)
class PowerMode:
    """A setting of a Jetson: its budget, 0 where it has none, and the highest clock of its GPU."""

    name: str
    clock_hz: float
    power_w: float = 0.0
    source: str = ""


@dataclass(frozen=True)
class Profile:
    """A product. `device` is the name that its driver reports, `flop_per_s` maps as `Limits.flop_per_s` does.

    `sources` maps a figure to where it was published. A figure that nobody published is 0. `shared_bytes` of a
    block is set only where the architecture does not say it.
    """

    name: str
    device: str
    arch: str
    aliases: tuple[str, ...] = ()
    sm_count: int = 0
    clock_hz: float = 0.0
    memory_bytes: int = 0
    bytes_per_s: float = 0.0
    l2_bytes: int = 0
    power_w: float = 0.0
    shared_bytes: int = 0
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    power_modes: tuple[PowerMode, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        """The same as kernels see it, with the shared memory of its architecture."""
        found = architectures().get(self.arch)
        return Target(
            arch=self.arch,
            name=self.device,
            sm_count=self.sm_count,
            shared_bytes=found.block_shared_bytes if found else self.shared_bytes,
            l2_bytes=self.l2_bytes,
            memory_bytes=self.memory_bytes,
        )


def target(name: str) -> Target:
    """The target of a profile (`nvidia-h200`, or its alias `h200`), or of the product that stands for `sm_90`.

    Raises UsageError for a name that is neither.
    """
    return profile(representatives().get(name, name)).target


def profile(name: str) -> Profile:
    """The profile of that name or alias. Raises UsageError for one that does not exist."""
    known = profiles()
    for one in known.values():
        if name in (one.name, *one.aliases):
            return one
    aliases = [alias for one in known.values() for alias in one.aliases]
    raise unknown("machine", name, [*representatives(), *known, *aliases], most=64)


@cache
def profiles() -> Mapping[str, Profile]:
    """All of them by name."""
    files = sorted(path for path in MACHINES.glob("*.toml") if path.stem != "architectures")
    return {path.stem: _profile(path.stem, tomllib.loads(path.read_text(encoding="utf-8"))) for path in files}


@cache
def architectures() -> Mapping[str, Architecture]:
    """NVIDIA's by name, such as `sm_90`, in the order of the file."""
    data = _file()
    urls, common = data.pop("sources"), data.pop("common")
    del data["amd"]
    found = {}
    for name, own in data.items():
        words = dict.fromkeys([*common["sources"], *own["sources"]])
        found[name] = Architecture(name, **{**common, **own, "sources": tuple(urls[word] for word in words)})
    return found


@cache
def representatives() -> Mapping[str, str]:
    """The profile that stands for each architecture, AMD's last."""
    return {**{name: one.profile for name, one in architectures().items()}, **_file()["amd"]}


def _file() -> dict[str, Any]:
    return tomllib.loads((MACHINES / "architectures.toml").read_text(encoding="utf-8"))


def _profile(name: str, data: Mapping[str, Any]) -> Profile:
    urls = data["sources"]
    figures, peaks = data["figures"], data.get("flop_per_s", {})
    sources = {key: urls[figure["source"]] for key, figure in {**figures, **peaks}.items()}
    return Profile(
        name=name,
        device=data["device"],
        arch=data["arch"],
        aliases=tuple(data["aliases"]),
        flop_per_s={key: figure["value"] for key, figure in peaks.items()},
        power_modes=tuple(
            PowerMode(**{**mode, "source": urls[mode["source"]]}) for mode in data.get("power_modes", [])
        ),
        sources=sources,
        **{key: figure["value"] for key, figure in figures.items()},
    )
