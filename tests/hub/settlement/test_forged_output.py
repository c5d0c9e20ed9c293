"""False text with a true digest: noise on standard error, a missing length, or a checkpoint do not hide it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.hub.settlement.verification import unconfirmed
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.jobs.test_checkpoints import SAVES, saved
from tests.hub.settlement.test_padding import record, undrawn
from tests.hub.settlement.test_printed_output import finish, reasons
from tests.hub.submitting import job, submit
from tests.hub.verifying import advance, is_being_checked, logged, piece, placed, printing, prints, send, violations
from tests.hub.working import crowd, got, others

KEPT_BYTES = 60_000
TRUE = "the true balance is 1000000\n"
FALSE = "the balance is 0\n"
GIVEN_BACK = {"outcome": "returned", "reason": "given_back", "exit_code": None}

hub = hub_fixture(on=BOTH, log_max_bytes=KEPT_BYTES, tick_s=10_000, mature_s=10_000)


async def with_noise(hub: HubDouble, nodes: list[NodeDouble], sent: str, **said: Any) -> NodeDouble:
    """The next node reports the true text, but sends this, and so much on standard error that it may leave out the rest."""
    node, attempt_id = await placed(nodes)
    await say_with_noise(hub, node, attempt_id, sent=sent, **said)
    return node


async def say_with_noise(hub: HubDouble, node: NodeDouble, attempt_id: str, *, sent: str, **said: Any) -> None:
    await send(node, piece(attempt_id, sent, seq=0), piece(attempt_id, "x" * KEPT_BYTES, stream="stderr", seq=1))
    advance(hub, 2_000, node)
    assert await node.report(attempt_id, **(printing(TRUE) | said)) == "accepted"


async def resumes(
    hub: HubDouble, nodes: list[NodeDouble], *, before: str, after: str, chars: int | None = len(TRUE)
) -> NodeDouble:
    """A node saves a checkpoint after `before` and gives the job back. It gets the job again, sends `after`, and reports the
    true text."""
    node, rest = nodes[0], nodes[1:]
    await set_state(hub, rest, "paused")
    _, attempt_id = await placed([node])
    assert (await saved(node, attempt_id, b"state"))["kept"]
    report = node.make_report(attempt_id, **GIVEN_BACK)
    assert await node.report_all([report], logs=[piece(attempt_id, before)]) == ["accepted"]
    advance(hub, 1_000)
    _, attempt_id = await placed([node])
    report = node.make_report(attempt_id, **(printing(TRUE) | {"printed_chars": chars}))
    assert await node.report_all([report], logs=[piece(attempt_id, after)]) == ["accepted"]
    await set_state(hub, rest, "active")
    return node


async def set_state(hub: HubDouble, nodes: list[NodeDouble], state: str) -> None:
    for node in nodes:
        (await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": state})).raise_for_status()


async def shown(sam: httpx2.AsyncClient, job_id: str) -> tuple[str, bool | None]:
    page = await got(sam, f"/jobs/{job_id}/logs")
    text = "".join(chunk["text"] for chunk in page["chunks"] if chunk["stream"] == "stdout")
    return text, page["complete"]


# standard error


@pytest.mark.parametrize("turn", [0, 1], ids=["first", "second"])
async def test_noise_does_not_hide_a_false_text(hub: HubDouble, turn: int) -> None:
    sam, nodes = await crowd(hub, 4)
    [job_id] = await submit(sam, spec=SAVES, verify="quorum:2")
    if turn:
        nodes = others(nodes, await prints(nodes, TRUE))
    forger = await with_noise(hub, nodes, FALSE)
    states = await finish(sam, job_id, others(nodes, forger), TRUE)
    assert states == (["succeeded", "refuted", "succeeded"] if turn else ["refuted", "succeeded", "succeeded"])
    assert await record(sam, forger) == (0, 1)
    assert await shown(sam, job_id) == (TRUE, True)


async def test_a_node_that_leaves_out_a_part_has_no_violation(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES, verify="quorum:2")
    first = await with_noise(hub, nodes, TRUE[:9])
    assert await finish(sam, job_id, others(nodes, first), TRUE) == ["succeeded", "succeeded"]
    assert await shown(sam, job_id) == (TRUE, True)
    assert await violations(sam, [first]) == [0]


async def test_without_a_length_the_whole_text_must_be_sent(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES, verify="none")
    forger = await with_noise(hub, nodes, FALSE + TRUE, printed_chars=None)
    assert "staging_failed" in await reasons(sam, job_id)
    await finish(sam, job_id, others(nodes, forger), TRUE)
    assert await shown(sam, job_id) == (TRUE, True)


async def test_of_two_owners_the_one_with_the_false_text_is_wrong(hub: HubDouble) -> None:
    """Its own digest says that the other's text is the true one."""
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES, verify="adaptive")
    forger = await with_noise(hub, nodes, FALSE)
    assert await finish(sam, job_id, others(nodes, forger), TRUE) == ["refuted", "succeeded"]
    assert await shown(sam, job_id) == (TRUE, True)
    assert (await job(sam, job_id))["verdict"] == "alone"
    assert not hub.hub.settlement.ties.programs


@pytest.mark.soak
async def test_a_false_text_that_was_believed_is_found_by_a_recheck(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=SAVES, verify="adaptive")
    forger = await with_noise(hub, nodes, FALSE, ran_ms=1_000)  # pay is held only if there is any
    assert (await job(sam, job_id))["verdict"] == "alone"
    assert await shown(sam, job_id) == (FALSE, False)
    for name in ("late", "later"):
        nodes.append(await hub.node(await hub.account(name, "provider"), name=name))
        await nodes[-1].poll(wait_ms=0)
    await unconfirmed.start_checks(hub.hub)
    left = others(nodes, forger)
    left = others(left, await prints(left, TRUE))
    await prints(left, TRUE)
    assert (await job(sam, job_id))["verdict"] == "refuted"
    assert await record(sam, forger) == (0, 1)


async def test_a_well_known_node_that_leaves_out_a_part_is_always_checked(hub: HubDouble) -> None:
    """Otherwise the stored part would be compared with nothing, nineteen times in twenty."""
    sam, nodes = await crowd(hub, 3)
    job_id, forger, attempt_id = await undrawn(hub, sam, nodes, saves=False)
    await say_with_noise(hub, forger, attempt_id, sent=FALSE)
    assert await is_being_checked(sam, job_id)
    assert await finish(sam, job_id, others(nodes, forger), TRUE) == ["refuted", "succeeded", "succeeded"]
    assert await logged(sam, job_id) == TRUE


# checkpoints


@pytest.mark.parametrize(
    ("before", "after"), [("", TRUE + "you are ruined\n"), (FALSE + TRUE, TRUE[9:])], ids=["longer", "another"]
)
async def test_output_after_resuming_ones_own_checkpoint_is_compared_with_the_report(
    hub: HubDouble, before: str, after: str
) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES, verify="none")
    forger = await resumes(hub, nodes, before=before, after=after)
    assert "output_mismatch" in await reasons(sam, job_id)
    assert await record(sam, forger) == (0, 1)
    assert (await job(sam, job_id))["checkpoint"] is None, "nobody resumes from its checkpoint"


async def test_without_a_length_a_resumed_attempt_has_no_result(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=SAVES, verify="none")
    await resumes(hub, nodes, before="", after=FALSE, chars=None)
    assert "staging_failed" in await reasons(sam, job_id)


@pytest.mark.parametrize(
    ("before", "after"), [("", FALSE), (FALSE, TRUE[20:]), (FALSE, "")], ids=["after", "before", "only before"]
)
async def test_output_after_resuming_is_compared_with_complete_texts(hub: HubDouble, before: str, after: str) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=SAVES, verify="adaptive")
    forger = await resumes(hub, nodes, before=before, after=after)
    states = await finish(sam, job_id, others(nodes, forger), TRUE)
    assert states == ["returned", "refuted", "succeeded", "succeeded"]
    assert await record(sam, forger) == (0, 1)
    assert await shown(sam, job_id) == (TRUE, True)


@pytest.mark.parametrize("rest", ["", "what is lost\n"], ids=["", "lost"])
@pytest.mark.parametrize("verify", ["none", "adaptive"])
async def test_an_honest_node_may_resume(hub: HubDouble, rest: str, verify: str) -> None:
    """Its report does not cover what it printed between the checkpoint and the end of the first attempt."""
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES, verify=verify)
    node = await resumes(hub, nodes, before=TRUE[:9] + rest, after=TRUE[9:])
    states = await finish(sam, job_id, others(nodes, node), TRUE)
    assert "refuted" not in states
    assert await violations(sam, [node]) == [0]
    if verify == "none":
        assert await shown(sam, job_id) == (TRUE[:9] + rest + TRUE[9:], not rest)
    else:
        assert await logged(sam, job_id) == TRUE
