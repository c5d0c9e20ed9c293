"""The tables behind what people watch: what attempts used over time, and when nodes were online."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Table, Text

from computepool.hub.db.group_tables import metadata

__all__ = ["attempt_usage", "metadata", "node_spans"]

#: What an attempt used while it ran; only of those that ran long enough to be seen twice.
attempt_usage = Table(
    "attempt_usage",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id"), primary_key=True),
    Column("job_id", Text, nullable=False, index=True),
    Column("saved_at_ms", BigInteger, nullable=False, index=True),
    Column("body", Text, nullable=False),  # JSON, see hub/jobs/running/usage.py
)

#: Times without a break in which a node was online and that are over. The one that lasts is in `nodes`.
node_spans = Table(
    "node_spans",
    metadata,
    Column("node_id", ForeignKey("nodes.id"), primary_key=True),
    Column("since_ms", BigInteger, primary_key=True),
    Column("until_ms", BigInteger, nullable=False, index=True),
)
