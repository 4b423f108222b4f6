"""Two rows of two runs: what forbids to compare them, and what else differs that may explain a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gemmgate.suite.records import Row, Run


@dataclass(frozen=True)
class Side:
    """A row in its run: what the row does not say itself, the run does."""

    row: Row
    run: Run

    @property
    def machine(self) -> str:
        return self.row.machine or self.run.machine.key

    @property
    def board(self) -> str:
        return self.row.board or self.run.machine.board

    @property
    def pick(self) -> str:
        """Algorithm and tile in words."""
        return " ".join(word for word in (self.row.algorithm, _words(self.row.tile or {})) if word) or "none"

    @property
    def meaning(self) -> str:
        """What the case's name stands for."""
        return " ".join(word for word in (_words(self.row.dims), self.row.layout, self.row.epilogue) if word)


def difference(old: Side, new: Side, *, across_stacks: bool) -> tuple[str, str] | None:
    """Reason code and sentence of the first thing that forbids a comparison."""
    named = zip(_identity(old), _identity(new), strict=True)
    for (reason, what, before), (_, _, after) in named:
        if before != after:
            said = f"{_said(before)} in the baseline, {_said(after)} in the candidate"
            return reason, f"{what} differs: {said}."
    changed = _stack_changes(old, new)
    if changed and not across_stacks:
        return "stack", f"The stack differs: {changed}. Ask for a comparison across stacks to see the times."
    return None


def notes(old: Side, new: Side) -> list[str]:
    """What differs though it forbids nothing, in the order of what explains most."""
    found = []
    if old.pick != new.pick:
        found.append(f"The pick changed: {old.pick} -> {new.pick}.")
    if old.row.device_code and new.row.device_code:
        same = old.row.device_code == new.row.device_code
        found.append("The device code is the same." if same else "The device code changed.")
    if None not in (old.row.kernels, new.row.kernels) and old.row.kernels != new.row.kernels:
        found.append(f"Kernels launched: {old.row.kernels} -> {new.row.kernels}.")
    if old.board != new.board:
        found.append("Measured on another board, whose spread is in the interval.")
    changed = _stack_changes(old, new)
    return [*found, f"Across stacks: {changed}."] if changed else found


def _identity(side: Side) -> list[tuple[str, str, object]]:
    row = side.row
    return [
        ("machine", "The machine", side.machine),
        ("method", "The version of the method", row.method),
        ("case", "What the case's name stands for", side.meaning),
        ("precision", "The precision", f"{row.dtype} {row.precision}".strip()),
        ("flags", "The setting of the library flags", _words(row.flags)),
        ("timer", "The timer", row.timer),
        ("cache", "The cache state", row.cache),
        ("cache_proof", "Whether the cache state was disproved", row.cache_proof == "failed"),
        ("data", "The input data", row.data),
        ("seed", "The seed of the input data", row.seed),
        ("target", "The target", row.target),
        ("unit", "The unit", row.unit),
    ]


def _stack_changes(old: Side, new: Side) -> str:
    before, after = asdict(old.run.stack), asdict(new.run.stack)
    return ", ".join(
        f"{name} {_said(before[name])} -> {_said(after[name])}" for name in before if before[name] != after[name]
    )


def _words(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(values.items()))


def _said(value: object) -> object:
    return "none" if value == "" else value
