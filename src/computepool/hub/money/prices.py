"""The price table in force: made at the first start, changed by the operator, never overwritten."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from computepool.core.errors import BadRequest, Conflict, InvariantViolation, NotFound
from computepool.core.money import bills, pricing
from computepool.core.money.pricing import PPM, Economy, PriceTable, first_table
from computepool.core.resources import CPU_TIER, UNKNOWN_GPU_TIER
from computepool.core.trust.tiers import region_of
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Store, Tx
from computepool.hub.identity.access import Principal
from computepool.hub.money import ledger_rows, price_rows
from computepool.hub.money.price_rows import PriceTableRow
from computepool.protocol.money.credits import PricesRequest, PriceTableView, PriceVersion, PriceVersions

logger = logging.getLogger(__name__)
#: Told to every hub when there is a new version.
PRICES_TOPIC = "prices"


def load_table(store: Store, economy: Economy, *, convert: bool = False) -> PriceTable:
    """The newest one. A pool whose economy was changed gets a new version, so that old bills still add up."""
    newest = store.read_now(price_rows.newest)
    if newest is not None and newest.economy is economy:
        return newest

    def unit(tx: Tx) -> PriceTable:
        tables = price_rows.list_tables(tx.connection)
        if tables and tables[0].economy is economy:
            return tables[0]
        if not convert:
            _check_credits_keep_their_meaning(tx, tables, economy)
        # The operator's own table of that economy, if there was one.
        found = next((table for table in tables if table.economy is economy), first_table(economy))
        made = replace(found, version=tables[0].version + 1 if tables else 1)
        price_rows.insert(tx, made, created_by="hub")
        tx.emit(actor="hub", action="prices.changed", reason=f"version {made.version}")
        tx.touch(PRICES_TOPIC)
        logger.info("prices.changed: version %d, economy %s", made.version, economy.value)
        return made

    return store.write_now(unit)


def _check_credits_keep_their_meaning(tx: Tx, tables: Sequence[PriceTable], economy: Economy) -> None:
    """Hours must not become rupees, nor rupees hours, because somebody set a variable."""
    before = next((table.economy for table in tables if table.economy is not Economy.NONE), economy)
    if economy in (Economy.NONE, before) or not ledger_rows.anybody_has_credits(tx.connection):
        return
    raise Conflict(
        f"People have credits of the economy {before.value}; {economy.value} would make them something else. Start it "
        f"with COMPUTEPOOL_ECONOMY={before.value}, or, to convert them one to one, with COMPUTEPOOL_ECONOMY_CONVERT=true."
    )


async def reload(hub: Hub) -> None:
    """After another hub changed the prices."""
    table = await hub.store.read(price_rows.newest)
    if table is not None:
        put_in_force(hub, table)


def put_in_force(hub: Hub, table: PriceTable) -> None:
    """Running jobs keep the price they were leased at; whatever is priced from now on is priced by this."""
    if table.version > hub.money.market.table.version:
        hub.money.market.table = table
        hub.nodes.registry.fleet.set_prices(hub.money.market)


async def show(hub: Hub, version: int | None = None) -> PriceTableView:
    def load(connection: Connection) -> PriceTableRow | None:
        rows = price_rows.list_versions(connection)
        return next((row for row in rows if version in (None, row.version)), None)

    row = await hub.store.read(load)
    if row is None:
        raise NotFound(f"There is no version {version} of the price table.")
    return _view(hub, row)


async def history(hub: Hub) -> PriceVersions:
    rows = await hub.store.read(price_rows.list_versions)
    return PriceVersions(
        versions=[
            PriceVersion.from_attributes(row, digest=bills.table_digest(pricing.from_json(row.body)))
            for row in rows
        ]
    )


async def change(hub: Hub, admin: Principal, request: PricesRequest) -> PriceTableView:
    """A new version, made from the newest one the caller has seen."""
    fee_max_ppm = _fee_max_ppm(hub)

    def unit(tx: Tx) -> tuple[PriceTable, PriceTableRow]:
        newest = price_rows.newest(tx.connection)
        if newest is None:
            raise InvariantViolation("there is no price table")
        table = _next(newest, request, fee_max_ppm=fee_max_ppm)
        price_rows.insert(tx, table, created_by=admin.account_id)
        tx.emit(actor=admin.account_id, action="prices.changed", reason=f"version {table.version}")
        tx.touch(PRICES_TOPIC)
        return table, price_rows.list_versions(tx.connection)[0]

    table, row = await hub.store.write(unit)
    put_in_force(hub, table)
    return _view(hub, row)


def _fee_max_ppm(hub: Hub) -> int:
    return hub.settings.fee_max_percent * (PPM // 100)


def _next(newest: PriceTable, request: PricesRequest, *, fee_max_ppm: int) -> PriceTable:
    if newest.economy is not Economy.MARKET:
        raise Conflict(f"The economy of this pool is {newest.economy.value}: its prices are fixed.")
    if request.based_on != newest.version:
        raise Conflict(
            f"The prices changed meanwhile: version {newest.version} is the newest, and yours is made from "
            f"version {request.based_on}. Look at it, and make your change again.",
            field="based_on",
        )
    if request.fee_ppm > fee_max_ppm:
        raise BadRequest(
            f"The fee is at most {bills.share(fee_max_ppm)}; to allow more, set COMPUTEPOOL_FEE_MAX_PERCENT at the hub.",
            field="fee_ppm",
        )
    for name in (CPU_TIER, UNKNOWN_GPU_TIER):
        if name not in request.tiers:
            raise BadRequest(
                f"The tier {name} must have a multiplier: others fall back on it.", field="tiers"
            )
    return PriceTable(
        version=newest.version + 1,
        economy=newest.economy,
        base=request.base,
        tiers=dict(request.tiers),
        regions=_regions(request.regions),
        fee_ppm=request.fee_ppm,
        spot_range=request.spot_range,
        payout_min=request.payout_min,
    )


def _regions(given: Mapping[str, int]) -> dict[str, int]:
    """By the names under which they are looked up; a country of the EU has the EU's rate."""
    found: dict[str, int] = {}
    for name, rate in given.items():
        region = region_of(name)
        if found.setdefault(region, rate) != rate:
            raise BadRequest(
                f"regions: {name} is the same as {region}, and has another rate.", field="regions"
            )
    return found


def _view(hub: Hub, row: PriceTableRow) -> PriceTableView:
    table = pricing.from_json(row.body)
    return PriceTableView.from_attributes(
        table,
        fee_max_ppm=_fee_max_ppm(hub),
        digest=bills.table_digest(table),
        created_by=row.created_by,
        created_at_ms=row.created_at_ms,
    )
