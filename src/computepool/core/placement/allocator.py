"""Placement of jobs on nodes: hard gates first, then a ranking of the nodes that passed, and the reservation.

`eligible()` never bends, `score()` never excludes. Every placement carries its score term by term. Jobs of
one shape are matched as a batch; a batch places exactly what single calls in a row would.

What load does not change (the static gates and the score) is kept per shape as one small column, a *ranking*,
and repaired row by row when nodes change. A placement then only compares what is free: 100 000 nodes take
about 0.2 ms.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Mask, Rows
from computepool.core.fleet.fleet import Fleet, Ranking
from computepool.core.fleet.node_record import Reservation, cards_needed
from computepool.core.placement.exploration import Explorer
from computepool.core.placement.gates import avoided_row, could_run, exposed, has_room
from computepool.core.resources import Requirements, Shape

Floats = NDArray[np.float32]

#: No waste. Fit is measured against what the node has in all, not against what is free now: a node does not
#: become a better home for a job by being half full, and equally good nodes stay equal and take turns.
FIT_VRAM_WEIGHT = 10.0
FIT_CORES_WEIGHT = 5.0
#: So much of a card may lie idle without being a waste: jobs share cards, and a job of 4 GB leaves 20 GB of a 4090
#: to others. Beyond it fit and speed count less and less: a fast card with much memory is left for who needs it.
IDLE_VRAM_MB = 20_000
#: Per multiple of an unknown GPU's speed. The step from a 3060 to a 4090 counts more than the best fit of cores, so
#: that the faster tier wins wherever its memory is not wasted.
TIER_SPEED_WEIGHT = 6.0
#: A node that fails half its jobs loses 3 points: half a step of speed.
RELIABILITY_WEIGHT = 6.0
#: The submitter's own nodes cost nothing, and the submitter was told so: they outrank everything above together.
OWN_NODE_WEIGHT = 100.0
#: A stated wish outranks everything above together, so that `--prefer-tag` visibly works, also one of two tags.
PREFERRED_TAGS_WEIGHT = 400.0

#: Scores this close are equal, and the least recently used node goes first. Without bands a difference in the
#: third decimal of a reliability would send every job to one node.
SCORE_BAND = 0.5
#: Shapes remembered between placements: 2 bytes a node each, so 51 MB at 100 000 nodes.
RANKINGS_MAX = 256
#: Term-by-term scores remembered per shape, for fleets where the same few nodes are chosen again and again.
SCORES_MAX = 4_096
_SAMPLE = 2_048


@dataclass(frozen=True, slots=True)
class Placement:
    """A job's place: reserved, not yet written anywhere."""

    node_id: str
    reservation: Reservation
    score: float
    terms: dict[str, float]


def eligible(fleet: Fleet, shape: Shape) -> Mask:
    """Which rows of the fleet (`fleet.node_at(row)`) may run the shape now. Hard gates only."""
    rows = slice(0, fleet.rows)
    mask = could_run(fleet, shape, rows) & has_room(fleet, shape, rows)
    if (trusted := exposed(fleet, shape, rows, able=could_run(fleet, shape, rows))) is not None:
        mask &= trusted
    if (avoided := avoided_row(fleet, shape)) is not None:
        mask[avoided] = False
    return mask


def score(fleet: Fleet, shape: Shape, rows: Rows) -> dict[str, Floats]:
    """The weighted terms of each row's score, which is their sum. For rows that passed the static gates."""
    needs = shape.requirements
    fit_vram = _fit_vram(fleet, needs, rows)
    terms = {
        "fit_vram": _weigh(FIT_VRAM_WEIGHT, fit_vram),
        "fit_cores": _weigh(FIT_CORES_WEIGHT, _fit_cores(fleet, needs, rows)),
        "reliability": _weigh(RELIABILITY_WEIGHT, fleet.table.reliability[rows]),
        "own_node": _is_own(fleet, shape, rows) * np.float32(OWN_NODE_WEIGHT),
    }
    if cards_needed(needs):  # the speed of a card means nothing to a job that uses none
        used = fit_vram if needs.vram_mb else np.float32(1)  # the speed of an idle part is of no use either
        terms["tier_speed"] = _weigh(TIER_SPEED_WEIGHT, fleet.table.speed[rows] * used)
    if needs.prefer_tags:
        terms["preferred_tags"] = _weigh(PREFERRED_TAGS_WEIGHT, _tag_share(fleet, needs, rows))
    return terms


def place(fleet: Fleet, shape: Shape, count: int = 1) -> list[Placement]:
    """Reserve places for up to `count` jobs of one shape, the best first; fewer if no more fit."""
    search = Search(fleet, shape, count)
    placements: list[Placement] = []
    while len(placements) < count and (placement := search.place()):
        placements.append(placement)
    return placements


class Search:
    """Places jobs of one shape one by one, looking at the whole fleet once and then only at its candidates.

    Valid while capacity is only taken (several searches may take turns) and not given back: for one round.
    """

    def __init__(
        self, fleet: Fleet, shape: Shape, expected: int, *, explorer: Explorer | None = None
    ) -> None:
        self._explorer = explorer
        self._fleet = fleet
        self._shape = shape
        self._expected = max(1, expected)  # a guess: so many candidates are prepared, then twice as many
        self._ranking = _ranking(fleet, shape)
        self._bands = self._open_bands()
        self._candidates: deque[int] = deque()
        self._take_turns = True

    def place(self) -> Placement | None:
        """The next job's place, or None: nothing more fits."""
        if self._explorer is not None and self._explorer.wants(self._shape):
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
        """The rows that chance may choose from: none while the submitter's own nodes have room, whose runs teach nothing."""
        rows = np.flatnonzero(self._bands >= 0)
        return rows[:0] if _is_own(self._fleet, self._shape, rows).any() else rows

    def _place_at(self, row: int) -> Placement | None:
        node_id, shape = self._fleet.node_at(row).profile.node_id, self._shape
        reservation = self._fleet.reserve(node_id, shape.requirements, shape.account, value=shape.value)
        if reservation is None:
            return None
        total, terms = self._score_of(row)
        return Placement(node_id, reservation, total, dict(terms))

    def _open_bands(self) -> NDArray[np.int16]:
        """The score band of every row that may run the shape now, -1 elsewhere."""
        fleet, ranking = self._fleet, self._ranking
        rows = slice(0, fleet.rows)
        room = has_room(fleet, self._shape, rows)
        if (trusted := exposed(fleet, self._shape, rows, able=ranking.bands >= 0)) is not None:
            room &= trusted
        avoided = fleet.row_of(self._shape.avoid_node) if self._shape.avoid_node else None
        if avoided is not None and not (ranking.passing == 1 and ranking.bands[avoided] >= 0):
            room[avoided] = False
        return _mask_bands(ranking.bands, room)

    def _next_candidates(self) -> bool:
        """Make the nodes of the best band the candidates, least recently used first."""
        best = int(self._bands.max(initial=-1))
        if best < 0:
            return False
        at_best = self._bands == best
        used = self._fleet.table.last_used[: at_best.size]
        candidates = _least_recent(used, at_best, self._expected)
        # these are all: they go round until they are full
        self._take_turns = len(candidates) < self._expected
        self._expected *= 2
        self._remember_scores(candidates)
        self._candidates.extend(candidates)
        return True

    def _score_of(self, row: int) -> tuple[float, dict[str, float]]:
        if row not in self._ranking.scores:  # another search of the same ranking made room for its own rows
            self._remember_scores([row])
        return self._ranking.scores[row]

    def _remember_scores(self, rows: list[int]) -> None:
        """Keep the terms of these rows ready: computing many together costs little more than one."""
        scores = self._ranking.scores
        missing = [row for row in rows if row not in scores]
        if len(scores) + len(missing) > SCORES_MAX:
            scores.clear()
            missing = rows
        if missing:
            scores.update(zip(missing, scored(self._fleet, self._shape, missing), strict=True))


def scored(fleet: Fleet, shape: Shape, rows: list[int]) -> list[tuple[float, dict[str, float]]]:
    """The score of each of these rows, and its terms, as plain numbers for people."""
    terms = score(fleet, shape, np.array(rows, np.intp))
    columns = [column.astype(np.float64).round(3).tolist() for column in terms.values()]
    return [
        (round(sum(values), 3), dict(zip(terms, values, strict=True)))
        for values in zip(*columns, strict=True)
    ]


def able(fleet: Fleet, shape: Shape) -> Mask:
    """Which rows could run the shape if they were online, idle and paid. Looks at what is remembered, keeps nothing."""
    ranking = None if shape.avoid_owners else fleet.rankings.get((shape.requirements, shape.account))
    if ranking is not None and (ranking.version == fleet.version or _repair(fleet, shape, ranking)):
        return ranking.bands >= 0
    return could_run(fleet, shape, slice(0, fleet.rows))


def _ranking(fleet: Fleet, shape: Shape) -> Ranking:
    """The shape's ranking, up to date. Shapes that differ only in the node or the owners to avoid share one."""
    if shape.avoid_owners:
        shape = replace(shape, avoid_owners=frozenset())
    key = (shape.requirements, shape.account)
    ranking = fleet.rankings.get(key)
    if ranking is not None:
        fleet.rankings.move_to_end(key)
        if ranking.version == fleet.version or _repair(fleet, shape, ranking):
            return ranking
    rows = slice(0, fleet.rows)
    bands = score_bands(fleet, shape, rows)
    ranking = Ranking(version=fleet.version, bands=bands, passing=int(np.count_nonzero(bands >= 0)))
    fleet.rankings[key] = ranking
    if len(fleet.rankings) > RANKINGS_MAX:
        fleet.rankings.popitem(last=False)
    return ranking


def _repair(fleet: Fleet, shape: Shape, ranking: Ranking) -> bool:
    """Bring a ranking up to date at the rows that changed; False if that is not worth it."""
    changed = fleet.changed_since(ranking.version)
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
        bands = np.full(able.shape, -1, np.int16)  # gathering the few that passed is cheaper than scoring all
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
    """The bands, -1 where not allowed."""
    # OR with all ones is -1. On a mixed mask this is several times faster than `np.where`.
    banned: NDArray[np.int16] = bands | (allowed.view(np.int8) - np.int8(1))
    return banned


def _least_recent(used: NDArray[np.int64], among: Mask, count: int) -> list[int]:
    """Up to `wanted` rows of those in `among`, the one used longest ago first."""
    if among.size > _SAMPLE:
        # Sorting out the few smallest of 100 000 costs more than all gates together, so a sample first tells below
        # which value they must be.
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


def _fit_cores(fleet: Fleet, needs: Requirements, rows: Rows) -> Floats:
    """The share of the node's cores that the job uses."""
    return _share(needs.cpu_milli, fleet.table.cpu_total[rows])


def _fit_vram(fleet: Fleet, needs: Requirements, rows: Rows) -> Floats:
    """1 where the job wastes no memory of a card, the smallest one among the node's largest; less the more lies idle.

    A job without a card fits best where there is none.
    """
    table, count = fleet.table, cards_needed(needs)
    if not count:
        without: Floats = np.equal(table.cards[rows], 0).astype(np.float32)
        return without
    if not needs.vram_mb:  # whole cards: nothing of them is wasted, but the cards beside them are
        return _share(count, table.cards[rows])
    if count > len(table.vram_total):
        return np.zeros(table.cards[rows].shape, np.float32)
    # Rows that failed a gate are scored too, and thrown away later: what "lies idle" there may be negative.
    idle: Floats = table.vram_total[count - 1][rows].astype(np.float32)
    idle -= np.float32(needs.vram_mb)
    np.maximum(idle, np.float32(IDLE_VRAM_MB), out=idle)
    np.divide(np.float32(IDLE_VRAM_MB), idle, out=idle)
    return idle


def _is_own(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    own: Mask = fleet.table.owner[rows] == fleet.accounts.find(shape.account)
    return own


def _tag_share(fleet: Fleet, needs: Requirements, rows: Rows) -> Floats:
    """The share of the preferred tags that the node has."""
    present = np.zeros(fleet.table.live[rows].shape, np.float32)
    for tag in needs.prefer_tags:
        present += fleet.features.has(tag, rows)
    return _weigh(1 / len(needs.prefer_tags), present)


def _share(part: int, whole: NDArray[np.int16] | NDArray[np.int32]) -> Floats:
    # Rows that failed a gate may be scored too, and thrown away later: they must not divide by zero.
    share = whole.astype(np.float32)
    np.maximum(share, np.float32(max(part, 1)), out=share)
    np.divide(np.float32(part), share, out=share)
    return share


def _weigh(weight: float, values: Floats) -> Floats:
    weighted: Floats = values * np.float32(weight)
    return weighted
