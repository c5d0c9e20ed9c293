"""Requirement strings of jobs: a name, extras, version specifiers and a marker, and nothing else; and versions of Python.

One rule for hub, agent, SDK and command line. The hub refuses a bad string at submission; the agent checks again, because
a hub may be older, or hostile. The limits are constants and no settings: both ends have to agree about them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from computepool.core.pythons import MINORS

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

REQUIREMENT_CHARS_MAX: Final = 200
REQUIREMENTS_MAX: Final = 100
#: What a name, extras, versions and a marker are written with. Without `@ / : # $ { } \\` there is no address, path,
#: comment, variable or continued line, and without control characters nothing that a terminal obeys.
_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + " ._-,[]()<>=!~;'\"*+")
#: uv reads each number of a version into 64 bits, and fails on a longer one as if the machine were at fault.
_DIGITS_MAX: Final = 18
_NUMBERS: Final = re.compile(r"[0-9]+")
_MINOR: Final = re.compile(r"3\.[0-9]{1,2}")
#: Later than the last release of any minor version.
_PATCH_MAX: Final = 999


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
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        raise _bad(text) from error
    if not _is_plain(found.specifier):
        raise _bad(text)
    return str(found)


def check_python(text: str) -> str:
    minor_versions(text)
    return text


@lru_cache(maxsize=256)
def minor_versions(text: str) -> frozenset[str]:
    """The minor versions of Python that `text` allows: `3.12` is that one, `>=3.12,<3.14` two; none where it allows all.

    A minor version is allowed if one of its releases is: nodes offer minor versions. ValueError says what is wrong.
    """
    if not text or _MINOR.fullmatch(text):
        return frozenset({text} - {""})
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import Version

    problem = f"{text[:REQUIREMENT_CHARS_MAX]!a} is not a version of Python, such as 3.12 or >=3.12"
    if len(text) > REQUIREMENT_CHARS_MAX or not _CHARACTERS.issuperset(text):
        raise ValueError(problem)
    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(problem) from error
    if not _is_plain(specifiers):
        raise ValueError(problem)
    named = [Version(specifier.version.removesuffix(".*")) for specifier in specifiers]
    releases = [Version(f"{minor}.{patch}") for minor in MINORS for patch in (0, _PATCH_MAX)]
    found = {f"{release.major}.{release.minor}" for release in specifiers.filter([*releases, *named])}
    allowed = found.intersection(MINORS)
    if not allowed:
        raise ValueError(f"no version of Python 3 satisfies {text}")
    return frozenset(allowed if len(allowed) < len(MINORS) else ())


def _is_plain(specifiers: SpecifierSet) -> bool:
    """Without ===, which compares text, whatever that is, and without numbers that are too long."""
    return not any(
        specifier.operator == "===" or any(len(n) > _DIGITS_MAX for n in _NUMBERS.findall(specifier.version))
        for specifier in specifiers
    )


def _bad(text: str) -> ValueError:
    return ValueError(f"dependencies: {text!a} is not a plain requirement (name, extras, versions, marker)")
