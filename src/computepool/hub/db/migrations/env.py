"""Alembic's entry point: runs the migrations on the connection that `schema.py` opens, locks and commits."""

from __future__ import annotations

from alembic import context

from computepool.hub.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,  # constraints are named by its convention
    # Alembic assumes that SQLite's DDL is not transactional. It is after an explicit BEGIN, which the connection sends.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
