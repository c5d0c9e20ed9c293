"""Named points where a test can make the hub exit as if by kill -9.

With COMPUTEPOOL_CRASH_AT=before_commit:3 it exits the third time it reaches that point.
"""

from __future__ import annotations

import itertools
import os

_name, _, _count = os.environ.get("COMPUTEPOOL_CRASH_AT", "").partition(":")
_at = int(_count or "1")
_passes = itertools.count(1)


def crash_point(name: str) -> None:
    if _name and name == _name and next(_passes) >= _at:
        os._exit(137)
