"""Network access and owners' rules, with a real hub, a sandboxed node, and a real host to connect to."""

from __future__ import annotations

from pathlib import Path

import pytest

from computepool.core.words import short_account
from computepool.sdk import connect
from computepool.sdk.client.config import Config, save_config
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Run, reply, sign_in
from tests.sdk.http_server import QuietHandler, serving

pytestmark = [pytest.mark.process, pytest.mark.soak]
SOON_S = 60.0
BODY = b"from outside"


class Handler(QuietHandler):
    def answer(self, body: bytes) -> None:
        self.reply(BODY)


FETCH = """
import os, sys, urllib.request
os.environ.pop("no_proxy"), os.environ.pop("NO_PROXY")  # the host has a loopback address in this test
print(urllib.request.urlopen(f"http://{sys.argv[1]}/").read().decode())
"""


def test_a_job_reaches_its_host_if_the_owner_allows_it(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "fetch.py"
    script.write_text(FETCH)
    with RealPool() as real, serving(Handler) as address:
        host = address.removeprefix("http://")
        real.start_hub()
        agent = real.start_agent(name="node", sandbox="namespace", network=True, net_private=("127.0.0.0/8",))
        url = real.hubs[0].url
        sign_in(real)
        admin = real.client()
        ran = run("submit", script, "--host", "node", "--net", host, "--wait", "--", host)
        assert "a node of" not in ran.err, "it is the user's own node"
        assert (ran.code, BODY.decode() in ran.out) == (0, True), ran
        [job] = admin.jobs.list(limit=1)
        shown = run("jobs", "show", job.id).out
        assert host in shown
        assert " in, " in shown
        assert "has no port" in run("submit", script, "--net", "somewhere").err

        sam = admin.accounts.create("sam", roles=["submitter"])
        key = admin.keys.create("cli", account_id=sam.id).key
        admin.credits.give("sam", 1000)
        printed = run(
            "node", "rules", "node", "--no-net", "--max-minutes", 30, "--deny-label", "mining", "--max-disk", "10GB"
        )  # fmt: skip
        assert printed.out.splitlines() == [
            "No jobs labelled mining.", "No jobs with network.", "Jobs of at most 30 minutes.",
            "Jobs of at most 10 GB disk.",
        ]  # fmt: skip
        save_config(Config(hub=url, key=key))
        assert "network" in run("jobs", "hosts", "--net", host).out
        quoted = reply(run("quote", script, "--net", host, "--json", "--", host))
        assert quoted["nodes_network"] == 0
        submitted = run("submit", script, "--host", "node", "--net", host, "--timeout", "10m", "--", host)
        waiting = submitted.out.strip()
        [known] = admin.nodes.list()
        assert f"Host node is {known.id}, owned by {known.owner_name}." in submitted.err
        why = run("jobs", "why", waiting).out
        assert "takes no jobs with network" in why
        assert "drop --net" in why

        sign_in(real)
        assert "network for jobs" in run("node", "why", "node").out
        ruled = reply(run("node", "rules", "node", "--net", "--forget", "mining", "--json"))
        assert ruled["rules"]["deny_labels"] == []
        assert ruled["rules"]["minutes_max"] == 30
        client = connect(url, key)
        wait_until(lambda: client.jobs.get(waiting).finished_at_ms, SOON_S, "it runs now")
        assert client.jobs.log_text(waiting).strip() == BODY.decode()

        work = client.options(timeout="5m", net=host, labels="ml")
        slow = work.start(work.program(["sleep", "60"]), wait=False)
        here = ("node", "jobs", "--data", real.folder)
        wait_until(lambda: short_account(sam.id) in run(*here).out, SOON_S, "the owner sees it")
        [seen] = reply(run(*here, "--json"))
        assert (seen["submitter"], seen["network"], seen["labels"], seen["minutes"]) == (sam.id, [host], ["ml"], 5)
        slow.cancel()  # type: ignore[union-attr]
        assert f"of {sam.id}, labelled ml" in agent.log
        assert run("node", "rules", "node", "--clear").out.startswith("No rules")
        client.close()
        assert real.broken_rules() == []
