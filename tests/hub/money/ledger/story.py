"""One story, step by step, in which everything happens that can happen to money."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.hub.money.ledger.books import HOUR_MS

PLAIN = {"items": 1, "cores": 1, "timeout_s": 3600, "max_price": None, "budget": None, "retries": 0, "after": None}


def told(**changes: Any) -> dict[str, Any]:
    """A submission that is sent twice."""
    return PLAIN | {"who": 2, "times": 2, "ttl_s": 10**6} | changes


STORY: tuple[Callable[[Any], None], ...] = (
    lambda it: it.submit(**told(cores=64, items=3)),  # refused: it has too little
    lambda it: it.submit(**told(max_price=1, ttl_s=300)),  # nobody will run it for that
    lambda it: it.lease(0),
    lambda it: it.wait(400_000),
    lambda it: it.expire(2),
    lambda it: it.submit(**told(items=3, cores=0.5)),
    lambda it: it.cancel(0, 3),
    lambda it: it.work(1, 1_234_567, 2 * HOUR_MS),  # two in one report
    lambda it: it.mature(1),  # too early
    lambda it: it.submit(**told()),
    lambda it: it.work(1, HOUR_MS, 59_000),  # longer than the hub has seen it
    lambda it: it.submit(**told()),
    lambda it: it.come_too_late(0, 777),
    lambda it: it.submit(**told(cores=0.45, budget=900)),  # a microcredit for each millisecond
    lambda it: it.work(1, 900, HOUR_MS),
    lambda it: it.submit(**told(cores=0.45, budget=900)),
    lambda it: it.work(1, HOUR_MS, HOUR_MS),  # longer than its money lasts
    lambda it: it.submit(**told(timeout_s=600)),
    lambda it: it.work(1, 900_000, HOUR_MS),  # longer than its time limit, for which the money would have lasted
    lambda it: it.make_an_owner_rich(0, 2),
    lambda it: it.ask_for_a_payout(0, 500, 3),
    lambda it: it.decide_a_payout(0, "approve", 2),
    lambda it: it.restart_the_hubs(),
    lambda it: it.send_payouts(),
    lambda it: it.decide_a_payout(0, "paid", 3),
    lambda it: it.decide_a_payout(0, "failed", 1),
    lambda it: it.make_an_owner_rich(0, 2),
    lambda it: it.ask_for_a_payout(0, 600, 1),
    lambda it: it.decide_a_payout(0, "reject", 2),
    lambda it: it.submit(**told(who=0, cores=64, timeout_s=1000.5)),  # more than ann ever bought
    lambda it: it.move_the_market("in", 399),
    lambda it: it.work(0, HOUR_MS, HOUR_MS),
)
