"""Searching events and jobs: what is found is what a look at every row finds, and never somebody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from threading import Event, Semaphore
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings, strategies as st
from sqlalchemy import delete

from computepool.hub.app import open_store
from computepool.hub.db.schema import migrate
from computepool.hub.db.session import Store, Tx
from computepool.hub.db.tables import events
from computepool.hub.jobs import jobs as job_service
from computepool.hub.lookup import search_rows
from computepool.hub.observability import events as event_service
from computepool.protocol.jobs.filters import EventFilter
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import submit
from tests.hub.working import got


async def ids(client: httpx2.AsyncClient, **params: Any) -> list[str]:
    """Of all pages."""
    found: list[str] = []
    after = None
    while True:
        page = await got(client, "/jobs", **params, **({"after": after} if after else {}))
        found += [job["id"] for job in page["jobs"]]
        if (after := page["next"]) is None:
            return found


async def seqs(client: httpx2.AsyncClient, **params: Any) -> list[int]:
    """Newest first, of all pages."""
    found: list[int] = []
    before: dict[str, Any] = {"newest": "true"}
    while True:
        page = await got(client, "/events", **params, **before)
        found += [event["seq"] for event in page["events"]]
        if page["next"] is None:
            return found
        before = {"before": page["next"]}


async def test_pages_of_events_newest_first_have_every_event_once(any_hub: HubDouble) -> None:
    await submit(any_hub.admin, items=20, needs={"cores": 1000})
    every = [event["seq"] for event in (await got(any_hub.admin, "/events", limit=500))["events"]]
    assert await seqs(any_hub.admin, limit=7) == every[::-1]
    assert await seqs(any_hub.admin, limit=500) == every[::-1]
    newest = await got(any_hub.admin, "/events", newest="true", limit=1)
    assert newest["cursor"] == every[-1]
    assert (await got(any_hub.admin, "/events", after=newest["cursor"]))["events"] == []


@pytest.mark.soak
async def test_what_is_asked_for_is_what_is_found(any_hub: HubDouble) -> None:
    admin = any_hub.admin
    sam = await any_hub.account("sam", "submitter")
    me = (await sam.get("/me")).json()["id"]
    group = (await sam.post("/groups", json={"name": "g"})).json()["id"]
    [first] = await submit(sam, needs={"cores": 1000}, group_id=group)
    node = await any_hub.node()
    await sam.post(f"/jobs/{first}/cancel")

    async def actions(client: httpx2.AsyncClient = admin, **params: Any) -> set[str]:
        page = await got(client, "/events", newest="true", limit=500, **params)
        assert page["next"] is None
        oldest = await got(client, "/events", limit=500, **params)
        assert [event["seq"] for event in oldest["events"]] == [event["seq"] for event in page["events"]][::-1]
        return {event["action"] for event in page["events"]}

    assert await actions(job_id=first) == {"job.queued", "job.cancelled"}
    assert await actions(group_id=group) == {"group.created", "job.queued", "job.cancelled"}
    assert await actions(node_id=node.node_id) == {"node.enrolled", "node.online"}
    assert await actions(action="node.") == {"node.code_issued", "node.enrolled", "node.online"}
    assert await actions(action="node.o") == {"node.online"}
    assert await actions(action="job.c", account_id=me) == {"job.cancelled"}
    assert await actions(action="nothing") == set()
    assert await actions(actor=node.node_id) == {"node.enrolled", "node.online"}
    assert await actions(q="CANCELLED_by_user") == {"job.cancelled"}, "whatever its case"
    assert await actions(q="100%") == set(), "a sign of the database's language is only a sign"
    assert await actions(q=first) == {"job.queued", "job.cancelled"}
    assert await actions(until_ms=1) == set()
    assert await actions(since_ms=any_hub.hub.now_ms() + 10**6) == set()
    assert await actions(since_ms=1, until_ms=2**50, action="node.online") == {"node.online"}
    assert (await admin.get("/events", params={"action": "Node."})).status_code == 422
    assert (await admin.get("/events", params={"q": "a\x00b"})).status_code == 422
    assert (await admin.get("/events", params={"before": -1})).status_code == 422


async def test_nobody_finds_what_is_somebody_elses(any_hub: HubDouble) -> None:
    """Neither by asking for it, nor by a word in it, nor by names that come along."""
    sam, olga = await any_hub.account("sam", "submitter"), await any_hub.account("olga", "submitter")
    hers = (await olga.get("/me")).json()["id"]
    group = (await olga.post("/groups", json={"name": "secret group"})).json()["id"]
    [job] = await submit(olga, spec={"name": "secret plan"}, group_id=group, needs={"cores": 1000})
    for params in (
        {"account_id": hers}, {"actor": hers}, {"job_id": job}, {"group_id": group}, {"q": job}, {"q": hers}, {"q": "secret"},
        {"account_id": hers, "q": "queued"},
    ):  # fmt: skip
        for order in ({"newest": "true"}, {"before": 2**60}, {}):
            page = await got(sam, "/events", **params, **order)
            assert page["events"] == [], params
            assert page["names"] == {}
    for params in ({"q": "secret"}, {"q": job}, {"account_id": hers}, {"group_id": group}, {"all": "true"}):
        assert (await got(sam, "/jobs", **params))["jobs"] == [], params
    assert "secret" not in (await sam.get("/events", params={"newest": "true"})).text
    seen = (await got(any_hub.admin, "/events", newest="true", job_id=job))["names"]
    assert (seen[hers], seen[job], seen[group]) == ("olga", "secret plan", "secret group")
    own = (await got(olga, "/events", newest="true", job_id=job))["names"]
    assert own == {hers: "olga", job: "secret plan", group: "secret group"}


async def test_an_administrators_name_is_not_told_to_those_it_did_something_to(hub: HubDouble) -> None:
    boss = await hub.account("the-boss", "admin")
    sam = await hub.account("sam", "submitter")
    me = (await sam.get("/me")).json()["id"]
    await boss.put(f"/accounts/{me}/quotas", json={"jobs_open_max": 5})
    page = await got(sam, "/events", newest="true", action="account.quotas")
    assert len(page["events"]) == 1
    assert page["names"] == {me: "sam"}


@pytest.mark.soak
async def test_a_search_that_finds_little_can_be_gone_on_with(any_hub: HubDouble, monkeypatch: Any) -> None:
    await submit(any_hub.admin, items=30, needs={"cores": 1000})
    last = (await submit(any_hub.admin, spec={"name": "needle"}, needs={"cores": 1000}))[0]
    await submit(any_hub.admin, items=30, needs={"cores": 1000})
    for service in (event_service, job_service):
        monkeypatch.setattr(service, "_WINDOW", 4)
        monkeypatch.setattr(service, "_SCANNED_MAX", 8)
    page = await got(any_hub.admin, "/jobs", q="needle")
    assert (page["jobs"], page["next"] is None) == ([], False)
    assert await ids(any_hub.admin, q="NEEDLE") == [last]
    page = await got(any_hub.admin, "/events", q=last, newest="true")
    assert page["events"] == []
    assert page["searched_to_ms"] is not None
    [found] = await seqs(any_hub.admin, q=last)
    grown: list[int] = []
    after = 0
    for _ in range(20):
        page = await got(any_hub.admin, "/events", q=last, after=after)
        grown += [event["seq"] for event in page["events"]]
        after = page["cursor"]
    assert grown == [found]


async def test_a_filtered_long_poll_looks_at_no_event_twice(any_hub: HubDouble, monkeypatch: Any) -> None:
    await submit(any_hub.admin, items=9, needs={"cores": 1000})
    newest = (await got(any_hub.admin, "/events", newest="true", limit=1))["cursor"]
    page = await got(any_hub.admin, "/events", q="zzzz", after=0)
    assert (page["events"], page["cursor"]) == ([], newest), "the next request goes on where this one ended"
    looks: list[int] = []
    look = search_rows.growing_events
    monkeypatch.setattr(
        event_service, "_PAUSE_S", 1
    )  # On a busy machine each commit may take as long as the usual pause.

    def counted(*args: Any, after: int, **kwargs: Any) -> Any:
        looks.append(after)
        return look(*args, after=after, **kwargs)

    monkeypatch.setattr(search_rows, "growing_events", counted)
    poll = asyncio.create_task(got(any_hub.admin, "/events", action="group.", after=0, wait_ms=20_000))
    for _ in range(30):
        await submit(any_hub.admin, needs={"cores": 1000})
    await any_hub.admin.post("/groups", json={"name": "g"})
    [event] = (await asyncio.wait_for(poll, 19))["events"]
    assert event["action"] == "group.created"
    assert looks == sorted(set(looks)), "each look begins where the last one ended"
    assert len(looks) < 25, "not every commit of the pool is worth a look"


async def test_searches_leave_threads_for_other_reads(hub: HubDouble, monkeypatch: Any) -> None:
    held, go_on = Semaphore(0), Event()

    def stuck(*_: Any, **__: Any) -> Any:
        held.release()
        assert go_on.wait(60)
        return search_rows.SearchPage()

    monkeypatch.setattr(search_rows, "search_events", stuck)
    ask = partial(got, hub.admin, "/events", newest="true", q="zzzz")
    searches = [asyncio.create_task(ask()) for _ in range(8)]
    try:
        for _ in range(2):
            assert await asyncio.to_thread(held.acquire, timeout=60)
        assert (await asyncio.wait_for(got(hub.admin, "/jobs"), 30))["jobs"] == []
    finally:
        go_on.set()
        await asyncio.gather(*searches)


async def test_what_runs_is_found_behind_many_newer_jobs(any_hub: HubDouble, monkeypatch: Any) -> None:
    node = await any_hub.node()
    [job_id] = await submit(any_hub.admin)
    await node.take()
    [done] = await submit(any_hub.admin, spec={"name": "needle"}, needs={"cores": 1000})
    await submit(any_hub.admin, items=30, needs={"cores": 1000})
    monkeypatch.setattr(job_service, "_WINDOW", 4)
    monkeypatch.setattr(job_service, "_SCANNED_MAX", 8)
    page = await got(any_hub.admin, "/jobs", state=["leased", "running"])
    assert ([job["id"] for job in page["jobs"]], page["next"]) == ([job_id], None), "at once, and all of it"
    assert page["searched_to_ms"] is None
    page = await got(any_hub.admin, "/jobs", q="needle")
    assert page["jobs"] == []
    made = (await got(any_hub.admin, f"/jobs/{done}"))["created_at_ms"]
    assert made <= page["searched_to_ms"] <= any_hub.hub.now_ms(), "nothing so far is not nothing at all"


async def test_jobs_are_found_by_name_kind_state_node_and_time(any_hub: HubDouble) -> None:
    admin = any_hub.admin
    sam = await any_hub.account("sam", "submitter")
    node = await any_hub.node()
    [done] = await submit(sam, spec={"name": "alpha 50%"})
    [grant] = await node.take()
    await node.report(grant.attempt_id)
    keyed = (await sam.post("/jobs", json={
        "spec": {"kind": "script", "name": "beta", "source": "print(1)", "needs": {"cores": 1000}},
        "items": [{"key": "Gamma-7"}],
    })).json()["job_ids"][0]  # fmt: skip
    own = (await submit(admin, needs={"cores": 1000}))[0]
    assert set(await ids(admin)) == {done, keyed, own}
    assert await ids(admin, all="false") == [own]
    me = (await sam.get("/me")).json()["id"]
    assert set(await ids(admin, account_id=me)) == {done, keyed}
    assert await ids(sam, q="50%") == [done]
    assert await ids(sam, q="%") == [done]
    assert await ids(sam, q="gamma") == [keyed]
    assert await ids(sam, q=keyed) == [keyed]
    assert await ids(sam, kind="script") == [keyed]
    assert await ids(sam, node_id=node.node_id) == [done]
    assert await ids(sam, state=["succeeded", "failed"]) == [done]
    assert set(await ids(sam, state=["succeeded", "queued"])) == {done, keyed}
    now_ms = any_hub.hub.now_ms()
    assert await ids(sam, since_ms=now_ms + 60_000) == []
    assert set(await ids(sam, since_ms=now_ms - 600_000, until_ms=now_ms + 60_000)) == {done, keyed}
    listed = {job["id"]: job for job in (await got(admin, "/jobs"))["jobs"]}
    assert (listed[done]["account_name"], listed[done]["can_resubmit"]) == ("sam", False)
    mine = {job["id"]: job for job in (await got(sam, "/jobs"))["jobs"]}
    assert (mine[done]["account_name"], mine[done]["can_resubmit"]) == (None, True)


# against a look at every row

WORDS = ("node.online", "node.offline", "job.queued", "job.failed", "key.created", "attempt.failed")
told = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from("ab"), st.sampled_from(["x", "y", None]), st.integers(0, 5)),
    max_size=30,
)
asked = st.fixed_dictionaries(
    {},
    optional={
        "only_account_id": st.sampled_from("ab"),
        "account_id": st.sampled_from("ab"),
        "node_id": st.sampled_from("xy"),
        "actor": st.sampled_from("ab"),
        "action": st.sampled_from(["", "n", "node.", "node.on", "job.", "job.f", "key.", "att", "zz"]),
        "since_ms": st.integers(0, 6),
        "until_ms": st.integers(0, 6),
        "text": st.sampled_from(["", "on", "FAIL", "%", "é"]),
    },
)


def wanted(row: Any, want: dict[str, Any]) -> bool:
    text = want.get("text", "").lower()
    words = f"{row.action} {row.reason or ''} {row.data or ''}".lower()
    return all((
        want.get("only_account_id") in (None, row.account_id), want.get("account_id") in (None, row.account_id),
        want.get("node_id") in (None, row.node_id), want.get("actor") in (None, row.actor),
        row.action.startswith(want.get("action", "")),
        want.get("since_ms", 0) <= row.at_ms <= want.get("until_ms", 9),
        not text or text in words or json.dumps(text)[1:-1] in words,
    ))  # fmt: skip


@pytest.fixture(scope="module")
def told_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path_factory.mktemp('told') / 'hub.sqlite'}"
    migrate(url)
    store = open_store(url, clock=FakeClock(0), hub_id="h")
    yield store
    store.close()


@pytest.mark.soak
@settings(max_examples=60)
@given(told=told, want=asked, window=st.integers(1, 9), limit=st.integers(1, 4))
def test_a_search_finds_what_a_look_at_every_row_finds(
    told_store: Store, told: list[Any], want: dict[str, Any], window: int, limit: int
) -> None:
    def write(tx: Tx) -> None:
        tx.connection.execute(delete(events))
        for action, account, node, _ in told:
            job = "job_1" if action.startswith(search_rows.OF_JOBS) else None
            data = json.dumps({"said": "é 100%"}) if account == "a" else None
            tx.emit(actor=account, action=action, account_id=account, node_id=node, job_id=job, data=data)
        for event, (_, _, _, at_ms) in zip(tx.events, told, strict=True):
            event["at_ms"] = at_ms

    told_store.write_now(write)
    everything = partial(search_rows.growing_events, filters=EventFilter(), after=0, limit=99, window=99)
    every = told_store.read_now(everything).rows
    older = partial(search_rows.search_events, filters=EventFilter(**want), limit=limit, window=window)
    found: list[int] = []
    before: int | None = 2**62
    while before is not None:
        page = told_store.read_now(partial(older, before=before))
        assert len(page.rows) <= limit
        found += [row.seq for row in page.rows]
        before = page.seen
    expected = [row.seq for row in every if wanted(row, want)]
    assert found == expected[::-1]
    grown: list[int] = []
    younger = partial(search_rows.growing_events, filters=EventFilter(**want), limit=limit, window=window)
    after: int | None = 0
    while after is not None:
        page = told_store.read_now(partial(younger, after=after))
        grown += [row.seq for row in page.rows]
        after = page.seen
        assert page.upto in (None, max((row.seq for row in every), default=0))
    assert grown == expected


async def test_only_events_of_jobs_name_a_job(hub: HubDouble) -> None:
    """Searching by what was done relies on it: such events are found by an index that has no others."""
    node = await hub.node()
    for outcome in ({}, {"outcome": "failed", "reason": "node_restarted", "exit_code": None}):
        await submit(hub.admin)
        [grant] = await node.take()
        await node.report(grant.attempt_id, **outcome)
    found = (await got(hub.admin, "/events", limit=500))["events"]
    assert {event["action"] for event in found if event["job_id"] is not None} >= {"job.succeeded", "attempt.failed"}
    for event in found:
        assert (event["job_id"] is not None) == event["action"].startswith(search_rows.OF_JOBS), event


async def test_times_are_found_by_halving(tmp_path: Any) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        marks = []
        for _ in range(12):
            clock.advance(3_600_000)
            await submit(hub.admin, needs={"cores": 1000})
            marks.append(clock.now_ms())
        for at_ms in marks:
            page = await got(hub.admin, "/events", newest="true", until_ms=at_ms, limit=1)
            assert page["events"][0]["at_ms"] == at_ms
