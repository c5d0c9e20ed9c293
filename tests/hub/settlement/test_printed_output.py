"""What a program printed: the text that a node sends must be the one that it reports, whether anybody checks it or not."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.core.money import ledger
from computepool.protocol.nodes.nodes import LOG_SENT_MIN
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.money.test_holds import HOUR, balance
from tests.hub.settlement.test_verification import logged, placed, printing
from tests.hub.submitting import body, job
from tests.hub.working import crowd, others

pytestmark = pytest.mark.anyio
KEPT_BYTES = 3 * LOG_SENT_MIN // 2


hub = hub_fixture(on=BOTH, log_max_bytes=KEPT_BYTES, tick_s=10_000)


async def submit(sam: httpx2.AsyncClient, verify: str) -> str:
    asked = body(spec=HOUR) | {"verify": verify}
    return str((await sam.post("/jobs", json=asked)).json()["job_ids"][0])


def claim(text: str, **said: Any) -> dict[str, Any]:
    return printing(text) | said


def piece(attempt_id: str, text: str, *, stream: str = "stdout", seq: int | None = None) -> dict[str, Any]:
    return {"attempt_id": attempt_id, "stream": stream, "text": text} | ({} if seq is None else {"seq": seq})


async def send(node: NodeDouble, *pieces: dict[str, Any]) -> None:
    (await node.client.post("/logs", json={"chunks": pieces})).raise_for_status()


async def prints(nodes: list[NodeDouble], text: str, *, sent: str | None = None, **said: Any) -> NodeDouble:
    """The next node says that it printed this, and sends it with its report, or something else."""
    node, attempt_id = await placed(nodes)
    report = node.make_report(attempt_id, **claim(text, **said))
    assert await node.report_all([report], logs=[piece(attempt_id, text if sent is None else sent)]) == [
        "accepted"
    ]
    return node


async def reasons(client: httpx2.AsyncClient, job_id: str) -> set[str]:
    """Of all that became of it so far."""
    told = (await client.get("/events", params={"job_id": job_id})).json()["events"]
    return {event["reason"] for event in told}


async def reputation(client: httpx2.AsyncClient, node: NodeDouble) -> dict[str, Any]:
    return (await client.get(f"/nodes/{node.node_id}")).json()


@pytest.mark.parametrize("verify", ["none", "adaptive", "quorum:2"])
@pytest.mark.parametrize(
    "sent", ["43\n", "42\n and more", "42!", "43 x"], ids=["other", "more", "end", "long"]
)
async def test_who_sends_another_text_than_it_reports_is_refuted(
    hub: HubDouble, verify: str, sent: str
) -> None:
    sam, nodes = await crowd(hub, 3)
    job_id = await submit(sam, verify)
    forger = await prints(nodes, "42\n", sent=sent)
    assert "output_mismatch" in await reasons(sam, job_id)
    assert await logged(sam, job_id) == "", "what is false is not shown"
    left = others(nodes, forger)
    while (await job(sam, job_id))["state"] != "succeeded":
        left = others(left, await prints(left, "42\n"))
    done = await job(sam, job_id)
    assert done["tries"][0]["state"] == "refuted"
    assert await logged(sam, job_id) == "42\n"
    seen = await reputation(sam, forger)
    assert seen["reputation"]["violation_count"] == 1
    assert await balance(hub, ledger.earn(seen["owner"])) == 0


async def test_text_in_several_pieces_is_held_against_the_report(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, "none")
    node, attempt_id = await placed(nodes)
    await send(node, piece(attempt_id, "a\n", seq=0), piece(attempt_id, "noise", stream="stderr", seq=1))
    await send(node, piece(attempt_id, "false\n", seq=2))
    assert await node.report(attempt_id, **claim("a\nb\n")) == "accepted"
    assert "output_mismatch" in await reasons(sam, job_id)


async def test_a_piece_that_comes_twice_is_kept_once(hub: HubDouble) -> None:
    """The hub had it, and its answer was lost: the node is honest."""
    sam, nodes = await crowd(hub, 1)
    job_id = await submit(sam, "none")
    node, attempt_id = await placed(nodes)
    first, second = piece(attempt_id, "a\n", seq=0), piece(attempt_id, "b\n", seq=1)
    await send(node, first)
    await send(node, first, second)
    report = node.make_report(attempt_id, **claim("a\nb\nc\n"))
    for verdict in ("accepted", "replay"):
        assert await node.report_all([report], logs=[second, piece(attempt_id, "c\n", seq=2)]) == [verdict]
    assert (await job(sam, job_id))["state"] == "succeeded"
    page = (await sam.get(f"/jobs/{job_id}/logs")).json()
    assert ("".join(chunk["text"] for chunk in page["chunks"]), page["complete"]) == ("a\nb\nc\n", True)


async def test_nothing_is_added_to_what_was_reported(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    job_id = await submit(sam, "none")
    node = await prints(nodes, "42\n")
    attempt_id = f"{job_id}-1"
    await send(node, piece(attempt_id, "and 43\n", seq=9))
    report = node.make_report(attempt_id, **claim("42\n"))
    assert await node.report_all([report], logs=[piece(attempt_id, "and 44\n", seq=10)]) == ["replay"]
    assert await logged(sam, job_id) == "42\n"


async def test_who_loses_a_text_is_not_paid_but_not_called_a_liar(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, "none")
    node = await prints(nodes, "a\nb\n", sent="b\n")
    assert "staging_failed" in await reasons(sam, job_id)
    seen = await reputation(sam, node)
    assert (seen["reputation"]["violation_count"], seen["consecutive_faults"]) == (0, 0)
    await prints(others(nodes, node), "a\nb\n")
    assert (await reputation(sam, node))["consecutive_faults"] == 1, "another could do it"
    assert await logged(sam, job_id) == "a\nb\n", "what came to nothing is no part of the output"


async def test_of_a_long_output_the_hub_keeps_a_part_and_says_so(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    job_id = await submit(sam, "none")
    node, attempt_id = await placed(nodes)
    line = "x" * 49_999 + "\n"
    many = KEPT_BYTES // len(line) + 10
    for seq in range(many):
        await send(node, piece(attempt_id, line, seq=seq))
    assert await node.report(attempt_id, **claim(line * many)) == "accepted"
    assert (await job(sam, job_id))["state"] == "succeeded"
    page = (await sam.get(f"/jobs/{job_id}/logs", params={"limit": 500})).json()
    assert (len(page["chunks"]), page["ended"], page["complete"]) == (KEPT_BYTES // len(line), True, False)


async def test_a_false_length_is_another_result(hub: HubDouble) -> None:
    """Else a node could send a false text, say that most of it was too long to keep, and vouch for the right one."""
    sam, nodes = await crowd(hub, 3)
    job_id = await submit(sam, "quorum:2")
    forger, attempt_id = await placed(nodes)
    for seq in range(21):
        await send(forger, piece(attempt_id, "y" * 50_000, seq=seq))
    assert await forger.report(attempt_id, **claim("42\n", printed_chars=10**7)) == "accepted"
    second = await prints(others(nodes, forger), "42\n")
    assert (await job(sam, job_id))["state"] != "succeeded", "they do not agree"
    await prints(others(nodes, forger, second), "42\n")
    done = await job(sam, job_id)
    assert [try_["state"] for try_ in done["tries"]] == ["refuted", "succeeded", "succeeded"]
    assert await logged(sam, job_id) == "42\n"


@pytest.mark.parametrize("sent", [None, "43\n"], ids=["whole", "other"])
async def test_an_agent_of_the_version_before_does_not_count_characters(
    hub: HubDouble, sent: str | None
) -> None:
    """What it sent decides whether it has a result; where it has none, nobody says that it lied."""
    sam, nodes = await crowd(hub, 3)
    job_id = await submit(sam, "quorum:2")
    older = await prints(nodes, "42\n", sent=sent, printed_chars=None)
    left = others(nodes, older)
    while (await job(sam, job_id))["state"] != "succeeded":
        left = others(left, await prints(left, "42\n"))
    states = [try_["state"] for try_ in (await job(sam, job_id))["tries"]]
    assert states == (["succeeded"] * 2 if sent is None else ["failed", "succeeded", "succeeded"])
    assert await logged(sam, job_id) == "42\n"
    assert (await reputation(sam, older))["reputation"]["violation_count"] == 0


async def test_a_result_from_before_an_upgrade_agrees_with_one_from_after_it(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, "quorum:2")
    first = await prints(nodes, "42\n")
    await hub.hub.store.write(
        lambda tx: tx.connection.exec_driver_sql(
            "UPDATE attempts SET printed_chars = NULL, stdout_chars = 0, log_next = 0"
        )
    )
    await prints(others(nodes, first), "42\n")
    assert (await job(sam, job_id))["verdict"] == "confirmed"


def test_what_is_signed_does_not_say_how_long_it_is() -> None:
    """So the signature of an agent of the version before is right, and so is a newer one's at a hub of that version."""
    named = [NodeDouble.make_report("a-1", **claim("42\n", printed_chars=chars)) for chars in (None, 3)]
    assert len({report.digest() for report in named}) == 1
    assert len({report.result_digest() for report in named}) == 1


def test_what_a_report_cannot_say() -> None:
    for said, why in (
        ({"printed_chars": 3}, "nothing without it"),
        ({"exit_code": 3}, "does not exit with 3"),
    ):
        with pytest.raises(ValueError, match=why):
            NodeDouble.make_report("a-1", **said)


def test_how_many_items_failed_is_part_of_a_result() -> None:
    told = {NodeDouble.make_report("a-1", items_failed=count).result_digest() for count in (0, 1, 2)}
    assert len(told) == 3
