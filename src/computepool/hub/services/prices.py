"""The price table in force: made at the first start, changed by the operator, never overwritten."""

from __future__ import annotations

from computepool.core.pricing import Economy, PriceTable, first_table
from computepool.hub.store import prices
from computepool.hub.store.session import Store, Tx


def load_table(store: Store, economy: Economy) -> PriceTable:
    """The newest one. A pool whose economy was changed gets a new version, so that old bills still add up."""

    def unit(tx: Tx) -> PriceTable:
        table = prices.newest(tx.connection)
        if table is not None and table.economy is economy:
            return table
        made = first_table(economy, 1 if table is None else table.version + 1)
        prices.insert(tx, made, created_by="hub")
        tx.emit(actor="hub", action="prices.changed", reason=f"version {made.version}")
        return made

    return store.write_now(unit)
