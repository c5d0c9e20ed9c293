"""Artifacts: downloads are shared, resumed, verified and bounded; uploads go on until the hub has the whole file."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from computepool.agent.clock import AgentClock
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity
from computepool.agent.storage import artifacts
from computepool.agent.storage.artifacts import ASK_FIRST_ABOVE, ArtifactCache, Uploader
from computepool.core.errors import BadRequest, NotFound, Unavailable
from tests.agent.conftest import QUICK, node_with
from tests.agent.fake_hub import Ed25519PrivateKey, FakeHub


@pytest.fixture
async def client(hub: FakeHub) -> AsyncIterator[HubClient]:
    key = Ed25519PrivateKey.generate()
    hub.node_keys["n"] = key.public_key()
    identity = Identity(key=key, node_id="n", owner="o", hub_keys={}, hub_url=hub.url)
    limits = dataclasses.replace(QUICK, transfer_chunk=10_000)
    client = HubClient((hub.url,), clock=AgentClock(), limits=limits, identity=identity)
    yield client
    await client.close()


def cache_in(folder: Path, client: HubClient, size: int = 1_000_000) -> ArtifactCache:
    limits = dataclasses.replace(QUICK, input_cache_bytes=size)
    return ArtifactCache(folder, node_with(client, limits))


def content(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()


class TestDownload:
    async def test_concurrent_readers_share_one_download(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        cache = cache_in(tmp_path, client)
        digest = hub.add_artifact(b"data" * 1000)
        descriptors = await asyncio.gather(*(cache.open(digest) for _ in range(8)))
        assert {content(fd) for fd in descriptors} == {b"data" * 1000}
        assert hub.requests[f"/artifacts/{digest}"] == 1

    @pytest.mark.parametrize("have", [60_000, 100_000], ids=["a part", "all of it, not yet hashed"])
    async def test_a_download_is_resumed(self, hub: FakeHub, client: HubClient, tmp_path: Path, have: int) -> None:
        data = os.urandom(100_000)
        digest = hub.add_artifact(data)
        (tmp_path / f"{digest}.part").write_bytes(data[:have])
        assert content(await cache_in(tmp_path, client).open(digest)) == data

    @pytest.mark.parametrize(
        ("have", "error"), [(60_000, "does not match its digest"), (100_010, "as the test wished")]
    )
    async def test_a_damaged_or_too_long_part_is_removed(
        self, hub: FakeHub, client: HubClient, tmp_path: Path, have: int, error: str
    ) -> None:
        data = os.urandom(100_000)
        digest = hub.add_artifact(data)
        (tmp_path / f"{digest}.part").write_bytes(b"x" * have)
        cache = cache_in(tmp_path, client)
        with pytest.raises(BadRequest, match=error):
            await cache.open(digest)
        assert content(await cache.open(digest)) == data  # from the beginning

    async def test_a_file_that_does_not_match_its_digest_is_rejected(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        digest = hashlib.sha256(b"right").hexdigest()
        hub.artifacts[digest] = b"wrong"
        with pytest.raises(BadRequest, match="does not match its digest"):
            await cache_in(tmp_path, client).open(digest)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("digest", ["../secret", "/etc/passwd", "", "0" * 63, "A" * 64, "0" * 64 + "\n"])
    async def test_only_a_digest_is_accepted_as_a_name(
        self, hub: FakeHub, client: HubClient, tmp_path: Path, digest: str
    ) -> None:
        (tmp_path / "secret").write_text("of the owner")
        with pytest.raises(BadRequest, match="SHA-256"):
            await cache_in(tmp_path / "cache", client).open(digest)
        assert not hub.requests

    async def test_a_download_is_retried_and_given_up(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        cache, digest = cache_in(tmp_path, client), hub.add_artifact(b"data")
        with pytest.raises(NotFound):
            await cache.open("0" * 64)
        hub.fault = lambda path: 503
        with pytest.raises(Unavailable):
            await cache.open(digest)
        failures = iter([503, "drop", 503])
        hub.fault = lambda path: next(failures, None)
        assert content(await cache.open(digest)) == b"data"

    async def test_the_least_recently_used_file_is_evicted_first(
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

    async def test_abandoned_downloads_count_and_are_evicted(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        """Jobs with large inputs that are cancelled near the end of the download must not fill the disk."""
        cache = cache_in(tmp_path, client, size=25_000)
        for number in range(6):
            digest = f"{number:064x}"
            asked = asyncio.Event()
            hub.fault = lambda path, asked=asked: asked.set() or 503  # type: ignore[misc]
            opening = asyncio.create_task(cache.open(digest))
            await asked.wait()
            (tmp_path / f"{digest}.part").write_bytes(b"x" * 9_000)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        hub.fault = None
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 25_000 + 9_000
        os.close(await cache.open(hub.add_artifact(b"one more")))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 25_000

    async def test_leftovers_of_an_earlier_start_are_evicted(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        (tmp_path / f"{'0' * 64}.part").write_bytes(b"x" * 2_000)
        (tmp_path / f".gone-{'1' * 64}").write_bytes(b"x" * 10)
        digest = hub.add_artifact(b"data")
        os.close(await cache_in(tmp_path, client, size=1_000).open(digest))
        assert [path.name for path in tmp_path.iterdir()] == [digest]

    async def test_a_download_under_way_is_not_evicted(
        self, hub: FakeHub, client: HubClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(artifacts, "DOWNLOAD_TRIES", 10_000)  # It does not end before the fault does.
        cache = cache_in(tmp_path, client, size=1_000)
        slow, quick = hub.add_artifact(b"s" * 5_000), hub.add_artifact(b"q" * 5_000)
        part = tmp_path / f"{slow}.part"
        part.write_bytes(b"s" * 4_000)
        os.utime(part, (1, 1))
        asked = asyncio.Event()

        def away(path: str) -> int | None:
            asked.set()
            return 503 if path.endswith(slow) else None

        hub.fault = away
        opening = asyncio.create_task(cache.open(slow))
        await asked.wait()
        os.close(await cache.open(quick))
        assert part.exists()
        hub.fault = None
        assert content(await opening) == b"s" * 5_000

    async def test_concurrent_downloads_in_a_small_cache_succeed(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        """Each evicts what another has just fetched; none fails or leaks a descriptor."""
        cache = cache_in(tmp_path, client, size=1_500)
        contents = {hub.add_artifact(data): data for data in (bytes([number]) * 1_000 for number in range(12))}
        before = len(os.listdir("/proc/self/fd"))

        async def read(digest: str) -> bytes:
            return content(await cache.open(digest))

        assert await asyncio.gather(*map(read, [*contents] * 6)) == [*contents.values()] * 6
        assert len(os.listdir("/proc/self/fd")) <= before + 8, "except for connections that are kept"
        assert not cache._locks
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2_000


class TestUpload:
    async def send(self, client: HubClient, data: bytes, folder: Path) -> str:
        path = folder / "file"
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        fd = os.open(path, os.O_RDONLY)
        try:
            uploader = Uploader(node_with(client))
            await uploader.send(fd, digest, size=len(data), name="a b/ü.txt")
        finally:
            os.close(fd)
        return digest

    @pytest.mark.parametrize("size", [0, 10, ASK_FIRST_ABOVE + 1])
    async def test_files_of_any_size_are_uploaded(
        self, hub: FakeHub, client: HubClient, tmp_path: Path, size: int
    ) -> None:
        data = os.urandom(size)
        assert hub.artifacts[await self.send(client, data, tmp_path)] == data

    async def test_a_large_file_that_the_hub_has_is_not_sent(
        self, hub: FakeHub, client: HubClient, tmp_path: Path
    ) -> None:
        data = os.urandom(ASK_FIRST_ABOVE + 1)
        digest = hub.add_artifact(data)
        await self.send(client, data, tmp_path)
        assert hub.requests[f"/artifacts/{digest}"] == 0

    async def test_an_upload_is_resumed_and_retried(self, hub: FakeHub, client: HubClient, tmp_path: Path) -> None:
        data = os.urandom(50_000)
        hub.partial[hashlib.sha256(data).hexdigest()] = data[:20_000]
        failures = iter([503, "drop", 503, "drop"])
        hub.fault = lambda path: next(failures, None)
        assert hub.artifacts[await self.send(client, data, tmp_path)] == data
