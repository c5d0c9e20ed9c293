"""In-memory state of artifacts: the blob store, storage usage, and the progress of garbage collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from computepool.hub.artifacts.storage.base import Blobs


@dataclass(slots=True)
class StorageUsage:
    """What an account, or a node, keeps at the hub: as last counted, plus what came since."""

    bytes: int
    bytes_max: int
    counted_at_ms: int


@dataclass(slots=True)
class Sweeps:
    """Where garbage collection continues; it starts over after a restart."""

    refs: tuple[int, str] = (-1, "")
    rows: str = ""
    places: str = ""
    jobs: str = ""


@dataclass(slots=True)
class ArtifactsState:
    blobs: Blobs
    usage: dict[str, StorageUsage] = field(default_factory=dict)  #: by account or node
    submitting: Counter[str] = field(default_factory=Counter)  #: by account: bytes of submissions being written
    #: By account or node: digests being uploaded to this hub, and their announced sizes.
    arriving: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    sweeps: Sweeps = field(default_factory=Sweeps)
