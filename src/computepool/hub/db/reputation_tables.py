"""Reputations of nodes and of submitters, computed from the events."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, Table, Text, text

from computepool.hub.db.tables import metadata

#: Computed from the events of each node (core/trust/reputation.py), in whole numbers, so that recomputing gives the same.
#: There is no foreign key, because nothing here may ever keep a job from being settled.
reputations = Table(
    "reputations",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("success", BigInteger, nullable=False),  # in fractions of an outcome
    Column("failure", BigInteger, nullable=False),
    Column("changed_at_ms", BigInteger, nullable=False),
    Column("lost_at_ms", BigInteger, nullable=False),
    Column("successes", BigInteger, nullable=False),
    Column("failures", BigInteger, nullable=False),
    Column("successes_for_others", BigInteger, nullable=False),
    Column("tenure_days", Integer, nullable=False),
    Column("tenure_day", Integer, nullable=False),
    Column("verified", BigInteger, nullable=False),
    Column("verified_days", Integer, nullable=False),
    Column("verified_day", Integer, nullable=False),
    Column("streak", BigInteger, nullable=False),
    Column("violation_count", BigInteger, nullable=False),
    Column("penalised_at_ms", BigInteger, nullable=False),
    Column("violations", Text, nullable=False, server_default=text("''")),  # the latest (core/trust/violations.py)
    Column("probation_at_ms", BigInteger, nullable=False, server_default="0"),
    Column("probes_right", Integer, nullable=False, server_default="0"),
    Column("probes_wrong", Integer, nullable=False, server_default="0"),
    Column("cleared_at_ms", BigInteger, nullable=False, server_default="0"),
    Column("banned_at_ms", BigInteger, nullable=False),
)

#: The same for each submitter, about their jobs on other people's nodes (core/trust/submitter_reputation.py).
submitter_reputations = Table(
    "submitter_reputations",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("success", BigInteger, nullable=False),
    Column("failure", BigInteger, nullable=False),
    Column("changed_at_ms", BigInteger, nullable=False, index=True),
    Column("completed", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("harmful", BigInteger, nullable=False),
    Column("cancelled", BigInteger, nullable=False),
)
