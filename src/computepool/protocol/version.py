"""The wire protocol's version. A hub refuses agents and clients that speak another major number."""

from __future__ import annotations

PROTOCOL = 1
