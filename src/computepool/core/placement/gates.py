"""The hard gates: what a node must fulfil before it may be ranked for a job. Gates pass or fail; they do not weigh.

A gate is evaluated over many rows at once. It has up to two forms: `idle` judges what the node is (a failure is
permanent), `now` judges what is free on it and what it costs at this moment. A gate that does not concern the job returns
None and costs nothing.
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
from computepool.core.fleet.versions import Conditions, meets
from computepool.core.isolation import Level
from computepool.core.money.market import Offer
from computepool.core.placement import software_gates
from computepool.core.placement.rules import Demand
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
        """At this moment. A gate without a `now` form does not depend on the moment."""
        test = self.now or self.idle
        return test(fleet, shape, rows) if test else None


def _enough(column: str, need: str) -> Test:
    def test(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
        mask: Mask = getattr(fleet.table, column)[rows] >= getattr(shape.requirements, need)
        return mask

    return test


def _ram_free(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    needs = shape.requirements
    mask: Mask = fleet.table.ram_free[rows] >= ram_needed(fleet, needs, rows)
    if needs.ram_by_cores:  # a node without free cores fails the gate for cores already
        mask |= fleet.table.cpu_free[rows] < needs.cpu_milli
    return mask


def ram_needed(fleet: Fleet, needs: Requirements, rows: Rows) -> int | NDArray[np.int64]:
    """`Requirements.ram_on` for every row."""
    if not needs.ram_by_cores:
        return needs.ram_mb
    cores, ram = fleet.table.cpu_total[rows], fleet.table.ram_total[rows].astype(np.int64)
    share = ram * np.minimum(cores, needs.cpu_milli) // np.maximum(cores, 1)
    return np.maximum(share, needs.ram_mb)


def _cards(fleet: Fleet, shape: Shape, rows: Rows, *, idle: bool) -> Mask | None:
    """Enough cards with the required VRAM each; a job that names no amount needs unused cards."""
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
    if needs.tiers or needs.compute_capability:
        # The columns count all cards of a node, but only those with the required properties may count.
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


def _compute_capability(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    least = shape.requirements.compute_capability
    return fleet.table.compute_capability[rows] >= least if least else None


def _version(fleet: Fleet, shape: Shape, rows: Rows, *, column: str) -> Mask | None:
    conditions: Conditions = getattr(shape.requirements, column)
    if not conditions:
        return None
    mask: Mask = meets(getattr(fleet.table, column)[rows], conditions)
    return mask


def _region(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    regions = {region_of(region) for region in shape.requirements.regions}
    return _any_word(fleet, fleet.table.region[rows], regions)


def _excluded_nodes(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    excluded = shape.requirements.exclude_nodes
    return ~_match_nodes(fleet, fleet.rows_called(*excluded), rows) if excluded else None


def _pinned_node(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    if not shape.requirements.node:
        return None
    node = fleet.get(shape.requirements.node)
    return _match_nodes(fleet, [] if node is None else [node.row], rows)


def _mesh_version(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    needs = shape.requirements.mesh_version
    return fleet.table.mesh_version[rows] == fleet.words.find(needs) if needs else None


def _python(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """Installed, one that the node fetches, or that of an environment for the job."""
    needs = shape.requirements.pythons
    if not needs:
        return None
    mask: Mask = (fleet.table.python[rows] & np.uint32(mask_of(needs))) != 0
    offered = software_gates.rows_that_offer(fleet, shape, rows)
    return mask if offered is None else mask | offered


def _isolation(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    needs = shape.requirements.isolation
    return fleet.table.level[rows] >= int(needs) if needs is not None else None


def _trust(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    """Protects the owner, whatever the job requires: other accounts' jobs need a sandbox."""
    return _or_trusted(fleet, shape, rows, mask=fleet.table.level[rows] >= int(Level.NAMESPACE))


def _secrets(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """Protects the submitter: only owners that they named get their secrets. Whom an owner trusts is of no account here."""
    owners = shape.requirements.secret_owners
    if owners is None:
        return None
    mask = fleet.owner_mask(shape.account, rows).copy()
    for owner in owners:
        mask |= fleet.owner_mask(owner, rows)
    return mask


def _gpu_lent(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """GPUs need an opt-in of their own, because a driver exposes more than a kernel."""
    if not cards_needed(shape.requirements):
        return None
    return _or_trusted(fleet, shape, rows, mask=fleet.table.lends_gpus[rows].copy())


def _or_trusted(fleet: Fleet, shape: Shape, rows: Rows, *, mask: Mask) -> Mask:
    mask |= fleet.table.trusts_everyone[rows]
    mask |= fleet.owner_mask(shape.account, rows)
    if trusting := fleet.rows_trusting(shape.account):
        mask |= _match_nodes(fleet, trusting, rows)
    return mask


def _network(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """The owner opted in, and no rule excludes other accounts' jobs."""
    if not shape.requirements.network:
        return None
    offered: Mask = fleet.table.network[rows]
    allowed = _owner_rule(fleet, shape, rows, aspect="network")
    return offered.copy() if allowed is None else offered & allowed


def _gang(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """The members of a gang have a network between them, which not every sandbox can join."""
    return fleet.table.gangs[rows].copy() if shape.requirements.nodes > 1 else None


def _owner_rule(fleet: Fleet, shape: Shape, rows: Rows, *, aspect: str) -> Mask | None:
    if fleet.rulebook.empty:
        return None
    verdicts = np.array(fleet.rulebook.verdicts(aspect, Demand.of(shape.account, shape.requirements)), np.bool_)
    if verdicts.all():
        return None
    mask: Mask = verdicts[fleet.table.rules[rows]] | fleet.owner_mask(shape.account, rows)
    return mask


def _bandwidth(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """An unknown speed is not enough."""
    needs, table = shape.requirements, fleet.table
    pairs = ((needs.down_mbps, table.down_mbps), (needs.up_mbps, table.up_mbps))
    return all_of(column[rows] >= least for least, column in pairs if least)


def _submitter_reputation(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """Judged at every placement, because scores change with every job."""
    if not fleet.rulebook.scored:
        return None
    least = np.array(fleet.rulebook.scores_min(), np.float64)
    passed = least <= fleet.submitter_score(shape.account)
    mask: Mask = passed[fleet.table.rules[rows]] | fleet.owner_mask(shape.account, rows)
    return mask


def _price(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """The market's only gate: the price meets the floor, and the ceiling pays the price. One's own nodes are free."""
    prices = fleet.prices
    allowed = prices.within(shape)
    if prices.market is None or (allowed is None and not prices.floors):
        return None
    side = prices.side(cards=cards_needed(shape.requirements))
    paid = side.met[rows]
    if allowed is not None:
        paid = paid & allowed[side.classes[rows]]
    return paid | fleet.owner_mask(shape.account, rows)


def meets_floor(fleet: Fleet, node: NodeRecord) -> bool:
    """Whether the current price of the node's tier meets its owner's floor."""
    prices = fleet.prices
    return node.floor is None or prices.market is None or bool(prices.side(cards=len(node.cards)).met[node.row])


def _newcomer(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """The newcomer nodes of one owner get one external job at a time between them."""
    if not fleet.newcomers:
        return None
    mask: Mask = ~fleet.table.newcomer[rows] | (fleet.owners.newcomer_jobs[fleet.table.owner[rows]] == 0)
    mask |= fleet.owner_mask(shape.account, rows)
    return mask


def within_exposure(fleet: Fleet, shape: Shape, rows: Rows, *, able: Mask) -> Mask | None:
    """The rows whose owners may hold the value of this job in addition to what their nodes hold already.

    A job worth more than the cap of every able owner goes to one who holds nothing else, so that a pool of newcomers can
    start. `able`: the rows that could run it.
    """
    value, exposure = shape.value, fleet.owners
    if not value or not exposure.capped:
        return None
    # By owner first: there are fewer owners than nodes, and usually all have room.
    room = exposure.value + value <= exposure.caps
    if room.all():
        return None
    owners, own = fleet.table.owner[rows], fleet.owner_mask(shape.account, rows)
    if not (able & (exposure.caps >= value)[owners] & ~own).any():
        room |= exposure.value == 0
    mask: Mask = room[owners] | own
    return mask


def _integrity(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """A node banned for wrong results runs only its owner's jobs."""
    if not fleet.banned:
        return None
    return ~fleet.table.banned[rows] | fleet.owner_mask(shape.account, rows)


def _other_owner(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """Only an owner who has not reported a result may confirm it."""
    return all_of(~fleet.owner_mask(owner, rows) for owner in shape.avoid_owners)


#: In the order in which people read them. `avoid` (`avoided_row`) and `exposure` (`within_exposure`) are not here, because
#: their verdict on one node depends on the other nodes.
GATES: tuple[Gate, ...] = (
    Gate("available", now=lambda fleet, _shape, rows: fleet.table.available[rows]),
    Gate("cores", idle=_enough("cpu_total", "cpu_milli"), now=_enough("cpu_free", "cpu_milli")),
    Gate("ram", idle=_enough("ram_total", "ram_mb"), now=_ram_free),
    Gate("disk", idle=_enough("disk_total", "disk_mb"), now=_enough("disk_free", "disk_mb")),
    Gate("gpu", idle=partial(_cards, idle=True), now=partial(_cards, idle=False)),
    Gate("tier", idle=_tier),
    Gate("compute_capability", idle=_compute_capability),
    Gate("cuda", idle=partial(_version, column="cuda")),
    Gate("driver", idle=partial(_version, column="driver")),
    Gate("region", idle=_region),
    Gate("tags", idle=lambda fleet, shape, rows: fleet.features.has_all(shape.requirements.tags, rows)),
    Gate(
        "excluded_tags", idle=lambda fleet, shape, rows: fleet.features.has_none(shape.requirements.exclude_tags, rows)
    ),
    Gate("properties", idle=lambda fleet, shape, rows: fleet.features.has_all(shape.requirements.properties, rows)),
    Gate("require", idle=software_gates.requirement),
    Gate("bandwidth", idle=_bandwidth),
    Gate("excluded_nodes", idle=_excluded_nodes),
    Gate("node", idle=_pinned_node),
    Gate("mesh_version", idle=_mesh_version),
    Gate("python", idle=_python),
    Gate("software", idle=software_gates.software),
    Gate("isolation", idle=_isolation),
    Gate("trust", idle=_trust),
    Gate("secrets", idle=_secrets),
    Gate("gpu_lent", idle=_gpu_lent),
    Gate("image", idle=software_gates.image),
    Gate("network", idle=_network),
    Gate("gang", idle=_gang),
    *(
        Gate(f"rule_{aspect}", idle=partial(_owner_rule, aspect=aspect))
        for aspect in ("submitter", "label", "gpu", "minutes", "ram", "disk")
    ),
    Gate("submitter_reputation", now=_submitter_reputation),
    Gate("integrity", idle=_integrity),
    # In both forms, because the shapes that share a ranking differ in the owners to avoid.
    Gate("other_owner", idle=_other_owner, now=_other_owner),
    Gate("newcomer", now=_newcomer),
    Gate("price", now=_price),
)


def could_run(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    """The rows that could run the shape if they were online and idle."""
    return _apply(fleet.table.live[rows].copy(), (gate.idle for gate in GATES), fleet, shape=shape, rows=rows)


def affordable(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    """The rows that currently agree to the price and accept the submitter's score."""
    tests = (_price, _submitter_reputation)
    return _apply(np.ones_like(fleet.table.live[rows]), tests, fleet, shape=shape, rows=rows)


def has_room(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    """The rows that pass every `now` gate: they take work, have enough free, and agree to the price."""
    tests = (gate.now for gate in _MOVING_GATES)
    return _apply(fleet.table.available[rows].copy(), tests, fleet, shape=shape, rows=rows)


def _apply(mask: Mask, tests: Iterable[Test | None], fleet: Fleet, *, shape: Shape, rows: Rows) -> Mask:
    for test in tests:
        if test is not None and (passed := test(fleet, shape, rows)) is not None:
            mask &= passed
    return mask


def still_agreed(fleet: Fleet, shape: Shape, row: int) -> bool:
    """Whether price and owner's rules still allow a job that was placed on this row before."""
    verdicts = (gate.passes(fleet, shape, slice(row, row + 1)) for gate in _AGREEMENTS)
    return all(passed is None or bool(passed[0]) for passed in verdicts)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """For each gate that concerns the shape, the rows that pass it."""

    rows: NDArray[np.intp]
    now: dict[str, Mask]
    idle: dict[str, Mask]  #: as if every node were online and idle

    def failures(self) -> NDArray[np.int16]:
        failed = np.zeros(self.rows.size, np.int16)
        for passed in self.now.values():
            failed += ~passed
        return failed

    def ever(self) -> Mask:
        able = np.ones(self.rows.size, np.bool_)
        for passed in self.idle.values():
            able &= passed
        return able


def judge(fleet: Fleet, shape: Shape, rows: NDArray[np.intp] | None = None) -> Verdicts:
    """Every gate's verdict on the given rows, or on all nodes. For explanations; placement needs less."""
    if rows is None:
        rows = np.flatnonzero(fleet.table.live[: fleet.rows])
    verdicts = Verdicts(rows, {}, {})
    for gate in GATES:
        passed = gate.passes(fleet, shape, rows)
        if passed is not None:
            idle = gate.idle(fleet, shape, rows) if gate.idle and gate.now else passed
            verdicts.now[gate.name] = passed
            verdicts.idle[gate.name] = np.ones_like(passed) if idle is None or not gate.idle else idle
    avoided = avoided_row(fleet, shape)
    relative = {
        "exposure": within_exposure(fleet, shape, rows, able=could_run(fleet, shape, rows)),
        "avoid": None if avoided is None else rows != avoided,
        "withheld": None if (others := withheld_rows(fleet, shape)) is None else ~np.isin(rows, others),
    }
    for name, passed in relative.items():
        if passed is not None:
            verdicts.now[name] = passed
            verdicts.idle[name] = np.ones_like(passed)
    return verdicts


def avoided_row(fleet: Fleet, shape: Shape) -> int | None:
    """The row of the node that last failed the job, unless no other node of the fleet could ever run it."""
    node = fleet.get(shape.avoid_node)
    if node is None or shape.requirements.nodes > 1:  # a gang of all nodes of an owner has no others
        return None
    able = could_run(fleet, shape, slice(0, fleet.rows))
    return None if able[node.row] and np.count_nonzero(able) == 1 else node.row


def withheld_rows(fleet: Fleet, shape: Shape) -> NDArray[np.intp] | None:
    """The rows that are kept for a gang (`gangs.GangHold`); None if there are none, or it is this one."""
    if fleet.withheld is None:
        return None
    kept_for, rows = fleet.withheld
    is_its_own = kept_for.requirements == shape.requirements and kept_for.account == shape.account
    return None if is_its_own else rows


def cheapest(fleet: Fleet, shape: Shape, rows: NDArray[np.intp]) -> Offer | None:
    """The cheapest offer of those rows whose floors are met; None if there are none."""
    market, side = fleet.prices.market, fleet.prices.side(cards=cards_needed(shape.requirements))
    if market is None:
        return None
    paid = rows[side.met[rows]]
    # Rows of one class cost the same, so one row of each class is enough.
    _, firsts = np.unique(side.classes[paid], return_index=True)
    offers = (market.offer(shape, fleet.node_at(row).profile) for row in paid[firsts].tolist())
    return min(offers, key=lambda offer: offer.price, default=None)


#: Agreements between people, which may change while a lane of jobs runs.
_AGREEMENTS = tuple(
    gate for gate in GATES if gate.name in ("price", "network", "submitter_reputation") or gate.name.startswith("rule_")
)
_MOVING_GATES = tuple(gate for gate in GATES if gate.now and gate.name != "available")


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
    """(position in the mask, row) of the live nodes whose cards differ in tier or compute capability. Such nodes are rare."""
    positions = np.flatnonzero(fleet.table.mixed[rows] & fleet.table.live[rows])
    if isinstance(rows, slice):
        return [(position, position + (rows.start or 0)) for position in positions.tolist()]
    return [(position, int(rows[position])) for position in positions.tolist()]
