"""`pool node show` and `why`: reputation and hardware, with a real hub and a real node."""

from __future__ import annotations

import pytest

from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Run, reply, sign_in

pytestmark = [pytest.mark.process, pytest.mark.soak]
#: On a busy machine, several attempts at a measurement may time out.
SOON_S = 90.0


def test_a_node_is_shown_with_its_reputation(run: Run) -> None:
    with RealPool(newcomer_jobs=5) as real:
        real.start_hub()
        real.start_agent(name="studio-3", trusted=("*",))
        sign_in(real)
        client = real.client()
        wait_until(client.nodes.list, SOON_S, "the node is there")
        [line] = run("nodes").out.splitlines()
        assert "\t0.71\t" in line
        assert client.submit(abs, -3).result(SOON_S) == 3
        view = reply(run("node", "show", "studio-3", "--json"))
        assert view["reliability"] == view["reputation"]["score"] > 0.711
        shown = run("node", "show", "studio-3").out
        assert "1 (weight 0.25)" in shown
        assert "0 of 5 verified jobs" in shown  # jobs of the owner do not count
        assert "from 1 job done and 0 failures of its own" in run("node", "why", "studio-3").out
        assert real.broken_rules() == []


def test_a_node_is_shown_with_its_measurements(run: Run) -> None:
    with RealPool(measure_every_s=5, measure_first_s=0, retier_round_s=0.1) as real:
        real.start_hub()
        real.start_agent(name="studio-3")
        sign_in(real)

        def measured() -> str:
            found = run("node", "show", "studio-3").out
            return found if "core score" in found and "disk MB/s" in found else ""

        shown = wait_until(measured, SOON_S, "a whole measurement")
        assert reply(run("node", "show", "studio-3", "--json"))["hardware"]["measured_at_ms"]
        assert "confirmed" in shown or "lowered" in shown

        def same_in_both_forms() -> bool:
            """Unless there was a new measurement in between."""
            sentence = reply(run("node", "why", "studio-3", "--json"))["hardware"]
            return sentence and sentence in run("node", "why", "studio-3").out

        wait_until(same_in_both_forms, SOON_S, "the same sentence in both forms")
