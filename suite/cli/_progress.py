"""Progress on the terminal: which case or block, what of it, how long still. Goes to standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gemmgate.suite.catalog import Choice
from gemmgate.suite.records import Row


class _Line:
    """A line that moves where the terminal can; otherwise a line printed for each of the `noun` counted."""

    def __init__(self, console: Console, noun: str) -> None:
        self._console = console
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn(f"{{task.completed}}/{{task.total}} {noun}s"),
            TextColumn("[bold]{task.description}"),
            TextColumn("[dim]{task.fields[step]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._begin = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def _begins(self, what: str, said: str, index: int, count: int) -> None:
        """One more of `count` begins: `what` for the line that moves, `said` for one that is printed."""
        left = f"about {(time.monotonic() - self._begin) / index * (count - index):.0f} s left" if index else ""
        if not self._console.is_terminal:
            self._console.print(f"[{index + 1}/{count}] {said} {left}", highlight=False)
        elif self._task is None:
            self._task = self._bar.add_task(what, total=count, step="", left=left)
        else:
            self._bar.update(self._task, description=what, completed=index, left=left, step="")

    def _steps(self, step: str) -> None:
        if self._task is not None:
            self._bar.update(self._task, step=step)

    def _fails(self, sentence: str) -> None:
        self._console.print(f"  {sentence}", highlight=False, markup=False)


class Display(_Line):
    """Over cases."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "case")

    def case(self, choice: Choice, index: int, count: int) -> None:
        name = f"{choice.family.name}/{choice.case.name}"
        self._begins(name, f"{name} ({len(choice.implementations)} implementations)", index, count)

    def step(self, implementation: str, step: str) -> None:
        self._steps(f"{implementation} {step}".strip())

    def row(self, row: Row) -> None:
        if row.status not in ("ok", "unsupported"):
            self._fails(f"{row.path} {row.cache}: {row.status} ({row.reason}) {row.detail}")


class BlockDisplay(_Line):
    """Over blocks."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "block")

    def block(self, index: int, count: int) -> None:
        self._begins("", "block", index, count)

    def item(self, path: str, index: int, count: int) -> None:
        self._steps(f"{path} ({index + 1}/{count})")

    def fault(self, path: str, sentence: str) -> None:
        self._fails(f"{path}: {sentence}")
