"""Credits through the API: balances, statements, explained costs, top-ups, maturing and the leaderboard."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import Connection, text

from computepool.core.ids import earlier_id
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.hub.main import check
from computepool.hub.money import credits as credit_service
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import submit
from tests.hub.untouched import untouched
from tests.hub.working import HOUR, got, pages, run_job

DAY_MS = 24 * 3600 * 1000
#: 10 × 0.8 per core-hour, and twice that set aside for an hour.
PRICE, HOLD = 8 * CREDIT, 16 * CREDIT


hub = hub_fixture(on=BOTH, signup_grant=100 * CREDIT, tick_s=10_000, mature_s=10_000)


# what an account has


async def test_money_moves_from_available_to_held_to_the_owner(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    fresh = await got(sam, "/credits")
    assert (fresh["available"], fresh["held"], fresh["maturing"], fresh["withdrawable"]) == (100 * CREDIT, 0, 0, 0)
    node = await hub.node(pia)
    await submit(sam, spec=HOUR)
    [grant] = await node.take()
    held = await got(sam, "/credits")
    assert (held["available"], held["held"]) == (100 * CREDIT - HOLD, HOLD)
    clock.advance(900_000)
    await node.report(grant.attempt_id, ran_ms=900_000)
    paid = await got(sam, "/credits")
    assert (paid["available"], paid["held"]) == (98 * CREDIT, 0)
    earned = await got(pia, "/credits")
    assert (earned["available"], earned["maturing"]) == (100 * CREDIT, 1_600_000)
    assert (earned["matures_next"], earned["matures_at_ms"]) == (1_600_000, clock.now_ms() + 7 * DAY_MS)


async def test_only_an_admin_looks_at_others(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    other = (await got(hub.admin, "/me"))["id"]
    for path in ("/credits", "/credits/statement", "/credits/statement.csv"):
        assert (await sam.get(path, params={"account_id": other})).status_code == 404
    mine = (await got(sam, "/me"))["id"]
    assert (await got(hub.admin, "/credits", account_id=mine))["available"] == 100 * CREDIT


# maturing


async def test_earnings_mature_once_after_the_holdback(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    await run_job(hub, sam, pia, ran_ms=600_000)
    pay = (await got(pia, "/credits"))["maturing"]
    clock.advance(7 * DAY_MS - 1)
    assert await credit_service.mature(hub.hub) == 0
    clock.advance(1)
    assert await credit_service.mature(hub.hub) == 1
    assert await credit_service.mature(hub.hub) == 0
    have = await got(pia, "/credits")
    assert (have["available"], have["withdrawable"], have["maturing"]) == (100 * CREDIT + pay, pay, 0)
    assert have["matures_at_ms"] is None
    [entry] = (await got(pia, "/credits/statement", kind="mature"))["entries"]
    assert (entry["source"], entry["target"], entry["change"]) == ("maturing", "earned", 0)


async def test_what_is_earned_later_matures_later(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    node = await hub.node(pia)
    for pause in (DAY_MS, 0):
        await submit(sam, spec=HOUR)
        [grant] = await node.take()
        clock.advance(3_600)
        await node.report(grant.attempt_id, ran_ms=3_600)
        clock.advance(pause)
        node.sign_in()
        await node.poll(wait_ms=0)
    pay = 6_400  # 8 credits × 0.001 h, less a fifth
    clock.advance(6 * DAY_MS - 3_600)
    assert await credit_service.mature(hub.hub) == 1
    have = await got(pia, "/credits")
    assert (have["withdrawable"], have["maturing"], have["matures_next"]) == (pay, pay, pay)
    clock.advance(DAY_MS + 3_600)
    assert await credit_service.mature(hub.hub) == 1
    assert (await got(pia, "/credits"))["withdrawable"] == 2 * pay


async def test_earnings_matured_twice_at_once_move_once(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    """Also if a second hub's clock differs, and there are later earnings beside the matured ones."""
    await run_job(hub, sam, pia, ran_ms=600_000)
    clock.advance(7 * DAY_MS)
    due = [(await got(pia, "/me"))["id"]]
    await asyncio.gather(
        *(
            hub.hub.store.write(lambda tx: credit_service._mature(tx, names=due, settings=hub.hub.settings))
            for _ in range(3)
        ),
        return_exceptions=True,
    )
    entries = (await got(pia, "/credits/statement", kind="mature"))["entries"]
    assert len(entries) == 1


def _somebody_waits(connection: Connection) -> bool:
    waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return bool(connection.execute(text(waiting)).scalar())


@pytest.mark.soak
async def test_two_hubs_mature_the_same_earnings_once(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their clocks differ, so each considers another part matured; later earnings must not be taken by mistake."""
    clocks = FakeClock(), FakeClock(seed=1)
    quiet = {"tick_s": 10_000, "mature_s": 10_000}
    async with (
        running_hub(tmp_path / "one", database_url=migrated_url, clock=clocks[0], **quiet) as one,
        running_hub(tmp_path / "two", database_url=migrated_url, clock=clocks[1], **quiet) as two,
    ):
        one.admin = one.client(two.admin_key)  # the second start replaced the first one's key
        sam, pia = await one.account("sam", "submitter"), await one.account("pia", "provider")
        node = await one.node(pia)
        for _ in range(3):
            await submit(sam, spec=HOUR)
            [grant] = await node.take()
            clocks[0].advance(3_600)
            await node.report(grant.attempt_id, ran_ms=3_600)
        account, pay = (await got(pia, "/me"))["id"], 6_400
        clocks[0].advance(7 * DAY_MS - 3_600)  # the first two have matured
        clocks[1].advance(7 * DAY_MS + 3_600)  # the first
        looked, go_on = threading.Event(), threading.Event()
        matured_pay = credit_service._matured_pay

        def slowly(connection: Any, account_id: str, *, before: int) -> tuple[int, int, int]:
            found = matured_pay(connection, account_id, before=before)
            if threading.current_thread() is two.hub.store._thread and not looked.is_set():
                looked.set()
                assert go_on.wait(30)
            return found

        monkeypatch.setattr(credit_service, "_matured_pay", slowly)
        late = asyncio.create_task(
            two.hub.store.write(lambda tx: credit_service._mature(tx, names=[account], settings=two.hub.settings))
        )
        assert await asyncio.to_thread(looked.wait, 30)
        other = asyncio.create_task(
            one.hub.store.write(lambda tx: credit_service._mature(tx, names=[account], settings=one.hub.settings))
        )
        async with asyncio.timeout(60):  # until it waits for the first to be done with this owner
            while not await two.hub.store.read(_somebody_waits):
                pass
        go_on.set()
        assert (await late, await other) == (1, 1)
        have = await got(pia, "/credits")
        assert (have["withdrawable"], have["maturing"]) == (2 * pay, pay)
        moved = (await got(pia, "/credits/statement", kind="mature"))["entries"]
        assert [entry["amount"] for entry in moved] == [pay, pay]
        assert check(one.hub.settings) == []


# statements


async def test_a_statement_explains_every_transfer(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    job_id = await run_job(hub, sam, pia, ran_ms=600_000)
    entries = (await got(sam, "/credits/statement"))["entries"]
    shown = [(e["kind"], e["change"], e["available_change"], e["source"], e["target"], e["text"]) for e in entries]
    hold = 12 * CREDIT  # 2 × 5.6, the price of a core in India, rounded up
    unused = f"Unused hold of job {job_id} refunded."
    assert shown == [
        ("refund", 0, hold - 933_333, "held", "available", unused),
        ("fee", -186_667, 0, "held", "fees", f"The platform's fee for job {job_id}."),
        ("pay", -746_666, 0, "held", "another account", f"Paid to the owner of the node that ran job {job_id}."),
        ("hold", 0, -hold, "available", "held", f"Put on hold for job {job_id}."),
        ("grant", 100 * CREDIT, 100 * CREDIT, "promotion", "available", "Initial credits."),
    ]
    assert (await got(sam, "/credits"))["available"] == sum(e["available_change"] for e in entries)
    [earned, _] = (await got(pia, "/credits/statement"))["entries"]
    assert (earned["change"], earned["text"]) == (746_666, f"Earned by job {job_id}.")
    whole = json.dumps((await got(pia, "/credits/statement"))["entries"])
    assert (await got(sam, "/me"))["id"] not in whole  # who paid is nobody's business


async def test_a_statement_has_pages_filters_and_sums(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    start = clock.now_ms()
    job_id = await run_job(hub, sam, pia)
    seen = [entry["seq"] for entry in await pages(sam, "/credits/statement", "entries", limit=2)]
    assert seen == [e["seq"] for e in (await got(sam, "/credits/statement"))["entries"]]
    assert len(seen) == 5
    kinds = [e["kind"] for e in (await got(sam, "/credits/statement", kind="fee"))["entries"]]
    assert kinds == ["fee"]
    late = await got(sam, "/credits/statement", since_ms=start + 1)
    assert [e["kind"] for e in late["entries"]] == ["refund", "fee", "pay"]
    early = await got(sam, "/credits/statement", until_ms=start + 1, job_id=job_id)
    assert [e["kind"] for e in early["entries"]] == ["hold"]
    summed = await got(sam, "/credits/statement", sums=True, limit=1)
    assert {s["kind"]: (s["transfers"], s["gained"], s["lost"]) for s in summed["sums"]}["hold"] == (1, 0, 0)
    assert sum(s["gained"] - s["lost"] for s in summed["sums"]) == (await got(sam, "/credits"))["available"]


async def test_the_hold_of_a_later_job_is_that_of_its_submission(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    ids = await submit(sam, spec=HOUR, items=3)
    assert [earlier_id(job_id, item) for item, job_id in enumerate(ids)] == [ids[0]] * 3
    [entry] = (await got(sam, "/credits/statement", job_id=ids[2]))["entries"]
    assert (entry["amount"], entry["text"]) == (3 * HOLD, f"Put on hold for job {ids[0]}, the first of 3 jobs.")


BAD_FILTERS: list[dict[str, Any]] = [
    {"kind": "gift"},
    {"since_ms": -1},
    {"since_ms": "yesterday"},
    {"until_ms": 2**63},
    {"after": "acc_x"},
    {"after": "9" * 30},
    {"limit": 0},
    {"limit": 501},
]


async def test_bad_filters_are_refused(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    for params in BAD_FILTERS:
        answer = await sam.get("/credits/statement", params=params)
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_request")
        assert answer.json()["field"] in params


async def test_somebody_elses_job_is_in_no_statement_of_mine(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    job_id = await run_job(hub, sam, pia)
    stranger = await hub.account("eve", "submitter")
    assert (await got(stranger, "/credits/statement", job_id=job_id))["entries"] == []
    assert (await got(stranger, "/credits/statement", job_id="job_none"))["entries"] == []


async def test_the_export_is_the_statement_and_holds_no_formula(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    await run_job(hub, sam, pia)
    for note in ('=HYPERLINK("http://x","y")', "+1", "-2", "@SUM(A1)", 'a "quoted", word'):
        (
            await hub.admin.post("/credits/top-ups", json={"account": "sam", "amount": 1, "note": note})
        ).raise_for_status()
    answer = await sam.get("/credits/statement.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    entries = (await got(sam, "/credits/statement", limit=500))["entries"]
    assert [int(row["number"]) for row in rows] == [entry["seq"] for entry in entries]
    assert [row["change"] for row in rows if row["kind"] == "pay"] == ["-0.672000"]
    assert all(not cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())
    notes = [row["reference"] for row in rows if row["kind"] == "top_up"]
    assert notes == ['a "quoted", word', "'@SUM(A1)", "'-2", "'+1", '\'=HYPERLINK("http://x","y")']
    assert all(row["time"].endswith("Z") for row in rows)
    only = await sam.get("/credits/statement.csv", params={"kind": "grant"})
    assert len(only.text.splitlines()) == 2


async def test_a_long_export_comes_whole(
    hub: HubDouble, sam: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("computepool.hub.money.statements._EXPORT_PAGE", 2)
    await submit(sam, spec=HOUR)
    for _ in range(4):
        (await hub.admin.post("/credits/top-ups", json={"account": "sam", "amount": 1})).raise_for_status()
    lines = (await sam.get("/credits/statement.csv")).text.splitlines()
    assert len(lines) == 1 + 6


# why


async def test_a_submitter_is_told_every_factor_of_the_cost(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    job_id = await run_job(hub, sam, pia)
    cost = await got(sam, f"/jobs/{job_id}/cost")
    assert (cost["tier"], cost["region"], cost["tier_rate"], cost["region_rate"]) == ("cpu", "in", 80, 70)
    assert (cost["base"], cost["reference"], cost["spot"], cost["units"]) == (10 * CREDIT, 5_600_000, 5_600_000, 1000)
    assert (cost["price"], cost["billed_ms"], cost["charge"]) == (5_600_000, 540_001, 840_001)
    assert (cost["fee"], cost["pay"], cost["refund"]) == (168_001, 672_000, 12_000_000 - 840_001)
    assert cost["sentence"] == (
        "This job cost 0.840001 credits: 540.001 s (9 min) on test-node at 5.60 per hour (1 core, region in, at the"
        " spot price of 5.60); 0.672 went to the node's owner, 0.168001 (20 %) to the platform, and 11.159999 of the"
        " 12.00 on hold were refunded."
    )
    assert [line["label"] for line in cost["lines"]] == (
        ["base", "tier", "region", "reference", "spot", "units", "price", "time", "charge", "fee", "pay"]
    )


async def test_an_owner_is_told_what_was_paid_and_why(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    job_id = await run_job(hub, sam, pia)
    cost = await got(pia, f"/jobs/{job_id}/cost")
    assert cost["sentence"] == (
        "You were paid 0.672 credits: 540.001 s (9 min) on test-node at 5.60 per hour (1 core, region in, at the spot"
        " price of 5.60) is 0.840001, less the platform's 20 % (0.168001)."
    )
    assert (cost["role"], cost["hold"], cost["max_price"], cost["refund"]) == ("owner", None, None, None)


async def test_a_cost_is_explained_before_and_without_a_result(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    node = await hub.node(pia)
    [waiting] = await submit(sam, spec=HOUR, needs={"cores": 5})
    assert (await got(sam, f"/jobs/{waiting}/cost"))["sentence"] == (
        "Nothing has been charged yet: 80.00 credits are on hold, and at most 80.00 per hour."
        " Only a result is paid for."
    )
    [held] = await submit(sam, spec=HOUR)
    [grant] = await node.take()
    mine = await got(sam, f"/jobs/{held}/cost")
    assert mine["sentence"] == (
        "Nothing has been charged yet: 16.00 credits are on hold; it costs 8.00 per hour on its current node."
        " Only a result is paid for."
    )
    assert not mine["settled"]
    assert mine["so_far"] is None  # it is given to a node, and has not begun
    await node.poll(running=[{"attempt_id": grant.attempt_id}], wait_ms=0, claim=False)
    clock.advance(9_000)
    assert (await got(sam, f"/jobs/{held}/cost"))["so_far"] == PRICE * 9 // 3600
    theirs = await got(pia, f"/jobs/{held}/cost")
    assert theirs["so_far"] is None
    assert theirs["sentence"] == "Not paid yet: your node holds this job at 8.00 per hour."
    assert theirs["hold"] is None
    await node.report(grant.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1)
    failed = await got(sam, f"/jobs/{held}/cost")
    assert failed["sentence"] == "The job failed, so it cost nothing; the 16.00 credits on hold were refunded."
    assert (failed["charge"], failed["refund"]) == (0, HOLD)
    theirs = await got(pia, f"/jobs/{held}/cost")
    assert theirs["sentence"] == (
        f"You were paid nothing: your node's attempt {held}-1 ended as failed (exit nonzero), and only a result that"
        " counts is paid for."
    )


async def test_other_tries_cost_nothing_and_ones_own_node_is_free(
    hub: HubDouble, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    both = await hub.account("bob", "submitter", "provider")
    node = await hub.node(both)
    [job_id] = await submit(both, spec=HOUR, retries=1)
    [first] = await node.take()
    await node.report(first.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1)
    clock.advance(60_000)
    [second] = await node.take()
    running = await got(both, f"/jobs/{job_id}/cost")
    assert running["sentence"] == "Free on your own node (at most 16.00 reserved if others run it)."
    await node.report(second.attempt_id)
    cost = await got(both, f"/jobs/{job_id}/cost")
    assert cost["sentence"] == (
        "This job was free: test-node is your own node; 16.00 of the 16.00 on hold were refunded."
        " 1 other attempt cost nothing: only results that count are paid for."
    )


# top-ups


async def test_an_operator_gives_credits_and_books_what_was_paid_in(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    account = (await got(sam, "/me"))["id"]
    body = {"account": "sam", "amount": 500 * CREDIT, "source": "bank", "note": "UTR 4312"}
    first = await hub.admin.post("/credits/top-ups", json=body, headers={"Idempotency-Key": "k1"})
    again = await hub.admin.post("/credits/top-ups", json=body, headers={"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert first.json()["available"] == 600 * CREDIT
    gift = await hub.admin.post("/credits/top-ups", json={"account": account, "amount": 1})
    assert gift.json()["available"] == 600 * CREDIT + 1
    texts = [e["text"] for e in (await got(sam, "/credits/statement", kind="top_up"))["entries"]]
    assert texts == ["Given by the operator.", "Paid in: UTR 4312."]
    other = await hub.admin.post("/credits/top-ups", json=body | {"amount": 1}, headers={"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["field"]) == (409, "Idempotency-Key")


BAD_AMOUNTS = [-1, 0, 1.5, 1.0, "1", "NaN", None, True, [], AMOUNT_MAX + 1, 10**30]
NO_JSON = ["NaN", "Infinity", "1e3", "-0", "0x10"]
BAD_TOP_UPS: list[tuple[dict[str, Any], int, str]] = [
    *(({"account": "sam", "amount": amount}, 422, "amount") for amount in BAD_AMOUNTS),
    ({"account": "nobody", "amount": 1}, 404, "account"),
    ({"account": "sam", "amount": 1, "source": "fees"}, 422, "source"),
    ({"account": "sam", "amount": 1, "note": "two\nlines"}, 422, "note"),
    ({"account": "sam", "amount": 1, "note": "x" * 201}, 422, "note"),
    ({"account": "sam", "amount": 1, "gift": True}, 422, "gift"),
    ({"amount": 1}, 422, "account"),
]


async def test_bad_top_ups_move_nothing(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    async with untouched(hub):
        for body, status, field in BAD_TOP_UPS:
            answer = await hub.admin.post("/credits/top-ups", json=body)
            assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text
        for text in NO_JSON:
            body_text = f'{{"account": "sam", "amount": {text}}}'
            headers = {"Content-Type": "application/json"}
            answer = await hub.admin.post("/credits/top-ups", content=body_text, headers=headers)
            assert answer.status_code == 422, answer.text


async def test_no_balance_grows_beyond_what_can_be_counted(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    body = {"account": "sam", "amount": AMOUNT_MAX - 100 * CREDIT}
    assert (await hub.admin.post("/credits/top-ups", json=body)).json()["available"] == AMOUNT_MAX
    async with untouched(hub):
        answer = await hub.admin.post("/credits/top-ups", json={"account": "sam", "amount": 1})
        assert (answer.status_code, answer.json()["field"]) == (422, "amount")


# the leaderboard


async def test_the_leaderboard_names_who_lends_and_borrows(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    await run_job(hub, sam, pia)
    board = await got(sam, "/credits/leaderboard")
    assert board["lenders"] == [{"rank": 1, "name": "pia", "ran_ms": 540_001, "jobs": 1, "credits": 672_000}]
    assert board["borrowers"] == [{"rank": 1, "name": "sam", "ran_ms": 540_001, "jobs": 1, "credits": 840_001}]
    assert "acc_" not in json.dumps(board)
    clock.advance(31 * DAY_MS)
    later = await got(sam, "/credits/leaderboard", by="hours")
    assert (later["lenders"], later["borrowers"]) == ([], [])
    assert (await sam.get("/credits/leaderboard", params={"by": "luck"})).status_code == 422
