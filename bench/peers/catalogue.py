"""The systems that users might choose instead, their requirements, and how they are measured."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.children import NotMeasured, result_of
from bench.peers.celery_redis import REDIS_SERVER
from bench.peers.environment import INSTALL_S, python_with
from bench.peers.measure import Measured, Sizes
from bench.peers.redis_server import redis_server
from computepool.testing.postgres import PostgresServer, PostgresUnavailable

Service = Callable[[], AbstractContextManager[Mapping[str, str]]]


@contextmanager
def no_service() -> Iterator[Mapping[str, str]]:
    yield {}


@contextmanager
def installed_redis() -> Iterator[Mapping[str, str]]:
    yield {REDIS_SERVER: str(redis_server())}


@contextmanager
def durable_postgres() -> Iterator[Mapping[str, str]]:
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(PostgresServer(durable=True))
        except PostgresUnavailable as reason:
            raise NotMeasured(str(reason).splitlines()[0]) from None
        yield {"BENCH_POSTGRES_URL": server.fresh_database().replace("+psycopg", "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    key: str
    title: str
    requirements: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    service: Service = no_service

    def prepare(self, *, limit_s: float = INSTALL_S) -> Path:
        """Install what is missing, so that no download runs during a measurement."""
        deadline = time.monotonic() + limit_s
        python = python_with(self.requirements, limit_s=limit_s)
        if self.service is installed_redis:
            redis_server(limit_s=deadline - time.monotonic())
        return python

    def measure(self, python: Path, sizes: Sizes, *, limit_s: float) -> list[Measured]:
        with self.service() as addresses:
            result = result_of(
                [str(python), "-m", f"bench.peers.{self.module}", json.dumps(asdict(sizes)), *self.arguments],
                limit_s=limit_s,
                env={**(self.environment or {}), **addresses},
            )
        return [Measured(**system) for system in result["systems"]]


PEERS = (
    Peer(
        key="ray",
        title="Ray",
        requirements="ray",
        module="ray_local",
        environment={"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
    ),
    Peer(key="dask", title="Dask.distributed", requirements="dask", module="dask_cluster"),
    Peer(key="celery", title="Celery + Redis", requirements="celery", module="celery_redis", service=installed_redis),
    Peer(
        key="celery-fsync",
        title="Celery + Redis, fsync",
        requirements="celery",
        module="celery_redis",
        arguments=("fsync",),
        service=installed_redis,
    ),
    Peer(
        key="procrastinate",
        title="procrastinate, PostgreSQL",
        requirements="procrastinate",
        module="procrastinate_postgres",
        service=durable_postgres,
    ),
)
