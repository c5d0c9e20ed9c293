"""Invariants that must hold at every moment, whatever crashed: checked by the fault tests and by `pool hub check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from computepool.hub.artifacts import inline_rows
from computepool.hub.db.session import Connection
from computepool.hub.observability.consistency import money, payouts, pool
from computepool.hub.observability.consistency.pool import Finder
from computepool.hub.trust import reputation_rows, submitter_reputation_rows

_EXAMPLES_MAX = 5  #: named in a sentence

POOL_RULES: dict[str, Finder] = {
    "a job has at most one accepted attempt": pool.accepted_twice,
    "an accepted attempt was reported as succeeded": pool.accepted_without_success,
    "a job has succeeded exactly when an attempt was accepted": pool.success_not_accepted,
    "a finished job has no live attempt": pool.finished_but_live,
    "a queued job has no live attempt": pool.queued_but_live,
    "a leased or running job has one live attempt, its newest": pool.held_without_one_attempt,
    "a job's attempt number is that of its newest attempt": pool.numbers_out_of_step,
    "an attempt is named after its job and number": pool.misnamed_attempts,
    "an attempt has an end time exactly when it is over": pool.ended_without_time,
    "a job has an end time exactly when it is finished": pool.finished_without_time,
    "a job counts the unfinished jobs it waits for": pool.wrong_dependency_count,
    "no queued job waits for one that failed": pool.waits_for_failed,
    "a job whose results are compared waits for an answer": pool.waits_for_no_answer,
    "a job's events follow each other without a gap": pool.broken_histories,
    "a job's last event states its state": pool.last_event_differs,
    "a finished job has one final event, an unfinished one none": pool.not_one_final_event,
    "a job's group exists and has the job's owner": pool.lost_groups,
    "a watched group is complete exactly when it waits for nothing": pool.wrongly_complete,
    "the open jobs of a watched group are marked as watched": pool.unwatched_jobs,
    "a group's keys are counted, and have a job exactly when their state says so": pool.wrong_keys,
    "a group's home is a node of its owner": pool.strange_homes,
    "every reference leads to an existing object": pool.lost_references,
    "an unfinished job names its checkpoint, a finished one has none": pool.lost_checkpoints,
    "the storage counted for an account is what it stores in the database": inline_rows.differing_accounts,
    "a node's reputation follows from its events": reputation_rows.differing_nodes,
    "a submitter's reputation follows from the events": submitter_reputation_rows.differing_accounts,
}

MONEY_RULES: dict[str, Finder] = {
    "all balances add up to zero": money.sum_is_not_zero,
    "a balance is the sum of its transfers": money.wrong_balances,
    "only the bank and the promotion account may be overdrawn": money.overdrawn,
    "each transfer's hash follows from the one before": money.broken_chain,
    "transfers are numbered without a gap": money.gaps_in_numbers,
    "the ledger's time never goes back": money.time_goes_back,
    "an idempotency key of the ledger is used once": money.keys_used_twice,
    "a transfer goes between accounts of its kind": money.between_wrong_accounts,
    "a job's money comes from and returns to its submitter": money.strays,
    "only owners whose results count are paid": money.paid_to_others,
    "transfers into escrow match the holds of all jobs": money.holds_not_taken,
    "a finished job's hold is used up exactly": money.holds_not_used_up,
    "an unfinished job's hold is untouched": money.holds_used_early,
    "escrow holds what unfinished jobs hold": money.wrong_escrow,
    "a charge is price times time, and its parts add up": money.wrong_charges,
    "work without a result is paid for if another attempt used it": pool.paid_for_unused_work,
    "nobody pays above their ceiling": money.above_the_ceiling,
    "only pay for wrong results is taken back": money.wrong_take_backs,
    "matured credits were earned before": money.matured_unearned,
    "a payout is reserved once, and paid or returned once": payouts.wrong_payouts,
    "a payout's account holds its amount until it is decided": payouts.payouts_in_flight,
    "each provider reference belongs to one payout": payouts.repeated_references,
    "no payout is below the minimum amount": payouts.small_payouts,
    "the bank's account is what was paid in minus what was paid out": payouts.wrong_bank,
}

#: Rules of the schema itself, whatever data it holds.
GUARDS: dict[str, Finder] = {"the database refuses to change transfers": money.missing_triggers}

RULES: dict[str, Finder] = POOL_RULES | MONEY_RULES | GUARDS


@dataclass(frozen=True, slots=True)
class RuleResult:
    rule: str
    kind: Literal["pool", "money", "schema"]
    broken: Sequence[str]  #: ids of what breaks it

    @property
    def examples(self) -> list[str]:
        return list(self.broken[:_EXAMPLES_MAX])


def kind_of(rule: str) -> Literal["pool", "money", "schema"]:
    return "money" if rule in MONEY_RULES else "schema" if rule in GUARDS else "pool"


def check(connection: Connection, rules: Mapping[str, Finder] = RULES) -> Iterator[RuleResult]:
    """Check the rules one after the other. The connection's transaction must be a snapshot."""
    for rule, find in rules.items():
        yield RuleResult(rule, kind_of(rule), find(connection))


def check_all(connection: Connection, rules: Mapping[str, Finder] = RULES) -> list[str]:
    """One sentence for every broken rule, with examples."""
    return [_sentence(result) for result in check(connection, rules) if result.broken]


def _sentence(result: RuleResult) -> str:
    more = f" and {len(result.broken) - _EXAMPLES_MAX} more" if len(result.broken) > _EXAMPLES_MAX else ""
    return f"Broken: {result.rule}: {', '.join(result.examples)}{more}."
