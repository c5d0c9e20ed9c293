"""Resolves references for all clients: an id prefix, a name, or `last`."""

from __future__ import annotations

from computepool.core.errors import Conflict, NotFound
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.lookup import reference_rows as rows
from computepool.hub.nodes import group_homes, hosts, rows as node_rows
from computepool.protocol.references import LAST, Reference, ReferenceKind

_LISTED_MAX = 5  #: candidates in an error message
_LISTS = {
    ReferenceKind.JOB: "pool jobs list",
    ReferenceKind.NODE: "pool nodes",
    ReferenceKind.GROUP: "pool group list",
    ReferenceKind.ACCOUNT: "pool accounts list",
}


async def find(hub: Hub, principal: Principal, *, kind: ReferenceKind, word: str) -> Reference:
    """Raises NotFound, or Conflict with a list of candidates."""
    word = word.strip()
    async with hub.jobs.searches:
        found = await hub.store.read(_look, hub, principal, kind=kind, word=word)
    if len(found) == 1:
        return Reference(kind=kind, id=found[0].id, name=found[0].name)
    if not found:
        last = f", or {LAST}" if kind is not ReferenceKind.ACCOUNT else ""
        raise NotFound(
            f"There is no {kind.value} {word!r}, or it is not yours. Give an ID, the beginning of one, a name{last}; "
            f"{_LISTS[kind]} lists them."
        )
    listed = "; ".join(_describe(row) for row in found[:_LISTED_MAX])
    more = " …" if len(found) > _LISTED_MAX else ""
    raise Conflict(f"{word!r} is ambiguous; give more of the ID: {listed}{more}")


def _look(
    connection: Connection, hub: Hub, principal: Principal, *, kind: ReferenceKind, word: str
) -> list[rows.FoundReference]:
    if word == LAST and kind is not ReferenceKind.ACCOUNT:
        return rows.newest(connection, kind.value, account_id=principal.account_id)
    limit, whose = _LISTED_MAX + 1, access.scope(principal)
    found = rows.by_id(connection, kind.value, word.lower(), whose=whose, limit=limit)
    if len(found) == 1 and found[0].id == word:
        return found
    known = {row.id for row in found}
    named = _find_by_name(hub, connection, principal, kind=kind, word=word)
    return [*found, *(row for row in named if row.id not in known)]


def _find_by_name(
    hub: Hub, connection: Connection, principal: Principal, *, kind: ReferenceKind, word: str
) -> list[rows.FoundReference]:
    own = principal.account_id
    if kind is ReferenceKind.ACCOUNT:
        found = rows.account_named(connection, word)
        return [row for row in found if principal.is_admin or row.id == own]
    if kind is ReferenceKind.NODE:
        called = hosts.find_nodes(connection, own, word)
        meant = hosts.meant_ids(own, word, rows=called, online=group_homes.OnlineNodes.among(called).answer(hub))
        nodes = node_rows.get_nodes(connection, meant[: _LISTED_MAX + 1])
        return [rows.FoundReference(id=node.id, name=node.name, state=node.state) for node in nodes]
    # Groups of the same name replace each other, so the newest is meant; with jobs that is not clear.
    limit = 1 if kind is ReferenceKind.GROUP else _LISTED_MAX + 1
    window = hub.settings.find_names_max
    return rows.by_name(connection, kind.value, word, account_id=own, window=window, limit=limit)


def _describe(row: rows.FoundReference) -> str:
    return f"{row.id} ({row.name}{', ' if row.state else ''}{row.state})"
