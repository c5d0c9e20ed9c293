"""Fixtures every area may use. Nothing is skipped where CI=true: that rule is `tests/no_skips.py`."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from computepool.testing import compiled
from computepool.testing.databases import LentDatabases
from computepool.testing.postgres import PostgresServer

pytest_plugins = ["tests.no_skips", "tests.pyramid"]

# A run started in the background is deaf to Ctrl-C, and so would be every program it tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Two busy cores make single examples and their generation slow at random. In CI the same examples run every time,
# so that a red build is about the change under test.
_examples = DirectoryBasedExampleDatabase(".make/hypothesis")
_slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("local", _slow, database=_examples)
settings.register_profile("ci", _slow, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


compiled.share()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files in which `-m` leaves no test are not read: each worker reads all others, which takes longer than most tests."""
    expression = config.option.markexpr
    if not expression or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    marks_of_all = " ".join(re.findall(r"^pytestmark = .*", text, re.MULTILINE))
    in_web = collection_path.parent.name == "web"
    if "not soak" in expression and "mark.soak" in marks_of_all:
        return True
    if "not process" in expression:
        return in_web or "mark.process" in marks_of_all or None
    if "process" in expression:
        return None if in_web or "mark.process" in text else True
    return None


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The project runs on asyncio only; without this, every async test would also run on trio."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One throwaway server for the whole run (one per xdist worker), started by the first test that asks."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def durable_postgres() -> Iterator[PostgresServer]:
    """A server of its own whose commits survive a crash."""
    with PostgresServer(durable=True) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty database of its own, dropped after the test."""
    url = postgres.fresh_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def lent_databases(postgres: PostgresServer) -> LentDatabases:
    return LentDatabases(postgres)


@pytest.fixture
def migrated_url(lent_databases: LentDatabases) -> Iterator[str]:
    """The same with the newest schema in it, for a hub. A later test gets it again, emptied."""
    with lent_databases.one() as url:
        yield url
