"""A database that an earlier version filled: it is migrated, and every rule of `pool hub check` holds on it.

`schema_0010.sql.gz` is the dump of a hub with schema 0010, after a wrong result of which two rechecks still wait, a group
that waits for its home, a request for approval, a measured node and a checkpoint. Its secrets were removed.
"""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, MetaData, create_engine, text

from computepool.core.trust import hardware
from computepool.hub.app import build_hub
from computepool.hub.artifacts.storage.disk import DiskBlobs
from computepool.hub.db import dialect, schema
from computepool.hub.main import check
from computepool.hub.settings import Settings
from computepool.testing.clock import FakeClock
from tests.hub.db import schema_0010

DUMP = Path(__file__).with_name("schema_0010.sql.gz")
CHECKPOINT = b"half"


def restore(file: Path) -> Engine:
    database = sqlite3.connect(file)
    database.executescript(gzip.decompress(DUMP.read_bytes()).decode())
    database.close()
    return create_engine(f"sqlite:///{file}")


def copy(source: Engine, target: Engine) -> None:
    tables, known = MetaData(), MetaData()
    known.reflect(source)
    tables.reflect(target)
    with source.connect() as before, target.begin() as after:
        for table in tables.sorted_tables:
            rows = before.execute(known.tables[table.name].select()).mappings().all()
            if rows and table.name != "alembic_version":
                after.execute(table.insert(), [dict(row) for row in rows])


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Of a hub whose database is the old one."""
    source = restore(tmp_path / "hub.sqlite")
    url = ""
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))
        schema_0010.make(url)
        target = create_engine(dialect.postgres_url(url))
        copy(source, target)
        target.dispose()
    source.dispose()
    return Settings(data_dir=tmp_path, DATABASE_URL=url)


def values(connection: Connection, query: str) -> list[object]:
    return list(connection.execute(text(query)).scalars())


async def test_a_database_from_before_the_new_names_goes_on(settings: Settings) -> None:
    assert schema.current(settings.url) == schema_0010.SCHEMA
    hub = build_hub(settings, FakeClock())
    await hub.store.stop()
    hub.store.close()
    assert schema.current(settings.url) == schema.head()
    restore_file(settings)
    assert check(settings) == []
    engine = create_engine(dialect.postgres_url(settings.url))
    with engine.connect() as connection:
        assert len(values(connection, "SELECT id FROM jobs WHERE hub_job LIKE 'recheck:%'")) == 3
        assert len(values(connection, "SELECT on_behalf_of FROM jobs WHERE on_behalf_of IS NOT NULL")) == 3
        assert sorted(values(connection, "SELECT violation_count FROM reputations"), key=str) == [0, 0, 0, 1]
        assert len(values(connection, "SELECT account_id FROM submitter_reputations")) == 2
        [request] = connection.execute(text("SELECT requested_by, requested_at_ms FROM approvals")).all()
        assert request.requested_by.startswith("acc_")
        assert request.requested_at_ms > 0
        [measured] = values(connection, "SELECT body FROM hardware")
        assert hardware.from_json(str(measured)).scores.cpu == 100
        actions = set(values(connection, "SELECT action FROM events"))
    engine.dispose()
    assert {"node.penalised", "approval.requested", "checkpoint.saved", "group.delivery_problem"} <= actions
    assert (
        not {"node.struck", "approval.asked", "checkpoint.kept", "group.home_trouble", "group.stay"} & actions
    )


def restore_file(settings: Settings) -> None:
    """The one file of the old hub, under the place that its row names."""
    engine = create_engine(dialect.postgres_url(settings.url))
    with engine.connect() as connection:
        [place] = values(connection, "SELECT place FROM artifacts")
    engine.dispose()
    path = DiskBlobs(settings.data_dir).path(str(place))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CHECKPOINT)
