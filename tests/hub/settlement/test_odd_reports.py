"""Reports that change nothing also write next to nothing."""

from __future__ import annotations

from pathlib import Path

from computepool.hub.observability import queries
from computepool.protocol.nodes.nodes import CompleteRequest, signed_text
from computepool.protocol.tokens import b64
from computepool.testing.clock import FakeClock
from computepool.testing.hub import running_hub
from computepool.testing.node import NodeDouble
from tests.hub.submitting import submit


async def test_reports_that_make_no_sense_write_an_event_a_minute(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        liar, other = await hub.node(name="liar"), await hub.node(name="other")
        await submit(hub.admin)
        [grant] = await liar.take()
        assert await liar.report(grant.attempt_id) == "accepted"

        async def events() -> list[tuple[str, int]]:
            found = (await hub.admin.get("/events", params={"limit": 500})).json()["events"]
            return [(e["action"], e["data"]["reports"]) for e in found if e["action"].startswith("report.")]

        async def lie(node: NodeDouble, attempts: list[str]) -> None:
            reports = [node.make_report(attempt, result="lies") for attempt in attempts]
            signature = b64(node.key.sign(signed_text(reports)))
            said = CompleteRequest(reports=reports, signature=signature)
            assert (await node.client.post("/complete", content=said.model_dump_json())).status_code == 200

        many = [f"job_{number}-1" for number in range(1_000)]
        for _ in range(3):
            await lie(liar, many)
            await lie(liar, [grant.attempt_id])
        assert await events() == [("report.foreign", 1_000), ("report.conflict", 1)]
        await lie(other, many[:2])
        clock.advance(61_000)
        await lie(liar, many[:3])
        assert (await events())[2:] == [("report.foreign", 2), ("report.foreign", 3)]
        measured = await queries.measures(hub.hub)
        assert (measured["reports_foreign"], measured["reports_conflicting"]) == (3_005, 3)
