"""Placement of gangs: jobs that run on several nodes at once, all of one owner, or all of the mesh that the job names.

All members are placed together or none is, so two gangs never wait for each other with half of their nodes each. Smaller
jobs pass a gang that does not fit. So that it is not passed for ever, `GangHold` keeps nodes free for the gang that has
waited longest, once it has waited for long enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Mask
from computepool.core.fleet.fleet import Fleet
from computepool.core.placement.allocator import Placement, list_scores, open_bands, ranking_of
from computepool.core.resources import Shape

#: Owners that are tried for one gang, the best first. An owner whose nodes are free fails only for the value that its
#: nodes hold for other accounts.
_OWNERS_TRIED_MAX = 16


class GangSearch:
    """Places gangs of one shape one by one; valid for one round, as `Search`."""

    def __init__(self, fleet: Fleet, shape: Shape) -> None:
        self._fleet, self._shape = fleet, shape

    def place(self) -> Placement | None:
        """The place of rank 0, with those of the others; None, with nothing reserved, if there are too few nodes."""
        # The node that failed it last is avoided, unless there are too few others.
        shapes = [self._shape, replace(self._shape, avoid_node="")] if self._shape.avoid_node else [self._shape]
        for shape in shapes:
            bands = open_bands(self._fleet, shape, ranking_of(self._fleet, shape))
            for rows in self._teams(bands):
                if (placed := self._place_on(rows)) is not None:
                    return placed
        return None

    def _teams(self, bands: NDArray[np.int16]) -> Iterator[list[int]]:
        """The free nodes of each owner (or of the mesh) who has enough: the best first, and in each the best node first."""
        count, used = self._shape.requirements.nodes, self._fleet.table.last_used
        teams = []
        for rows in teams_of(self._fleet, self._shape, bands >= 0):
            if rows.size >= count:
                ordered = rows[np.lexsort((used[rows], -bands[rows].astype(np.int32)))]
                teams.append((-int(bands[ordered[:count]].sum()), ordered.tolist()))
        teams.sort(key=lambda team: team[0])
        for _, ordered in teams[:_OWNERS_TRIED_MAX]:
            yield ordered

    def _place_on(self, rows: list[int]) -> Placement | None:
        fleet, shape = self._fleet, self._shape
        found: list[Placement] = []
        for row in rows:
            node_id = fleet.node_at(row).profile.node_id
            held = fleet.reserve(node_id, shape.requirements, shape.account, value=shape.value)
            if held is not None:
                [(score, terms)] = list_scores(fleet, shape, [row])
                found.append(Placement(node_id, held, score, terms))
            if len(found) == shape.requirements.nodes:
                first, *others = found
                return Placement(first.node_id, first.reservation, first.score, first.terms, tuple(others))
        for placement in reversed(found):
            supply = fleet.supply
            fleet.release(placement.node_id, placement.reservation)
            fleet.supply = supply  # nothing was freed that was not free before
        return None


def teams_of(fleet: Fleet, shape: Shape, mask: Mask) -> list[NDArray[np.intp]]:
    """The rows of the mask that may form one gang: those of each owner, or all if the job names a mesh."""
    rows = np.flatnonzero(mask)
    if shape.requirements.mesh_version or not rows.size:
        return [rows] if rows.size else []
    owners = fleet.table.owner[rows]
    order = np.argsort(owners, kind="stable")
    _, starts = np.unique(owners[order], return_index=True)
    return np.split(rows[order], starts[1:])


def most_together(fleet: Fleet, shape: Shape, mask: Mask) -> int:
    """The number of these nodes that the best owner (or the mesh) has."""
    return max((rows.size for rows in teams_of(fleet, shape, mask)), default=0)


@dataclass(frozen=True, slots=True)
class WaitingGang:
    id: str
    shape: Shape
    since_ms: int


@dataclass(slots=True)
class GangHold:
    """Nodes kept for the gang that has waited longest. They finish what they run, and get nothing else.

    A hold is no reservation: nothing is lost if it ends. It ends after a while, so that a gang which waits for a job of a
    week does not keep other nodes idle for a week, and begins again after the same while.
    """

    after_ms: int  #: how long a gang waits before nodes are kept for it; 0: never
    lasts_ms: int
    _gang: str = ""
    _since_ms: int = 0
    _nodes: tuple[str, ...] = ()

    def update(self, fleet: Fleet, waiting: list[WaitingGang], now_ms: int) -> None:
        """Called before each round with the gangs that are ready and do not run."""
        aged = [gang for gang in waiting if self.after_ms and now_ms - gang.since_ms >= self.after_ms]
        gang = min(aged, key=lambda gang: (gang.since_ms, gang.id), default=None)
        if gang is None:
            self._gang = ""
            fleet.withhold(None)
            return
        if gang.id != self._gang:
            self._gang, self._since_ms, self._nodes = gang.id, now_ms, ()
        if (now_ms - self._since_ms) // max(1, self.lasts_ms) % 2:
            self._nodes = ()
            fleet.withhold(None)
            return
        # The same nodes as before, as long as they can be used: others would have to become free from the beginning.
        usable = _usable(fleet, gang.shape)
        known = [fleet[node_id].row for node_id in self._nodes if node_id in fleet]
        if len(known) < gang.shape.requirements.nodes or not usable[known].all():
            rows = _choose(fleet, gang.shape, usable)
            self._nodes = tuple(fleet.node_at(row).profile.node_id for row in rows)
        fleet.withhold(gang.shape, self._nodes)


def _usable(fleet: Fleet, shape: Shape) -> Mask:
    """The nodes that could run a member as soon as they have room: able, and awake."""
    mask: Mask = (ranking_of(fleet, shape).bands >= 0) & fleet.table.available[: fleet.rows]
    return mask


def _choose(fleet: Fleet, shape: Shape, usable: Mask) -> list[int]:
    """As many nodes as the gang needs, of the owner most of whose nodes are free; the free and the idle ones first."""
    count, table = shape.requirements.nodes, fleet.table
    fleet.withhold(None)
    free = open_bands(fleet, shape, ranking_of(fleet, shape)) >= 0
    teams = [rows for rows in teams_of(fleet, shape, usable) if rows.size >= count]
    if not teams:
        return []
    best = max(teams, key=lambda rows: (int(free[rows].sum()), rows.size))
    order = np.lexsort((-table.cpu_free[best], ~free[best]))[:count]
    chosen: list[int] = best[order].tolist()
    return chosen
