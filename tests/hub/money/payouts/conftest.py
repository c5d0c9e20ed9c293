"""A hub, a bank that misbehaves, and an account with earnings. At the end of every test the ledger must add up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.money import ledger
from computepool.core.money.payouts import DECIDED, PayoutState
from computepool.hub.main import check
from computepool.hub.money import booking
from computepool.hub.money.payouts import payout_rounds
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.money.payouts.bank import NEVER_ANSWERED, MisbehavingBank, webhook
from tests.hub.money.payouts.earning import LEAST, earn

#: No round but those of the test; no approval unless it is about that.
PLAIN: dict[str, Any] = {"payout_round_s": 3600, "payout_approve_first": False, "payouts_open_max": 1_000}
UPI = {"upi": "asha@okaxis"}
BANK = {"bank": {"account_number": "50100123456789", "ifsc": "HDFC0000123", "name": "Asha Rao"}}
ROUNDS_MAX = 40


@dataclass
class Scene:
    hub: HubDouble
    bank: MisbehavingBank
    clock: FakeClock
    pia: httpx2.AsyncClient
    pia_id: str
    patience_s: float = 20  #: with a bank that answers, however busy the machine is
    hang_s: float = 1  #: with one that does not

    async def earn(self, amount: int) -> None:
        await earn(self.hub, self.pia_id, amount)

    async def ask(self, amount: int = LEAST, **target: Any) -> str:
        answer = await self.pia.post("/payouts", json={"amount": amount, **(target or UPI)})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def ask_earned(self) -> str:
        """Earn the least amount, and request its payout."""
        await self.earn(LEAST)
        return await self.ask()

    async def get(self, payout_id: str) -> dict[str, Any]:
        return (await self.pia.get(f"/payouts/{payout_id}")).json()

    async def state(self, payout_id: str) -> str:
        return str((await self.get(payout_id))["state"])

    async def round(self, *, after_s: float = 0) -> int:
        self.clock.advance(round(after_s * 1000))
        hangs = NEVER_ANSWERED & set(self.bank.conduct) or "hang" in self.bank.answers
        self.hub.hub.settings.payout_call_s = self.hang_s if hangs else self.patience_s
        return await payout_rounds.run(self.hub.hub)

    async def tell(self, event: str, payout: dict[str, Any], **how: Any) -> int:
        """Deliver a webhook. Returns the status of the response."""
        sent = webhook(event, payout, **how)
        return (await self.hub.client().post("/payouts/webhook/razorpayx", **sent)).status_code

    async def settle(self, *payout_ids: str) -> dict[str, str]:
        """Let the bank work again, and time pass until every payout is decided."""
        self.bank.heal()
        for _ in range(ROUNDS_MAX):
            states = {payout_id: await self.state(payout_id) for payout_id in payout_ids}
            if all(PayoutState(state) in DECIDED for state in states.values()):
                return states
            await self.round(after_s=self.hub.hub.settings.payout_retry_max_s)
        raise AssertionError(f"not decided: {states}")

    async def balance(self, account: str) -> int:
        return await self.hub.hub.store.read(lambda connection: booking.balance_of(connection, account))

    async def available(self) -> int:
        return await self.balance(ledger.owner(self.pia_id))

    async def history(self, payout_id: str) -> list[str]:
        events = (await self.pia.get("/events", params={"limit": 500})).json()["events"]
        return [
            event["after"]
            for event in events
            if event["action"].startswith("payout.") and event["data"]["payout_id"] == payout_id
        ]

    async def check(self) -> None:
        """Every payout is paid once, at the bank and in the ledger, or returned once; and the ledger adds up."""
        page = (await self.pia.get("/payouts", params={"limit": 500})).json()
        for payout in page["payouts"]:
            left = await self.balance(ledger.payout(payout["id"]))
            decided = PayoutState(payout["state"]) in DECIDED
            assert left == (0 if decided else payout["amount"]), payout
            at_bank = self.bank.books.paid(payout["id"])
            if payout["provider"] == "razorpayx" and decided:
                assert at_bank == (payout["state"] == "paid"), payout
            assert at_bank <= 1
        assert check(self.hub.hub.settings) == []


@pytest.fixture
def bank() -> Iterator[MisbehavingBank]:
    with MisbehavingBank() as bank:
        yield bank


async def _scene(bank: MisbehavingBank, folder: Path, url: str, settings: dict[str, Any]) -> AsyncIterator[Scene]:
    clock = FakeClock()
    chosen = {**PLAIN, **bank.settings(), **settings}
    async with running_hub(folder, clock=clock, database_url=url, **chosen) as hub:
        pia = await hub.account("pia", "provider")
        scene = Scene(hub, bank, clock, pia, (await pia.get("/me")).json()["id"])
        yield scene
        await scene.check()


@pytest.fixture
async def scene(request: pytest.FixtureRequest, bank: MisbehavingBank, tmp_path: Path) -> AsyncIterator[Scene]:
    """On SQLite. `@pytest.mark.parametrize("scene", [{setting: value}], indirect=True)` changes settings."""
    async for made in _scene(bank, tmp_path, "", getattr(request, "param", {})):
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
async def any_scene(request: pytest.FixtureRequest, bank: MisbehavingBank, tmp_path: Path) -> AsyncIterator[Scene]:
    url = request.getfixturevalue("migrated_url") if request.param == "postgresql" else ""
    async for made in _scene(bank, tmp_path, url, {}):
        yield made
