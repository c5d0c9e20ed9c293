"""Money and market: the ledger, which only grows, prices, payouts, and what jobs, attempts and nodes know of them."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    text,
)

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_UNDECIDED = "state NOT IN ('paid', 'failed', 'rejected')"
_EMPTY = text("''")
_REFUSED = "transfers are never changed or removed"


def upgrade() -> None:
    _add_columns()
    _make_ledger()
    _make_market()
    _make_payouts()
    _refuse_changes()


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


def _add_columns() -> None:
    added: dict[str, list[Column[Any]]] = {
        "accounts": [
            Column("floor", BigInteger),
            Column("jobs_open_max", Integer),
            Column("spend_per_day_max", BigInteger),
        ],
        "nodes": [Column("floor", BigInteger)],
        "jobs": [
            _number("ceiling"),
            _number("hold"),
            _number("hold_earned"),
            _number("longest_ms"),
            Column("charge", BigInteger),
        ],
        "attempts": [
            _number("price"),
            _number("spot"),
            Column("units", Integer, nullable=False, server_default="0"),
            Column("zone_tier", Text, nullable=False, server_default=_EMPTY),
            Column("zone_region", Text, nullable=False, server_default=_EMPTY),
            Column("price_version", Integer, nullable=False, server_default="0"),
            Column("billed_ms", BigInteger),
            _number("lane_since_ms"),
            Column("lane_billed_ms", BigInteger),
        ],
    }
    for table, columns in added.items():
        for column in columns:
            op.add_column(table, column)
    billed = text("lane_billed_ms IS NOT NULL")
    op.create_index(
        "ix_attempts_lane",
        "attempts",
        ["lane", "lane_billed_ms"],
        sqlite_where=billed,
        postgresql_where=billed,
    )
    # Nothing had a price before; what is finished has cost nothing.
    op.execute("UPDATE jobs SET charge = 0 WHERE finished_at_ms IS NOT NULL")


def _make_ledger() -> None:
    op.create_table(
        "transfers",
        Column("seq", BigInteger, autoincrement=False, nullable=False),
        Column("tx_key", Text, nullable=False),
        Column("leg", Integer, nullable=False),
        Column("debit", Text, nullable=False),
        Column("credit", Text, nullable=False),
        Column("amount", BigInteger, nullable=False),
        Column("kind", Text, nullable=False),
        Column("job_id", Text),
        Column("ref", Text),
        Column("at_ms", BigInteger, nullable=False),
        Column("hash", Text, nullable=False),
        PrimaryKeyConstraint("seq", name="pk_transfers"),
        CheckConstraint("amount > 0", name="amount"),
        CheckConstraint("debit <> credit", name="sides"),
        UniqueConstraint("tx_key", "leg", name="uq_transfers_tx_key_leg"),
    )
    op.create_index("ix_transfers_debit", "transfers", ["debit", "seq"])
    op.create_index("ix_transfers_credit", "transfers", ["credit", "seq"])
    op.create_table(
        "balances",
        Column("account", Text, nullable=False),
        Column("balance", BigInteger, nullable=False),
        Column("can_overdraw", Boolean, nullable=False),
        PrimaryKeyConstraint("account", name="pk_balances"),
        CheckConstraint("balance >= 0 OR can_overdraw", name="covered"),
    )


def _make_market() -> None:
    op.create_table(
        "price_tables",
        Column("version", Integer, autoincrement=False, nullable=False),
        Column("body", Text, nullable=False),
        Column("created_by", Text, nullable=False),
        Column("created_at_ms", BigInteger, nullable=False),
        PrimaryKeyConstraint("version", name="pk_price_tables"),
    )
    op.create_table(
        "spots",
        Column("tier", Text, nullable=False),
        Column("region", Text, nullable=False),
        Column("tick", BigInteger, nullable=False),
        Column("price", BigInteger, nullable=False),
        Column("capacity", BigInteger, nullable=False),
        Column("demand", BigInteger, nullable=False),
        Column("price_version", Integer, nullable=False),
        PrimaryKeyConstraint("tier", "region", "tick", name="pk_spots"),
    )
    op.create_index("ix_spots_tick", "spots", ["tick"])
    op.create_table(
        "market_counts",
        Column("hub_id", Text, nullable=False),
        Column("tier", Text, nullable=False),
        Column("region", Text, nullable=False),
        Column("tick", BigInteger, nullable=False),
        Column("capacity", BigInteger, nullable=False),
        Column("demand", BigInteger, nullable=False),
        PrimaryKeyConstraint("hub_id", "tier", "region", name="pk_market_counts"),
    )


def _make_payouts() -> None:
    op.create_table(
        "payouts",
        Column("id", Text, nullable=False),
        Column("account_id", Text, nullable=False),
        Column("amount", BigInteger, nullable=False),
        Column("method", Text, nullable=False),
        Column("target", Text, nullable=False),
        Column("provider", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("reason", Text, nullable=False, server_default=_EMPTY),
        Column("provider_ref", Text),
        Column("approved_by", Text),
        Column("tries", Integer, nullable=False, server_default="0"),
        Column("next_try_ms", BigInteger, nullable=False, server_default="0"),
        Column("created_at_ms", BigInteger, nullable=False),
        Column("updated_at_ms", BigInteger, nullable=False),
        PrimaryKeyConstraint("id", name="pk_payouts"),
        CheckConstraint("amount > 0", name="amount"),
        ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_payouts_account_id"),
        UniqueConstraint("provider_ref", name="uq_payouts_provider_ref"),
    )
    op.create_index("ix_payouts_account", "payouts", ["account_id", "id"])
    condition = text(_UNDECIDED)
    op.create_index(
        "ix_payouts_undecided",
        "payouts",
        ["next_try_ms"],
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _refuse_changes() -> None:
    """Whoever writes to the database, with whatever program: what was transferred stays."""
    if op.get_bind().dialect.name == "sqlite":
        for event in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER transfers_{event.lower()} BEFORE {event} ON transfers "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION refuse_transfer_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER transfers_change BEFORE UPDATE OR DELETE ON transfers "
        "FOR EACH ROW EXECUTE FUNCTION refuse_transfer_change()"
    )
    op.execute(
        "CREATE TRIGGER transfers_truncate BEFORE TRUNCATE ON transfers "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_transfer_change()"
    )
