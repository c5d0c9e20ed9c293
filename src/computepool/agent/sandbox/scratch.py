"""Work folders: creates, fills, measures and removes folders that untrusted programs write to.

Owns every file operation on such a folder except collecting results (collect.py). After a job has run, nothing here follows
a link, trusts a name or recurses: a job can nest folders deeper than any stack and name files as it likes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from computepool.agent.sandbox.base import MIB, OUTPUTS, SandboxError
from computepool.protocol.files import check_name

_log = logging.getLogger(__name__)

_DEPTH_MAX = 256
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Even an empty file costs an inode: this many per MB of the disk limit, but not fewer than the minimum.
_FILES_PER_MB = 256
_FILES_MIN = 20_000
_STEP_S = 0.015
_SCAN_PAUSE_S = 0.5
#: Descriptors that are checked, of all processes of a job together. More than that are an excess.
_OPEN_MAX = 65_536
#: The agent itself has no descriptors left to look with, which says nothing about the job.
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
#: Parents of work folders that passed the check: checking again costs a tenth of a small job's start.
_known_reachable: set[Path] = set()


@contextlib.contextmanager
def open_descriptor(path: Path | str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> Iterator[int]:
    """A descriptor that is closed at the end of the block."""
    fd = os.open(path, flags, mode, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def make_workdir(parent: Path, name: str) -> Path:
    """Create a private folder for one attempt, with an empty outputs folder, and `parent`, which others can traverse."""
    check_name(name)
    parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    workdir = parent / name
    workdir.mkdir(mode=0o700)
    (workdir / OUTPUTS).mkdir(mode=0o755)
    return workdir


def stage(workdir: Path, name: str, *, executable: bool = False) -> BinaryIO:
    """Open a new file `name` under `workdir` for writing; creates its folders. Never follows a link."""
    *folders, last = check_name(name)
    here = os.open(workdir, OPEN_FOLDER)
    try:
        for folder in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o755, dir_fd=here)
            below = os.open(folder, OPEN_FOLDER, dir_fd=here)
            os.close(here)
            here = below
        return os.fdopen(os.open(last, NEW_FILE, 0o755 if executable else 0o644, dir_fd=here), "wb")
    finally:
        os.close(here)


def give(folder: Path | str, uid: int, *, dir_fd: int | None = None) -> None:
    """Make `uid` the owner of everything in `folder`. Only before a job has run there."""
    with open_descriptor(folder, OPEN_FOLDER, dir_fd=dir_fd) as here, os.scandir(here) as entries:
        os.fchown(here, uid, uid)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                give(entry.name, uid, dir_fd=here)
            else:
                os.chown(entry.name, uid, uid, dir_fd=here, follow_symlinks=False)


def unreachable(path: Path) -> Path | None:
    """The first folder on the way to `path` that other users cannot enter; None if they can reach `path`."""
    resolved = path.resolve()
    for folder in reversed((resolved, *resolved.parents)):
        mode = folder.stat().st_mode
        if folder != resolved and not mode & stat.S_IXOTH:
            return folder
    return None


def require_reachable(path: Path) -> None:
    """Raise SandboxError if the jobs of a root agent, which run as other users, cannot reach `path`."""
    if os.geteuid() != 0 or path.parent in _known_reachable:
        return
    blocked = unreachable(path)
    if blocked is not None:
        raise SandboxError(
            f"jobs cannot reach {path}: {blocked} is closed to other users. "
            "Put the node's data elsewhere, for example in /var/lib/computepool."
        )
    _known_reachable.add(path.parent)


def remove_tree(path: Path) -> None:
    """Remove `path` and all below it, whatever a job built there."""
    if empty_tree(path):
        path.rmdir()


def empty_tree(path: Path) -> bool:
    """Remove everything below `path`; False if there is no such folder.

    Each folder is first moved to the top and emptied there, so that paths, depth and the number of open descriptors stay
    small however deep the job nested.
    """
    try:
        _open_up(path)
        top = os.open(path, OPEN_FOLDER)
    except FileNotFoundError:
        return False
    try:
        pending = _unlink_files(top)
        while pending:
            name = pending.pop()
            with open_descriptor(name, OPEN_FOLDER, dir_fd=top) as here:
                for below in _unlink_files(here):
                    lifted = secrets.token_hex(8)
                    os.rename(below, lifted, src_dir_fd=here, dst_dir_fd=top)
                    pending.append(lifted)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    return True


def _unlink_files(folder: int) -> list[str]:
    """Unlink all files in `folder`; returns the names of its folders and makes them accessible."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                _open_up(entry.name, dir_fd=folder)
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _open_up(name: str | Path, *, dir_fd: int | None = None) -> None:
    # Without root the agent owns these folders, but the job may have removed permissions. chmod by name would follow a
    # link that the job put there, to a file of the owner's.
    if os.geteuid() != 0:
        with open_descriptor(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd) as fd:
            os.chmod(f"/proc/self/fd/{fd}", 0o700)


def open_lock(path: Path, how: int) -> int:
    """A descriptor that holds a lock until it is closed or its process ends. Raises BlockingIOError with LOCK_NB."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, how)
    except BaseException:
        os.close(fd)
        raise
    return fd


def files_max(disk_mb: int) -> int:
    """The number of files and folders that a job may have."""
    return max(_FILES_MIN, disk_mb * _FILES_PER_MB)


class DiskMeter:
    """Measures a running job's work folder, a few milliseconds at a time.

    Used without root: volumes.py is exact, but must mount. RLIMIT_FSIZE stops single files at once; this stops the sum
    within about a second. It counts files that were unlinked while open, but not those that are only mapped.
    """

    def __init__(self, folder: Path, *, limit_mb: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_mb * MIB
        self._files_max = files_max(limit_mb)
        self._scan: Iterator[str] | None = None
        self._scan_s = 0.0
        self._not_before = time.monotonic() + _SCAN_PAUSE_S

    def step(self, pids: Sequence[int] = ()) -> str:
        """Continue measuring; returns what was exceeded, or ''."""
        started = time.monotonic()
        if started < self._not_before:
            return ""
        if self._scan is None:
            self._scan = self._measure(pids)
            self._scan_s = 0.0
        excess = ""
        try:
            for excess in self._scan:
                if excess or time.monotonic() - started > _STEP_S:
                    self._scan_s += time.monotonic() - started
                    return excess
        except OSError as error:
            _log.warning("measuring %s again soon: %s", self._folder.name, error)
        self._scan = None
        self._not_before = time.monotonic() + max(_SCAN_PAUSE_S, 20 * self._scan_s)
        return excess

    def _measure(self, pids: Sequence[int]) -> Iterator[str]:
        """Yield '' after each entry, and at the end what was exceeded, if anything. An unreadable folder is an excess.

        Raises OSError if this process has no descriptors left.
        """
        too_large = f"the work folder holds more than {self._limit_bytes // MIB} MB"
        hidden: dict[int, int] = {}
        for count, info in enumerate(_unlinked_files(pids, self._folder)):
            if count >= _OPEN_MAX:
                yield f"more than {_OPEN_MAX} files are open, so the work folder cannot be measured"
                return
            if info is not None:
                hidden[info.st_ino] = info.st_blocks * 512
            yield ""
        used = sum(hidden.values())
        if used > self._limit_bytes:
            yield too_large
            return
        for count, info in enumerate(_entries(self._folder)):
            if info is None:
                yield "the work folder has a folder that is unreadable or nested too deep"
                return
            # The links to a file share its size.
            used += info.st_blocks * 512 // max(1, info.st_nlink if stat.S_ISREG(info.st_mode) else 1)
            if used > self._limit_bytes:
                yield too_large
                return
            if count >= self._files_max:
                yield f"the work folder holds more than {self._files_max} files"
                return
            yield ""


def _entries(folder: Path) -> Iterator[os.stat_result | None]:
    """Status of everything below `folder`, depth first; None for a folder that cannot be entered."""
    stack: list[tuple[int, Iterator[str]]] = []
    try:
        if not _enter(stack, str(folder), None):
            return
        while stack:
            here, names = stack[-1]
            name = next(names, None)
            if name is None:
                os.close(stack.pop()[0])
                continue
            try:
                info = os.stat(name, dir_fd=here, follow_symlinks=False)
            except OSError:
                continue  # It is gone already: the job is running.
            yield info
            if stat.S_ISDIR(info.st_mode) and (len(stack) > _DEPTH_MAX or not _enter(stack, name, here)):
                yield None
                return
    finally:
        for fd, _ in stack:
            os.close(fd)


def _enter(stack: list[tuple[int, Iterator[str]]], name: str, parent: int | None) -> bool:
    fd = -1
    try:
        fd = os.open(name, OPEN_FOLDER, dir_fd=parent)
        names = os.listdir(fd)
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        if error.errno in _NONE_LEFT:
            raise
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    stack.append((fd, iter(names)))
    return True


def _unlinked_files(pids: Sequence[int], folder: Path) -> Iterator[os.stat_result | None]:
    """For each descriptor of the processes: its status if it is an unlinked file on the folder's file system, else None."""
    try:
        device = folder.stat().st_dev
    except OSError:
        return
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError as error:
            if error.errno in _NONE_LEFT:
                raise
            continue  # The process has ended, or belongs to another user.
        for name in names:
            found = None
            with contextlib.suppress(OSError):
                info = os.stat(f"/proc/{pid}/fd/{name}")
                if stat.S_ISREG(info.st_mode) and info.st_nlink == 0 and info.st_dev == device:
                    found = info
            yield found
