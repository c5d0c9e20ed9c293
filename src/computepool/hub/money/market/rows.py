"""Rows of spot prices by tick, and of what each hub counts for them.

A tick is named by its start time in milliseconds. A tick in which nothing changed has no row: the last price still holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import BigInteger, Connection, bindparam, delete, exists, func, literal, or_, select

from computepool.core.jobs.lifecycle import JobState
from computepool.core.money import ledger
from computepool.core.money.ledger import Kind
from computepool.core.money.pricing import Zone
from computepool.hub.db import dialect
from computepool.hub.db.money_tables import market_counts, spots, transfers
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_OPEN, attempts, jobs
from computepool.hub.db.typed_rows import TypedRow

_ZONE = (spots.c.tier == bindparam("tier"), spots.c.region == bindparam("region"))


@dataclass(frozen=True, slots=True)
class Count:
    """In one zone, in thousandths of units."""

    capacity: int
    demand: int


class SpotRow(TypedRow, of=spots):
    tier: str
    region: str
    tick: int
    price: int
    capacity: int
    demand: int
    price_version: int


_AT = SpotRow.select().where(*_ZONE, spots.c.tick <= bindparam("until")).order_by(spots.c.tick.desc()).limit(1)
_FOR_EVER = 2**62


def put_counts(tx: Tx, *, hub_id: str, tick: int, counts: Mapping[Zone, Count]) -> None:
    """Replace what this hub counted before."""
    tx.connection.execute(delete(market_counts).where(market_counts.c.hub_id == hub_id))
    rows = [{"hub_id": hub_id, "tick": tick, **_columns(zone, count)} for zone, count in counts.items()]
    if rows:
        tx.connection.execute(market_counts.insert(), rows)


def _columns(zone: Zone, count: Count) -> dict[str, str | int]:
    return {"tier": zone.tier, "region": zone.region, "capacity": count.capacity, "demand": count.demand}


def sum_counts(connection: Connection, *, since: int, but: str = "") -> dict[Zone, Count]:
    """Over the hubs that counted since that tick, except the hub `but`."""
    statement = (
        select(
            market_counts.c.tier,
            market_counts.c.region,
            func.sum(market_counts.c.capacity, type_=BigInteger).label("capacity"),
            func.sum(market_counts.c.demand, type_=BigInteger).label("demand"),
        )
        .where(market_counts.c.tick >= since, market_counts.c.hub_id != but)
        .group_by(market_counts.c.tier, market_counts.c.region)
    )
    rows = connection.execute(statement)
    return {Zone(row.tier, row.region): Count(int(row.capacity), int(row.demand)) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJobs:
    """Jobs with the same requirements, account and ceiling."""

    spec_digest: str
    account_id: str
    ceiling: int
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotStep:
    """The lowest, highest and last price of a zone in one step, and the last counts."""

    tier: str
    region: str
    bucket: int
    low: int
    high: int
    price: int
    capacity: int
    demand: int


def waiting_jobs(connection: Connection, *, now_ms: int, limit: int) -> list[WaitingJobs]:
    """Jobs that could start now, of the `limit` oldest, grouped by what they need and pay."""
    oldest = (
        select(
            jobs.c.spec_digest,
            func.coalesce(jobs.c.on_behalf_of, jobs.c.account_id).label("account_id"),
            jobs.c.ceiling,
        )
        .where(
            IS_OPEN,
            jobs.c.state == JobState.QUEUED.value,
            jobs.c.deps_pending == 0,
            jobs.c.comparing.is_(None),
            jobs.c.ready_at_ms <= now_ms,
        )
        .order_by(jobs.c.queued_at_ms, jobs.c.id)
        .limit(limit)
        .subquery()
    )
    alike = oldest.c.spec_digest, oldest.c.account_id, oldest.c.ceiling
    rows = connection.execute(select(*alike, func.count().label("jobs")).group_by(*alike))
    return [WaitingJobs(**row._mapping) for row in rows]


def price_at(connection: Connection, zone: Zone, until: int = _FOR_EVER) -> SpotRow | None:
    """The zone's row in force at that time; by default the newest."""
    values = {"tier": zone.tier, "region": zone.region, "until": until}
    return SpotRow.first(connection.execute(_AT, values))


def zones(connection: Connection) -> list[Zone]:
    """Zones that ever had a price. Reads the whole index: for the start of a hub."""
    rows = connection.execute(select(spots.c.tier, spots.c.region).distinct())
    return [Zone(row.tier, row.region) for row in rows]


def insert_price(tx: Tx, zone: Zone, *, tick: int, price: int, count: Count, price_version: int) -> None:
    """The first hub to insert a tick decides; the others' rows are ignored."""
    row = {"tick": tick, "price": price, "price_version": price_version, **_columns(zone, count)}
    tx.connection.execute(dialect.insert_ignore(tx.connection, spots).values(row))


def history(connection: Connection, *, since: int, until: int, step: int, zone: Zone | None = None) -> list[SpotStep]:
    """In steps of `step` ms, of one zone or all. Steps without a row are left out."""
    bucket = ((spots.c.tick - since) // step).label("bucket")
    within = spots.c.tick >= since, spots.c.tick < until
    grouped = select(
        spots.c.tier,
        spots.c.region,
        bucket,
        func.max(spots.c.tick).label("last"),
        func.min(spots.c.price).label("low"),
        func.max(spots.c.price).label("high"),
    ).where(*within)
    if zone is not None:
        grouped = grouped.where(spots.c.tier == zone.tier, spots.c.region == zone.region)
    found = grouped.group_by(spots.c.tier, spots.c.region, bucket).subquery()
    same = (spots.c.tier == found.c.tier) & (spots.c.region == found.c.region) & (spots.c.tick == found.c.last)
    statement = select(
        spots.c.tier,
        spots.c.region,
        found.c.bucket,
        found.c.low,
        found.c.high,
        spots.c.price,
        spots.c.capacity,
        spots.c.demand,
    ).join(found, same)
    rows = connection.execute(statement.order_by(spots.c.tier, spots.c.region, found.c.bucket))
    return [SpotStep(**row._mapping) for row in rows]


def prune(tx: Tx, *, before: int) -> None:
    """Delete old rows, but never the last one of a zone: it is the price in force."""
    newer = spots.alias("newer")
    followed = exists().where(
        newer.c.tier == spots.c.tier, newer.c.region == spots.c.region, newer.c.tick > spots.c.tick
    )
    tx.connection.execute(delete(spots).where(spots.c.tick < before, followed))
    tx.connection.execute(delete(market_counts).where(market_counts.c.tick < before))


def sum_earned(connection: Connection, *, owner_id: str, node_id: str, first: int) -> tuple[int, int]:
    """What the node's accepted attempts were paid by the transfers from `first` on, and their number."""
    is_kept = or_(jobs.c.taken_back.is_(None), jobs.c.verdict != "refuted")
    kept = (jobs.c.id == attempts.c.job_id) & is_kept
    back = transfers.alias("back")
    key = literal("takeback:") + jobs.c.id
    returned = (back.c.tx_key == key) & (back.c.debit == transfers.c.credit)
    amount, count = connection.execute(
        select(func.sum(transfers.c.amount - func.coalesce(back.c.amount, 0), type_=BigInteger), func.count())
        .select_from(
            transfers.join(attempts, attempts.c.id == transfers.c.ref).join(jobs, kept).outerjoin(back, returned)
        )
        .where(
            transfers.c.credit == ledger.earn(owner_id),
            transfers.c.seq >= first,
            transfers.c.kind == Kind.PAY.value,
            attempts.c.node_id == node_id,
        )
    ).one()
    return int(amount or 0), int(count)
