"""The price table in force: created at the first start, changed by the operator, never overwritten."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from computepool.core.errors import BadRequest, Conflict, InvariantViolation, NotFound
from computepool.core.money import bills
from computepool.core.money.pricing import PPM, Economy, PriceTable, first_table
from computepool.core.resources import CPU_TIER, UNKNOWN_GPU_TIER
from computepool.core.trust.tiers import region_of
from computepool.hub.context import Hub
from computepool.hub.db.session import Store, Tx
from computepool.hub.identity.access import Principal
from computepool.hub.money import ledger_rows, price_rows
from computepool.hub.money.price_rows import PriceTableRow
from computepool.protocol.money.credits import PricesRequest, PriceTableView, PriceVersion, PriceVersions

logger = logging.getLogger(__name__)
#: Notifies every hub of a new version.
PRICES_TOPIC = "prices"


def load_table(store: Store, economy: Economy, *, convert: bool = False) -> PriceTable:
    """The newest table. A pool whose economy was changed gets a new version, so that old bills still add up."""
    newest = store.read_now(price_rows.newest)
    if newest is not None and newest.economy is economy:
        return newest

    def unit(tx: Tx) -> PriceTable:
        tables = [row.table() for row in price_rows.list_versions(tx.connection)]
        if tables and tables[0].economy is economy:
            return tables[0]
        if not convert:
            _check_credits_keep_their_meaning(tx, tables, economy)
        # The operator's own table of that economy, if there was one.
        found = next((table for table in tables if table.economy is economy), first_table(economy))
        made = replace(found, version=tables[0].version + 1 if tables else 1)
        _publish(tx, made, actor="hub")
        logger.info("prices.changed: version %d, economy %s", made.version, economy.value)
        return made

    return store.write_now(unit)


def _publish(tx: Tx, table: PriceTable, *, actor: str) -> PriceTableRow:
    tx.emit(actor=actor, action="prices.changed", reason=f"version {table.version}")
    tx.touch(PRICES_TOPIC)
    return price_rows.insert(tx, table, created_by=actor)


def _check_credits_keep_their_meaning(tx: Tx, tables: Sequence[PriceTable], economy: Economy) -> None:
    """Hours must not become rupees, nor rupees hours, because someone changed a setting."""
    before = next((table.economy for table in tables if table.economy is not Economy.NONE), economy)
    if economy in (Economy.NONE, before) or not ledger_rows.any_account_has_credits(tx.connection):
        return
    raise Conflict(
        f"Accounts hold credits of the economy {before.value}; {economy.value} would change what they mean. Start the hub "
        f"with COMPUTEPOOL_ECONOMY={before.value}, or set COMPUTEPOOL_ECONOMY_CONVERT=true to convert them one to one."
    )


async def reload(hub: Hub) -> None:
    """For when another hub has changed the prices."""
    table = await hub.store.read(price_rows.newest)
    if table is not None:
        put_in_force(hub, table)


def put_in_force(hub: Hub, table: PriceTable) -> None:
    """Price by this table from now on. Running jobs keep the price they were leased at."""
    if table.version > hub.money.market.table.version:
        hub.money.market.table = table
        hub.nodes.registry.fleet.set_prices(hub.money.market)


async def show(hub: Hub, version: int | None = None) -> PriceTableView:
    rows = await hub.store.read(price_rows.list_versions)
    row = next((row for row in rows if version in (None, row.version)), None)
    if row is None:
        raise NotFound(f"There is no version {version} of the price table.")
    return _view(hub, row)


async def history(hub: Hub) -> PriceVersions:
    rows = await hub.store.read(price_rows.list_versions)
    return PriceVersions(versions=[PriceVersion.from_attributes(row, digest=row.table().digest) for row in rows])


async def change(hub: Hub, admin: Principal, request: PricesRequest) -> PriceTableView:
    """Publish a new version, which must be based on the newest."""
    fee_max_ppm = _fee_max_ppm(hub)

    def unit(tx: Tx) -> PriceTableRow:
        newest = price_rows.newest(tx.connection)
        if newest is None:
            raise InvariantViolation("there is no price table")
        return _publish(tx, _next(newest, request, fee_max_ppm=fee_max_ppm), actor=admin.account_id)

    row = await hub.store.write(unit)
    put_in_force(hub, row.table())
    return _view(hub, row)


def _fee_max_ppm(hub: Hub) -> int:
    return hub.settings.fee_max_percent * (PPM // 100)


def _next(newest: PriceTable, request: PricesRequest, *, fee_max_ppm: int) -> PriceTable:
    if newest.economy is not Economy.MARKET:
        raise Conflict(f"The economy of this pool is {newest.economy.value}: its prices are fixed.")
    if request.based_on != newest.version:
        raise Conflict(
            f"The prices have changed: version {newest.version} is the newest, and yours is based on "
            f"version {request.based_on}. Reload the prices and make your change again.",
            field="based_on",
        )
    if request.fee_ppm > fee_max_ppm:
        raise BadRequest(
            f"The fee is at most {bills.percentage(fee_max_ppm)}; to allow more, set COMPUTEPOOL_FEE_MAX_PERCENT on the hub.",
            field="fee_ppm",
        )
    for name in (CPU_TIER, UNKNOWN_GPU_TIER):
        if name not in request.tiers:
            raise BadRequest(f"The tier {name} needs a multiplier: other tiers fall back on it.", field="tiers")
    given = request.model_dump(exclude={"based_on", "regions"})
    return replace(newest, version=newest.version + 1, regions=_regions(request.regions), **given)


def _regions(given: Mapping[str, int]) -> dict[str, int]:
    """By the names under which they are looked up; every country of the EU has the EU's rate."""
    found: dict[str, int] = {}
    for name, rate in given.items():
        region = region_of(name)
        if found.setdefault(region, rate) != rate:
            raise BadRequest(f"{name} is the region {region}, which is listed with another rate.", field="regions")
    return found


def _view(hub: Hub, row: PriceTableRow) -> PriceTableView:
    table = row.table()
    return PriceTableView.from_attributes(
        table,
        fee_max_ppm=_fee_max_ppm(hub),
        digest=table.digest,
        created_by=row.created_by,
        created_at_ms=row.created_at_ms,
    )
