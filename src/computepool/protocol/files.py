"""Names and digests of transferred files: which names may be created in a job's folder, and which may leave it.

Both ends share one rule. If a client refused a name that a node had sent, the whole result would be lost.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

NAME_BYTES_MAX = 1024
NAME_PARTS_MAX = 32
#: The limit for names of outputs in a report.
OUTPUT_NAME_MAX = 255
#: Bidirectional control characters, which make a name look like another one.
_BIDIRECTIONAL = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def check_name(name: str) -> list[str]:
    """The parts of a relative file name that is safe to create. Otherwise ValueError says why not."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not a plain relative path")
    if any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in name):
        raise ValueError(f"{name!r} has control characters or is not UTF-8")
    if len(parts) > NAME_PARTS_MAX or len(name.encode()) > NAME_BYTES_MAX or any(len(p.encode()) > 255 for p in parts):
        raise ValueError(f"{name[:80]!r}… is too long")
    return parts


def check_output_name(name: str) -> list[str]:
    """As `check_name`, for names that untrusted programs chose and that are created on any machine that fetches them."""
    parts = check_name(name)
    if len(name) > OUTPUT_NAME_MAX:
        raise ValueError("its name is too long")
    if "\\" in name:
        raise ValueError("a backslash separates folders on some machines")
    if _BIDIRECTIONAL.search(name):
        raise ValueError("its name contains a bidirectional control character")
    return parts


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, by which the hub knows it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
