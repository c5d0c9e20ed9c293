"""Software that a node offers: environments with their packages, and what it has cached, as sent by its agent.

All of it is what a node claims about itself. The bounds keep what a hub holds for one node small.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from computepool.core.environment import Environment
from computepool.core.words import pluralize
from computepool.protocol.base import Request, Tag

ENVIRONMENTS_MAX = 8
#: Of all environments of a node together.
PACKAGES_MAX = 3_000
PACKAGE_NAME_MAX, PACKAGE_VERSION_MAX = 100, 64
CACHED_MAX = 256
#: A day: what takes longer was interrupted.
_TOOK_MAX_MS = 24 * 3600 * 1000

#: Normalised, as in a package index.
PackageName = Annotated[
    str, StringConstraints(max_length=PACKAGE_NAME_MAX, pattern=r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$")
]
PackageVersion = Annotated[
    str, StringConstraints(min_length=1, max_length=PACKAGE_VERSION_MAX, pattern=r"^[A-Za-z0-9.!+_-]+$")
]
CudaVersion = Annotated[str, StringConstraints(max_length=16, pattern=r"^[0-9.]*$")]


class EnvironmentModel(Request):
    """One environment that a node's owner offers to jobs."""

    name: Tag
    python: Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}$")]
    cuda: CudaVersion = ""  #: that its packages were built for; empty if they use none
    #: versions by package; in lists of nodes only the number
    packages: dict[PackageName, PackageVersion] = Field(default={}, max_length=PACKAGES_MAX)
    packages_count: int = Field(default=0, ge=0)

    @property
    def sentence(self) -> str:
        cuda = f", CUDA {self.cuda}" if self.cuda else ""
        packages = pluralize(len(self.packages) or self.packages_count, "package")
        return f"{self.name} (Python {self.python}{cuda}, {packages})"

    def environment(self) -> Environment:
        return Environment.of(self.python, self.packages)

    def brief(self) -> Self:
        """Without the packages, for lists."""
        return self.model_copy(update={"packages": {}, "packages_count": len(self.packages)})


class CachedItem(Request):
    """Something that the node has cached, which later jobs need not fetch."""

    key: Annotated[str, StringConstraints(max_length=80, pattern=r"^(packages|artifact|image):[0-9a-f]{16,64}$")]
    took_ms: int = Field(default=0, ge=0, le=_TOOK_MAX_MS)  #: to fetch, unpack or install it


class Cached(Request):
    """Everything of that kind; replaces what the node sent before."""

    items: list[CachedItem] = Field(default=[], max_length=CACHED_MAX)


class OffersSoftware(Request):
    """The part of a node's profile that is about software."""

    environments: list[EnvironmentModel] = Field(default=[], max_length=ENVIRONMENTS_MAX)
    installs: bool = True  #: it installs what jobs depend on and no environment has

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if sum(len(found.packages) for found in self.environments) > PACKAGES_MAX:
            raise ValueError(f"environments: a node offers at most {PACKAGES_MAX} packages")
        if len({found.name for found in self.environments}) < len(self.environments):
            raise ValueError("environments: two have the same name")
        return self
