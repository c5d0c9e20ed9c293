"""Specs in memory: parsed once, with how long their jobs run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from computepool.core.resources import Requirements
from computepool.hub.db.session import Store
from computepool.hub.jobs import rows as job_rows
from computepool.protocol.jobs.jobs import JobSpec

_CACHED_MAX = 10_000
_WEIGHT = 0.2  #: of the newest run


@dataclass(frozen=True, slots=True)
class KnownSpec:
    digest: str
    body: str
    spec: JobSpec
    requirements: Requirements


class SpecCache:
    """By digest. Specs are immutable, so a cached one is never stale."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, KnownSpec] = OrderedDict()

    def add(self, digest: str, body: str, spec: JobSpec) -> KnownSpec:
        known = KnownSpec(digest, body, spec, spec.requirements())
        self._known[digest] = known
        while len(self._known) > _CACHED_MAX:
            self._known.popitem(last=False)
        return known

    def peek(self, digest: str) -> KnownSpec | None:
        return self._known.get(digest)

    async def load(self, digests: Iterable[str]) -> dict[str, KnownSpec]:
        requested = set(digests)
        found = {digest: self._known[digest] for digest in requested if digest in self._known}
        missing = requested - found.keys()
        if missing:
            bodies = await self._store.read(lambda connection: job_rows.get_specs(connection, missing))
            for digest, body in bodies.items():
                found[digest] = self.add(digest, body, JobSpec.model_validate_json(body))
        return found


class RunLengths:
    """Average run times by spec: short jobs are given to a node several at a time."""

    def __init__(self) -> None:
        self._ms: dict[str, float] = {}

    def learn(self, digest: str, ran_ms: float) -> None:
        before = self._ms.get(digest)
        if before is None and len(self._ms) >= _CACHED_MAX:
            self._ms.clear()
        self._ms[digest] = ran_ms if before is None else before + _WEIGHT * (ran_ms - before)

    def of(self, digest: str) -> float | None:
        return self._ms.get(digest)
