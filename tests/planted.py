"""A family with planted faults, compiled and not run, and entries of a tuned table for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemmgate.suite import profiles
from gemmgate.suite.catalog import Selection

PLANTED = Path(__file__).parent / "suites_static"


def selected(*implementations: str) -> Selection:
    return Selection(families=("planted",), implementations=implementations)


def targets(*names: str) -> dict[str, profiles.Target]:
    return {name: profiles.target(name) for name in names}


def entry(block_k: int) -> dict[str, Any]:
    return {"implementation": "steady", "tile": {"block_k": block_k}, "ratio": 1.0, "run": ""}
