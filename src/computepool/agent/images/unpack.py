"""Unpacks the layers of an image: a program that the agent runs in the jobs' sandbox, because every byte is a stranger's.

`layer FILE` unpacks one layer into `0`; `archive FILE` unpacks a saved image (`docker save`, or an OCI archive), its layers
into `0`, `1` … and its configuration into `config.json`. Beside the files of layer N, `N.json` lists the paths that the
layer removes from those below. Standard library only: it runs with `-I -S`, outside the agent's virtual environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

#: Exit codes; the last line of the output is a sentence.
BAD, TOO_LARGE, NO_TOOL = 3, 4, 5
FILES, REMOVED = "{}", "{}.json"
CONFIG = "config.json"
_CHUNK = 1024 * 1024
_ENTRY_BYTES = 4096  #: the least that an entry counts: an empty one takes space on the disk, too
_JSON_MAX = 4 * 1024 * 1024
_ARCHIVED_MAX = 10_000  #: files in an archive of an image
_LAYERS_MAX = 127
_INDEXES_MAX = 4  #: indexes that name other indexes
_DEPTH_MAX = 90
_NAME_MAX = 255
_GZIP, _ZSTD, _XZ, _BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh"
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


class Refused(Exception):
    def __init__(self, sentence: str, code: int = BAD) -> None:
        super().__init__(sentence)
        self.code = code


class Budget:
    """What all layers of an image may have together."""

    def __init__(self, bytes_max: int, entries_max: int) -> None:
        self._bytes_left, self._bytes_max = bytes_max, bytes_max
        self._entries_left, self._entries_max = entries_max, entries_max

    def take(self, size: int) -> None:
        self._bytes_left -= max(size, _ENTRY_BYTES)
        self._entries_left -= 1
        if self._bytes_left < 0:
            raise Refused(f"it takes more than {self._bytes_max // 1024**2} MB", TOO_LARGE)
        if self._entries_left < 0:
            raise Refused(f"it has more than {self._entries_max} files", TOO_LARGE)


class _Inflated:
    """Reads gzip, also of several members, in pieces of a size that suits zlib."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._decoder = zlib.decompressobj(31)
        self._left = b""
        self._begun = False

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            if self._decoder.eof:
                self._left = self._decoder.unused_data.lstrip(b"\0") or self._source.read(_CHUNK // 4)
                if not self._left:
                    break
                self._decoder = zlib.decompressobj(31)
            data = self._left or self._source.read(_CHUNK // 4)
            if not data:
                raise Refused("a layer is cut off")
            part = self._decoder.decompress(data, size)
            self._left = self._decoder.unconsumed_tail
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class LayerWriter:
    """Unpacks one layer into a folder of its own. Paths of the layer lead nowhere else, and no link is followed."""

    def __init__(self, folder: Path, budget: Budget) -> None:
        self._folder = str(folder)
        self._budget = budget
        self._folders = {""}  #: known to be real
        self._removed: list[str] = []
        self._opaque: list[str] = []
        os.mkdir(folder, 0o755)

    def run(self, stream: Any) -> dict[str, list[str]]:
        try:
            with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:
                for entry in tar:
                    tar.members = []  # type: ignore[attr-defined]  # It would keep them all.
                    self._add(tar, entry)
        except (tarfile.TarError, zlib.error, ValueError, EOFError, OverflowError) as error:
            raise Refused(f"a layer is not a valid archive: {error}") from error
        return {"removed": self._removed, "opaque": self._opaque}

    def _add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        parts = _parts(entry.name)
        if not parts:
            return
        self._budget.take(entry.size if entry.isreg() else 0)
        *above, name = parts
        if name.startswith(_WHITEOUT):
            self._remove(above, name)
            return
        path = "/".join(parts)
        if entry.isdir():
            self._make_folder(path)
            return
        self._make_folder("/".join(above))
        place = f"{self._folder}/{path}"
        if entry.isreg():
            self._clear(path)
            self._write(tar, entry, place)
        elif entry.issym():
            self._clear(path)
            os.symlink(entry.linkname, place)
        elif entry.islnk():
            target = "/".join(_parts(entry.linkname))
            self._make_folder(target.rpartition("/")[0])
            if target != path:
                self._clear(path)
                os.link(f"{self._folder}/{target}", place, follow_symlinks=False)
        # Devices, pipes and sockets are left out: jobs get none but the sandbox's own.

    def _remove(self, above: list[str], name: str) -> None:
        if name == _OPAQUE:
            self._opaque.append("/".join(above))
        elif not name.startswith(_WHITEOUT * 2):  # Others of that form are notes of storage drivers.
            hidden = _parts(name.removeprefix(_WHITEOUT))
            if not hidden:
                raise Refused("a layer removes its own root")
            self._removed.append("/".join([*above, *hidden]))

    def _make_folder(self, path: str) -> None:
        if path in self._folders:
            return
        above, _, _ = path.rpartition("/")
        self._make_folder(above)
        try:
            os.mkdir(f"{self._folder}/{path}", 0o755)
            self._budget.take(0)
        except FileExistsError:
            raise Refused(f"a layer has entries below {path[:200]!a}, which is not a folder in it") from None
        self._folders.add(path)

    def _clear(self, path: str) -> None:
        """A later entry of the same name replaces an earlier one."""
        if path in self._folders:
            raise Refused(f"a layer has {path[:200]!a} as a folder and as something else")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/{path}")

    def _write(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, place: str) -> None:
        mode = 0o755 if entry.mode & 0o111 else 0o644
        fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(fd, "wb", buffering=0) as target:
            source = tar.extractfile(entry)
            assert source is not None
            size = 0
            while data := source.read(_CHUNK):
                size += len(data)
                target.write(data)
            if size != entry.size:
                raise Refused("a layer is cut off")
            os.utime(fd, (entry.mtime, entry.mtime))


def _parts(name: str) -> list[str]:
    """The parts of a path below the image's root. A path that leads out of it is refused."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Refused(f"a layer has the path {name[:200]!a}, which leads out of it")
    if len(parts) > _DEPTH_MAX or any(len(os.fsencode(part)) > _NAME_MAX for part in parts) or "\0" in name:
        raise Refused(f"a layer has the path {name[:80]!a}…, which is too long")
    return parts


@contextlib.contextmanager
def open_layer(source: IO[bytes]) -> Iterator[Any]:
    """The tar archive in a layer, which may be compressed."""
    magic = source.read(6)
    source.seek(0)
    if magic.startswith(_GZIP):
        yield _Inflated(source)
    elif magic.startswith(_ZSTD):
        with _zstd(source) as stream:
            yield stream
    elif magic.startswith((_XZ, _BZIP2)):
        raise Refused("a layer is compressed in a way that images are not: only gzip and zstd are")
    else:
        yield source


@contextlib.contextmanager
def _zstd(source: IO[bytes]) -> Iterator[IO[bytes]]:
    try:
        process = subprocess.Popen(
            ["zstd", "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        raise Refused("a layer is compressed with zstd, which this node does not have", NO_TOOL) from None
    assert process.stdin is not None
    assert process.stdout is not None
    feeder = threading.Thread(target=_feed, args=(source, process.stdin), daemon=True)
    feeder.start()
    try:
        yield process.stdout
        while process.stdout.read(_CHUNK):  # What follows the end of the archive.
            pass
        if process.wait() != 0:
            raise Refused("a layer is cut off, or is not zstd")
    finally:
        process.kill()
        process.wait()
        feeder.join()
        process.stdout.close()


def _feed(source: IO[bytes], target: IO[bytes]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := source.read(_CHUNK):
            target.write(data)
    with contextlib.suppress(OSError):
        target.close()


def unpack_layer(source: IO[bytes], number: int, budget: Budget) -> None:
    with open_layer(source) as stream:
        removed = LayerWriter(Path(FILES.format(number)), budget).run(stream)
    Path(REMOVED.format(number)).write_text(json.dumps(removed))


class Archive:
    """A saved image. Names in it are looked up in its own list of files, never on the disk."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._files: dict[str, tarfile.TarInfo] = {}
        for count, entry in enumerate(tar):
            if count > _ARCHIVED_MAX:
                raise Refused(f"the archive has more than {_ARCHIVED_MAX} files")
            self._files["/".join(part for part in entry.name.split("/") if part not in ("", "."))] = entry

    def open(self, name: str) -> IO[bytes]:
        entry = self._files.get(name)
        found = None if entry is None or not (entry.isreg() or entry.islnk() or entry.issym()) else self._extract(entry)
        if found is None:
            raise Refused(f"the archive has no {name[:200]!a}")
        return found

    def _extract(self, entry: tarfile.TarInfo) -> IO[bytes] | None:
        try:
            return self._tar.extractfile(entry)
        except (KeyError, RecursionError):
            return None

    def read(self, name: str, *, digest: str = "") -> bytes:
        data = self.open(name).read(_JSON_MAX + 1)
        if len(data) > _JSON_MAX:
            raise Refused(f"{name[:200]!a} in the archive is too large")
        if digest and f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise Refused(f"{name[:200]!a} in the archive does not match its digest")
        return data

    def parts(self, architecture: str) -> tuple[bytes, list[str]]:
        """The configuration, and the names of the layers' files."""
        if "manifest.json" in self._files:
            [image] = _only(json.loads(self.read("manifest.json")))
            return self.read(_text(image["Config"])), [_text(name) for name in image["Layers"]]
        if "index.json" not in self._files:
            raise Refused("the file is not an image that `docker save` or an OCI tool wrote")
        document = json.loads(self.read("index.json"))
        for _ in range(_INDEXES_MAX):
            if "manifests" not in document:
                break
            [found] = _only(_suitable(document["manifests"], architecture))
            document = json.loads(self.read(_blob(found["digest"]), digest=found["digest"]))
        config = document["config"]["digest"]
        return self.read(_blob(config), digest=config), [_blob(layer["digest"]) for layer in document["layers"]]


def _suitable(entries: list[Any], architecture: str) -> list[Any]:
    """Those for this machine; all, if none says what it is for."""
    known = [entry for entry in entries if "platform" in entry]
    fitting = [
        entry for entry in known
        if (entry["platform"].get("architecture"), entry["platform"].get("os")) == (architecture, "linux")
    ]  # fmt: skip
    return fitting or [entry for entry in entries if "platform" not in entry] or entries


def _only(images: list[Any]) -> list[Any]:
    if len(images) != 1:
        raise Refused(f"the archive has {len(images)} images; save one of them alone")
    return images


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _blob(digest: Any) -> str:
    kind, _, name = _text(digest).partition(":")
    return f"blobs/{kind}/{name}"


def unpack_archive(source: IO[bytes], budget: Budget, architecture: str) -> None:
    if source.read(2) == _GZIP:
        raise Refused("the archive is compressed; upload it without compression")
    source.seek(0)
    try:
        with tarfile.open(fileobj=source, mode="r:") as tar:
            archive = Archive(tar)
            config, layers = archive.parts(architecture)
            Path(CONFIG).write_bytes(config)
            if len(layers) > _LAYERS_MAX:
                raise Refused(f"it has more than {_LAYERS_MAX} layers")
            for number, name in enumerate(layers):
                with archive.open(name) as layer:
                    unpack_layer(layer, number, budget)
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Refused("the file is not a valid archive of an image") from error


def main(arguments: list[str]) -> None:
    kind, path, bytes_max, entries_max, architecture = arguments
    budget = Budget(int(bytes_max), int(entries_max))
    try:
        with open(path, "rb") as source:
            if kind == "layer":
                unpack_layer(source, 0, budget)
            else:
                unpack_archive(source, budget, architecture)
    except Refused as refused:
        print(refused)  # noqa: T201 - the agent reads it
        sys.exit(refused.code)
    except FileNotFoundError as error:
        print(f"a layer has a hard link to a file that it does not have: {error.filename!a}")  # noqa: T201
        sys.exit(BAD)


if __name__ == "__main__":
    main(sys.argv[1:])
