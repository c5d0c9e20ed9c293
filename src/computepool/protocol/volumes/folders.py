"""A volume as a folder: read into a manifest and packs, and created from them.

The folder belongs to an untrusted program. Nothing here follows a link in it, and what cannot be kept is left out with a
reason and never raises.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from computepool.core.errors import BadRequest, TooLarge
from computepool.protocol.files import check_name
from computepool.protocol.volumes.manifest import EMPTY, FILES_MAX, SIZE_MAX, ChunkPlace, VolumeManifest, link_problem
from computepool.protocol.volumes.packing import NewPack, PackWriter, cut, digest_of, open_file

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFT_OUT_MAX: Final = 100
#: A pack of an earlier version is written again if less of it than this is still in use.
_LIVE_MIN: Final = 0.5
#: Packs below this size are small; when a volume has more of them than this, they are written again as one.
_SMALL_BYTES: Final = 4 * 1024**2
_SMALL_MAX: Final = 16
_MODE: Final = 0o777


@dataclass(frozen=True, slots=True)
class LeftOut:
    path: str
    reason: str


@dataclass(slots=True)
class FolderContent:
    """What is in a folder: its manifest, the packs that are not yet stored, and what could not be kept."""

    manifest: VolumeManifest
    packs: list[NewPack]
    left_out: list[LeftOut]


@dataclass(slots=True)
class _Chunk:
    size: int
    path: str  #: a file that has it
    offset: int  #: and where
    place: tuple[int, int] | None = None  #: in the new packs
    pack: str | None = None  #: of the earlier version, that has it


@dataclass(kw_only=True)
class FolderReader:
    """Reads one folder. `base`: the version whose packs are used again. `spool`: an empty folder for new packs."""

    folder: Path
    spool: Path
    base: VolumeManifest = EMPTY
    files_max: int = FILES_MAX
    size_max: int = SIZE_MAX
    left_out: list[LeftOut] = field(default_factory=list)
    _folders: list[tuple[str, int]] = field(default_factory=list)
    _files: list[tuple[str, int, list[str]]] = field(default_factory=list)
    _links: list[tuple[str, str]] = field(default_factory=list)
    _chunks: dict[str, _Chunk] = field(default_factory=dict)
    _size: int = 0

    def __post_init__(self) -> None:
        self._writer = PackWriter(self.spool)
        self._stored: dict[str, ChunkPlace] = {chunk[0]: chunk for chunk in self.base.chunks}

    def read(self) -> FolderContent:
        """Raises TooLarge beyond the limits, BadRequest if files change while they are read, and OSError."""
        try:
            with _descriptor(os.open(self.folder, _FOLDER)) as top:
                self._read_folder(top)
                used = self._reuse()
                for digest, chunk in self._chunks.items():
                    if chunk.pack is not None and chunk.pack not in used:
                        chunk.pack, chunk.place = None, self._writer.put(_read_again(top, digest, chunk))
            self._writer.finish()
        finally:
            self._writer.close()
        return FolderContent(self._manifest(used), self._writer.done, self.left_out)

    # ------------------------------------------------------------ walking
    def _read_folder(self, top: int) -> None:
        """Depth first, in sorted order, so that equal folders give equal manifests."""
        stack = [(os.dup(top), "", iter(self._names(top)))]
        try:
            while stack:
                here, prefix, names = stack[-1]
                name = next(names, None)
                if name is None:
                    os.close(stack.pop()[0])
                    continue
                path = prefix + name
                fd = self._open(name, path, here)
                if fd is None:
                    continue
                info = os.fstat(fd)
                if stat.S_ISDIR(info.st_mode):
                    stack.append((fd, f"{path}/", iter(self._names(fd))))
                    self._folders.append((path, info.st_mode & _MODE | 0o700))
                    continue
                with os.fdopen(fd, "rb", buffering=0) as file:
                    self._read_file(path, info, file)
        finally:
            for fd, _, _ in stack:
                os.close(fd)

    def _names(self, folder: int) -> list[str]:
        names: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                self._count(len(names))
        return sorted(names)

    def _count(self, more: int = 0) -> None:
        if len(self._folders) + len(self._files) + len(self._links) + more > self.files_max:
            raise TooLarge(f"it holds more than {self.files_max:,} files")

    def _open(self, name: str, path: str, parent: int) -> int | None:
        """A descriptor of a folder or a plain file. Notes a link, leaves out anything else, and returns None."""
        self._count(1)
        try:
            check_name(path)
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                target = os.readlink(name, dir_fd=parent)
                if (problem := link_problem(path, target)) is not None:
                    raise ValueError(problem)
                self._links.append((path, target))
                return None
            if stat.S_ISDIR(mode):
                return os.open(name, _FOLDER, dir_fd=parent)
            if not stat.S_ISREG(mode):
                raise ValueError("not a file, folder or link")
            return open_file(name, parent)
        except ValueError as error:
            self._leave_out(path, str(error))
        except OSError as error:
            self._leave_out(path, error.strerror or "cannot be opened")
        return None

    def _leave_out(self, path: str, reason: str) -> None:
        if len(self.left_out) < _LEFT_OUT_MAX:
            shown = path if path.isprintable() else ascii(path)[1:-1]
            self.left_out.append(LeftOut(shown[:200], reason[:300] if reason.isprintable() else ascii(reason)[:300]))

    def _read_file(self, path: str, info: os.stat_result, file: BinaryIO) -> None:
        if not stat.S_ISREG(info.st_mode):
            self._leave_out(path, "not a file, folder or link")
            return
        digests: list[str] = []
        offset = 0
        for data in cut(file):
            digest = digest_of(data)
            if digest not in self._chunks:
                self._chunks[digest] = self._place(data, digest, _Chunk(len(data), path, offset))
            digests.append(digest)
            offset += len(data)
            self._size += len(data)
            if self._size > self.size_max:
                raise TooLarge(f"it holds more than {self.size_max:,} bytes")
        self._files.append((path, info.st_mode & _MODE | 0o400, digests))

    def _place(self, data: memoryview, digest: str, chunk: _Chunk) -> _Chunk:
        if (stored := self._stored.get(digest)) is not None:
            chunk.pack = self.base.packs[stored[1]][0]
        else:
            chunk.place = self._writer.put(data)
        return chunk

    # ------------------------------------------------------------ packs
    def _reuse(self) -> set[str]:
        """The earlier packs that are used again. Those of which little is left, and small ones when there are many, are
        written again, so that a volume never holds much more than its files."""
        live: dict[str, int] = {}
        for chunk in self._chunks.values():
            if chunk.pack is not None:
                live[chunk.pack] = live.get(chunk.pack, 0) + chunk.size
        sizes = dict(self.base.packs)
        used = {pack for pack, size in live.items() if size >= _LIVE_MIN * sizes[pack]}
        small = {pack for pack in used if sizes[pack] < _SMALL_BYTES}
        return used - small if len(small) > _SMALL_MAX else used

    def _manifest(self, used: set[str]) -> VolumeManifest:
        packs = [(digest, size) for digest, size in self.base.packs if digest in used]
        numbers = {digest: number for number, (digest, _) in enumerate(packs)}
        before = len(packs)
        packs += [(pack.digest, pack.size) for pack in self._writer.done]
        chunks: list[ChunkPlace] = []
        places: dict[str, int] = {}
        for digest, chunk in sorted(self._chunks.items()):
            places[digest] = len(chunks)
            if chunk.place is not None:
                number, offset = chunk.place
                chunks.append((digest, before + number, offset, chunk.size))
            else:
                assert chunk.pack is not None
                chunks.append((digest, numbers[chunk.pack], self._stored[digest][2], chunk.size))
        return VolumeManifest(
            packs=packs,
            chunks=chunks,
            folders=sorted(self._folders),
            files=sorted((path, mode, [places[digest] for digest in digests]) for path, mode, digests in self._files),
            links=sorted(self._links),
        )


@dataclass(slots=True)
class FolderWriter:
    """Creates the files of a manifest in an empty folder: `begin`, `fill` once for each pack, `finish`. The manifest was
    checked when it was read."""

    manifest: VolumeManifest
    folder: Path
    _pieces: dict[int, dict[str, list[tuple[int, int]]]] | None = None

    def begin(self) -> None:
        """Create folders, links and files of their full size."""
        for path, _ in sorted(self.manifest.folders):
            os.mkdir(self.folder / path, 0o700)
        for path, _, numbers in self.manifest.files:
            with _descriptor(os.open(self.folder / path, _NEW_FILE, 0o600)) as fd:
                os.ftruncate(fd, self.manifest.size_of(numbers))
        for path, target in self.manifest.links:
            os.symlink(target, self.folder / path)

    def fill(self, pack: int, source: int) -> None:
        """Write what is in this pack. `source`: a descriptor of it. Raises BadRequest if a chunk is not what it should be."""
        for path, pieces in self._by_pack().get(pack, {}).items():
            with _descriptor(os.open(self.folder / path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as fd:
                for at, number in pieces:
                    digest, _, offset, size = self.manifest.chunks[number]
                    data = os.pread(source, size, offset)
                    if digest_of(data) != digest:
                        raise BadRequest(f"A chunk of {path!a} is damaged.", field="manifest")
                    _write_all(fd, data, at)

    def finish(self) -> None:
        for path, mode, _ in self.manifest.files:
            os.chmod(self.folder / path, mode)
        for path, mode in sorted(self.manifest.folders, reverse=True):
            os.chmod(self.folder / path, mode)

    def _by_pack(self) -> dict[int, dict[str, list[tuple[int, int]]]]:
        """By pack and file: offsets in the file, and numbers of chunks."""
        if self._pieces is None:
            self._pieces = {}
            for path, _, numbers in self.manifest.files:
                at = 0
                for number in numbers:
                    _, pack, _, size = self.manifest.chunks[number]
                    self._pieces.setdefault(pack, {}).setdefault(path, []).append((at, number))
                    at += size
        return self._pieces


def _read_again(top: int, digest: str, chunk: _Chunk) -> bytes:
    """A chunk that was read before. No part of its path may be a link."""
    *folders, name = chunk.path.split("/")
    data = b""
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        here = top
        for folder in folders:
            here = stack.enter_context(_descriptor(os.open(folder, _FOLDER, dir_fd=here)))
        fd = stack.enter_context(_descriptor(open_file(name, here)))
        data = os.pread(fd, chunk.size, chunk.offset)
    if digest_of(data) != digest:
        raise BadRequest(f"{chunk.path!a} was changed while it was read.")
    return data


@contextlib.contextmanager
def _descriptor(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes, at: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], at + done)
