"""The tables of money and market. Amounts are whole microcredits; core/money/ledger.py names the ledger accounts."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)

from computepool.hub.db.tables import FreeText, metadata, partial_index

#: Rows are never changed; the triggers below see to it. `hash` chains each row to the one before.
transfers = Table(
    "transfers",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # 1, 2, 3 …, in the order of commits
    Column("tx_key", Text, nullable=False),  # idempotency key: hold:<job>, settle:<job>, …
    Column("leg", Integer, nullable=False),
    Column("debit", Text, nullable=False),
    Column("credit", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("job_id", Text),
    Column("ref", FreeText),  # an attempt, a payout, an operator's note
    Column("at_ms", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint("debit <> credit", name="sides"),
    UniqueConstraint("tx_key", "leg"),
)
Index("ix_transfers_debit", transfers.c.debit, transfers.c.seq)
Index("ix_transfers_credit", transfers.c.credit, transfers.c.seq)

_REFUSED = "transfers are never changed or removed"
_FUNCTION = (
    f"refuse_transfer_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
)
_REFUSE = "EXECUTE FUNCTION refuse_transfer_change()"
#: They hold for every program that writes to the database.
_GUARDS = {
    "sqlite": [
        f"CREATE TRIGGER transfers_{change.lower()} BEFORE {change} ON transfers "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        for change in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        f"CREATE FUNCTION {_FUNCTION}",
        f"CREATE TRIGGER transfers_change BEFORE UPDATE OR DELETE ON transfers FOR EACH ROW {_REFUSE}",
        f"CREATE TRIGGER transfers_truncate BEFORE TRUNCATE ON transfers FOR EACH STATEMENT {_REFUSE}",
    ],
}
for database, statements in _GUARDS.items():
    for statement in statements:
        event.listen(transfers, "after_create", DDL(statement).execute_if(dialect=database))  # type: ignore[no-untyped-call]

balances = Table(
    "balances",
    metadata,
    Column("account", Text, primary_key=True),
    Column("balance", BigInteger, nullable=False),
    Column("can_overdraw", Boolean, nullable=False),
    CheckConstraint("balance >= 0 OR can_overdraw", name="covered"),
)

#: Every version of the price table; the newest is in force.
price_tables = Table(
    "price_tables",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

#: The spot price of each zone at each tick, with the numbers it was computed from.
spots = Table(
    "spots",
    metadata,
    Column("tier", Text, primary_key=True),
    Column("region", Text, primary_key=True),
    Column("tick", BigInteger, primary_key=True),  # its start, in ms
    Column("price", BigInteger, nullable=False),  # per unit-hour, from this tick on
    Column("capacity", BigInteger, nullable=False),  # thousandths of units
    Column("demand", BigInteger, nullable=False),
    Column("price_version", Integer, nullable=False),
)
Index("ix_spots_tick", spots.c.tick)

#: Capacity and demand in each hub's own registry and queue; prices are computed from their sum.
market_counts = Table(
    "market_counts",
    metadata,
    Column("hub_id", Text, primary_key=True),
    Column("tier", Text, primary_key=True),
    Column("region", Text, primary_key=True),
    Column("tick", BigInteger, nullable=False),
    Column("capacity", BigInteger, nullable=False),
    Column("demand", BigInteger, nullable=False),
)

_UNDECIDED = "state NOT IN ('paid', 'failed', 'rejected')"
payouts = Table(
    "payouts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("method", Text, nullable=False),  # upi or bank
    Column("target", FreeText, nullable=False),  # JSON: the UPI id, or the bank account
    Column("provider", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", FreeText, nullable=False, server_default=text("''")),
    Column("provider_ref", Text, unique=True),  # the provider's own id for it
    Column("approved_by", Text),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("next_try_ms", BigInteger, nullable=False, server_default="0"),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    CheckConstraint("amount > 0", name="amount"),
)
Index("ix_payouts_account", payouts.c.account_id, payouts.c.id)
Index("ix_payouts_undecided", payouts.c.next_try_ms, **partial_index(_UNDECIDED))
IS_UNDECIDED = text(f"payouts.{_UNDECIDED}")
