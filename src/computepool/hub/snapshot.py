"""Snapshots of the hub's memory for units of work, taken on the event loop before they run.

The writer thread must not read the hub itself, which changes while the thread runs. Memory learns what a unit did after its
commit (`MemoryChanges` in jobs/transactions.py). A unit that needs something unforeseen asks: its transaction is rolled
back, the event loop answers, and the unit runs again (`write` in jobs/transactions.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from computepool.core.money.pricing import PriceTable
from computepool.core.money.run_times import RunTimes
from computepool.core.trust.ties import Program, Ties
from computepool.hub.artifacts.state import StorageUsage
from computepool.hub.clock import Clock
from computepool.hub.context import Hub
from computepool.hub.identity.access import POOL_ACCOUNT
from computepool.hub.identity.signing.secrets import Secrets
from computepool.hub.jobs.specs import SpecCache
from computepool.hub.settings import Settings

T = TypeVar("T")


class Question(Generic[T]):
    """A question about the hub's memory. It must be hashable, because each is answered once."""

    def answer(self, hub: Hub) -> T:
        """Called on the event loop."""
        raise NotImplementedError


class Unanswered(Exception):
    def __init__(self, question: Question[Any]) -> None:
        super().__init__(question)
        self.question = question


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    settings: Settings
    clock: Clock
    specs: SpecCache  #: safe to read at any time: a spec's name is its digest
    secrets: Secrets  #: for its digests, which never change
    table: PriceTable  #: today's prices
    started_at_ms: int  #: when the hub started
    varying: frozenset[Program]
    ties: Ties
    run_times: RunTimes
    storage: Mapping[str, StorageUsage] = field(default_factory=dict)  #: estimates by account; others are computed
    answers: Mapping[Question[Any], Any] = field(default_factory=dict)

    def ask(self, question: Question[T]) -> T:
        if question not in self.answers:
            raise Unanswered(question)
        answer: T = self.answers[question]
        return answer

    def with_answers(self, hub: Hub, questions: Iterable[Question[Any]]) -> Snapshot:
        fresh = {question: question.answer(hub) for question in questions}
        return replace(self, answers={**self.answers, **fresh}) if fresh else self


def take(hub: Hub, accounts: Iterable[str] = ()) -> Snapshot:
    """`accounts` are those whose storage the unit may increase."""
    return Snapshot(
        settings=hub.settings,
        clock=hub.clock,
        specs=hub.jobs.specs,
        secrets=hub.identity.secrets,
        table=hub.money.market.table,
        started_at_ms=hub.process.started_at_ms,
        varying=hub.settlement.varying,
        ties=hub.settlement.ties,
        run_times=hub.settlement.run_times,
        storage={name: replace(known) for name in accounts if (known := hub.artifacts.usage.get(name)) is not None},
    )


def take_for(hub: Hub, node_id: str, attempt_ids: Iterable[str]) -> Snapshot:
    """A snapshot with the storage of the accounts that own these attempts, as far as this hub knows them."""
    session = hub.nodes.registry.get(node_id)
    held = {} if session is None else session.attempts
    accounts = {held[id_].grant.account_id for id_ in attempt_ids if id_ in held}
    return take(hub, accounts | {POOL_ACCOUNT})
