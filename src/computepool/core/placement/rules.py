"""Owner rules: what other accounts' jobs may do on a node. The hub applies them before placement, and the agent again.

They do not restrict the owner's own jobs, and say nothing about prices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from computepool.core.fleet.node_record import cards_needed
from computepool.core.resources import Requirements
from computepool.core.words import memory_size, pluralize

#: Names in one list.
NAMES_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Those properties of a job that owner rules are about."""

    account: str
    labels: frozenset[str] = frozenset()
    network: bool = False
    gpus: int = 0
    minutes: int = 0
    ram_mb: int = 0
    disk_mb: int = 0

    @classmethod
    def of(cls, account: str, needs: Requirements) -> Demand:
        return cls(
            account=account,
            labels=needs.labels,
            network=needs.network,
            gpus=cards_needed(needs),
            minutes=needs.minutes,
            ram_mb=needs.ram_mb,
            disk_mb=needs.disk_mb,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The default allows everything. Hashable, so that nodes with equal rules are judged once."""

    allow_submitters: frozenset[str] = frozenset()  #: account ids; if not empty, only their jobs
    deny_submitters: frozenset[str] = frozenset()
    allow_labels: frozenset[str] = frozenset()  #: if not empty, a job must have one of them
    deny_labels: frozenset[str] = frozenset()
    network: bool = True
    gpus: bool = True
    minutes_max: int | None = None
    ram_mb_max: int | None = None
    disk_mb_max: int | None = None
    score_min: float = 0.0  #: minimum of the submitter's reputation, from 0 to 1; only the hub knows the scores

    def admits(self, aspect: str, demand: Demand) -> bool:
        return ASPECTS[aspect].admits(self, demand)

    def refusals(self, demand: Demand) -> list[str]:
        """Why the job may not run here: one phrase for each rule that it breaks, except `score_min`."""
        return [aspect.sentence(self, demand) for aspect in ASPECTS.values() if not aspect.admits(self, demand)]


NONE = Rules()


@dataclass(frozen=True, slots=True)
class Aspect:
    """One subject of owner rules."""

    admits: Callable[[Rules, Demand], bool]
    sentence: Callable[[Rules, Demand], str]


def _submitter(rules: Rules, demand: Demand) -> bool:
    if demand.account in rules.deny_submitters:
        return False
    return not rules.allow_submitters or demand.account in rules.allow_submitters


def _label(rules: Rules, demand: Demand) -> bool:
    if demand.labels & rules.deny_labels:
        return False
    return not rules.allow_labels or bool(demand.labels & rules.allow_labels)


def _label_sentence(rules: Rules, demand: Demand) -> str:
    denied = sorted(demand.labels & rules.deny_labels)
    if denied:
        return f"its owner takes no jobs labelled {', '.join(denied)}"
    return f"its owner takes only jobs labelled {' or '.join(sorted(rules.allow_labels))}"


def _within(limit: int | None, requested: int) -> bool:
    return limit is None or requested <= limit


ASPECTS: dict[str, Aspect] = {
    "submitter": Aspect(_submitter, lambda _r, d: f"its owner takes no jobs of {d.account}"),
    "label": Aspect(_label, _label_sentence),
    "network": Aspect(lambda r, d: r.network or not d.network, lambda *_: "its owner takes no jobs with network"),
    "gpu": Aspect(lambda r, d: r.gpus or not d.gpus, lambda *_: "its owner takes no jobs with a GPU"),
    "minutes": Aspect(
        lambda r, d: _within(r.minutes_max, d.minutes),
        lambda r, _: f"its owner takes jobs of at most {pluralize(r.minutes_max or 0, 'minute')}",
    ),
    "ram": Aspect(
        lambda r, d: _within(r.ram_mb_max, d.ram_mb),
        lambda r, _: f"its owner takes jobs of at most {memory_size(r.ram_mb_max or 0)} of RAM",
    ),
    "disk": Aspect(
        lambda r, d: _within(r.disk_mb_max, d.disk_mb),
        lambda r, _: f"its owner takes jobs of at most {memory_size(r.disk_mb_max or 0)} of disk",
    ),
}
