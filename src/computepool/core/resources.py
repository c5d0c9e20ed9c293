"""Resources that a node has and that a job asks for. Values only; the allocator compares them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from computepool.core.isolation import Level
from computepool.core.placement.hosts import spellings

#: Tier of a GPU the table does not know, and of a node without any.
UNKNOWN_GPU_TIER = "gpu"
CPU_TIER = "cpu"
#: Classes of cores, the claim first: the others are what a measurement may find (core/trust/hardware.py).
CPU_TIERS = (CPU_TIER, "cpu-slow", "cpu-tiny")
#: What a job that says nothing about memory needs at least: enough to import pandas or scikit-learn.
DEFAULT_RAM_MB = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One graphics card as the node's probe saw it."""

    name: str
    tier: str
    vram_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a node lends in all. `cpu_milli` is thousandths of a core, so that half cores are whole numbers."""

    cpu_milli: int
    ram_mb: int
    disk_mb: int
    gpus: tuple[Gpu, ...] = ()
    cpu_tier: str = CPU_TIER  #: the class of its cores

    @property
    def tier(self) -> str:
        """The tier of the best card (most memory), or the class of its cores."""
        return max(self.gpus, key=lambda gpu: gpu.vram_mb).tier if self.gpus else self.cpu_tier


class NodeState(StrEnum):
    """What the owner (or operator) wants of a node. Being online is a separate, soft fact."""

    ACTIVE = "active"  #: takes new work
    PAUSED = "paused"  #: takes no new work; running jobs go on
    DRAINING = "draining"  #: as paused, and the agent stops when the last job ends
    REVOKED = "revoked"  #: its key is no longer accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProfile:
    """Everything the allocator knows of a node that does not change from poll to poll."""

    node_id: str
    name: str
    owner: str  #: account id
    capacity: Capacity
    region: str = ""
    tags: frozenset[str] = frozenset()
    properties: tuple[tuple[str, str], ...] = ()
    mesh_version: str = ""
    python: str = ""  #: "3.11"; functions run only where the minor version matches
    fetches_python: frozenset[str] = frozenset()  #: minor versions that it gets where a job needs one
    level: Level = Level.PROCESS  #: the best isolation level its self-test passed
    #: account ids (or "*") whose jobs may run below NAMESPACE; the owner always may
    trusted: frozenset[str] = frozenset()
    url: str = ""
    network: bool = False  #: its owner lets jobs reach the hosts they list
    #: its cards are for strangers' jobs too, not only for the owner's and trusted ones
    lends_gpus: bool = True

    def names(self) -> set[str]:
        """What jobs may call it by: its id, its name, its URL, and the URL with its name in place of the address."""
        return {self.node_id, *spellings(self.name, self.url)}

    def pythons(self) -> set[str]:
        """What its jobs may run with: the Python that it has, and those that it fetches."""
        return {self.python, *self.fetches_python} - {""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """Hard minimums and preferences of a job. Hashable: jobs with equal requirements are one *shape*."""

    cpu_milli: int = 1000
    ram_mb: int = 256
    disk_mb: int = 256
    gpus: int = 0
    vram_mb: int = 0  #: per GPU
    tiers: frozenset[str] = frozenset()  #: any of these; empty means any
    regions: frozenset[str] = frozenset()  #: any of these; empty means any
    tags: frozenset[str] = frozenset()  #: all of these
    prefer_tags: frozenset[str] = frozenset()
    exclude_tags: frozenset[str] = frozenset()  #: none of these
    properties: frozenset[tuple[str, str]] = frozenset()
    exclude_nodes: frozenset[str] = frozenset()  #: node ids, names or URLs
    node: str = ""  #: pinned to this node id; a name means a node of the submitter's; empty means any
    mesh_version: str = ""  #: empty means any
    pythons: frozenset[str] = frozenset()  #: minor versions, any of them; empty means any at all
    #: None: NAMESPACE on a stranger's node, anything on one that trusts the submitter
    isolation: Level | None = None
    network: bool = False  #: it lists hosts to reach
    labels: frozenset[str] = frozenset()  #: owners may have rules about them
    minutes: int = 0  #: its time limit
    #: it said nothing of memory: `ram_mb` at least, and its cores' share of the node's
    ram_by_cores: bool = False

    def ram_on(self, capacity: Capacity) -> int:
        """MB that it holds of a node, and may use there. Shares of all cores together are the node's memory: a node full
        of jobs that said nothing is never overcommitted."""
        if not self.ram_by_cores:
            return self.ram_mb
        cores = min(self.cpu_milli, capacity.cpu_milli)
        return max(self.ram_mb, capacity.ram_mb * cores // max(1, capacity.cpu_milli))

    def pinned_to(self, node: str, *, own: bool) -> Requirements:
        """The job itself has chosen a host. At one of the submitter's own, what it said about choosing no longer counts,
        what it needs does; at others' all of it counts: which host it is was said by a node that may be a stranger's.
        """
        if not own:
            return replace(self, node=node)
        return replace(self.without_wishes(), node=node)

    def without_wishes(self) -> Requirements:
        """What it needs to run stays; whom it would like to run it, by what nodes say of themselves, does not."""
        none: frozenset[str] = frozenset()
        return replace(
            self,
            tiers=none,
            regions=none,
            tags=none,
            exclude_tags=none,
            exclude_nodes=none,
            properties=frozenset(),
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """What makes two queued jobs interchangeable for the allocator."""

    requirements: Requirements
    account: str
    #: the node that failed this job last; never the same one twice in a row
    avoid_node: str = field(default="")
    ceiling: int | None = None  #: microcredits per hour for the whole job; None: whatever it costs
    avoid_owners: frozenset[str] = frozenset()  #: whose nodes have run it: a check needs somebody else's

    @property
    def value(self) -> int:
        """Microcredits: what one run of it may cost."""
        return (self.ceiling or 0) * self.requirements.minutes // 60
