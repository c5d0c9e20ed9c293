"""Who would take a job, and at which price: the fleet seen through the market's eyes, for quotes. Placing never comes here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet import Fleet
from computepool.core.gates import judge
from computepool.core.market import Market, Offer
from computepool.core.noderecord import cards_needed
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
    if not rows.size:
        return Outlook(nodes=len(fleet), stands=())
    kinds, firsts, group = _kinds(fleet, shape, rows)
    counts = [np.bincount(group, mask[able], kinds).astype(int).tolist() for mask in (now, able, agrees)]
    owner = fleet.accounts.find(shape.account)
    stands = [
        Stand(
            market.offer(shape, fleet.node_at(row).profile),
            own=bool(fleet.table.owner[row] == owner),
            now=counts[0][kind],
            able=counts[1][kind],
            agreed=counts[2][kind],
        )
        for kind, row in enumerate(rows[firsts].tolist())
    ]
    stands.sort(key=lambda stand: (stand.offer.price, str(stand.offer.zone)))
    return Outlook(nodes=len(fleet), stands=tuple(stands))


def _kinds(
    fleet: Fleet, shape: Shape, rows: NDArray[np.intp]
) -> tuple[int, NDArray[np.intp], NDArray[np.intp]]:
    """Rows that make the same offer: of one zone, with cards of one size, all the submitter's or none. How many kinds
    there are, the first row of each, and the kind of each row."""
    table = fleet.table
    own = (table.owner[rows] == fleet.accounts.find(shape.account)).astype(np.int32)
    columns = [table.region[rows], own]
    if cards_needed(shape.requirements):
        columns += [table.tier[rows], table.vram_total[0][rows]]
    _, firsts, group = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return firsts.size, firsts, group.reshape(-1)


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that so many percent do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
