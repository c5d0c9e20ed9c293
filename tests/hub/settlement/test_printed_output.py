"""Standard output: the text that a node sends must be the one that it reports, whether the result is checked or not."""

from __future__ import annotations

import httpx2
import pytest

from computepool.core.money import ledger
from computepool.protocol.nodes.nodes import LOG_SENT_MIN
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import job, submit
from tests.hub.verifying import attempts_of, logged, owner_of, piece, placed, printing, prints, send, violations
from tests.hub.working import HOUR, balance, crowd, got, others

KEPT_BYTES = 3 * LOG_SENT_MIN // 2

hub = hub_fixture(on=BOTH, log_max_bytes=KEPT_BYTES, tick_s=10_000)


async def reasons(client: httpx2.AsyncClient, job_id: str) -> set[str]:
    return {event["reason"] for event in (await got(client, "/events", job_id=job_id))["events"]}


async def finish(client: httpx2.AsyncClient, job_id: str, nodes: list[NodeDouble], text: str) -> list[str]:
    """Honest nodes run the job until it succeeds. Returns the states of all its attempts."""
    while (await job(client, job_id))["state"] != "succeeded":
        nodes = others(nodes, await prints(nodes, text))
    return await attempts_of(client, job_id, "state")


@pytest.mark.parametrize("verify", ["none", "adaptive", "quorum:2"])
@pytest.mark.parametrize("sent", ["43\n", "42\n and more", "42!", "43 x"], ids=["other", "more", "end", "long"])
async def test_a_node_that_sends_another_text_than_it_reports_is_refuted(
    hub: HubDouble, verify: str, sent: str
) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=HOUR, verify=verify)
    forger = await prints(nodes, "42\n", sent=sent)
    assert "output_mismatch" in await reasons(sam, job_id)
    assert await logged(sam, job_id) == "", "false text is not shown"
    assert (await finish(sam, job_id, others(nodes, forger), "42\n"))[0] == "refuted"
    assert await logged(sam, job_id) == "42\n"
    assert await violations(sam, [forger]) == [1]
    assert await balance(hub, ledger.earn(await owner_of(sam, forger))) == 0


async def test_text_sent_in_several_pieces_is_compared_with_the_report(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR, verify="none")
    node, attempt_id = await placed(nodes)
    await send(node, piece(attempt_id, "a\n", seq=0), piece(attempt_id, "noise", stream="stderr", seq=1))
    await send(node, piece(attempt_id, "false\n", seq=2))
    assert await node.report(attempt_id, **printing("a\nb\n")) == "accepted"
    assert "output_mismatch" in await reasons(sam, job_id)


async def test_a_piece_sent_again_after_a_lost_reply_is_stored_once(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=HOUR, verify="none")
    node, attempt_id = await placed(nodes)
    first, second = piece(attempt_id, "a\n", seq=0), piece(attempt_id, "b\n", seq=1)
    await send(node, first)
    await send(node, first, second)
    report = node.make_report(attempt_id, **printing("a\nb\nc\n"))
    for verdict in ("accepted", "replay"):
        assert await node.report_all([report], logs=[second, piece(attempt_id, "c\n", seq=2)]) == [verdict]
    assert (await job(sam, job_id))["state"] == "succeeded"
    page = await got(sam, f"/jobs/{job_id}/logs")
    assert ("".join(chunk["text"] for chunk in page["chunks"]), page["complete"]) == ("a\nb\nc\n", True)


async def test_output_after_the_report_is_ignored(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=HOUR, verify="none")
    node = await prints(nodes, "42\n")
    attempt_id = f"{job_id}-1"
    await send(node, piece(attempt_id, "and 43\n", seq=9))
    report = node.make_report(attempt_id, **printing("42\n"))
    assert await node.report_all([report], logs=[piece(attempt_id, "and 44\n", seq=10)]) == ["replay"]
    assert await logged(sam, job_id) == "42\n"


async def test_a_node_that_loses_output_is_not_paid_and_has_no_violation(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR, verify="none")
    node = await prints(nodes, "a\nb\n", sent="b\n")
    assert "staging_failed" in await reasons(sam, job_id)
    assert await violations(sam, [node]) == [0]
    assert (await got(sam, f"/nodes/{node.node_id}"))["consecutive_faults"] == 0
    await prints(others(nodes, node), "a\nb\n")
    assert (await got(sam, f"/nodes/{node.node_id}"))["consecutive_faults"] == 1, "another node could do it"
    assert await logged(sam, job_id) == "a\nb\n", "a failed attempt's text is no part of the output"


async def test_the_hub_stores_a_part_of_a_long_output_and_says_so(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=HOUR, verify="none")
    node, attempt_id = await placed(nodes)
    line = "x" * 49_999 + "\n"
    many = KEPT_BYTES // len(line) + 10
    for seq in range(many):
        await send(node, piece(attempt_id, line, seq=seq))
    assert await node.report(attempt_id, **printing(line * many)) == "accepted"
    assert (await job(sam, job_id))["state"] == "succeeded"
    page = await got(sam, f"/jobs/{job_id}/logs", limit=500)
    assert (len(page["chunks"]), page["ended"], page["complete"]) == (KEPT_BYTES // len(line), True, False)


async def test_a_false_length_makes_another_result(hub: HubDouble) -> None:
    """Otherwise a node could send a false text, claim that most of it was too long to store, and report the right digest."""
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=HOUR, verify="quorum:2")
    forger, attempt_id = await placed(nodes)
    for seq in range(21):
        await send(forger, piece(attempt_id, "y" * 50_000, seq=seq))
    assert await forger.report(attempt_id, **(printing("42\n") | {"printed_chars": 10**7})) == "accepted"
    second = await prints(others(nodes, forger), "42\n")
    assert (await job(sam, job_id))["state"] != "succeeded", "they do not agree"
    await prints(others(nodes, forger, second), "42\n")
    assert await attempts_of(sam, job_id, "state") == ["refuted", "succeeded", "succeeded"]
    assert await logged(sam, job_id) == "42\n"


@pytest.mark.parametrize("sent", [None, "43\n"], ids=["whole", "other"])
async def test_an_agent_may_leave_out_the_length_of_the_output(hub: HubDouble, sent: str | None) -> None:
    """Without it, text that does not match is no result, but no lie either."""
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=HOUR, verify="quorum:2")
    older = await prints(nodes, "42\n", sent=sent, printed_chars=None)
    states = await finish(sam, job_id, others(nodes, older), "42\n")
    assert states == (["succeeded"] * 2 if sent is None else ["failed", "succeeded", "succeeded"])
    assert await logged(sam, job_id) == "42\n"
    assert await violations(sam, [older]) == [0]


async def test_a_result_from_before_an_upgrade_agrees_with_one_from_after_it(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR, verify="quorum:2")
    first = await prints(nodes, "42\n")
    await hub.hub.store.write(
        lambda tx: tx.connection.exec_driver_sql(
            "UPDATE attempts SET printed_chars = NULL, stdout_chars = 0, log_next = 0"
        )
    )
    await prints(others(nodes, first), "42\n")
    assert (await job(sam, job_id))["verdict"] == "confirmed"


def test_the_length_of_the_output_is_not_signed() -> None:
    named = [NodeDouble.make_report("a-1", **(printing("42\n") | {"printed_chars": chars})) for chars in (None, 3)]
    assert len({report.digest() for report in named}) == 1
    assert len({report.result_digest() for report in named}) == 1


@pytest.mark.parametrize(
    ("said", "why"), [({"printed_chars": 3}, "requires `printed`"), ({"exit_code": 3}, "does not exit with 3")]
)
def test_a_contradictory_report_is_invalid(said: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        NodeDouble.make_report("a-1", **said)


def test_the_number_of_failed_items_is_part_of_a_result() -> None:
    digests = {NodeDouble.make_report("a-1", items_failed=count).result_digest() for count in (0, 1, 2)}
    assert len(digests) == 3
