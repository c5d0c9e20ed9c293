"""Paths of unix sockets, which are limited to 108 bytes. A path through a folder's descriptor always fits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from computepool.agent.sandbox.scratch import open_descriptor

_BYTES_MAX = 100


@contextlib.contextmanager
def short_path(folder: Path, name: str) -> Iterator[str]:
    path = str(folder / name)
    if len(path.encode()) < _BYTES_MAX:
        yield path
        return
    with open_descriptor(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as fd:
        yield f"/proc/self/fd/{fd}/{name}"
