"""Numbers in sentences, worded alike by the hub and the command line."""

from __future__ import annotations

import math

#: As sizes are parsed (sdk/client/sizes.py), so that displayed sizes can be typed.
_MB_PER_GB = 1_000
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def pluralize(number: int, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """In whole units: `45 s`, `9 minutes`, `2 hours`, `7 days`."""
    for limit, unit, size in ((7_200, "minute", 60), (172_800, "hour", 3_600)):
        if seconds < 120:
            return f"{max(0, seconds):.0f} s"
        if seconds < limit:
            return pluralize(round(seconds / size), unit)
    return pluralize(round(seconds / 86_400), "day")


def cores(number: float) -> str:
    """`1 core`, `0.5 cores`."""
    return f"{number:g} {'core' if number == 1 else 'cores'}"


def short_account(account_id: str) -> str:
    """For readers who may not know the account's name: enough of its id to distinguish it from others."""
    return f"account {account_id[-6:]}"


def memory_size(mb: float, *, up: bool = False) -> str:
    """`24 GB`, `512 MB`. Round needs up and everything else down, so that too little never looks like enough."""
    if mb < _MB_PER_GB:
        return f"{max(0, mb):.0f} MB"
    tenths = (math.ceil if up else math.floor)(mb * 10 / _MB_PER_GB)
    return f"{tenths / 10:g} GB"


def byte_size(count: float) -> str:
    """For files: `999 B`, `9.1 kB`, `1.5 TB`."""
    for unit in _BYTE_UNITS:
        if round(count, 1) < 1000 or unit == _BYTE_UNITS[-1]:
            break
        count /= 1000
    return f"{round(count, 1):.0f} {unit}" if count >= 100 else f"{round(count, 1):g} {unit}"
