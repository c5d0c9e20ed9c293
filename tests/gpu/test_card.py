"""A real card with a real hub and agent: an untrusted job in the sandbox, the opt-in, and the measurement."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from computepool.agent.hardware import benchmark, card_test, driver, gpus
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.trust.tiers import tier_of
from computepool.sdk.pool import Pool, connect
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until

JOB = Path(__file__).with_name("cuda_job.py")
NEEDS: dict[str, Any] = {"gpus": 1, "ram": "4GB", "verify": "none"}
CARDS = gpus.find_cards()


def stranger(real: RealPool) -> Pool:
    admin = real.client()
    account = admin.accounts.create("sam", roles=["submitter"])
    key = admin.keys.create("test", account_id=account.id).key
    return connect(real.hubs[0].url, key, retry_for=60)


def answer(outcome: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(outcome.output)
    print(found)
    return found


def test_a_stranger_uses_a_card_that_the_owner_lends(real: RealPool) -> None:
    real.start_agent(sandbox="namespace", gpus=True, cores=4)
    found = answer(stranger(real).run(JOB, **NEEDS))
    assert found["cuInit"] == 0
    assert found["added"] is True
    assert found["count"] == 1
    assert found["name"] == CARDS[0].name
    assert found["visible"] == CARDS[0].ident
    assert found["uid"] == 65534
    card = CARDS[0].nodes[0]
    assert found["nodes"] == sorted([card, "/dev/nvidiactl", "/dev/nvidia-uvm"])
    assert set(found["sys"]) <= {"devices", "module"}


def test_a_job_without_a_card_finds_none(real: RealPool) -> None:
    real.start_agent(sandbox="namespace", gpus=True, cores=4)
    found = answer(stranger(real).run(JOB, verify="none"))
    assert found["nodes"] == []
    assert found.get("cuInit") != 0


def test_without_the_opt_in_only_the_owner_uses_the_card(real: RealPool) -> None:
    real.start_agent(sandbox="namespace", cores=4)
    waiting = stranger(real).run(JOB, wait=False, **NEEDS)
    assert answer(real.client().run(JOB, **NEEDS))["added"] is True
    why = waiting.why()
    assert "owner and trusted accounts only" in why.sentence
    waiting.cancel()


def test_a_measurement_confirms_the_claimed_tier(real: RealPool) -> None:
    real.start_agent(sandbox="namespace", gpus=True, cores=4)
    client = real.client()

    def known() -> Any:
        found = client.nodes.list()
        return found and found[0].hardware is not None and found[0].hardware.measured_at_ms

    wait_until(known, 60, "a measurement")
    hardware = client.nodes.list()[0].hardware
    assert hardware is not None
    print(hardware)
    assert hardware.standing == ("confirmed" if driver.cublas() else "claimed")
    assert hardware.tier == tier_of(CARDS[0].name)


def test_the_test_before_lending_passes(ground: Path, runtime: Runtime) -> None:
    work = ground / "work"
    work.mkdir(mode=0o755)
    config = SandboxConfig(cache_dir=ground / "cache", runtime=runtime)
    with contextlib.closing(BubblewrapSandbox(config)) as sandbox:
        assert card_test.reason_against(sandbox, runtime, CARDS, work_dir=work) == ""


def test_the_doctor_measures_the_card(tmp_path: Path) -> None:
    found = benchmark.measure_here(tmp_path, cards=len(CARDS))
    print(found)
    assert found["cpu"] > 0
