"""Checkpoints at the hub, through the real API: kept, gone on from, paid for when they were used, dropped when it is over."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.cli.job import receipt_check
from computepool.core.jobs.lifecycle import Reason
from computepool.core.money import ledger
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import charge_of
from computepool.core.trust.verification import PPM
from computepool.hub.scheduling import leases
from computepool.hub.settlement import follow_ups
from computepool.hub.settlement.verification import sampling
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import job, submit
from tests.hub.working import CEILING, HOUR, PRICE, balance, balances_of, crowd, granted as placed, others

GRANT = 1_000 * CREDIT
MINUTE = 60_000
SAVES = HOUR | {"checkpoints": True, "moves": True}


hub = hub_fixture(on=BOTH, signup_grant=GRANT, tick_s=10_000)


def wait(hub: HubDouble, ms: int, *nodes: NodeDouble) -> None:
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(ms)
    for node in nodes:
        node.sign_in()


async def saved(node: NodeDouble, attempt_id: str, text: bytes, **said: Any) -> dict[str, Any]:
    digest = await upload(node.client, text)
    files = [{"name": "state/now.json", "digest": digest, "size": len(text)}]
    answer = await node.checkpoint(attempt_id, **{"files": files} | said)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def lost(hub: HubDouble, attempt_id: str) -> None:
    """Its node was not heard of for too long."""
    await follow_ups.commit(
        hub.hub, lambda tx: leases.end_attempts(tx, attempt_ids=[attempt_id], reason=Reason.NODE_RESTARTED)
    )


async def owner_of(sam: httpx2.AsyncClient, node: NodeDouble) -> str:
    return str((await sam.get(f"/nodes/{node.node_id}")).json()["owner"])


async def test_three_owners_share_one_run_and_its_pay(hub: HubDouble) -> None:
    """One is lost, one gives it back, the third comes to the result: each is paid up to the checkpoint that was used."""
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=SAVES)
    first, grant = await placed(nodes)
    assert (grant.checkpoint, grant.left_ms) == (None, None)
    wait(hub, 10 * MINUTE, first)
    said = {"progress": 0.25, "ran_ms": 9 * MINUTE}
    assert await saved(first, grant.attempt_id, b"one", **said) == {"kept": True, "reason": "", "over": False}
    wait(hub, 5 * MINUTE, first)  # these are lost with it
    await lost(hub, grant.attempt_id)

    second, grant = await placed(others(nodes, first))
    assert grant.left_ms == 51 * MINUTE
    [file] = grant.checkpoint or []
    second.sign_in()
    assert (await second.client.get(f"/artifacts/{file.digest}")).content == b"one"
    assert file.name == "state/now.json"
    wait(hub, 8 * MINUTE, second)
    assert (await saved(second, grant.attempt_id, b"two", progress=0.5, ran_ms=60 * MINUTE))["kept"], (
        "who says it ran for an hour has eight minutes by the hub's clock"
    )
    assert await second.report(grant.attempt_id, outcome="returned", reason="node_draining") == "accepted"

    wait(hub, MINUTE, *nodes)
    third, grant = await placed(others(nodes, second))
    assert grant.left_ms == 43 * MINUTE
    wait(hub, 20 * MINUTE, third)
    assert await third.report(grant.attempt_id, ran_ms=19 * MINUTE, result='"done"') == "accepted"

    parts = [charge_of(PRICE, minutes * MINUTE) for minutes in (9, 8, 19)]
    done = await job(sam, job_id)
    assert (done["state"], done["charge"], done["checkpoint"]) == ("succeeded", sum(parts), None)
    assert [try_["charge"] for try_ in done["tries"]] == parts
    assert [try_["resumed"] for try_ in done["tries"]] == [None, 1, 2]
    assert await balances_of(hub, sam) == (GRANT - sum(parts), 0, 0)
    earned: dict[str, int] = {}
    for node, charge in zip((first, second, third), parts, strict=True):
        owner = await owner_of(sam, node)
        earned[owner] = earned.get(owner, 0) + charge - (charge - charge * 8 // 10)
    for owner, amount in earned.items():
        assert abs(await balance(hub, ledger.earn(owner)) - amount) <= 1
    await _is_told_and_proven(sam, job_id, parts)
    # What it said late changes nothing.
    first.sign_in()
    late = f"{job_id}-1"
    assert await first.report(late, outcome="failed", reason="lease_lost", exit_code=None) == "superseded"
    assert (await job(sam, job_id))["tries"][0]["charge"] == parts[0]


async def _is_told_and_proven(sam: httpx2.AsyncClient, job_id: str, parts: list[int]) -> None:
    cost = (await sam.get(f"/jobs/{job_id}/cost")).json()
    assert (cost["total"], cost["runs"], cost["charge"]) == (sum(parts), 1, parts[-1])
    assert "it resumed from checkpoints of earlier attempts" in cost["sentence"]
    receipt = (await sam.get(f"/jobs/{job_id}/receipt")).json()
    assert [said.text for said in receipt_check.check(receipt, trusted={}) if not said.ok] == []
    assert [run["charge"] for run in receipt["receipt"]["continued_from"]] == parts[:-1]
    receipt["receipt"]["continued_from"] = []
    assert not all(said.ok for said in receipt_check.check(receipt, trusted={}))


async def test_work_that_was_not_used_is_not_paid(hub: HubDouble) -> None:
    """The job fails in the end, or starts again from nothing, or the late result makes the others needless."""
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES)
    first, grant = await placed(nodes)
    wait(hub, 10 * MINUTE, first)
    assert (await saved(first, grant.attempt_id, b"one", progress=0.5, ran_ms=9 * MINUTE))["kept"]
    await lost(hub, grant.attempt_id)
    second, again = await placed(others(nodes, first))
    wait(hub, 10 * MINUTE, first, second)
    late = await first.report(grant.attempt_id, ran_ms=15 * MINUTE, result='"late"')
    assert late == "accepted_late"
    done = await job(sam, job_id)
    assert [try_["charge"] for try_ in done["tries"]] == [charge_of(PRICE, 15 * MINUTE), None]
    answer = await second.checkpoint(again.attempt_id, seq=2, ran_ms=1)
    assert (answer.json()["kept"], answer.json()["over"]) == (False, True)
    assert (await sam.get(f"/jobs/{job_id}/checkpoint")).status_code == 404

    [job_id] = await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    wait(hub, 10 * MINUTE, node)
    assert (await saved(node, grant.attempt_id, b"x", ran_ms=9 * MINUTE))["kept"]
    before = await balances_of(hub, sam)
    assert await node.report(grant.attempt_id, outcome="failed", reason="exception") == "accepted"
    failed = await job(sam, job_id)
    assert (failed["state"], failed["charge"], failed["checkpoint"]) == ("failed", 0, None)
    assert (await balances_of(hub, sam))[0] == before[0] + CEILING


async def test_a_checkpoint_is_refused_or_shown(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    [stranger] = others(nodes, node)
    wait(hub, MINUTE, *nodes)
    assert (await stranger.checkpoint(grant.attempt_id)).status_code == 404
    key, node.key = node.key, stranger.key
    assert (await node.checkpoint(grant.attempt_id)).status_code == 403
    node.key = key
    unknown = [{"name": "a", "digest": "0" * 64, "size": 1}]
    assert (await node.checkpoint(grant.attempt_id, files=unknown)).json()["reason"] == "Not uploaded: a."
    theirs = [{"name": "a", "digest": await upload(sam, b"sam's own"), "size": 9}]
    assert not (await node.checkpoint(grant.attempt_id, files=theirs)).json()["kept"], "it is not the node's"
    assert (await saved(node, grant.attempt_id, b"three", progress=0.5))["kept"]
    assert (await saved(node, grant.attempt_id, b"three", progress=0.5))["kept"], "the same again is the same"
    too_soon = await saved(node, grant.attempt_id, b"four", seq=2, progress=0.6)
    assert "a moment ago" in too_soon["reason"]
    wait(hub, MINUTE, node)
    back = await saved(node, grant.attempt_id, b"four", seq=2, progress=0.4)
    assert "cannot go back" in back["reason"]
    hub.hub.settings.checkpoint_max_bytes = 3
    assert "3 bytes at most" in (await saved(node, grant.attempt_id, b"four", seq=2))["reason"]
    shown = (await job(sam, job_id))["checkpoint"]
    assert (shown["attempt"], shown["progress"], shown["files"], shown["size"]) == (1, 0.5, 1, 5)
    detail = (await sam.get(f"/jobs/{job_id}/checkpoint")).json()
    [file] = detail["outputs"]
    assert (await sam.get(f"/artifacts/{file['digest']}")).content == b"three"
    assert (await stranger.client.get(f"/artifacts/{file['digest']}")).status_code == 404
    told = (await sam.get("/events", params={"job_id": job_id})).json()["events"]
    assert [event["action"] for event in told].count("checkpoint.saved") == 1
    assert (await sam.post(f"/jobs/{job_id}/cancel")).status_code == 200
    assert (await sam.get(f"/artifacts/{file['digest']}")).status_code == 404, "nobody refers to it any more"


async def test_one_that_brings_no_luck_is_dropped(hub: HubDouble) -> None:
    """Two attempts that went on from it failed: the third starts at the beginning."""
    sam, nodes = await crowd(hub, 3)
    hub.hub.settings.backoff_base_s = 0.0
    hub.hub.settings.owners_unable_max = 4
    [job_id] = await submit(sam, spec=SAVES, retries=3)
    node, grant = await placed(nodes)
    wait(hub, MINUTE, node)
    assert (await saved(node, grant.attempt_id, b"bad", ran_ms=MINUTE))["kept"]
    went_on = []
    for _ in range(3):
        reason = "staging_failed" if went_on else "exception"
        said = await node.report(grant.attempt_id, outcome="failed", reason=reason, exit_code=None)
        assert said == "accepted"
        wait(hub, 5 * MINUTE, *nodes)
        node, grant = await placed(nodes)
        went_on.append(grant.checkpoint is not None)
    assert went_on == [True, True, False]
    assert await node.report(grant.attempt_id, ran_ms=7) == "accepted"
    assert [try_["charge"] is None for try_ in (await job(sam, job_id))["tries"]] == [True, True, True, False]


async def test_a_job_moves_to_the_host_it_names(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    target = others(nodes, node)[-1]
    moved = {"outcome": "moved", "reason": "moved", "exit_code": None, "ran_ms": 9 * MINUTE}
    wait(hub, 10 * MINUTE, node)
    assert (await saved(node, grant.attempt_id, b"state", progress=0.5, ran_ms=9 * MINUTE, last=True))["kept"]
    assert await node.report(grant.attempt_id, move_to=target.profile.name, **moved) == "accepted"
    assert (await job(sam, job_id))["moves"] == 1
    for other in others(nodes, target):
        other.sign_in()
        assert not (await other.poll(wait_ms=0)).grants, "it is for one host alone"
    there, grant = await placed([target])
    assert len(grant.checkpoint or []) == 1
    wait(hub, 5 * MINUTE, there)
    assert await there.report(grant.attempt_id, ran_ms=4 * MINUTE) == "accepted"
    done = await job(sam, job_id)
    assert [try_["state"] for try_ in done["tries"]] == ["moved", "succeeded"]
    assert [try_["charge"] for try_ in done["tries"]] == [charge_of(PRICE, m * MINUTE) for m in (9, 4)]


async def test_a_move_to_nowhere_fails_and_ping_pong_ends(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    moved = {"outcome": "moved", "reason": "moved", "exit_code": None}
    [job_id] = await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    wait(hub, MINUTE, node)
    assert (await saved(node, grant.attempt_id, b"s"))["kept"]
    await node.report(grant.attempt_id, move_to="atlantis", **moved)
    nowhere = await job(sam, job_id)
    assert (nowhere["state"], nowhere["reason"], nowhere["charge"]) == ("failed", "host_not_reached", 0)
    assert "'atlantis'" in nowhere["error"]

    hub.hub.settings.moves_max = 2
    [job_id] = await submit(sam, spec=SAVES)
    for turn in range(3):
        wait(hub, MINUTE, *nodes)
        node, grant = await placed(nodes)
        wait(hub, MINUTE, node)
        assert (await saved(node, grant.attempt_id, b"turn%d" % turn))["kept"]
        [target] = others(nodes, node)
        assert await node.report(grant.attempt_id, move_to=target.node_id, **moved) == "accepted"
    ended = await job(sam, job_id)
    assert (ended["state"], ended["reason"], ended["charge"]) == ("failed", "moved_too_often", 0)

    [job_id] = await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    await node.report(grant.attempt_id, move_to="node0", **moved)  # without a checkpoint: the node is to blame
    again = await job(sam, job_id)
    assert (again["moves"], again["tries"][0]["state"]) == (0, "moved")
    assert again["reason"] in ("staging_failed", "placed")


async def test_another_run_starts_from_nothing_at_another_owner(hub: HubDouble) -> None:
    """A checkpoint belongs to one run: whoever had a hand in it cannot confirm it."""
    sam, nodes = await crowd(hub, 4)
    [job_id] = await submit(sam, spec=SAVES, verify="quorum:2")
    first, grant = await placed(nodes)
    wait(hub, 10 * MINUTE, first)
    assert (await saved(first, grant.attempt_id, b"one", progress=0.5, ran_ms=9 * MINUTE))["kept"]
    await lost(hub, grant.attempt_id)
    second, grant = await placed(others(nodes, first))
    wait(hub, 10 * MINUTE, *nodes)
    assert await second.report(grant.attempt_id, ran_ms=5 * MINUTE, result='"r"') == "accepted"
    assert (await job(sam, job_id))["checkpoint"] is None
    # Its first node comes back with a result after all: it is no second opinion, because the second went on from it.
    assert await first.report(f"{job_id}-1", ran_ms=MINUTE, result='"r"') == "accepted_late"
    assert (await job(sam, job_id))["state"] in ("queued", "leased")
    third, grant = await placed(nodes)
    assert third not in (first, second)
    assert (grant.checkpoint, grant.left_ms) == (None, None)
    wait(hub, 10 * MINUTE, third)
    # Half of what the others took together: within what agreeing runs may differ.
    assert await third.report(grant.attempt_id, ran_ms=7 * MINUTE, result='"r"') == "accepted"
    done = await job(sam, job_id)
    charges = [try_["charge"] for try_ in done["tries"]]
    assert charges == [charge_of(PRICE, m * MINUTE) for m in (9, 5, 7)]
    assert (done["verdict"], done["charge"]) == ("confirmed", sum(charges))


async def test_nobody_is_penalised_for_what_several_owners_made(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 4)
    [job_id] = await submit(sam, spec=SAVES, verify="quorum:2")
    first, grant = await placed(nodes)
    wait(hub, 10 * MINUTE, first)
    assert (await saved(first, grant.attempt_id, b"poison", ran_ms=9 * MINUTE))["kept"]
    await lost(hub, grant.attempt_id)
    second, grant = await placed(others(nodes, first))
    wait(hub, 10 * MINUTE, *nodes)
    await second.report(grant.attempt_id, ran_ms=5 * MINUTE, result='"poisoned"')
    for _ in range(2):
        node, grant = await placed(nodes)
        wait(hub, 10 * MINUTE, *nodes)
        await node.report(grant.attempt_id, ran_ms=6 * MINUTE, result='"right"')
    done = await job(sam, job_id)
    assert [try_["charge"] is None for try_ in done["tries"]] == [True, True, False, False]
    for node in (first, second):
        seen = (await sam.get(f"/nodes/{node.node_id}")).json()
        assert seen["reputation"]["violation_count"] == 0
        assert await balance(hub, ledger.earn(seen["owner"])) == 0


async def test_who_is_little_known_does_not_hide_behind_who_is_well_known(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that went on from a newcomer's checkpoint is checked as a newcomer's, whoever reports it."""
    sam, nodes = await crowd(hub, 3)
    new: set[str] = set()
    monkeypatch.setattr(hub.hub.nodes.registry.fleet, "streak", lambda node: 0 if node in new else 10**9)
    monkeypatch.setattr(sampling, "_draw", lambda _hub, _attempt: PPM - 1)  # nobody else is drawn by chance
    verdicts = []
    for hides in (False, True):
        [job_id] = await submit(sam, spec=SAVES, verify="adaptive")
        first, grant = await placed(nodes)
        if hides:
            new.add(first.node_id)
        wait(hub, 10 * MINUTE, *nodes)
        assert (await saved(first, grant.attempt_id, b"poison", ran_ms=MINUTE))["kept"]
        well_known = others(nodes, first)[0]
        moved = {"outcome": "moved", "reason": "moved", "exit_code": None}
        await first.report(grant.attempt_id, move_to=well_known.node_id, **moved)
        there, grant = await placed([well_known])
        wait(hub, MINUTE, *nodes)
        await there.report(grant.attempt_id, ran_ms=MINUTE, result='"r"')
        verdicts.append((await job(sam, job_id))["verdict"])
    assert verdicts == ["unchecked", None], "the second is not believed yet"


async def test_a_node_cannot_move_a_job_that_does_not_move(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    """Nor save for it: that is refused, counts against the node, and changes nothing about where the job may run."""
    good = await hub.node(await hub.account("mal", "provider"), name="good", tags=["eu"])
    evil = await hub.node(await hub.account("friend", "provider"), name="evil")
    needs = {"tags": ["eu"], "exclude_hosts": ["evil"]}
    [job_id] = await submit(sam, spec=HOUR, needs=needs)
    node, grant = await placed([good, evil])
    wait(hub, MINUTE, node)
    refused = await saved(node, grant.attempt_id, b"junk", progress=1.0, ran_ms=MINUTE)
    assert (refused["kept"], refused["reason"]) == (False, "This job did not declare that it saves checkpoints.")
    for _ in range(3):  # saying it again writes nothing more
        assert not (await saved(node, grant.attempt_id, b"junk", progress=1.0, ran_ms=MINUTE))["kept"]
    moved = {"outcome": "moved", "reason": "moved", "exit_code": None, "move_to": evil.node_id}
    assert await node.report(grant.attempt_id, **moved) == "accepted"
    seen = await job(sam, job_id)
    assert (seen["moves"], seen["pinned"], seen["checkpoint"]) == (0, "", None)
    assert (seen["tries"][0]["state"], seen["tries"][0]["reason"]) == ("failed", "false_report")
    told = (await sam.get("/events", params={"job_id": job_id})).json()["events"]
    assert [event["action"] for event in told].count("attempt.failed") == 2, "both count as the node's fault"


@pytest.mark.soak
async def test_rules_hold_at_hosts_of_others_and_names_are_no_trap(hub: HubDouble) -> None:
    """A job that moves goes to a host of its own account whatever its rules say; others' hosts must satisfy them."""
    sam = await hub.account("sam", "submitter", "provider")
    far = await hub.node(await hub.account("far", "provider"), name="far", tags=["eu"])
    own = await hub.node(sam, name="laptop")
    evil = await hub.node(await hub.account("evil", "provider"), name="laptop")  # the newest of that name
    thief = await hub.node(await hub.account("thief", "provider"), name="far", tags=["eu"])
    moved = {"outcome": "moved", "reason": "moved", "exit_code": None}
    rules = {"tags": ["eu"], "exclude_hosts": ["laptop"]}

    async def dispatched(to: str) -> str:
        [job_id] = await submit(sam, spec=SAVES, needs=rules)
        node, grant = await placed([far, thief])
        wait(hub, MINUTE, *[far, own, evil, thief])
        assert (await saved(node, grant.attempt_id, b"s", progress=0.1))["kept"]
        assert await node.report(grant.attempt_id, move_to=to, **moved) == "accepted"
        return job_id

    job_id = await dispatched("laptop")
    there, grant = await placed([evil, own])
    assert (there, grant.job_id) == (own, job_id)
    assert await there.report(grant.attempt_id) == "accepted"

    job_id = await dispatched("far")  # two strangers are called so
    assert (await job(sam, job_id))["reason"] == "host_not_reached"

    job_id = await dispatched(evil.node_id)
    for node in (far, own, evil, thief):
        node.sign_in()
        assert not (await node.poll(wait_ms=0)).grants, "its rules exclude that host"
    waiting = await job(sam, job_id)
    assert (waiting["state"], waiting["pinned"]) == ("queued", evil.node_id)
    wait(hub, round(hub.hub.settings.move_wait_s * 1000) + MINUTE)
    await leases.expire_overdue(hub.hub)
    ended = await job(sam, job_id)
    assert (ended["state"], ended["reason"], ended["charge"]) == ("failed", "host_not_reached", 0)
    assert "did not take it in time" in ended["error"]


async def test_a_checkpoint_is_paid_and_takes_time_by_its_progress(hub: HubDouble) -> None:
    """Junk without progress, late in the limit: nothing for it, and the next node has the whole time."""
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=SAVES)
    first, grant = await placed(nodes)
    wait(hub, 59 * MINUTE, first)
    assert (await saved(first, grant.attempt_id, b"junk", ran_ms=59 * MINUTE))["kept"]
    assert await first.report(grant.attempt_id, outcome="returned", reason="node_draining") == "accepted"
    wait(hub, MINUTE, *nodes)
    second, grant = await placed(others(nodes, first))
    assert grant.left_ms == 60 * MINUTE
    wait(hub, 10 * MINUTE, second)
    assert (await saved(second, grant.attempt_id, b"x", progress=0.1, ran_ms=10 * MINUTE))["kept"]
    await lost(hub, grant.attempt_id)
    third, grant = await placed(others(nodes, second))
    assert grant.left_ms == 54 * MINUTE, "a tenth of the work is worth a tenth of the time"
    wait(hub, 2 * MINUTE, third)
    assert await third.report(grant.attempt_id, ran_ms=MINUTE) == "accepted"
    charges = [try_["charge"] for try_ in (await job(sam, job_id))["tries"]]
    assert charges == [charge_of(PRICE, m * MINUTE) for m in (0, 6, 1)]


async def test_time_that_somebody_else_claimed_does_not_end_the_job(hub: HubDouble) -> None:
    """Its checkpoint is dropped, unpaid, and the job begins again with the whole limit, although it has no retries."""
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES)
    first, grant = await placed(nodes)
    wait(hub, 60 * MINUTE - 1000, first)
    assert (await saved(first, grant.attempt_id, b"junk", progress=1.0, ran_ms=60 * MINUTE - 1000))["kept"]
    await lost(hub, grant.attempt_id)
    second, grant = await placed(others(nodes, first))
    assert grant.left_ms == 1000
    wait(hub, 1000, second)
    timed_out = {"outcome": "failed", "reason": "timeout", "exit_code": None}
    assert await second.report(grant.attempt_id, ran_ms=1000, **timed_out) == "accepted"
    wait(hub, MINUTE, *nodes)
    third, grant = await placed(nodes)
    assert (grant.checkpoint, grant.left_ms) == (None, None)
    wait(hub, 10 * MINUTE, third)
    assert await third.report(grant.attempt_id, ran_ms=9 * MINUTE) == "accepted"
    done = await job(sam, job_id)
    assert [try_["charge"] for try_ in done["tries"]] == [None, None, charge_of(PRICE, 9 * MINUTE)]

    [job_id] = await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    assert await node.report(grant.attempt_id, **timed_out) == "accepted"
    assert (await job(sam, job_id))["state"] == "failed", "all of the limit was its own"
