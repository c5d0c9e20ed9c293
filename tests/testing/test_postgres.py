"""The throwaway PostgreSQL server."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from computepool.testing.postgres import PostgresServer, PostgresUnavailable
from computepool.testing.waiting import wait_until

pytestmark = pytest.mark.process


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def answer(url: str, query: str) -> object:
    with connect(url) as connection:
        row = connection.execute(query).fetchone()
    return row[0] if row else None


def test_databases_are_separate_and_gone_after_drop(postgres: PostgresServer) -> None:
    one, two = postgres.fresh_database(), postgres.fresh_database()
    with connect(one) as connection:
        connection.execute("CREATE TABLE job (id text)")
    assert answer(one, "SELECT count(*) FROM pg_tables WHERE tablename = 'job'") == 1
    assert answer(two, "SELECT count(*) FROM pg_tables WHERE tablename = 'job'") == 0
    postgres.drop_database(one)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        connect(one)


@pytest.mark.soak
def test_a_template_is_prepared_once_even_when_a_connection_stays_open(postgres: PostgresServer) -> None:
    opened: list[psycopg.Connection] = []

    def prepare(url: str) -> None:
        opened.append(connect(url))
        opened[-1].execute("CREATE TABLE job (id text)")
        opened[-1].execute("INSERT INTO job VALUES ('first')")

    one, two = postgres.fresh_database(prepare), postgres.fresh_database(prepare)
    assert len(opened) == 1
    opened[0].close()
    with connect(one) as connection:
        connection.execute("DELETE FROM job")
    assert answer(two, "SELECT id FROM job") == "first"


@pytest.mark.soak
def test_the_url_fixture_gives_an_empty_utc_utf8_database(postgres_url: str) -> None:
    assert postgres_url.startswith("postgresql+psycopg://")
    assert answer(postgres_url, "SHOW timezone") == "UTC"
    assert answer(postgres_url, "SHOW server_encoding") == "UTF8"


@pytest.mark.soak
def test_the_server_is_not_root_and_is_only_on_its_socket(postgres: PostgresServer) -> None:
    pid = int((postgres.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    assert Path(f"/proc/{pid}").stat().st_uid != 0
    assert answer(postgres.fresh_database(), "SHOW listen_addresses") == ""


def test_a_durable_commit_survives_a_crash_and_the_address_stays() -> None:
    with PostgresServer(durable=True) as server:
        url = server.fresh_database()
        assert answer(url, "SHOW fsync") == "on"
        with connect(url) as connection:
            connection.execute("CREATE TABLE job (id int)")
            connection.execute("INSERT INTO job SELECT generate_series(1, 1000)")
        lost = connect(url)
        server.restart(immediate=True)
        with pytest.raises(psycopg.OperationalError):
            lost.execute("SELECT 1")
        lost.close()
        assert answer(url, "SELECT count(*) FROM job") == 1000
        server.restart(immediate=False)
        assert answer(url, "SELECT count(*) FROM job") == 1000
        folder = server.folder
    assert not folder.exists()


@pytest.mark.soak
def test_a_stopped_server_refuses_and_comes_back() -> None:
    with PostgresServer() as server:
        url = server.fresh_database()
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            connect(url)
        server.start()
        assert answer(url, "SELECT 1") == 1


@pytest.mark.soak
def test_nothing_is_left_when_the_test_process_is_killed() -> None:
    script = (
        "from computepool.testing.postgres import PostgresServer\n"
        "server = PostgresServer(); server.start(); print(server.folder, flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    pid = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() and not folder.exists(), 60)


@pytest.mark.soak
def test_a_server_that_cannot_start_says_why() -> None:
    server = PostgresServer()
    server.start()
    server.stop()
    (server.folder / "data" / "postgresql.conf").write_text("max_connections = many\n")
    with pytest.raises(PostgresUnavailable, match='invalid value for parameter "max_connections"'):
        server.start()
