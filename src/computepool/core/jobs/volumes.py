"""Versions of volumes: whether a change becomes the head or a conflict, and which versions may go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Published(StrEnum):
    UNCHANGED = "unchanged"  #: the content is that of the version it started from, so there is no new version
    HEAD = "head"
    CONFLICT = "conflict"  #: the head had moved; the new version is kept beside it


@dataclass(frozen=True, slots=True)
class VersionFacts:
    number: int
    is_conflict: bool


def judge(*, content: str, parent_content: str | None, parent: int, head: int) -> Published:
    """What becomes of a change that started from version `parent` (0: from an empty volume)."""
    if content == parent_content:
        return Published.UNCHANGED
    return Published.HEAD if parent == head else Published.CONFLICT


def conflict_sentence(*, number: int, parent: int, head: int) -> str:
    return f"version {number} started from {parent}, but the head is {head}"


def surplus(versions: Collection[VersionFacts], *, kept: int, needed: Collection[int]) -> list[int]:
    """The versions that may be deleted: all but the newest `kept`, the newest `kept` conflicts, and those that are needed."""
    found = []
    for is_conflict in (False, True):
        numbers = sorted((v.number for v in versions if v.is_conflict is is_conflict), reverse=True)
        found += [number for number in numbers[kept:] if number not in needed]
    return sorted(found)
