"""What people see of a node's reputation and hardware, with a real hub and a real node."""

from __future__ import annotations

import json

import pytest

from computepool.sdk.client.config import Config, save_config
from computepool.testing.processes import RealPool, wait_until
from tests.cli.conftest import Run

pytestmark = [pytest.mark.process, pytest.mark.soak]
#: A busy machine may need several tries of a measurement: each has little time and is cut off.
SOON_S = 90.0


def test_a_node_is_shown_with_what_it_did(run: Run) -> None:
    with RealPool(newcomer_jobs=5) as real:
        real.start_hub()
        real.start_agent(name="studio-3", trusted=("*",))
        save_config(Config(hub=real.hubs[0].url, key=real.admin_key))
        client = real.client()
        wait_until(client.nodes.list, SOON_S, "the node is there")
        [line] = run("nodes").out.splitlines()
        assert "\t0.71\t" in line
        assert client.submit(abs, -3).result(SOON_S) == 3
        view = json.loads(run("node", "show", "studio-3", "--json").out)
        assert view["reliability"] == view["reputation"]["score"] > 0.711
        shown = run("node", "show", "studio-3").out
        assert "1 (weight 0.25)" in shown
        assert "0 of 5 verified jobs" in shown  # the job was its owner's
        assert "from 1 job done and 0 failures of its own" in run("node", "why", "studio-3").out
        assert real.broken_rules() == []


def test_a_node_is_shown_with_what_was_measured(run: Run) -> None:
    with RealPool(measure_every_s=5, measure_first_s=0, retier_round_s=0.1) as real:
        real.start_hub()
        real.start_agent(name="studio-3")
        save_config(Config(hub=real.hubs[0].url, key=real.admin_key))

        def measured() -> str:
            found = run("node", "show", "studio-3").out
            return found if "core score" in found and "disk MB/s" in found else ""

        shown = wait_until(measured, SOON_S, "a whole measurement")
        assert json.loads(run("node", "show", "studio-3", "--json").out)["hardware"]["measured_at_ms"]
        assert "confirmed" in shown or "lowered" in shown

        def said() -> bool:
            """Unless it was measured again in between."""
            sentence = json.loads(run("node", "why", "studio-3", "--json").out)["hardware"]
            return sentence and sentence in run("node", "why", "studio-3").out

        wait_until(said, SOON_S, "the same sentence in both forms")
