"""A bank that hangs, disconnects, contradicts and repeats itself: each payout is still paid once, or returned once."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from computepool.core.money.money import CREDIT
from tests.hub.money.payouts.bank import KEY_SECRET, WEBHOOK_SECRET, Conduct, webhook, webhooks
from tests.hub.money.payouts.conftest import BANK, UPI, Scene
from tests.hub.money.payouts.earning import LEAST

PAID_AFTER_ALL = [
    Conduct.PAY,
    Conduct.PROCESS,
    Conduct.SLOW,
    Conduct.HANG_PAID,
    Conduct.HANG,
    Conduct.ERROR_PAID,
    Conduct.ERROR,
    Conduct.RESET_PAID,
    Conduct.RESET,
    Conduct.GARBLE_PAID,
    Conduct.BUSY,
    Conduct.LOCKED_OUT,
]
RETURNED = [Conduct.REFUSE, Conduct.FAIL, Conduct.REVERSE]
UNCLEAR = set(PAID_AFTER_ALL) - {Conduct.PAY, Conduct.PROCESS}


@pytest.mark.parametrize("conduct", PAID_AFTER_ALL)
async def test_paid_once_whatever_happened_to_the_answer(any_scene: Scene, conduct: Conduct) -> None:
    scene = any_scene
    await scene.earn(2 * LEAST)
    payout_id = await scene.ask()
    scene.bank.conduct.append(conduct)
    await scene.round()
    assert await scene.state(payout_id) == {Conduct.PAY: "paid", Conduct.PROCESS: "submitted"}.get(conduct, "unknown")
    assert (await scene.settle(payout_id))[payout_id] == "paid"
    assert scene.bank.books.paid(payout_id) == 1
    assert await scene.available() == LEAST
    again = scene.bank.orders
    await scene.round(after_s=1_000_000)
    assert scene.bank.orders == again


@pytest.mark.parametrize("conduct", RETURNED)
async def test_a_definite_no_returns_the_money_once(any_scene: Scene, conduct: Conduct) -> None:
    scene = any_scene
    await scene.earn(2 * LEAST)
    payout_id = await scene.ask(**BANK)
    scene.bank.conduct.append(conduct)
    await scene.round()
    scene.bank.conduct.clear()
    assert (await scene.settle(payout_id))[payout_id] == "failed"
    assert await scene.available() == 2 * LEAST
    assert "closed" in (await scene.get(payout_id))["status"] or conduct is Conduct.REFUSE
    await scene.round(after_s=1_000_000)
    assert await scene.available() == 2 * LEAST


def arrived_late(payout_id: str) -> dict[str, object]:
    """The bank's record of an order that it has after all."""
    return {"id": "pout_9", "entity": "payout", "amount": 50_000, "currency": "INR", "reference_id": payout_id}


async def test_an_unclear_answer_keeps_the_money_set_aside(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    scene.bank.conduct.extend([Conduct.ERROR] * 100)
    for _ in range(12):
        await scene.round(after_s=scene.hub.hub.settings.payout_retry_max_s)
        assert await scene.state(payout_id) in ("unknown", "submitted")
        assert await scene.available() == 0
    assert (await scene.settle(payout_id))[payout_id] == "paid"


@pytest.mark.soak
async def test_the_hub_asks_an_unclear_bank_less_and_less_often(scene: Scene) -> None:
    await scene.earn(LEAST)
    await scene.ask()
    scene.bank.conduct.append(Conduct.HANG_PAID)
    scene.bank.answers.extend(["error"] * 100)
    await scene.round()
    pauses = []
    for _ in range(6):
        pause = 0
        while not await scene.round(after_s=1):
            pause += 1
        pauses.append(pause)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 10 * max(1, pauses[0])


@pytest.mark.parametrize("answer", ["error", "hang", "busy", "garble", "nothing"])
async def test_a_question_that_fails_is_asked_again(scene: Scene, answer: str) -> None:
    """`nothing`: the bank's list lags behind its books, so the order is sent again under the same key."""
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.HANG_PAID)
    await scene.round()
    scene.bank.answers.extend([answer] * 2)
    await scene.round(after_s=1000)
    assert (await scene.settle(payout_id))[payout_id] == "paid"
    assert len(scene.bank.books.of(payout_id)) == 1


async def test_an_order_still_on_its_way_is_not_paid_twice(scene: Scene) -> None:
    """The bank accepts it long after the time-out, while the hub asks and sends it again."""
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.SLOW)
    await scene.round()
    await scene.round(after_s=1000)  # not known there; sent again; the bank says that it is busy with it
    assert await scene.state(payout_id) == "unknown"
    assert scene.bank.orders == 2
    assert (await scene.settle(payout_id))[payout_id] == "paid"
    assert len(scene.bank.books.of(payout_id)) == 1


async def test_a_refusal_of_the_second_try_is_no_proof_about_the_first(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    scene.bank.conduct.extend([Conduct.ERROR, Conduct.REFUSE])
    await scene.round()
    await scene.round(after_s=1000)
    found = await scene.get(payout_id)
    assert (found["state"], found["reason"]) == ("unknown", "refused_again")
    assert await scene.available() == 0
    await scene.round(after_s=1000)
    assert await scene.state(payout_id) == "unknown"
    await scene.round(after_s=3600)
    assert await scene.state(payout_id) == "failed"
    assert await scene.available() == LEAST
    assert scene.bank.orders == 2


async def test_a_refusal_that_the_bank_itself_contradicts(scene: Scene) -> None:
    """Before the answer to the first order, a webhook says that the bank is working on it."""
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.LATE_REFUSE)
    sending = asyncio.create_task(scene.round())
    assert await asyncio.to_thread(scene.bank.measurement.wait, 60)
    payout = arrived_late(payout_id)
    assert await scene.tell("payout.initiated", payout | {"status": "processing"}) == 204
    scene.bank.go_on.set()
    await sending
    assert await scene.state(payout_id) == "unknown"
    assert await scene.available() == 0
    scene.bank.books.payouts.append(payout | {"status": "processed", "_end": "processed"})
    assert (await scene.settle(payout_id))[payout_id] == "paid"


async def test_a_hub_that_was_suspended_does_not_believe_a_refusal(scene: Scene) -> None:
    """Its claim has ended, and another round has sent the order again before the first answer."""
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.LATE_REFUSE)
    slow = asyncio.create_task(scene.round())
    assert await asyncio.to_thread(scene.bank.measurement.wait, 60)
    assert await scene.round(after_s=1000) == 1
    scene.bank.go_on.set()
    await slow
    assert scene.bank.orders == 2
    assert await scene.state(payout_id) == "unknown"
    assert await scene.available() == 0
    assert (await scene.settle(payout_id))[payout_id] == "failed"
    assert await scene.available() == LEAST


async def test_a_payout_is_not_given_up_when_the_bank_reports_it_meanwhile(scene: Scene) -> None:
    """During the hub's last question, a webhook says that the bank has the order after all."""
    payout_id = await scene.ask_earned()
    scene.bank.conduct.extend([Conduct.ERROR, Conduct.REFUSE])
    await scene.round()
    await scene.round(after_s=1000)
    assert (await scene.get(payout_id))["reason"] == "refused_again"
    scene.bank.answers.append("slow nothing")
    last = asyncio.create_task(scene.round(after_s=4000))
    assert await asyncio.to_thread(scene.bank.measurement.wait, 60)
    payout = arrived_late(payout_id)
    assert await scene.tell("payout.initiated", payout | {"status": "processing"}) == 204
    scene.bank.go_on.set()
    await last
    assert await scene.state(payout_id) == "submitted"
    assert await scene.available() == 0
    scene.bank.books.payouts.append(payout | {"status": "processed", "_end": "processed"})
    assert (await scene.settle(payout_id))[payout_id] == "paid"


async def test_what_was_refused_again_is_paid_when_the_bank_had_it(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    scene.bank.conduct.extend([Conduct.ERROR_PAID])
    await scene.round()
    scene.bank.answers.append("nothing")
    scene.hub.hub.settings.razorpayx_account_number = "7878780080316316 "  # another body under the same key
    await scene.round(after_s=1000)
    assert await scene.state(payout_id) == "unknown"
    scene.hub.hub.settings.razorpayx_account_number = "7878780080316316"
    assert (await scene.settle(payout_id))[payout_id] == "paid"


async def test_a_refused_connection_leaves_the_payout_unknown_until_the_bank_answers(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    scene.hub.hub.settings.razorpayx_url, right = "http://127.0.0.1:1", scene.bank.url
    await scene.round()
    assert await scene.state(payout_id) == "unknown"
    scene.hub.hub.settings.razorpayx_url = right
    assert (await scene.settle(payout_id))[payout_id] == "paid"


# webhooks


@pytest.mark.soak
async def test_webhooks_sent_twice_and_in_any_order_take_effect_once(any_scene: Scene) -> None:
    scene = any_scene
    await scene.earn(4 * LEAST)
    payouts = [await scene.ask() for _ in range(4)]
    conducts = [Conduct.HANG_PAID, Conduct.ERROR_PAID, Conduct.FAIL, Conduct.RESET_PAID]
    scene.bank.conduct.extend(conducts)
    await scene.round()
    sent = list(webhooks(scene.bank.books)) * 3
    random.Random(7).shuffle(sent)
    route = "/payouts/webhook/razorpayx"
    client = scene.hub.client()
    answers = await asyncio.gather(*(client.post(route, **notice) for notice in sent))
    assert {answer.status_code for answer in answers} == {204}
    states = [await scene.state(payout_id) for payout_id in payouts]
    assert sorted(states) == ["failed", "paid", "paid", "paid"]
    orders = scene.bank.orders
    await scene.round(after_s=1_000_000)
    assert scene.bank.orders == orders
    assert await scene.available() == LEAST
    assert not await _alarms(scene)


@pytest.mark.soak
async def test_a_webhook_overtakes_the_answer(scene: Scene) -> None:
    """It arrives before the answer to the order."""
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.HANG_PAID)
    scene.hang_s = 5  # until then it must be heard
    running = asyncio.create_task(scene.round())
    assert await asyncio.to_thread(scene.bank.took.wait, 60)
    assert await scene.tell(*scene.bank.books.notices[-1]) == 204
    await running
    assert await scene.state(payout_id) == "paid"
    assert await scene.history(payout_id) == ["requested", "reserved", "submitted", "paid"]


async def test_a_wrong_signature_is_refused_and_changes_nothing(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.PROCESS)
    await scene.round()
    event, payout = scene.bank.books.notices[-1]
    told = payout | {"status": "processed"}
    client, route = scene.hub.client(), "/payouts/webhook/razorpayx"
    good = webhook("payout.processed", told)
    right = good["headers"]["X-Razorpay-Signature"]
    wrong: list[tuple[bytes, str]] = [
        (good["content"], ""),
        (good["content"], "0" * 64),
        (good["content"], right.upper()),
        (good["content"], f"{right} "),
        (good["content"] + b" ", right),
        (good["content"].replace(b"processed", b"reversed"), right),
        (good["content"], webhook(event, told, secret=KEY_SECRET)["headers"]["X-Razorpay-Signature"]),
    ]
    for body, signature in wrong:
        if signature.strip() == right and body == good["content"]:
            continue  # HTTP itself takes the space away
        answer = await client.post(route, content=body, headers={"X-Razorpay-Signature": signature})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), signature
    assert await scene.state(payout_id) == "submitted"
    assert (await client.post(route, **good)).status_code == 204
    assert await scene.state(payout_id) == "paid"
    scene.bank.books.payouts[0]["status"] = "processed"


async def test_webhooks_about_something_else_change_nothing(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.PROCESS)
    await scene.round()
    payout = scene.bank.books.notices[-1][1] | {"status": "processed"}
    others = [
        payout | {"reference_id": "another system's"},
        payout | {"amount": payout["amount"] + 1},
        payout | {"amount": str(payout["amount"])},
        payout | {"currency": "USD"},
        payout | {"status": "celebrating"},
        payout | {"id": "../../x"},
        payout | {"entity": "contact"},
        {},
    ]
    for other in others:
        assert await scene.tell("payout.processed", other) == 204
    assert await scene.tell("transaction.created", payout) == 204
    assert await scene.state(payout_id) == "submitted"
    answer = await scene.hub.client().post("/payouts/webhook/nobody", content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await scene.hub.client().post("/payouts/webhook/manual", content=b"{}")).status_code == 404


async def test_a_bank_that_contradicts_a_decided_payout_raises_an_alarm(scene: Scene) -> None:
    """No money moves any more, but an event is emitted."""
    await scene.earn(2 * LEAST)
    paid, failed = await scene.ask(), await scene.ask()
    scene.bank.conduct.extend([Conduct.PAY, Conduct.FAIL])
    await scene.round()
    states = {payout["reference_id"]: payout for payout in scene.bank.books.payouts}
    for payout_id in (paid, failed):
        ended = states[payout_id]
        turned = "reversed" if ended["status"] == "processed" else "processed"
        shown = {name: value for name, value in ended.items() if name != "_end"}
        assert await scene.tell(f"payout.{turned}", shown | {"status": turned}) == 204
    assert {await scene.state(paid), await scene.state(failed)} == {"paid", "failed"}
    assert len(await _alarms(scene)) == 2


async def test_two_payouts_at_the_bank_for_one_of_ours_raise_an_alarm(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.PROCESS)
    await scene.round()
    payout = scene.bank.books.notices[-1][1]
    assert await scene.tell("payout.processed", payout | {"id": "pout_other", "status": "processed"}) == 204
    assert await scene.state(payout_id) == "submitted"
    assert len(await _alarms(scene)) == 1


async def _alarms(scene: Scene) -> list[dict[str, object]]:
    events = (await scene.pia.get("/events", params={"limit": 500})).json()["events"]
    return [event for event in events if event["action"] == "payout.contradicted"]


# many at once


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
async def test_many_payouts_survive_every_kind_of_bank_failure_at_once(any_scene: Scene, seed: int) -> None:
    """Every conduct and every wrong answer in random order, with webhooks that are lost, late or doubled."""
    scene, chance = any_scene, random.Random(seed)
    count = 60
    await scene.earn(count * LEAST)
    payouts = [await scene.ask(**chance.choice([UPI, BANK])) for _ in range(count)]
    scene.bank.slowness_s = 0.3
    scene.hang_s = 0.1
    scene.hub.hub.settings.payout_calls_max = 20
    for _ in range(4):
        scene.bank.conduct.extend(chance.choices(list(Conduct), k=count))
        scene.bank.answers.extend(chance.choices(["", "error", "hang", "busy", "garble", "nothing"], k=count))
        await scene.round(after_s=chance.choice([1, 30, 1000]))
        told = list(webhooks(scene.bank.books))
        for notice in chance.choices(told, k=min(20, len(told))):
            answer = await scene.hub.client().post("/payouts/webhook/razorpayx", **notice)
            assert answer.status_code == 204
    states = await scene.settle(*payouts)
    assert set(states.values()) == {"paid", "failed"}
    paid = sum(1 for state in states.values() if state == "paid")
    assert sum(scene.bank.books.paid(payout_id) for payout_id in payouts) == paid
    assert await scene.available() == (count - paid) * LEAST
    assert not await _alarms(scene)


async def test_nothing_secret_in_logs_events_or_replies(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.earn(3 * LEAST)
    with caplog.at_level(logging.DEBUG):
        payouts = [await scene.ask(**BANK), await scene.ask(**UPI), await scene.ask(**UPI)]
        scene.bank.conduct.extend([Conduct.ERROR, Conduct.REFUSE, Conduct.LOCKED_OUT])
        await scene.round()
        await scene.hub.client().post("/payouts/webhook/razorpayx", content=b"{}")
        await scene.settle(*payouts)
    told = caplog.text + (await scene.hub.admin.get("/events", params={"limit": 500})).text
    told += (await scene.hub.admin.get("/payouts", params={"all": True})).text.replace("bank", "")
    assert KEY_SECRET not in told
    assert WEBHOOK_SECRET not in told
    events = (await scene.hub.admin.get("/events", params={"limit": 500})).text
    for private in ("50100123456789", "asha@okaxis", "Asha Rao"):
        assert private not in events + caplog.text


async def test_amounts_reach_the_bank_in_paise(scene: Scene) -> None:
    amount = 612 * CREDIT + 340_000
    await scene.earn(800 * CREDIT)
    await scene.ask(amount)
    await scene.round()
    assert [payout["amount"] for payout in scene.bank.books.payouts] == [61_234]
