"""Price floors of owners: for one node, or by default for all their nodes without one."""

from __future__ import annotations

from collections.abc import Iterable

from computepool.core.errors import Conflict
from computepool.core.money.money import format_credits, round_down
from computepool.core.money.pricing import Economy, PriceTable, Zone, zone_of
from computepool.core.resources import NodeProfile, Requirements
from computepool.core.words import pluralize
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeRow, NodeStanding
from computepool.protocol.money.market import FloorView

_ALL = 1_000_000  #: no account has more nodes
NO_FLOOR = "No minimum price set: the node takes any price."


async def get_default(hub: Hub, principal: Principal) -> FloorView:
    account_id = principal.account_id

    def load(connection: Connection) -> tuple[int | None, int]:
        return _account_floor(connection, account_id), len(_nodes_without_floor(connection, account_id))

    return _default_view(*await hub.store.read(load))


async def set_default(hub: Hub, principal: Principal, floor: int | None) -> FloorView:
    """Set the default floor. It applies at once to every node of the account without a floor of its own."""
    account_id, table = principal.account_id, hub.money.market.table

    def unit(tx: Tx) -> list[str]:
        _check_economy(table, floor)
        before = _account_floor(tx.connection, account_id)
        following = _nodes_without_floor(tx.connection, account_id)
        if before != floor:
            account_rows.set_account(tx, account_id, floor=floor)
            old, new = _text(before), _text(floor)
            tx.emit(actor=account_id, action="account.floor", account_id=account_id, before=old, after=new)
            tx.touch(*(f"node:{node_id}" for node_id in following))
        return following

    following = await hub.store.write(unit)
    push(hub, following, floor)
    hub.jobs.queue.wake()
    return _default_view(floor, len(following))


async def set_node(hub: Hub, principal: Principal, node_id: str, *, floor: int | None) -> FloorView:
    table = hub.money.market.table

    def unit(tx: Tx) -> NodeRow:
        row = access.require_owned(principal, node_rows.get_node(tx.connection, node_id), what="node")
        _check_economy(table, floor)
        if row.floor != floor:
            node_rows.set_node(tx, node_id, floor=floor)
            steps = {"action": "node.floor", "before": _text(row.floor), "after": _text(floor)}
            node_rows.emit_change(tx, row, actor=principal.account_id, **steps)
        return row

    row = await hub.store.write(unit)
    holds = row.owner_floor if floor is None else floor
    push(hub, [node_id], holds)
    hub.jobs.queue.wake()
    session = hub.nodes.registry.get(node_id)
    if holds is None:
        sentence = NO_FLOOR
    elif session is None:
        sentence = "The node has a floor; it is offline."
    else:
        sentence = describe(hub, session.profile, holds)
    return FloorView(node_id=node_id, floor=floor, default=row.owner_floor, nodes=1, sentence=sentence)


def push(hub: Hub, node_ids: Iterable[str], floor: int | None) -> None:
    """Apply a floor to placements from now on, for nodes that poll this hub. Others load theirs when they arrive."""
    for node_id in node_ids:
        hub.nodes.registry.fleet.set_floor(node_id, floor)


def in_force(row: NodeStanding) -> int | None:
    """A node's own floor, or its owner's default."""
    return row.owner_floor if row.floor is None else row.floor


def is_met(hub: Hub, node: NodeProfile, floor: int | None) -> bool:
    """Whether today's price of the node's tier reaches the floor."""
    return floor is None or floor <= hub.money.market.table.net_of(hub.money.market.spot(_zone(node)))


def _zone(node: NodeProfile) -> Zone:
    return zone_of(Requirements(gpus=int(bool(node.capacity.gpus))), node.capacity, region=node.region)


def describe(hub: Hub, node: NodeProfile, floor: int | None) -> str:
    """A sentence about what the floor means at today's price."""
    if floor is None:
        return NO_FLOOR
    market, zone = hub.money.market, _zone(node)
    net, most = market.table.net_of(market.spot(zone)), market.table.net_of(market.table.bounds(zone)[1])
    asks = f"The node asks for {format_credits(floor)}"
    pays = f"{zone} pays {format_credits(round_down(net))} after the fee"
    if floor <= net:
        return f"{asks} a unit-hour and {pays}: it takes jobs."
    if floor > most:
        return f"{asks} a unit-hour, more than {zone} can ever pay ({format_credits(most)}): it takes only its owner's jobs."
    return f"{asks} a unit-hour and {pays}: it waits for a higher price."


def _account_floor(connection: Connection, account_id: str) -> int | None:
    row = account_rows.get_account(connection, account_id)
    return None if row is None else row.floor


def _nodes_without_floor(connection: Connection, account_id: str) -> list[str]:
    """The account's nodes without a floor of their own."""
    rows = node_rows.list_nodes(connection, after="", limit=_ALL, account_id=account_id)
    return [row.id for row in rows if row.floor is None and row.state != "revoked"]


def _check_economy(table: PriceTable, floor: int | None) -> None:
    if table.economy is Economy.MARKET or floor is None:
        return
    fixed = "an hour costs one credit everywhere" if table.economy is Economy.TIME_BANK else "nothing has a price"
    raise Conflict(f"The economy of this pool is {table.economy.value}: {fixed}, so there are no floors.")


def _default_view(floor: int | None, nodes: int) -> FloorView:
    count = pluralize(nodes, "node")
    if floor is None:
        take = "takes" if nodes == 1 else "take"
        sentence = f"No default minimum price set: {count} of yours without one {take} any price."
    else:
        sentence = (
            f"The default floor is {format_credits(floor)} a unit-hour after the fee; it holds for {count} of yours."
        )
    return FloorView(node_id=None, floor=floor, default=floor, nodes=nodes, sentence=sentence)


def _text(floor: int | None) -> str:
    return "none" if floor is None else str(floor)
