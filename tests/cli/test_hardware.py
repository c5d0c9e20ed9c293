"""What people see of a node's hardware, with a real hub and a real node."""

from __future__ import annotations

import json

import pytest

from computepool.sdk.config import Config, save_config
from computepool.testing.processes import RealPool, wait_until
from tests.cli.conftest import Run

pytestmark = pytest.mark.process
SOON_S = 30.0


def test_a_node_is_shown_with_what_was_measured(run: Run) -> None:
    with RealPool(measure_every_s=3600, measure_first_s=0, retier_round_s=0.1) as real:
        real.start_hub()
        real.start_agent(name="studio-3")
        save_config(Config(hub=real.hubs[0].url, key=real.admin_key))

        def measured() -> bool:
            view = json.loads(run("node", "show", "studio-3", "--json").out)
            return bool(view["hardware"]["measured_at_ms"])

        wait_until(measured, SOON_S, "a measurement")
        shown = run("node", "show", "studio-3").out
        assert "core score" in shown
        assert "disk MB/s" in shown
        assert "confirmed" in shown or "lowered" in shown
        said = json.loads(run("node", "why", "studio-3", "--json").out)
        assert said["hardware"]
        assert said["hardware"] in run("node", "why", "studio-3").out
