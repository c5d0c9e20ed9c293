"""The one place where the CLI reads the time of day, to say how long ago something was."""

from __future__ import annotations

import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000
