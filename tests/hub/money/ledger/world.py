"""A small ledger with every kind of transfer, written through the store alone, for the tests of the money rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, update

from computepool.core.money import ledger
from computepool.core.money.ledger import BANK
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import HOUR_MS, Economy, charge_of, first_table
from computepool.hub.db.money_tables import payouts
from computepool.hub.db.session import Store, Tx
from computepool.hub.db.tables import attempts, jobs
from computepool.hub.money import booking, price_rows
from computepool.testing.factories import add_account, add_attempt, add_jobs, add_node

TABLE = first_table(Economy.MARKET)
#: Neither the price nor the time divides anything evenly.
PRICE = 1_111_111_111
BILLED_MS = 2 * HOUR_MS + 1_234_567
CHARGE = charge_of(PRICE, BILLED_MS)
HOLD = 3 * PRICE


@dataclass(frozen=True)
class World:
    """Names of what `build` made, for statements that damage it."""

    sam: str  #: submits
    pia: str  #: owns the node
    otto: str  #: owns another
    done: str  #: sam's job, paid for
    failed: str  #: sam's, released
    held: str  #: sam's, on the node
    queued: str  #: sam's, of the same submission as the one before
    reused: str  #: pia's own, paid partly from what she earned
    wrong: str  #: sam's, paid for, and taken back
    on_its_way: str = "pout_on_its_way"
    paid: str = "pout_paid"
    returned: str = "pout_returned"


def build(store: Store) -> World:
    return store.write_now(_Builder.run)


class _Builder:
    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self.sam, self.pia, self.otto = add_account(tx), add_account(tx), add_account(tx)
        self.node = add_node(tx, account_id=self.pia)
        self.other_node = add_node(tx, account_id=self.otto)

    @classmethod
    def run(cls, tx: Tx) -> World:
        price_rows.insert(tx, TABLE, created_by="hub")
        return cls(tx)._run()

    def _run(self) -> World:
        self._give()
        [done] = self._submit(self.sam, hold=HOLD)
        [failed] = self._submit(self.sam, hold=HOLD)
        held, queued = self._submit(self.sam, 2, hold=HOLD)
        self._succeed(done, self.sam, owner=self.pia, hold=HOLD)
        self._fail(failed)
        add_attempt(self.tx, held, node_id=self.node, owner_id=self.pia, price=PRICE, price_version=1)
        self._mature()
        [reused] = self._submit(self.pia, hold=HOLD, earned=2 * CREDIT)
        self._succeed(reused, self.pia, owner=self.otto, hold=HOLD, earned=2 * CREDIT)
        [wrong] = self._submit(self.sam, hold=HOLD)
        self._succeed(wrong, self.sam, owner=self.otto, hold=HOLD)
        self._take_back(wrong, self.sam, owner=self.otto)
        self._pay_out()
        return World(
            sam=self.sam,
            pia=self.pia,
            otto=self.otto,
            done=done,
            failed=failed,
            held=held,
            queued=queued,
            reused=reused,
            wrong=wrong,
        )

    def _give(self) -> None:
        for account in (self.sam, self.pia):
            booking.post(self.tx, f"topup:{account}", ledger.top_up(account, 90_000 * CREDIT, source=BANK))
        booking.post(self.tx, "grant:sam", ledger.grant(self.sam, 1_000 * CREDIT))

    def _submit(self, account: str, count: int = 1, *, hold: int, earned: int = 0) -> list[str]:
        columns = {"ceiling": PRICE, "hold": hold, "hold_earned": earned}
        made = add_jobs(self.tx, count, account_id=account, **columns)
        legs = ledger.hold(account, amount=hold * count, earned=earned * count)
        booking.post(self.tx, f"hold:{made[0]}", legs, job_id=made[0])
        return made

    def _succeed(self, job_id: str, account: str, *, owner: str, hold: int, earned: int = 0) -> None:
        node = self.node if owner == self.pia else self.other_node
        priced = {"price": PRICE, "price_version": 1, "billed_ms": BILLED_MS, "charge": CHARGE}
        attempt = add_attempt(self.tx, job_id, node_id=node, owner_id=owner, **priced)
        self._end(attempts, attempt, state="succeeded", report_digest="x")
        self._end(jobs, job_id, state="succeeded", accepted_attempt=1, charge=CHARGE)
        parts = ledger.split(held=hold, charge=CHARGE, table=TABLE)
        legs = ledger.settle(account, owner_id=owner, parts=parts, earned=earned)
        booking.post(self.tx, f"settle:{job_id}", legs, job_id=job_id, ref=attempt)

    def _take_back(self, job_id: str, account: str, *, owner: str) -> None:
        self._end(jobs, job_id, verdict="refuted", taken_back=CHARGE)
        fee = TABLE.fee_of(CHARGE)
        legs = ledger.take_back(account, owner_id=owner, pay=CHARGE - fee, fee=fee)
        booking.post(self.tx, f"takeback:{job_id}", legs, job_id=job_id, ref=f"{job_id}-1")

    def _fail(self, job_id: str) -> None:
        attempt = add_attempt(self.tx, job_id, node_id=self.node, owner_id=self.pia, price=PRICE, price_version=1)
        self._end(attempts, attempt, state="failed", report_digest="x")
        self._end(jobs, job_id, state="failed", charge=0)
        booking.post(self.tx, f"settle:{job_id}", ledger.release(self.sam, amount=HOLD, earned=0), job_id=job_id)

    def _mature(self) -> None:
        """Everything pia has earned so far, by the first settlement."""
        earned = 1 + next(n for n, row in enumerate(self.tx.transfers) if row["kind"] == "pay")
        legs = ledger.mature(self.pia, TABLE.net_of(CHARGE))
        booking.post(self.tx, f"mature:{self.pia}:0", legs, ref=str(earned))

    def _end(self, table: Table, id_: str, **values: object) -> None:
        changed = update(table).where(table.c.id == id_).values(finished_at_ms=self.tx.now_ms, **values)
        self.tx.connection.execute(changed)

    def _pay_out(self) -> None:
        states = {World.on_its_way: "submitted", World.paid: "paid", World.returned: "failed"}
        for payout_id, state in states.items():
            self._payout(payout_id, state)
            legs = ledger.reserve_payout(self.pia, payout_id=payout_id, amount=TABLE.payout_min)
            booking.post(self.tx, f"payout:{payout_id}:reserve", legs, ref=payout_id)
        booking.post(self.tx, f"payout:{World.paid}:paid", ledger.pay_out(World.paid, TABLE.payout_min))
        back = ledger.return_payout(self.pia, payout_id=World.returned, amount=TABLE.payout_min)
        booking.post(self.tx, f"payout:{World.returned}:return", back)

    def _payout(self, payout_id: str, state: str) -> None:
        row: dict[str, Any] = {
            "id": payout_id,
            "account_id": self.pia,
            "amount": TABLE.payout_min,
            "method": "upi",
            "target": "{}",
            "provider": "manual",
            "state": state,
            "provider_ref": f"ref of {payout_id}",
            "created_at_ms": self.tx.now_ms,
            "updated_at_ms": self.tx.now_ms,
        }
        self.tx.connection.execute(payouts.insert().values(row))
