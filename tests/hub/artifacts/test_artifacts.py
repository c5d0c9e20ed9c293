"""Artifacts: uploaded in pieces, stored once, readable only by those who refer to them, removed only when nothing needs them."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import httpx2
import pytest

from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.hub.artifacts import garbage_collection, rows as artifact_rows
from computepool.hub.db.tables import artifacts as artifact_table
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.cast import upload
from tests.hub.submitting import body, submit
from tests.hub.untouched import untouched
from tests.hub.working import pages

DATA = bytes(range(256)) * 4
DIGEST = hashlib.sha256(DATA).hexdigest()
INPUTS = [{"name": "in", "digest": DIGEST, "size": len(DATA)}]


async def put(
    client: httpx2.AsyncClient, data: bytes, *, offset: int = 0, whole: bytes = DATA, **params: object
) -> httpx2.Response:
    digest = hashlib.sha256(whole).hexdigest()
    query = {"size": len(whole), "offset": offset, **params}
    return await client.put(f"/artifacts/{digest}", params=query, content=data)


async def progress(client: httpx2.AsyncClient, digest: str = DIGEST) -> tuple[int, bool]:
    answer = (await client.get(f"/artifacts/{digest}/upload")).json()
    return answer["offset"], answer["complete"]


def partial(hub: HubDouble) -> list[str]:
    uploads = hub.hub.settings.data_dir / "uploads"
    return [path.name for path in uploads.rglob("*") if path.is_file() and path.stat().st_size]


def stored(hub: HubDouble) -> list[str]:
    """Digests of the stored blobs, once for each copy."""
    return sorted(one.place[3:67] for one in hub.hub.artifacts.blobs.walk(after="", limit=1000))


# sending


async def test_an_artifact_is_sent_in_pieces_and_read_back(any_hub: HubDouble) -> None:
    sam = await any_hub.account("sam", "submitter")
    assert await progress(sam) == (0, False)
    for start in range(0, 1000, 250):
        answer = await put(sam, DATA[start : start + 250], offset=start)
        assert answer.json() == {"digest": DIGEST, "offset": start + 250, "complete": False}
        assert await progress(sam) == (start + 250, False)
        assert (await sam.get(f"/artifacts/{DIGEST}")).status_code == 404, "visible before it is whole"
    assert (await put(sam, DATA[1000:], offset=1000)).json()["complete"]
    assert await progress(sam) == (len(DATA), True)
    assert (await sam.get(f"/artifacts/{DIGEST}")).content == DATA
    assert partial(any_hub) == []


async def test_a_wrong_offset_is_refused_with_the_right_one(hub: HubDouble) -> None:
    await put(hub.admin, DATA[:100])
    for offset in (0, 99, 101, 500):
        answer = await put(hub.admin, DATA[offset:], offset=offset)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "at byte 100" in answer.json()["detail"]
    assert await progress(hub.admin) == (100, False)
    assert (await put(hub.admin, DATA[100:], offset=100)).json()["complete"]


async def test_a_wrong_checksum_drops_the_upload_and_the_next_one_starts_anew(hub: HubDouble) -> None:
    await put(hub.admin, b"x" * 100)
    async with untouched(hub):
        answer = await put(hub.admin, DATA[100:], offset=100)
        assert (answer.status_code, answer.json()["field"]) == (422, "digest")
        assert hashlib.sha256(b"x" * 100 + DATA[100:]).hexdigest() in answer.json()["detail"]
    assert await progress(hub.admin) == (0, False)
    assert partial(hub) == []
    assert await upload(hub.admin, DATA) == DIGEST


async def test_more_bytes_than_announced_are_refused(hub: HubDouble) -> None:
    answer = await hub.admin.put(f"/artifacts/{DIGEST}", params={"size": 10}, content=DATA)
    assert (answer.status_code, answer.json()["field"]) == (422, "size")
    assert (await hub.admin.get(f"/artifacts/{DIGEST}")).status_code == 404


async def test_an_empty_artifact_is_one_too(hub: HubDouble) -> None:
    digest = await upload(hub.admin, b"")
    answer = await hub.admin.get(f"/artifacts/{digest}")
    assert (answer.status_code, answer.content) == (200, b"")
    assert (await hub.admin.get(f"/artifacts/{digest}", headers={"Range": "bytes=0-"})).status_code == 416


async def test_an_artifact_has_a_largest_size(tmp_path: Path) -> None:
    async with running_hub(tmp_path, artifact_max_bytes=1000) as hub:
        assert await upload(hub.admin, b"x" * 1000)
        answer = await put(hub.admin, DATA)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert "1000 bytes" in answer.json()["detail"]


async def test_a_full_disk_is_said_and_the_upload_goes_on_later(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    from computepool.hub.artifacts.storage import disk

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk.fcntl, "flock", full)
        answer = await put(hub.admin, DATA)
        assert (answer.status_code, answer.json()["code"]) == (507, "out_of_space")
    assert await upload(hub.admin, DATA) == DIGEST


# the same bytes twice


async def test_two_accounts_send_the_same_bytes_at_once_and_they_are_kept_once(any_hub: HubDouble) -> None:
    accounts = [await any_hub.account(name, "submitter") for name in ("sam", "olga", "kim")]

    async def in_pieces(client: httpx2.AsyncClient) -> None:
        for start in range(0, len(DATA), 64):
            assert (await put(client, DATA[start : start + 64], offset=start)).status_code == 200

    await asyncio.gather(*map(in_pieces, accounts))
    for client in accounts:
        assert await progress(client) == (len(DATA), True)
        assert (await client.get(f"/artifacts/{DIGEST}")).content == DATA
    assert stored(any_hub) == [DIGEST]
    assert partial(any_hub) == []
    for client in accounts:
        assert stored(any_hub) == [DIGEST]
        assert (await client.delete(f"/artifacts/{DIGEST}")).status_code == 204
        assert (await client.get(f"/artifacts/{DIGEST}")).status_code == 404
    assert stored(any_hub) == []


async def test_one_account_sends_the_same_bytes_twice_at_once_and_nothing_is_spoilt(hub: HubDouble) -> None:
    async def persistent() -> None:
        """Like a client, resume where a conflict says."""
        offset, complete = 0, False
        while not complete:
            await put(hub.admin, DATA[offset : offset + 100], offset=offset)
            offset, complete = await progress(hub.admin)

    await asyncio.wait_for(asyncio.gather(*(persistent() for _ in range(5))), 30)
    assert (await hub.admin.get(f"/artifacts/{DIGEST}")).content == DATA


async def test_knowing_a_digest_is_not_enough(hub: HubDouble) -> None:
    sam, eve = await hub.account("sam", "submitter"), await hub.account("eve", "submitter")
    await upload(sam, DATA)
    assert (await eve.get(f"/artifacts/{DIGEST}")).status_code == 404
    assert (await eve.head(f"/artifacts/{DIGEST}")).status_code == 404
    assert await progress(eve) == (0, False), "whether it is here is not hers to know"
    async with untouched(hub):
        refused = [
            await put(eve, b""),
            await put(eve, b"", offset=len(DATA)),
            await put(eve, DATA[-1:], offset=len(DATA) - 1),
            await put(eve, b"x" * len(DATA)),
            await eve.post("/jobs", json=body(spec={"inputs": INPUTS})),
            await eve.delete(f"/artifacts/{DIGEST}"),
        ]
    assert [answer.status_code for answer in refused] == [200, 409, 409, 422, 422, 404]
    assert not refused[0].json()["complete"]
    assert (await eve.get(f"/artifacts/{DIGEST}")).status_code == 404


async def test_a_report_cannot_hand_over_what_its_node_did_not_upload(any_hub: HubDouble) -> None:
    """The owner of a node submits a job to it and reports a stranger's artifact as the output."""
    sam, eve = (await any_hub.account("sam", "submitter"), await any_hub.account("eve", "submitter", "provider"))
    await upload(sam, DATA)
    any_hub.hub.settings.backoff_base_s = 0.001
    node = await any_hub.node(eve)
    [job_id] = await submit(eve)
    [grant] = await node.take()
    stolen = {"outputs": [{"name": "loot", "digest": DIGEST, "size": len(DATA)}], "result_artifact": DIGEST}
    for number, (name, value) in enumerate(stolen.items(), start=1):
        assert await node.report(grant.attempt_id, **{name: value}) == "accepted"
        found = (await eve.get(f"/jobs/{job_id}")).json()
        assert found["state"] in ("queued", "leased"), "given to a node again"
        ended = found["tries"][number - 1]
        assert (ended["state"], ended["reason"]) == ("failed", "false_report")
        assert (await eve.get(f"/artifacts/{DIGEST}")).status_code == 404
        [grant] = await node.take()
    assert await node.report(grant.attempt_id) == "accepted"
    assert (await eve.get(f"/jobs/{job_id}")).json()["state"] == "succeeded"
    assert (await eve.get("/artifacts")).json()["artifacts"] == []


async def test_a_node_sends_outputs_and_they_become_the_submitters(any_hub: HubDouble) -> None:
    sam = await any_hub.account("sam", "submitter")
    node = await any_hub.node()
    odd = "naïve 😀 'a' \"b\"; ..\\..\\c & <d>.txt"
    jobs = await submit(sam, items=2, needs={"cores": 1})
    for grant in await node.take(2):
        await upload(node.client, DATA, name=odd)
        outputs = [{"name": odd, "digest": DIGEST, "size": len(DATA)}, {"name": "again", "digest": DIGEST, "size": 1}]
        assert await node.report(grant.attempt_id, outputs=outputs) == "accepted"
    for job_id in jobs:
        found = (await sam.get(f"/jobs/{job_id}/result")).json()["outputs"]
        assert {(output["name"], output["size"]) for output in found} == {(odd, len(DATA)), ("again", len(DATA))}
        listed = (await sam.get("/artifacts", params={"job_id": job_id})).json()["artifacts"]
        assert {row["name"] for row in listed} == {odd, "again"}
    everything = (await any_hub.admin.get("/artifacts")).json()["artifacts"]
    assert [row["role"] for row in everything] == ["output"] * 4, "the node's own reference is not listed beside it"
    answer = await sam.get(f"/artifacts/{DIGEST}")
    assert answer.content == DATA
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_the_outputs_of_a_job_that_failed_for_good_are_kept_for_looking_at(any_hub: HubDouble) -> None:
    any_hub.hub.settings.backoff_base_s = 0.001
    sam = await any_hub.account("sam", "submitter")
    node = await any_hub.node()
    secret = await upload(await any_hub.account("eve", "submitter"), b"of somebody else")
    failed = {"outcome": Outcome.FAILED, "reason": Reason.EXIT_NONZERO, "exit_code": 4}
    [job_id] = await submit(sam, retries=1)
    for name in ("first.txt", "last.txt"):
        [grant] = await node.take()
        await upload(node.client, DATA, name=name)
        outputs = [{"name": name, "digest": DIGEST, "size": len(DATA)}, {"name": "loot", "digest": secret, "size": 16}]
        assert await node.report(grant.attempt_id, outputs=outputs, **failed) == "accepted"
    found = (await sam.get(f"/jobs/{job_id}")).json()
    assert found["state"] == "failed"
    assert [output["name"] for output in found["outputs"]] == ["last.txt"], "of the last try, and its own alone"
    assert (await sam.get(f"/artifacts/{DIGEST}")).content == DATA
    assert (await sam.get(f"/artifacts/{secret}")).status_code == 404


@pytest.mark.parametrize("name", ["a\nb", "a\x00b", "\x1b[31m", "x" * 256])
async def test_a_name_with_control_characters_is_refused(hub: HubDouble, name: str) -> None:
    async with untouched(hub):
        answer = await put(hub.admin, DATA, name=name)
    assert (answer.status_code, answer.json()["field"]) == (422, "name")


async def test_a_node_reads_only_what_the_attempts_it_holds_refer_to(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    await upload(sam, DATA)
    other = await upload(sam, b"not an input of anything")
    node, idle = await hub.node(name="works"), await hub.node(name="idle", cores=0.001)
    assert (await node.client.get(f"/artifacts/{DIGEST}")).status_code == 404, "before it holds the attempt"
    await submit(sam, spec={"inputs": INPUTS})
    [grant] = await node.take()
    assert (await node.client.get(f"/artifacts/{DIGEST}")).content == DATA
    assert (await node.client.get(f"/artifacts/{other}")).status_code == 404
    assert (await idle.client.get(f"/artifacts/{DIGEST}")).status_code == 404
    await node.report(grant.attempt_id)
    assert (await node.client.get(f"/artifacts/{DIGEST}")).status_code == 404, "after it was reported"


async def test_uploads_that_no_report_names_are_deleted_and_the_others_kept(tmp_path: Path) -> None:
    async with running_hub(tmp_path, unreported_keep_s=0) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        [grant] = await node.take()
        kept, lost = await upload(node.client, DATA), await upload(node.client, b"never reported")
        await node.report(grant.attempt_id, outputs=[{"name": "o", "digest": kept, "size": len(DATA)}])
        await garbage_collection.end_references(hub.hub)
        assert (kept in stored(hub), lost in stored(hub)) == (True, False)
        assert (await hub.admin.get(f"/artifacts/{kept}")).content == DATA
        assert (await hub.admin.get(f"/jobs/{job_id}/result")).json()["outputs"][0]["digest"] == kept


# removing


async def test_an_artifact_is_not_removed_while_an_open_job_needs_it(any_hub: HubDouble) -> None:
    sam = await any_hub.account("sam", "submitter")
    await upload(sam, DATA)
    specs = [{"inputs": INPUTS}, {"kind": "function", "function_artifact": DIGEST}]
    for spec in specs:
        [job_id] = await submit(sam, spec=spec)
        async with untouched(any_hub):
            answer = await sam.delete(f"/artifacts/{DIGEST}")
            assert (answer.status_code, job_id in answer.json()["detail"]) == (409, True)
        await sam.post(f"/jobs/{job_id}/cancel")
    assert (await sam.delete(f"/artifacts/{DIGEST}")).status_code == 204
    assert stored(any_hub) == []


@pytest.mark.soak
async def test_bytes_are_here_for_every_reference_however_removals_and_uploads_meet(any_hub: HubDouble) -> None:
    accounts = [await any_hub.account(name, "submitter") for name in ("sam", "olga")]

    async def come_and_go(client: httpx2.AsyncClient) -> None:
        for _ in range(15):
            await upload(client, DATA)
            assert (await client.get(f"/artifacts/{DIGEST}")).content == DATA
            assert (await client.delete(f"/artifacts/{DIGEST}")).status_code == 204

    await asyncio.gather(*map(come_and_go, accounts))
    rows = await any_hub.hub.store.read(lambda connection: connection.execute(artifact_table.select()).all())
    assert rows == []
    assert stored(any_hub) == []
    assert partial(any_hub) == []


async def test_bytes_uploaded_again_just_before_they_are_erased_stay(hub: HubDouble) -> None:
    """The last reference was dropped, and the next upload comes before the file is erased."""
    await upload(hub.admin, DATA)
    account = (await hub.admin.get("/me")).json()["id"]
    await hub.hub.store.write(lambda tx: artifact_rows.drop_refs(tx, digest=DIGEST, account_id=account))
    dropped = await hub.hub.store.write(lambda tx: artifact_rows.drop_unused(tx, [DIGEST]))
    assert [place[3:67] for place in dropped] == [DIGEST]
    await upload(hub.admin, DATA)
    await garbage_collection.erase(hub.hub, dropped)
    assert (await hub.admin.get(f"/artifacts/{DIGEST}")).content == DATA


# reading


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-4", DATA[:5]),
        ("bytes=5-", DATA[5:]),
        ("bytes=-3", DATA[-3:]),
        ("bytes=0-0", DATA[:1]),
        ("bytes=1000-999999", DATA[1000:]),
        ("bytes=-999999", DATA),
        ("Bytes = 1-2", DATA[1:3]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_range_of_a_download_is_served_exactly(hub: HubDouble, header: str, expected: bytes) -> None:
    await upload(hub.admin, DATA)
    answer = await hub.admin.get(f"/artifacts/{DIGEST}", headers={"Range": header})
    assert (answer.status_code, answer.content) == (206, expected)
    first, last = (int(end) for end in answer.headers["content-range"][6:].split("/")[0].split("-"))
    assert DATA[first : last + 1] == expected
    assert answer.headers["content-range"].endswith(f"/{len(DATA)}")
    assert answer.headers["content-length"] == str(len(expected))


async def test_an_impossible_range_tells_the_length(hub: HubDouble) -> None:
    await upload(hub.admin, DATA)
    for header in ("bytes=1024-", "bytes=-0", "bytes=7-3", "bytes=a-b", "elephants=1-2"):
        answer = await hub.admin.get(f"/artifacts/{DIGEST}", headers={"Range": header})
        assert answer.status_code == 416, header
        assert answer.headers["content-range"] == f"bytes */{len(DATA)}"
        assert answer.headers["content-type"] == "application/problem+json"


async def test_several_ranges_and_a_changed_file_give_the_whole_file(hub: HubDouble) -> None:
    await upload(hub.admin, DATA)
    several = await hub.admin.get(f"/artifacts/{DIGEST}", headers={"Range": "bytes=0-1,10-11"})
    assert (several.status_code, several.content) == (200, DATA), "as a server may: nobody of ours asks for that"
    for condition, status in ((f'"{DIGEST}"', 206), ('"another"', 200)):
        headers = {"Range": "bytes=0-1", "If-Range": condition}
        assert (await hub.admin.get(f"/artifacts/{DIGEST}", headers=headers)).status_code == status


async def test_head_tells_the_length_and_sends_nothing(hub: HubDouble) -> None:
    await upload(hub.admin, DATA)
    answer = await hub.admin.head(f"/artifacts/{DIGEST}")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(DATA))
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"] == f'"{DIGEST}"'


async def test_the_list_pages_through_references_of_one_moment(any_hub: HubDouble) -> None:
    """Eleven jobs of one submission refer to one artifact at the same millisecond."""
    sam = await any_hub.account("sam", "submitter")
    await upload(sam, DATA, name="a plain upload")
    jobs = await submit(sam, items=11, spec={"inputs": INPUTS})
    rows = await pages(sam, "/artifacts", "artifacts", limit=2)
    found = [(row["job_id"], row["role"], row["name"]) for row in rows]
    assert len(found) == len(set(found)) == 12
    assert {row[0] for row in found} == {*jobs, None}
