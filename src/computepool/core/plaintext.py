"""Foreign text on a terminal, in a log or as a name: what of it does more than stand there. Pure.

Names, errors and reasons are other people's words. A terminal obeys escape sequences and control characters, and marks that
turn the direction of writing around show a text as something else than it is.
"""

from __future__ import annotations

import re
from typing import Final

#: Control characters but tab and newline, other ends of lines, and marks of direction: the inside of a character class.
UNSAFE: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f"
#: The pattern of a name of one line, for models.
NAME_PATTERN: Final = rf"^[^\t\n{UNSAFE}]+$"
_UNSAFE: Final = re.compile(f"[{UNSAFE}]")
_COLOUR: Final = r"\x1b\[[0-9;]*m"
_ESCAPE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?", re.DOTALL
)


def printable(text: str, *, colours: bool = False) -> str:
    """What may be shown on a terminal. With colours: they are kept, and so is a return to the line's beginning."""
    if not colours:
        return _UNSAFE.sub("", _ESCAPE.sub("", text))
    kept = re.split(f"({_COLOUR}|\r)", text)
    return "".join(part if place % 2 else printable(part) for place, part in enumerate(kept))


def escaped(text: str) -> str:
    """What a program reads, or an owner in a log: nothing is lost, and nothing is obeyed."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_plain(text: str) -> bool:
    """Whether it may be a name of one line."""
    return not _UNSAFE.search(text) and "\n" not in text and "\t" not in text
