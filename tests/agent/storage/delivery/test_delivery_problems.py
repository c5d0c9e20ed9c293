"""Result delivery when files are lost, the group no longer waits, or the hub sends hostile ids: complete or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from computepool.agent.storage.result_delivery import _is_whole
from computepool.core.errors import Conflict
from computepool.hub.artifacts import garbage_collection
from computepool.hub.groups import result_delivery
from computepool.protocol.jobs.groups import ArrivalRequest
from computepool.testing.hub import HubDouble
from tests.agent.fake_hub import until
from tests.agent.storage.delivery.home_node import FILE, Home, make_group, run_jobs


async def ask(hub: HubDouble, group: str, *, wanted: bool = True) -> None:
    (await hub.admin.post(f"/groups/{group}/return-home", json={"enabled": wanted})).raise_for_status()


@pytest.mark.soak
async def test_a_delivered_group_is_confirmed_again_after_the_hub_removed_its_files(hub: HubDouble, home: Home) -> None:
    group = await make_group(hub, ("a",))
    await run_jobs(hub, await hub.node(name="worker"), group, content={"a": b"x" * 1_000})
    await home.arrived(group)
    hub.hub.settings.artifact_keep_s = hub.hub.settings.unreported_keep_s = 0
    await garbage_collection.collect(hub.hub)
    assert (await hub.admin.get("/artifacts")).json()["artifacts"] == []
    await ask(hub, group)
    home_view = await home.arrived(group)
    assert (home_view["files"], home_view["bytes"]) == (1, 1_000)
    [folder] = home.folders()
    assert (folder / "files" / "a" / FILE).read_bytes() == b"x" * 1_000


async def test_a_folder_that_the_hub_refuses_is_renamed_and_fetched_again(hub: HubDouble, home: Home) -> None:
    group = await make_group(hub, ("a", "b"))
    await run_jobs(hub, await hub.node(name="worker", cores=4), group, content={"a": b"aa", "b": b"bb"})
    await home.arrived(group)
    [folder] = home.folders()
    # As left by a node that could not read one of the files: consistent, but incomplete.
    lost = hashlib.sha256(b"bb").hexdigest()
    kept = [line for line in (folder / "manifest.txt").read_text().splitlines(True) if lost not in line]
    (folder / "manifest.txt").write_text("".join(kept))
    told = json.loads((folder / "arrival.json").read_text())
    told["digests"].remove(lost)
    told |= {"files": 1, "bytes": 2, "manifest": hashlib.sha256("".join(kept).encode()).hexdigest()}
    (folder / "arrival.json").write_text(json.dumps(told))
    await ask(hub, group)
    assert (await home.arrived(group))["files"] == 2
    again, before = home.folders()
    assert (again.name, before.name) == (folder.name, f"{folder.name}.before-1")
    assert (again / "files" / "b" / FILE).read_bytes() == b"bb"


async def test_a_group_with_a_missing_file_is_delivered_when_the_file_is_back(
    hub: HubDouble, home: Home, tmp_path: Path
) -> None:
    group = await make_group(hub, ("a", "b"))
    await run_jobs(hub, await hub.node(name="worker", cores=4), group, content={"a": b"aa", "b": b"bb"})
    [blob] = (tmp_path / "hub").rglob(hashlib.sha256(b"bb").hexdigest() + "*")
    blob.rename(tmp_path / "lost")
    home_view = await home.poll_until(group, lambda view: view["reason"])
    assert home_view["reason"] == "1 of 2 files are not available at the hub now."
    assert home.folders() == [], "it is not whole"
    (tmp_path / "lost").rename(blob)
    await home.arrived(group)
    [folder] = home.folders()
    assert (folder / "files" / "b" / FILE).read_bytes() == b"bb"


@pytest.mark.parametrize("asked_again", [False, True])
async def test_a_group_that_stops_waiting_during_the_fetch_gets_no_incomplete_folder(
    hub: HubDouble, home: Home, asked_again: bool
) -> None:
    group = await make_group(hub, ("a", "b"))
    await run_jobs(hub, await hub.node(name="worker", cores=4), group, content={"a": b"aa", "b": b"bb"})

    async def before() -> None:
        await ask(hub, group, wanted=False)

    async def after() -> None:
        if asked_again:
            await ask(hub, group)
        over.set()

    over = asyncio.Event()
    home.breaking.around = (before, after)
    await home.poll()
    await asyncio.wait_for(over.wait(), 60)
    if not asked_again:
        await until(lambda: home.delivery.under_way == [])
        assert home.folders() == []
        assert list((home.folder / "home" / ".coming").glob("*")) == []
        await ask(hub, group)
    await home.arrived(group)
    [folder] = home.folders()
    for key in ("a", "b"):
        assert (folder / "files" / key / FILE).read_bytes() == key.encode() * 2


async def test_group_ids_cannot_name_folders_outside_home(hub: HubDouble, home: Home) -> None:
    (home.folder / "home" / ".coming").mkdir(parents=True)
    others = [home.folder / "mine+1", home.folder / "home" / ".coming" / "grp_1+1"]
    for other in others:
        other.mkdir()
    home.delivery.request(["grp_1"])
    home.delivery.request(["grp_1", "../../mine", "*", "", "x" * 65])
    assert home.delivery.under_way == ["grp_1"]
    await until(lambda: home.delivery.under_way == [])
    assert [other.exists() for other in others] == [True, False]


async def test_existing_files_are_verified_and_syncing_does_not_block_the_event_loop(
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
    monkeypatch.setattr("computepool.agent.storage.result_delivery.os.fsync", told)
    await home.arrived(group)
    [folder] = home.folders()
    assert (folder / "files" / "a" / FILE).read_bytes() == b"right"
    assert _is_whole(folder, hashlib.sha256((folder / "manifest.txt").read_bytes()).hexdigest())
    assert waited
    assert threading.main_thread() not in waited


def arrival(digests: list[str]) -> ArrivalRequest:
    told = {"digests": sorted(digests)[: result_delivery.DIGESTS_MAX], "files": len(digests), "bytes": len(digests)}
    return ArrivalRequest(round=1, items=1, folder="home/x", manifest="0" * 64, **told)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 9), max_size=8), st.sets(st.integers(0, 9), max_size=8), st.sampled_from([3, 99]))
def test_an_arrival_is_accepted_if_no_known_file_is_missing(there: set[int], here: set[int], most: int) -> None:
    wanted, brought = (sorted(f"{number:064x}" for number in numbers) for numbers in (there, here))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result_delivery, "DIGESTS_MAX", most)
        expected = (1, (len(wanted), len(wanted)), wanted[:most])
        try:
            result_delivery._compare(expected, arrival(brought))
            accepted = True
        except Conflict:
            accepted = False
    if there <= here:
        assert accepted
    elif most == 99:
        assert not accepted
