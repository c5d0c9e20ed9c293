"""The hub's memory of artifacts: where they are, and how much of their quotas is used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from computepool.hub.artifacts.storage.base import Blobs


@dataclass(slots=True)
class StorageUsage:
    """What an account, or a node, keeps at the hub, as it was counted and with what came since."""

    bytes: int
    bytes_max: int
    counted_at_ms: int


@dataclass(slots=True)
class Sweeps:
    """How far collecting what nothing keeps any more has come; it starts anew after a restart."""

    refs: tuple[int, str] = (-1, "")
    rows: str = ""
    places: str = ""
    jobs: str = ""


@dataclass(slots=True)
class ArtifactsState:
    blobs: Blobs
    usage: dict[str, StorageUsage] = field(default_factory=dict)  #: by account or node
    #: By account, bytes of submissions that are being written.
    submitting: Counter[str] = field(default_factory=Counter)
    #: By account or node: digests that are being sent to this hub, and how long they say they are.
    arriving: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    sweeps: Sweeps = field(default_factory=Sweeps)
