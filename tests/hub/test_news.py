"""What open pages are told: everything that changed, soon, and never more often than they can take."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from computepool.testing.hub import HubDouble, running_hub
from tests.hub.streaming import opened
from tests.hub.submitting import submit
from tests.hub.test_events import headers, seqs

NEWS = "/api/v1/events/news"


@pytest.fixture
async def prompt(tmp_path: Path) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path, news_every_s=0, news_events_max=20) as running:
        yield running


async def test_news_name_what_changed(any_hub: HubDouble) -> None:
    async with opened(any_hub.app, NEWS, headers(any_hub.admin)) as stream:
        assert stream.status == 200
        [job_id] = await submit(any_hub.admin, needs={"cores": 1000})
        event = await stream.event()
        assert event is not None
        assert "event" not in event, "a browser hears it without knowing names"
        news = json.loads(event["data"])
        assert (news["kinds"], news["job_ids"], news["node_ids"]) == (["job"], [job_id], [])
        assert news["cursor"] == int(event["id"]) == (await seqs(any_hub.admin))[-1]
        node = await any_hub.node()
        seen: set[str] = set()
        while node.node_id not in seen:
            seen |= set((await stream.data())["node_ids"])


async def test_what_happens_in_one_moment_is_told_together(tmp_path: Path) -> None:
    async with (
        running_hub(tmp_path, news_every_s=0.3) as hub,
        opened(hub.app, NEWS, headers(hub.admin)) as stream,
    ):
        first = set(await submit(hub.admin, needs={"cores": 1000}))
        assert set((await stream.data())["job_ids"]) == first, "the first is not kept waiting"
        later = {job for _ in range(10) for job in await submit(hub.admin, needs={"cores": 1000})}
        told: list[set[str]] = []
        while set().union(*told) != later:
            told.append(set((await stream.data())["job_ids"]))
        assert len(told) < len(later)


async def test_a_flood_is_cut_and_said_so(prompt: HubDouble) -> None:
    before = (await seqs(prompt.admin))[-1]
    jobs = await submit(prompt.admin, items=50, needs={"cores": 1000})
    async with opened(prompt.app, NEWS, headers(prompt.admin, **{"Last-Event-ID": str(before)})) as stream:
        news = await stream.data()
        assert news["partial"] is True
        assert len(news["job_ids"]) <= 21
        assert news["cursor"] == (await seqs(prompt.admin, limit=500))[-1], (
            "what was left out does not come later"
        )
        [next_one] = await submit(prompt.admin, needs={"cores": 1000})
        after = await stream.data()
        assert (after["job_ids"], after["partial"]) == ([next_one], False)
        assert next_one not in jobs


async def test_everybody_hears_of_their_own_and_an_admin_of_all(prompt: HubDouble) -> None:
    sam, olga = await prompt.account("sam", "submitter"), await prompt.account("olga", "submitter")
    async with (
        opened(prompt.app, NEWS, headers(sam)) as sams,
        opened(prompt.app, NEWS, headers(prompt.admin)) as all_,
    ):
        [hers] = await submit(olga, needs={"cores": 1000})
        [his] = await submit(sam, needs={"cores": 1000})
        assert (await sams.data())["job_ids"] == [his]
        heard: set[str] = set()
        while heard != {hers, his}:
            heard |= set((await all_.data())["job_ids"])


async def test_who_is_signed_out_hears_no_more(prompt: HubDouble) -> None:
    sam = await prompt.account("sam", "submitter")
    made = (await sam.post("/keys", json={"name": "page"})).json()
    async with opened(prompt.app, NEWS, {"Authorization": f"Bearer {made['key']}"}) as stream:
        await sam.delete(f"/keys/{made['id']}")
        await submit(sam, needs={"cores": 1000})
        assert await stream.event() is None
