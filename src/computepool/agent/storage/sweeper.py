"""Removes work folders: empty ones at once, others in a thread, because a job may leave a million files."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from computepool.agent.sandbox.base import OUTPUTS
from computepool.agent.sandbox.scratch import OPEN_FOLDER, open_descriptor, remove_tree
from computepool.agent.sandbox.volumes import clean, unmount

_log = logging.getLogger(__name__)

#: The folders in a work folder to which the job wrote nothing.
MADE_BY_US = (OUTPUTS, ".tmp")


class Sweeper:
    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Path, Callable[[Path], bool] | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._thread.start()

    def remove(self, folder: Path) -> None:
        """Remove a folder soon. It must no longer be used."""
        path = str(folder)
        if os.path.ismount(path):
            self._queue.put((folder, None))
            return
        try:
            _remove_ours(path)
            os.rmdir(path)
        except OSError:  # It is usually not empty, or a link, which is not followed.
            self._queue.put((folder, None))

    def clean(self, folder: Path, keep: Callable[[Path], bool]) -> None:
        """Empty a mounted folder and offer it to `keep`; remove it if `keep` declines."""
        self._queue.put((folder, keep))

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish pending removals. The next start removes what is left after the timeout."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            folder, keep = entry
            try:
                if keep is not None and clean(folder) and keep(folder):
                    continue
                unmount(folder)
                remove_tree(folder)
            except OSError as error:
                _log.warning("cannot remove %s: %s", folder, error)


def _remove_ours(path: str) -> None:
    """Works through a descriptor: a running worker can replace its folder with a link at any time."""
    with open_descriptor(path, OPEN_FOLDER) as here:
        for name in MADE_BY_US:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(name, dir_fd=here)
