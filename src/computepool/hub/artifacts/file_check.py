"""Checks that the bytes of referenced artifacts exist and match their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts.rows import StoredArtifact
from computepool.hub.artifacts.storage.base import Blobs
from computepool.hub.db.session import Connection

_PAGE = 1_000
_THREADS = 8
_BLOCK_BYTES = 1024 * 1024

Snapshot = Callable[[], AbstractContextManager[Connection]]


def check_files(snapshot: Snapshot, blobs: Blobs, *, deep: bool) -> dict[str, list[str]]:
    """The digests of the artifacts that break a rule, by rule. `deep` reads every byte."""
    missing: list[StoredArtifact] = []
    damaged: list[StoredArtifact] = []
    with ThreadPoolExecutor(_THREADS) as threads:
        for page in _pages(snapshot):
            sizes = threads.map(lambda row: blobs.size(row.place), page)
            for row, size in zip(page, sizes, strict=True):
                if size != row.size:
                    missing.append(row)
                elif deep and _hash(blobs, row) != row.digest:
                    damaged.append(row)
    # A hub may be serving: an artifact removed since it was listed is not missing.
    return {
        "the bytes of an artifact are there, all of them": _still_named(snapshot, missing),
        "an artifact's bytes are what its SHA-256 says": _still_named(snapshot, damaged),
    }


def _pages(snapshot: Snapshot) -> Iterator[list[StoredArtifact]]:
    """Each in its own transaction: reading a terabyte must not hold a snapshot of the database for hours."""
    after = ""
    while True:
        with snapshot() as connection:
            rows = list(artifact_rows.list_stored(connection, after=after, limit=_PAGE))
        if not rows:
            return
        yield [row for row in rows if row.referred]
        after = rows[-1].digest


def _hash(blobs: Blobs, row: StoredArtifact) -> str:
    try:
        reading = blobs.read(row.place, start=0, length=row.size)
    except FileNotFoundError:
        return ""
    hasher = hashlib.sha256()
    try:
        while block := reading.read(_BLOCK_BYTES):
            hasher.update(block)
    finally:
        reading.close()
    return hasher.hexdigest()


def _still_named(snapshot: Snapshot, rows: list[StoredArtifact]) -> list[str]:
    if not rows:
        return []
    with snapshot() as connection:
        places = artifact_rows.get_places(connection, [row.digest for row in rows])
    return [row.digest for row in rows if places.get(row.digest) == row.place]
