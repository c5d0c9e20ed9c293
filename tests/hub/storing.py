"""A hub with a small quota and a short retention, and files to fill it with; on both databases."""

from __future__ import annotations

import hashlib

import httpx2
import pytest

from computepool.hub.clock import SystemClock
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from tests.hub.fixtures import BOTH, hub_fixture

DAY_MS = 24 * 3600 * 1000
KEEP_S = 10 * 24 * 3600


@pytest.fixture
def clock() -> FakeClock:
    """A clock that starts at the real time, because files have it."""
    return FakeClock(SystemClock().now_ms())


hub = hub_fixture(on=BOTH, artifact_bytes_max=10_000, artifact_keep_s=KEEP_S, unreported_keep_s=3 * 24 * 3600)


def some(size: int, seed: int = 0) -> bytes:
    return hashlib.sha256(b"%d" % seed).digest() * (size // 32) + b"x" * (size % 32)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stored(hub: HubDouble) -> set[str]:
    return {one.place[3:67] for one in hub.hub.artifacts.blobs.walk(after="", limit=10_000)}


async def put(client: httpx2.AsyncClient, data: bytes, *, part: bytes | None = None) -> httpx2.Response:
    return await client.put(
        f"/artifacts/{digest_of(data)}", params={"size": len(data)}, content=data if part is None else part
    )


async def set_quota(hub: HubDouble, client: httpx2.AsyncClient, **quotas: int) -> None:
    account = (await client.get("/me")).json()["id"]
    answer = await hub.admin.put(f"/accounts/{account}/quotas", json=quotas)
    assert answer.status_code == 200, answer.text
    assert {name: answer.json()[name] for name in quotas} == quotas
