"""The environments that the owner offers, as saved in the node's folder: a name and a folder each.

Also saved is what jobs may read besides the folder. What leads out of it later is not followed until the owner adds it again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from computepool.agent.hub_link.identity import write_private
from computepool.agent.packages import offered
from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.packages.offered import OfferedEnvironment
from computepool.core.errors import BadRequest, ComputePoolError, Conflict, NotFound
from computepool.protocol.nodes.software import ENVIRONMENTS_MAX, PACKAGES_MAX

FILE = "environments.json"
#: Folder of what is installed from lock files.
BUILT = "offered"


class SavedEnvironment(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    path: Path
    base: Path | None = None
    links: tuple[Path, ...] = ()
    lock: str = ""  #: exact requirements, which the agent installs into `path`


_LIST = TypeAdapter(list[SavedEnvironment])


@dataclass(frozen=True, slots=True)
class EnvironmentReading:
    """A saved environment as it is now, or why it cannot be offered."""

    saved: SavedEnvironment
    found: OfferedEnvironment | None
    problem: str = ""


def load(data_dir: Path) -> list[SavedEnvironment]:
    path = data_dir / FILE
    try:
        return _LIST.validate_json(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise BadRequest(f"{path} is damaged ({reason}). Remove it and add the environments again.") from error


def add(data_dir: Path, name: str, path: Path) -> OfferedEnvironment:
    """Raises BadRequest if jobs could not use it, and Conflict for a name that is taken."""
    saved = _with_room(data_dir, name)
    found = offered.read(name, path)
    for place in found.mounts:
        if data_dir.resolve().is_relative_to(place):
            raise BadRequest(f"{place} contains the node's own folder {data_dir}, whose keys jobs must not read.")
    total = len(found.packages) + sum(len(other.found.packages) for other in read_all(data_dir) if other.found)
    if total > PACKAGES_MAX:
        raise Conflict(f"A node offers at most {PACKAGES_MAX} packages, and these would be {total}.")
    new = SavedEnvironment(name=name, path=found.path, base=found.base, links=found.links)
    _save(data_dir, [*saved, new])
    return found


def add_lock(data_dir: Path, name: str, text: str) -> SavedEnvironment:
    """Offer the packages of a lock file, which the agent installs into a folder of its own."""
    offered.check_name(name)
    saved = _with_room(data_dir, name)
    digest = hashlib.sha256(f"{PYTHON}\n{text}".encode()).hexdigest()[:16]
    new = SavedEnvironment(name=name, path=(data_dir / BUILT).absolute() / f"{name}-{digest}", lock=text)
    _save(data_dir, [*saved, new])
    return new


def _with_room(data_dir: Path, name: str) -> list[SavedEnvironment]:
    saved = load(data_dir)
    if any(known.name == name for known in saved):
        raise Conflict(f"There is an environment {name} already; remove it first: pool node env remove {name}")
    if len(saved) >= ENVIRONMENTS_MAX:
        raise Conflict(f"A node offers at most {ENVIRONMENTS_MAX} environments; remove one first.")
    return saved


def remove(data_dir: Path, name: str) -> None:
    saved = load(data_dir)
    left = [known for known in saved if known.name != name]
    if len(left) == len(saved):
        raise NotFound(f"There is no environment {name!a}. List them: pool node env list")
    _save(data_dir, left)


def read_all(data_dir: Path) -> list[EnvironmentReading]:
    """Every saved environment as it is now. Takes a while for large ones."""
    return [_read(saved) for saved in load(data_dir)]


def _read(saved: SavedEnvironment) -> EnvironmentReading:
    if saved.lock and not saved.path.is_dir():
        return EnvironmentReading(saved, None, "its packages are not installed yet")
    try:
        found = offered.read(saved.name, saved.path)
    except ComputePoolError as error:
        return EnvironmentReading(saved, None, error.detail)
    if found.base != saved.base or not set(found.links) <= set(saved.links):
        return EnvironmentReading(
            saved, None, "it now leads to other places than when it was added; remove it and add it again"
        )
    return EnvironmentReading(saved, found)


def _save(data_dir: Path, saved: list[SavedEnvironment]) -> None:
    write_private(data_dir / FILE, _LIST.dump_json(saved, indent=2) + b"\n")
