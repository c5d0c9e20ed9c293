"""One node's record: its profile, its cards, and what is reserved of it. Exact arithmetic on plain numbers.

The fleet's columns are written from these records and never the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from computepool.core.fleet.node_status import NodeStatus
from computepool.core.resources import Gpu, NodeProfile, Requirements

#: Cards of a node beyond this many are not lent. Each costs two columns for the whole fleet, whoever brings
#: them.
GPUS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What one job holds of a node."""

    number: int  #: never given out twice by one fleet
    cpu_milli: int
    ram_mb: int
    disk_mb: int
    cards: tuple[int, ...] = ()  #: indexes of the cards; the job is to see only these
    vram_mb: int = 0  #: on each of the cards; 0 means that they are the job's alone
    units: int = 0  #: thousandths of what the market counts; none on the submitter's own node
    stranger: bool = False  #: the job is not the node owner's
    value: int = 0  #: microcredits: what it may cost, if it is a stranger's

    @property
    def whole_cards(self) -> bool:
        return bool(self.cards) and not self.vram_mb


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """What is left of a node. `vram_mb` has one entry a card."""

    cpu_milli: int
    ram_mb: int
    disk_mb: int
    vram_mb: tuple[int, ...]
    cards_idle: int  #: cards that no job is on
    jobs: int
    overcommitted: bool  #: its jobs hold more than the node now says it has


@dataclass(slots=True)
class Card:
    """One GPU. Its memory is divisible; a job that names no amount gets the whole card."""

    tier: str
    total_mb: int
    used_mb: int = 0
    jobs: int = 0
    jobs_whole: int = 0

    @property
    def free_mb(self) -> int:
        return 0 if self.jobs_whole else max(0, self.total_mb - self.used_mb)

    @property
    def overcommitted(self) -> bool:
        return self.used_mb > self.total_mb or (self.jobs_whole > 0 and self.jobs > 1)

    def apply(self, held: Reservation, sign: int) -> None:
        self.used_mb += sign * held.vram_mb
        self.jobs += sign
        self.jobs_whole += sign * held.whole_cards


@dataclass(slots=True)
class NodeRecord:
    row: int
    profile: NodeProfile
    cards: list[Card]
    cpu_milli: int = 0  #: reserved
    ram_mb: int = 0
    disk_mb: int = 0
    cpu_busy: int = 0  #: units that jobs without a card hold in the market
    gpu_busy: int = 0
    floor: int | None = None  #: net microcredits for a unit-hour of its tier that the owner wants at least
    is_newcomer: bool = False  #: a newcomer: one job of others at a time
    strangers: int = 0  #: jobs of others that it holds
    value: int = 0  #: what these may cost
    #: what the jobs of others that its owner's nodes hold may be worth; None: anything
    cap: int | None = None
    evidence: tuple[float, float] = (0.0, 0.0)  #: what its successes and failures weigh
    streak: int = 0  #: results in a row that were compared with other nodes' and agreed
    banned: bool = False  #: results proven wrong: it gets no jobs of others
    rest: NodeStatus | None = None  #: why it takes no new work, where that is known
    reservations: dict[int, Reservation] = field(default_factory=dict)

    def renew(self, profile: NodeProfile) -> None:
        """Take a new profile over and keep every reservation, even if it is more than the node now has."""
        self.profile = profile
        self.cards = cards_of(profile.capacity.gpus)
        for held in self.reservations.values():
            self._apply_cards(held, 1)

    def fits(self, needs: Requirements) -> bool:
        """Cores, RAM and disk; `pick_cards` answers for the cards."""
        total = self.profile.capacity
        return (
            total.cpu_milli - self.cpu_milli >= needs.cpu_milli
            and total.ram_mb - self.ram_mb >= needs.ram_on(total)
            and total.disk_mb - self.disk_mb >= needs.disk_mb
        )

    def pick_cards(self, needs: Requirements, *, idle: bool = False) -> list[int] | None:
        """The tightest cards that do, so that large ones stay whole; None if there are too few.

        With `idle`, as if no job were on the node.
        """
        count = cards_needed(needs)
        if not count:
            return []
        fitting = []
        for index, card in enumerate(self.cards):
            if needs.tiers and card.tier not in needs.tiers:
                continue
            free_mb = card.total_mb if idle else card.free_mb
            if free_mb >= needs.vram_mb > 0 or (not needs.vram_mb and (idle or not card.jobs)):
                fitting.append((free_mb, index))
        if len(fitting) < count:
            return None
        return [index for _, index in sorted(fitting)[:count]]

    def emptiest_cards(self, count: int) -> list[int]:
        return sorted(range(len(self.cards)), key=lambda index: -self.cards[index].free_mb)[:count]

    def hold(self, held: Reservation) -> None:
        self.reservations[held.number] = held
        self._apply(held, 1)

    def let_go(self, held: Reservation) -> bool:
        """False, and no change, if it is not held here."""
        if self.reservations.get(held.number) != held:
            return False
        del self.reservations[held.number]
        self._apply(held, -1)
        return True

    def free(self) -> Free:
        total = self.profile.capacity
        return Free(
            cpu_milli=max(0, total.cpu_milli - self.cpu_milli),
            ram_mb=max(0, total.ram_mb - self.ram_mb),
            disk_mb=max(0, total.disk_mb - self.disk_mb),
            vram_mb=tuple(card.free_mb for card in self.cards),
            cards_idle=sum(card.jobs == 0 for card in self.cards),
            jobs=len(self.reservations),
            overcommitted=self.overcommitted,
        )

    @property
    def overcommitted(self) -> bool:
        total = self.profile.capacity
        return (
            self.cpu_milli > total.cpu_milli
            or self.ram_mb > total.ram_mb
            or self.disk_mb > total.disk_mb
            or any(card.overcommitted for card in self.cards)
            or any(index >= len(self.cards) for held in self.reservations.values() for index in held.cards)
        )

    def _apply(self, held: Reservation, sign: int) -> None:
        self.cpu_milli += sign * held.cpu_milli
        self.ram_mb += sign * held.ram_mb
        self.disk_mb += sign * held.disk_mb
        self.strangers += sign * held.stranger
        self.value += sign * held.value
        if held.cards:
            self.gpu_busy += sign * held.units
        else:
            self.cpu_busy += sign * held.units
        self._apply_cards(held, sign)

    def _apply_cards(self, held: Reservation, sign: int) -> None:
        for index in held.cards:
            if index < len(self.cards):  # a card may have been taken out of the machine meanwhile
                self.cards[index].apply(held, sign)


def cards_of(gpus: Sequence[Gpu]) -> list[Card]:
    return [Card(tier=gpu.tier, total_mb=gpu.vram_mb) for gpu in gpus[:GPUS_MAX]]


def cards_needed(needs: Requirements) -> int:
    """How many cards a job takes: asking for VRAM alone means one."""
    return needs.gpus or int(needs.vram_mb > 0)
