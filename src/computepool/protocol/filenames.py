"""Names of files that travel: which may be made in a job's folder, and which may leave it for any machine.

One rule for both ends. What a node sends under a name that a client then refuses is lost with everything beside it.
"""

from __future__ import annotations

import re

NAME_BYTES_MAX = 1024
NAME_PARTS_MAX = 32
#: As long as the name of an output may be in a report.
OUTPUT_NAME_MAX = 255
#: Marks that turn the direction of writing around: a name that shows as another one.
_TURNING = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def check_name(name: str) -> list[str]:
    """The parts of a relative file name that is safe to create; else ValueError says why not."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not a plain relative path")
    if any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in name):
        raise ValueError(f"{name!r} has control characters or is not UTF-8")
    if (
        len(parts) > NAME_PARTS_MAX
        or len(name.encode()) > NAME_BYTES_MAX
        or any(len(p.encode()) > 255 for p in parts)
    ):
        raise ValueError(f"{name[:80]!r}… is too long")
    return parts


def check_output_name(name: str) -> list[str]:
    """The same, for a name that a stranger's program chose and that is created wherever somebody fetches it."""
    parts = check_name(name)
    if len(name) > OUTPUT_NAME_MAX:
        raise ValueError("its name is too long")
    if "\\" in name:
        raise ValueError("a backslash separates folders on some machines")
    if _TURNING.search(name):
        raise ValueError("its name contains a bidirectional control character")
    return parts
