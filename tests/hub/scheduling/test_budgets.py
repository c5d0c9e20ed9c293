"""What a job may cost the store and the wire. These numbers do not depend on the machine: raise one only for a reason."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from sqlalchemy import event

from computepool.protocol.nodes.nodes import CompleteRequest, signed_text
from computepool.protocol.tokens import b64
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.connecting import Connection, poll_of
from tests.hub.submitting import job, submit

#: Statements that the writer runs for a submission that is leased at once, and for a batch of reports, however many jobs they
#: are of; with those that begin and end the transaction.
SUBMIT, SETTLE = 16, 17
#: Statements that nodes which come together cost the writer and the readers, however many they are.
ARRIVE, ARRIVE_READS = 9, 6
#: Those that come while the first is taken in go together; one more round for those that come in between.
ROUNDS = 3
#: Statements that a page of results costs the readers.
RESULTS = 4
#: Calls of our functions for a parked poll that says what the one before said, its answer included.
POLL_CALLS = 52
#: Bytes of a grant and of a report, for each job of a batch.
GRANT_BYTES, REPORT_BYTES = 300, 140

FUNCTION = {"kind": "function", "name": "noop", "function": "AA==", "needs": {"python": "3.11"}}


class Statements:
    def __init__(self, hub: HubDouble) -> None:
        store = hub.hub.store
        self.written: list[str] = []
        self.read: list[str] = []
        for engine, said in ((store._writer, self.written), (store._reader, self.read)):
            event.listen(engine, "before_cursor_execute", lambda *args, said=said: said.append(args[2]))
            event.listen(engine, "commit", lambda _connection, said=said: said.append("COMMIT"))

    @contextmanager
    def at_most(self, *, written: int, read: int = 0) -> Iterator[None]:
        self.written.clear()
        self.read.clear()
        yield
        assert len(self.written) <= written, "\n".join(self.written)
        assert len(self.read) <= read, "\n".join(self.read)


@pytest.fixture
async def quiet(tmp_path: Path):  # type: ignore[no-untyped-def]
    """No duty of the hub's own runs beside the test."""
    never = dict.fromkeys(("webhook_round_s", "tick_s", "usage_round_s", "probe_round_s"), 10_000)
    async with running_hub(tmp_path, verify="adaptive", **never) as hub:
        yield hub


async def _group(hub: HubDouble) -> str:
    return str((await hub.admin.post("/groups", json={"name": "g", "kind": "session"})).json()["id"])


async def _submit(hub: HubDouble, group: str, *, jobs: int) -> None:
    request = {"spec": FUNCTION, "items": [{"payload": "AA=="}] * jobs, "group_id": group}
    (await hub.admin.post("/jobs", json=request, headers={"Idempotency-Key": f"{jobs}"})).raise_for_status()


async def _take_all(node: NodeDouble, jobs: int) -> None:
    while len(node.holding) < jobs:
        await node.poll()


async def _report_all(node: NodeDouble) -> None:
    reports = [node.make_report(id_, result="AA==") for id_ in sorted(node.holding)]
    assert set(await node.report_all(reports)) == {"accepted"}


@pytest.mark.parametrize("jobs", [1, 4])
async def test_statements_of_a_jobs_life(quiet: HubDouble, jobs: int) -> None:
    group, node = await _group(quiet), await quiet.node()
    for count in (2, 3):  # what is remembered after the first time is not asked again
        await _submit(quiet, group, jobs=count)
        await _take_all(node, count)
        await _report_all(node)
    cursor = (await quiet.admin.get(f"/groups/{group}/results")).json()["cursor"]
    statements = Statements(quiet)
    polling = asyncio.create_task(_take_all(node, jobs))
    with statements.at_most(written=SUBMIT):
        await _submit(quiet, group, jobs=jobs)
        await polling
    with statements.at_most(written=SETTLE):
        await _report_all(node)
    with statements.at_most(written=0, read=RESULTS):
        page = await quiet.admin.get(f"/groups/{group}/results", params={"after": cursor})
    assert len(page.json()["results"]) == jobs


async def test_who_has_all_results_looks_once_for_the_next(quiet: HubDouble) -> None:
    group, node = await _group(quiet), await quiet.node()
    cursor = 0
    for count in (2, 3, 4):
        statements, read = Statements(quiet), RESULTS if cursor else 1_000
        with statements.at_most(written=1_000, read=read):
            params = {"after": cursor, "wait_ms": 20_000}
            polling = asyncio.create_task(quiet.admin.get(f"/groups/{group}/results", params=params))
            await _submit(quiet, group, jobs=count)
            await _take_all(node, count)
            await _report_all(node)
            page = (await polling).json()
        assert (len(page["results"]), page["open"]) == (count, None)
        cursor = page["cursor"]


@pytest.mark.parametrize("ending", ["accepted", "cancelled"])
async def test_statements_do_not_depend_on_how_many_wait_for_a_job(quiet: HubDouble, ending: str) -> None:
    """Thousands may: one statement for each would keep every other write waiting."""
    node, statements, needed = await quiet.node(), Statements(quiet), []
    for dependents in (2, 40):
        [first] = await submit(quiet.admin)
        waiting = await submit(quiet.admin, items=dependents, after=[first], needs={"cores": 1000})
        if ending == "accepted":
            [grant] = await node.take()
        with statements.at_most(written=1_000, read=1_000):
            if ending == "accepted":
                assert await node.report(grant.attempt_id) == "accepted"
            else:
                assert (await quiet.admin.post(f"/jobs/{first}/cancel")).status_code == 200
            needed.append(len(statements.written))
        for job_id in waiting:
            seen = await job(quiet.admin, job_id)
            expected = ("queued", "waiting_for_node") if ending == "accepted" else ("cancelled", "dependency_failed")
            assert (seen["state"], seen["reason"]) == expected
    assert needed[1] <= needed[0], "\n".join(statements.written)


async def test_bytes_on_the_wire(quiet: HubDouble) -> None:
    """Of each further job of a batch: the spec and the head of a message are shared."""
    group, node = await _group(quiet), await quiet.node()
    granted, reported = [], []
    for jobs in (1, 4):
        await _submit(quiet, group, jobs=jobs)
        await _take_all(node, jobs)
        grants = sorted(node.holding.values(), key=lambda grant: grant.attempt_id)
        granted.append(sum(len(grant.model_dump_json(exclude_defaults=True)) for grant in grants))
        reports = [node.make_report(grant.attempt_id, result="AA==") for grant in grants]
        request = CompleteRequest(reports=reports, signature=b64(node.key.sign(signed_text(reports))))
        reported.append(len(request.model_dump_json(exclude_defaults=True)))
        await _report_all(node)
    assert (granted[1] - granted[0]) / 3 <= GRANT_BYTES
    assert (reported[1] - reported[0]) / 3 <= REPORT_BYTES


async def test_nodes_that_come_at_once_share_their_statements(quiet: HubDouble) -> None:
    nodes = [await quiet.node() for _ in range(20)]
    for node in nodes:
        node.restart()
    quiet.hub.identity.authenticator.forget()
    with Statements(quiet).at_most(written=ROUNDS * ARRIVE, read=ROUNDS * ARRIVE_READS):
        await asyncio.gather(*(node.poll(wait_ms=0) for node in nodes))
    assert len({node.node_id for node in nodes}) == len(quiet.hub.nodes.registry) == 20


async def test_a_poll_asks_the_store_for_nothing(quiet: HubDouble) -> None:
    node = await quiet.node()
    await node.poll(wait_ms=0)
    with Statements(quiet).at_most(written=0, read=0):
        for _ in range(3):
            await node.poll(wait_ms=0)


async def test_a_poll_that_comes_again_is_answered_in_few_steps(quiet: HubDouble) -> None:
    """No task, no parser and no model: nothing but what a poll means."""
    node, connection = await quiet.node(), Connection(quiet)
    data, calls = poll_of(node, wait_ms=1), []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and "/computepool/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_qualname)

    for _ in range(2):
        connection.send(data)
        await connection.reply()
    assert connection.asked == 1
    sys.setprofile(note)
    try:
        connection.send(data)
        connection.protocol.shutdown()  # which answers at once
    finally:
        sys.setprofile(None)
    assert (await connection.reply()).body["status"] == "ready"
    assert len(calls) <= POLL_CALLS, "\n".join(calls)
