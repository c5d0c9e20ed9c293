"""The node applies its owner's rules itself, and shows what jobs may do."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.execution.specs import prepare
from computepool.agent.owner.manifest import manifest
from computepool.agent.owner.owner_rules import FILE, OwnerRules
from computepool.core.placement.rules import Demand
from computepool.core.words import memory_size
from computepool.protocol.jobs.jobs import JobSpec, Needs
from computepool.protocol.nodes.nodes import Grant, NextReply
from computepool.protocol.nodes.rules import NO_RULES, NodeRules, rules_digest
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import OWNER, STRANGER, FakeHub, Outcome, Reason, command, function, script, until

NO_MINING = NodeRules(deny_labels=["mining"], minutes_max=60, network=False).body()
SMALL = NodeRules(ram_mb_max=1_000).body()
MINING = script("print(1)", labels=["mining"])


def bringing(rules: str) -> Any:
    def tamper(reply: NextReply) -> NextReply:
        return reply.model_copy(update={"rules": rules})

    return tamper


async def test_a_job_that_the_owners_rules_forbid_fails_whatever_the_hub_says(
    hub: FakeHub, start_node: StartNode, data_dir: Path
) -> None:
    (data_dir / FILE).write_text(NO_MINING)
    await start_node(level="namespace", network=True)
    refused = [
        *hub.submit(MINING, account=STRANGER),
        *hub.submit(command("true", timeout_s=3601), account=STRANGER),
        *hub.submit(script("print(1)", net=["a.test:443"]), account=STRANGER),
    ]
    fine, own = await hub.reports_of(
        [*hub.submit(command("true"), account=STRANGER), *hub.submit(MINING, account=OWNER)]
    )
    assert (fine.outcome, own.outcome) == (Outcome.SUCCEEDED, Outcome.SUCCEEDED)
    assert [(report.reason, report.error) for report in await hub.reports_of(refused)] == [
        (Reason.NODE_ERROR, "its owner takes no jobs labelled mining"),
        (Reason.NODE_ERROR, "its owner takes jobs of at most 60 minutes"),
        (Reason.NODE_ERROR, "its owner takes no jobs with network"),
    ]
    assert hub.polls[-1].rules == rules_digest(NO_MINING)


async def test_new_rules_apply_to_jobs_in_the_same_reply_without_blame(
    hub: FakeHub, start_node: StartNode, data_dir: Path
) -> None:
    await start_node()
    hub.tamper = bringing(NO_MINING)
    report = await hub.run(MINING, account=STRANGER)
    assert (report.outcome, report.reason) == (Outcome.RETURNED, Reason.GIVEN_BACK)
    assert (data_dir / FILE).read_text() == NO_MINING
    assert OwnerRules(data_dir).digest == rules_digest(NO_MINING)
    hub.tamper = bringing(NO_RULES)
    await hub.run(MINING, account=OWNER)
    assert OwnerRules(data_dir).refusals(Demand(account=STRANGER, labels=frozenset({"mining"}))) == []


@pytest.mark.parametrize("body", ["", "{", '{"a_rule_of_tomorrow": true}', "\x00", '{"minutes_max": -1}'])
def test_unreadable_rules_allow_nothing_until_new_ones_come(tmp_path: Path, body: str) -> None:
    (tmp_path / FILE).write_text(body)
    rules = OwnerRules(tmp_path)
    assert rules.refusals(Demand(account=STRANGER)) == ["the owner's rules cannot be read on this node"]
    assert rules.digest not in ("", rules_digest(body)), "so that the hub sends them again"
    rules.update(NO_MINING)
    assert rules.refusals(Demand(account=STRANGER)) == []


@pytest.mark.soak
async def test_a_job_without_a_memory_limit_gets_the_share_of_its_cores_within_the_owners_rules(
    hub: FakeHub, start_node: StartNode
) -> None:
    """The hub reserves as much, so that jobs on all cores never have more than the node offers."""
    node = await start_node()
    assert (node.machine.profile.cores, node.machine.profile.ram_mb) == (2, 4096)

    async def limits_of(*wanted: Needs) -> list[str | None]:
        specs = [function(lambda: os.environ["COMPUTEPOOL_RAM_MB"], needs=needs) for needs in wanted]
        return [(await hub.run(spec)).result for spec in specs]

    asked = [Needs(), Needs(cores=0.5), Needs(cores=0.1), Needs(ram_mb=100), Needs(ram_mb=2_500)]
    assert await limits_of(*asked) == ['"2048"', '"1024"', '"512"', '"100"', '"2500"']
    assert all(needs.requirements().ram_mb == (needs.ram_mb or 512) for needs in asked), "what a node must have"
    hub.tamper = bringing(SMALL)  # They apply to specs that are known already.
    assert await limits_of(*asked[:3]) == ['"1000"', '"1000"', '"512"']


def test_the_manifest_shows_what_the_sandbox_allows() -> None:
    spec = JobSpec(
        kind="command",  # type: ignore[arg-type]
        name="train",
        argv=["true"],
        needs=Needs(cores=2, ram_mb=2048, disk_mb=500, gpus=1),
        net=["b.test:443", "*.a.test:80"],
        labels=["ml"],
        timeout_s=5401,
    )
    prepared = prepare("0" * 64, spec, memory_mb=spec.requirements().ram_mb)
    grant = Grant(attempt_id="a", attempt_no=1, job_id="job_1", lane="l", spec="0" * 64, account_id=STRANGER, gpus=[3])
    shown = manifest(grant, prepared)
    limits = prepared.limits
    assert (shown.cores, shown.ram_mb, shown.disk_mb) == (limits.cpus, limits.memory_mb, limits.disk_mb)
    assert shown.minutes * 60 >= limits.wall_s > (shown.minutes - 1) * 60
    assert shown.network == tuple(map(str, prepared.net)) == ("b.test:443", "*.a.test:80")
    assert prepared.worker_key(STRANGER, (3,)).net == tuple(sorted(prepared.net))
    assert shown.gpus == (3,)
    assert shown.sentence == (
        f"job_1 (train) of {STRANGER}, labelled ml: 2 cores, 2 GB RAM, 501 MB disk, 91 minutes, GPU 3, "
        "network to b.test:443, *.a.test:80"
    )


async def test_the_status_and_the_log_show_whose_job_runs_and_what_it_may_do(
    hub: FakeHub, start_node: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="computepool")
    node = await start_node(level="namespace")
    attempts = hub.submit(command("sleep", "30"), [None] * 2, account=STRANGER)
    await until(lambda: len(node.agent.status()["running"]) == 2)
    shown = next(job for job in node.agent.status()["running"] if job["attempt_id"] == attempts[0])
    assert (shown["submitter"], shown["network"], shown["gpus"], shown["minutes"]) == (STRANGER, (), (), 1)
    lines = [record.message for record in caplog.records if record.message.startswith("running ")]
    assert len(lines) == 1, "one line for all that are alike"
    share = command("true").requirements().ram_on(node.machine.profile.capacity())
    assert f"of acc_stranger: 1 core, {memory_size(share)} RAM" in lines[0]
    assert lines[0].endswith("no GPU, no network")
    for attempt in attempts:
        hub.stop_attempt(attempt)
