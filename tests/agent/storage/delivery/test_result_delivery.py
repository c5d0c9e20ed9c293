"""Result delivery at the real hub in this process, through broken connections, restarts and hostile names."""

from __future__ import annotations

import asyncio
import hashlib
import json
import unicodedata
from dataclasses import replace
from pathlib import Path, PurePosixPath

import httpx2
import pytest
from hypothesis import given, strategies as st

from computepool.agent.storage.result_delivery import _is_whole
from computepool.hub.artifacts import garbage_collection
from computepool.protocol.jobs import home_folder
from computepool.protocol.jobs.groups import GroupItem
from computepool.protocol.jobs.views import OutputFile
from computepool.testing.hub import HubDouble, running_hub
from tests.agent.fake_hub import until
from tests.agent.storage.delivery.home_node import LIMITS, NAMES, Home, make_group, run_jobs

#: More than a page holds, and names that lead elsewhere.
KEYS = ("plain", "A", "a", "../../etc/passwd", "..", "a/b", "con", "gnp\u200b.exe", "x" * 200, "job_1")


async def test_a_group_with_hostile_keys_is_delivered_through_breaks_and_a_restart(hub: HubDouble, home: Home) -> None:
    group = await make_group(hub, (*KEYS, "outside"))
    big = bytes(range(256)) * 400
    content = {key: (big if key == "plain" else f"of {key}".encode()) for key in KEYS}
    await run_jobs(hub, await hub.node(name="worker", cores=32), group, content=content)
    assert await home.poll() == [], "it is not complete yet"
    reports = {"reports": [{"key": "outside", "outcome": "failed", "error": "it was not made"}]}
    parked = asyncio.create_task(home.node.poll(wait_ms=60_000))
    await asyncio.sleep(0.05)
    await hub.admin.post(f"/groups/{group}/reports", json=reports)
    assert (await asyncio.wait_for(parked, 50)).result_deliveries == [group], "a parked poll returns at once"

    # The first agent is killed after a while; the next one goes on where it was.
    home.breaking.breaks = 10**6
    await home.poll()
    await until(lambda: len(home.breaking.ranges) >= 5)
    await home.kill()
    assert home.folders() == [], "a folder gets its name when it is complete"
    home.breaking.breaks = 3
    home.start()
    home_view = await home.arrived(group)
    assert any(text.startswith("bytes=") for text in home.breaking.ranges), "a download was resumed"

    [folder] = home.folders()
    assert folder.name == f"sweep-{group}"
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert {line["key"] for line in lines} == {*KEYS, "outside"}
    for line in lines:
        if line["key"] == "outside":
            assert (line["state"], line["error"]) == ("failed", "it was not made")
            continue
        assert json.loads(line["result"]) == line["key"]
        assert sorted(file["name"] for file in line["files"]) == sorted(NAMES)
        for file in line["files"]:
            assert (folder / file["path"]).read_bytes() == content[line["key"]]
    inside = {path.resolve() for path in folder.rglob("*")}
    assert all(path.is_relative_to(folder.resolve()) for path in inside)
    assert sorted(path.name for path in home.folder.iterdir()) == ["home"]
    assert not any(home.folder.rglob("*.part"))
    manifest = [line.split("  ", 1) for line in (folder / "manifest.txt").read_text().splitlines()]
    assert len(manifest) == 2 + len(KEYS) * len(NAMES)
    for digest, path in manifest:
        assert hashlib.sha256((folder / path).read_bytes()).hexdigest() == digest
    assert home_view["path"] == str(folder.resolve())
    assert (home_view["items"], home_view["files"]) == (len(KEYS) + 1, len(KEYS))
    events = (await hub.admin.get("/events", params={"limit": 500})).json()["events"]
    assert sum(1 for event in events if event["action"] == "group.home") == 1
    assert str(folder.resolve()) not in json.dumps(events)
    digest = hashlib.sha256(big).hexdigest()
    assert (await home.node.client.get(f"/artifacts/{digest}")).status_code == 404, "only while it fetches"


@pytest.mark.soak
async def test_a_full_disk_is_reported_and_a_further_request_verifies_what_is_there(hub: HubDouble, home: Home) -> None:
    group = await make_group(hub, ("a",))
    await home.kill()
    home.start(replace(LIMITS, home_spare_bytes=10**18))
    await run_jobs(hub, await hub.node(name="worker"), group, content={"a": b"x" * 10_000})
    hub.hub.settings.artifact_keep_s = hub.hub.settings.unreported_keep_s = 0
    await garbage_collection.collect(hub.hub)  # a group that waits for its home keeps what it has
    home_view = await home.poll_until(group, lambda view: view["reason"])
    assert "it needs 10 kB more, and 0 B are free" in home_view["sentence"]
    assert home.folders() == []
    await home.kill()
    home.breaking.wrong = 1
    home.start()
    assert (await home.arrived(group))["reason"] is None
    events = (await hub.admin.get("/events", params={"limit": 500})).json()["events"]
    told = [event["data"]["reason"] for event in events if event["action"] == "group.delivery_problem"]
    assert "does not match its digest" in told[-1]
    [folder] = home.folders()
    assert (folder / "files" / "a" / "deep" / "er" / "file.txt").read_bytes() == b"x" * 10_000

    (folder / "results.jsonl").write_text("edited")
    await hub.admin.post(f"/groups/{group}/return-home", json={})
    await home.arrived(group)
    again, before = home.folders()
    assert (before.name, again) == (f"{folder.name}.before-1", folder)
    fetched = len(home.breaking.ranges)
    await hub.admin.post(f"/groups/{group}/return-home", json={})
    await home.arrived(group)
    assert len(home.breaking.ranges) == fetched, "what is whole is not fetched again"
    await garbage_collection.collect(hub.hub)  # it has arrived, and its time at the hub is over
    assert (await hub.admin.get("/artifacts")).json()["artifacts"] == []


@pytest.mark.soak
async def test_a_delivery_survives_a_restart_of_the_hub_and_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    async with running_hub(tmp_path / "hub") as hub:
        node = await hub.node(name="laptop")
        owner = (await hub.admin.get("/me")).json()["id"]
        group = await make_group(hub, ("a",))
        off = await make_group(hub, ("b",))
        for name, key in ((group, "a"), (off, "b")):
            await run_jobs(hub, node, name, content={key: key.encode() * 50_000})
        home = Home(hub, node, owner=owner, folder=folder)
        home.breaking.breaks = 10**6
        assert await home.poll() == [group, off]
        await until(lambda: len(list((folder / "home" / ".coming").glob("*/.parts/*.part"))) == 2)
        await hub.admin.post(f"/groups/{off}/return-home", json={"enabled": False})
        assert await home.poll() == [group]
        await until(lambda: home.delivery.under_way == [group])
        home.breaking.down = True
    async with running_hub(tmp_path / "hub") as hub:
        node.client = hub.client()
        node.sign_in()
        home.hub, home.breaking.inner, home.breaking.breaks = (
            hub,
            httpx2.ASGITransport(hub.app, raise_app_exceptions=False),
            0,
        )
        node.restart()
        home.breaking.down = False
        await home.arrived(group)
        [arrived] = home.folders()
        assert (arrived / "files" / "a" / "deep" / "er" / "file.txt").read_bytes() == b"a" * 50_000
        await home.kill()
        home.start()  # a new agent clears away what nobody waits for
        await home.poll()
        assert list((folder / "home" / ".coming").glob("*")) == []
        await home.kill()


async def test_only_a_home_node_of_the_same_account_may_fetch(hub: HubDouble, home: Home) -> None:
    group = await make_group(hub, ("a",))
    other = await hub.node(name="other")
    stranger = await hub.account("stranger", "submitter", "provider")
    foreign = await hub.node(stranger, name="foreign")
    refused = await hub.admin.post("/groups", json={"name": "g", "home": foreign.node_id})
    assert refused.status_code == 404
    moved = await hub.admin.post(f"/groups/{group}/return-home", json={"home": "foreign"})
    assert moved.status_code == 404
    await run_jobs(hub, other, group, content={"a": b"secret"})
    digest = hashlib.sha256(b"secret").hexdigest()
    arrival = {"round": 1, "items": 0, "files": 0, "bytes": 0, "folder": "home/x", "manifest": digest, "digests": []}
    for node in (other, foreign):
        for path in (f"/result-deliveries/{group}", f"/result-deliveries/{group}/items", f"/artifacts/{digest}"):
            assert (await node.client.get(path)).status_code == 404, path
        answer = await node.client.post(f"/result-deliveries/{group}/arrival", json=arrival)
        assert answer.status_code == 404
    lie = await home.node.client.post(f"/result-deliveries/{group}/arrival", json=arrival)
    assert (lie.status_code, lie.json()["field"]) == (409, "items")
    assert (await hub.admin.get(f"/groups/{group}")).json()["home"]["state"] == "waiting"


odd = st.text(st.sampled_from("aAéE\u0301./\\-_ \u202e\x7f~con0"), min_size=1, max_size=12)


@pytest.mark.soak
@given(st.lists(st.tuples(odd, st.lists(odd, max_size=6)), max_size=6, unique_by=lambda pair: pair[0]))
def test_every_file_has_a_place_of_its_own_inside_the_folder(group: list[tuple[str, list[str]]]) -> None:
    places: list[str] = []
    for key, names in group:
        outputs = [OutputFile(name=name, digest="0" * 64, size=1) for name in names]
        item = GroupItem(key=key, state="succeeded", outputs=outputs, result_artifact="0" * 64)
        places += [file.path for file in home_folder.plan(item)]
    folded = [unicodedata.normalize("NFC", place).casefold() for place in places]
    assert len(set(folded)) == len(folded)
    for place in map(PurePosixPath, folded):
        assert not place.is_absolute()
        assert not {"..", "."} & set(place.parts)
        assert not any(str(parent) in folded for parent in place.parents)


@pytest.mark.parametrize("name", ["a\u2028b", "a\u2029b", "a\u0085b", "two  spaces"])
def test_a_name_that_contains_a_line_separator_does_not_make_a_folder_look_damaged(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    text = f"{hashlib.sha256(b'x').hexdigest()}  {name}\n"
    (tmp_path / home_folder.MANIFEST).write_text(text, encoding="utf-8")
    manifest = hashlib.sha256(text.encode()).hexdigest()
    assert _is_whole(tmp_path, manifest)
    (tmp_path / name).write_bytes(b"y")
    assert not _is_whole(tmp_path, manifest)
