"""Earnings of a node: an estimate by today's prices and its zone's utilisation, and the past by the ledger."""

from __future__ import annotations

from dataclasses import replace

from computepool.core.fleet.fleet import EVERYONE
from computepool.core.fleet.node_status import NodeStatus, status_sentence
from computepool.core.isolation import Level
from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import MILLI, PPM, Economy, Zone, price_of
from computepool.core.resources import NodeProfile
from computepool.core.trust.hardware import Truth, truthful
from computepool.core.trust.tiers import region_of
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity import access
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.money import ledger_rows
from computepool.hub.money.market import rows as market_rows
from computepool.hub.money.market.rows import SpotRow
from computepool.hub.nodes import node_status, rows as node_rows
from computepool.hub.nodes.owner import price_floors
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.trust import hardware, hardware_rows
from computepool.protocol.money.market import Earned, NodeEarnings, OwnNodeView, Sale
from computepool.protocol.nodes.profile import Profile

DAYS = (1, 7, 30)
_DAY_H = 24
_DAY_MS = _DAY_H * 3_600_000


async def of_node(hub: Hub, principal: Principal | NodePrincipal, node_id: str) -> NodeEarnings:
    """For its owner and for the node itself. Past earnings come from the ledger; the rest is an estimate."""
    now_ms = hub.now_ms()

    def load(connection: Connection) -> tuple[NodeRow, NodeProfile, dict[Zone, SpotRow | None], list[Earned], bool]:
        known = node_rows.get_node(connection, node_id)
        if isinstance(principal, Principal):
            row = access.require_owned(principal, known, what="node")
        else:  # the node itself
            row = access.require_found(known, what="node")
        truth = hardware_rows.load(connection, [node_id]).get(node_id)
        node = _profile(hub, row, truth)
        counts = {zone: market_rows.price_at(connection, zone) for zone, _ in _units(node)}
        past = [_earnings(connection, row, days=days, now_ms=now_ms) for days in DAYS]
        return row, node, counts, past, node_status.other_hubs_serve(hub, connection)

    row, node, counts, earned, shared = await hub.store.read(load)
    floor = price_floors.in_force(row)
    sales = [
        _sale(hub, node, zone, units=units, floor=floor or 0, counted=counts[zone]) for zone, units in _units(node)
    ]
    return NodeEarnings(
        node_id=node_id,
        name=row.name,
        floor=floor,
        floor_is_default=row.floor is None and floor is not None,
        in_money=sales[0].in_money,
        sentence=_sentence(hub, row, node, shared=shared),
        sales=sales,
        past=earned,
    )


async def own_view(hub: Hub, node: NodePrincipal) -> OwnNodeView:
    """For the node itself: its owner's name and its own earnings, and nothing else about the owner."""
    row = await hub.store.read(node_rows.get_node, node_id=node.node_id)
    owner_name = access.require_found(row, what="node").owner_name
    return OwnNodeView(owner_name=owner_name, earnings=await of_node(hub, node, node.node_id))


def _profile(hub: Hub, row: NodeRow, truth: Truth | None) -> NodeProfile:
    """The node with the tiers in force, by which it is paid."""
    stated = Profile.model_validate_json(row.profile)
    profile = stated.node_profile(node_id=row.id, owner=row.account_id)
    known = hardware.current_truth(hub, row.id, stated, stored=truth)
    return replace(profile, capacity=truthful(profile.capacity, known))


def _units(node: NodeProfile) -> list[tuple[Zone, int]]:
    """The zones that its cards and its cores belong to, with their thousandths of units."""
    region, capacity = region_of(node.region), node.capacity
    cores = (Zone(capacity.cpu_tier, region), capacity.cpu_milli)
    return [(Zone(capacity.tier, region), len(capacity.gpus) * MILLI), cores] if capacity.gpus else [cores]


def _sale(hub: Hub, node: NodeProfile, zone: Zone, *, units: int, floor: int, counted: SpotRow | None) -> Sale:
    market = hub.money.market
    spot = market.spot(zone)
    least = market.floor_in(zone.tier, node_tier=node.capacity.tier, floor=floor)
    in_money = least <= market.table.net_of(spot)
    per_hour = market.table.net_of(price_of(spot, units))
    busy = 0
    if counted is not None and counted.capacity:
        busy = min(PPM, counted.demand * PPM // counted.capacity)
    return Sale(
        tier=zone.tier,
        region=zone.region,
        units=units,
        spot=spot,
        floor=least,
        in_money=in_money,
        per_hour=per_hour,
        utilisation_ppm=busy,
        per_day=min(AMOUNT_MAX, per_hour * _DAY_H * busy // PPM) if in_money else 0,
    )


def _earnings(connection: Connection, row: NodeRow, *, days: int, now_ms: int) -> Earned:
    first = ledger_rows.first_at(connection, now_ms - days * _DAY_MS)
    amount, jobs = market_rows.sum_earned(connection, owner_id=row.account_id, node_id=row.id, first=first)
    return Earned(days=days, amount=amount, jobs=jobs)


def _sentence(hub: Hub, row: NodeRow, node: NodeProfile, *, shared: bool) -> str:
    """Whether the node takes part in the market, or why not."""
    if hub.money.market.table.economy is Economy.NONE:
        return "Everything is free in this pool, so nodes earn nothing."
    status = node_status.of_node(hub, row, node, banned=False, shared=shared)
    if status is NodeStatus.OFFLINE:
        return "The node is offline: it earns nothing until it is back."
    if not status.takes_jobs and status is not NodeStatus.FLOOR_ABOVE_PRICE:
        return status_sentence(status)
    if node.level < Level.NAMESPACE and EVERYONE not in node.trusted:
        return "The node has no sandbox for other accounts' jobs, and its owner's jobs pay nothing."
    return price_floors.describe(hub, node, price_floors.in_force(row))
