"""A real hub inside the test's own process, called through its real API without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from computepool.core.errors import InvariantViolation
from computepool.core.money.money import CREDIT
from computepool.hub.app import create_app
from computepool.hub.clock import Clock, SystemClock
from computepool.hub.context import Hub
from computepool.hub.main import bootstrap
from computepool.hub.observability.consistency import pool as consistency
from computepool.hub.observability.invariants import check_all
from computepool.hub.settings import Settings
from computepool.testing import compiled, databases
from computepool.testing.clock import FakeClock
from computepool.testing.node import NodeDouble

ORIGIN = "http://hub.test"
#: Microcredits, enough for any test that is not about money.
RICH = 1_000_000_000 * CREDIT
#: Intervals of loops that judge by the clock. With a fake clock, tests call these themselves.
_NEVER = {"sweep_s": 10_000, "retier_round_s": 10_000}


class HubDouble:
    """The hub under test, and clients for every kind of caller."""

    def __init__(self, app: FastAPI, admin_key: str) -> None:
        self.app = app
        self.admin_key = admin_key
        self._clients: list[httpx2.AsyncClient] = []
        self.admin = self.client(admin_key)

    @property
    def hub(self) -> Hub:
        hub: Hub = self.app.state.hub
        return hub

    def client(self, key: str | None = None) -> httpx2.AsyncClient:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self.app, raise_app_exceptions=False),
            base_url=f"{ORIGIN}/api/v1",
            headers=headers,
            timeout=30,
        )
        self._clients.append(client)
        return client

    async def account(self, name: str, *roles: str) -> httpx2.AsyncClient:
        """A client that is signed in as a new account with these roles."""
        made = await self.admin.post("/accounts", json={"name": name, "roles": list(roles)})
        made.raise_for_status()
        key = await self.admin.post("/keys", json={"name": "test", "account_id": made.json()["id"]})
        key.raise_for_status()
        return self.client(key.json()["key"])

    async def node(self, owner: httpx2.AsyncClient | None = None, **profile: Any) -> NodeDouble:
        """A node of the owner (by default the admin) that has enrolled and polled once."""
        code = (await (owner or self.admin).post("/nodes/codes")).json()["code"]
        node = NodeDouble(self.client(), self.hub.clock)
        await node.register(code, **profile)
        await node.poll(wait_ms=0)
        return node

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def running_hub(
    folder: Path, *, clock: Clock | None = None, database_url: str = "", **settings: Any
) -> AsyncIterator[HubDouble]:
    """A hub with production settings, except that accounts start rich, no node is a newcomer, and results are accepted
    without checks. With a fake clock, nothing is swept by itself.

    At the end all invariants are checked, including those of money.
    """
    chosen = {
        "signup_grant": RICH,
        "newcomer_jobs": 0,
        "exposure": 0,
        "explore_share": 0,
        "verify": "none",
        "enrolments_per_day": 10_000,
        "dashboard_dir": "none",  # a test must not depend on whether the dashboard was built
        **(_NEVER if isinstance(clock, FakeClock) else {}),
        **settings,
    }
    configured = Settings(data_dir=folder, DATABASE_URL=database_url, **chosen)
    compiled.share()
    databases.place(configured)
    started = bootstrap(configured)
    app = create_app(configured, clock or SystemClock())
    async with app.router.lifespan_context(app):
        double = HubDouble(app, started.admin_key)
        try:
            yield double
        finally:
            await double.close()
        check_rules(configured)


def check_rules(settings: Settings) -> None:
    """Check the database as `pool hub check` does. Raises InvariantViolation with a sentence for every broken rule."""
    compiled.share()
    with consistency.snapshot(settings.url) as connection:
        broken = check_all(connection)
    if broken:
        raise InvariantViolation("\n".join(broken))
