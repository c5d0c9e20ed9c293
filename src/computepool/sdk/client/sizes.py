"""Sizes and durations as users write them (16, "16GB", "512MB"; 90, "10m", "2h"), and options made of them.

Placed into every sandbox, next to nested.py: imports only the standard library and the other modules there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from computepool.core.errors import BadRequest

T = TypeVar("T")

#: A node's MB is 1024² bytes. A size without a unit is in GB, and a GB is 1000 MB, so that a "24 GB" card, which has
#: 24,564 MB, satisfies vram=24. Write GiB to be exact.
_MB_PER_UNIT = {
    "": 1000.0, "b": 1e-6, "kb": 1e-3, "mb": 1.0, "m": 1.0, "gb": 1000.0, "g": 1000.0, "tb": 1e6, "t": 1e6,
    "kib": 1 / 1024, "mib": 1.0, "gib": 1024.0, "tib": 1024.0**2,
}  # fmt: skip
_BYTES_PER_UNIT = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SECONDS_PER_UNIT = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
#: Options and the fields of the request that they set: sizes, network speeds, and lists of words.
SIZES = {"ram": "ram_mb", "disk": "disk_mb", "vram": "vram_mb"}
SPEEDS = {"down": "down_mbps", "up": "up_mbps"}
WORD_LISTS = {
    "tier": "tiers",
    "region": "regions",
    "tags": "tags",
    "prefer_tags": "prefer_tags",
    "exclude_tags": "exclude_tags",
    "exclude_hosts": "exclude_hosts",
}
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)")


def words(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def needs_of(options: Mapping[str, Any], same: Iterable[str]) -> dict[str, Any]:
    """The fields of `Needs` that these options set. `same`: options that are called as the field."""
    found = {word: options[word] for word in same if word in options}
    found |= {field: megabytes(options[word], what=word) for word, field in SIZES.items() if word in options}
    found |= {field: options[word] for word, field in SPEEDS.items() if word in options}
    return found | {field: words(options[word]) for word, field in WORD_LISTS.items() if word in options}


def batches(items: Iterable[T], size: Callable[[T], int], *, count_max: int, size_max: int) -> Iterator[list[T]]:
    """Lists of items that fit into one request; an oversized item gets a list of its own."""
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and (len(batch) == count_max or total + size(item) > size_max):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def megabytes(size: float | str, *, what: str = "size") -> int:
    """In whole MB, rounded up, so that the job gets at least what was written."""
    return math.ceil(round(_parse(size, _MB_PER_UNIT, what=what, example="16, 16GB or 512MB"), 6))


def byte_count(size: float | str, *, what: str = "size") -> int:
    """Size of files, with exact units: "10GB" is 10 × 1000³, "10GiB" is 10 × 1024³, and 10 is ten bytes."""
    return round(_parse(size, _BYTES_PER_UNIT, what=what, example="500MB, 10GB or 2TiB"))


def seconds(duration: float | str, *, what: str = "timeout") -> float:
    return _parse(duration, _SECONDS_PER_UNIT, what=what, example="90, 10m or 2h")


def _parse(value: float | str, units: dict[str, float] | dict[str, int], *, what: str, example: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(str(value).strip())
    factor = None if match is None else units.get(match[2].lower())
    if match is None or factor is None:
        raise BadRequest(f"{what}: {value!r} is not valid; use {example}.", field=what)
    return float(match[1]) * factor
