"""Collects a job's results from its work folder, and nothing from anywhere else.

A result is a regular file with one name, reached without following a link, within the caps. Everything else is refused with
a reason and never raises, because the job decides what is there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from computepool.agent.sandbox.base import MIB
from computepool.agent.sandbox.scratch import OPEN_FOLDER
from computepool.protocol.files import check_output_name

#: O_NONBLOCK: opening a FIFO must not wait for a writer.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_REFUSED_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    files: int = 10_000
    total_bytes: int = 1024 * MIB
    file_bytes: int = 1024 * MIB
    depth: int = 16
    entries: int = 100_000  #: entries of any kind to look at, so that a folder of a million links costs little


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    size: int
    #: Open for reading; closed when the iteration continues. Duplicate it to keep it.
    fd: int


@dataclass(frozen=True, slots=True)
class RefusedOutput:
    name: str
    reason: str


def is_empty(folder: Path) -> bool:
    """True if there is nothing to collect or refuse. False for a link: a job may have put it in the folder's place."""
    try:
        fd = os.open(folder, OPEN_FOLDER)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        with os.scandir(fd) as entries:  # One is enough: there may be a million.
            return next(entries, None) is None
    finally:
        os.close(fd)


@dataclass(slots=True)
class OutputCollector:
    """Iterate once over the outputs in `folder`; then `refused` says what was left behind and why."""

    folder: Path
    caps: Caps = field(default_factory=Caps)
    refused: list[RefusedOutput] = field(default_factory=list)
    _files: int = 0
    _bytes: int = 0
    _entries: int = 0

    def __iter__(self) -> Iterator[Output]:
        try:
            top = os.open(self.folder, OPEN_FOLDER)
        except OSError as error:
            self._refuse(self.folder.name, error.strerror or "cannot be opened")
            return
        stack: list[tuple[int, str, Iterator[str]]] = [(top, "", iter(self._names(top)))]
        try:
            while stack:
                here, prefix, names = stack[-1]
                name = next(names, None)
                if name is None:
                    os.close(stack.pop()[0])
                    continue
                if self._is_exhausted():
                    return
                fd = self._open(name, prefix + name, parent=here, depth=len(stack))
                if fd is None:
                    continue
                info = os.fstat(fd)
                if stat.S_ISDIR(info.st_mode):
                    stack.append((fd, f"{prefix}{name}/", iter(self._names(fd))))
                    continue
                try:
                    if self._accept(prefix + name, info):
                        yield Output(prefix + name, info.st_size, fd)
                finally:
                    os.close(fd)
        finally:
            for fd, _, _ in stack:
                os.close(fd)

    def _names(self, folder: int) -> list[str]:
        """Sorted names, within the caps, so that equal folders give equal results."""
        names = []
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                self._entries += 1
                if self._entries > self.caps.entries:
                    break
        return sorted(names)

    def _is_exhausted(self) -> bool:
        if self._entries > self.caps.entries:
            self._refuse("…", f"more than {self.caps.entries} entries")
            return True
        if self._files >= self.caps.files:
            self._refuse("…", f"more than {self.caps.files} files")
            return True
        return False

    def _open(self, name: str, path: str, *, parent: int, depth: int) -> int | None:
        """A descriptor of a folder or a plain file; refuses anything else and returns None."""
        try:
            check_output_name(path)
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                if depth > self.caps.depth:
                    raise ValueError(f"nested deeper than {self.caps.depth} folders")
                return os.open(name, OPEN_FOLDER, dir_fd=parent)
            if not stat.S_ISREG(mode):
                # Opening a device or a FIFO can have side effects; O_NONBLOCK is only the second defence.
                raise ValueError("not a regular file")
            return os.open(name, _OPEN_FILE, dir_fd=parent)
        except ValueError as error:
            self._refuse(path, str(error))
        except OSError as error:
            self._refuse(path, error.strerror or "cannot be opened")
        return None

    def _accept(self, path: str, info: os.stat_result) -> bool:
        if not stat.S_ISREG(info.st_mode):
            self._refuse(path, "not a regular file")
        elif info.st_nlink != 1:
            self._refuse(path, "has more than one hard link")
        elif info.st_size > self.caps.file_bytes:
            self._refuse(path, f"larger than {self.caps.file_bytes} bytes")
        elif self._bytes + info.st_size > self.caps.total_bytes:
            self._refuse(path, f"all outputs together exceed {self.caps.total_bytes} bytes")
        else:
            self._files += 1
            self._bytes += info.st_size
            return True
        return False

    def _refuse(self, name: str, reason: str) -> None:
        if len(self.refused) >= _REFUSED_MAX:
            return
        self.refused.append(RefusedOutput(ascii(name)[1:-1][:200] if not name.isprintable() else name[:200], reason))
