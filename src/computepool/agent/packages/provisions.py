"""Provisions of a job besides the runtime: an image, another Python, and packages for its Python, as far as it asks for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from computepool.agent.images.image import Image
from computepool.agent.images.images import Images
from computepool.agent.packages.environments import Environments, Note
from computepool.agent.packages.interpreters import Interpreter
from computepool.agent.packages.pythons import Pythons
from computepool.protocol.images.names import parse_image


@dataclass(frozen=True, slots=True)
class Provision:
    interpreter: Interpreter | None = None  #: None: the agent's own
    packages: Path | None = None
    image: Image | None = None  #: None: the node's runtime


NOTHING = Provision()


class Provisions:
    def __init__(self, pythons: Pythons, environments: Environments, images: Images) -> None:
        self._pythons = pythons
        self._environments = environments
        self.images = images

    async def acquire(
        self, python: str, packages: tuple[str, ...], *, image: str | None = None, note: Note | None = None
    ) -> Provision:
        """Kept until `release`. `python`: versions other than the agent's own, or "". `note` receives progress messages."""
        found = Provision()
        try:
            if image is not None:
                found = replace(found, image=await self.images.acquire(parse_image(image), note=note or _ignore))
            found = replace(found, interpreter=await self._pythons.acquire(python, note=note))
            packed = await self._environments.acquire(packages, found.interpreter, note=note)
            return replace(found, packages=packed)
        except BaseException:
            self.release(found)
            raise

    def release(self, provision: Provision) -> None:
        if provision.image is not None:
            self.images.release(provision.image)
        if provision.packages is not None:
            self._environments.folders.release(provision.packages)
        if provision.interpreter is not None:
            self._pythons.folders.release(provision.interpreter.home.parent)

    async def clear(self) -> None:
        """Remove all packages, Pythons and images that no job or warm worker uses."""
        await self._environments.folders.clear()
        await self._pythons.folders.clear()
        await self.images.clear()


def _ignore(_: str) -> None:
    """Nobody follows the progress."""
