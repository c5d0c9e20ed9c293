"""Change notifications for open pages: complete, quick, and never too frequent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from computepool.hub.identity import access
from computepool.hub.observability.live import news
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.observability.test_events import headers, seqs
from tests.hub.streaming import opened
from tests.hub.submitting import submit

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


@pytest.mark.soak
async def test_changes_at_one_moment_are_reported_together(tmp_path: Path) -> None:
    async with running_hub(tmp_path, news_every_s=0.3) as hub, opened(hub.app, NEWS, headers(hub.admin)) as stream:
        first = set(await submit(hub.admin, needs={"cores": 1000}))
        assert set((await stream.data())["job_ids"]) == first, "the first is not kept waiting"
        later = {job for _ in range(10) for job in await submit(hub.admin, needs={"cores": 1000})}
        told: list[set[str]] = []
        while set().union(*told) != later:
            told.append(set((await stream.data())["job_ids"]))
        assert len(told) < len(later)


async def test_a_flood_of_events_is_cut_and_marked_as_partial(prompt: HubDouble) -> None:
    before = (await seqs(prompt.admin))[-1]
    jobs = await submit(prompt.admin, items=50, needs={"cores": 1000})
    async with opened(prompt.app, NEWS, headers(prompt.admin, **{"Last-Event-ID": str(before)})) as stream:
        news = await stream.data()
        assert news["partial"] is True
        assert len(news["job_ids"]) <= 21
        assert news["cursor"] == (await seqs(prompt.admin, limit=500))[-1], "what was left out does not come later"
        [next_one] = await submit(prompt.admin, needs={"cores": 1000})
        after = await stream.data()
        assert (after["job_ids"], after["partial"]) == ([next_one], False)
        assert next_one not in jobs


async def test_news_cover_own_events_and_for_an_admin_all(prompt: HubDouble) -> None:
    sam, olga = await prompt.account("sam", "submitter"), await prompt.account("olga", "submitter")
    async with opened(prompt.app, NEWS, headers(sam)) as sams, opened(prompt.app, NEWS, headers(prompt.admin)) as all_:
        [hers] = await submit(olga, needs={"cores": 1000})
        [his] = await submit(sam, needs={"cores": 1000})
        assert (await sams.data())["job_ids"] == [his]
        heard: set[str] = set()
        while heard != {hers, his}:
            heard |= set((await all_.data())["job_ids"])


@pytest.mark.parametrize("stream_of", ["events/news", "events/stream"])
async def test_a_former_administrator_no_longer_receives_others_events(prompt: HubDouble, stream_of: str) -> None:
    ann = await prompt.account("ann", "admin")
    account_id = (await ann.get("/me")).json()["id"]
    async with opened(prompt.app, f"/api/v1/{stream_of}", headers(ann)) as stream:
        changed = await prompt.admin.put(f"/accounts/{account_id}/roles", json={"roles": ["submitter"]})
        assert changed.status_code == 200
        await submit(prompt.admin, needs={"cores": 1000})
        while (event := await stream.event()) is not None:
            assert "job" not in event["data"]


async def test_a_stream_sends_keep_alives(tmp_path: Path) -> None:
    """A page takes silence for a hub that hangs."""
    async with running_hub(tmp_path, news_alive_s=0.05) as hub, opened(hub.app, NEWS, headers(hub.admin)) as stream:
        heard = 0
        while heard < 3:
            event = await stream.event(alive=True)
            assert event is not None
            if event.get("event") == "alive":
                heard += 1
                assert event["data"] == "50"
        [job_id] = await submit(hub.admin, needs={"cores": 1000})
        assert (await stream.data())["job_ids"] == [job_id]


async def test_events_of_others_do_not_delay_keep_alives(prompt: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is also a check whether the reader's key is still valid."""
    monkeypatch.setattr(prompt.hub.settings, "news_alive_s", 0.3)
    sam = access.Principal(account_id="acc_sam", name="sam", roles=frozenset())
    told = news.stream(prompt.hub, sam, after=0)

    async def others() -> None:
        while True:
            await submit(prompt.admin, needs={"cores": 1000})
            await asyncio.sleep(0.02)

    busy = asyncio.create_task(others())
    async with asyncio.timeout(60):
        assert await anext(told) is None
    busy.cancel()


async def test_open_streams_are_limited_per_account(tmp_path: Path) -> None:
    async with running_hub(tmp_path, streams_max=2) as hub:
        sam = await hub.account("sam", "submitter")
        async with (
            opened(hub.app, NEWS, headers(sam)),
            opened(hub.app, "/api/v1/events/stream", headers(sam)),
            opened(hub.app, NEWS, headers(hub.admin)) as others,
        ):
            refused = await sam.get("/events/news")
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
            assert refused.headers["retry-after"] == "60"
            assert others.status == 200
        async with opened(hub.app, NEWS, headers(sam)) as again:
            assert again.status == 200
        assert not hub.hub.observability.listening


async def test_a_revoked_key_ends_its_news(prompt: HubDouble) -> None:
    sam = await prompt.account("sam", "submitter")
    made = (await sam.post("/keys", json={"name": "page"})).json()
    async with opened(prompt.app, NEWS, {"Authorization": f"Bearer {made['key']}"}) as stream:
        await sam.delete(f"/keys/{made['id']}")
        await submit(sam, needs={"cores": 1000})
        assert await stream.event() is None
