"""Chunks and packs: cuts files by their content, and writes chunks that are new into packs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from computepool.protocol.files import file_digest
from computepool.protocol.volumes.manifest import CHUNK_MAX

#: A chunk has about 80 KB. An insertion into a file changes one or two of them.
CHUNK_AVERAGE: Final = 64 * 1024
CHUNK_MIN: Final = 16 * 1024
#: A pack is complete at this size, so that many small files are few requests.
PACK_BYTES: Final = 32 * 1024**2


def cut(file: BinaryIO) -> Iterator[memoryview]:
    """The chunks of a file from its current position. Each is valid until the next is taken."""
    from pyfastcdc import FastCDC

    chunker = FastCDC(CHUNK_AVERAGE, min_size=CHUNK_MIN, max_size=CHUNK_MAX)
    for chunk in chunker.cut_stream(file):
        yield chunk.data


def digest_of(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class NewPack:
    path: Path
    digest: str
    size: int

    @classmethod
    def of(cls, path: Path, *, size: int) -> NewPack:
        return cls(path, file_digest(path), size)


@dataclass(slots=True)
class PackWriter:
    """Writes packs into a folder. `put` returns where the chunk is: the number of the pack, counted from 0, and its offset."""

    folder: Path
    done: list[NewPack] = field(default_factory=list)
    _file: BinaryIO | None = None
    _size: int = 0

    def put(self, data: bytes | memoryview) -> tuple[int, int]:
        if self._file is None:
            self._file, self._size = self._path().open("xb"), 0
        offset = self._size
        self._file.write(data)
        self._size += len(data)
        number = len(self.done)
        if self._size >= PACK_BYTES:
            self.finish()
        return number, offset

    def finish(self) -> None:
        if self._file is None:
            return
        self._file.close()
        self.done.append(NewPack.of(self._path(), size=self._size))
        self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self) -> Path:
        return self.folder / f"pack-{len(self.done)}"


def open_file(name: str, folder: int) -> int:
    """O_NONBLOCK: opening a FIFO must not wait for a writer."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    return os.open(name, flags, dir_fd=folder)
