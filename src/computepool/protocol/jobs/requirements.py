"""Dependencies of jobs (name, extras, version specifiers and marker, nothing else), and their versions of Python.

Hub, agent, SDK and command line share these rules. The hub refuses bad strings at submission. The agent checks again,
because a hub may be hostile. The limits are constants, not settings, because both ends must agree on them.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from computepool.core.environment import Environment
from computepool.core.pythons import MINORS
from computepool.core.resources import PACKAGES

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

REQUIREMENT_CHARS_MAX: Final = 200
REQUIREMENTS_MAX: Final = 100
#: The characters of names, extras, versions and markers. Without `@ / : # $ { } \\` there are no URLs, paths, comments,
#: variables or continuation lines, and without control characters nothing that a terminal obeys.
_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + " ._-,[]()<>=!~;'\"*+")
#: uv parses each number of a version as 64 bits, and fails on longer ones as if the machine were at fault.
_DIGITS_MAX: Final = 18
_NUMBERS: Final = re.compile(r"[0-9]+")
_MINOR: Final = re.compile(r"3\.[0-9]{1,2}")
#: Higher than the patch number of any release.
_PATCH_MAX: Final = 999


def check_requirements(texts: Iterable[str]) -> tuple[str, ...]:
    """The dependencies in canonical form, sorted and without duplicates. Raises ValueError."""
    listed = list(texts)
    if len(listed) > REQUIREMENTS_MAX:
        raise ValueError(f"dependencies: a job has at most {REQUIREMENTS_MAX} dependencies, not {len(listed)}")
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


def dependencies_of(texts: Iterable[str]) -> frozenset[str]:
    """The dependencies in canonical form, of a spec that may be older than these rules; empty if they break them."""
    try:
        return frozenset(check_requirements(texts))
    except ValueError:
        return frozenset()


def dependencies_key(dependencies: Iterable[str]) -> str:
    """The key by which nodes say that they have installed these dependencies, in canonical form."""
    return PACKAGES + hashlib.sha256("\n".join(sorted(dependencies)).encode()).hexdigest()[:32]


def satisfies(environment: Environment, dependencies: Iterable[str]) -> bool:
    """Whether an environment that a node offers has all of these dependencies, in canonical form.

    Extras do not tell which packages they stand for, so an environment never satisfies a dependency with extras.
    """
    return all(_satisfies(environment, text) for text in dependencies)


def _satisfies(environment: Environment, text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    found = _parse(text)
    if found is None:
        return False
    if found.marker is not None and not found.marker.evaluate(_marker_values(environment.python)):
        return True
    version = environment.version(canonicalize(found.name))
    if version is None or found.extras:
        return False
    try:
        return found.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


@lru_cache(maxsize=4_096)
def _parse(text: str) -> Requirement | None:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except (InvalidRequirement, RecursionError):
        return None


def _marker_values(python: str) -> dict[str, str]:
    """Of the nodes: agents run on Linux with CPython. Of a patch number, nothing is known."""
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "python_version": python,
        "python_full_version": f"{python}.0",
        "extra": "",
    }


def canonicalize(name: str) -> str:
    from packaging.utils import canonicalize_name

    return canonicalize_name(name)


def check_python(text: str) -> str:
    minor_versions(text)
    return text


@lru_cache(maxsize=256)
def minor_versions(text: str) -> frozenset[str]:
    """The minor versions of Python that a specifier allows: `3.12` one, `>=3.12,<3.14` two; empty if it allows all.

    A minor version is allowed if any of its releases is, because nodes offer minor versions. Raises ValueError.
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
    """Without ===, which compares arbitrary text, and without overlong numbers."""
    return not any(
        specifier.operator == "===" or any(len(n) > _DIGITS_MAX for n in _NUMBERS.findall(specifier.version))
        for specifier in specifiers
    )


def _bad(text: str) -> ValueError:
    return ValueError(f"dependencies: {text!a} is not a plain requirement (name, extras, versions, marker)")
