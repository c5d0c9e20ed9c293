"""The home host of a group: the one that was named, or the caller's own node on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_data_dir

from computepool.protocol.nodes.nodes import NodeView
from computepool.sdk.client.config import config_path
from computepool.sdk.errors import BadRequest
from computepool.sdk.resources.nodes import NODES_MAX

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

HOME_ENV = "COMPUTEPOOL_HOME_HOST"
_DATA_ENV = "COMPUTEPOOL_DATA"
_SYSTEM_FOLDER = "/var/lib/computepool"
_IDENTITY = "identity.json"
_NAMED_MAX = 5
_OTHERWISE = f"Pass home= with one of your hosts, set {HOME_ENV}, or pass return_home_when_complete=False."


def find_home(pool: Pool, named: Iterable[str], *, required: bool) -> NodeView | None:
    """`named`: what states say. Raises BadRequest when a home is wanted and it is not clear which."""
    words = {name for name in named if name}
    if len(words) > 1:
        raise BadRequest(
            f"The states name {len(words)} homes ({', '.join(sorted(words)[:_NAMED_MAX])}); a group has one."
        )
    word = next(iter(words), "") or os.environ.get(HOME_ENV, "")
    if word:
        return own_node(pool, word)
    return _node_here(pool) if required else None


def own_node(pool: Pool, word: str) -> NodeView:
    """By id, name or address; only one's own can be a home."""
    own = pool.nodes.list(mine=True, limit=NODES_MAX)
    found = [node for node in own if word in (node.id, node.name) or _same_url(word, node.profile.url)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadRequest(f"{len(found)} of your nodes are named {word!r}; use an ID: {found[0].id} …")
    raise BadRequest(f"{word!r} cannot be home: {_which(own)}.")


def _node_here(pool: Pool) -> NodeView:
    own = pool.nodes.list(mine=True, limit=NODES_MAX)
    ids = set(_ids_here())
    here = [node for node in own if node.id in ids] or [node for node in own if node.name == platform.node()]
    if len(here) > 1:  # several on one machine: the one that began the mesh is where a person sits
        here = [node for node in here if _same_url(pool.transport.url, node.profile.url)] or here
    if len(here) == 1:
        return here[0]
    found = f"{len(here)} of your nodes are" if here else "none of your nodes is"
    raise BadRequest(f"Where is home? On this machine {found} ({_which(own)}). {_OTHERWISE}")


def _ids_here() -> Iterator[str]:
    """Of the nodes whose data is on this machine, as far as this user may look."""
    root = getattr(os, "geteuid", lambda: 1)() == 0  # not every system has root
    default = _SYSTEM_FOLDER if root else user_data_dir("computepool")
    base = Path(os.environ.get(_DATA_ENV) or default).expanduser()
    usual = (base / "node" / _IDENTITY, *sorted(base.glob(f"hosts/*/node/{_IDENTITY}")))
    for path in dict.fromkeys((*usual, *_noted_identities())):
        try:
            yield str(json.loads(path.read_text())["node_id"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def remember(node_folder: Path) -> None:
    """That a node of this user has its data there, wherever that is. Not being able to write it stops nothing."""
    notes = _notes()
    name = hashlib.sha256(os.fsencode(node_folder)).hexdigest()[:16]
    with contextlib.suppress(OSError):
        notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        (notes / name).write_text(str(node_folder))


def _noted_identities() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for note in sorted(_notes().iterdir()):
            yield Path(note.read_text()) / _IDENTITY


def _notes() -> Path:
    return config_path().with_suffix(".nodes")


def _same_url(word: str, url: str) -> bool:
    return bool(url) and word.rstrip("/") == url.rstrip("/")


def _which(own: list[NodeView]) -> str:
    if not own:
        return "you have no nodes here"
    names = ", ".join(node.name for node in own[:_NAMED_MAX])
    return f"your nodes are {names}{' …' if len(own) > _NAMED_MAX else ''}"
