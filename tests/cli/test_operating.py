"""Joining, resubmitting, and searching jobs and events on the command line, with a real hub and a real node."""

from __future__ import annotations

import json

import pytest

from computepool.cli.node.codes import follow_code
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Run, reply, sign_in

pytestmark = [pytest.mark.process, pytest.mark.soak]
SOON_S = 60.0


def test_a_machine_joins_runs_jobs_and_appears_in_the_events(run: Run) -> None:
    with RealPool() as real:
        real.start_hub()
        sign_in(real)
        client = real.client()
        made = reply(run("node", "code", "--json"))
        assert client.nodes.code_status(made["id"]).state == "waiting"
        real.start_agent(name="studio-3", trusted=("*",))
        wait_until(client.nodes.list, SOON_S, "the node is there")

        job_id = client.submit(abs, -3).job_id
        assert client.jobs.wait(job_id, timeout=SOON_S).state == "succeeded"
        second = run("jobs", "resubmit", job_id)
        assert (second.code, second.out.strip() != job_id) == (0, True)
        assert client.jobs.wait(second.out.strip(), timeout=SOON_S).state == "succeeded"

        found = reply(run("jobs", "list", "--search", "ABS", "--kind", "function", "--since", "1h", "--json"))
        assert {job["id"] for job in found} == {job_id, second.out.strip()}
        assert reply(run("jobs", "list", "--search", "nothing like it", "--json")) == []
        assert run("jobs", "list", "--kind", "poem").code == 2

        issued = [event.data or {} for event in client.events(action="node.code_issued")]
        used = [code for data in issued if (code := data["code_id"]) != made["id"]]
        if used:  # the code of the agent that joined
            status = follow_code(client, used[-1], verbose=True)
            assert {step.state for step in status.steps} <= {"done", "skipped", "warning"}

        [row] = [row for row in reply(run("node", "evidence", "studio-3", "--json")) if row["job_id"] == job_id]
        assert (row["evidence"], row["weight"], row["own"]) == ("unverified", 0.25, True)
        assert "+0.25" in run("node", "evidence", "studio-3").out

        events = [
            json.loads(line) for line in run("events", "--newest", "--action", "node.", "--json").out.splitlines()
        ]
        assert [event["seq"] for event in events] == sorted((event["seq"] for event in events), reverse=True)
        assert {event["action"] for event in events} >= {"node.enrolled", "node.online", "node.code_issued"}
        assert len(run("events", "--search", job_id, "--since", "1h").out.splitlines()) == 4
        assert run("events", "--newest", "--follow").code == 2

        run("accounts", "create", "ann")
        link = reply(run("accounts", "link", "ann", "--json"))
        assert run("login", link["link"]).code == 0
        assert reply(run("whoami", "--json"))["name"] == "ann"
        sign_in(real)
        assert {key["account_name"] for key in reply(run("keys", "list", "--all", "--json"))} >= {"admin", "ann"}
        assert real.broken_rules() == []
