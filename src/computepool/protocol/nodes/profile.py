"""Descriptions of nodes: what each one is and offers, by its agent."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from computepool.core.fleet.versions import number_of
from computepool.core.isolation import Level
from computepool.core.plaintext import is_plain
from computepool.core.resources import ANY_REGISTRY, UNKNOWN_GPU_TIER, UPLOADED, Capacity, Gpu, NodeProfile
from computepool.core.trust.tiers import region_of, tier_of
from computepool.protocol.base import LIST_MAX, Count, Name, Region, Request, Tag
from computepool.protocol.images.names import REGISTRIES_MAX, check_registries
from computepool.protocol.jobs.jobs import MBPS_MAX, LevelName
from computepool.protocol.nodes.software import OffersSoftware

PYTHONS_MAX = 32  #: minor versions that a node may download
MESH_FIELD = "profile.mesh_version"  #: the field of the error that refuses a node of another mesh version

#: Up to three numbers, or empty.
Version = Annotated[str, StringConstraints(pattern=r"^([0-9]{1,5}(\.[0-9]{1,5}){0,2})?$")]
RegistryName = Annotated[str, StringConstraints(max_length=300), AfterValidator(check_registries)]
PythonMinor = Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}$")]


class GpuModel(Request):
    name: Name
    tier: Tag
    vram_mb: Count
    compute_capability: Version = ""  #: of NVIDIA cards, such as 9.0

    @property
    def claim(self) -> str:
        """The tier claimed by the agent or, if that does not know the card, by the hub, whose table may be newer."""
        return tier_of(self.name) if self.tier == UNKNOWN_GPU_TIER else self.tier


class StatedPlace(Request):
    """The place of a node as stated by its owner: degrees, rounded to one decimal."""

    lat: float = Field(ge=-90, le=90)
    lon: float = Field(ge=-180, le=180)

    @field_validator("lat", "lon")
    @classmethod
    def _round(cls, value: float) -> float:
        return round(value, 1)


class Profile(OffersSoftware):
    """A node as described by its agent."""

    name: Name
    cores: float = Field(gt=0, le=100_000)
    ram_mb: Count
    disk_mb: Count
    gpus: list[GpuModel] = Field(default=[], max_length=64)
    lends_gpus: bool = True  #: to other accounts; agents send false until their owner opts in
    region: Region = ""
    place: StatedPlace | None = None  #: on the map; null: somewhere in its region
    tags: list[Tag] = Field(default=[], max_length=64)
    properties: dict[Tag, Name] = Field(default={}, max_length=64)
    mesh_version: Annotated[str, StringConstraints(max_length=64)] = ""
    python: PythonMinor
    #: other versions that the agent may download when a job needs one
    fetches_python: list[PythonMinor] = Field(default=[], max_length=PYTHONS_MAX)
    #: digest of the tree that jobs see as /usr
    runtime: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{0,64}$")] = ""
    isolation: LevelName = "process"  #: the strongest level that passed the node's self-test
    #: account ids whose jobs may run without a sandbox; "*" for all
    trusted: list[Name] = Field(default=[], max_length=LIST_MAX)
    url: Annotated[str, StringConstraints(max_length=300)] = ""
    driver: Version = ""  #: of its NVIDIA cards
    cuda: Version = ""  #: the newest that this driver runs
    network: bool = False  #: jobs may reach the hosts they list, through the agent's proxy
    gangs: bool = False  #: its jobs can join the network of a gang
    #: megabits per second, measured from the hub and to it; 0: unknown
    down_mbps: int = Field(default=0, ge=0, le=MBPS_MAX)
    up_mbps: int = Field(default=0, ge=0, le=MBPS_MAX)
    #: where images of jobs may come from: registries, "*" for all of them, and "artifact" for uploaded ones
    registries: list[RegistryName] = Field(default=[], max_length=REGISTRIES_MAX)
    version: Annotated[str, StringConstraints(max_length=64)] = ""
    platform: Annotated[str, StringConstraints(max_length=200)] = ""

    def tiers(self) -> tuple[str, ...]:
        """The claimed tiers of its cards."""
        return tuple(gpu.claim for gpu in self.gpus)

    @property
    def python_text(self) -> str:
        others = ", ".join(self.fetches_python)
        return f"{self.python} (downloads {others} when a job needs it)" if others else self.python

    @property
    def image_sources(self) -> str:
        """Where images of its jobs may come from, for people."""
        registries = sorted(name for name in self.registries if name != UPLOADED)
        words = ["uploaded"] * (UPLOADED in self.registries)
        words += ["from any public registry"] if ANY_REGISTRY in registries else [f"from {name}" for name in registries]
        return ", ".join(words) or "none"

    def capacity(self) -> Capacity:
        return Capacity(
            cpu_milli=round(self.cores * 1000),
            ram_mb=self.ram_mb,
            disk_mb=self.disk_mb,
            gpus=tuple(
                Gpu(
                    name=gpu.name,
                    tier=gpu.claim,
                    vram_mb=gpu.vram_mb,
                    compute_capability=number_of(gpu.compute_capability),
                )
                for gpu in self.gpus
            ),
        )

    def node_profile(self, *, node_id: str, owner: str) -> NodeProfile:
        return NodeProfile(
            node_id=node_id,
            name=self.name,
            owner=owner,
            capacity=self.capacity(),
            region=region_of(self.region),
            tags=frozenset(self.tags),
            properties=tuple(sorted(self.properties.items())),
            mesh_version=self.mesh_version,
            python=self.python,
            fetches_python=frozenset(self.fetches_python),
            level=Level.parse(self.isolation),
            trusted=frozenset(self.trusted),
            url=self.url,
            driver=number_of(self.driver),
            cuda=number_of(self.cuda),
            lends_gpus=self.lends_gpus,
            network=self.network,
            gangs=self.gangs,
            environments=tuple(found.environment() for found in self.environments),
            installs=self.installs,
            down_mbps=self.down_mbps,
            up_mbps=self.up_mbps,
            registries=frozenset(self.registries),
        )

    def brief(self) -> Self:
        """As it is shown in lists: without the packages of its environments."""
        if not self.environments:
            return self
        return self.model_copy(update={"environments": [found.brief() for found in self.environments]})


def _check_profile(profile: Profile) -> Profile:
    """Check the texts that submitters read on their terminals. Stored profiles may be older, and are escaped when shown."""
    cards = (card.name for card in profile.gpus)
    texts = (profile.name, profile.platform, profile.version, profile.url, profile.mesh_version)
    for text in (*texts, *profile.properties.values(), *cards):
        if not is_plain(text):
            raise ValueError(f"{text!a} has control characters or bidirectional characters")
    return profile


NewProfile = Annotated[Profile, AfterValidator(_check_profile)]
