"""Resolves a path as a job sees it, from outside: a path that the job chose never leads out of its view.

A view consists of mounted trees and links. Each step is taken by hand below a tree that the agent named: `..` ends at the
view's root, a link's target is a path in the view again, and the host's kernel never follows a link. So the result does
not depend on the rest of the host.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: As many as the kernel follows.
_LINKS_MAX = 40
_STEPS_MAX = 1024
_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
#: O_NONBLOCK: opening a FIFO must not wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A regular file in the view."""

    executable: bool
    magic: bytes  #: its first four bytes
    mount: str  #: where the tree that holds it is mounted


class View:
    """`trees`: place in the view -> the host's folder or file that is mounted there; `links`: path -> target."""

    def __init__(self, trees: Mapping[str, Path], links: Mapping[str, str]) -> None:
        self._trees = {_parts(place): host for place, host in trees.items()}
        self._links = {_parts(path): target for path, target in links.items()}

    def program(self, path: str, *, cwd: str) -> Program | None:
        """The file at this path; None if there is none, or if it is outside the trees."""
        try:
            found = self._resolve(path, cwd)
            return None if found is None else self._read(found)
        except (OSError, ValueError):  # Unreadable, gone, or a name that no file can have.
            return None

    def _resolve(self, path: str, cwd: str) -> Parts | None:
        """The path without links, `.` and `..`."""
        here: Parts = () if path.startswith("/") else _parts(cwd)
        ahead = [*reversed(path.split("/"))]
        links = 0
        for _ in range(_STEPS_MAX):
            if not ahead:
                return here
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = here[:-1]
                continue
            target = self._target((*here, name))
            if target is None:
                here = (*here, name)
                continue
            links += 1
            if links > _LINKS_MAX:
                return None
            here = () if target.startswith("/") else here
            ahead += reversed(target.split("/"))
        return None

    def _target(self, path: Parts) -> str | None:
        """The target of the link at this path; None if it is not a link. Raises FileNotFoundError."""
        if path in self._links:
            return self._links[path]
        if any(place[: len(path)] == path for place in self._trees):
            return None  # A mounted tree, or a folder on the way to one.
        with self._open(path, _PATH_ONLY) as fd:
            return os.readlink("", dir_fd=fd) if stat.S_ISLNK(os.fstat(fd).st_mode) else None

    def _read(self, path: Parts) -> Program | None:
        with self._open(path, _PATH_ONLY) as fd:
            mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            return None
        mount = "/" + "/".join(self._tree(path))
        with self._open(path, _READ) as fd:
            return Program(executable=bool(mode & 0o111), magic=os.pread(fd, 4, 0), mount=mount)

    @contextlib.contextmanager
    def _open(self, path: Parts, flags: int) -> Iterator[int]:
        """Open each folder relative to the previous one; none of them may be a link."""
        place = self._tree(path)
        below = path[len(place) :]
        # The tree's own path comes from the agent, not from the job.
        here = os.open(self._trees[place], flags & ~os.O_NOFOLLOW if not below else os.O_PATH | os.O_CLOEXEC)
        try:
            for number, name in enumerate(below, start=1):
                last = number == len(below)
                beneath = os.open(name, flags if last else _PATH_ONLY | os.O_DIRECTORY, dir_fd=here)
                os.close(here)
                here = beneath
            yield here
        finally:
            os.close(here)

    def _tree(self, path: Parts) -> Parts:
        """The innermost mounted tree around this path."""
        around = [place for place in self._trees if path[: len(place)] == place]
        if not around:
            raise FileNotFoundError("/" + "/".join(path))
        return max(around, key=len)


def _parts(path: str) -> Parts:
    return tuple(name for name in path.split("/") if name not in ("", "."))
