"""Hosts that a submitter names. Names become ids at submission: what a node is called later changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from computepool.core.errors import BadRequest, ComputePoolError, Conflict
from computepool.core.ids import id_range, is_node_id
from computepool.core.placement import hosts
from computepool.core.placement.hosts import Host, name_key
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.nodes import group_homes
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.protocol.jobs.jobs import HOSTS_MAX, Needs
from computepool.protocol.nodes.nodes import Profile

#: Of one account, looked through for other spellings of a name.
_OWN_MAX = 1_000
_NAMED_MAX = 5
#: Of one's own and of everybody's, looked at for what may have been meant.
_HINTS_MAX = 200


async def resolve(hub: Hub, account_id: str, needs: Needs, *, at: str = "needs") -> Needs:
    """The needs with the id of the host that is meant. Raises BadRequest or Conflict where that is not clear."""
    if needs.host is None and not needs.exclude_hosts:
        return needs
    found: dict[str, object] = {}
    if needs.host is not None:
        found["host"] = await _pin(hub, account_id, needs.host, field=f"{at}.host")
    if needs.exclude_hosts:
        field = f"{at}.exclude_hosts"
        found["exclude_hosts"] = await _exclude(hub, account_id, needs.exclude_hosts, field=field)
    return needs.model_copy(update=found)


async def is_own(hub: Hub, account_id: str, node_id: str) -> bool:
    """Whether a job for this node alone is for one of the submitter's. A node never changes hands."""
    if not node_id:
        return False
    if (session := hub.nodes.registry.get(node_id)) is not None:
        return session.profile.owner == account_id
    row = await hub.store.read(lambda connection: node_rows.get_node(connection, node_id))
    return row is not None and bool(row.account_id == account_id)


async def _pin(hub: Hub, account_id: str, word: str, *, field: str) -> str:
    if is_node_id(word) and hub.nodes.registry.get(word) is not None:
        return word  # the usual case of programs: nothing to look up
    plain = word.rstrip("/") if "://" in word else word
    rows = await hub.store.read(lambda connection: called(connection, account_id, plain))
    online = group_homes.OnlineNodes.among(rows).answer(hub)
    meant = meant_by(account_id, word, rows=rows, online=online)
    if len(meant) == 1:
        if begun := await hub.store.read(lambda connection: begun_ids(connection, word, but=meant[0])):
            raise Conflict(
                f"{word!r} is a node's name and the beginning of {begun[0]}; give a whole id.", field=field
            )
        return meant[0]
    if not meant:
        raise await _unknown(hub, account_id, word, field=field)
    known = {row.id: row for row in rows}
    listed = "; ".join(_describe(known[id_]) for id_ in meant[:_NAMED_MAX])
    raise Conflict(f"{len(meant)} nodes are called {word!r}; give an id: {listed}.", field=field)


async def _exclude(hub: Hub, account_id: str, words: Sequence[str], *, field: str) -> list[str]:
    """Every node of a name stays out: by the name, whoever takes it later, and by id, whatever it calls itself later."""
    ids: dict[str, None] = {}
    for word in words:
        found = await _ids_called(hub, account_id, word.rstrip("/") if "://" in word else word)
        if not found:  # A mistake here would be a rule that does nothing, and nobody would notice.
            raise await _unknown(hub, account_id, word, field=field)
        ids |= dict.fromkeys(sorted(found))
    return list(dict.fromkeys([*words, *ids]))[:HOSTS_MAX]


async def _ids_called(hub: Hub, account_id: str, word: str) -> set[str]:
    fleet = hub.nodes.registry.fleet
    here = {fleet.node_at(row).profile.node_id for row in fleet.rows_called(word)}
    if here and is_node_id(word):
        return here
    rows = await hub.store.read(lambda connection: called(connection, account_id, word, revoked=True))
    return here | {row.id for row in rows}


def called(connection: Connection, account_id: str, word: str, *, revoked: bool = False) -> Sequence[NodeRow]:
    """The nodes that go by this word, newest first: everybody's by id or name, one's own by every spelling and URL."""
    rows = node_rows.called(connection, word, revoked=revoked)
    if is_node_id(word) or any(row.account_id == account_id for row in rows):
        return rows
    key = name_key(word)
    listed = node_rows.list_nodes(connection, after="", limit=_OWN_MAX, account_id=account_id)
    own = [row for row in reversed(listed) if key in map(name_key, _spellings(row))]
    return [*(row for row in own if revoked or row.state != NodeState.REVOKED), *rows]


def begun_ids(connection: Connection, word: str, *, but: str) -> Sequence[str]:
    """Other nodes whose ids begin with the word: whoever cut an id short must not reach a node that is called so."""
    bounds = id_range("node", word)
    if bounds is None or is_node_id(word):
        return ()
    return [id_ for id_ in node_rows.ids_between(connection, *bounds, limit=2) if id_ != but]


def meant_by(account_id: str, word: str, *, rows: Iterable[NodeRow], online: AbstractSet[str]) -> list[str]:
    """Of the nodes that go by a word, the ids of those that the account may mean; one is an answer."""
    known = [Host(id=row.id, owner=row.account_id, live=row.id in online) for row in rows]
    return [host.id for host in hosts.candidates(word, known, account=account_id)]


def check_name(profile: Profile) -> None:
    """Whenever a node says its name. Raises BadRequest."""
    if problem := hosts.name_problem(profile.name):
        raise BadRequest(f"A node cannot be called {profile.name!r}: {problem}.", field="profile.name")


def _spellings(row: NodeRow) -> Iterable[str]:
    return hosts.spellings(row.name, json.loads(row.profile).get("url") or "")


def _describe(row: NodeRow) -> str:
    region = json.loads(row.profile).get("region") or "no region"
    return f"{row.id} of {row.owner_name} ({region})"


async def _unknown(hub: Hub, account_id: str, word: str, *, field: str) -> ComputePoolError:
    own = await hub.store.read(
        lambda connection: node_rows.list_nodes(connection, after="", limit=_HINTS_MAX, account_id=account_id)
    )
    live = (session.profile.name for session in hub.nodes.registry.sessions[:_HINTS_MAX])
    close = hosts.closest(word, [*(row.name for row in own), *live])
    hint = f" Do you mean {' or '.join(close)}?" if close else " `pool nodes` lists them."
    return BadRequest(f"There is no node {word!r}.{hint}", field=field)
