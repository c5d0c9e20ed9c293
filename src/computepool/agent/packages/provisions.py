"""Provisions of a job besides the runtime: another Python, if it asks for one, and packages for its Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from computepool.agent.packages.environments import Environments, Note
from computepool.agent.packages.interpreters import Interpreter
from computepool.agent.packages.pythons import Pythons


@dataclass(frozen=True, slots=True)
class Provision:
    interpreter: Interpreter | None = None  #: None: the agent's own
    packages: Path | None = None


NOTHING = Provision()


class Provisions:
    def __init__(self, pythons: Pythons, environments: Environments) -> None:
        self._pythons = pythons
        self._environments = environments

    async def acquire(self, python: str, packages: tuple[str, ...], *, note: Note | None = None) -> Provision:
        """Kept until `release`. `python`: versions other than the agent's own, or "". `note` receives progress messages."""
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

    async def clear(self) -> None:
        """Remove all packages and Pythons that no job or warm worker uses."""
        await self._environments.folders.clear()
        await self._pythons.folders.clear()
