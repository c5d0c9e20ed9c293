"""False text under a true digest: neither standard error, nor silence about its length, nor a checkpoint is an excuse."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.hub.settlement.verification import unconfirmed
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.jobs.test_checkpoints import SAVES, saved
from tests.hub.settlement.test_padding import undrawn
from tests.hub.settlement.test_printed_output import claim, piece, prints, reasons, reputation, send
from tests.hub.settlement.test_verification import is_being_checked, logged, placed
from tests.hub.submitting import body, job
from tests.hub.working import crowd, others

pytestmark = pytest.mark.anyio
KEPT_BYTES = 60_000
TRUE = "the true balance is 1000000\n"
FALSE = "the balance is 0\n"
GIVEN_BACK = {"outcome": "returned", "reason": "given_back", "exit_code": None}


hub = hub_fixture(on=BOTH, log_max_bytes=KEPT_BYTES, tick_s=10_000, mature_s=10_000)


async def submit(sam: httpx2.AsyncClient, verify: str = "adaptive") -> str:
    return str((await sam.post("/jobs", json=body(spec=SAVES) | {"verify": verify})).json()["job_ids"][0])


async def with_noise(hub: HubDouble, nodes: list[NodeDouble], sent: str, **said: Any) -> NodeDouble:
    """The next node sends this, then so much on standard error that it may leave out the rest; it reports the truth."""
    node, attempt_id = await placed(nodes)
    await say_with_noise(hub, node, attempt_id, sent=sent, **said)
    return node


async def say_with_noise(
    hub: HubDouble, node: NodeDouble, attempt_id: str, *, sent: str, **said: Any
) -> None:
    await send(
        node, piece(attempt_id, sent, seq=0), piece(attempt_id, "x" * KEPT_BYTES, stream="stderr", seq=1)
    )
    hub.hub.clock.advance(2_000)  # type: ignore[attr-defined]
    node.sign_in()
    assert await node.report(attempt_id, **claim(TRUE, **said)) == "accepted"


async def goes_on(
    hub: HubDouble, nodes: list[NodeDouble], *, before: str, after: str, chars: int | None = len(TRUE)
) -> NodeDouble:
    """A node saves after the first text and gives the job back; given it again, it prints the second and reports the truth."""
    node, rest = nodes[0], nodes[1:]
    await set_state(hub, rest, "paused")
    _, attempt_id = await placed([node])
    assert (await saved(node, attempt_id, b"state"))["kept"]
    report = node.make_report(attempt_id, **GIVEN_BACK)
    assert await node.report_all([report], logs=[piece(attempt_id, before)]) == ["accepted"]
    hub.hub.clock.advance(1_000)  # type: ignore[attr-defined]
    _, attempt_id = await placed([node])
    report = node.make_report(attempt_id, **claim(TRUE, printed_chars=chars))
    assert await node.report_all([report], logs=[piece(attempt_id, after)]) == ["accepted"]
    await set_state(hub, rest, "active")
    return node


async def set_state(hub: HubDouble, nodes: list[NodeDouble], state: str) -> None:
    for node in nodes:
        (await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": state})).raise_for_status()


async def finish(sam: httpx2.AsyncClient, job_id: str, nodes: list[NodeDouble]) -> list[str]:
    """Honest nodes do the rest; the states of all its tries."""
    while (await job(sam, job_id))["state"] != "succeeded":
        nodes = others(nodes, await prints(nodes, TRUE))
    return [each["state"] for each in (await job(sam, job_id))["tries"]]


async def record(sam: httpx2.AsyncClient, node: NodeDouble) -> tuple[int, int]:
    known = (await reputation(sam, node))["reputation"]
    return known["violation_count"], known["streak"]


async def shown(sam: httpx2.AsyncClient, job_id: str) -> tuple[str, bool | None]:
    page = (await sam.get(f"/jobs/{job_id}/logs")).json()
    text = "".join(chunk["text"] for chunk in page["chunks"] if chunk["stream"] == "stdout")
    return text, page["complete"]


# standard error


@pytest.mark.parametrize("turn", [0, 1], ids=["first", "second"])
async def test_noise_does_not_excuse_a_false_text(hub: HubDouble, turn: int) -> None:
    sam, nodes = await crowd(hub, 4)
    job_id = await submit(sam, "quorum:2")
    if turn:
        nodes = others(nodes, await prints(nodes, TRUE))
    forger = await with_noise(hub, nodes, FALSE)
    states = await finish(sam, job_id, others(nodes, forger))
    assert states == (
        ["succeeded", "refuted", "succeeded"] if turn else ["refuted", "succeeded", "succeeded"]
    )
    assert await record(sam, forger) == (1, 0)
    assert await shown(sam, job_id) == (TRUE, True)


async def test_who_has_room_for_a_part_of_it_only_is_no_liar(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, "quorum:2")
    first = await with_noise(hub, nodes, TRUE[:9])
    assert await finish(sam, job_id, others(nodes, first)) == ["succeeded", "succeeded"]
    assert await shown(sam, job_id) == (TRUE, True)
    assert (await record(sam, first))[0] == 0


async def test_who_does_not_say_how_long_it_is_must_send_all_of_it(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, "none")
    forger = await with_noise(hub, nodes, FALSE + TRUE, printed_chars=None)
    assert "staging_failed" in await reasons(sam, job_id)
    await finish(sam, job_id, others(nodes, forger))
    assert await shown(sam, job_id) == (TRUE, True)


async def test_where_only_two_lend_the_false_text_is_not_given_out(hub: HubDouble) -> None:
    """Nobody has to decide between them: the node's own digest says that the other's text is the true one."""
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam)
    forger = await with_noise(hub, nodes, FALSE)
    assert await finish(sam, job_id, others(nodes, forger)) == ["refuted", "succeeded"]
    assert await shown(sam, job_id) == (TRUE, True)
    assert (await job(sam, job_id))["verdict"] == "alone"
    assert not hub.hub.settlement.ties.programs


@pytest.mark.soak
async def test_what_was_believed_is_found_out_when_it_is_run_again(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    job_id = await submit(sam)
    forger = await with_noise(hub, nodes, FALSE, ran_ms=1_000)  # what costs something is held
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
    assert await record(sam, forger) == (1, 0)


async def test_a_known_node_that_leaves_some_out_is_always_checked(hub: HubDouble) -> None:
    """Else nothing would hold what is kept against anything, nineteen times in twenty."""
    sam, nodes = await crowd(hub, 3)
    job_id, forger, attempt_id = await undrawn(hub, sam, nodes, saves=False)
    await say_with_noise(hub, forger, attempt_id, sent=FALSE)
    assert await is_being_checked(sam, job_id)
    assert await finish(sam, job_id, others(nodes, forger)) == ["refuted", "succeeded", "succeeded"]
    assert await logged(sam, job_id) == TRUE


# checkpoints


@pytest.mark.parametrize(
    ("before", "after"),
    [("", TRUE + "you are ruined\n"), (FALSE + TRUE, TRUE[9:])],
    ids=["longer", "another"],
)
async def test_who_goes_on_from_its_own_checkpoint_is_held_to_its_report(
    hub: HubDouble, before: str, after: str
) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, "none")
    forger = await goes_on(hub, nodes, before=before, after=after)
    assert "output_mismatch" in await reasons(sam, job_id)
    assert await record(sam, forger) == (1, 0)
    assert (await job(sam, job_id))["checkpoint"] is None, "nobody goes on from what it saved"


async def test_who_goes_on_and_does_not_say_how_long_it_is_has_no_result(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    job_id = await submit(sam, "none")
    await goes_on(hub, nodes, before="", after=FALSE, chars=None)
    assert "staging_failed" in await reasons(sam, job_id)


@pytest.mark.parametrize(
    ("before", "after"),
    [("", FALSE), (FALSE, TRUE[20:]), (FALSE, "")],
    ids=["after", "before", "only before"],
)
async def test_what_it_goes_on_with_is_held_against_a_whole_text(
    hub: HubDouble, before: str, after: str
) -> None:
    sam, nodes = await crowd(hub, 3)
    job_id = await submit(sam)
    forger = await goes_on(hub, nodes, before=before, after=after)
    states = await finish(sam, job_id, others(nodes, forger))
    assert states == ["returned", "refuted", "succeeded", "succeeded"]
    assert await record(sam, forger) == (1, 0)
    assert await shown(sam, job_id) == (TRUE, True)


@pytest.mark.parametrize("rest", ["", "what is lost\n"], ids=["", "lost"])
@pytest.mark.parametrize("verify", ["none", "adaptive"])
async def test_an_honest_node_may_go_on(hub: HubDouble, rest: str, verify: str) -> None:
    """What was printed between the checkpoint and the end of that try is no part of the claim."""
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, verify)
    node = await goes_on(hub, nodes, before=TRUE[:9] + rest, after=TRUE[9:])
    states = await finish(sam, job_id, others(nodes, node))
    assert "refuted" not in states
    assert (await record(sam, node))[0] == 0
    if verify == "none":
        assert await shown(sam, job_id) == (TRUE[:9] + rest + TRUE[9:], not rest)
    else:
        assert await logged(sam, job_id) == TRUE
