"""A second, simpler account of all money in the pool: the model with which the real ledger is compared.

Dictionaries, floor division and nothing of the project's own: what it shares with the code is only the rules.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

HOUR_MS = 3_600_000


@dataclass
class Held:
    """A job's money."""

    account: str
    amount: int
    earned: int
    timeout_ms: int
    tries: dict[int, tuple[str, int, int]] = field(default_factory=dict)  #: owner, price, since when
    over: bool = False


class Books:
    def __init__(self, *, holdback_ms: int) -> None:
        self.holdback_ms = holdback_ms
        self.balances: Counter[str] = Counter()
        self.jobs: dict[str, Held] = {}
        self.maturing: list[tuple[str, int, int]] = []  #: owner, amount, since when
        self.paid: dict[str, tuple[str, int, int, int]] = {}  #: by job: owner, pay, fee, when
        self.payouts: dict[str, tuple[str, int]] = {}

    def move(self, source: str, target: str, amount: int) -> None:
        self.balances[source] -= amount
        self.balances[target] += amount

    def available(self, account: str) -> int:
        return self.balances[f"user:{account}"] + self.balances[f"owner:{account}"]

    def hold(self, account: str, jobs: list[str], *, each: int, timeout_ms: int) -> None:
        purchased = self.balances[f"user:{account}"]
        for job in jobs:  # what was purchased is used first
            earned = max(0, each - purchased)
            purchased = max(0, purchased - each)
            self.move(f"user:{account}", f"escrow:{account}", each - earned)
            self.move(f"owner:{account}", f"escrow:{account}", earned)
            self.jobs[job] = Held(account, each, earned, timeout_ms)

    def lease(self, job: str, number: int, *, owner: str, price: int, now_ms: int) -> None:
        self.jobs[job].tries[number] = (owner, 0 if owner == self.jobs[job].account else price, now_ms)

    def accept(self, job: str, number: int, *, ran_ms: int, now_ms: int) -> int:
        held = self.jobs[job]
        owner, price, since_ms = held.tries[number]
        billed = max(0, min(ran_ms, now_ms - since_ms, held.timeout_ms))
        charge = price * billed // HOUR_MS
        assert charge <= held.amount, f"{job} took longer than its money lasts"
        fee = -(-charge // 5)
        self.move(f"escrow:{held.account}", f"earn:{owner}", charge - fee)
        self.move(f"escrow:{held.account}", "platform:fees", fee)
        self.maturing.append((owner, charge - fee, now_ms))
        self.paid[job] = (owner, charge - fee, fee, now_ms)
        self.release(job, spent=charge)
        return charge

    def release(self, job: str, *, spent: int = 0) -> None:
        held = self.jobs[job]
        assert not held.over, f"{job} ends twice"
        held.over = True
        back = held.amount - spent
        self.move(f"escrow:{held.account}", f"owner:{held.account}", min(back, held.earned))
        self.move(f"escrow:{held.account}", f"user:{held.account}", back - min(back, held.earned))

    def take_back(self, job: str) -> int:
        """The result was wrong. What has matured is gone."""
        owner, pay, fee, at_ms = self.paid.pop(job)
        if not pay or (owner, pay, at_ms) not in self.maturing:
            return 0
        self.maturing.remove((owner, pay, at_ms))
        self.move(f"earn:{owner}", f"user:{self.jobs[job].account}", pay)
        self.move("platform:fees", f"user:{self.jobs[job].account}", fee)
        return pay + fee

    def mature(self, now_ms: int) -> bool:
        ripe = [entry for entry in self.maturing if entry[2] + self.holdback_ms <= now_ms]
        for owner, amount, _ in ripe:
            self.move(f"earn:{owner}", f"owner:{owner}", amount)
        self.maturing = [entry for entry in self.maturing if entry not in ripe]
        return bool(ripe)

    def reserve(self, account: str, payout: str, amount: int) -> None:
        self.payouts[payout] = (account, amount)
        self.move(f"owner:{account}", f"payout:{payout}", amount)

    def end_payout(self, payout: str, *, paid: bool) -> None:
        account, amount = self.payouts.pop(payout)
        self.move(f"payout:{payout}", "ext:bank" if paid else f"owner:{account}", amount)
