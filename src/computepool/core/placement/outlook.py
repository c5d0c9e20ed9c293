"""Nodes that would take a job, and their prices: the market's view of the fleet, for quotes. Not for placing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import cards_needed
from computepool.core.money.market import Market, Offer
from computepool.core.placement.gates import Verdicts, judge
from computepool.core.resources import Shape


@dataclass(frozen=True, slots=True)
class Stand:
    """Nodes that make one offer."""

    offer: Offer
    own: bool  #: the submitter's
    now: int  #: nodes that would take the job at this moment
    able: int  #: nodes that could, were they idle
    agreed: int  #: of these, nodes that agree on the price


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    nodes: int
    stands: tuple[Stand, ...]  #: the cheapest first
    #: of the nodes that agree on the price, those that are neither offline, paused nor cooling off
    awake: int = 0
    networked: int | None = None  #: nodes that take jobs with network; None: the job has none
    python: int | None = None  #: nodes with the Python version that it needs; None: it needs none

    @property
    def now(self) -> int:
        return sum(stand.now for stand in self.stands)

    @property
    def able(self) -> int:
        return sum(stand.able for stand in self.stands)

    @property
    def agreed(self) -> int:
        return sum(stand.agreed for stand in self.stands)

    def likely(self) -> list[Stand]:
        """Those that would take it now; else those that would when idle; else those that could at all."""
        for count in ("now", "agreed", "able"):
            found = [stand for stand in self.stands if getattr(stand, count)]
            if found:
                return found
        return []


def outlook(fleet: Fleet, market: Market, shape: Shape) -> Outlook:
    verdicts = judge(fleet, shape)
    able = verdicts.ever()
    now = verdicts.failures() == 0
    agrees = verdicts.now.get("price", np.ones(able.size, np.bool_))
    rows = verdicts.rows[able]
    networked, python = (_passing(verdicts, gate) for gate in ("network", "python"))
    if not rows.size:
        return Outlook(nodes=len(fleet), stands=(), networked=networked, python=python)
    kinds = _kinds(fleet, shape, rows)
    counts = [np.bincount(kinds, mask[able]).astype(int).tolist() for mask in (now, able, agrees)]
    example = np.zeros(len(counts[1]), np.intp)
    example[kinds] = rows
    merged: dict[tuple[Offer, bool], list[int]] = {}
    for kind, row in enumerate(example.tolist()):
        if counts[1][kind]:
            # Cards of two sizes make one offer to a job that takes whole cards.
            offer = market.offer(shape, fleet.node_at(row).profile)
            total = merged.setdefault((offer, bool(kind & 1)), [0, 0, 0])
            total[:] = (before + column[kind] for before, column in zip(total, counts, strict=True))
    stands = [
        Stand(offer, own=own, now=total[0], able=total[1], agreed=total[2])
        for (offer, own), total in merged.items()
    ]
    stands.sort(key=lambda stand: (stand.offer.price, str(stand.offer.zone)))
    awake = int(np.count_nonzero(able & agrees & verdicts.now["available"]))
    return Outlook(nodes=len(fleet), stands=tuple(stands), awake=awake, networked=networked, python=python)


def _passing(verdicts: Verdicts, gate: str) -> int | None:
    """Nodes that pass it; None: the job does not ask about it."""
    passed = verdicts.now.get(gate)
    return None if passed is None else int(np.count_nonzero(passed))


def _kinds(fleet: Fleet, shape: Shape, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Small numbers: rows that make the same offer have the same, and odd ones are the submitter's own."""
    table = fleet.table
    classes = (table.gpu_class if cards_needed(shape.requirements) else table.cpu_class)[rows]
    own = table.owner[rows] == fleet.accounts.find(shape.account)
    kinds: NDArray[np.intp] = classes * 2 + own
    return kinds


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that so many percent do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
