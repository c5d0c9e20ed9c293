"""Retention of files at the hub: those that nothing keeps are deleted, and no others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from computepool.core.errors import Unavailable
from computepool.hub import main as hub_main
from computepool.hub.artifacts import garbage_collection
from computepool.hub.db.tables import artifact_refs, artifacts as artifact_table
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub import storing
from tests.hub.cast import upload
from tests.hub.storing import DAY_MS, KEEP_S, digest_of, set_quota, some, stored
from tests.hub.submitting import submit

clock, hub = storing.clock, storing.hub


# how long


async def info(client: httpx2.AsyncClient, digest: str) -> dict[str, object]:
    answer = await client.get(f"/artifacts/{digest}/info")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_files_are_kept_for_a_time_after_their_job(hub: HubDouble, clock: FakeClock) -> None:
    sam = await hub.account("sam", "submitter")
    node = await hub.node()
    source, output = some(100, 1), some(100, 2)
    await upload(sam, source, name="source")
    inputs = [{"name": "in", "digest": digest_of(source), "size": 100}]
    await submit(sam, spec={"inputs": inputs})
    assert (await info(sam, digest_of(source)))["kept_until_ms"] is None, "its job is not finished"
    [grant] = await node.take()
    await upload(node.client, output)
    outputs = [{"name": "out", "digest": digest_of(output), "size": 100}]
    await node.report(grant.attempt_id, outputs=outputs)
    ended_ms = clock.now_ms()
    found = await info(sam, digest_of(source))
    assert found["kept_until_ms"] == ended_ms + KEEP_S * 1000
    assert {(ref["role"], ref["name"]) for ref in found["refs"]} == {("upload", "source"), ("input", "in")}  # type: ignore[attr-defined]
    clock.advance(KEEP_S * 1000 - 1)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(source), digest_of(output)}
    clock.advance(1)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == set()
    assert (await sam.get(f"/artifacts/{digest_of(output)}")).status_code == 404
    assert (await sam.get("/artifacts")).json()["artifacts"] == []


async def test_an_unfinished_job_keeps_its_inputs_however_long_it_waits(hub: HubDouble, clock: FakeClock) -> None:
    sam = await hub.account("sam", "submitter")
    data = some(100)
    await upload(sam, data)
    [job_id] = await submit(sam, spec={"inputs": [{"name": "in", "digest": digest_of(data), "size": 100}]})
    clock.advance(400 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(data)}
    await sam.post(f"/jobs/{job_id}/cancel")
    clock.advance(KEEP_S * 1000 + 1)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == set()


async def test_each_account_has_its_own_retention(hub: HubDouble, clock: FakeClock) -> None:
    sam, olga = await hub.account("sam", "submitter"), await hub.account("olga", "submitter")
    await set_quota(hub, sam, artifact_keep_s=24 * 3600)
    await set_quota(hub, olga, artifact_keep_s=100 * 24 * 3600)
    both, own = some(100, 1), some(100, 2)
    await upload(sam, both)
    await upload(sam, own)
    await upload(olga, both)
    clock.advance(2 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(both)}
    assert (await sam.get(f"/artifacts/{digest_of(both)}")).status_code == 404, "his time is over"
    assert (await olga.get(f"/artifacts/{digest_of(both)}")).content == both
    clock.advance(99 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == set()


async def test_uploading_a_file_again_restarts_its_retention(hub: HubDouble, clock: FakeClock) -> None:
    data = some(100)
    await upload(hub.admin, data)
    clock.advance(9 * DAY_MS)
    await upload(hub.admin, data)
    clock.advance(9 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(data)}
    clock.advance(2 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == set()


async def test_what_is_kept_stays_until_it_is_released(hub: HubDouble, clock: FakeClock) -> None:
    sam, eve = await hub.account("sam", "submitter"), await hub.account("eve", "submitter")
    held, timed = some(100, 1), some(100, 2)
    await upload(sam, held)
    await upload(sam, timed)
    assert (await eve.put(f"/artifacts/{digest_of(held)}/keep", json={})).status_code == 404
    kept = await sam.put(f"/artifacts/{digest_of(held)}/keep", json={})
    assert (kept.status_code, kept.json()["kept_until_ms"]) == (200, None)
    await sam.put(f"/artifacts/{digest_of(timed)}/keep", json={"duration_s": 20 * 24 * 3600})
    clock.advance(15 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(held), digest_of(timed)}
    assert (await sam.get(f"/artifacts/{digest_of(held)}")).content == held
    clock.advance(300 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(held)}
    assert (await sam.delete(f"/artifacts/{digest_of(held)}/keep")).status_code == 204
    assert stored(hub) == set(), "nothing else kept it"
    assert (await sam.delete(f"/artifacts/{digest_of(held)}/keep")).status_code == 404


async def test_results_that_wait_to_be_compared_are_kept_as_long_as_their_job_is_open(
    hub: HubDouble, clock: FakeClock
) -> None:
    node = await hub.node()
    data = some(100)
    await submit(hub.admin)
    await node.take()
    await upload(node.client, data)
    [job_id] = await submit(hub.admin, needs={"cores": 1000})
    row = {"digest": digest_of(data), "account_id": node.node_id, "job_id": job_id, "role": "pending", "name": "o"}
    await hub.hub.store.write(
        lambda tx: tx.connection.execute(artifact_refs.insert().values(created_at_ms=tx.now_ms, **row))
    )
    clock.advance(100 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(data)}
    await hub.admin.post(f"/jobs/{job_id}/cancel")
    clock.advance(4 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == set()


# what a crash leaves


async def test_what_crashes_leave_is_collected_after_a_grace_time(hub: HubDouble, clock: FakeClock) -> None:
    blobs = hub.hub.artifacts.blobs
    unnamed, begun, kept, bare = some(100, 1), some(100, 2), some(100, 3), some(100, 4)
    whole = blobs.open_upload(digest_of(unnamed), "sam", offset=0)  # its place was made, its row was not
    whole.append(unnamed)
    whole.finish(len(unnamed))
    blobs.open_upload(digest_of(begun), "sam", offset=0).append(begun[:50])
    await upload(hub.admin, kept)
    await upload(hub.admin, bare)
    await hub.hub.store.write(
        lambda tx: tx.connection.execute(artifact_refs.delete().where(artifact_refs.c.digest == digest_of(bare)))
    )
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(data) for data in (unnamed, kept, bare)}, "they may be on their way"
    assert blobs.uploaded_bytes(digest_of(begun), "sam") == 50
    clock.advance(2 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {digest_of(kept)}
    assert blobs.uploaded_bytes(digest_of(begun), "sam") == 0
    rows = await hub.hub.store.read(lambda c: c.execute(artifact_table.select()).all())
    assert [row.digest for row in rows] == [digest_of(kept)]


@pytest.mark.soak
async def test_collecting_goes_on_in_batches_where_it_stopped(
    hub: HubDouble, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "BATCH", 4)
    monkeypatch.setattr(garbage_collection, "BATCHES_MAX", 2)
    held = [await upload(hub.admin, some(64, number)) for number in range(10)]
    for digest in held:
        await hub.admin.put(f"/artifacts/{digest}/keep", json={})
    [await upload(hub.admin, some(64, number)) for number in range(10, 22)]
    clock.advance(20 * DAY_MS)
    left = []
    for _ in range(6):
        await garbage_collection.collect(hub.hub)
        left.append(len(stored(hub)))
    assert left[0] > 10, "not everything in one round"
    assert left[-1] == 10
    assert stored(hub) == set(held)


@pytest.mark.soak
async def test_collecting_and_sending_at_once_lose_nothing(hub: HubDouble, clock: FakeClock) -> None:
    """References expire repeatedly while the same bytes are uploaded: whoever has them confirmed can read them."""
    hub.hub.settings.artifact_keep_s = 0
    data = some(100)
    done = asyncio.Event()

    async def collect() -> None:
        while not done.is_set():
            await garbage_collection.collect(hub.hub)

    async def send(name: str) -> int:
        client, refused = await hub.account(name, "submitter"), 0
        for _ in range(12):
            await upload(client, data)
            answer = await client.put(f"/artifacts/{digest_of(data)}/keep", json={})
            if answer.status_code == 404:  # its time was over before it was kept
                refused += 1
                continue
            assert (await client.get(f"/artifacts/{digest_of(data)}")).content == data
            await client.delete(f"/artifacts/{digest_of(data)}")
        return refused

    collecting = asyncio.create_task(collect())
    try:
        refused = await asyncio.gather(*(send(name) for name in ("sam", "olga", "kim")))
    finally:
        done.set()
        await collecting
    assert sum(refused) < 36
    clock.advance(2 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == set()


async def test_a_store_that_does_not_answer_stops_no_other_duty(
    hub: HubDouble, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await upload(hub.admin, some(100))
    clock.advance(20 * DAY_MS)

    def away(**_: object) -> int:
        raise Unavailable("The artifact store does not answer as it should.")

    monkeypatch.setattr(hub.hub.artifacts.blobs, "drop_stale_uploads", away)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == set()
    assert "does not answer" in caplog.text


# checking


async def test_a_check_finds_bytes_that_are_missing_or_damaged(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        good, short, gone, changed = (some(100, number) for number in range(4))
        for data in (good, short, gone, changed):
            await upload(hub.admin, data)
        assert hub_main.check(hub.hub.settings, deep=True) == []
        files = {path.name[:64]: path for path in (tmp_path / "artifacts").rglob("*") if len(path.name) > 64}
        files[digest_of(gone)].unlink()
        files[digest_of(short)].write_bytes(short[:-1])
        files[digest_of(changed)].write_bytes(b"y" + changed[1:])
        [missing] = hub_main.check(hub.hub.settings)
        assert digest_of(gone) in missing
        assert digest_of(short) in missing
        assert digest_of(changed) not in missing
        _, damaged = hub_main.check(hub.hub.settings, deep=True)
        assert digest_of(changed) in damaged
        assert not (await info(hub.admin, digest_of(gone)))["whole"]
        # Sending it again mends it: the row gets the new place.
        assert (await hub.admin.get(f"/artifacts/{digest_of(gone)}")).status_code == 404
        await upload(hub.admin, gone)
        assert (await hub.admin.get(f"/artifacts/{digest_of(gone)}")).content == gone
        [missing] = hub_main.check(hub.hub.settings)
        assert digest_of(gone) not in missing
