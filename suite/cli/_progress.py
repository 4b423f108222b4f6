"""Progress on the terminal: which case, which implementation, how long still."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gemmgate.suite.catalog import Choice
from gemmgate.suite.records import Row


class Display:
    """A line that moves where the terminal can; otherwise a line a case. Goes to standard error."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total} cases"),
            TextColumn("[bold]{task.description}"),
            TextColumn("[dim]{task.fields[step]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._begin = time.monotonic()
        self._index = 0

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def case(self, choice: Choice, index: int, count: int) -> None:
        name, self._index = f"{choice.family.name}/{choice.case.name}", index
        left = ""
        if index:
            left_s = (time.monotonic() - self._begin) / index * (count - index)
            left = f"about {left_s:.0f} s left"
        if not self._console.is_terminal:
            self._console.print(
                f"[{index + 1}/{count}] {name} ({len(choice.implementations)} implementations) {left}", highlight=False
            )
        elif self._task is None:
            self._task = self._bar.add_task(name, total=count, step="", left=left)
        else:
            self._bar.update(self._task, description=name, completed=index, left=left, step="")

    def step(self, implementation: str, step: str) -> None:
        if self._task is not None:
            self._bar.update(self._task, step=f"{implementation} {step}".strip())

    def row(self, row: Row) -> None:
        if row.status not in ("ok", "unsupported"):
            self._console.print(
                f"  {row.path} {row.cache}: {row.status} ({row.reason}) {row.detail}", highlight=False, markup=False
            )
