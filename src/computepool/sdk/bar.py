"""A progress bar on the terminal's error stream; nothing at all where there is no terminal."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

#: Redrawing costs more than a small job does.
_REDRAW_S = 0.1


class Bar:
    def __init__(self, label: str, *, total: int | None, show: bool | None = None) -> None:
        """`show=None` asks the terminal."""
        self._done = 0
        self._drawn = 0.0
        self._progress: Progress | None = None
        if show or (show is None and sys.stderr is not None and sys.stderr.isatty()):
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._progress.add_task(label, total=total)
            self._progress.start()

    def add(self, done: int) -> None:
        self._done += done
        if self._progress is not None and time.monotonic() - self._drawn > _REDRAW_S:
            self._drawn = time.monotonic()
            self._progress.update(self._task, completed=self._done)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=self._done)
            self._progress.stop()
            self._progress = None
