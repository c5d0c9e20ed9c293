"""Finds the home host of a group: the one that was named, or the user's node on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from computepool.core.errors import BadRequest
from computepool.protocol.nodes.nodes import NodeView
from computepool.sdk.client.config import config_path, data_folder
from computepool.sdk.resources.nodes import NODES_MAX

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

HOME_ENV = "COMPUTEPOOL_HOME_HOST"
_NAMED_MAX = 5
_HOW_TO_CHOOSE = f"Pass home= with one of your hosts, set {HOME_ENV}, or pass return_home_when_complete=False."


def find_home(pool: Pool, home: str | None, *, named: Iterable[str], required: bool) -> NodeView | None:
    """`named`: the homes that the states name. Raises BadRequest if a home is required but ambiguous or missing."""
    names = {home} if home else {name for name in named if name}
    if len(names) > 1:
        raise BadRequest(
            f"The states name {len(names)} homes ({', '.join(sorted(names)[:_NAMED_MAX])}); a group has one."
        )
    name = next(iter(names), "") or os.environ.get(HOME_ENV, "")
    if name:
        return _own_node(pool, name)
    return _local_node(pool) if required else None


def _own_node(pool: Pool, word: str) -> NodeView:
    """One of the user's own nodes by ID, name or URL; no other node can be a home."""
    own = pool.nodes.list(mine=True, limit=NODES_MAX)
    found = [node for node in own if word in (node.id, node.name) or _same_url(word, node.profile.url)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadRequest(f"{len(found)} of your nodes are named {word!r}; use an ID: {found[0].id} …")
    raise BadRequest(f"{word!r} cannot be home: {_describe(own)}.")


def _local_node(pool: Pool) -> NodeView:
    own = pool.nodes.list(mine=True, limit=NODES_MAX)
    ids = set(_local_node_ids())
    local = [node for node in own if node.id in ids] or [node for node in own if node.name == platform.node()]
    if len(local) > 1:  # several nodes on one machine: prefer the host that started the mesh
        local = [node for node in local if _same_url(pool.transport.url, node.profile.url)] or local
    if len(local) == 1:
        return local[0]
    found = f"{len(local)} of your nodes are" if local else "none of your nodes is"
    raise BadRequest(f"Where is home? On this machine {found} ({_describe(own)}). {_HOW_TO_CHOOSE}")


def _local_node_ids() -> Iterator[str]:
    """IDs of the nodes whose data is on this machine, if this user may read it."""
    base = data_folder()
    folders = [base / "node", *sorted(base.glob("hosts/*/node")), *_recorded_folders()]
    for folder in dict.fromkeys(folders):
        try:
            yield str(json.loads((folder / "identity.json").read_text())["node_id"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def record_node_folder(folder: Path) -> None:
    """Note where a node of this user stores its data, so that it is found as a home. Errors are ignored."""
    records = _records()
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    with contextlib.suppress(OSError):
        records.mkdir(mode=0o700, parents=True, exist_ok=True)
        (records / name).write_text(str(folder))


def _recorded_folders() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for record in sorted(_records().iterdir()):
            yield Path(record.read_text())


def _records() -> Path:
    return config_path().with_suffix(".nodes")


def _same_url(word: str, url: str) -> bool:
    return bool(url) and word.rstrip("/") == url.rstrip("/")


def _describe(own: list[NodeView]) -> str:
    if not own:
        return "you have no nodes here"
    names = ", ".join(node.name for node in own[:_NAMED_MAX])
    return f"your nodes are {names}{' …' if len(own) > _NAMED_MAX else ''}"
