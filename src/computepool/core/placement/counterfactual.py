"""The change that would let a job start now: the smallest single change of what it asks for or pays, else a pair.

Every change offered is checked by the allocator's own gates: asked for in that form, the job starts. What the
submitter cannot change (a node is offline, an owner trusts nobody) has no entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Mask
from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import cards_needed
from computepool.core.isolation import Level
from computepool.core.money.money import format_credits, round_up
from computepool.core.placement import gate_messages
from computepool.core.placement.allocator import eligible
from computepool.core.placement.gates import GATES, Verdicts, cheapest, ram_needed
from computepool.core.pythons import any_version, commonest
from computepool.core.resources import Requirements, Shape
from computepool.core.words import memory_size

#: More advice than this is not read.
CHANGES_MAX = 5

#: How large a change is that has no number. One number becoming smaller costs the part that is given up, so a
#: third less VRAM is smaller than another Python, and doing without a GPU is the last thing to suggest.
_COST_WIDEN = 0.5
_COST_OTHER_SOFTWARE = 0.75
_COST_WITHOUT_GPU = 1.0
#: Who names a node wants that one: more than all else that a job can give up, so that it is suggested last.
_COST_OTHER_NODE = 1_000.0

#: One GB, one core.
_STEP = 1_000
#: Nodes looked at one by one when a list of names or tags is at fault.
_ROWS_LOOKED_AT = 1_000

Required = TypeVar("Required", str, tuple[str, str])
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another form of the job that would start now."""

    change: str  #: `vram 24 GB → 16 GB`
    clause: str  #: for a sentence: `with 16 GB of VRAM`
    gates: tuple[str, ...]
    requirements: Requirements
    ceiling: int | None
    nodes: int  #: that could start it now
    cost: float  #: how large the change is; only for comparing


@dataclass(frozen=True, slots=True)
class _Step:
    gate: str
    change: str
    clause: str
    requirements: Requirements
    cost: float
    ceiling: int | None = None  #: another one than the job's; None: as it is


#: Given rows that fail this one gate, the steps that let one of them pass.
_Relax = Callable[[Fleet, Requirements, Rows], list[_Step]]


def changes(fleet: Fleet, shape: Shape, verdicts: Verdicts) -> tuple[Change, ...]:
    """What would let the shape start now, smallest first. For a shape that cannot start as it is."""
    singles = _best(fleet, shape, _singles(fleet, shape, verdicts))
    return singles or _best(fleet, shape, _pairs(fleet, shape, verdicts))


def _best(fleet: Fleet, shape: Shape, found: Iterator[tuple[_Step, ...]]) -> tuple[Change, ...]:
    best: dict[Shape, Change] = {}
    for steps in found:
        changed = shape
        for step in steps:
            changed = _take_step(changed, step)
        nodes = int(np.count_nonzero(eligible(fleet, changed)))
        if nodes and changed not in best:
            best[changed] = Change(
                change=" and ".join(step.change for step in steps),
                clause=" and ".join(step.clause for step in steps).replace(" and with ", " and "),
                gates=tuple(step.gate for step in steps),
                requirements=changed.requirements,
                ceiling=changed.ceiling,
                nodes=nodes,
                cost=round(sum(step.cost for step in steps), 6),
            )
    return tuple(sorted(best.values(), key=lambda c: (c.cost, -c.nodes, c.change))[:CHANGES_MAX])


def _singles(fleet: Fleet, shape: Shape, verdicts: Verdicts) -> Iterator[tuple[_Step, ...]]:
    failed = _failing_just(1, verdicts)
    for gate, fails in failed.items():
        rows = verdicts.rows[fails]
        for step in _steps(gate, fleet, shape, rows=rows):
            yield (step,)


def _pairs(fleet: Fleet, shape: Shape, verdicts: Verdicts) -> Iterator[tuple[_Step, ...]]:
    failed = _failing_just(2, verdicts)
    for first, second in permutations(failed, 2):
        rows = verdicts.rows[failed[first] & failed[second]]
        for step in _steps(first, fleet, shape, rows=rows):
            relaxed = _take_step(shape, step)
            passed = _GATES[first].passes(fleet, relaxed, rows)
            left = rows if passed is None else rows[passed]
            for other in _steps(second, fleet, relaxed, rows=left):
                yield step, other


def _steps(gate: str, fleet: Fleet, shape: Shape, *, rows: Rows) -> list[_Step]:
    if not rows.size:
        return []
    return (
        _higher_ceiling(fleet, shape, rows)
        if gate == _PRICE
        else _RELAX[gate](fleet, shape.requirements, rows)
    )


def _take_step(shape: Shape, step: _Step) -> Shape:
    ceiling = shape.ceiling if step.ceiling is None else step.ceiling
    return replace(shape, requirements=step.requirements, ceiling=ceiling)


def _failing_just(count: int, verdicts: Verdicts) -> dict[str, Mask]:
    """For each gate that can be relaxed: who fails it, among the rows that fail just so many gates."""
    candidates = verdicts.failures() == count
    return {gate: ~verdicts.now[gate] & candidates for gate in (*_RELAX, _PRICE) if gate in verdicts.now}


#: The words of one number becoming smaller: for a list of changes, and for a sentence.
_Words = Callable[[int, int], tuple[str, str]]


def _sized(name: str, what: str) -> _Words:
    def words(before: int, after: int) -> tuple[str, str]:
        change = f"{name} {memory_size(before, up=True)} → {memory_size(after)}"
        return change, f"with {memory_size(after)} of {what}"

    return words


_RAM, _DISK, _VRAM = _sized("ram", "RAM"), _sized("disk", "disk"), _sized("vram", "VRAM")


def _cores(before: int, after: int) -> tuple[str, str]:
    return (
        f"{gate_messages.cores(before)} → {gate_messages.cores(after)}",
        f"with {gate_messages.cores(after)}",
    )


def _minutes(before: int, after: int) -> tuple[str, str]:
    return f"timeout {before}m → {after}m", f"with --timeout {after}m"


def _less(
    gate: str, words: _Words, needs: Requirements, *, before: int, after: int, **same: bool
) -> list[_Step]:
    """One number of what is needed becomes smaller; `same`: what changes with it."""
    if not 0 < after < before:
        return []
    less = replace(needs, **{_NUMBERS[gate]: after}, **same)  # type: ignore[arg-type]
    return [_Step(gate, *words(before, after), less, _given_up(before, after))]


#: What each gate looks at that has a number.
_NUMBERS = {
    "cores": "cpu_milli",
    "ram": "ram_mb",
    "disk": "disk_mb",
    "gpu": "vram_mb",
    "rule_minutes": "minutes",
    "rule_ram": "ram_mb",
    "rule_disk": "disk_mb",
}


def _fewer_cores(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    return _less("cores", _cores, needs, before=needs.cpu_milli, after=_most(fleet.table.cpu_free, rows))


def _less_ram(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    before = int(np.max(ram_needed(fleet, needs, rows), initial=0))
    after = _most(fleet.table.ram_free, rows)
    return _less("ram", _RAM, needs, before=before, after=after, ram_by_cores=False)


def _less_disk(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    return _less("disk", _DISK, needs, before=needs.disk_mb, after=_most(fleet.table.disk_free, rows))


def _smaller_gpu(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    """Less VRAM on as many cards, fewer cards with as much, or no card at all."""
    count, ranked = cards_needed(needs), fleet.table.vram_free
    after = _most(ranked[count - 1], rows) if count <= len(ranked) else 0
    steps = _less("gpu", _VRAM, needs, before=needs.vram_mb, after=after)
    most = _cards_at_once(fleet, needs, rows)
    if 0 < most < count:
        clause = f"with {most} GPU{'s' if most > 1 else ''}"
        fewer = replace(needs, gpus=most)
        steps.append(_Step("gpu", f"gpus {count} → {most}", clause, fewer, _given_up(count, most)))
    return [*steps, *_without_gpu("gpu", needs)]


def _cards_at_once(fleet: Fleet, needs: Requirements, rows: Rows) -> int:
    """The most cards with enough free that one of these nodes has."""
    if not needs.vram_mb:
        return int(fleet.table.cards_idle[rows].max())
    return sum(bool((column[rows] >= needs.vram_mb).any()) for column in fleet.table.vram_free)


def _wider_tier(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    """One tier more: the one most of these nodes have."""
    tier = _commonest(fleet, fleet.table.tier[rows])
    wider = replace(needs, tiers=needs.tiers | {tier})
    change = f"tier {gate_messages.any_of(needs.tiers)} → {gate_messages.any_of(wider.tiers)}"
    return [_Step("tier", change, f"with tier {tier} allowed too", wider, _COST_WIDEN)]


def _wider_region(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    """One region more: the one most of these nodes have; any, if they do not say."""
    region = _commonest(fleet, fleet.table.region[rows])
    wider = replace(needs, regions=needs.regions | {region} if region else frozenset())
    change = f"region {gate_messages.any_of(needs.regions)} → {gate_messages.any_of(wider.regions) or 'any'}"
    clause = f"with region {region} allowed too" if region else "in any region"
    return [_Step("region", change, clause, wider, _COST_WIDEN)]


def _other_mesh_version(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    version = _commonest(fleet, fleet.table.mesh_version[rows])
    change = f"mesh version {needs.mesh_version} → {version or 'any'}"
    other = replace(needs, mesh_version=version)
    return [
        _Step("mesh_version", change, f"with mesh version {version or 'any'}", other, _COST_OTHER_SOFTWARE)
    ]


def _other_python(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    masks, counts = np.unique(fleet.table.python[rows], return_counts=True)
    version = commonest(dict(zip(masks.tolist(), counts.tolist(), strict=True)))
    change = f"python {any_version(needs.pythons)} → {version or 'any'}"
    other = replace(needs, pythons=frozenset({version} - {""}))
    return [
        _Step("python", change, f"with Python {version or 'of any version'}", other, _COST_OTHER_SOFTWARE)
    ]


def _fewer_tags(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    steps = []
    for dropped, cost in _fewest(needs.tags, lambda tag: ~fleet.features.has(tag, rows)):
        named, rest = " and ".join(sorted(dropped)), replace(needs, tags=needs.tags - dropped)
        steps.append(_Step("tags", f"drop tag {named}", f"without tag {named}", rest, cost))
    return steps


def _fewer_excluded_tags(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    steps = []
    for allowed, cost in _fewest(needs.exclude_tags, lambda tag: fleet.features.has(tag, rows)):
        named, rest = " and ".join(sorted(allowed)), needs.exclude_tags - allowed
        less = replace(needs, exclude_tags=rest)
        steps.append(_Step("excluded_tags", f"allow tag {named}", f"with tag {named} allowed", less, cost))
    return steps


def _fewer_properties(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    steps = []
    for dropped, cost in _fewest(needs.properties, lambda item: ~fleet.features.has(item, rows)):
        named, rest = gate_messages.pairs(dropped), replace(needs, properties=needs.properties - dropped)
        steps.append(_Step("properties", f"drop property {named}", f"without property {named}", rest, cost))
    return steps


def _fewest(
    required: Collection[Required], fails: Callable[[Required], Mask]
) -> list[tuple[frozenset[Required], float]]:
    """The smallest sets to give up so that a row passes, with the cost; `fails` says which rows an item keeps out."""
    ordered = sorted(required)
    against = np.array([fails(item) for item in ordered])
    counts = against.sum(axis=0)
    rows = against[:, counts == counts.min()].T[:_ROWS_LOOKED_AT]
    found = {frozenset(item for item, failed in zip(ordered, row, strict=True) if failed) for row in rows}
    return [(items, _COST_WIDEN * len(items)) for items in sorted(found, key=sorted)[:CHANGES_MAX]]


def _allow_nodes(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    """Give up those of the excluded names that stand against one of these nodes."""
    steps: dict[frozenset[str], _Step] = {}
    for row in rows[:_ROWS_LOOKED_AT].tolist():
        profile = fleet.node_at(row).profile
        names = needs.exclude_nodes & {profile.node_id, profile.name, profile.url}
        named = profile.name if profile.node_id in names else " and ".join(sorted(names))
        rest = replace(needs, exclude_nodes=needs.exclude_nodes - names)
        cost = _COST_WIDEN * len(names)
        steps[names] = _Step(
            "excluded_nodes", f"allow node {named}", f"with node {named} allowed", rest, cost
        )
    return sorted(steps.values(), key=lambda step: step.cost)[:CHANGES_MAX]


def _unpin(fleet: Fleet, needs: Requirements, _rows: Rows) -> list[_Step]:
    change, clause = f"node {gate_messages.name_with_id(fleet, needs.node)} → any", "on any node"
    return [_Step("node", change, clause, replace(needs, node=""), _COST_OTHER_NODE)]


def _weaker_isolation(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
    best = Level(int(fleet.table.level[rows].max()))
    if needs.isolation is None:
        return []
    change = f"isolation {needs.isolation.label} → {best.label}"
    weaker = replace(needs, isolation=best)
    return [_Step("isolation", change, f"with isolation {best.label}", weaker, _COST_WIDEN)]


def _higher_ceiling(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    """What the cheapest of these nodes costs, up to a whole hundredth. A floor is not the submitter's to change."""
    before = shape.ceiling
    offer = cheapest(fleet, shape, rows)
    if before is None or offer is None or offer.price <= before:
        return []
    after = round_up(offer.price)
    change = f"max-price {format_credits(before)} → {format_credits(after)}"
    clause = f"with --max-price {format_credits(after)}"
    return [_Step(_PRICE, change, clause, shape.requirements, _given_up(after, before), ceiling=after)]


def _without_network(_fleet: Fleet, needs: Requirements, _rows: Rows) -> list[_Step]:
    without = replace(needs, network=False)
    return [_Step("network", "drop --net", "without network", without, _COST_OTHER_SOFTWARE)]


def _without_labels(_fleet: Fleet, needs: Requirements, _rows: Rows) -> list[_Step]:
    if not needs.labels:
        return []  # An owner who wants a label of his own is not for everybody.
    named, without = gate_messages.all_of(needs.labels), replace(needs, labels=frozenset())
    return [_Step("rule_label", f"drop label {named}", f"without label {named}", without, _COST_WIDEN)]


def _within(gate: str, limit: str, words: _Words) -> _Relax:
    """As much as the most generous of these owners allows."""

    def relax(fleet: Fleet, needs: Requirements, rows: Rows) -> list[_Step]:
        owners = [fleet.rules_of(fleet.node_at(row)) for row in rows[:_ROWS_LOOKED_AT].tolist()]
        after = max((most for rules in owners if (most := getattr(rules, limit)) is not None), default=0)
        return _less(gate, words, needs, before=getattr(needs, _NUMBERS[gate]), after=after)

    return relax


def _without_gpu(gate: str, needs: Requirements) -> list[_Step]:
    return [_Step(gate, "no GPU", "without a GPU", replace(needs, gpus=0, vram_mb=0), _COST_WITHOUT_GPU)]


_PRICE = "price"
_RELAX: dict[str, _Relax] = {
    "cores": _fewer_cores,
    "ram": _less_ram,
    "disk": _less_disk,
    "gpu": _smaller_gpu,
    "tier": _wider_tier,
    "region": _wider_region,
    "tags": _fewer_tags,
    "excluded_tags": _fewer_excluded_tags,
    "properties": _fewer_properties,
    "excluded_nodes": _allow_nodes,
    "node": _unpin,
    "mesh_version": _other_mesh_version,
    "python": _other_python,
    "isolation": _weaker_isolation,
    "network": _without_network,
    "rule_label": _without_labels,
    "rule_gpu": lambda _fleet, needs, _rows: _without_gpu("rule_gpu", needs),
    "rule_minutes": _within("rule_minutes", "minutes_max", _minutes),
    "rule_ram": _within("rule_ram", "ram_mb_max", _RAM),
    "rule_disk": _within("rule_disk", "disk_mb_max", _DISK),
}
_GATES = {gate.name: gate for gate in GATES}


def _most(column: NDArray[np.int32], rows: Rows) -> int:
    """The most that one of these rows has: down to whole GB or cores, which people can say, unless it is less."""
    amount = int(column[rows].max())
    return amount // _STEP * _STEP if amount >= _STEP else amount


def _given_up(before: int, after: int) -> float:
    return 1 - after / max(before, 1)


def _commonest(fleet: Fleet, column: NDArray[np.int32]) -> str:
    numbers, counts = np.unique(column, return_counts=True)
    return fleet.words.word(int(numbers[counts.argmax()]))
