"""References and garbage collection against a model: after any sequence of events, exactly the referenced files are there.

The model knows who refers to what and why, and nothing of rows, places or batches.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from computepool.hub.artifacts import garbage_collection
from computepool.hub.clock import SystemClock
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import body

DAY_MS = 24 * 3600 * 1000
KEEP_DAYS, GRACE_DAYS = 10, 1
FILES = tuple(b"file %d" % number for number in range(3))
DIGESTS = tuple(hashlib.sha256(data).hexdigest() for data in FILES)
ACCOUNTS = ("sam", "olga")

who, what = st.sampled_from(ACCOUNTS), st.integers(0, len(FILES) - 1)
events = st.one_of(
    st.tuples(st.just("send"), who, what),
    st.tuples(st.just("submit"), who, what),
    st.tuples(st.just("cancel"), who, what),
    st.tuples(st.just("keep"), who, what, st.sampled_from([None, 5, 30])),
    st.tuples(st.just("release"), who, what),
    st.tuples(st.just("remove"), who, what),
    st.tuples(st.just("die"), who, what),
    st.tuples(st.just("wait"), st.integers(1, 12)),
    st.tuples(st.just("collect")),
)


@dataclass
class Model:
    """Until when each reason keeps a file, in days; None: not known."""

    today: float = 0
    sent: dict[tuple[str, int], float] = field(default_factory=dict)
    kept: dict[tuple[str, int], float | None] = field(default_factory=dict)
    open: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    ended: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def reasons(self, key: tuple[str, int]) -> list[float | None]:
        """Reasons that have not been collected yet, past their time or not."""
        found: list[float | None] = [None for _ in self.open.get(key, [])]
        found += [self.sent[key]] if key in self.sent else []
        found += [self.kept[key]] if key in self.kept else []
        return found + list(self.ended.get(key, []))

    def collect(self) -> None:
        self.sent = {key: until for key, until in self.sent.items() if until > self.today}
        self.kept = {key: until for key, until in self.kept.items() if until is None or until > self.today}
        self.ended = {key: [one for one in ends if one > self.today] for key, ends in self.ended.items()}

    def forget(self, key: tuple[str, int]) -> None:
        for reasons in (self.sent, self.kept, self.ended):
            reasons.pop(key, None)


class World:
    def __init__(self, hub: HubDouble, clock: FakeClock, clients: dict[str, httpx2.AsyncClient]) -> None:
        self.hub, self.clock, self.clients, self.model = hub, clock, clients, Model()

    async def send(self, name: str, file: int) -> None:
        data = FILES[file]
        answer = await self.clients[name].put(f"/artifacts/{DIGESTS[file]}", params={"size": len(data)}, content=data)
        assert answer.json()["complete"]
        self.model.sent[name, file] = self.model.today + KEEP_DAYS

    async def submit(self, name: str, file: int) -> None:
        inputs = [{"name": "in", "digest": DIGESTS[file], "size": len(FILES[file])}]
        answer = await self.clients[name].post("/jobs", json=body(spec={"inputs": inputs}, needs={"cores": 1000}))
        assert (answer.status_code == 201) == bool(self.model.reasons((name, file))), answer.text
        if answer.status_code == 201:
            self.model.open.setdefault((name, file), []).append(answer.json()["job_ids"][0])

    async def cancel(self, name: str, file: int) -> None:
        for job_id in self.model.open.pop((name, file), []):
            assert (await self.clients[name].post(f"/jobs/{job_id}/cancel")).status_code == 200
            self.model.ended.setdefault((name, file), []).append(self.model.today + KEEP_DAYS)

    async def keep(self, name: str, file: int, days: int | None) -> None:
        span = {} if days is None else {"duration_s": days * DAY_MS / 1000}
        answer = await self.clients[name].put(f"/artifacts/{DIGESTS[file]}/keep", json=span)
        assert (answer.status_code == 200) == bool(self.model.reasons((name, file)))
        if answer.status_code == 200:
            self.model.kept[name, file] = None if days is None else self.model.today + days

    async def release(self, name: str, file: int) -> None:
        answer = await self.clients[name].delete(f"/artifacts/{DIGESTS[file]}/keep")
        assert (answer.status_code == 204) == ((name, file) in self.model.kept)
        self.model.kept.pop((name, file), None)

    async def remove(self, name: str, file: int) -> None:
        key = (name, file)
        answer = await self.clients[name].delete(f"/artifacts/{DIGESTS[file]}")
        expected = 409 if self.model.open.get(key) else 204 if self.model.reasons(key) else 404
        assert answer.status_code == expected
        if expected == 204:
            self.model.forget(key)

    async def die(self, _name: str, file: int) -> None:
        """A hub dies after it has placed an upload and before it writes the row."""
        upload = self.hub.hub.artifacts.blobs.open_upload(DIGESTS[file], "a dead hub's client", offset=0)
        upload.append(FILES[file])
        upload.finish(len(FILES[file]))
        upload.close()

    async def wait(self, days: int) -> None:
        self.clock.advance(days * DAY_MS)
        self.model.today += days

    async def collect(self) -> None:
        await garbage_collection.collect(self.hub.hub)
        self.model.collect()

    async def check(self) -> None:
        for name, client in self.clients.items():
            for file, digest in enumerate(DIGESTS):
                answer = await client.get(f"/artifacts/{digest}")
                reasons = self.model.reasons((name, file))
                assert answer.status_code == (200 if reasons else 404), (name, file, self.model)
                assert not reasons or answer.content == FILES[file]
                if reasons:
                    told = (await client.get(f"/artifacts/{digest}/info")).json()["kept_until_ms"]
                    assert (told is None) == (None in reasons)

    async def end(self) -> None:
        """After the grace time, exactly the files with a reason are stored, each once."""
        await self.wait(GRACE_DAYS + 1)
        await self.collect()
        await self.check()
        wanted = sorted(
            DIGESTS[file] for file in range(len(FILES)) if any(self.model.reasons((a, file)) for a in ACCOUNTS)
        )
        assert sorted(one.place[3:67] for one in self.hub.hub.artifacts.blobs.walk(after="", limit=100)) == wanted
        for name, client in self.clients.items():
            for file, digest in enumerate(DIGESTS):
                await self.cancel(name, file)
                await client.delete(f"/artifacts/{digest}")


async def _play(folder: Path, histories: list[list[tuple[object, ...]]]) -> None:
    clock = FakeClock(SystemClock().now_ms())
    options = {"artifact_keep_s": KEEP_DAYS * 86400, "artifact_grace_s": GRACE_DAYS * 86400}
    async with running_hub(folder, clock=clock, **options) as hub:
        clients = {name: await hub.account(name, "submitter") for name in ACCOUNTS}
        for history in histories:
            world = World(hub, clock, clients)
            for name, *arguments in history:
                await getattr(world, str(name))(*arguments)
                await world.check()
            await world.end()


@pytest.mark.soak
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example(histories=[[("die", "sam", 0)], [("send", "sam", 0), ("submit", "sam", 0), ("wait", 12), ("collect",)]])
@given(histories=st.lists(st.lists(events, max_size=14), min_size=1, max_size=5))
def test_what_something_keeps_is_there_and_nothing_else(
    tmp_path_factory: object, histories: list[list[tuple[object, ...]]]
) -> None:
    folder: Path = tmp_path_factory.mktemp("hub")  # type: ignore[attr-defined]
    asyncio.run(_play(folder, histories))
