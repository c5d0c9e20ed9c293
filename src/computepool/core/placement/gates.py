"""The hard gates: what a node must have before it may be ranked for a job. Nothing here weighs anything.

A gate is evaluated over many rows at once. It has up to two forms: `idle` judges what the node is (the gate
fails for ever), `now` judges what is free of it, and what it costs, at this moment. A gate that the job does not ask about
returns None and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Mask, Rows, all_of
from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import NodeRecord, cards_needed
from computepool.core.isolation import Level
from computepool.core.money.market import Offer
from computepool.core.placement import rule_gates
from computepool.core.pythons import mask_of
from computepool.core.resources import Requirements, Shape
from computepool.core.trust.tiers import region_of

Test = Callable[[Fleet, Shape, Rows], Mask | None]


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    idle: Test | None = None
    now: Test | None = None

    def passes(self, fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
        """At this moment: a gate without a `now` form does not depend on the moment."""
        test = self.now or self.idle
        return test(fleet, shape, rows) if test else None


def _available(fleet: Fleet, _shape: Shape, rows: Rows) -> Mask:
    return fleet.table.available[rows]


def _cores_total(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    return fleet.table.cpu_total[rows] >= shape.requirements.cpu_milli


def _cores_free(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    return fleet.table.cpu_free[rows] >= shape.requirements.cpu_milli


def _ram_total(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    return fleet.table.ram_total[rows] >= shape.requirements.ram_mb


def _ram_free(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    needs = shape.requirements
    mask: Mask = fleet.table.ram_free[rows] >= ram_needed(fleet, needs, rows)
    if needs.ram_by_cores:  # a node without free cores is short of cores, which is reason enough
        mask |= fleet.table.cpu_free[rows] < needs.cpu_milli
    return mask


def ram_needed(fleet: Fleet, needs: Requirements, rows: Rows) -> int | NDArray[np.int64]:
    """`Requirements.ram_on` of every row."""
    if not needs.ram_by_cores:
        return needs.ram_mb
    cores, ram = fleet.table.cpu_total[rows], fleet.table.ram_total[rows].astype(np.int64)
    share = ram * np.minimum(cores, needs.cpu_milli) // np.maximum(cores, 1)
    return np.maximum(share, needs.ram_mb)


def _disk_total(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    return fleet.table.disk_total[rows] >= shape.requirements.disk_mb


def _disk_free(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    return fleet.table.disk_free[rows] >= shape.requirements.disk_mb


def _cards(fleet: Fleet, shape: Shape, rows: Rows, *, idle: bool) -> Mask | None:
    """Enough cards, each with the VRAM; a job that names no amount needs cards nobody is on."""
    needs = shape.requirements
    count = cards_needed(needs)
    if not count:
        return None
    table = fleet.table
    ranked = table.vram_total if idle else table.vram_free
    mask: Mask
    if not needs.vram_mb:
        mask = (table.cards if idle else table.cards_idle)[rows] >= count
    elif count > len(ranked):
        mask = np.zeros_like(table.live[rows])
    else:
        mask = ranked[count - 1][rows] >= needs.vram_mb
    if needs.tiers:
        # The columns count all cards of a node. Where they differ in tier, only those of the wanted tiers
        # count.
        for position, row in _mixed_nodes(fleet, rows):
            mask[position] = fleet.node_at(row).pick_cards(needs, idle=idle) is not None
    return mask


def _tier(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    tiers = shape.requirements.tiers
    mask = _any_word(fleet, fleet.table.tier[rows], tiers)
    if mask is not None:
        for position, row in _mixed_nodes(fleet, rows):
            mask[position] = any(card.tier in tiers for card in fleet.node_at(row).cards)
    return mask


def _region(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    regions = {region_of(region) for region in shape.requirements.regions}
    return _any_word(fleet, fleet.table.region[rows], regions)


def _excluded_nodes(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    excluded = shape.requirements.exclude_nodes
    return ~_match_nodes(fleet, fleet.rows_called(*excluded), rows) if excluded else None


def _match_host(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """By id. A name, as jobs of earlier versions carry it, means the submitter's own nodes: anybody may take any name."""
    pinned = shape.requirements.node
    if not pinned:
        return None
    if (row := fleet.row_of(pinned)) is not None:
        return _match_nodes(fleet, [row], rows)
    mask = _match_nodes(fleet, fleet.rows_called(pinned), rows)
    mask &= fleet.table.owner[rows] == fleet.accounts.find(shape.account)
    return mask


def _mesh_version(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    needs = shape.requirements.mesh_version
    return fleet.table.mesh_version[rows] == fleet.words.find(needs) if needs else None


def _python(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """Of its own, or one that it fetches."""
    needs = shape.requirements.pythons
    return (fleet.table.python[rows] & np.uint32(mask_of(needs))) != 0 if needs else None


def _isolation(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    needs = shape.requirements.isolation
    return fleet.table.level[rows] >= int(needs) if needs is not None else None


def _trust(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    """The owner's protection, whatever the job asks for: a stranger's job needs a sandbox around it."""
    return _or_trusted(fleet, shape, rows, mask=fleet.table.level[rows] >= int(Level.NAMESPACE))


def _gpu_lent(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """Cards have an opt-in of their own: a driver is a larger hole than a kernel."""
    if not cards_needed(shape.requirements):
        return None
    return _or_trusted(fleet, shape, rows, mask=fleet.table.lends_gpus[rows].copy())


def _or_trusted(fleet: Fleet, shape: Shape, rows: Rows, *, mask: Mask) -> Mask:
    table = fleet.table
    mask |= table.trusts_everyone[rows]
    mask |= table.owner[rows] == fleet.accounts.find(shape.account)
    if trusting := fleet.rows_trusting(shape.account):
        mask |= _match_nodes(fleet, trusting, rows)
    return mask


def _price(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """The market's only gate: the floor is met, and the ceiling pays the price. Own nodes cost nothing."""
    table, prices = fleet.table, fleet.prices
    allowed = prices.within(shape)
    if prices.market is None or (allowed is None and not prices.floors):
        return None
    cards = cards_needed(shape.requirements)
    mask: Mask = table.owner[rows] == fleet.accounts.find(shape.account)
    paid = (table.gpu_met if cards else table.cpu_met)[rows]
    if allowed is not None:
        paid = paid & allowed[(table.gpu_class if cards else table.cpu_class)[rows]]
    mask |= paid
    return mask


def meets_floor(fleet: Fleet, node: NodeRecord) -> bool:
    """Whether today's price of the node's tier is what its owner wants at least."""
    met = fleet.table.gpu_met if node.cards else fleet.table.cpu_met
    return node.floor is None or fleet.prices.market is None or bool(met[node.row])


def _newcomer(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """Newcomers of one owner have one job of others at a time.

    What they run for their owners is nobody else's risk.
    """
    if not fleet.newcomers:
        return None
    owners = fleet.table.owner[rows]
    mask: Mask = ~fleet.table.newcomer[rows] | (fleet.owners.busy[owners] == 0)
    mask |= owners == fleet.accounts.find(shape.account)
    return mask


def exposed(fleet: Fleet, shape: Shape, rows: Rows, *, able: Mask) -> Mask | None:
    """Which rows may be trusted with what the job is worth, beside what their owners' nodes hold already.

    A job that is worth more than any owner of an able row may hold goes to one who holds nothing else: a pool in which
    everybody is new must be able to begin. `able`: the rows that could run it.
    """
    value, bounds = shape.value, fleet.owners
    if not value or not bounds.capped:
        return None
    # By owner first: there are fewer of them than nodes, and mostly all have room.
    room = bounds.held + value <= bounds.caps
    if room.all():
        return None
    owners = fleet.table.owner[rows]
    own = owners == fleet.accounts.find(shape.account)
    if not (able & (bounds.caps >= value)[owners] & ~own).any():
        room |= bounds.held == 0
    mask: Mask = room[owners] | own
    return mask


def _integrity(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """A node whose results were proven wrong works only for its owner."""
    if not fleet.banned:
        return None
    mask: Mask = ~fleet.table.banned[rows]
    mask |= fleet.table.owner[rows] == fleet.accounts.find(shape.account)
    return mask


def _other_owner(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """A result is confirmed by somebody who has not reported one."""
    owners = fleet.table.owner[rows]
    return all_of(owners != fleet.accounts.find(owner) for owner in shape.avoid_owners)


#: In the order in which people read them. `avoid` (see `avoided_row`) and `exposure` (see `exposed`) are not here:
#: whether they hold for a node depends on the others.
GATES: tuple[Gate, ...] = (
    Gate("available", now=_available),
    Gate("cores", idle=_cores_total, now=_cores_free),
    Gate("ram", idle=_ram_total, now=_ram_free),
    Gate("disk", idle=_disk_total, now=_disk_free),
    Gate("gpu", idle=partial(_cards, idle=True), now=partial(_cards, idle=False)),
    Gate("tier", idle=_tier),
    Gate("region", idle=_region),
    Gate("tags", idle=lambda fleet, shape, rows: fleet.features.has_all(shape.requirements.tags, rows)),
    Gate(
        "excluded_tags",
        idle=lambda fleet, shape, rows: fleet.features.has_none(shape.requirements.exclude_tags, rows),
    ),
    Gate(
        "properties",
        idle=lambda fleet, shape, rows: fleet.features.has_all(shape.requirements.properties, rows),
    ),
    Gate("excluded_nodes", idle=_excluded_nodes),
    Gate("node", idle=_match_host),
    Gate("mesh_version", idle=_mesh_version),
    Gate("python", idle=_python),
    Gate("isolation", idle=_isolation),
    Gate("trust", idle=_trust),
    Gate("gpu_lent", idle=_gpu_lent),
    Gate("network", idle=rule_gates.network),
    Gate("rule_submitter", idle=rule_gates.rule("submitter")),
    Gate("rule_label", idle=rule_gates.rule("label")),
    Gate("rule_gpu", idle=rule_gates.rule("gpu")),
    Gate("rule_minutes", idle=rule_gates.rule("minutes")),
    Gate("rule_ram", idle=rule_gates.rule("ram")),
    Gate("rule_disk", idle=rule_gates.rule("disk")),
    Gate("submitter_reputation", now=rule_gates.submitter_reputation),
    Gate("integrity", idle=_integrity),
    # Both: whose results are there belongs to the job, and rankings are shared by all jobs of one kind.
    Gate("other_owner", idle=_other_owner, now=_other_owner),
    Gate("newcomer", now=_newcomer),
    Gate("price", now=_price),
)
AVOID = "avoid"
EXPOSURE = "exposure"


def could_run(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    """Which rows could run the shape if they were online and idle."""
    return _passing(
        fleet.table.live[rows].copy(), (gate.idle for gate in GATES), fleet, shape=shape, rows=rows
    )


def affordable(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    """Which rows agree on a price, and accept whose job it is, as things are now."""
    tests = (_price, rule_gates.submitter_reputation)
    return _passing(np.ones_like(fleet.table.live[rows]), tests, fleet, shape=shape, rows=rows)


def has_room(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    """Which rows take work now, have enough free, and agree on a price; nothing of the gates that do not move."""
    tests = (gate.now for gate in _MOVING_GATES)
    return _passing(fleet.table.available[rows].copy(), tests, fleet, shape=shape, rows=rows)


def _passing(mask: Mask, tests: Iterable[Test | None], fleet: Fleet, *, shape: Shape, rows: Rows) -> Mask:
    for test in tests:
        if test is not None and (passed := test(fleet, shape, rows)) is not None:
            mask &= passed
    return mask


def still_agreed(fleet: Fleet, shape: Shape, row: int) -> bool:
    """Whether price and owner still allow on this row what was placed there before."""
    verdicts = (gate.passes(fleet, shape, slice(row, row + 1)) for gate in _AGREEMENTS)
    return all(passed is None or bool(passed[0]) for passed in verdicts)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Gate by gate, which rows pass. Only gates that the shape asks about are here."""

    rows: NDArray[np.intp]
    now: dict[str, Mask]
    idle: dict[str, Mask]  #: as if every node were online and had nothing to do

    def failures(self) -> NDArray[np.int16]:
        """How many gates each row fails now."""
        failed = np.zeros(self.rows.size, np.int16)
        for passed in self.now.values():
            failed += ~passed
        return failed

    def ever(self) -> Mask:
        """Which rows could run the shape if they were idle."""
        able = np.ones(self.rows.size, np.bool_)
        for passed in self.idle.values():
            able &= passed
        return able


def judge(fleet: Fleet, shape: Shape, rows: NDArray[np.intp] | None = None) -> Verdicts:
    """Every gate's verdict on every row (of all nodes, if none are named). For people: placing needs less."""
    if rows is None:
        rows = np.flatnonzero(fleet.table.live[: fleet.rows])
    verdicts = Verdicts(rows, {}, {})
    for gate in GATES:
        passed = gate.passes(fleet, shape, rows)
        if passed is not None:
            idle = gate.idle(fleet, shape, rows) if gate.idle and gate.now else passed
            verdicts.now[gate.name] = passed
            verdicts.idle[gate.name] = np.ones_like(passed) if idle is None or not gate.idle else idle
    if (trusted := exposed(fleet, shape, rows, able=could_run(fleet, shape, rows))) is not None:
        verdicts.now[EXPOSURE] = trusted
        verdicts.idle[EXPOSURE] = np.ones(rows.size, np.bool_)
    if (avoided := avoided_row(fleet, shape)) is not None:
        verdicts.now[AVOID] = rows != avoided
        verdicts.idle[AVOID] = np.ones(rows.size, np.bool_)
    return verdicts


def avoided_row(fleet: Fleet, shape: Shape) -> int | None:
    """The row of the node that failed the job last, unless no other node of the fleet could ever run it."""
    row = fleet.row_of(shape.avoid_node) if shape.avoid_node else None
    if row is None:
        return None
    able = could_run(fleet, shape, slice(0, fleet.rows))
    return None if able[row] and np.count_nonzero(able) == 1 else row


def cheapest(fleet: Fleet, shape: Shape, rows: NDArray[np.intp]) -> Offer | None:
    """The best offer of these rows whose floors are met; None if there is none."""
    market, table = fleet.prices.market, fleet.table
    if market is None:
        return None
    cards = cards_needed(shape.requirements)
    paid = rows[(table.gpu_met if cards else table.cpu_met)[rows]]
    # Rows of one class cost the same, so one of each is enough.
    _, firsts = np.unique((table.gpu_class if cards else table.cpu_class)[paid], return_index=True)
    offers = (market.offer(shape, fleet.node_at(row).profile) for row in paid[firsts].tolist())
    return min(offers, key=lambda offer: offer.price, default=None)


#: What people agree on, and may change their minds about while a job runs.
_AGREEMENTS = tuple(
    gate
    for gate in GATES
    if gate.name in ("price", "network", "submitter_reputation") or gate.name.startswith("rule_")
)
_MOVING_GATES = tuple(gate for gate in GATES if gate.now and gate.now is not _available)


def _any_word(fleet: Fleet, column: NDArray[np.int32], words: Collection[str]) -> Mask | None:
    mask: Mask | None = None
    for word in words:
        equal = column == fleet.words.find(word)
        mask = equal if mask is None else mask | equal
    return mask


def _match_nodes(fleet: Fleet, chosen: list[int], rows: Rows) -> Mask:
    lookup = np.zeros(len(fleet.table), np.bool_)
    lookup[chosen] = True
    return lookup[rows]


def _mixed_nodes(fleet: Fleet, rows: Rows) -> list[tuple[int, int]]:
    """(position in the mask, row) of the live nodes whose cards differ in tier. They are rare."""
    positions = np.flatnonzero(fleet.table.mixed[rows] & fleet.table.live[rows])
    if isinstance(rows, slice):
        return [(position, position + (rows.start or 0)) for position in positions.tolist()]
    return [(position, int(rows[position])) for position in positions.tolist()]
