"""Start-up work of every hub and agent of a test, done once in the server from which they are forked.

It is imported only there. It prepares the modules, the routes and the library of certificates, and hides all objects from
the garbage collector, which would otherwise touch, and so copy, all of the server's memory in each fork.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import httpcore2  # noqa: F401 - httpx2 imports it with its first client
import httpx2

from computepool.hub.app import create_app
from computepool.hub.settings import Settings


async def _ask() -> None:
    """Request a page that does not exist, which goes through all routes: FastAPI analyses each when it is first passed."""
    app = create_app(Settings(data_dir=Path("/nonexistent"), dashboard_dir="none"))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://hub.test") as client:
        await client.get("/api/v1/nothing")


asyncio.run(_ask())
gc.collect()
gc.freeze()
