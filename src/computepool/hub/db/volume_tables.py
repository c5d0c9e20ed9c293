"""The tables of volumes."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, Text

from computepool.hub.db.tables import metadata

volumes = Table(
    "volumes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("head", BigInteger, nullable=False),  # the version that jobs get; 0: empty
    Column("last", BigInteger, nullable=False),  # the newest number
    Column("created_at_ms", BigInteger, nullable=False),
)
Index("ux_volumes_name", volumes.c.account_id, volumes.c.name, unique=True)

volume_versions = Table(
    "volume_versions",
    metadata,
    Column("volume_id", ForeignKey("volumes.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("base", BigInteger, nullable=False),  # the version it started from
    Column("conflict_head", BigInteger),  # the head that was in its way; NULL: it became the head
    Column("manifest", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("packs", Text, nullable=False),  # digests, separated by spaces
    Column("size", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("attempt_id", Text),  # NULL: published by a person
)
Index("ux_volume_versions_attempt", volume_versions.c.volume_id, volume_versions.c.attempt_id, unique=True)

#: Which jobs mount a volume (attempt 0), and from which version each attempt started.
volume_uses = Table(
    "volume_uses",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("volume_id", ForeignKey("volumes.id"), primary_key=True),
    Column("attempt_no", Integer, primary_key=True),
    Column("base", BigInteger, nullable=False),
)
Index("ix_volume_uses_volume", volume_uses.c.volume_id)
