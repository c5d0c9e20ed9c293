"""One node's record: its profile, its GPUs, and its reservations. Exact arithmetic on plain numbers.

The fleet's columns are derived from these records, never the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from computepool.core.fleet.node_status import NodeStatus
from computepool.core.resources import Gpu, NodeProfile, Requirements

#: Further cards of a node are not lent: each one would cost two more columns for the whole fleet.
GPUS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What one job holds of a node."""

    number: int  #: unique within the fleet
    cpu_milli: int
    ram_mb: int
    disk_mb: int
    cards: tuple[int, ...] = ()  #: indexes of the cards; the job sees only these
    vram_mb: int = 0  #: on each card; 0: the job has the cards to itself
    units: int = 0  #: thousandths of market units; 0 on the submitter's own node
    external: bool = False  #: the job belongs to an account other than the node's owner
    value: int = 0  #: microcredits that an external job may cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """The unreserved part of a node. `vram_mb` has one entry per card."""

    cpu_milli: int
    ram_mb: int
    disk_mb: int
    vram_mb: tuple[int, ...]
    cards_idle: int  #: cards without a job
    jobs: int
    overcommitted: bool  #: its jobs hold more than the node now has


@dataclass(slots=True)
class Card:
    """One GPU. Jobs share its memory; a job that names no amount gets the whole card."""

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
        self.jobs_whole += sign * (not held.vram_mb)


@dataclass(slots=True)
class NodeRecord:
    row: int
    profile: NodeProfile
    cards: list[Card]
    cpu_milli: int = 0  #: reserved
    ram_mb: int = 0
    disk_mb: int = 0
    cpu_busy: int = 0  #: market units held by jobs without a card
    gpu_busy: int = 0
    floor: int | None = None  #: the least that its owner accepts for a unit-hour of its tier, in net microcredits
    is_newcomer: bool = False  #: limited to one external job at a time
    external_jobs: int = 0
    value: int = 0  #: microcredits that its external jobs may cost
    cap: int | None = None  #: the most that the external jobs on its owner's nodes may be worth; None: no limit
    evidence: tuple[float, float] = (0.0, 0.0)  #: weights of its successes and failures
    streak: int = 0  #: consecutive results that agreed with those of other nodes
    banned: bool = False  #: gets no external jobs, because of wrong results
    rest: NodeStatus | None = None  #: why it takes no new work, if known
    warm: dict[str, int] = field(default_factory=dict)  #: milliseconds that each took to fetch or install, by key
    reservations: dict[int, Reservation] = field(default_factory=dict)

    def renew(self, profile: NodeProfile) -> None:
        """Adopt a new profile and keep every reservation, even beyond what the node now has."""
        self.profile = profile
        self.cards = cards_of(profile.capacity.gpus)
        for held in self.reservations.values():
            self._apply_cards(held, 1)

    def fits(self, needs: Requirements) -> bool:
        """Whether cores, RAM and disk suffice; `pick_cards` checks the cards."""
        total = self.profile.capacity
        return (
            total.cpu_milli - self.cpu_milli >= needs.cpu_milli
            and total.ram_mb - self.ram_mb >= needs.ram_on(total)
            and total.disk_mb - self.disk_mb >= needs.disk_mb
        )

    def pick_cards(self, needs: Requirements, *, idle: bool = False) -> list[int] | None:
        """The smallest sufficient cards, so that large ones stay whole; None if there are too few.

        With `idle`, as if the node had no jobs.
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

    def release(self, held: Reservation) -> bool:
        """False, without any change, if the reservation is not held here."""
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
        self.external_jobs += sign * held.external
        self.value += sign * held.value
        if held.cards:
            self.gpu_busy += sign * held.units
        else:
            self.cpu_busy += sign * held.units
        self._apply_cards(held, sign)

    def _apply_cards(self, held: Reservation, sign: int) -> None:
        for index in held.cards:
            if index < len(self.cards):  # the card may have been removed from the machine
                self.cards[index].apply(held, sign)


def cards_of(gpus: Sequence[Gpu]) -> list[Card]:
    return [Card(tier=gpu.tier, total_mb=gpu.vram_mb) for gpu in gpus[:GPUS_MAX]]


def cards_needed(needs: Requirements) -> int:
    """The number of cards a job takes. VRAM without a number of cards means one."""
    return needs.gpus or int(needs.vram_mb > 0)
