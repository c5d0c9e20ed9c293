"""Crashes around the call to the bank and around every commit of a payout: it is still paid once, or returned once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from computepool.core.money import ledger
from computepool.hub.app import open_store
from computepool.hub.clock import SystemClock
from computepool.hub.money import booking
from computepool.hub.money.payouts import rows as payout_rows
from computepool.testing.postgres import PostgresServer
from computepool.testing.processes import HubProcess, RealPool
from computepool.testing.waiting import wait_until
from tests.hub.money.payouts.bank import Conduct, MisbehavingBank, webhook
from tests.hub.money.payouts.earning import LEAST, earn_now

pytestmark = pytest.mark.process

#: Rounds are quick, and nothing else of the hub's own commits: see tests/faults/test_crash_points.py.
QUICK = {
    "lease_min_s": 60,
    "interval_min_s": 10,
    "sweep_s": 10,
    "boot_grace_s": 120,
    "self_fence_s": 10,
    "payout_round_s": 0.05,
    "payout_approve_first": 0,
    "payout_call_s": 0.6,  # on a busy machine an order takes its time to arrive; claims last a multiple of it
    "payout_retry_base_s": 0.1,
    "payout_retry_max_s": 0.3,
}
UPI = {"amount": LEAST, "upi": "asha@okaxis"}


class Till:
    """A pool with one hub that can be crashed, and an account with earnings."""

    def __init__(self, url: str, bank: MisbehavingBank, earned: int) -> None:
        self.bank = bank
        self.settings: dict[str, Any] = {**QUICK, **bank.settings()}
        self.pool = RealPool(database_url=url, **self.settings)
        self.hub: HubProcess = self.pool.add_hub()
        self.store = open_store(self.hub.settings.url, clock=SystemClock(), hub_id="test")
        self.hub.start()
        with self.http() as http:
            self.me = http.get("/me").json()["id"]
        earn_now(self.store, self.me, earned)

    def http(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.pool.admin_key}"}
        return httpx2.Client(base_url=f"{self.hub.url}/api/v1", headers=headers, timeout=60)

    def restart(self, crash_at: str = "") -> None:
        self.hub.kill()
        self.hub.start(crash_at=crash_at)

    def start_doomed(self, crash_at: str) -> bool:
        """Start a hub that will crash. Returns whether it began to serve."""
        self.hub.kill()
        try:
            self.hub.start(crash_at=crash_at)
        except RuntimeError:
            assert self.hub.exit_code == 137, self.hub.log
            return False
        return True

    def ask(self, key: str) -> str:
        """Send the request under this key. Returns an empty id if the hub crashed."""
        with self.http() as http:
            try:
                answer = http.post("/payouts", json=UPI, headers={"Idempotency-Key": key})
            except httpx2.TransportError:
                return ""
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    @property
    def webhook_url(self) -> str:
        return f"{self.hub.url}/api/v1/payouts/webhook/razorpayx"

    def without_rounds(self) -> None:
        """Stop the rounds, so that only a webhook brings news from the bank."""
        self.hub.kill()
        self.pool._settings |= {"payout_round_s": 3600}
        self.hub = self.pool.add_hub()

    def await_death(self) -> None:
        assert self.hub.wait(60) == 137, self.hub.log

    def row(self, payout_id: str) -> Any:
        return self.store.read_now(lambda connection: payout_rows.get(connection, payout_id))

    def available(self) -> int:
        return self.store.read_now(lambda connection: booking.balance_of(connection, ledger.owner(self.me)))

    def await_state(self, payout_id: str, *states: str) -> str:
        wait_until(lambda: self.row(payout_id).state in states, 60, f"the payout is {states}")
        return str(self.row(payout_id).state)

    def close(self) -> None:
        try:
            assert self.pool.broken_rules() == []
        finally:
            self.store.close()
            self.pool.close()


MakeTill = Callable[[int], Till]


@pytest.fixture(params=["sqlite", "postgresql"])
def make_till(request: pytest.FixtureRequest) -> Iterator[MakeTill]:
    tills: list[Till] = []
    with MisbehavingBank() as bank:

        def make(earned: int) -> Till:
            url = ""
            if request.param == "postgresql":
                server: PostgresServer = request.getfixturevalue("postgres")
                url = server.fresh_database()
            tills.append(Till(url, bank, earned))
            return tills[-1]

        yield make
        for till in tills:
            print(till.pool.logs())
            till.close()


@pytest.mark.soak
@pytest.mark.parametrize("point", ["before_bank_call", "after_bank_call"])
@pytest.mark.parametrize("conduct", [Conduct.PAY, Conduct.ERROR, Conduct.ERROR_PAID, Conduct.REFUSE])
def test_a_hub_that_dies_around_the_call_pays_once(make_till: MakeTill, point: str, conduct: Conduct) -> None:
    till = make_till(2 * LEAST)
    till.bank.conduct.append(conduct)
    till.restart(crash_at=point)
    with till.http() as http:
        payout_id = http.post("/payouts", json=UPI).json()["id"]
    till.await_death()
    # The state was committed before the call: this order is never again sent as if for the first time.
    assert till.row(payout_id).state == "submitted"
    assert till.available() == LEAST
    # A busy machine may not get the order out in the time that a call has.
    assert till.bank.orders <= (point == "after_bank_call")
    till.restart()
    if conduct is Conduct.REFUSE:
        # A refusal after the crash may be about the second copy; money stays set aside until it is certain.
        till.await_state(payout_id, "unknown")
        with till.http() as http:
            marked = http.post(f"/payouts/{payout_id}/failed", json={"reason": "not at the bank"})
            assert marked.status_code == 200, marked.text
        assert till.available() == 2 * LEAST
        return
    assert till.await_state(payout_id, "paid", "failed") == "paid"
    assert till.bank.books.paid(payout_id) == 1
    assert len(till.bank.books.of(payout_id)) == 1
    assert till.available() == LEAST


def test_a_hub_that_dies_repeatedly_around_the_call_pays_once(make_till: MakeTill) -> None:
    till = make_till(LEAST)
    payout_id = ""
    for point in ("before_bank_call", "after_bank_call", "before_bank_call", "after_bank_call"):
        till.bank.conduct.clear()
        till.bank.conduct.append(Conduct.ERROR)
        till.restart(crash_at=point)
        if not payout_id:
            with till.http() as http:
                payout_id = http.post("/payouts", json=UPI).json()["id"]
        till.await_death()
    till.bank.heal()
    till.restart()
    assert till.await_state(payout_id, "paid", "failed") == "paid"
    assert till.bank.books.paid(payout_id) == 1


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_hub_that_dies_around_a_commit_of_a_payout_pays_once(make_till: MakeTill, point: str) -> None:
    """At each of its first commits: the request, the claim, the answer. Unanswered requests are sent again."""
    commits = range(2, 8)
    till = make_till(2 * len(commits) * LEAST)
    for commit in commits:
        if till.start_doomed(f"{point}:{commit}"):
            made = till.ask(f"key {commit}")
            wait_until(lambda made=made: not till.hub.alive or (made and till.row(made).state == "paid"), 60)
    till.restart()
    payout_ids = {till.ask(f"key {commit}") for commit in commits}
    assert len(payout_ids) == len(commits)
    for payout_id in payout_ids:
        assert till.await_state(payout_id, "paid", "failed") == "paid"
        assert till.bank.books.paid(payout_id) == 1
    assert len(till.bank.books.payouts) == len(commits)
    assert till.available() == len(commits) * LEAST


@pytest.mark.soak
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_webhook_during_which_the_hub_dies_takes_effect_once(make_till: MakeTill, point: str) -> None:
    """The bank gets no 2xx and sends the webhook again."""
    till = make_till(LEAST)
    till.bank.conduct.append(Conduct.PROCESS)
    till.bank.questions_in_process = 10**9
    payout_id = till.ask("key")
    assert till.bank.took.wait(60)
    wait_until(lambda: till.row(payout_id).provider_ref, 60)
    [taken] = till.bank.books.payouts
    taken["status"] = taken["_end"] = "processed"
    told = webhook("payout.processed", {name: value for name, value in taken.items() if name != "_end"})
    till.without_rounds()
    for commit in range(1, 20):
        if till.start_doomed(f"{point}:{commit}"):
            with pytest.raises(httpx2.TransportError):
                httpx2.post(till.webhook_url, **told, timeout=30)
            assert till.hub.wait(60) == 137
            break
    else:
        raise AssertionError("no commit was the webhook's")
    till.restart()
    for _ in range(3):
        assert httpx2.post(till.webhook_url, **told, timeout=30).status_code == 204
    assert till.row(payout_id).state == "paid"
    assert till.available() == 0


@pytest.mark.soak
def test_a_hub_killed_at_any_moment_pays_every_payout_once(make_till: MakeTill) -> None:
    """The hub is killed repeatedly while it pays twenty payouts through a bank that errs."""
    till = make_till(30 * LEAST)
    with till.http() as http:
        asked = [http.post("/payouts", json=UPI).json() for _ in range(20)]
    payout_ids = [payout["id"] for payout in asked]
    for _ in range(6):
        till.bank.conduct.extend([Conduct.ERROR_PAID, Conduct.RESET, Conduct.PAY, Conduct.HANG_PAID, Conduct.BUSY])
        orders = till.bank.orders
        wait_until(lambda seen=orders: till.bank.orders > seen or _all_over(till, payout_ids), 60)
        till.restart()
    till.bank.heal()
    for payout_id in payout_ids:
        assert till.await_state(payout_id, "paid", "failed") == "paid"
        assert till.bank.books.paid(payout_id) == 1
    assert len(till.bank.books.payouts) == 20
    assert till.available() == 10 * LEAST


def _all_over(till: Till, payout_ids: list[str]) -> bool:
    return all(till.row(payout_id).state == "paid" for payout_id in payout_ids)
