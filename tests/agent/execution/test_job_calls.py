"""Calls of jobs to the hub: only below their own attempt, and no file that a job leaves leads the agent elsewhere."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.config import AgentLimits
from computepool.agent.execution.job_calls import CALLS
from computepool.agent.hub_link.hub_client import CONNECTIONS_MAX
from computepool.agent.sandbox.scratch import empty_tree
from computepool.agent.storage.folders import WorkFolders
from computepool.core.jobs.lifecycle import Outcome
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, command, until

ASKS = """
mkdir -p "$COMPUTEPOOL_CALLS"; cd "$COMPUTEPOOL_CALLS"
printf '%s' '{REQUEST}' > one; echo before; echo ::call one
until [ -f one.reply ]; do sleep 0.05; done; cat one.reply
"""
#: A hostile call, and the error with which the agent answers it.
HOSTILE = {
    "another path": ('printf \'{"method":"GET","path":"../../keys"}\' > one', "A job cannot call"),
    "another method": ('printf \'{"method":"DELETE","path":"jobs"}\' > one', "A job cannot call"),
    "no JSON": ("echo x > one", "A call must be a JSON object"),
    "too much": ("head -c 5000 /dev/zero > one", "A call may have at most 4000 bytes"),
}
#: Nothing that could be a call: the announcement is plain output.
PLAIN = {
    "nothing there": "true",
    "a link": "ln -s /etc/passwd one",
    "a pipe": "mkfifo one",
    "a link in the place of its folder": 'cd ..; rmdir "$COMPUTEPOOL_CALLS"; ln -s /etc "$COMPUTEPOOL_CALLS"',
}


def asking(request: dict[str, Any]) -> str:
    return ASKS.replace("{REQUEST}", json.dumps(request))


async def test_a_call_is_relayed_and_is_no_part_of_the_output(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(level="namespace")
    body = {"seq": 1, "value": "2"}
    report = await hub.run(command("sh", "-c", asking({"method": "POST", "path": "messages", "body": body})))
    assert report.outcome is Outcome.SUCCEEDED
    assert hub.calls == [(f"/attempts/{report.attempt_id}/messages", body)]
    assert hub.log_texts[report.attempt_id]["stdout"] == 'before\n{"body": {"number": 1}}'


async def test_hostile_calls_are_refused_or_plain_output(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(level="namespace", limits=dataclasses.replace(QUICK, call_bytes_max=4_000))
    make = 'mkdir -p "$COMPUTEPOOL_CALLS"; cd "$COMPUTEPOOL_CALLS"; '
    answered = {
        words: hub.submit(
            command("sh", "-c", f"{make}{line}; echo ::call one; until cat one.reply; do sleep 0.05; done")
        )[0]
        for line, words in HOSTILE.values()
    }
    plain = [hub.submit(command("sh", "-c", f"{make}{line}; echo ::call one"))[0] for line in PLAIN.values()]
    await hub.reports_of([*answered.values(), *plain])
    for words, id_ in answered.items():
        assert words in hub.log_texts[id_]["stdout"]
    assert [hub.log_texts[id_]["stdout"] for id_ in plain] == ["::call one\n"] * len(plain)
    assert hub.calls == []


async def test_the_end_of_a_job_leaves_the_next_ones_calls_alone(
    hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job of the account may have the work folder as soon as it is given back."""
    given_back: list[tuple[WorkFolders, str, Path, int]] = []

    def give_to_next_job(folders: WorkFolders, account: str, folder: Path, disk_mb: int) -> None:
        assert empty_tree(folder)
        (folder / CALLS).mkdir()
        (folder / CALLS / "two").touch()
        given_back.append((folders, account, folder, disk_mb))

    give_back = WorkFolders.give_back
    monkeypatch.setattr(WorkFolders, "give_back", give_to_next_job)
    await start_node(level="namespace")
    await hub.run(command("sh", "-c", asking({"method": "POST", "path": "messages", "body": {}})))
    [next_job] = given_back
    kept = (next_job[2] / CALLS / "two").exists()
    give_back(*next_job)
    assert kept


MANY = """
mkdir -p "$COMPUTEPOOL_CALLS"; cd "$COMPUTEPOOL_CALLS"
for n in 1 2 3 4 5 6; do printf '%s' '{"method":"POST","path":"messages","body":{}}' > c$n; echo ::call c$n; done
for n in 1 2 3 4 5 6; do until [ -f c$n.reply ]; do sleep 0.05; done; done
"""


@pytest.mark.soak
async def test_unanswered_calls_of_jobs_do_not_block_the_agents_own_requests(
    hub: FakeHub, start_node: StartNode
) -> None:
    # A call that timed out would be sent again and counted twice, however long the hub keeps it waiting here.
    limits = dataclasses.replace(QUICK, calls_relayed_max=2, poll_slack_s=300)
    hub.interval_ms = 250
    await start_node(level="namespace", limits=limits)
    hub.calls_answered.clear()
    ids = [hub.submit(command("sh", "-c", MANY))[0] for _ in range(2)]
    await until(lambda: len(hub.calls) == 2)
    before = hub.requests["/next"]
    await until(lambda: hub.requests["/next"] > before + 1)
    assert len(hub.calls) == 2, "the others wait on the node"
    hub.calls_answered.set()
    assert {report.outcome for report in await hub.reports_of(ids)} == {Outcome.SUCCEEDED}
    assert len(hub.calls) == 12
    assert AgentLimits().calls_relayed_max <= CONNECTIONS_MAX // 2
