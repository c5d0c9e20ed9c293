"""Work folders: one per attempt. A folder that a job left unchanged serves the next job of the same account and size.

Creating and removing three folders takes 0.4 ms on a busy disk, half of what starting `/bin/true` costs. Another account
never gets a used folder, however clean it looks, because attributes can carry data. A mounted folder is emptied in the
background and kept for its account: mounting a new one would take longer.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections import defaultdict
from pathlib import Path

from computepool.agent.sandbox.base import OUTPUTS, SandboxError
from computepool.agent.sandbox.scratch import make_workdir
from computepool.agent.sandbox.volumes import Volumes
from computepool.agent.storage.sweeper import MADE_BY_US, Sweeper

_log = logging.getLogger(__name__)

#: Clean folders to keep, of all accounts together.
KEPT_MAX = 16


class WorkFolders:
    def __init__(self, parent: Path, sweeper: Sweeper, volumes: Volumes) -> None:
        self.parent = parent
        self._sweeper = sweeper
        self._volumes = volumes
        self._kept: dict[tuple[str, int], list[Path]] = defaultdict(list)
        self._kept_count = 0
        self._made = 0
        self._lock = threading.Lock()
        self._closed = False

    def take(self, account: str, disk_mb: int) -> Path:
        with self._lock:
            if kept := self._kept.get((account, disk_mb)):
                self._kept_count -= 1
                return kept.pop()
        return self.make("job", disk_mb)

    def make(self, kind: str, disk_mb: int) -> Path:
        """Create a folder limited to `disk_mb`, by the kernel where possible."""
        self._made += 1
        folder = make_workdir(self.parent, f"{kind}-{self._made}")
        if not self._volumes.missing:
            try:
                self._volumes.mount(folder, disk_mb)
            except SandboxError as error:
                _log.warning("%s; the folder is measured instead", error)
        return folder

    def remove(self, folder: Path) -> None:
        self._sweeper.remove(folder)

    def give_back(self, account: str, folder: Path, disk_mb: int) -> None:
        """Call it after the job's whole process tree has ended."""
        keep = functools.partial(self._keep, (account, disk_mb))
        if _is_untouched(folder):
            if not keep(folder):
                self._sweeper.remove(folder)
        elif os.path.ismount(folder):
            self._sweeper.clean(folder, keep)
        else:
            self._sweeper.remove(folder)

    def _keep(self, key: tuple[str, int], folder: Path) -> bool:
        """Runs in the sweeper's thread, too."""
        with self._lock:
            if self._closed or self._kept_count >= KEPT_MAX:
                return False
            self._kept[key].append(folder)
            self._kept_count += 1
            return True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            kept = [folder for folders in self._kept.values() for folder in folders]
            self._kept.clear()
        for folder in kept:
            self._sweeper.remove(folder)


def _is_untouched(folder: Path) -> bool:
    """Stops at the first entry that the agent did not create: a job may have left a million."""
    path = str(folder)
    found = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name not in MADE_BY_US or not entry.is_dir(follow_symlinks=False):
                    return False
                found.append(entry.name)
        if OUTPUTS not in found or any(_holds_something(f"{path}/{name}") for name in found):
            return False
        os.chmod(path, 0o700)
        os.chmod(f"{path}/{OUTPUTS}", 0o755)
    except OSError:
        return False
    return True


def _holds_something(path: str) -> bool:
    with os.scandir(path) as entries:
        return next(entries, None) is not None
