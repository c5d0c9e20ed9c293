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

POOL_RULES: dict[str, Finder] = pool.RULES | {
    "the storage counted for an account is what it stores in the database": inline_rows.differing_accounts,
    "a node's reputation follows from its events": reputation_rows.differing_nodes,
    "a submitter's reputation follows from the events": submitter_reputation_rows.differing_accounts,
}

MONEY_RULES: dict[str, Finder] = money.RULES | pool.PAY_RULES | payouts.RULES

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
    return sentences({result.rule: result.broken for result in check(connection, rules)})


def sentences(broken: Mapping[str, Sequence[str]]) -> list[str]:
    """`broken`: the ids of what breaks each rule."""
    found = []
    for rule, ids in broken.items():
        more = f" and {len(ids) - _EXAMPLES_MAX} more" if len(ids) > _EXAMPLES_MAX else ""
        if ids:
            found.append(f"Broken: {rule}: {', '.join(ids[:_EXAMPLES_MAX])}{more}.")
    return found
