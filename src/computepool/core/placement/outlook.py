"""Nodes that would take a job, and their prices: the market's view of the fleet, for quotes. Placement does not use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import cards_needed
from computepool.core.money.market import Market, Offer
from computepool.core.placement.gates import Verdicts, judge
from computepool.core.placement.software_gates import warm_count
from computepool.core.resources import Shape

#: Nodes whose measurements count for an estimate.
_MEASURED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class OfferGroup:
    """The nodes that make one offer."""

    offer: Offer
    own: bool  #: the nodes are the submitter's
    now: int  #: nodes that would take the job at this moment
    able: int  #: nodes that could take it if they were idle
    agreed: int  #: of these, nodes that agree to the price


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    nodes: int
    groups: tuple[OfferGroup, ...]  #: the cheapest first
    awake: int = 0  #: nodes that agree to the price and are neither offline, paused nor cooling off
    networked: int | None = None  #: nodes that take jobs with network; None if the job does not use it
    python: int | None = None  #: nodes with the required Python version; None if the job requires none
    warm: int | None = None  #: able nodes that have all packages and large inputs; None if the job has neither
    warm_now: int = 0  #: of these, nodes that would take the job at this moment
    cold_ms: int | None = None  #: how long it took others to fetch them, if known
    owners: int = 0  #: owners of the nodes that could run it

    @property
    def now(self) -> int:
        return sum(group.now for group in self.groups)

    @property
    def able(self) -> int:
        return sum(group.able for group in self.groups)

    @property
    def agreed(self) -> int:
        return sum(group.agreed for group in self.groups)

    def likely(self) -> list[OfferGroup]:
        """The groups that would take the job now, else when idle, else at any price."""
        for count in ("now", "agreed", "able"):
            found = [group for group in self.groups if getattr(group, count)]
            if found:
                return found
        return []


def outlook(fleet: Fleet, market: Market, shape: Shape) -> Outlook:
    verdicts = judge(fleet, shape)
    able = verdicts.ever()
    now = verdicts.failures() == 0
    agrees = verdicts.now.get("price", np.ones(able.size, np.bool_))
    rows = verdicts.rows[able]
    networked, python = (_count_passing(verdicts, gate) for gate in ("network", "python"))
    if not rows.size:
        return Outlook(nodes=len(fleet), groups=(), networked=networked, python=python)
    kinds = _kinds(fleet, shape, rows)
    counts = [np.bincount(kinds, mask[able]).astype(int).tolist() for mask in (now, able, agrees)]
    example = np.zeros(len(counts[1]), np.intp)
    example[kinds] = rows
    merged: dict[tuple[Offer, bool], list[int]] = {}
    for kind, row in enumerate(example.tolist()):
        if counts[1][kind]:
            # To a job that takes whole cards, cards of different sizes are one offer.
            offer = market.offer(shape, fleet.node_at(row).profile)
            total = merged.setdefault((offer, bool(kind & 1)), [0, 0, 0])
            total[:] = (before + column[kind] for before, column in zip(total, counts, strict=True))
    groups = [OfferGroup(offer, own, *total) for (offer, own), total in merged.items()]
    groups.sort(key=lambda group: (group.offer.price, str(group.offer.zone)))
    awake = int(np.count_nonzero(able & agrees & verdicts.now["available"]))
    owners = int(np.unique(fleet.table.owner[rows]).size)
    found = Outlook(
        nodes=len(fleet), groups=tuple(groups), awake=awake, networked=networked, python=python, owners=owners
    )
    if not shape.requirements.warm:
        return found
    warm = warm_count(fleet, shape, rows) == len(shape.requirements.warm)
    warm_now = int(np.count_nonzero(warm & now[able]))
    return replace(found, warm=int(np.count_nonzero(warm)), warm_now=warm_now, cold_ms=_cold_ms(fleet, shape))


def _cold_ms(fleet: Fleet, shape: Shape) -> int | None:
    """The sum of what each thing took those who have it, in the middle; None if nobody measured any of them."""
    total: int | None = None
    for key in shape.requirements.warm:
        holders = np.flatnonzero(fleet.warm.has(key, slice(0, fleet.rows)))[:_MEASURED_MAX].tolist()
        took = sorted(filter(None, (fleet.node_at(row).warm.get(key) for row in holders)))
        if took:
            total = (total or 0) + percentile(took, 50)
    return total


def _count_passing(verdicts: Verdicts, gate: str) -> int | None:
    """The number of nodes that pass a gate; None if the gate does not concern the job."""
    passed = verdicts.now.get(gate)
    return None if passed is None else int(np.count_nonzero(passed))


def _kinds(fleet: Fleet, shape: Shape, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """A small number for each row: equal if the rows make the same offer, odd if they are the submitter's own."""
    classes = fleet.prices.side(cards=cards_needed(shape.requirements)).classes[rows]
    kinds: NDArray[np.intp] = classes * 2 + fleet.owner_mask(shape.account, rows)
    return kinds


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that `percent` of the values do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
