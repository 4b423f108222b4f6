"""Progress over blocks on the terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class BlockDisplay:
    """A line that moves where the terminal can; otherwise a line a block. Goes to standard error."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total} blocks"),
            TextColumn("[dim]{task.fields[item]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._begin = time.monotonic()

    def __enter__(self) -> BlockDisplay:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def block(self, index: int, count: int) -> None:
        left = ""
        if index:
            left = f"about {(time.monotonic() - self._begin) / index * (count - index):.0f} s left"
        if not self._console.is_terminal:
            self._console.print(f"[{index + 1}/{count}] block {left}", highlight=False, markup=False)
        elif self._task is None:
            self._task = self._bar.add_task("", total=count, item="", left=left)
        else:
            self._bar.update(self._task, completed=index, left=left)

    def item(self, path: str, index: int, count: int) -> None:
        if self._task is not None:
            self._bar.update(self._task, item=f"{path} ({index + 1}/{count})")

    def fault(self, path: str, sentence: str) -> None:
        self._console.print(f"  {path}: {sentence}", highlight=False, markup=False)
