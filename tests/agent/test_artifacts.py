"""Files by digest: fetched once, resumed, checked, bounded; and sent until the hub has all of it."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from computepool.agent.artifacts import ASK_FIRST_ABOVE, ArtifactCache, Uploader
from computepool.agent.clock import SystemClock
from computepool.agent.hub_client import HubClient
from computepool.agent.identity import Identity
from computepool.core.errors import BadRequest, NotFound, Unavailable
from tests.agent.conftest import QUICK
from tests.agent.fake_hub import Ed25519PrivateKey, FakeHub

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(hub: FakeHub) -> AsyncIterator[HubClient]:
    key = Ed25519PrivateKey.generate()
    hub.node_keys["n"] = key.public_key()
    identity = Identity(key=key, node_id="n", owner="o", hub_keys={}, hub_url=hub.url)
    limits = dataclasses.replace(QUICK, transfer_chunk=10_000)
    client = HubClient((hub.url,), clock=SystemClock(), limits=limits, identity=identity)
    yield client
    await client.close()


def cache_in(folder: Path, client: HubClient, size: int = 1_000_000) -> ArtifactCache:
    limits = dataclasses.replace(QUICK, input_cache_bytes=size)
    return ArtifactCache(folder, client, clock=SystemClock(), limits=limits)


def content(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()


class TestDownload:
    async def test_many_readers_one_request(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        cache = cache_in(tmp_path, client)
        digest = hub.add_artifact(b"data" * 1000)
        descriptors = await asyncio.gather(*(cache.open(digest) for _ in range(8)))
        assert {content(fd) for fd in descriptors} == {b"data" * 1000}
        assert hub.requests[f"/artifacts/{digest}"] == 1

    async def test_it_goes_on_where_it_stopped(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        data = os.urandom(100_000)
        digest = hub.add_artifact(data)
        (tmp_path / f"{digest}.part").write_bytes(data[:60_000])
        assert content(await cache_in(tmp_path, client).open(digest)) == data

    async def test_a_damaged_part_is_thrown_away(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        data = os.urandom(100_000)
        digest = hub.add_artifact(data)
        (tmp_path / f"{digest}.part").write_bytes(b"x" * 60_000)
        cache = cache_in(tmp_path, client)
        with pytest.raises(BadRequest, match="other bytes"):
            await cache.open(digest)
        assert content(await cache.open(digest)) == data, "the second try starts from nothing"

    async def test_a_lying_hub(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        digest = hashlib.sha256(b"right").hexdigest()
        hub.artifacts[digest] = b"wrong"
        with pytest.raises(BadRequest, match="other bytes"):
            await cache_in(tmp_path, client).open(digest)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("digest", ["../secret", "/etc/passwd", "", "0" * 63, "A" * 64, "0" * 64 + "\n"])
    async def test_only_a_digest_names_a_file(
        self, hub: FakeHub, client: HubClient, tmp_path: Path, digest: str
    ) -> None:
        (tmp_path / "secret").write_text("of the owner")
        with pytest.raises(BadRequest, match="SHA-256"):
            await cache_in(tmp_path / "cache", client).open(digest)
        assert not hub.requests

    async def test_missing(self, client: HubClient, tmp_path: Path) -> None:
        with pytest.raises(NotFound):
            await cache_in(tmp_path, client).open("0" * 64)

    async def test_a_hub_that_comes_back(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        digest = hub.add_artifact(b"data")
        failures = iter([503, "drop", 503])
        hub.fault = lambda path: next(failures, None)
        assert content(await cache_in(tmp_path, client).open(digest)) == b"data"

    async def test_a_hub_that_does_not(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        digest = hub.add_artifact(b"data")
        hub.fault = lambda path: 503
        with pytest.raises(Unavailable):
            await cache_in(tmp_path, client).open(digest)

    async def test_the_least_recently_used_goes_first(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        cache = cache_in(tmp_path, client, size=2_500)
        first, second, third = (hub.add_artifact(bytes([n]) * 1000) for n in range(3))
        held = await cache.open(first)
        os.close(await cache.open(second))
        os.utime(tmp_path / second, (1, 1))
        os.close(await cache.open(first))
        os.close(await cache.open(third))
        assert {path.name for path in tmp_path.iterdir()} == {first, third}
        assert content(held) == bytes([0]) * 1000


class TestUpload:
    async def send(self, client: HubClient, data: bytes, folder: Path) -> str:
        path = folder / "file"
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        fd = os.open(path, os.O_RDONLY)
        try:
            uploader = Uploader(client, clock=SystemClock(), limits=QUICK)
            await uploader.send(fd, digest, size=len(data), name="a b/ü.txt")
        finally:
            os.close(fd)
        return digest

    @pytest.mark.parametrize("size", [0, 10, ASK_FIRST_ABOVE + 1])
    async def test_whole(self, hub: FakeHub, client: HubClient, tmp_path: Path, size: int) -> None:
        data = os.urandom(size)
        assert hub.artifacts[await self.send(client, data, tmp_path)] == data

    async def test_what_the_hub_has_is_not_sent_again(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        data = os.urandom(ASK_FIRST_ABOVE + 1)
        digest = hub.add_artifact(data)
        await self.send(client, data, tmp_path)
        assert hub.requests[f"/artifacts/{digest}"] == 0

    async def test_it_goes_on_where_the_hub_stopped(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        data = os.urandom(50_000)
        hub.partial[hashlib.sha256(data).hexdigest()] = data[:20_000]
        assert hub.artifacts[await self.send(client, data, tmp_path)] == data

    async def test_through_failures(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        failures = iter([503, "drop", 503, "drop"])
        hub.fault = lambda path: next(failures, None)
        data = os.urandom(50_000)
        assert hub.artifacts[await self.send(client, data, tmp_path)] == data
