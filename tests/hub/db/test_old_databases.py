"""A database that an earlier version filled: it is migrated, and afterwards every rule of `pool hub check` holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, MetaData, create_engine, text

from computepool.hub.app import build_hub
from computepool.hub.artifacts.storage.disk import DiskBlobs
from computepool.hub.db import dialect
from computepool.hub.main import check
from computepool.hub.settings import Settings
from computepool.hub.trust import hardware_rows
from computepool.testing.clock import FakeClock
from tests.hub.db import schemas

CHECKPOINT = b"half"


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
    """The settings of a hub whose database is the old one."""
    file = tmp_path / "hub.sqlite"
    schemas.restore(file).close()
    url = ""
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))
        schemas.create_old(url)
        source, target = create_engine(f"sqlite:///{file}"), create_engine(dialect.postgres_url(url))
        copy(source, target)
        source.dispose()
        target.dispose()
    return Settings(data_dir=tmp_path, DATABASE_URL=url)


def values(connection: Connection, query: str) -> list[object]:
    return list(connection.execute(text(query)).scalars())


async def test_an_old_database_is_migrated_with_all_its_rows(settings: Settings) -> None:
    assert schemas.version_of(settings.url) == schemas.OLD
    forget_places(settings)
    hub = build_hub(settings, FakeClock())
    await hub.store.stop()
    hub.store.close()
    assert schemas.version_of(settings.url) == schemas.newest()
    restore_artifact(settings)
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
        assert hardware_rows.BODY.validate_json(str(measured)).scores.cpu == 100
        actions = set(values(connection, "SELECT action FROM events"))
    engine.dispose()
    assert {"node.penalised", "approval.requested", "checkpoint.saved", "group.delivery_problem"} <= actions
    assert not {"node.struck", "approval.asked", "checkpoint.kept", "group.home_trouble", "group.stay"} & actions


def forget_places(settings: Settings) -> None:
    """Artifacts were once stored under their digest alone."""
    engine = create_engine(dialect.postgres_url(settings.url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE artifacts SET place = ''"))
    engine.dispose()


def restore_artifact(settings: Settings) -> None:
    """Write the old hub's only artifact where its row says."""
    engine = create_engine(dialect.postgres_url(settings.url))
    with engine.connect() as connection:
        [(digest, place)] = connection.execute(text("SELECT digest, place FROM artifacts")).all()
    engine.dispose()
    assert place == f"{digest[:2]}/{digest}"
    path = DiskBlobs(settings.data_dir).path(str(place))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CHECKPOINT)
