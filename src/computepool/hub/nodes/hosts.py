"""Hosts named by a submitter. Names become ids at submission, so that later changes of names have no effect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set as AbstractSet

from computepool.core.errors import BadRequest, ComputePoolError, Conflict
from computepool.core.ids import id_range, is_node_id
from computepool.core.mesh_version import version_of_job
from computepool.core.placement import hosts
from computepool.core.placement.hosts import Host, name_key
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.nodes import group_homes, rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.protocol.jobs.jobs import HOSTS_MAX, Needs

_OWN_MAX = 1_000  #: nodes of an account that are searched for other spellings of a name
_NAMED_MAX = 5
_HINTS_MAX = 200  #: own nodes, and online nodes, that are searched for similar names


async def resolve(hub: Hub, account_id: str, needs: Needs, *, at: str = "needs") -> Needs:
    """The needs with ids instead of host names, and with the hub's mesh version if they name none. Raises BadRequest or
    Conflict if a name is unknown or ambiguous."""
    version = version_of_job(needs.mesh_version, hub=hub.settings.mesh_version)
    found: dict[str, object] = {} if version == needs.mesh_version else {"mesh_version": version}
    if needs.host is not None:
        found["host"] = await _pin(hub, account_id, needs.host, field=f"{at}.host")
    if needs.exclude_hosts:
        field = f"{at}.exclude_hosts"
        found["exclude_hosts"] = await _exclude(hub, account_id, needs.exclude_hosts, field=field)
    return needs.model_copy(update=found) if found else needs


async def is_own(hub: Hub, account_id: str, node_id: str) -> bool:
    """Whether the account owns the node. A node never changes its owner."""
    if not node_id:
        return False
    if (session := hub.nodes.registry.get(node_id)) is not None:
        return session.profile.owner == account_id
    row = await hub.store.read(node_rows.get_node, node_id)
    return row is not None and bool(row.account_id == account_id)


async def _pin(hub: Hub, account_id: str, word: str, *, field: str) -> str:
    if is_node_id(word) and hub.nodes.registry.get(word) is not None:
        return word  # the usual case: nothing to look up
    rows = await hub.store.read(find_nodes, account_id, _plain(word))
    online = group_homes.OnlineNodes.among(rows).answer(hub)
    meant = meant_ids(account_id, word, rows=rows, online=online)
    if len(meant) == 1:
        if others := await hub.store.read(ids_beginning_with, word, but=meant[0]):
            raise Conflict(f"{word!r} is a node's name and the beginning of {others[0]}; give a full id.", field=field)
        return meant[0]
    if not meant:
        raise await _unknown(hub, account_id, word, field=field)
    known = {row.id: row for row in rows}
    listed = "; ".join(_describe(known[id_]) for id_ in meant[:_NAMED_MAX])
    raise Conflict(f"{len(meant)} nodes are named {word!r}; give an id: {listed}.", field=field)


def _plain(word: str) -> str:
    return word.rstrip("/") if "://" in word else word


async def _exclude(hub: Hub, account_id: str, words: Sequence[str], *, field: str) -> list[str]:
    """Exclude every node of a name, both by name, for nodes that take it later, and by id, for nodes that drop it later."""
    ids: dict[str, None] = {}
    for word in words:
        found = await _ids_named(hub, account_id, _plain(word))
        if not found:  # a typo would exclude nothing, and nobody would notice
            raise await _unknown(hub, account_id, word, field=field)
        ids |= dict.fromkeys(sorted(found))
    return list(dict.fromkeys([*words, *ids]))[:HOSTS_MAX]


async def _ids_named(hub: Hub, account_id: str, word: str) -> set[str]:
    fleet = hub.nodes.registry.fleet
    here = {fleet.node_at(row).profile.node_id for row in fleet.rows_called(word)}
    if here and is_node_id(word):
        return here
    rows = await hub.store.read(find_nodes, account_id, word, revoked=True)
    return here | {row.id for row in rows}


def find_nodes(connection: Connection, account_id: str, word: str, *, revoked: bool = False) -> Sequence[NodeRow]:
    """The nodes of this name, newest first: anybody's by id or name, the account's own also by other spellings and URL."""
    rows = node_rows.find_nodes(connection, word, revoked=revoked)
    if is_node_id(word) or any(row.account_id == account_id for row in rows):
        return rows
    key = name_key(word)
    listed = node_rows.list_nodes(connection, after="", limit=_OWN_MAX, account_id=account_id)
    own = [row for row in reversed(listed) if key in map(name_key, _spellings(row))]
    return [*(row for row in own if revoked or row.state != NodeState.REVOKED), *rows]


def ids_beginning_with(connection: Connection, word: str, *, but: str) -> Sequence[str]:
    """Other nodes whose ids begin with the word: a shortened id must not lead to a node with that name."""
    bounds = id_range("node", word)
    if bounds is None or is_node_id(word):
        return ()
    return [id_ for id_ in node_rows.ids_between(connection, *bounds, limit=2) if id_ != but]


def meant_ids(account_id: str, word: str, *, rows: Iterable[NodeRow], online: AbstractSet[str]) -> list[str]:
    """The ids of the nodes that the account may mean by a word; the word is unambiguous if there is one."""
    known = [Host(id=row.id, owner=row.account_id, live=row.id in online) for row in rows]
    return [host.id for host in hosts.candidates(word, known, account=account_id)]


def _spellings(row: NodeRow) -> Iterable[str]:
    return hosts.spellings(row.name, json.loads(row.profile).get("url") or "")


def _describe(row: NodeRow) -> str:
    region = json.loads(row.profile).get("region") or "no region"
    return f"{row.id} of {row.owner_name} ({region})"


async def _unknown(hub: Hub, account_id: str, word: str, *, field: str) -> ComputePoolError:
    own = await hub.store.read(node_rows.list_nodes, after="", limit=_HINTS_MAX, account_id=account_id)
    live = (session.profile.name for session in hub.nodes.registry.sessions[:_HINTS_MAX])
    close = hosts.closest(word, [*(row.name for row in own), *live])
    hint = f" Did you mean {' or '.join(close)}?" if close else " `pool nodes` lists all nodes."
    return BadRequest(f"There is no node {word!r}.{hint}", field=field)
