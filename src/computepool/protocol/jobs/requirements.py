"""Requirement strings of jobs: a name, extras, version specifiers and a marker, and nothing else.

One rule for hub, agent, SDK and command line. The hub refuses a bad string at submission; the agent checks again, because
a hub may be older, or hostile. The limits are constants and no settings: both ends have to agree about them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement

REQUIREMENT_CHARS_MAX: Final = 200
REQUIREMENTS_MAX: Final = 100
#: What a name, extras, versions and a marker are written with. Without `@ / : # $ { } \\` there is no address, path,
#: comment, variable or continued line, and without control characters nothing that a terminal obeys.
_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + " ._-,[]()<>=!~;'\"*+")
#: uv reads each number of a version into 64 bits, and fails on a longer one as if the machine were at fault.
_DIGITS_MAX: Final = 18
_NUMBERS: Final = re.compile(r"[0-9]+")


def check_requirements(texts: Iterable[str]) -> tuple[str, ...]:
    """In canonical form, sorted and without duplicates: the same set in another order is the same. ValueError says what
    is wrong.
    """
    listed = list(texts)
    if len(listed) > REQUIREMENTS_MAX:
        raise ValueError(
            f"dependencies: a job has at most {REQUIREMENTS_MAX} dependencies, not {len(listed)}"
        )
    return tuple(sorted({check_requirement(text) for text in listed}))


def check_requirement(text: str) -> str:
    if len(text) > REQUIREMENT_CHARS_MAX:
        raise ValueError(
            f"dependencies: one has at most {REQUIREMENT_CHARS_MAX} characters; {text[:40]!a}… has {len(text)}"
        )
    text = text.strip(" ")
    if not _CHARACTERS.issuperset(text):
        raise _bad(text)
    try:
        found = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        raise _bad(text) from error
    if any(specifier.operator == "===" for specifier in found.specifier):
        raise _bad(text)  # it compares text, whatever that is
    if any(len(number) > _DIGITS_MAX for number in _NUMBERS.findall(text)):
        raise _bad(text)
    return str(found)


def _bad(text: str) -> ValueError:
    return ValueError(f"dependencies: {text!a} is not a plain requirement (name, extras, versions, marker)")
