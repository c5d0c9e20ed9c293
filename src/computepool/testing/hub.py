"""A real hub inside the test's own process, spoken to through its real API, without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from computepool.core.money.money import CREDIT
from computepool.hub.app import create_app
from computepool.hub.clock import Clock, SystemClock
from computepool.hub.context import Hub
from computepool.hub.main import bootstrap
from computepool.hub.settings import Settings
from computepool.testing import compiled, databases
from computepool.testing.clock import FakeClock
from computepool.testing.node import NodeDouble
from computepool.testing.rules import check_rules

ORIGIN = "http://hub.test"
#: Enough for any test that is not about money, in microcredits.
RICH = 1_000_000_000 * CREDIT
#: Duties that judge by the clock how long something took.
SWEPT_BY_HAND = {"sweep_s": 10_000, "retier_round_s": 10_000}


class HubDouble:
    """The hub under test: its parts for looking inside, and clients for every kind of caller."""

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
        """A new account with these roles, and a client signed in as it."""
        made = await self.admin.post("/accounts", json={"name": name, "roles": list(roles)})
        made.raise_for_status()
        key = await self.admin.post("/keys", json={"name": "test", "account_id": made.json()["id"]})
        key.raise_for_status()
        return self.client(key.json()["key"])

    async def node(self, owner: httpx2.AsyncClient | None = None, **profile: Any) -> NodeDouble:
        """An enrolled node of the owner (default: the admin) that has polled once, so that the hub knows it."""
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
    """Settings are the production ones unless told otherwise, but everybody begins rich, no node is a newcomer, and results are
    believed as they come. Where the clock is the test's own, so is the moment of every sweep.

    Whatever was done to it, the rules that must always hold do at its end, those of money among them.
    """
    chosen = {
        "signup_grant": RICH,
        "newcomer_jobs": 0,
        "exposure": 0,
        "explore_share": 0,
        "verify": "none",
        "enrolments_per_day": 10_000,
        "dashboard_dir": "none",  # what happens to be built must not decide what a test sees
        **(SWEPT_BY_HAND if isinstance(clock, FakeClock) else {}),
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
