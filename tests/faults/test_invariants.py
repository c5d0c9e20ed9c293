"""`pool hub check` finds each rule that is broken by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from computepool.core.errors import NotFound
from computepool.hub.db.schema import migrate
from computepool.hub.main import check
from computepool.hub.observability.invariants import POOL_RULES, check_all
from computepool.hub.settings import Settings
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import body, submit
from tests.hub.volumes.changing import put

#: Damage to the database, by the rule it breaks. The jobs have the names that `world` gives them.
DAMAGE = {
    "the storage counted for an account is what it stores in the database": (
        "UPDATE inline_storage SET bytes = bytes + 1"
    ),
    "a job whose results are compared waits for an answer": (
        "UPDATE jobs SET comparing = '{done}' WHERE id = '{waiting}'"
    ),
    "an unfinished job names its checkpoint, a finished one has none": (
        "UPDATE jobs SET checkpoint_no = 1 WHERE id = '{held}'"
    ),
    "a job has at most one accepted attempt": (
        "UPDATE attempts SET state = 'succeeded', report_digest = 'x' WHERE id = '{retried}-1'"
    ),
    "an accepted attempt was reported as succeeded": ("UPDATE attempts SET report_digest = NULL WHERE id = '{done}-1'"),
    "a job has succeeded exactly when an attempt was accepted": (
        "UPDATE jobs SET accepted_attempt = NULL WHERE id = '{done}'"
    ),
    "a finished job has no live attempt": ("UPDATE attempts SET state = 'leased' WHERE id = '{failed}-1'"),
    "a queued job has no live attempt": ("UPDATE jobs SET state = 'queued' WHERE id = '{held}'"),
    "a leased or running job has one live attempt, its newest": (
        "UPDATE attempts SET state = 'running' WHERE id = '{held}-1'"
    ),
    "all unfinished members of a gang wait, or all are held, with as many attempts": (
        "UPDATE jobs SET gang = '{waiting}' WHERE id IN ('{waiting}', '{held}')"
    ),
    "a job's attempt number is that of its newest attempt": ("UPDATE jobs SET attempt_no = 7 WHERE id = '{waiting}'"),
    "an attempt is named after its job and number": ("UPDATE attempts SET number = 9 WHERE id = '{failed}-1'"),
    "an attempt has an end time exactly when it is over": (
        "UPDATE attempts SET finished_at_ms = NULL WHERE id = '{done}-1'"
    ),
    "a job has an end time exactly when it is finished": ("UPDATE jobs SET finished_at_ms = 1 WHERE id = '{held}'"),
    "a job counts the unfinished jobs it waits for": ("UPDATE jobs SET deps_pending = 0 WHERE id = '{waiting}'"),
    "no queued job waits for one that failed": (
        "UPDATE dependencies SET after_id = '{failed}' WHERE job_id = '{waiting}'"
    ),
    "a job's events follow each other without a gap": (
        "DELETE FROM events WHERE job_id = '{done}' AND action = 'job.leased'"
    ),
    "a job's last event states its state": ("DELETE FROM events WHERE job_id = '{held}' AND action = 'job.leased'"),
    "a finished job has one final event, an unfinished one none": (
        "UPDATE events SET final = FALSE WHERE job_id = '{done}'"
    ),
    "a job's group exists and has the job's owner": ("UPDATE groups SET account_id = '{other}' WHERE id = '{group}'"),
    "a watched group is complete exactly when it waits for nothing": (
        "UPDATE groups SET completed_at_ms = NULL WHERE id = '{complete}'"
    ),
    "the open jobs of a watched group are marked as watched": ("UPDATE groups SET watched = TRUE WHERE id = '{group}'"),
    "a group's keys are counted, and have a job exactly when their state says so": (
        "UPDATE expected_jobs SET state = 'job' WHERE group_id = '{complete}'"
    ),
    "a group's home is a node of its owner": "UPDATE groups SET home = 'node_gone' WHERE id = '{group}'",
    "secrets are encrypted with a key that the hub has": "UPDATE signing_keys SET private_key = NULL",
    "the head of a volume is one of its versions": "UPDATE volumes SET head = 7",
    "a version of a volume keeps its manifest": "DELETE FROM artifact_refs WHERE role = 'volume'",
    "a schedule has a next tick if and only if it is active": "UPDATE schedules SET state = 'paused'",
    "every reference leads to an existing object": ("UPDATE jobs SET node_id = 'node_gone' WHERE id = '{done}'"),
    "a node's reputation follows from its events": "UPDATE reputations SET success = success + 1",
    "a submitter's reputation follows from the events": (
        "INSERT INTO submitter_reputations (account_id, success, failure, changed_at_ms, completed, failed, harmful, cancelled) "
        "VALUES ('{other}', 1, 0, 1, 1, 0, 0, 0)"
    ),
}


@dataclass(frozen=True)
class World:
    """A stopped hub's database with a job in every interesting state."""

    settings: Settings
    jobs: dict[str, str]

    def damaged(self, statement: str) -> list[str]:
        """The checks' findings in a transaction that is rolled back afterwards."""
        engine = create_engine(self.settings.url)
        try:
            with engine.connect() as connection:
                connection.execute(text(statement.format(**self.jobs)))
                return check_all(connection)
        finally:
            engine.dispose()


async def _fill(hub: HubDouble) -> dict[str, str]:
    node = await hub.node(cores=1)
    hub.hub.settings.backoff_base_s = 0.01
    made = {"group": (await hub.admin.post("/groups", json={"name": "g"})).json()["id"]}
    made["complete"] = (await hub.admin.post("/groups", json={"name": "c"})).json()["id"]
    await hub.admin.post(f"/groups/{made['complete']}/keys", json={"keys": [{"key": "a"}]})
    said = {"reports": [{"key": "a", "outcome": "succeeded"}]}
    await hub.admin.post(f"/groups/{made['complete']}/reports", json=said)
    await hub.admin.put("/secrets/TOKEN", json={"value": "abcd"})
    assert (await hub.admin.post("/volumes", json={"name": "data"})).status_code == 201
    assert (await put(hub.admin, "first", parent=0))["version"]["is_head"]
    nightly = {"name": "nightly", "cron": "0 3 * * *", "request": body()}
    assert (await hub.admin.post("/schedules", json=nightly)).status_code == 201
    made["other"] = (await hub.admin.post("/accounts", json={"name": "o", "roles": ["submitter"]})).json()["id"]
    for name, fields in {"done": {}, "failed": {}, "retried": {"retries": 1}}.items():
        [made[name]] = await submit(hub.admin, **fields)
        [grant] = await node.take()
        if name == "done":
            await node.report(grant.attempt_id)
        else:
            await node.report(grant.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1)
    [again] = await node.take()
    await node.report(again.attempt_id)
    [made["held"]] = await submit(hub.admin)
    await node.take()
    await submit(hub.admin, group_id=made["group"])
    [made["waiting"]] = await submit(hub.admin, after=[made["held"]])
    return made


async def _make(folder: Path, url: str) -> dict[str, str]:
    async with running_hub(folder, database_url=url) as hub:
        return await _fill(hub)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    url = request.getfixturevalue("postgres").fresh_database(migrate) if request.param == "postgresql" else ""
    jobs = asyncio.run(_make(folder, url))
    return World(Settings(data_dir=folder, DATABASE_URL=url), jobs)


def test_every_rule_has_its_damage() -> None:
    assert DAMAGE.keys() == POOL_RULES.keys()


@pytest.mark.soak
def test_a_healthy_database_breaks_no_rule(world: World) -> None:
    assert check(world.settings) == []


@pytest.mark.parametrize("rule", DAMAGE)
def test_damage_is_found_and_named(world: World, rule: str) -> None:
    found = [sentence for sentence in world.damaged(DAMAGE[rule]) if rule in sentence]
    assert len(found) == 1
    assert found[0].startswith(f"Broken: {rule}: ")


def test_a_missing_database_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="There is no database"):
        check(Settings(data_dir=tmp_path))
    assert list(tmp_path.iterdir()) == []
