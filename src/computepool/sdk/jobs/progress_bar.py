"""A progress bar on a terminal's standard error, or in a notebook; hidden elsewhere."""

from __future__ import annotations

import atexit
import html
import importlib
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Self

#: Redrawing costs more than a small job; in a notebook, it sends a message to the browser.
_REDRAW_S = 0.1
_REDRAW_NOTEBOOK_S = 0.25


class Bar:
    """Thread-safe."""

    def __init__(self, label: str, *, total: int | None, show: bool | None = None) -> None:
        """`show=None`: only on a terminal or in a notebook."""
        self._lock = threading.Lock()
        self._done = 0
        self._drawn_at = 0.0
        self._drawn = None if show is False else _make_bar(label, total, forced=bool(show))

    def add(self, done: int) -> None:
        with self._lock:
            self._done += done
            now = time.monotonic()
            if self._drawn is not None and now - self._drawn_at > self._drawn.redraw_s:
                self._drawn_at = now
                try:
                    self._drawn.draw(self._done)
                except Exception:  # noqa: BLE001 - without a terminal, the results still matter
                    self._drawn = None

    def stop(self) -> None:
        with self._lock:
            if self._drawn is not None:
                with suppress(Exception):
                    self._drawn.stop(self._done)
                self._drawn = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _make_bar(label: str, total: int | None, *, forced: bool) -> _Notebook | _Terminal | None:
    if in_notebook():
        return _Notebook(label, total)
    if forced or (sys.stderr is not None and sys.stderr.isatty()):
        return _Terminal(label, total)
    return None


def in_notebook() -> bool:
    """Whether IPython runs with a kernel; on a terminal it has none. Imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class _Terminal:
    redraw_s = _REDRAW_S

    def __init__(self, label: str, total: int | None) -> None:
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(label, total=total)
        self._progress.start()
        # The program may end before the map does, and the terminal needs its cursor back.
        atexit.register(self._progress.stop)

    def draw(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def stop(self, done: int) -> None:
        self.draw(done)
        self._progress.stop()
        atexit.unregister(self._progress.stop)


class _Notebook:
    """One output cell that is replaced, as HTML and text. Rich would need ipywidgets."""

    redraw_s = _REDRAW_NOTEBOOK_S

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self._began = time.monotonic()
        display: Any = importlib.import_module("IPython.display")
        self._handle = display.display(self._content(0), display_id=True, raw=True)

    def draw(self, done: int) -> None:
        if self._handle is not None:
            self._handle.update(self._content(done), raw=True)

    stop = draw

    def _content(self, done: int) -> dict[str, str]:
        took_s = time.monotonic() - self._began
        of = "" if self._total is None else f"/{self._total}"
        rate = f", {done / took_s:,.0f}/s" if done and took_s > 1 else ""
        text = f"{self._label} {done}{of} in {took_s:.0f} s{rate}"
        size = f'value="{done}" max="{max(1, self._total)}"' if self._total is not None else ""
        return {"text/plain": text, "text/html": f"<progress {size}></progress> {html.escape(text)}"}
