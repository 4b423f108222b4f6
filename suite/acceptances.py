"""What a repository has accepted: slow-downs and absences by case, each with a bound, a reason and an end.

Pure. The gate reads the base's file, so that a change cannot accept itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from gemmgate.suite.compare import Comparison, Verdict
from gemmgate.suite.errors import UnreadableError
from gemmgate.suite.gate import MORE_KERNELS, fails

CREEP = 0.03
"""What accepted slow-downs of a case may come to since the last release, where the file says nothing else."""
_MOST = 1.0


@dataclass(frozen=True)
class Acceptance:
    """`glob` is over `family/implementation/case`; `bound` the largest slow-down as a share; `gone` accepts absence."""

    glob: str
    bound: float
    reason: str
    expires: date
    gone: bool = False

    def matches(self, path: str) -> bool:
        return fnmatchcase(path, self.glob)


@dataclass(frozen=True)
class Acceptances:
    """A file's entries, and its budget for all of them together."""

    entries: tuple[Acceptance, ...] = ()
    creep: float = CREEP


@dataclass(frozen=True)
class Applied:
    """`accepted` says by path by which words; `refused` why an entry did not help; `reports` are about the file."""

    accepted: Mapping[str, str]
    refused: Mapping[str, str]
    reports: tuple[str, ...]


def read_acceptances(text: str, name: str) -> Acceptances:
    """The file's text. Raises `UnreadableError` with the entry's number and what is wrong with it."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableError(f"{name} is no TOML: {error}.") from error
    unknown = set(data) - {"accept", "creep"}
    if unknown:
        raise UnreadableError(f"{name} has '{sorted(unknown)[0]}': it holds `creep` and entries [[accept]].")
    creep = _share(data.get("creep", CREEP), f"{name}: creep")
    entries = data.get("accept", [])
    if not isinstance(entries, list):
        raise UnreadableError(f"{name}: entries begin with [[accept]], in two brackets.")
    return Acceptances(tuple(_entry(entry, f"{name}, entry {i}") for i, entry in enumerate(entries, 1)), creep)


def _entry(entry: Mapping[str, Any], where: str) -> Acceptance:
    unknown = set(entry) - {"case", "bound", "reason", "expires", "gone"}
    lacking = {"case", "reason", "expires"} - set(entry)
    if "gone" not in entry and "bound" not in entry:
        lacking.add("bound")
    if unknown or lacking:
        said = f"has an unknown '{sorted(unknown)[0]}'" if unknown else f"lacks '{sorted(lacking)[0]}'"
        raise UnreadableError(f"{where}: it {said}. It takes case, bound or gone, reason, expires.")
    expires, reason, gone = entry["expires"], entry["reason"], entry.get("gone", False)
    if type(expires) is not date:
        raise UnreadableError(f"{where}: expires is a date without quotes, such as 2027-01-31.")
    if not isinstance(reason, str) or not reason.strip():
        raise UnreadableError(f"{where}: the reason is empty.")
    if not isinstance(entry["case"], str) or not isinstance(gone, bool):
        raise UnreadableError(f"{where}: case is a text and gone is true or false.")
    return Acceptance(entry["case"], _share(entry.get("bound", 0.0), f"{where}: bound"), reason, expires, gone)


def _share(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise UnreadableError(f"{where} is {value!r}: it is a share of the time, 0.02 for 2 %.")
    return float(value)


def apply(
    file: Acceptances, comparisons: Sequence[Comparison], today: date, since_release: Mapping[str, float]
) -> Applied:
    """Which failures the file covers. `since_release` holds what slow-downs come to since the last release, by path.

    A wrong result is never accepted, nor a change that only more kernels show.
    """
    accepted: dict[str, str] = {}
    refused: dict[str, str] = {}
    used: set[Acceptance] = set()
    for comparison in comparisons:
        path = comparison.row.path
        if not may_be_accepted(comparison):
            continue
        for entry in (entry for entry in file.entries if entry.matches(path)):
            why = _why_not(entry, comparison, today, file.creep, since_release.get(path))
            used.add(entry)
            if why:
                refused[path] = why
            else:
                accepted[path] = f"accepted until {entry.expires}: {entry.reason}"
                break
    refused = {path: why for path, why in refused.items() if path not in accepted}
    paths = [comparison.row.path for comparison in comparisons]
    reports = [report for entry in file.entries if (report := _report(entry, entry in used, paths, today))]
    return Applied(accepted, refused, tuple(reports))


def may_be_accepted(comparison: Comparison) -> bool:
    """Whether an entry could cover this."""
    return fails(comparison) and comparison.verdict is not Verdict.BROKEN and comparison.reason != MORE_KERNELS


def _why_not(entry: Acceptance, comparison: Comparison, today: date, creep: float, since_release: float | None) -> str:
    if entry.expires < today:
        return f"what was accepted for '{entry.glob}' ended on {entry.expires}"
    if comparison.reason == "missing":
        return "" if entry.gone else f"'{entry.glob}' accepts a slow-down, and this is missing: that takes gone = true"
    change = comparison.change or 0.0
    if change > entry.bound:
        return f"{change:.1%} is more than the {entry.bound:.1%} accepted for '{entry.glob}'"
    if since_release is not None and since_release > creep:
        return f"since the last release it has become {since_release:.1%} slower, and {creep:.1%} in all are allowed"
    return ""


def _report(entry: Acceptance, used: bool, paths: Sequence[str], today: date) -> str:
    if entry.expires < today:
        return f"'{entry.glob}' expired on {entry.expires}: remove it or renew it."
    if not any(entry.matches(path) for path in paths):
        return f"'{entry.glob}' matches nothing that was selected."
    return "" if used else f"'{entry.glob}' was not needed: remove it once its change is merged."
