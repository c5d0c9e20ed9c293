"""Untrusted text on terminals, in logs and in names.

Other people choose names, errors and reasons. Terminals obey escape sequences and control characters, and bidirectional
control characters make text look like something else.
"""

from __future__ import annotations

import re
from typing import Final

#: Control characters except tab and newline, other line separators, and bidirectional control characters, for use in a
#: character class.
UNSAFE: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f"
#: The pattern of a single-line name, for models.
NAME_PATTERN: Final = rf"^[^\t\n{UNSAFE}]+$"
_UNSAFE: Final = re.compile(f"[{UNSAFE}]")
_COLOUR: Final = r"\x1b\[[0-9;]*m"
_ESCAPE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?", re.DOTALL)


def printable(text: str, *, colours: bool = False) -> str:
    """Remove what must not reach a terminal. With `colours`, colour sequences and carriage returns are kept."""
    if not colours:
        return _UNSAFE.sub("", _ESCAPE.sub("", text))
    kept = re.split(f"({_COLOUR}|\r)", text)
    return "".join(part if place % 2 else printable(part) for place, part in enumerate(kept))


def escape(text: str) -> str:
    """Escape unsafe characters, for programs and logs: nothing is lost, and nothing is obeyed."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_plain(text: str) -> bool:
    """Whether the text may be a single-line name."""
    return not _UNSAFE.search(text) and "\n" not in text and "\t" not in text
