"""The tuned tables of the kernels that a compiling process imported, which may be those of another commit."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gemmgate.suite import profiles
from gemmgate.suite.cases import Target
from gemmgate.suite.errors import UsageError

_TUNED = "gemmgate.kernels._tuned"


def tables_module() -> Any:
    """The module that reads tuned tables; None among kernels that have none."""
    with suppress(ModuleNotFoundError):
        return importlib.import_module(_TUNED)
    return None


def readable(package: str, target: Target) -> tuple[Mapping[str, Mapping[str, Any]], list[dict[str, Any]]]:
    """All entries of a package's tables for a GPU, and a row's fields for each file that could have some and has none.

    A damaged file that does not tell its architecture is that of the machine it is called after, or of any.
    """
    tables = tables_module()
    if tables is None:
        return {}, []
    damaged = getattr(tables, "damaged", None)
    lost = damaged(package) if damaged else {}
    wrong = [said for profile, said in lost.items() if _arch_of(profile) in ("", target.arch)]
    known: Mapping[str, Mapping[str, Any]] = {}
    try:
        known = tables.entries(package, target)
    except ValueError as error:
        wrong = list(dict.fromkeys([*wrong, str(error)]))
    return known, [{"case": "", "tile": None, "reason": "table", "detail": said} for said in wrong]


def _arch_of(profile: str) -> str:
    """Of a machine or an architecture that is known by this name; else empty."""
    with suppress(UsageError):
        return profiles.target(profile).arch
    return ""
