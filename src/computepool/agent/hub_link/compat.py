"""Requests to hubs of an older version, which refuse fields that they do not know.

A pool may have hubs of two versions while it is upgraded.
"""

from __future__ import annotations

import json
from typing import Any

from computepool.core.errors import BadRequest

#: Optional fields added since, as paths without list indexes. No signature covers them.
_ADDED = frozenset(
    (
        *("profile.fetches_python", "profile.place", "stopping", "cached"),
        *("profile.environments", "profile.installs"),
        *("profile.down_mbps", "profile.up_mbps"),
        *("running.earlier", "running.load.ago_ms", "running.load.gpu_percent", "running.load.vram_mb"),
        *("reports.loads", "reports.printed_chars", "logs.seq", "chunks.seq"),
    )
)


def is_unknown(error: BadRequest) -> bool:
    """True if the hub refused one of the added fields, or a part of one."""
    names = [name for name in (error.field or "").split(".") if not name.isdecimal()]
    return any(".".join(names[:end]) in _ADDED for end in range(1, len(names) + 1))


def plain(body: bytes) -> bytes:
    """The request without the added fields; its signature stays valid."""
    return json.dumps(_strip(json.loads(body), "")).encode()


def _strip(value: Any, at: str) -> Any:
    if isinstance(value, list):
        return [_strip(part, at) for part in value]
    if isinstance(value, dict):
        return {name: _strip(part, f"{at}{name}.") for name, part in value.items() if at + name not in _ADDED}
    return value
