"""The live fleet: one row a node, what it has, what is free of it, and what is reserved.

Owns capacity: nothing is handed out twice, and nothing is given back twice. Soft state only. Synchronous,
without a clock and without randomness, so that every method is atomic and the simulator runs the same code.

Columns answer "which of 100 000 nodes fit?"; a record per node answers "does it still fit?" exactly and
cheaply, and is what the columns are written from. Heartbeats do not come here: only a change does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Feature, Features
from computepool.core.fleet.node_record import Free, NodeRecord, Reservation, cards_needed, cards_of
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.fleet.owners import Owners
from computepool.core.fleet.row_prices import RowPrices
from computepool.core.fleet.rulebook import RuleBook
from computepool.core.fleet.table import INT32_MAX, Interner, Table, write_ranked
from computepool.core.money.market import Market, largest_card_mb
from computepool.core.money.pricing import MILLI, PriceTable, Zone, units_of
from computepool.core.placement.rules import NONE as NO_RULES
from computepool.core.placement.rules import Rules
from computepool.core.pythons import mask_of
from computepool.core.resources import NodeProfile, Requirements
from computepool.core.trust.reputation import NEWCOMER_SCORE
from computepool.core.trust.tiers import region_of, speed_of

__all__ = ["EVERYONE", "Fleet", "Free", "NodeRecord", "Ranking", "Reservation"]

#: Reliability is kept in steps: a smaller change could not move a node in the ranking, yet would cost every
#: cached ranking a repair after every single job.
RELIABILITY_STEPS = 64
#: Stands in a node's `trusted` for every account.
EVERYONE = "*"
#: Changes remembered for the repair of cached rankings; a ranking older than these is computed anew.
JOURNAL_MAX = 4_096
_ROWS_MIN = 64
#: Nodes that never had a job come before all others, in the order in which they joined. No two rows are equal.
_NEVER_USED = -(2**40)


@dataclass(slots=True)
class Ranking:
    """What the allocator remembers of a shape between placements: filled there, gone with the fleet."""

    version: int  #: of the fleet, when this was last brought up to date
    bands: NDArray[np.int16]  #: score band of each row, -1 where the row can never run the shape
    passing: int  #: rows with a band
    scores: dict[int, tuple[float, dict[str, float]]] = field(default_factory=dict)


class Fleet:
    """The nodes of this hub. `version` counts changes of what nodes are, `supply` when more became free."""

    def __init__(self) -> None:
        self.table = Table(_ROWS_MIN)
        self.features = Features(_ROWS_MIN)
        self.prices = RowPrices()
        self.rulebook = RuleBook()
        self.words = Interner()
        self.accounts = Interner()
        self.owners = Owners()  #: by their numbers as accounts
        self.rows = 0  #: rows ever used; the columns beyond are empty
        self.version = 0
        self.supply = 0
        self.newcomers = 0  #: how many nodes are
        self.banned = 0
        self.rankings: OrderedDict[tuple[Requirements, str], Ranking] = OrderedDict()
        self._nodes: dict[str, NodeRecord] = {}
        self._by_row: list[NodeRecord | None] = []
        self._free_rows: list[int] = []
        self._called: dict[str, set[int]] = {}  # rows by node id, name and URL
        self._trusting: dict[str, set[int]] = {}  # rows by trusted account
        self._journal: list[int] = []  # the rows that changed last, one entry a version
        self._price_table: PriceTable | None = None
        self._submitters: dict[str, float] = {}  # scores by account
        self._reservations = 0
        self._joins = 0
        self._uses = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._nodes

    def __iter__(self) -> Iterator[NodeProfile]:
        return (node.profile for node in self._nodes.values())

    def upsert(self, profile: NodeProfile) -> bool:
        """Add a node (available, nothing reserved), or renew what is known of one and keep its reservations.

        False if it now has less than its jobs hold: nothing more fits there until enough of them end.
        """
        node = self._nodes.get(profile.node_id)
        if node is not None and node.profile == profile:
            return not node.overcommitted
        if node is None:
            node = self._add(profile)
        else:
            self._unlink(node)
            self.owners.leave(self._owner(node), node)
            node.renew(profile)
        self._link(node)
        self.owners.join(self._owner(node), node)
        self._write_profile(node)
        self._write_price(node)
        self._write_free(node, cards=True)
        self._mark_changed(node.row)
        self.supply += 1
        return not node.overcommitted

    def remove(self, node_id: str) -> bool:
        """Forget a node and what was reserved there. Giving such a share back later changes nothing."""
        node = self._nodes.pop(node_id, None)
        if node is None:
            return False
        self._unlink(node)
        self.owners.leave(self._owner(node), node)
        self.prices.floors -= node.floor is not None
        self.newcomers -= node.is_newcomer
        self.banned -= node.banned
        self.table.rules[node.row] = self.rulebook.change(int(self.table.rules[node.row]), NO_RULES)
        self.table.live[node.row] = False
        self.table.available[node.row] = False
        self._by_row[node.row] = None
        self._free_rows.append(node.row)
        self._mark_changed(node.row)
        self.supply += 1  # the node a job must avoid may now be the only one left
        return True

    def set_available(self, node_id: str, available: bool, rest: NodeStatus | None = None) -> None:
        """Whether it takes new work now, and if not, why (`NodeRecord.rest`)."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        node.rest = rest
        if bool(self.table.available[node.row]) == available:
            return
        self.table.available[node.row] = available
        self.supply += available

    def set_reliability(self, node_id: str, value: float, evidence: tuple[float, float] = (0.0, 0.0)) -> None:
        """How far to rely on it, from 0 to 1, and from how much."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        node.evidence = evidence
        stepped = _round_down(value)
        if self.table.reliability[node.row] != stepped:
            self.table.reliability[node.row] = stepped
            self._mark_changed(node.row)

    def set_newcomer(self, node_id: str, owes: bool) -> None:
        """Whether it is a newcomer: those of one owner may have one job of others at a time, the owner's own not counted."""
        node = self._nodes.get(node_id)
        if node is None or node.is_newcomer == owes:
            return
        self.newcomers += owes - node.is_newcomer
        self.owners.leave(self._owner(node), node)
        node.is_newcomer = self.table.newcomer[node.row] = owes
        self.owners.join(self._owner(node), node)
        self.supply += not owes

    def set_cap(self, node_id: str, cap: int | None) -> None:
        """Microcredits that jobs of others on its owner's nodes may be worth together; the owner's best node counts."""
        node = self._nodes.get(node_id)
        if node is None or node.cap == cap:
            return
        self.owners.change_cap(self._owner(node), node.cap, cap)
        node.cap = cap
        self.supply += 1

    def _owner(self, node: NodeRecord) -> int:
        return self.accounts.number(node.profile.owner)

    def set_integrity(self, node_id: str, *, streak: int, banned: bool) -> None:
        """Its results in a row that were compared and agreed, and whether wrong ones keep it from jobs of others."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        node.streak = streak
        if node.banned != banned:
            self.banned += banned - node.banned
            node.banned = banned
            self.table.banned[node.row] = banned
            self._mark_changed(node.row)
            self.supply += not banned

    def set_submitter(self, account: str, score: float) -> None:
        """How this account's jobs have treated other nodes. No ranking depends on it: gates that ask are about the moment."""
        stepped = float(_round_down(score))
        if stepped > self.submitter_score(account):
            self.supply += 1
        self._submitters[account] = stepped

    def submitter_score(self, account: str) -> float:
        return self._submitters.get(account, _NEWCOMER)

    def set_rules(self, node_id: str, rules: Rules) -> None:
        """What its owner lets others do there."""
        node = self._nodes.get(node_id)
        if node is None or self.rules_of(node) == rules:
            return
        self.table.rules[node.row] = self.rulebook.change(int(self.table.rules[node.row]), rules)
        self._mark_changed(node.row)
        self.supply += 1

    def rules_of(self, node: NodeRecord) -> Rules:
        return self.rulebook[int(self.table.rules[node.row])]

    def set_floor(self, node_id: str, floor: int | None) -> None:
        """What its owner wants at least, after the fee, for a unit-hour of the node's tier; None: any price will do."""
        node = self._nodes.get(node_id)
        if node is None or node.floor == floor:
            return
        self.prices.floors += (floor is not None) - (node.floor is not None)
        node.floor = floor
        self._write_price(node)
        self.supply += 1

    def set_prices(self, market: Market) -> None:
        """Follow the market: what it says holds for every placement from now on. No ranking depends on it."""
        cheaper = self.prices.follow(market)
        if self._price_table is not market.table:
            self._price_table = market.table
            for node in self._nodes.values():
                if node.floor:
                    self._write_floor(node, market)
        if self._judge_floors() or cheaper:
            self.supply += 1

    def reserve(
        self, node_id: str, needs: Requirements, account: str = "", *, value: int = 0
    ) -> Reservation | None:
        """Set a job's share of a node aside; None if it does not fit. Checks capacity, newcomers and value only, and exactly.

        What the node's own owner (`account`) runs there is no part of the market.
        """
        node = self._nodes.get(node_id)
        if node is None or not node.fits(needs):
            return None
        if account != node.profile.owner:
            owner = self._owner(node)
            if (node.is_newcomer and self.owners.busy[owner]) or not self.owners.has_room(owner, value):
                return None
        cards = node.pick_cards(needs)
        return None if cards is None else self._hold(node, needs, cards, account=account, value=value)

    def adopt(
        self, node_id: str, needs: Requirements, account: str = "", *, value: int = 0
    ) -> Reservation | None:
        """Count a job that runs there already, whether it fits or not; None if there is no such node.

        For a restarted hub, whose nodes come back with their jobs.
        """
        node = self._nodes.get(node_id)
        if node is None:
            return None
        cards = node.pick_cards(needs)
        if cards is None:
            cards = node.emptiest_cards(cards_needed(needs))
        return self._hold(node, needs, cards, account=account, value=value)

    def release(self, node_id: str, reservation: Reservation) -> bool:
        """Give a share back. False, and no change, if it is not held: it was given back, or the node left."""
        node = self._nodes.get(node_id)
        if node is None or not node.let_go(reservation):
            return False
        self._write_free(node, cards=bool(reservation.cards))
        self._count(node, reservation, -1)
        self.supply += 1
        return True

    def free(self, node_id: str) -> Free:
        """What is left of a node. Raises KeyError if it is not in the fleet."""
        return self._nodes[node_id].free()

    def profile(self, node_id: str) -> NodeProfile:
        """Raises KeyError if it is not in the fleet."""
        return self._nodes[node_id].profile

    def is_available(self, node_id: str) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and bool(self.table.available[node.row])

    def is_newcomer(self, node_id: str) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.is_newcomer

    def streak(self, node_id: str) -> int:
        """0 for a node that is not here: nothing is known of it."""
        node = self._nodes.get(node_id)
        return 0 if node is None else node.streak

    def row_of(self, node_id: str) -> int | None:
        node = self._nodes.get(node_id)
        return None if node is None else node.row

    def node_at(self, row: int) -> NodeRecord:
        node = self._by_row[row]
        if node is None:
            raise LookupError(f"row {row} is empty")
        return node

    def rows_called(self, *words: str) -> list[int]:
        """The rows of the nodes that have one of these as id, name or URL."""
        return list(chain.from_iterable(self._called.get(word, ()) for word in words))

    def rows_trusting(self, account: str) -> list[int]:
        """The rows of the nodes that name this account as trusted; owners and `*` are columns."""
        return list(self._trusting.get(account, ()))

    def changed_since(self, version: int) -> list[int] | None:
        """Rows whose profile or reliability changed after `version`; None if that is too long ago."""
        count = self.version - version
        if count > len(self._journal):
            return None
        return list(dict.fromkeys(self._journal[len(self._journal) - count :]))

    def _count(self, node: NodeRecord, held: Reservation, sign: int) -> None:
        if held.stranger:
            self.owners.add(self._owner(node), jobs=sign * node.is_newcomer, value=sign * held.value)

    def _hold(
        self, node: NodeRecord, needs: Requirements, cards: Sequence[int], *, account: str, value: int
    ) -> Reservation:
        self._reservations += 1
        stranger = account != node.profile.owner
        held = Reservation(
            number=self._reservations,
            cpu_milli=needs.cpu_milli,
            ram_mb=needs.ram_on(node.profile.capacity),
            disk_mb=needs.disk_mb,
            cards=tuple(cards),
            vram_mb=needs.vram_mb,
            units=self._units(node, needs, cards) if stranger else 0,
            stranger=stranger,
            value=value if stranger else 0,
        )
        node.hold(held)
        self._count(node, held, 1)
        self._write_free(node, cards=bool(cards))
        self._uses += 1
        self.table.last_used[node.row] = self._uses
        return held

    def _units(self, node: NodeRecord, needs: Requirements, cards: Sequence[int]) -> int:
        if not cards:
            return needs.cpu_milli
        # The size of the largest card is known with the row's class; finding it again would cost more.
        card_mb = self.prices.gpu.card_mb(int(self.table.gpu_class[node.row])) if needs.vram_mb else 0
        return units_of(needs, card_mb=card_mb)

    def _add(self, profile: NodeProfile) -> NodeRecord:
        row = self._free_rows.pop() if self._free_rows else self._new_row()
        node = NodeRecord(row=row, profile=profile, cards=cards_of(profile.capacity.gpus))
        self._nodes[profile.node_id] = node
        self._by_row[row] = node
        self.table.live[row] = True
        self.table.available[row] = True
        self.table.reliability[row] = _round_down(NEWCOMER_SCORE)
        self.table.banned[row] = self.table.newcomer[row] = False
        self._joins += 1
        self.table.last_used[row] = _NEVER_USED + self._joins
        return node

    def _new_row(self) -> int:
        row = self.rows
        self.rows += 1
        self._by_row.append(None)
        if self.rows > len(self.table):
            self.table.grow(2 * len(self.table))
            self.features.grow(len(self.table))
        return row

    def _link(self, node: NodeRecord) -> None:
        for word in node.profile.names():
            self._called.setdefault(word, set()).add(node.row)
        for account in node.profile.trusted:
            self._trusting.setdefault(account, set()).add(node.row)
        self.features.add(node.row, _features(node.profile))

    def _unlink(self, node: NodeRecord) -> None:
        for word in node.profile.names():
            _discard(self._called, word, node.row)
        for account in node.profile.trusted:
            _discard(self._trusting, account, node.row)
        self.features.discard(node.row, _features(node.profile))

    def _write_profile(self, node: NodeRecord) -> None:
        table, row, profile = self.table, node.row, node.profile
        capacity = profile.capacity
        table.cpu_total[row] = min(capacity.cpu_milli, INT32_MAX)
        table.ram_total[row] = min(capacity.ram_mb, INT32_MAX)
        table.disk_total[row] = min(capacity.disk_mb, INT32_MAX)
        table.make_ranks(len(node.cards))
        for ranked in (*table.vram_total, *table.vram_free):
            ranked[row] = 0
        write_ranked(table.vram_total, row, [card.total_mb for card in node.cards])
        table.cards[row] = len(node.cards)
        table.mixed[row] = len({card.tier for card in node.cards}) > 1
        table.tier[row] = self.words.number(capacity.tier)
        table.speed[row] = speed_of(capacity.tier) / 100
        table.region[row] = self.words.number(region_of(profile.region))
        table.mesh_version[row] = self.words.number(profile.mesh_version)
        table.python[row] = mask_of(profile.pythons())
        table.owner[row] = self.accounts.number(profile.owner)
        table.level[row] = profile.level
        table.trusts_everyone[row] = EVERYONE in profile.trusted
        table.lends_gpus[row] = profile.lends_gpus
        table.network[row] = profile.network

    def _write_price(self, node: NodeRecord) -> None:
        table, row, profile, prices = self.table, node.row, node.profile, self.prices
        region, capacity = region_of(profile.region), profile.capacity
        table.cpu_class[row] = prices.cpu.number(Zone(capacity.cpu_tier, region), 0, prices.market)
        gpu_class = prices.gpu.number(Zone(capacity.tier, region), largest_card_mb(capacity), prices.market)
        table.gpu_class[row] = gpu_class
        if prices.market is not None:
            self._write_floor(node, prices.market)
            table.cpu_met[row] = table.cpu_floor[row] <= prices.cpu.net[table.cpu_class[row]]
            table.gpu_met[row] = table.gpu_floor[row] <= prices.gpu.net[gpu_class]

    def _write_floor(self, node: NodeRecord, market: Market) -> None:
        capacity, floor = node.profile.capacity, node.floor or 0
        self.table.gpu_floor[node.row] = floor
        self.table.cpu_floor[node.row] = market.floor_in(
            capacity.cpu_tier, node_tier=capacity.tier, floor=floor
        )

    def _judge_floors(self) -> bool:
        """Whether each floor is met. True if one is that was not."""
        table, prices, rows = self.table, self.prices, slice(0, self.rows)
        cpu_met = table.cpu_floor[rows] <= prices.cpu.net[table.cpu_class[rows]]
        gpu_met = table.gpu_floor[rows] <= prices.gpu.net[table.gpu_class[rows]]
        opened = (cpu_met & ~table.cpu_met[rows]) | (gpu_met & ~table.gpu_met[rows])
        table.cpu_met[rows], table.gpu_met[rows] = cpu_met, gpu_met
        return bool(opened.any())

    def _write_free(self, node: NodeRecord, *, cards: bool) -> None:
        table, row, total = self.table, node.row, node.profile.capacity
        table.cpu_free[row] = min(max(-1, total.cpu_milli - node.cpu_milli), INT32_MAX)
        table.ram_free[row] = min(max(-1, total.ram_mb - node.ram_mb), INT32_MAX)
        table.disk_free[row] = min(max(-1, total.disk_mb - node.disk_mb), INT32_MAX)
        table.cpu_busy[row] = node.cpu_busy
        if cards:
            self._write_cards(node)

    def _write_cards(self, node: NodeRecord) -> None:
        table, row = self.table, node.row
        free_mb, idle, units = [], 0, 0
        for card in node.cards:
            free = card.free_mb
            free_mb.append(free)
            idle += card.jobs == 0
            units += free * MILLI // max(1, card.total_mb)
        write_ranked(table.vram_free, row, free_mb)
        table.cards_idle[row] = idle
        table.gpu_free[row] = units
        table.gpu_busy[row] = node.gpu_busy

    def _mark_changed(self, row: int) -> None:
        self.version += 1
        self._journal.append(row)
        if len(self._journal) > 2 * JOURNAL_MAX:
            del self._journal[:-JOURNAL_MAX]


def _round_down(reliability: float) -> np.float32:
    return np.float32(round(min(1.0, max(0.0, reliability)) * RELIABILITY_STEPS) / RELIABILITY_STEPS)


def _features(profile: NodeProfile) -> set[Feature]:
    return {*profile.tags, *profile.properties}


def _discard(index: dict[str, set[int]], key: str, row: int) -> None:
    index[key].discard(row)
    if not index[key]:
        del index[key]


_NEWCOMER = float(_round_down(NEWCOMER_SCORE))
