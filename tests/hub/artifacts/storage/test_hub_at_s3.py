"""Artifacts at S3: uploaded, read, kept and collected as on disk, by two hubs that share no folder."""

from __future__ import annotations

import asyncio
import hashlib
import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.errors import BadRequest, Conflict
from computepool.hub import main as hub_main
from computepool.hub.app import build_hub
from computepool.hub.artifacts import garbage_collection
from computepool.hub.artifacts.storage.choice import make_blobs
from computepool.hub.clock import SystemClock
from computepool.hub.settings import Settings
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.artifacts.storage.weed import S3Server
from tests.hub.cast import upload
from tests.hub.submitting import submit

MB = 1024 * 1024
DATA = random.Random(7).randbytes(11 * MB + 5)
DIGEST = hashlib.sha256(DATA).hexdigest()
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def store(s3: S3Server) -> dict[str, Any]:
    return {"blobs": s3.fresh(), "s3_part_bytes": 5 * MB, **s3.settings}


async def put(client: httpx2.AsyncClient, start: int, end: int) -> httpx2.Response:
    query = {"size": len(DATA), "offset": start}
    return await client.put(f"/artifacts/{DIGEST}", params=query, content=DATA[start:end])


@pytest.mark.soak
async def test_two_hubs_with_a_bucket_and_no_folder_in_common(
    tmp_path: Path, migrated_url: str, store: dict[str, Any]
) -> None:
    clock = FakeClock(SystemClock().now_ms())
    async with AsyncExitStack() as stack:
        hubs: list[HubDouble] = []
        for name in ("one", "two"):
            options = {"database_url": migrated_url, "clock": clock, **store}
            hubs.append(await stack.enter_async_context(running_hub(tmp_path / name, **options)))
        there = await hubs[1].account("sam", "submitter")  # its administrator's key is the newer one
        sam = hubs[0].client(there.headers["Authorization"].removeprefix("Bearer "))
        # One after the other, as behind a balancer: each goes on with what the other has.
        assert (await put(sam, 0, MB)).json()["offset"] == MB
        assert (await put(there, MB, 7 * MB)).json()["offset"] == 7 * MB
        assert (await there.get(f"/artifacts/{DIGEST}")).status_code == 404, "readable before it is whole"
        assert (await put(sam, 7 * MB, 7 * MB)).json()["offset"] == 7 * MB
        assert (await put(there, 0, MB)).status_code == 409
        assert (await put(sam, 7 * MB, len(DATA))).json()["complete"]
        assert (await there.get(f"/artifacts/{DIGEST}")).content == DATA
        part = await there.get(f"/artifacts/{DIGEST}", headers={"Range": f"bytes={6 * MB}-{7 * MB}"})
        assert (part.status_code, part.content) == (206, DATA[6 * MB : 7 * MB + 1])
        assert list((tmp_path / "one").rglob("artifacts/*/*")) == []
        settings = hubs[0].hub.settings
        assert hub_main.check(settings, deep=True) == []
        # A node's output, handed on by its report, and the end of everything.
        node = await hubs[1].node()
        await submit(there)
        [grant] = await node.take()
        output = await upload(node.client, b"what it made")
        await node.report(grant.attempt_id, outputs=[{"name": "o", "digest": output, "size": 12}])
        assert (await sam.get(f"/artifacts/{output}")).content == b"what it made"
        clock.advance(91 * DAY_MS)
        await asyncio.gather(*(garbage_collection.collect(hub.hub) for hub in hubs))
        blobs = make_blobs(settings)
        assert blobs.walk(after="", limit=10) == []
        assert blobs.upload_sizes((await sam.get("/me")).json()["id"]) == {}


async def test_a_hub_of_another_database_refuses_the_bucket(tmp_path: Path, store: dict[str, Any]) -> None:
    async with running_hub(tmp_path / "one", **store) as hub:
        await upload(hub.admin, b"precious")
    with pytest.raises(Conflict, match="another pool"):
        async with running_hub(tmp_path / "two", **store):
            pass


@pytest.mark.soak
async def test_a_service_that_is_away_is_said_and_nothing_else_stops(
    tmp_path: Path, store: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_hub(tmp_path, **store) as hub:
        await upload(hub.admin, b"here")
        away = make_blobs(Settings(data_dir=tmp_path, **{**store, "s3_endpoint": "http://127.0.0.1:1"}))
        monkeypatch.setattr(hub.hub.artifacts, "blobs", away)
        answer = await put(hub.admin, 0, MB)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "Retry-After" in answer.headers
        assert (await hub.admin.get("/artifacts")).status_code == 200
        await garbage_collection.collect(hub.hub)


def test_what_a_hub_left_that_died_while_the_service_copied_is_given_up(
    tmp_path: Path, s3: S3Server, store: dict[str, Any]
) -> None:
    """Lists of objects do not show it, but it costs money."""
    bucket, _, prefix = store["blobs"].removeprefix("s3://").partition("/")
    client = s3.client()

    def begun() -> list[str]:
        found = client.list_multipart_uploads(Bucket=bucket, Prefix=f"{prefix}/")
        return [one["Key"] for one in found.get("Uploads", ())]

    key = f"{prefix}/artifacts/{DIGEST[:2]}/{DIGEST}.{16 * '0'}"
    client.create_multipart_upload(Bucket=bucket, Key=key)
    assert begun() == [key]
    blobs, now_s = make_blobs(Settings(data_dir=tmp_path, **store)), SystemClock().now_ms() / 1000
    assert blobs.drop_stale_uploads(before_s=now_s - 3600) == 0
    assert begun() == [key]
    assert blobs.drop_stale_uploads(before_s=now_s + 3600) == 1
    assert begun() == []


@pytest.mark.parametrize("address", ["http://bucket", "s3://", "s3:///prefix", "s3://bucket?x=1", "/var/data"])
def test_what_is_no_bucket_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadRequest, match="s3://bucket/prefix"):
        build_hub(Settings(data_dir=tmp_path, blobs=address), SystemClock())


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(Settings(s3_secret_access_key="hidden"))
