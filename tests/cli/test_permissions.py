"""Network and owners' rules as people meet them: a real hub, a real node with a sandbox, a real host to reach."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.core.words import short_account
from computepool.sdk import connect
from computepool.sdk.client.config import Config, save_config
from computepool.testing.processes import RealPool, wait_until
from tests.cli.conftest import Run

pytestmark = pytest.mark.process
SOON_S = 60.0
BODY = b"from outside"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def a_host() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


FETCH = """
import os, sys, urllib.request
os.environ.pop("no_proxy"), os.environ.pop("NO_PROXY")  # the host is a loopback address in this test
print(urllib.request.urlopen(f"http://{sys.argv[1]}/").read().decode())
"""


@pytest.mark.soak
def test_a_job_reaches_its_host_and_owners_have_the_last_word(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "fetch.py"
    script.write_text(FETCH)
    with RealPool() as real, a_host() as host:
        real.start_hub()
        agent = real.start_agent(name="node", sandbox="namespace", network=True, net_private=("127.0.0.0/8",))
        url = real.hubs[0].url
        save_config(Config(hub=url, key=real.admin_key))
        admin = real.client()
        ran = run("submit", script, "--host", "node", "--net", host, "--wait", "--", host)
        assert "a node of" not in ran.err, "it is one's own"
        assert (ran.code, BODY.decode() in ran.out) == (0, True), ran
        [job] = admin.jobs.list(limit=1)
        shown = run("jobs", "show", job.id).out
        assert host in shown
        assert " in, " in shown
        assert "has no port" in run("submit", script, "--net", "somewhere").err

        sam = admin.accounts.create("sam", roles=["submitter"])
        key = admin.keys.create("cli", account_id=sam.id).key
        admin.credits.give("sam", 1000)
        said = run(
            "node", "rules", "node", "--no-net", "--max-minutes", 30, "--deny-label", "mining", "--max-disk", "10GB"
        )  # fmt: skip
        assert said.out.splitlines() == [
            "No jobs labelled mining.", "No jobs with network.", "Jobs of at most 30 minutes.",
            "Jobs of at most 10 GB disk.",
        ]  # fmt: skip
        save_config(Config(hub=url, key=key))
        assert "network" in run("jobs", "hosts", "--net", host).out
        asked = json.loads(run("quote", script, "--net", host, "--json", "--", host).out)
        assert asked["nodes_network"] == 0
        submitted = run("submit", script, "--host", "node", "--net", host, "--timeout", "10m", "--", host)
        waiting = submitted.out.strip()
        [known] = admin.nodes.list()
        assert f"Host node is {known.id}, owned by {known.owner_name}." in submitted.err
        why = run("jobs", "why", waiting).out
        assert "takes no jobs with network" in why
        assert "drop --net" in why

        save_config(Config(hub=url, key=real.admin_key))
        assert "network for jobs" in run("node", "why", "node").out
        ruled = json.loads(run("node", "rules", "node", "--net", "--forget", "mining", "--json").out)
        assert ruled["rules"]["deny_labels"] == []
        assert ruled["rules"]["minutes_max"] == 30
        client = connect(url, key)
        wait_until(lambda: client.jobs.get(waiting).finished_at_ms, SOON_S, "it runs now")
        assert client.jobs.log_text(waiting).strip() == BODY.decode()

        work = client.options(timeout="5m", net=host, labels="ml")
        slow = work.start(work.program(["sleep", "60"]), wait=False)
        here = ("node", "jobs", "--data", real.folder)
        wait_until(lambda: short_account(sam.id) in run(*here).out, SOON_S, "the owner sees it")
        [seen] = json.loads(run(*here, "--json").out)
        assert (seen["submitter"], seen["network"], seen["labels"], seen["minutes"]) == (
            sam.id,
            [host],
            ["ml"],
            5,
        )
        slow.cancel()  # type: ignore[union-attr]
        assert f"of {sam.id}, labelled ml" in agent.log
        assert run("node", "rules", "node", "--clear").out.startswith("No rules")
        client.close()
        assert real.broken_rules() == []
