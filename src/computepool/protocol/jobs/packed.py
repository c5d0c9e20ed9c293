"""Tells a payload of several items: all that a hub knows of bundles.py, whose codec it never loads."""

from __future__ import annotations

import base64

#: First byte of such a payload, as `bundles.pack` writes it.
MARK = b"*"


def is_packed(payload: str | None) -> bool:
    """Of a payload in base64; only its beginning is looked at."""
    try:
        return payload is not None and base64.b64decode(payload[:4])[: len(MARK)] == MARK
    except ValueError:
        return False
