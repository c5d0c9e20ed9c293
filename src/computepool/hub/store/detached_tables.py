"""The tables of detached compute: what collectors expect, and what is told to whom when it is there."""

from __future__ import annotations

from computepool.hub.store.money_tables import metadata

__all__ = ["metadata"]
