"""The live fleet: one row per node, with what the node has, what is free, and what is reserved.

The fleet owns capacity: nothing is reserved twice or released twice. It holds soft state only. It is synchronous and
has no clock and no randomness, so every method is atomic and the simulator runs the same code.

Columns answer "which of 100 000 nodes fit?". One record per node answers "does the job still fit?" exactly and cheaply;
the columns are derived from the records. Heartbeats do not reach the fleet, only changes do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Features, Mask, Rows, features_of
from computepool.core.fleet.node_record import NodeRecord, Reservation, cards_needed, cards_of
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.fleet.owners import OwnerExposure
from computepool.core.fleet.row_prices import RowPrices
from computepool.core.fleet.rulebook import RuleBook
from computepool.core.fleet.software import Judge, Software
from computepool.core.fleet.table import INT32_MAX, Interner, Table, write_ranked
from computepool.core.money.market import Market, largest_card_mb
from computepool.core.money.pricing import MILLI, PriceTable, Zone, units_of
from computepool.core.placement.rules import NONE as NO_RULES, Rules
from computepool.core.pythons import mask_of
from computepool.core.resources import NodeProfile, Requirements, Shape
from computepool.core.trust.reputation import NEWCOMER_SCORE
from computepool.core.trust.tiers import region_of, speed_of

#: Reliability is rounded to steps. A smaller change would not move a node in the ranking, but would force a repair of
#: every cached ranking after every job.
RELIABILITY_STEPS = 64
#: In a node's `trusted`: every account.
EVERYONE = "*"
#: Changes remembered for repairing cached rankings; older rankings are computed again.
JOURNAL_MAX = 4_096
_ROWS_MIN = 64
#: Unused nodes come before all others, in the order in which they joined. No two rows are equal.
_NEVER_USED = -(2**40)


@dataclass(slots=True)
class Ranking:
    """A shape's ranking, which the allocator fills and keeps between placements."""

    version: int  #: of the fleet, at the last update
    prices: int  #: version of the prices when it was made
    bands: NDArray[np.int16]  #: score band of each row; -1 if the row can never run the shape
    passing: int  #: rows with a band
    scores: dict[int, tuple[float, dict[str, float]]] = field(default_factory=dict)


class Fleet:
    """The nodes of this hub. `version` counts changes to nodes, `supply` counts increases of free capacity."""

    def __init__(self, judge: Judge = lambda _environment, _dependencies: False) -> None:
        """`judge`: whether an offered environment satisfies the dependencies of a job."""
        self.table = Table(_ROWS_MIN)
        self.features = Features(_ROWS_MIN)
        self.software = Software(_ROWS_MIN, judge)
        self.warm = Features(_ROWS_MIN)  #: what nodes have cached
        self.prices = RowPrices(_ROWS_MIN)
        self.rulebook = RuleBook()
        self.words = Interner()
        self.accounts = Interner()
        self.owners = OwnerExposure()  #: by account number
        self.rows = 0  #: rows ever used; the columns beyond are empty
        self.version = 0
        self.supply = 0
        self.newcomers = 0  #: number of newcomer nodes
        self.banned = 0  #: number of banned nodes
        #: The rows that take no new work but this shape's, which is a gang that has waited for long.
        self.withheld: tuple[Shape, NDArray[np.intp]] | None = None
        self.rankings: OrderedDict[tuple[Requirements, str], Ranking] = OrderedDict()
        self._nodes: dict[str, NodeRecord] = {}
        self._by_row: list[NodeRecord | None] = []
        self._free_rows: list[int] = []
        self._called: dict[str, set[int]] = {}  # rows by node id, name and URL
        self._trusting: dict[str, set[int]] = {}  # rows by trusted account
        self._journal: list[int] = []  # the latest changed rows, one entry per version
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

    def __getitem__(self, node_id: str) -> NodeRecord:
        return self._nodes[node_id]

    def get(self, node_id: str) -> NodeRecord | None:
        return self._nodes.get(node_id)

    def upsert(self, profile: NodeProfile) -> bool:
        """Add a node (available, nothing reserved), or update a known node's profile and keep its reservations.

        False if its jobs now hold more than it has: nothing more fits there until enough of them end.
        """
        node = self._nodes.get(profile.node_id)
        if node is not None and node.profile == profile:
            return not node.overcommitted
        if node is None:
            node = self._add(profile)
        else:
            self._unlink(node)
            self.owners.remove_node(self._owner(node), node)
            node.renew(profile)
        self._link(node)
        self.owners.add_node(self._owner(node), node)
        self._write_profile(node)
        self._write_price(node)
        self._write_free(node, cards=True)
        self._mark_changed(node.row)
        self.supply += 1
        return not node.overcommitted

    def remove(self, node_id: str) -> bool:
        """Remove a node with its reservations. Releasing one of them later has no effect."""
        node = self._nodes.pop(node_id, None)
        if node is None:
            return False
        self._unlink(node)
        self.owners.remove_node(self._owner(node), node)
        self.prices.floors -= node.floor is not None
        self.warm.discard(node.row, node.warm)
        self.newcomers -= node.is_newcomer
        self.banned -= node.banned
        self.table.rules[node.row] = self.rulebook.change(int(self.table.rules[node.row]), NO_RULES)
        self.table.live[node.row] = False
        self.table.available[node.row] = False
        self._by_row[node.row] = None
        self._free_rows.append(node.row)
        self._mark_changed(node.row)
        self.supply += 1  # the node that a job must avoid may now be the only one left
        return True

    def set_available(self, node_id: str, available: bool, rest: NodeStatus | None = None) -> None:
        """Set whether the node takes new work, and if not, why (`rest`)."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        node.rest = rest
        if bool(self.table.available[node.row]) == available:
            return
        self.table.available[node.row] = available
        self.supply += available

    def set_reliability(self, node_id: str, value: float, evidence: tuple[float, float] = (0.0, 0.0)) -> None:
        """Set the node's reliability, from 0 to 1, and the evidence behind it."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        node.evidence = evidence
        stepped = _round_down(value)
        if self.table.reliability[node.row] != stepped:
            self.table.reliability[node.row] = stepped
            self._mark_changed(node.row)

    def set_newcomer(self, node_id: str, newcomer: bool) -> None:
        """The newcomer nodes of one owner get one external job at a time between them."""
        node = self._nodes.get(node_id)
        if node is None or node.is_newcomer == newcomer:
            return
        self.newcomers += newcomer - node.is_newcomer
        self.owners.remove_node(self._owner(node), node)
        node.is_newcomer = self.table.newcomer[node.row] = newcomer
        self.owners.add_node(self._owner(node), node)
        self.supply += not newcomer

    def set_warm(self, node_id: str, warm: Mapping[str, int]) -> None:
        """Set what the node has cached: the milliseconds that each took, by key."""
        node = self._nodes.get(node_id)
        if node is None or node.warm == warm:
            return
        gone, new = node.warm.keys() - warm.keys(), warm.keys() - node.warm.keys()
        node.warm = dict(warm)
        self.warm.discard(node.row, gone)
        self.warm.add(node.row, new)
        if gone or new:
            self._mark_changed(node.row)

    def set_cap(self, node_id: str, cap: int | None) -> None:
        """Cap the worth, in microcredits, of all external jobs on the owner's nodes. The owner's highest cap counts."""
        node = self._nodes.get(node_id)
        if node is None or node.cap == cap:
            return
        self.owners.change_cap(self._owner(node), node.cap, cap)
        node.cap = cap
        self.supply += 1

    def _owner(self, node: NodeRecord) -> int:
        return self.accounts.number(node.profile.owner)

    def set_integrity(self, node_id: str, *, streak: int, banned: bool) -> None:
        """`streak`: consecutive verified results. `banned`: wrong results exclude it from external jobs."""
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
        """Set a submitter's reputation score. No ranking depends on it, because its gate is judged at every placement."""
        stepped = float(_round_down(score))
        if stepped > self.submitter_score(account):
            self.supply += 1
        self._submitters[account] = stepped

    def submitter_score(self, account: str) -> float:
        return self._submitters.get(account, _NEWCOMER)

    def set_rules(self, node_id: str, rules: Rules) -> None:
        node = self._nodes.get(node_id)
        if node is None or self.rules_of(node) == rules:
            return
        self.table.rules[node.row] = self.rulebook.change(int(self.table.rules[node.row]), rules)
        self._mark_changed(node.row)
        self.supply += 1

    def rules_of(self, node: NodeRecord) -> Rules:
        return self.rulebook[int(self.table.rules[node.row])]

    def set_floor(self, node_id: str, floor: int | None) -> None:
        """Set the least its owner accepts, after the fee, for a unit-hour of the node's tier; None: any price."""
        node = self._nodes.get(node_id)
        if node is None or node.floor == floor:
            return
        self.prices.floors += (floor is not None) - (node.floor is not None)
        node.floor = floor
        self._write_price(node)
        self.supply += 1

    def set_prices(self, market: Market) -> None:
        """Adopt the market's prices for all further placements. Only rankings of jobs that prefer cheap nodes depend on them."""
        cheaper = self.prices.follow(market)
        if self._price_table is not market.table:
            self._price_table = market.table
            for node in self._nodes.values():
                if node.floor:
                    self._write_floor(node, market)
        if self.prices.judge_floors(slice(0, self.rows)) or cheaper:
            self.supply += 1

    def reserve(self, node_id: str, needs: Requirements, account: str = "", *, value: int = 0) -> Reservation | None:
        """Reserve a job's share of a node; None if it does not fit.

        Checks exactly, but only capacity, the newcomer limit and the value. The owner's own jobs are not part of the market.
        """
        node = self._nodes.get(node_id)
        if node is None or not node.fits(needs):
            return None
        if account != node.profile.owner:
            owner = self._owner(node)
            if (node.is_newcomer and self.owners.newcomer_jobs[owner]) or not self.owners.has_room(owner, value):
                return None
        cards = node.pick_cards(needs)
        return None if cards is None else self._hold(node, needs, cards, account=account, value=value)

    def adopt(self, node_id: str, needs: Requirements, account: str = "", *, value: int = 0) -> Reservation | None:
        """Reserve for a job that already runs on the node, whether it fits or not; None if there is no such node.

        A restarted hub needs this when its nodes return with their jobs.
        """
        node = self._nodes.get(node_id)
        if node is None:
            return None
        cards = node.pick_cards(needs)
        if cards is None:
            cards = node.emptiest_cards(cards_needed(needs))
        return self._hold(node, needs, cards, account=account, value=value)

    def release(self, node_id: str, reservation: Reservation) -> bool:
        """Release a reservation. False, without any change, if it was released before or the node left."""
        node = self._nodes.get(node_id)
        if node is None or not node.release(reservation):
            return False
        self._write_free(node, cards=bool(reservation.cards))
        self._count(node, reservation, -1)
        self.supply += 1
        return True

    def withhold(self, shape: Shape | None, node_ids: Sequence[str] = ()) -> None:
        """Keep these nodes for one shape: until the next call, no search finds them for another."""
        rows = [node.row for node in map(self.get, node_ids) if node is not None]
        before = self.withheld
        self.withheld = None if shape is None or not rows else (shape, np.array(rows, np.intp))
        self.supply += before is not None and (self.withheld is None or bool(set(before[1].tolist()) - set(rows)))

    def is_available(self, node_id: str) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and bool(self.table.available[node.row])

    def node_at(self, row: int) -> NodeRecord:
        node = self._by_row[row]
        if node is None:
            raise LookupError(f"row {row} is empty")
        return node

    def streak(self, node_id: str) -> int:
        """0 for an unknown node."""
        node = self._nodes.get(node_id)
        return 0 if node is None else node.streak

    def rows_called(self, *words: str) -> list[int]:
        """The rows of the nodes with one of these words as id, name or URL."""
        return list(chain.from_iterable(self._called.get(word, ()) for word in words))

    def owner_mask(self, account: str, rows: Rows) -> Mask:
        mask: Mask = self.table.owner[rows] == self.accounts.find(account)
        return mask

    def rows_trusting(self, account: str) -> list[int]:
        """The rows of the nodes that trust this account by name; owners and `*` are columns."""
        return list(self._trusting.get(account, ()))

    def rows_changed_since(self, version: int) -> list[int] | None:
        """The rows that changed after `version`; None if that is too long ago."""
        count = self.version - version
        if count > len(self._journal):
            return None
        return list(dict.fromkeys(self._journal[len(self._journal) - count :]))

    def _count(self, node: NodeRecord, held: Reservation, sign: int) -> None:
        if held.external:
            self.owners.add(self._owner(node), jobs=sign * node.is_newcomer, value=sign * held.value)

    def _hold(
        self, node: NodeRecord, needs: Requirements, cards: Sequence[int], *, account: str, value: int
    ) -> Reservation:
        self._reservations += 1
        external = account != node.profile.owner
        held = Reservation(
            number=self._reservations,
            cpu_milli=needs.cpu_milli,
            ram_mb=needs.ram_on(node.profile.capacity),
            disk_mb=needs.disk_mb,
            cards=tuple(cards),
            vram_mb=needs.vram_mb,
            units=self._units(node, needs, cards) if external else 0,
            external=external,
            value=value if external else 0,
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
        # The row's class has the size of the largest card; computing it again would cost more.
        return units_of(needs, card_mb=self.prices.gpu.card_mb(node.row) if needs.vram_mb else 0)

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
            self.software.grow(len(self.table))
            self.warm.grow(len(self.table))
            self.prices.grow(len(self.table))
        return row

    def _link(self, node: NodeRecord) -> None:
        for word in node.profile.names():
            self._called.setdefault(word, set()).add(node.row)
        for account in node.profile.trusted:
            self._trusting.setdefault(account, set()).add(node.row)
        self.features.add(node.row, features_of(node.profile))
        self.software.add(node.row, node.profile.environments)

    def _unlink(self, node: NodeRecord) -> None:
        for word in node.profile.names():
            _discard(self._called, word, node.row)
        for account in node.profile.trusted:
            _discard(self._trusting, account, node.row)
        self.features.discard(node.row, features_of(node.profile))
        self.software.discard(node.row, node.profile.environments)

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
        table.mixed[row] = len({(card.tier, card.compute_capability) for card in node.cards}) > 1
        table.compute_capability[row] = max((card.compute_capability for card in node.cards), default=0)
        table.driver[row] = profile.driver
        table.cuda[row] = profile.cuda
        table.tier[row] = self.words.number(capacity.tier)
        table.speed[row] = speed_of(capacity.tier) / 100
        table.core_speed[row] = speed_of(capacity.cpu_tier) / 100
        table.region[row] = self.words.number(region_of(profile.region))
        table.mesh_version[row] = self.words.number(profile.mesh_version)
        table.python[row] = mask_of(profile.pythons())
        table.owner[row] = self.accounts.number(profile.owner)
        table.level[row] = profile.level
        table.trusts_everyone[row] = EVERYONE in profile.trusted
        table.lends_gpus[row] = profile.lends_gpus
        table.network[row] = profile.network
        table.gangs[row] = profile.gangs
        table.installs[row] = profile.installs
        table.down_mbps[row] = min(profile.down_mbps, INT32_MAX)
        table.up_mbps[row] = min(profile.up_mbps, INT32_MAX)

    def _write_price(self, node: NodeRecord) -> None:
        row, prices, capacity = node.row, self.prices, node.profile.capacity
        region = region_of(node.profile.region)
        prices.cpu.write_class(row, Zone(capacity.cpu_tier, region), card_mb=0, market=prices.market)
        card_mb = largest_card_mb(capacity)
        prices.gpu.write_class(row, Zone(capacity.tier, region), card_mb=card_mb, market=prices.market)
        if prices.market is not None:
            self._write_floor(node, prices.market)
            prices.judge_floors(row)

    def _write_floor(self, node: NodeRecord, market: Market) -> None:
        capacity, floor = node.profile.capacity, node.floor or 0
        self.prices.gpu.floor[node.row] = floor
        self.prices.cpu.floor[node.row] = market.floor_in(capacity.cpu_tier, node_tier=capacity.tier, floor=floor)

    def _write_free(self, node: NodeRecord, *, cards: bool) -> None:
        table, row, total = self.table, node.row, node.profile.capacity
        table.cpu_free[row] = min(max(-1, total.cpu_milli - node.cpu_milli), INT32_MAX)
        table.ram_free[row] = min(max(-1, total.ram_mb - node.ram_mb), INT32_MAX)
        table.disk_free[row] = min(max(-1, total.disk_mb - node.disk_mb), INT32_MAX)
        table.cpu_busy[row] = node.cpu_busy
        if not cards:
            return
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


def _discard(index: dict[str, set[int]], key: str, row: int) -> None:
    index[key].discard(row)
    if not index[key]:
        del index[key]


_NEWCOMER = float(_round_down(NEWCOMER_SCORE))
