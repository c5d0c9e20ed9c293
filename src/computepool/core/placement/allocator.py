"""Placement of jobs on nodes: hard gates first, then a ranking of the nodes that passed, then the reservation.

`eligible()` is absolute, `score()` excludes nothing. Every placement carries the terms of its score. Jobs of one shape
are matched as a batch, which places exactly what a sequence of single calls would.

The static gates and the score do not depend on load. They are kept per shape as one small column, a *ranking*, and
repaired row by row when nodes change. A placement then only compares what is free: 100 000 nodes take about 0.2 ms.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Mask, Rows
from computepool.core.fleet.fleet import Fleet, Ranking
from computepool.core.fleet.node_record import Reservation, cards_needed
from computepool.core.placement.exploration import Explorer
from computepool.core.placement.gates import avoided_row, could_run, has_room, withheld_rows, within_exposure
from computepool.core.placement.software_gates import warm_count
from computepool.core.resources import CHEAPEST, FASTEST, Requirements, Shape

Floats = NDArray[np.float32]

#: Fit avoids waste. It is measured against all that the node has, not against what is free: being half full does not
#: make a node a better place for a job, and equally good nodes stay equal and take turns.
FIT_VRAM_WEIGHT = 10.0
FIT_CORES_WEIGHT = 5.0
#: Up to this much idle memory of a card is no waste, because jobs share cards: a job of 4 GB leaves 20 GB of a 4090 to
#: others. Beyond it, fit and speed count less and less, which leaves fast cards with much memory to those who need them.
IDLE_VRAM_MB = 20_000
#: Per multiple of an unknown GPU's speed. The step from a 3060 to a 4090 counts more than the best fit of cores, so that
#: the faster tier wins wherever its memory is not wasted.
TIER_SPEED_WEIGHT = 6.0
#: A node that fails half of its jobs loses 3 points: half a step of speed.
RELIABILITY_WEIGHT = 6.0
#: A node that has the job's packages, images and large inputs starts it seconds or minutes sooner than one that must fetch
#: them. That counts more than a better fit or a faster card.
WARM_WEIGHT = 40.0
#: The submitter's own nodes are free, and quotes say so. They outrank everything above together.
OWN_NODE_WEIGHT = 100.0
#: A stated preference outranks everything above together, even one of two tags, so that `--prefer-tag` visibly works.
PREFERRED_TAGS_WEIGHT = 400.0

#: Per multiple of an unknown GPU's speed, or of a usual core's: more than everything above but preferred tags and, among
#: slow nodes, one's own.
FASTEST_WEIGHT = 100.0
#: Per halving of the price: a node that is a tenth cheaper wins whatever else there is. Prices reach 2^50 microcredits.
CHEAPEST_WEIGHT = 200.0
CHEAPEST_DOUBLINGS = 50

#: Scores within one band are equal, and the least recently used node goes first. Without bands, a tiny difference in
#: reliability would send every job to one node.
SCORE_BAND = 0.5
#: Shapes remembered between placements: 2 bytes per node each, or 51 MB for 100 000 nodes.
RANKINGS_MAX = 256
#: Scores with their terms remembered per shape, for fleets in which the same few nodes are chosen repeatedly.
SCORES_MAX = 4_096
_SAMPLE = 2_048


@dataclass(frozen=True, slots=True)
class Placement:
    """A job's node and reservation, not yet written to the database."""

    node_id: str
    reservation: Reservation
    score: float
    terms: dict[str, float]
    others: tuple[Placement, ...] = ()  #: of a gang, the places of its further members


def eligible(fleet: Fleet, shape: Shape) -> Mask:
    """The rows that may run the shape now. Hard gates only."""
    rows = slice(0, fleet.rows)
    mask = could_run(fleet, shape, rows) & has_room(fleet, shape, rows)
    if (trusted := within_exposure(fleet, shape, rows, able=could_run(fleet, shape, rows))) is not None:
        mask &= trusted
    if (avoided := avoided_row(fleet, shape)) is not None:
        mask[avoided] = False
    if (others := withheld_rows(fleet, shape)) is not None:
        mask[others] = False
    return mask


def score(fleet: Fleet, shape: Shape, rows: Rows) -> dict[str, Floats]:
    """The weighted terms of each row's score, which is their sum. Valid for rows that passed the static gates."""
    needs = shape.requirements
    fit_vram = _fit_vram(fleet, needs, rows)
    terms = {
        "fit_vram": _weigh(FIT_VRAM_WEIGHT, fit_vram),
        "fit_cores": _weigh(FIT_CORES_WEIGHT, _share(needs.cpu_milli, fleet.table.cpu_total[rows])),
        "reliability": _weigh(RELIABILITY_WEIGHT, fleet.table.reliability[rows]),
        "own_node": fleet.owner_mask(shape.account, rows) * np.float32(OWN_NODE_WEIGHT),
    }
    if cards_needed(needs):  # the speed of a card is irrelevant to a job that uses none
        used = fit_vram if needs.vram_mb else np.float32(1)  # and so is the speed of the part that stays idle
        terms["tier_speed"] = _weigh(TIER_SPEED_WEIGHT, fleet.table.speed[rows] * used)
    if needs.warm:
        terms["warm"] = _weigh(WARM_WEIGHT / len(needs.warm), warm_count(fleet, shape, rows))
    if needs.prefer == FASTEST:
        speed = fleet.table.speed if cards_needed(needs) else fleet.table.core_speed
        terms["fastest"] = _weigh(FASTEST_WEIGHT, speed[rows])
    elif needs.prefer == CHEAPEST and fleet.prices.market is not None:
        terms["cheapest"] = _cheapness(fleet, shape, rows)
    if needs.prefer_tags:
        terms["preferred_tags"] = _weigh(PREFERRED_TAGS_WEIGHT, _tag_share(fleet, needs, rows))
    return terms


def place(fleet: Fleet, shape: Shape, count: int = 1) -> list[Placement]:
    """Reserve places for up to `count` jobs of one shape, the best first."""
    search = Search(fleet, shape, count)
    placements: list[Placement] = []
    while len(placements) < count and (placement := search.place()):
        placements.append(placement)
    return placements


class Search:
    """Places jobs of one shape one by one. It evaluates the whole fleet once, and then only its candidates.

    Valid for one round: while capacity is only reserved (also by other searches) and none is released.
    """

    def __init__(self, fleet: Fleet, shape: Shape, expected: int, *, explorer: Explorer | None = None) -> None:
        self._explorer = explorer
        self._fleet = fleet
        self._shape = shape
        self._expected = max(1, expected)  # the number of candidates to prepare; doubles each time
        self._ranking = ranking_of(fleet, shape)
        self._bands = open_bands(fleet, shape, self._ranking)
        self._candidates: deque[int] = deque()
        self._take_turns = True

    def place(self) -> Placement | None:
        if self._explorer is not None and self._explorer.takes(self._shape):
            row = self._explorer.choose(self._fleet, self._explorable())
            if row is not None and (placement := self._place_at(row)) is not None:
                return placement
        while self._candidates or self._next_candidates():
            row = self._candidates.popleft()
            if (placement := self._place_at(row)) is None:
                self._bands[row] = -1
                continue
            if self._take_turns:
                self._candidates.append(row)
            return placement
        return None

    def _explorable(self) -> NDArray[np.intp]:
        """The rows to explore: none while the submitter's own nodes have room, because those runs provide no evidence."""
        rows = np.flatnonzero(self._bands >= 0)
        return rows[:0] if self._fleet.owner_mask(self._shape.account, rows).any() else rows

    def _place_at(self, row: int) -> Placement | None:
        node_id, shape = self._fleet.node_at(row).profile.node_id, self._shape
        reservation = self._fleet.reserve(node_id, shape.requirements, shape.account, value=shape.value)
        if reservation is None:
            return None
        total, terms = self._score_of(row)
        return Placement(node_id, reservation, total, dict(terms))

    def _next_candidates(self) -> bool:
        """Make the nodes of the best band the candidates, the least recently used first."""
        best = int(self._bands.max(initial=-1))
        if best < 0:
            return False
        at_best = self._bands == best
        used = self._fleet.table.last_used[: at_best.size]
        candidates = _least_recent(used, at_best, self._expected)
        # If this is the whole band, its nodes take turns until they are full.
        self._take_turns = len(candidates) < self._expected
        self._expected *= 2
        self._remember_scores(candidates)
        self._candidates.extend(candidates)
        return True

    def _score_of(self, row: int) -> tuple[float, dict[str, float]]:
        if row not in self._ranking.scores:  # another search of the same ranking evicted it
            self._remember_scores([row])
        return self._ranking.scores[row]

    def _remember_scores(self, rows: list[int]) -> None:
        """Compute the scores of these rows together, which costs little more than computing one."""
        scores = self._ranking.scores
        missing = [row for row in rows if row not in scores]
        if len(scores) + len(missing) > SCORES_MAX:
            scores.clear()
            missing = rows
        if missing:
            scores.update(zip(missing, list_scores(self._fleet, self._shape, missing), strict=True))


def open_bands(fleet: Fleet, shape: Shape, ranking: Ranking) -> NDArray[np.int16]:
    """The score band of every row that may run the shape now; -1 elsewhere."""
    rows = slice(0, fleet.rows)
    room = has_room(fleet, shape, rows)
    if (trusted := within_exposure(fleet, shape, rows, able=ranking.bands >= 0)) is not None:
        room &= trusted
    avoided = fleet.get(shape.avoid_node)
    if avoided is not None and not (ranking.passing == 1 and ranking.bands[avoided.row] >= 0):
        room[avoided.row] = False
    if (others := withheld_rows(fleet, shape)) is not None:
        room[others] = False
    return _mask_bands(ranking.bands, room)


def list_scores(fleet: Fleet, shape: Shape, rows: list[int]) -> list[tuple[float, dict[str, float]]]:
    """The score of each row and its terms, as plain numbers for display."""
    terms = score(fleet, shape, np.array(rows, np.intp))
    columns = [column.astype(np.float64).round(3).tolist() for column in terms.values()]
    return [(round(sum(values), 3), dict(zip(terms, values, strict=True))) for values in zip(*columns, strict=True)]


def able(fleet: Fleet, shape: Shape) -> Mask:
    """The rows that could run the shape if they were online, idle and paid. Uses a cached ranking, but adds none."""
    ranking = None if shape.avoid_owners else fleet.rankings.get((shape.requirements, shape.account))
    if ranking is not None and (ranking.version == fleet.version or _repair(fleet, shape, ranking)):
        return ranking.bands >= 0
    return could_run(fleet, shape, slice(0, fleet.rows))


def ranking_of(fleet: Fleet, shape: Shape) -> Ranking:
    """The shape's ranking, up to date. Shapes that differ only in the node or owners to avoid share one."""
    if shape.avoid_owners:
        shape = replace(shape, avoid_owners=frozenset())
    key = (shape.requirements, shape.account)
    ranking = fleet.rankings.get(key)
    if ranking is not None:
        fleet.rankings.move_to_end(key)
        if _has_prices(fleet, shape, ranking) and (ranking.version == fleet.version or _repair(fleet, shape, ranking)):
            return ranking
    rows = slice(0, fleet.rows)
    bands = score_bands(fleet, shape, rows)
    ranking = Ranking(
        version=fleet.version, prices=fleet.prices.version, bands=bands, passing=int(np.count_nonzero(bands >= 0))
    )
    fleet.rankings[key] = ranking
    if len(fleet.rankings) > RANKINGS_MAX:
        fleet.rankings.popitem(last=False)
    return ranking


def _has_prices(fleet: Fleet, shape: Shape, ranking: Ranking) -> bool:
    """Its scores do not depend on prices, or on none that have changed since."""
    return shape.requirements.prefer != CHEAPEST or ranking.prices == fleet.prices.version


def _repair(fleet: Fleet, shape: Shape, ranking: Ranking) -> bool:
    """Update a ranking at the rows that changed; False if too much has changed."""
    changed = fleet.rows_changed_since(ranking.version)
    if changed is None:
        return False
    if joined := fleet.rows - ranking.bands.size:
        ranking.bands = np.append(ranking.bands, np.full(joined, -1, np.int16))
    rows = np.array(changed, np.intp)
    ranking.bands[rows] = score_bands(fleet, shape, rows)
    ranking.passing = int(np.count_nonzero(ranking.bands >= 0))
    ranking.version = fleet.version
    for row in changed:
        ranking.scores.pop(row, None)
    return True


def score_bands(fleet: Fleet, shape: Shape, rows: Rows) -> NDArray[np.int16]:
    able = could_run(fleet, shape, rows)
    if isinstance(rows, slice) and (some := np.flatnonzero(able)).size < able.size // 2:
        bands = np.full(able.shape, -1, np.int16)  # gathering a minority of rows is cheaper than scoring all
        bands[some] = _band_of(score(fleet, shape, some))
        return bands
    return _mask_bands(_band_of(score(fleet, shape, rows)), able)


def _band_of(terms: dict[str, Floats]) -> NDArray[np.int16]:
    first, *others = terms.values()
    total = first.copy()
    for term in others:
        total += term
    total *= np.float32(1 / SCORE_BAND)
    return total.astype(np.int16)


def _mask_bands(bands: NDArray[np.int16], allowed: Mask) -> NDArray[np.int16]:
    # OR with all ones is -1. On a mixed mask this is several times faster than `np.where`.
    masked: NDArray[np.int16] = bands | (allowed.view(np.int8) - np.int8(1))
    return masked


def _least_recent(used: NDArray[np.int64], among: Mask, count: int) -> list[int]:
    """Up to `count` rows of `among`, the least recently used first."""
    if among.size > _SAMPLE:
        # Selecting the few smallest of 100 000 values costs more than all gates together, so a sample first provides an
        # upper bound.
        stride = among.size // _SAMPLE
        sample = used[::stride][among[::stride]]
        rank = 2 * count // stride + 8
        if rank < sample.size:
            near = among & (used <= np.partition(sample, rank)[rank])
            among = near if np.count_nonzero(near) >= count else among
    rows = np.flatnonzero(among)
    turn = used[rows]
    if rows.size > count:
        soonest = np.argpartition(turn, count - 1)[:count]
        rows, turn = rows[soonest], turn[soonest]
    ordered: list[int] = rows[np.argsort(turn)].tolist()
    return ordered


def _fit_vram(fleet: Fleet, needs: Requirements, rows: Rows) -> Floats:
    """1 where the job wastes no memory of the cards it would get; less, the more memory stays idle.

    A job without a card fits best on a node without one.
    """
    table, count = fleet.table, cards_needed(needs)
    if not count:
        without: Floats = np.equal(table.cards[rows], 0).astype(np.float32)
        return without
    if not needs.vram_mb:  # whole cards: the waste is the node's other cards
        return _share(count, table.cards[rows])
    if count > len(table.vram_total):
        return np.zeros(table.cards[rows].shape, np.float32)
    # Rows that failed a gate may be scored, too, and are discarded later: their idle memory may be negative.
    idle: Floats = table.vram_total[count - 1][rows].astype(np.float32)
    idle -= np.float32(needs.vram_mb)
    np.maximum(idle, np.float32(IDLE_VRAM_MB), out=idle)
    np.divide(np.float32(IDLE_VRAM_MB), idle, out=idle)
    return idle


def _cheapness(fleet: Fleet, shape: Shape, rows: Rows) -> Floats:
    """By the logarithm of the price, so that it counts by how much cheaper a node is, whatever the level of prices."""
    side = fleet.prices.side(cards=cards_needed(shape.requirements))
    doublings = np.array([math.log2(price + 1) for price in side.prices(shape.requirements)], np.float32)
    above = doublings[side.classes[rows]]
    above[fleet.owner_mask(shape.account, rows)] = 0
    return _weigh(CHEAPEST_WEIGHT, np.maximum(np.float32(CHEAPEST_DOUBLINGS) - above, np.float32(0)))


def _tag_share(fleet: Fleet, needs: Requirements, rows: Rows) -> Floats:
    present = np.zeros(fleet.table.live[rows].shape, np.float32)
    for tag in needs.prefer_tags:
        present += fleet.features.has(tag, rows)
    return _weigh(1 / len(needs.prefer_tags), present)


def _share(part: int, whole: NDArray[np.int16] | NDArray[np.int32]) -> Floats:
    # Rows that failed a gate may be scored, too, and are discarded later: they must not divide by zero.
    share = whole.astype(np.float32)
    np.maximum(share, np.float32(max(part, 1)), out=share)
    np.divide(np.float32(part), share, out=share)
    return share


def _weigh(weight: float, values: Floats) -> Floats:
    weighted: Floats = values * np.float32(weight)
    return weighted
