"""The permissions of one job on this node, derived from the same limits and lists as its sandbox."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from computepool.agent.execution.specs import PreparedSpec
from computepool.core.placement.rules import Demand
from computepool.core.words import cores, memory_size, pluralize
from computepool.protocol.nodes.nodes import Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    submitter: str  #: account id
    job_id: str
    name: str
    labels: tuple[str, ...]
    network: tuple[str, ...]  #: hosts it may reach; none: no network
    gpus: tuple[int, ...]  #: indexes of the cards it sees
    cores: float
    ram_mb: int
    disk_mb: int
    minutes: int  #: its time limit; it also stops when its money is spent

    @property
    def sentence(self) -> str:
        cards = "no GPU" if not self.gpus else f"GPU {', '.join(map(str, self.gpus))}"
        network = f"network to {', '.join(self.network)}" if self.network else "no network"
        labels = f", labelled {', '.join(self.labels)}" if self.labels else ""
        return (
            f"{self.job_id} ({self.name}) of {self.submitter}{labels}: {cores(self.cores)}, {memory_size(self.ram_mb)} RAM, "
            f"{memory_size(self.disk_mb)} disk, {pluralize(self.minutes, 'minute')}, {cards}, {network}"
        )


def manifest(grant: Grant, spec: PreparedSpec) -> Manifest:
    limits = spec.limits
    return Manifest(
        submitter=grant.account_id,
        job_id=grant.job_id,
        name=spec.spec.name,
        labels=tuple(spec.spec.labels),
        network=tuple(map(str, spec.net)),
        gpus=tuple(grant.gpus),
        cores=limits.cpus,
        ram_mb=limits.memory_mb,
        disk_mb=limits.disk_mb,
        minutes=math.ceil(spec.timeout_s / 60),
    )


def demand(grant: Grant, spec: PreparedSpec) -> Demand:
    """The job's demand for the owner's rules, in the numbers by which the hub judged it."""
    named = Demand.of(grant.account_id, spec.spec.requirements())
    return replace(named, gpus=max(len(grant.gpus), named.gpus))
