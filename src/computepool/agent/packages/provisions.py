"""Provisions of a job besides the runtime: another Python, if it asks for one, and packages for its Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from computepool.agent.execution.attempt_result import StagingFailed
from computepool.agent.execution.specs import SoftwareNeeds, check_requirements
from computepool.agent.packages.cached_folders import CachedFolders
from computepool.agent.packages.environments import Environments, Note
from computepool.agent.packages.interpreters import Interpreter
from computepool.agent.packages.offered import ReadyEnvironment
from computepool.agent.packages.offers import Offers
from computepool.agent.packages.pythons import Pythons


@dataclass(frozen=True, slots=True)
class Provision:
    interpreter: Interpreter | None = None  #: None: the agent's own
    packages: Path | None = None
    offer: ReadyEnvironment | None = None  #: an environment of the owner's, instead of both


NOTHING = Provision()


class Provisions:
    def __init__(self, pythons: Pythons, environments: Environments, offers: Offers) -> None:
        self._pythons = pythons
        self._environments = environments
        self._offers = offers

    async def acquire(self, software: SoftwareNeeds, *, note: Note | None = None) -> Provision:
        """Kept until `release`. `note` receives progress messages."""
        packages, python = check_requirements(software.packages), software.python
        if packages and (offer := self._offers.find(packages, software.pythons)) is not None:
            return Provision(offer=offer)
        if software.offered_only:
            raise StagingFailed("this node offers no environment with the dependencies")
        interpreter = await self._pythons.acquire(python, note=note)
        try:
            return Provision(interpreter, await self._environments.acquire(packages, interpreter, note=note))
        except BaseException:
            self.release(Provision(interpreter))
            raise

    def release(self, provision: Provision) -> None:
        if provision.packages is not None:
            self._environments.folders.release(provision.packages)
        if provision.interpreter is not None:
            self._pythons.folders.release(provision.interpreter.home.parent)

    @property
    def caches(self) -> dict[str, CachedFolders]:
        """By the kind of what they hold."""
        return {"packages": self._environments.folders, "pythons": self._pythons.folders}
