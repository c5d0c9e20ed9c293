"""The collector against a model of it: any order of registering, reporting, submitting, running and cancelling."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.groups.test_collector import completions, report, summary
from tests.hub.groups.test_groups import make_group
from tests.hub.submitting import COMMAND

KEYS = "abcdef"
STEPS = 14


@dataclass
class Model:
    """What the words of docs/groups.md come to, without a database."""

    expected: dict[str, str] = field(default_factory=dict)  #: pending, succeeded, failed; with a job: job
    jobs: dict[str, str] = field(default_factory=dict)  #: by key
    duplicates: int = 0
    rounds: int = 0
    open: bool = True

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        shown = [{"pending": "expected"}.get(state, state) for state in self.expected.values()]
        for state in (*self.jobs.values(), *(state for state in shown if state != "job")):
            found[state] = found.get(state, 0) + 1
        return found

    @property
    def watched(self) -> bool:
        return bool(self.expected)

    def settle(self) -> None:
        waits = "pending" in self.expected.values() or "queued" in self.jobs.values()
        if self.watched and self.open and not waits:
            self.open, self.rounds = False, self.rounds + 1

    def register(self, keys: list[str]) -> None:
        for key in keys:
            if key not in self.expected:
                self.expected[key] = "job" if key in self.jobs else "pending"
                if self.expected[key] == "pending":
                    self.open = True
        self.settle()

    def report(self, key: str, outcome: str) -> str:
        state = self.expected.get(key)
        if state is None:
            return "unknown"
        if state == "pending":
            self.expected[key] = outcome
            self.settle()
            return "accepted"
        self.duplicates += 1
        return "has_job" if state == "job" else "duplicate"

    def submit(self, keys: list[str]) -> int:
        if any(self.expected.get(key) in ("succeeded", "failed") or key in self.jobs for key in keys):
            return 409
        for key in keys:
            self.jobs[key] = "queued"
            if key in self.expected:
                self.expected[key] = "job"
        self.open = True
        return 201

    def end(self, key: str, state: str) -> None:
        self.jobs[key] = state
        self.settle()

    def cancel(self) -> None:
        self.jobs = {key: "cancelled" if state == "queued" else state for key, state in self.jobs.items()}
        self.expected = {key: "failed" if state == "pending" else state for key, state in self.expected.items()}
        self.settle()


class Play:
    """One group, and the model of it; every step is done to both."""

    def __init__(self, hub: HubDouble, node: NodeDouble, *, group: str, chance: random.Random) -> None:
        self.hub, self.node, self.group, self.chance = hub, node, group, chance
        self.model = Model()
        self.ids: dict[str, str] = {}

    async def step(self) -> str:
        act = self.chance.choice(["register", "report", "report", "submit", "submit", "run", "cancel_one"])
        keys = self.chance.sample(KEYS, self.chance.randint(1, 2))
        if self.chance.random() < 0.04:
            act = "cancel"
        await getattr(self, act)(keys)
        return f"{act} {keys}"

    async def register(self, keys: list[str]) -> None:
        sent = {"keys": [{"key": key} for key in keys]}
        (await self.hub.admin.post(f"/groups/{self.group}/keys", json=sent)).raise_for_status()
        self.model.register(keys)

    async def report(self, keys: list[str]) -> None:
        said = [(key, self.chance.choice(["succeeded", "failed"])) for key in keys]
        wanted = [self.model.report(*one) for one in said]
        assert await report(self.hub.admin, self.group, *said) == wanted

    async def submit(self, keys: list[str]) -> None:
        sent = {"spec": COMMAND, "items": [{"key": key} for key in keys], "group_id": self.group}
        answer = await self.hub.admin.post("/jobs", json=sent)
        assert answer.status_code == self.model.submit(keys), answer.text
        if answer.status_code == 201:
            self.ids |= dict(zip(keys, answer.json()["job_ids"], strict=True))

    async def run(self, _: list[str]) -> None:
        waiting = {self.ids[key]: key for key, state in self.model.jobs.items() if state == "queued"}
        for grant in await self.node.take(len(waiting)):
            good = self.chance.random() < 0.6
            ends = {} if good else {"outcome": "failed", "reason": "exit_nonzero", "exit_code": 3}
            await self.node.report(grant.attempt_id, **ends)
            self.model.end(waiting[grant.job_id], "succeeded" if good else "failed")

    async def cancel_one(self, keys: list[str]) -> None:
        for key in keys:
            if self.model.jobs.get(key) == "queued":
                await self.hub.admin.post(f"/jobs/{self.ids[key]}/cancel")
                self.model.end(key, "cancelled")

    async def cancel(self, _: list[str]) -> None:
        await self.hub.admin.post(f"/groups/{self.group}/cancel")
        self.model.cancel()

    async def compare(self, done: list[str]) -> None:
        found = await summary(self.hub.admin, self.group)
        model = self.model
        counts: dict[str, int] = {}
        for state, count in found["counts"].items():
            shown = "queued" if state in ("leased", "running") else state  # when it is placed is not the point
            counts[shown] = counts.get(shown, 0) + count
        assert counts == model.counts, done
        assert found["duplicates"] == model.duplicates, done
        assert found["expected"] == len(model.expected), done
        assert (found["completed_at_ms"] is not None) == (model.watched and not model.open), done
        assert await completions(self.hub, self.group) == model.rounds, done
        listed = {part: {item["key"] for item in found[part]["items"]} for part in ("results", "waiting")}
        assert listed["waiting"] == _keys(model, "pending", "queued"), done
        assert listed["results"] == _keys(model, "succeeded"), done


def _keys(model: Model, *states: str) -> set[str]:
    both = (*model.expected.items(), *model.jobs.items())
    return {key for key, state in both if state in states}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
async def test_any_order_of_events_comes_to_what_the_model_says(any_hub: HubDouble, seed: int) -> None:
    node = await any_hub.node(cores=16)
    chance = random.Random(seed)
    for number in range(3):
        group = await make_group(any_hub.admin, f"model {number}")
        play = Play(any_hub, node, group=group, chance=chance)
        done: list[str] = []
        for _ in range(STEPS):
            done.append(await play.step())
            await play.compare(done)
        await play.cancel([])


async def test_reports_that_race_are_counted_and_one_of_them_stands(any_hub: HubDouble) -> None:
    """Eight at once for each of four keys, while the last job of the group ends: one completion, and 28 duplicates."""
    hub = any_hub
    node = await hub.node(cores=2)
    group = await make_group(hub.admin)
    sent = {"keys": [{"key": key} for key in "abcdj"]}
    (await hub.admin.post(f"/groups/{group}/keys", json=sent)).raise_for_status()
    job = {"spec": COMMAND, "items": [{"key": "j"}], "group_id": group}
    (await hub.admin.post("/jobs", json=job)).raise_for_status()
    [grant] = await node.take()
    said = [report(hub.admin, group, (key, "succeeded")) for key in "abcd" for _ in range(8)]
    verdicts = await asyncio.gather(*said, node.report(grant.attempt_id))
    assert sum(1 for verdict in verdicts if verdict == ["accepted"]) == 4
    found = await summary(hub.admin, group)
    assert (found["complete"], found["duplicates"], found["succeeded"]) == (True, 28, 5)
    assert await completions(hub, group) == 1
