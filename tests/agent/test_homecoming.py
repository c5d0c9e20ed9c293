"""Groups come home: against the real hub in this process, through connections that break, restarts and hostile names."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from computepool.agent.clock import SystemClock
from computepool.agent.config import AgentLimits
from computepool.agent.homecoming import Homecoming, _is_whole
from computepool.agent.hub_client import HubClient
from computepool.agent.identity import Identity
from computepool.core.errors import Conflict
from computepool.hub.services import collection, homecoming
from computepool.protocol import homefolder
from computepool.protocol.groups import ArrivalRequest, GroupItem
from computepool.protocol.jobs import OutputFile
from computepool.protocol.nodes import OutputRef
from computepool.testing.hub import ORIGIN, HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.agent.conftest import QUICK
from tests.hub.submitting import COMMAND

#: Small pieces, so that a connection that breaks leaves some of them.
LIMITS = replace(QUICK, home_spare_bytes=0, transfer_chunk=256)
#: More than a page holds of them, and names that want to go elsewhere.
KEYS = ("plain", "A", "a", "../../etc/passwd", "..", "a/b", "con", "\u202egnp.exe", "x" * 200, "job_1")
FILE = "deep/er/file.txt"
NAMES = ("out.bin", FILE, "OUT.BIN")


Around = tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]


class Breaking(httpx2.AsyncBaseTransport):
    """Ends each of the first downloads after some bytes, as a lost connection does."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, breaks: int = 0, after: int = 1_000) -> None:
        self.inner, self.breaks, self.after = inner, breaks, after
        self.ranges: list[str] = []
        self.down = False
        self.wrong = 0  #: so many downloads bring other bytes
        self.around: Around | None = None  #: of the first download alone: awaited before it, and after it

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.down:
            raise httpx2.ConnectError("nobody is there")
        around = self.around if "/artifacts/" in request.url.path else None
        if around is not None:
            self.around = None
            await around[0]()
        reply = await self.inner.handle_async_request(request)
        if around is not None:
            await around[1]()
        if "/artifacts/" in request.url.path:
            self.ranges.append(request.headers.get("range", ""))
            if self.wrong:
                self.wrong -= 1
                reply.stream = _Cut(reply.stream, 10**9, add=1)  # type: ignore[arg-type]
            elif self.breaks:
                self.breaks -= 1
                reply.stream = _Cut(reply.stream, self.after)  # type: ignore[arg-type]
        return reply


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, left: int, *, add: int = 0) -> None:
        self.stream, self.left, self.add = stream, left, add

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.stream:
            yield bytes((byte + self.add) % 256 for byte in chunk[: self.left])
            self.left -= len(chunk)
            if self.left <= 0:
                raise httpx2.ReadError("the connection is gone")


class Home:
    """A home node: its double polls, and the agent's own part fetches."""

    def __init__(self, hub: HubDouble, node: NodeDouble, *, owner: str, folder: Path) -> None:
        self.hub, self.node, self.owner, self.folder = hub, node, owner, folder
        self.breaking = Breaking(httpx2.ASGITransport(hub.app, raise_app_exceptions=False))
        self.part: Homecoming | None = None

    def start(self, limits: AgentLimits = LIMITS) -> Homecoming:
        identity = Identity(
            key=self.node.key, node_id=self.node.node_id, owner=self.owner, hub_keys={}, hub_url=ORIGIN
        )
        client = HubClient(
            (ORIGIN,), clock=SystemClock(), limits=limits, identity=identity, transport=self.breaking
        )
        self.part = Homecoming(client, identity, data_dir=self.folder, clock=SystemClock(), limits=limits)
        return self.part

    async def tell(self) -> list[str]:
        """What the hub says waits for it."""
        assert self.part is not None
        reply = await self.node.poll(wait_ms=0)
        assert reply.homecoming is not None
        self.part.want(reply.homecoming)
        return reply.homecoming

    async def kill(self) -> None:
        assert self.part is not None
        running = asyncio.create_task(self.part.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def arrived(self, group: str, *, until: str = "arrived") -> dict[str, Any]:
        async with asyncio.timeout(20):
            while True:
                await self.tell()
                view: dict[str, Any] = (await self.hub.admin.get(f"/groups/{group}")).json()
                if view["home"]["state"] == until:
                    return view
                await asyncio.sleep(0.02)

    def folders(self) -> list[Path]:
        home = self.folder / "home"
        return sorted(path for path in home.iterdir() if path.name != ".coming") if home.exists() else []


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path / "hub") as running:
        yield running


@pytest.fixture
async def home(hub: HubDouble, tmp_path: Path) -> AsyncIterator[Home]:
    node = await hub.node(name="laptop")
    (await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})).raise_for_status()
    owner = (await hub.admin.get("/me")).json()["id"]
    made = Home(hub, node, owner=owner, folder=tmp_path / "agent")
    made.folder.mkdir()
    made.start()
    yield made
    await made.kill()


async def make_group(hub: HubDouble, keys: tuple[str, ...], **fields: Any) -> str:
    answer = await hub.admin.post(
        "/groups", json={"name": "../sweep é", "home": "laptop", "return_home": True, **fields}
    )
    assert answer.status_code == 201, answer.text
    group = str(answer.json()["id"])
    registered = {"keys": [{"key": key} for key in keys]}
    (await hub.admin.post(f"/groups/{group}/keys", json=registered)).raise_for_status()
    return group


async def run_jobs(hub: HubDouble, node: NodeDouble, group: str, *, content: dict[str, bytes]) -> None:
    """One job per key, each leaving its content under every name."""
    sent = {"spec": COMMAND, "items": [{"key": key} for key in content], "group_id": group}
    (await hub.admin.post("/jobs", json=sent)).raise_for_status()
    keys = list(content)
    for grant in await node.take(len(keys)):
        data = content[keys[grant.item]]
        digest = hashlib.sha256(data).hexdigest()
        sent_bytes = await node.client.put(f"/artifacts/{digest}", params={"size": len(data)}, content=data)
        sent_bytes.raise_for_status()
        outputs = [OutputRef(name=name, digest=digest, size=len(data)) for name in NAMES]
        await node.report(grant.attempt_id, outputs=outputs, result=json.dumps(keys[grant.item]))


async def test_a_group_comes_home_through_breaks_and_a_restart_whatever_its_keys_are(
    hub: HubDouble, home: Home
) -> None:
    group = await make_group(hub, (*KEYS, "outside"))
    big = bytes(range(256)) * 400
    content = {key: (big if key == "plain" else f"of {key}".encode()) for key in KEYS}
    await run_jobs(hub, await hub.node(name="worker", cores=32), group, content=content)
    assert await home.tell() == []  # not complete yet
    said = {"reports": [{"key": "outside", "outcome": "failed", "error": "it was not made"}]}
    parked = asyncio.create_task(home.node.poll(wait_ms=10_000))
    await asyncio.sleep(0.05)
    await hub.admin.post(f"/groups/{group}/reports", json=said)
    assert (await asyncio.wait_for(parked, 5)).homecoming == [group], "a parked poll is told at once"

    # The first agent is killed after a while; the next one goes on where it was.
    home.breaking.breaks = 10**6
    await home.tell()
    await _until(lambda: len(home.breaking.ranges) >= 5)
    await home.kill()
    assert home.folders() == [], "nothing has its name before it is whole"
    home.breaking.breaks = 3
    home.start()
    view = await home.arrived(group)
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
    assert view["home"]["path"] == str(folder.resolve())
    assert (view["home"]["items"], view["home"]["files"]) == (len(KEYS) + 1, len(KEYS))
    events = (await hub.admin.get("/events", params={"limit": 500})).json()["events"]
    assert sum(1 for event in events if event["action"] == "group.home") == 1
    assert str(folder.resolve()) not in json.dumps(events)
    digest = hashlib.sha256(big).hexdigest()
    assert (await home.node.client.get(f"/artifacts/{digest}")).status_code == 404, "only while it fetches"


async def test_a_full_disk_is_told_and_asking_again_verifies_what_is_there(
    hub: HubDouble, home: Home
) -> None:
    group = await make_group(hub, ("a",))
    await home.kill()
    home.start(replace(LIMITS, home_spare_bytes=10**18))
    await run_jobs(hub, await hub.node(name="worker"), group, content={"a": b"x" * 10_000})
    hub.hub.settings.artifact_keep_s = hub.hub.settings.unreported_keep_s = 0
    await collection.collect(hub.hub)  # a group that waits for its home keeps what it has
    async with asyncio.timeout(10):
        while not (view := (await hub.admin.get(f"/groups/{group}")).json())["home"]["reason"]:
            await home.tell()
            await asyncio.sleep(0.02)
    assert "it needs 10.0 kB more, and 0 bytes are free" in view["home"]["sentence"]
    assert home.folders() == []
    await home.kill()
    home.breaking.wrong = 1
    home.start()
    assert (await home.arrived(group))["home"]["reason"] is None
    events = (await hub.admin.get("/events", params={"limit": 500})).json()["events"]
    told = [event["data"]["reason"] for event in events if event["action"] == "group.home_trouble"]
    assert "other bytes than" in told[-1]
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
    await collection.collect(hub.hub)  # it has arrived, and its time at the hub is over
    assert (await hub.admin.get("/artifacts")).json()["artifacts"] == []


async def test_the_hub_restarts_in_the_middle_and_what_is_called_off_ends(tmp_path: Path) -> None:
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
        home.start()
        assert await home.tell() == [group, off]
        await _until(lambda: len(list((folder / "home" / ".coming").glob("*/.parts/*.part"))) == 2)
        await hub.admin.post(f"/groups/{off}/return-home", json={"wanted": False})
        assert await home.tell() == [group]
        await _until(lambda: home.part is not None and home.part.under_way == [group])
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
        await home.tell()
        assert list((folder / "home" / ".coming").glob("*")) == []
        await home.kill()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what it waits for happens in another part's files
            await asyncio.sleep(0.01)


async def test_only_the_home_node_of_the_same_account_is_let_in(hub: HubDouble, home: Home) -> None:
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
    arrival = {
        "round": 1,
        "items": 0,
        "files": 0,
        "bytes": 0,
        "folder": "home/x",
        "manifest": digest,
        "digests": [],
    }
    for node in (other, foreign):
        for path in (f"/homecomings/{group}", f"/homecomings/{group}/items", f"/artifacts/{digest}"):
            assert (await node.client.get(path)).status_code == 404, path
        answer = await node.client.post(f"/homecomings/{group}/arrival", json=arrival)
        assert answer.status_code == 404
    lie = await home.node.client.post(f"/homecomings/{group}/arrival", json=arrival)
    assert (lie.status_code, lie.json()["field"]) == (409, "items")
    assert (await hub.admin.get(f"/groups/{group}")).json()["home"]["state"] == "waiting"


async def ask(hub: HubDouble, group: str, *, wanted: bool = True) -> None:
    (await hub.admin.post(f"/groups/{group}/return-home", json={"wanted": wanted})).raise_for_status()


async def test_what_is_home_arrives_again_also_when_the_hub_kept_nothing_of_it(
    hub: HubDouble, home: Home
) -> None:
    group = await make_group(hub, ("a",))
    await run_jobs(hub, await hub.node(name="worker"), group, content={"a": b"x" * 1_000})
    await home.arrived(group)
    hub.hub.settings.artifact_keep_s = hub.hub.settings.unreported_keep_s = 0
    await collection.collect(hub.hub)
    assert (await hub.admin.get("/artifacts")).json()["artifacts"] == []
    await ask(hub, group)
    view = await home.arrived(group)
    assert (view["home"]["files"], view["home"]["bytes"]) == (1, 1_000)
    [folder] = home.folders()
    assert (folder / "files" / "a" / FILE).read_bytes() == b"x" * 1_000


async def test_a_folder_that_the_hub_refuses_is_put_aside_and_fetched_once_more(
    hub: HubDouble, home: Home
) -> None:
    group = await make_group(hub, ("a", "b"))
    await run_jobs(hub, await hub.node(name="worker", cores=4), group, content={"a": b"aa", "b": b"bb"})
    await home.arrived(group)
    [folder] = home.folders()
    # As a node left it that could not read one of the files: whole by its own word, and less than there is.
    lost = hashlib.sha256(b"bb").hexdigest()
    kept = [line for line in (folder / "manifest.txt").read_text().splitlines(True) if lost not in line]
    (folder / "manifest.txt").write_text("".join(kept))
    told = json.loads((folder / "arrival.json").read_text())
    told["digests"].remove(lost)
    told |= {"files": 1, "bytes": 2, "manifest": hashlib.sha256("".join(kept).encode()).hexdigest()}
    (folder / "arrival.json").write_text(json.dumps(told))
    await ask(hub, group)
    assert (await home.arrived(group))["home"]["files"] == 2
    again, before = home.folders()
    assert (again.name, before.name) == (folder.name, f"{folder.name}.before-1")
    assert (again / "files" / "b" / FILE).read_bytes() == b"bb"


async def test_a_file_that_the_hub_lost_comes_when_it_is_back(
    hub: HubDouble, home: Home, tmp_path: Path
) -> None:
    group = await make_group(hub, ("a", "b"))
    await run_jobs(hub, await hub.node(name="worker", cores=4), group, content={"a": b"aa", "b": b"bb"})
    [blob] = (tmp_path / "hub").rglob(hashlib.sha256(b"bb").hexdigest() + "*")
    blob.rename(tmp_path / "lost")
    async with asyncio.timeout(10):
        while not (view := (await hub.admin.get(f"/groups/{group}")).json())["home"]["reason"]:
            await home.tell()
            await asyncio.sleep(0.02)
    assert view["home"]["reason"] == "1 of 2 files cannot be read at the hub now."
    assert home.folders() == [], "it is not whole"
    (tmp_path / "lost").rename(blob)
    await home.arrived(group)
    [folder] = home.folders()
    assert (folder / "files" / "b" / FILE).read_bytes() == b"bb"


@pytest.mark.parametrize("asked_again", [False, True])
async def test_a_group_that_stops_waiting_in_the_middle_gets_no_folder_with_holes(
    hub: HubDouble, home: Home, asked_again: bool
) -> None:
    group = await make_group(hub, ("a", "b"))
    await run_jobs(hub, await hub.node(name="worker", cores=4), group, content={"a": b"aa", "b": b"bb"})

    async def before() -> None:
        await ask(hub, group, wanted=False)

    async def after() -> None:
        if asked_again:
            await ask(hub, group)

    home.breaking.around = (before, after)
    await home.tell()
    await _until(lambda: home.breaking.around is None)
    if not asked_again:
        await _until(lambda: home.part is not None and home.part.under_way == [])
        assert home.folders() == []
        assert list((home.folder / "home" / ".coming").glob("*")) == []
        await ask(hub, group)
    await home.arrived(group)
    [folder] = home.folders()
    for key in ("a", "b"):
        assert (folder / "files" / key / FILE).read_bytes() == key.encode() * 2


async def test_a_hub_cannot_name_folders_outside_home(hub: HubDouble, home: Home) -> None:
    (home.folder / "home" / ".coming").mkdir(parents=True)
    others = [home.folder / "mine+1", home.folder / "home" / ".coming" / "grp_1+1"]
    for other in others:
        other.mkdir()
    assert home.part is not None
    home.part.want(["grp_1"])
    home.part.want(["grp_1", "../../mine", "*", "", "x" * 65])
    assert home.part.under_way == ["grp_1"]
    await _until(lambda: home.part is not None and home.part.under_way == [])
    assert [other.exists() for other in others] == [True, False]


async def test_what_lies_at_a_place_is_hashed_before_it_is_believed_and_disks_keep_nobody_waiting(
    hub: HubDouble, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, waited = os.fsync, []

    def told(descriptor: int) -> None:
        waited.append(threading.current_thread())
        fsync(descriptor)

    group = await make_group(hub, ("a",))
    await run_jobs(hub, await hub.node(name="worker"), group, content={"a": b"right"})
    begun = home.folder / "home" / ".coming" / f"{group}+1" / "files" / "a" / FILE
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"wrong")
    monkeypatch.setattr("computepool.agent.homecoming.os.fsync", told)
    await home.arrived(group)
    [folder] = home.folders()
    assert (folder / "files" / "a" / FILE).read_bytes() == b"right"
    assert _is_whole(folder, hashlib.sha256((folder / "manifest.txt").read_bytes()).hexdigest())
    assert waited
    assert threading.main_thread() not in waited


def arrival(digests: list[str]) -> ArrivalRequest:
    told = {
        "digests": sorted(digests)[: homecoming.DIGESTS_MAX],
        "files": len(digests),
        "bytes": len(digests),
    }
    return ArrivalRequest(round=1, items=1, folder="home/x", manifest="0" * 64, **told)  # type: ignore[arg-type]


@given(
    st.sets(st.integers(0, 9), max_size=8), st.sets(st.integers(0, 9), max_size=8), st.sampled_from([3, 99])
)
def test_an_arrival_counts_when_nothing_is_missing_that_was_named(
    there: set[int], here: set[int], most: int
) -> None:
    wanted, brought = (sorted(f"{number:064x}" for number in numbers) for numbers in (there, here))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(homecoming, "DIGESTS_MAX", most)
        expected = (1, (len(wanted), len(wanted)), wanted[:most])
        try:
            homecoming._compare(expected, arrival(brought))
            accepted = True
        except Conflict:
            accepted = False
    if there <= here:
        assert accepted
    elif most == 99:
        assert not accepted


odd = st.text(st.sampled_from("aAéE\u0301./\\-_ \u202e\x7f~con0"), min_size=1, max_size=12)


@given(st.lists(st.tuples(odd, st.lists(odd, max_size=6)), max_size=6, unique_by=lambda pair: pair[0]))
def test_no_two_files_share_a_place_and_none_leaves_the_folder(group: list[tuple[str, list[str]]]) -> None:
    places: list[str] = []
    for key, names in group:
        outputs = [OutputFile(name=name, digest="0" * 64, size=1) for name in names]
        item = GroupItem(key=key, state="succeeded", outputs=outputs, result_artifact="0" * 64)
        places += [file.path for file in homefolder.plan(item)]
    folded = [homefolder._folded(place) for place in places]
    assert len(set(folded)) == len(folded)
    for place in map(PurePosixPath, folded):
        assert not place.is_absolute()
        assert not {"..", "."} & set(place.parts)
        assert not any(str(parent) in folded for parent in place.parents)


@pytest.mark.parametrize("name", ["a\u2028b", "a\u2029b", "a\u0085b", "two  spaces"])
def test_a_name_with_an_odd_end_of_line_does_not_make_a_folder_look_damaged(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"x")
    text = f"{hashlib.sha256(b'x').hexdigest()}  {name}\n"
    (tmp_path / homefolder.MANIFEST).write_text(text, encoding="utf-8")
    manifest = hashlib.sha256(text.encode()).hexdigest()
    assert _is_whole(tmp_path, manifest)
    (tmp_path / name).write_bytes(b"y")
    assert not _is_whole(tmp_path, manifest)
