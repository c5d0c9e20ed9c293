"""The shared libraries that a program needs, and where the loader searches for them; runs no program to find out.

Reads ELF headers with 64 bits, little-endian, as on every machine that a node runs on.
"""

from __future__ import annotations

import mmap
import os
import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_HEADER = struct.Struct("<32xQ14xHH4x")  # offset, size and number of the program headers
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_CONFIGURED = Path("/etc/ld.so.conf")


@dataclass(frozen=True, slots=True)
class ElfNeeds:
    interpreter: str = ""  #: the loader that the kernel starts; empty in libraries and in static programs
    libraries: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  #: folders of libraries that the file itself names


def needs(path: Path) -> ElfNeeds | None:
    """The needs of the file; None if it is not a complete ELF file."""
    with path.open("rb") as opened:
        if os.fstat(opened.fileno()).st_size < 64 or opened.read(len(_MAGIC)) != _MAGIC:
            return None
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _read(data, path)
            except (struct.error, ValueError, OverflowError):
                return None


def _read(data: mmap.mmap, path: Path) -> ElfNeeds:
    start, size, count = _HEADER.unpack_from(data)
    segments = [_SEGMENT.unpack_from(data, start + size * index) for index in range(count)]
    interpreter = ""
    entries: list[tuple[int, int]] = []
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind == _PT_INTERP:
            interpreter = data[offset : offset + length].rstrip(b"\0").decode()
        elif kind == _PT_DYNAMIC:
            entries = [_ENTRY.unpack_from(data, at) for at in range(offset, offset + length, _ENTRY.size)]
    table = next((value for tag, value in entries if tag == _DT_STRTAB), 0)
    for kind, _, offset, address, _, length, _, _ in segments:
        if kind == _PT_LOAD and address <= table < address + length:
            table += offset - address
            break

    def texts(*tags: int) -> Iterator[str]:
        for tag, value in entries:
            if tag in tags:
                yield data[table + value : data.find(b"\0", table + value)].decode()

    folders = ":".join(texts(_DT_RPATH, _DT_RUNPATH)).split(":")
    here = str(path.parent)
    expanded = [text.replace("${ORIGIN}", here).replace("$ORIGIN", here) for text in folders if text]
    return ElfNeeds(interpreter, tuple(texts(_DT_NEEDED)), tuple(expanded))


def search_folders() -> list[Path]:
    """The folders in which the loader searches for libraries, in its order."""
    triple = f"{platform.machine()}-linux-gnu"
    built_in = [f"/lib/{triple}", f"/usr/lib/{triple}", "/lib64", "/usr/lib64", "/lib", "/usr/lib"]
    folders = dict.fromkeys([*_configured_folders(_CONFIGURED), *map(Path, built_in)])
    return [folder for folder in folders if folder.is_dir()]


def _configured_folders(path: Path) -> Iterator[Path]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        text = line.partition("#")[0].strip()
        if text.startswith("include"):
            pattern = text.removeprefix("include").strip()
            base = Path("/") if pattern.startswith("/") else path.parent
            for included in sorted(base.glob(pattern.lstrip("/"))):
                yield from _configured_folders(included)
        elif text.startswith("/"):
            yield Path(text)
