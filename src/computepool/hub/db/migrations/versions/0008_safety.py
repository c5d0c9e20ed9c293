"""What keeps a pool safe: pay that is held until a result was checked, attempts that make no record, output that is counted."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, Text, text

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", Column("held_until_ms", BigInteger))
    held = text("held_until_ms > 0")
    op.create_index("ix_jobs_held", "jobs", ["held_until_ms"], sqlite_where=held, postgresql_where=held)
    _violations()
    op.add_column("attempts", Column("narrow", Boolean, nullable=False, server_default=text("false")))
    _add_printed()
    _add_inline()


def _add_printed() -> None:
    """How much of what an attempt printed is kept, so that it is compared with what its node says was printed."""
    op.add_column("attempts", Column("log_next", BigInteger, nullable=False, server_default="0"))
    op.add_column("attempts", Column("stdout_chars", BigInteger, nullable=False, server_default="0"))
    op.add_column("attempts", Column("printed_chars", BigInteger))


def _add_inline() -> None:
    """How much each account keeps in the database itself, and when what a job kept there was dropped."""
    op.add_column("specs", Column("account_id", Text))
    op.add_column("jobs", Column("dropped_at_ms", BigInteger))
    op.create_table(
        "inline_storage",
        Column("account_id", Text, primary_key=True),
        Column("bytes", BigInteger, nullable=False),
    )
    _count_inline()


def _count_inline() -> None:
    """What is there already is counted, but for programs: nobody knows any more who sent them first."""
    octets = "octet_length({})" if op.get_bind().dialect.name == "postgresql" else "length(CAST({} AS BLOB))"
    size = {name: f"coalesce({octets.format(name)}, 0)" for name in ("payload", "result", "text")}
    op.execute(
        f"""INSERT INTO inline_storage (account_id, bytes)
        SELECT account_id, sum(size) FROM (
            SELECT account_id, {size["payload"]} + {size["result"]} AS size FROM jobs
            UNION ALL
            SELECT jobs.account_id, {size["text"]} AS size FROM log_chunks JOIN jobs ON jobs.id = log_chunks.job_id
        ) AS kept GROUP BY account_id"""
    )


def _violations() -> None:
    """What they were about, and by whom. Everything is counted anew from the events after a migration."""
    op.execute("DELETE FROM reputations")
    for name in ("struck_before_ms", "struck_by", "struck_other_ms"):
        op.drop_column("reputations", name)
    op.add_column("reputations", Column("violations", Text, nullable=False, server_default=text("''")))
    for name in ("probation_at_ms", "cleared_at_ms", "probes_right", "probes_wrong"):
        kind = BigInteger if name.endswith("_ms") else Integer
        op.add_column("reputations", Column(name, kind, nullable=False, server_default="0"))
