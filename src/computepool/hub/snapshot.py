"""Snapshots of the hub's memory for units of work, taken on the event loop before they run.

The writer thread must not look at the hub itself, which changes while it runs. What a unit comes to is told to memory after
its commit (`Settlement` in jobs/transitions.py). A unit that needs to know something that nobody foresaw asks: it is taken
back, the loop answers, and it runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from computepool.core.money.pricing import PriceTable
from computepool.core.money.run_times import RunTimes
from computepool.core.trust.ties import Program, Ties
from computepool.hub.artifacts.state import StorageUsage
from computepool.hub.clock import Clock
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import POOL_ACCOUNT
from computepool.hub.identity.signing.secrets import Secrets
from computepool.hub.jobs.specs import SpecCache
from computepool.hub.settings import Settings

T = TypeVar("T")


class Question(Generic[T]):
    """About the hub's memory. Hashable: the same question is answered once."""

    def answer(self, hub: Hub) -> T:
        """On the event loop."""
        raise NotImplementedError


class Unanswered(Exception):
    def __init__(self, question: Question[Any]) -> None:
        super().__init__(question)
        self.question = question


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    settings: Settings
    clock: Clock
    specs: SpecCache  #: named by their digests, so the same whenever they are looked at
    secrets: Secrets  #: for their digests, which never change
    table: PriceTable  #: today's prices
    started_at_ms: int  #: the hub
    varying: frozenset[Program]
    ties: Ties
    run_times: RunTimes
    #: Estimates by account; else it is counted.
    storage: Mapping[str, StorageUsage] = field(default_factory=dict)
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
    """`accounts`: those whose storage the unit may add to."""
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
        storage={
            name: replace(known) for name in accounts if (known := hub.artifacts.usage.get(name)) is not None
        },
    )


def take_for(hub: Hub, node_id: str, attempt_ids: Iterable[str]) -> Snapshot:
    """With the storage of the accounts whose attempts these are, as far as this hub knows."""
    session = hub.nodes.registry.get(node_id)
    held = {} if session is None else session.attempts
    accounts = {held[id_].grant.account_id for id_ in attempt_ids if id_ in held}
    return take(hub, accounts | {POOL_ACCOUNT})


async def write(hub: Hub, unit: Callable[[Tx, Snapshot], T], snapshot: Snapshot | None = None) -> T:
    """Run the unit durably, as often as it has questions."""
    snapshot = snapshot or take(hub)
    while True:
        try:
            return await hub.store.write(_with(snapshot, unit))
        except Unanswered as missing:
            snapshot = snapshot.with_answers(hub, [missing.question])


def _with(snapshot: Snapshot, unit: Callable[[Tx, Snapshot], T]) -> Callable[[Tx], T]:
    return lambda tx: unit(tx, snapshot)
