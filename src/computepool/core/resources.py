"""Resources: what a node has and what a job requires. Values only; the allocator compares them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from computepool.core.environment import Environment
from computepool.core.fleet.versions import Conditions
from computepool.core.isolation import Level
from computepool.core.placement.hosts import spellings

#: The tier of a GPU that is not in the table, and of a node without a GPU.
UNKNOWN_GPU_TIER = "gpu"
CPU_TIER = "cpu"
#: Classes of cores. Nodes claim the first; measurements may lower it to the others (core/trust/hardware.py).
CPU_TIERS = (CPU_TIER, "cpu-slow", "cpu-tiny")
#: Prefixes of the keys of what nodes keep for later jobs; the rest of a key is a digest.
PACKAGES, ARTIFACT, IMAGE = "packages:", "artifact:", "image:"
#: What a job may prefer over a balance.
CHEAPEST, FASTEST = "cheapest", "fastest"
#: The minimum for a job that does not state its memory: enough to import pandas or scikit-learn.
DEFAULT_RAM_MB = 512
#: Sources of images besides registries: files that submitters uploaded, and any registry.
UPLOADED, ANY_REGISTRY = "artifact", "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One graphics card as detected by the node."""

    name: str
    tier: str
    vram_mb: int
    compute_capability: int = (
        0  #: as a number (core/fleet/versions.py), as all versions here; 0: unknown, or not NVIDIA's
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Everything that a node lends. `cpu_milli` counts thousandths of a core, so that half cores are whole numbers."""

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
    """The state that the owner or operator requested for a node. Whether it is online is separate, soft state."""

    ACTIVE = "active"  #: takes new jobs
    PAUSED = "paused"  #: takes no new jobs; running jobs continue
    DRAINING = "draining"  #: paused, and the agent stops when the last job ends
    REVOKED = "revoked"  #: its key is no longer accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProfile:
    """What the allocator knows about a node, as far as it does not change from poll to poll."""

    node_id: str
    name: str
    owner: str  #: account id
    capacity: Capacity
    region: str = ""
    tags: frozenset[str] = frozenset()
    properties: tuple[tuple[str, str], ...] = ()
    mesh_version: str = ""
    python: str = ""  #: "3.11"; functions run only where the minor version matches
    fetches_python: frozenset[str] = frozenset()  #: minor versions that it downloads when a job needs one
    level: Level = Level.PROCESS  #: the strongest isolation level that passed its self-test
    #: account ids (or "*") whose jobs may run below NAMESPACE; the owner's always may
    trusted: frozenset[str] = frozenset()
    url: str = ""
    driver: int = 0  #: of its NVIDIA cards; 0: unknown, or none
    cuda: int = 0  #: the newest that this driver runs
    network: bool = False  #: its owner lets jobs reach the hosts they list
    down_mbps: int = 0  #: measured speed from the hub, and to it; 0: unknown
    up_mbps: int = 0
    #: where the images of its jobs may come from: registries, "*" for all of them, and "artifact" for uploaded ones
    registries: frozenset[str] = frozenset()
    lends_gpus: bool = True  #: its cards also run other accounts' jobs, not only those of trusted ones
    gangs: bool = False  #: its sandbox can join a network of the members of a gang
    environments: tuple[Environment, ...] = ()  #: that its owner offers
    installs: bool = True  #: it installs the dependencies of jobs that no environment satisfies

    def names(self) -> set[str]:
        """The words by which jobs may name it: id, name, URL, and the URL with the name in place of the address."""
        return {self.node_id, *spellings(self.name, self.url)}

    def pythons(self) -> set[str]:
        """The Python versions its jobs may use: the installed one, and those it downloads."""
        return {self.python, *self.fetches_python} - {""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """Hard minimums and preferences of a job. Hashable: jobs with equal requirements form one *shape*."""

    cpu_milli: int = 1000
    ram_mb: int = 256
    disk_mb: int = 256
    gpus: int = 0
    vram_mb: int = 0  #: per GPU
    compute_capability: int = 0  #: the least, of each GPU
    driver: Conditions = ()  #: on the NVIDIA driver
    cuda: Conditions = ()  #: on the newest CUDA that the driver runs
    tiers: frozenset[str] = frozenset()  #: any of these; empty means any
    regions: frozenset[str] = frozenset()  #: any of these; empty means any
    tags: frozenset[str] = frozenset()  #: all of these
    prefer_tags: frozenset[str] = frozenset()
    exclude_tags: frozenset[str] = frozenset()  #: none of these
    properties: frozenset[tuple[str, str]] = frozenset()
    exclude_nodes: frozenset[str] = frozenset()  #: node ids, names or URLs
    node: str = ""  #: pinned to this node id; empty means any
    mesh_version: str = ""  #: empty means any
    pythons: frozenset[str] = frozenset()  #: any of these minor versions; empty means any
    #: None: NAMESPACE on other accounts' nodes, any level on nodes that trust the submitter
    isolation: Level | None = None
    network: bool = False  #: the job lists hosts to reach
    labels: frozenset[str] = frozenset()  #: for owners' rules
    minutes: int = 0  #: its time limit
    software: frozenset[str] = frozenset()  #: its dependencies, all of which one environment of the node must satisfy
    offered_only: bool = False  #: nothing may be installed for it
    warm: frozenset[str] = frozenset()  #: keys of what it takes long to fetch; nodes that have them start it sooner
    image_source: str = ""  #: the registry of its image, or "artifact"; empty: it has no image
    #: the job does not state its memory: it gets its cores' share of the node's, and `ram_mb` at least
    ram_by_cores: bool = False
    #: a gang: the job runs on this many nodes of one owner (or of its mesh) at once, with these requirements on each
    nodes: int = 1
    #: It gets secrets, on nodes of its account and of these owners only; None: it gets none, or gets them anywhere.
    secret_owners: frozenset[str] | None = None
    require: str = ""  #: an expression over tags and properties (core/expressions.py)
    down_mbps: int = 0  #: measured speed from the hub
    up_mbps: int = 0
    prefer: str = ""  #: CHEAPEST, FASTEST, or "" for a balance

    def ram_on(self, capacity: Capacity) -> int:
        """The MB that the job reserves on a node. The shares of all cores add up to the node's memory, so jobs that do not
        state theirs never overcommit a node.
        """
        if not self.ram_by_cores:
            return self.ram_mb
        cores = min(self.cpu_milli, capacity.cpu_milli)
        return max(self.ram_mb, capacity.ram_mb * cores // max(1, capacity.cpu_milli))

    def pin_to(self, node: str, *, own: bool) -> Requirements:
        """The requirements of a job that chose its next host while running.

        On one of the submitter's own nodes, the resources still count but the selectors no longer do. On other nodes all of
        them count, because the choice was reported by a node that may not be trustworthy.
        """
        return replace(self.without_selectors() if own else self, node=node)

    def without_selectors(self) -> Requirements:
        """Without the fields that select among nodes by what these claim about themselves; resources stay."""
        none: frozenset[str] = frozenset()
        return replace(
            self,
            tiers=none,
            regions=none,
            tags=none,
            exclude_tags=none,
            exclude_nodes=none,
            properties=frozenset(),
            compute_capability=0,
            driver=(),
            cuda=(),
            software=none,
            offered_only=False,
            require="",
            down_mbps=0,
            up_mbps=0,
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """Jobs with equal shapes are interchangeable for the allocator."""

    requirements: Requirements
    account: str
    avoid_node: str = ""  #: the node that last failed this job: never the same one twice in a row
    ceiling: int | None = None  #: microcredits per hour for the whole job; None: no limit
    avoid_owners: frozenset[str] = frozenset()  #: owners whose nodes have run it: a check needs somebody else's
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Cache the hash: each job is looked up by its shape several times, and hashing all fields is slow."""
        known = (self.requirements, self.account, self.avoid_node, self.ceiling, self.avoid_owners)
        object.__setattr__(self, "_hash", hash(known))

    def __hash__(self) -> int:
        return self._hash

    @property
    def value(self) -> int:
        """The most that one run may cost, in microcredits."""
        return (self.ceiling or 0) * self.requirements.minutes // 60
