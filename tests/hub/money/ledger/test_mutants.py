"""Mutation tests: each fault is planted into the running code, and the quick tests of money must find it."""

from __future__ import annotations
import __future__

import importlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.core.money import test_pricing
from tests.hub.money.ledger.conftest import Fresh
from tests.hub.money.ledger.test_machine import Money, tell

CORE, HUB = "computepool.core.money", "computepool.hub"


class OnSqlite(Money):
    databases = ("sqlite",)


@dataclass(frozen=True)
class Mutant:
    place: str  #: module:function
    old: str
    new: str
    found_by: Callable[[], object] | None = None  #: else the story with everything in it


MUTANTS = {
    "a release is skipped": Mutant(f"{HUB}.money.holds:release", "if job.hold:", "if False:"),
    "a settlement's key does not name the job": Mutant(
        f"{HUB}.money.holds:settle_key", 'f"settle:{job_id}"', '"settle:"'
    ),
    "only the first of several jobs is held for": Mutant(
        f"{HUB}.money.holds:place", "total = each * len(job_ids)", "total = each"
    ),
    "the submitter is paid": Mutant(f"{HUB}.money.holds:settle", "owner_id=first.owner_id", "owner_id=job.account_id"),
    "a job may cost more than was held": Mutant(
        f"{HUB}.money.holds:is_overspent", "> for_one_run(job)", "> float('inf')"
    ),
    "a node is believed beyond the hub's clock": Mutant(
        f"{CORE}.pricing:billed_ms",
        "min(reported_ms, accepted_at_ms - leased_at_ms, longest_ms)",
        "min(reported_ms, longest_ms)",
        found_by=test_pricing.test_a_node_is_believed_only_within_the_hubs_own_clock,
    ),
    "a node is believed beyond the time limit": Mutant(
        f"{CORE}.pricing:billed_ms",
        "min(reported_ms, accepted_at_ms - leased_at_ms, longest_ms)",
        "min(reported_ms, accepted_at_ms - leased_at_ms)",
    ),
    "a charge is rounded up": Mutant(f"{CORE}.pricing:charge_of", "price * ms // HOUR_MS", "-(-price * ms // HOUR_MS)"),
    "the fee is rounded down": Mutant(
        f"{CORE}.pricing:PriceTable.fee_of",
        "gross - gross * (PPM - self.fee_ppm) // PPM",
        "gross * self.fee_ppm // PPM",
    ),
    "the fee is a float": Mutant(
        f"{CORE}.pricing:PriceTable.fee_of",
        "gross - gross * (PPM - self.fee_ppm) // PPM",
        "round(gross * (self.fee_ppm / PPM))",
    ),
    "the region counts twice": Mutant(
        f"{CORE}.pricing:PriceTable.reference",
        "self.region_rate(zone.region) // (PERCENT * PERCENT)",
        "self.region_rate(zone.region) ** 2 // PERCENT**3",
        found_by=test_pricing.test_the_ratio_the_old_text_had_wrong,
    ),
    "one's own node costs": Mutant(f"{CORE}.market:Market.offer", "0 if node.owner == shape.account else", ""),
    "a refund goes to the node's owner": Mutant(f"{CORE}.ledger:settle", "user(account_id)", "user(owner_id)"),
    "a refund forgets the earned part": Mutant(f"{CORE}.ledger:settle", "min(parts.refund, earned)", "0"),
    "earnings are held from the other purse": Mutant(
        f"{CORE}.ledger:hold", "Leg(owner(account_id)", "Leg(user(account_id)"
    ),
    "earnings mature again and again": Mutant(
        f"{HUB}.money.credits:_matured_pay", "ledger_rows.last_matured(connection, account_id)", "0"
    ),
    "earnings mature at once": Mutant(f"{HUB}.money.credits:_matures_by", "round(wait_s * 1000)", "0"),
    "a top-up is not remembered": Mutant(
        f"{HUB}.money.credits:top_up",
        "write_once(hub, remembered, effect, model=TopUpReply)",
        "hub.store.write(effect)",
    ),
    "a rejected payout is kept": Mutant(
        f"{HUB}.money.payouts.payouts:move", "elif to in rules.RETURNED:", "elif False:"
    ),
    "a payout is reserved from what was bought": Mutant(
        f"{CORE}.ledger:reserve_payout", "owner(account_id)", "user(account_id)"
    ),
    "the chain is not carried on": Mutant(f"{HUB}.money.booking:write", 'previous = row["hash"] = ', 'row["hash"] = '),
    "a balance is not changed": Mutant(
        f"{HUB}.money.booking:_change_balances", "if delta)", 'if delta and name != "platform:fees")'
    ),
    "a unit sees nothing of the one before": Mutant(
        f"{HUB}.money.booking:post", "tx.balances.update(", "dict.update(tx.balances, "
    ),
}


def find_place(mutant: Mutant) -> tuple[Any, Any, str, str]:
    """The module, the owner of the function, its name, and its source."""
    name, _, path = mutant.place.partition(":")
    module: Any = importlib.import_module(name)
    *classes, word = path.split(".")
    owner = module
    for part in classes:
        owner = getattr(owner, part)
    source = textwrap.dedent(inspect.getsource(getattr(owner, word)))
    assert source.count(mutant.old) == 1, f"{mutant.place} is written differently now: change the mutant too"
    return module, owner, word, source


def plant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the function by its own source with the fault in it."""
    module, owner, word, source = find_place(mutant)
    code = compile(
        source.replace(mutant.old, mutant.new), f"<{mutant.place}>", "exec", flags=__future__.annotations.compiler_flag
    )
    made: dict[str, Any] = {}
    exec(code, module.__dict__, made)
    monkeypatch.setattr(owner, word, made[word])
    if hasattr(test_pricing, word):  # it has taken the function by its name
        monkeypatch.setattr(test_pricing, word, made[word])


def test_every_fault_still_has_its_place() -> None:
    for mutant in MUTANTS.values():
        find_place(mutant)


@pytest.mark.soak
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str, fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    plant(mutant, monkeypatch)
    with pytest.raises(Exception) as found:
        (mutant.found_by or (lambda: tell(OnSqlite, fresh)))()
    assert not isinstance(found.value, SyntaxError | NameError | TypeError | AttributeError), found.value


def test_without_a_fault_nothing_is_found(fresh: Fresh) -> None:
    tell(OnSqlite, fresh)
