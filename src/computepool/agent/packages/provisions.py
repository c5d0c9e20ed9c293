"""Provisions of a job besides the runtime: an image, another Python, and packages for its Python, as far as it asks for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from computepool.agent.execution.attempt_result import StagingFailed
from computepool.agent.execution.specs import SoftwareNeeds, check_requirements
from computepool.agent.images.image import Image
from computepool.agent.images.images import Images
from computepool.agent.packages.cached_folders import CachedFolders
from computepool.agent.packages.environments import Environments, Note
from computepool.agent.packages.interpreters import Interpreter
from computepool.agent.packages.offered import ReadyEnvironment
from computepool.agent.packages.offers import Offers
from computepool.agent.packages.pythons import Pythons
from computepool.protocol.images.names import parse_image


@dataclass(frozen=True, slots=True)
class Provision:
    interpreter: Interpreter | None = None  #: None: the agent's own
    packages: Path | None = None
    offer: ReadyEnvironment | None = None  #: an environment of the owner's, instead of both
    image: Image | None = None  #: None: the node's runtime


NOTHING = Provision()


class Provisions:
    def __init__(self, pythons: Pythons, environments: Environments, *, offers: Offers, images: Images) -> None:
        self._pythons = pythons
        self._environments = environments
        self._offers = offers
        self._images = images

    async def acquire(self, software: SoftwareNeeds, *, note: Note | None = None) -> Provision:
        """Kept until `release`. `note` receives progress messages.

        An environment of the owner's was made for this machine's files, so a job with an image does without.
        """
        packages, found = check_requirements(software.packages), Provision()
        if packages and not software.image and (offer := self._offers.find(packages, software.pythons)) is not None:
            return Provision(offer=offer)
        if software.offered_only:
            raise StagingFailed("this node offers no environment with the dependencies")
        try:
            if software.image is not None:
                name = parse_image(software.image)
                found = replace(
                    found, image=await self._images.acquire(name, note=note or _ignore, login=software.login)
                )
            found = replace(found, interpreter=await self._pythons.acquire(software.python, note=note))
            packed = await self._environments.acquire(packages, found.interpreter, note=note)
            return replace(found, packages=packed)
        except BaseException:
            self.release(found)
            raise

    def release(self, provision: Provision) -> None:
        if provision.image is not None:
            self._images.release(provision.image)
        if provision.packages is not None:
            self._environments.folders.release(provision.packages)
        if provision.interpreter is not None:
            self._pythons.folders.release(provision.interpreter.home.parent)

    @property
    def caches(self) -> dict[str, CachedFolders | Images]:
        """By the kind of what they hold."""
        return {"packages": self._environments.folders, "pythons": self._pythons.folders, "images": self._images}


def _ignore(_: str) -> None:
    """Nobody follows the progress."""
