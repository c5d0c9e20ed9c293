"""Removes work folders in a thread of its own: a removal takes a quarter of a millisecond or, once, minutes."""

from __future__ import annotations

import logging
import queue
import threading
from pathlib import Path

from computepool.agent.sandbox.scratch import remove_tree

_log = logging.getLogger(__name__)


class Sweeper:
    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._thread.start()

    def remove(self, folder: Path) -> None:
        """Soon. The folder must not be used any more."""
        self._queue.put(folder)

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish what was asked for. What is left after the time-out is removed by the next start."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (folder := self._queue.get()) is not None:
            try:
                remove_tree(folder)
            except OSError as error:
                _log.warning("cannot remove %s: %s", folder, error)
