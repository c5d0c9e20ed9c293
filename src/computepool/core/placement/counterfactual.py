"""Changes that would let a job start now: the smallest single change of its requirements or ceiling, or else a pair.

Every suggested change is checked by the allocator's own gates: submitted in that form, the job would start. What the
submitter cannot change (a node is offline, an owner trusts nobody) is not considered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet import versions
from computepool.core.fleet.features import Mask
from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import cards_needed
from computepool.core.fleet.versions import text_of
from computepool.core.isolation import Level
from computepool.core.money.money import format_credits, round_up
from computepool.core.placement import gate_messages
from computepool.core.placement.allocator import eligible
from computepool.core.placement.gates import GATES, Verdicts, cheapest, ram_needed
from computepool.core.pythons import any_version, commonest
from computepool.core.resources import Requirements, Shape
from computepool.core.words import cores, memory_size, pluralize

#: Nobody reads more advice than this.
CHANGES_MAX = 5

#: The cost of a change without a number. Reducing a number costs the share that is given up. So a third less VRAM is a
#: smaller change than another Python, and doing without a GPU is suggested last.
_COST_WIDEN = 0.5
_COST_OTHER_SOFTWARE = 0.75
_COST_WITHOUT_GPU = 1.0
#: Submitters who name a node want that node: dropping it costs more than everything else.
_COST_OTHER_NODE = 1_000.0

#: One GB, one core.
_STEP = 1_000
#: Nodes examined individually if a list of names or tags is at fault.
_EXAMINED_MAX = 1_000

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another form of the job that would start now."""

    change: str  #: `vram 24 GB → 16 GB`
    clause: str  #: for a sentence: `with 16 GB of VRAM`
    gates: tuple[str, ...]
    requirements: Requirements
    ceiling: int | None
    nodes: int  #: nodes that could start it now
    cost: float  #: the size of the change, for comparison only


@dataclass(frozen=True, slots=True)
class _Step:
    gate: str
    change: str
    clause: str
    shape: Shape  #: the job in its other form
    cost: float


def _step(gate: str, words: tuple[str, str], shape: Shape, *, cost: float, **needs: object) -> _Step:
    """A step that changes requirements. `words`: for a list of changes, and for a sentence."""
    requirements = replace(shape.requirements, **needs)  # type: ignore[arg-type]
    return _Step(gate, *words, replace(shape, requirements=requirements), cost)


#: Given rows that fail a gate, the steps that would let some of them pass.
_Relax = Callable[[Fleet, Shape, Rows], list[_Step]]


def changes(fleet: Fleet, shape: Shape, verdicts: Verdicts) -> tuple[Change, ...]:
    """Changes that would let the shape start now, smallest first. For shapes that cannot start as they are."""
    return _best(fleet, _singles(fleet, shape, verdicts)) or _best(fleet, _pairs(fleet, shape, verdicts))


def _best(fleet: Fleet, found: Iterator[tuple[_Step, ...]]) -> tuple[Change, ...]:
    best: dict[Shape, Change] = {}
    for steps in found:
        changed = steps[-1].shape
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
    for gate, fails in _rows_failing(1, verdicts).items():
        for step in _steps(gate, fleet, shape, rows=verdicts.rows[fails]):
            yield (step,)


def _pairs(fleet: Fleet, shape: Shape, verdicts: Verdicts) -> Iterator[tuple[_Step, ...]]:
    failed = _rows_failing(2, verdicts)
    for first, second in permutations(failed, 2):
        rows = verdicts.rows[failed[first] & failed[second]]
        for step in _steps(first, fleet, shape, rows=rows):
            passed = _GATES[first].passes(fleet, step.shape, rows)
            left = rows if passed is None else rows[passed]
            for other in _steps(second, fleet, step.shape, rows=left):
                yield step, other


def _steps(gate: str, fleet: Fleet, shape: Shape, *, rows: Rows) -> list[_Step]:
    return _RELAX[gate](fleet, shape, rows) if rows.size else []


def _rows_failing(count: int, verdicts: Verdicts) -> dict[str, Mask]:
    """For each gate that can be relaxed, the rows that fail it, among those that fail exactly `count` gates."""
    candidates = verdicts.failures() == count
    return {gate: ~verdicts.now[gate] & candidates for gate in _RELAX if gate in verdicts.now}


def _words(need: str, before: int, after: int) -> tuple[str, str]:
    """The wording of a smaller number: for a list of changes, and for a sentence."""
    if need == "minutes":
        return f"timeout {before}m → {after}m", f"with --timeout {after}m"
    if need == "cpu_milli":
        return f"{cores(before / 1_000)} → {cores(after / 1_000)}", f"with {cores(after / 1_000)}"
    name, what = {"ram_mb": ("ram", "RAM"), "disk_mb": ("disk", "disk"), "vram_mb": ("vram", "VRAM")}[need]
    return f"{name} {memory_size(before, up=True)} → {memory_size(after)}", f"with {memory_size(after)} of {what}"


def _less(gate: str, need: str, shape: Shape, *, after: int, before: int | None = None, **same: bool) -> list[_Step]:
    """Reduce one number. `same`: other fields that change with it."""
    before = getattr(shape.requirements, need) if before is None else before
    if not 0 < after < before:
        return []
    return [_step(gate, _words(need, before, after), shape, cost=_reduction(before, after), **{need: after}, **same)]


def _less_ram(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    before = int(np.max(ram_needed(fleet, shape.requirements, rows), initial=0))
    return _less("ram", "ram_mb", shape, before=before, after=_most(fleet.table.ram_free, rows), ram_by_cores=False)


def _smaller_gpu(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    """Less VRAM on as many cards, fewer cards with as much, or no card at all."""
    needs, ranked = shape.requirements, fleet.table.vram_free
    count = cards_needed(needs)
    after = _most(ranked[count - 1], rows) if count <= len(ranked) else 0
    steps = _less("gpu", "vram_mb", shape, after=after)
    most = _cards_at_once(fleet, needs, rows)
    if 0 < most < count:
        words = f"gpus {count} → {most}", f"with {pluralize(most, 'GPU')}"
        steps.append(_step("gpu", words, shape, cost=_reduction(count, most), gpus=most))
    return [*steps, _without_gpu("gpu", shape)]


def _cards_at_once(fleet: Fleet, needs: Requirements, rows: Rows) -> int:
    """The largest number of sufficient cards on one of these nodes."""
    if not needs.vram_mb:
        return int(fleet.table.cards_idle[rows].max())
    return sum(bool((column[rows] >= needs.vram_mb).any()) for column in fleet.table.vram_free)


def _wider_tier(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    """Allow one more tier: the one that most of these nodes have."""
    tier, before = _commonest(fleet, fleet.table.tier[rows]), shape.requirements.tiers
    after = before | {tier}
    change = f"tier {gate_messages.any_of(before)} → {gate_messages.any_of(after)}"
    return [_step("tier", (change, f"with tier {tier} allowed too"), shape, cost=_COST_WIDEN, tiers=after)]


def _wider_region(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    """Allow one more region: the one that most of these nodes have, or any region if they state none."""
    region, before = _commonest(fleet, fleet.table.region[rows]), shape.requirements.regions
    after = before | {region} if region else frozenset()
    change = f"region {gate_messages.any_of(before)} → {gate_messages.any_of(after) or 'any'}"
    clause = f"with region {region} allowed too" if region else "in any region"
    return [_step("region", (change, clause), shape, cost=_COST_WIDEN, regions=after)]


def _other_mesh_version(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    version = _commonest(fleet, fleet.table.mesh_version[rows])
    after = version or "any"
    words = f"mesh version {shape.requirements.mesh_version} → {after}", f"with mesh version {after}"
    return [_step("mesh_version", words, shape, cost=_COST_OTHER_SOFTWARE, mesh_version=version)]


def _other_python(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    masks, counts = np.unique(fleet.table.python[rows], return_counts=True)
    version = commonest(dict(zip(masks.tolist(), counts.tolist(), strict=True)))
    change = f"python {any_version(shape.requirements.pythons)} → {version or 'any'}"
    words = change, f"with Python {version or 'of any version'}"
    return [_step("python", words, shape, cost=_COST_OTHER_SOFTWARE, pythons=frozenset({version} - {""}))]


def _allow_installing(shape: Shape) -> list[_Step]:
    if not shape.requirements.offered_only:
        return []
    words = "install the packages", "without --offered-only"
    return [_step("software", words, shape, cost=_COST_OTHER_SOFTWARE, offered_only=False)]


def _fewer(gate: str, listed: str, *, change: str, clause: str) -> _Relax:
    """Drop some of the tags or properties that the job requires or excludes."""

    def relax(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
        items, steps = getattr(shape.requirements, listed), []
        for gone, cost in _fewest(items, lambda item: fleet.features.has(item, rows) == (gate == "excluded_tags")):
            named = gate_messages.pairs(gone) if gate == "properties" else " and ".join(sorted(gone))
            words = change.format(named), clause.format(named)
            steps.append(_step(gate, words, shape, cost=cost, **{listed: items - gone}))
        return steps

    return relax


def _fewest(required: Collection[Any], fails: Callable[[Any], Mask]) -> list[tuple[frozenset[Any], float]]:
    """The smallest sets to drop so that some row passes, with their costs. `fails`: the rows that an item excludes."""
    ordered = sorted(required)
    against = np.array([fails(item) for item in ordered])
    counts = against.sum(axis=0)
    rows = against[:, counts == counts.min()].T[:_EXAMINED_MAX]
    found = {frozenset(item for item, failed in zip(ordered, row, strict=True) if failed) for row in rows}
    return [(items, _COST_WIDEN * len(items)) for items in sorted(found, key=sorted)[:CHANGES_MAX]]


def _allow_nodes(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    """Drop those excluded names that mean one of these nodes."""
    steps: dict[frozenset[str], _Step] = {}
    excluded = shape.requirements.exclude_nodes
    for row in rows[:_EXAMINED_MAX].tolist():
        profile = fleet.node_at(row).profile
        names = excluded & {profile.node_id, profile.name, profile.url}
        named = profile.name if profile.node_id in names else " and ".join(sorted(names))
        words, cost = (f"allow node {named}", f"with node {named} allowed"), _COST_WIDEN * len(names)
        steps[names] = _step("excluded_nodes", words, shape, cost=cost, exclude_nodes=excluded - names)
    return sorted(steps.values(), key=lambda step: step.cost)[:CHANGES_MAX]


def _unpin(fleet: Fleet, shape: Shape, _rows: Rows) -> list[_Step]:
    words = f"node {gate_messages.name_with_id(fleet, shape.requirements.node)} → any", "on any node"
    return [_step("node", words, shape, cost=_COST_OTHER_NODE, node="")]


def _weaker_isolation(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    best, needed = Level(int(fleet.table.level[rows].max())), shape.requirements.isolation
    assert needed is not None
    words = f"isolation {needed.label} → {best.label}", f"with isolation {best.label}"
    return [_step("isolation", words, shape, cost=_COST_WIDEN, isolation=best)]


def _higher_ceiling(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    """Pay the price of the cheapest of these nodes, rounded up. The submitter cannot change a floor."""
    before = shape.ceiling
    offer = cheapest(fleet, shape, rows)
    if before is None or offer is None or offer.price <= before:
        return []
    after = round_up(offer.price)
    change = f"max-price {format_credits(before)} → {format_credits(after)}"
    clause = f"with --max-price {format_credits(after)}"
    return [_Step("price", change, clause, replace(shape, ceiling=after), _reduction(after, before))]


def _without_labels(_fleet: Fleet, shape: Shape, _rows: Rows) -> list[_Step]:
    if not shape.requirements.labels:
        return []  # adding a label that an owner requires is no sensible advice
    named = gate_messages.all_of(shape.requirements.labels)
    words = f"drop label {named}", f"without label {named}"
    return [_step("rule_label", words, shape, cost=_COST_WIDEN, labels=frozenset())]


def _within(gate: str, need: str) -> _Relax:
    """Reduce a number to what the most generous of these owners allows."""

    def relax(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
        owners = [fleet.rules_of(fleet.node_at(row)) for row in rows[:_EXAMINED_MAX].tolist()]
        after = max((most for rules in owners if (most := getattr(rules, f"{need}_max")) is not None), default=0)
        return _less(gate, need, shape, after=after)

    return relax


def _without_gpu(gate: str, shape: Shape) -> _Step:
    none: dict[str, object] = {"gpus": 0, "vram_mb": 0, "compute_capability": 0, "cuda": (), "driver": ()}
    return _step(gate, ("no GPU", "without a GPU"), shape, cost=_COST_WITHOUT_GPU, **none)


def _lower_capability(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
    before, after = shape.requirements.compute_capability, int(fleet.table.compute_capability[rows].max())
    lower = text_of(after) if after else "any"
    words = f"compute capability {text_of(before)} → {lower}", f"with compute capability {lower}"
    return [_step("compute_capability", words, shape, cost=_COST_OTHER_SOFTWARE, compute_capability=after)]


def _other_version(column: str, name: str) -> _Relax:
    """Require the newest version that one of these nodes has, or none if they have none."""

    def relax(fleet: Fleet, shape: Shape, rows: Rows) -> list[_Step]:
        newest = int(getattr(fleet.table, column)[rows].max())
        after: versions.Conditions = ((">=", newest),) if newest else ()
        other = versions.describe(after) or "any"
        change = f"{column} {versions.describe(getattr(shape.requirements, column))} → {other}"
        return [_step(column, (change, f"with {name} {other}"), shape, cost=_COST_OTHER_SOFTWARE, **{column: after})]

    return relax


_RELAX: dict[str, _Relax] = {
    "cores": lambda fleet, shape, rows: _less("cores", "cpu_milli", shape, after=_most(fleet.table.cpu_free, rows)),
    "ram": _less_ram,
    "disk": lambda fleet, shape, rows: _less("disk", "disk_mb", shape, after=_most(fleet.table.disk_free, rows)),
    "gpu": _smaller_gpu,
    "tier": _wider_tier,
    "compute_capability": _lower_capability,
    "cuda": _other_version("cuda", "CUDA"),
    "driver": _other_version("driver", "driver"),
    "region": _wider_region,
    "tags": _fewer("tags", "tags", change="drop tag {}", clause="without tag {}"),
    "excluded_tags": _fewer("excluded_tags", "exclude_tags", change="allow tag {}", clause="with tag {} allowed"),
    "properties": _fewer("properties", "properties", change="drop property {}", clause="without property {}"),
    "require": lambda _fleet, shape, _rows: [
        _step("require", ("drop --require", "without --require"), shape, cost=_COST_WIDEN, require="")
    ],
    "bandwidth": lambda _fleet, shape, _rows: [
        _step(
            *("bandwidth", ("drop --down and --up", "without --down and --up"), shape),
            cost=_COST_WIDEN,
            down_mbps=0,
            up_mbps=0,
        )
    ],
    "excluded_nodes": _allow_nodes,
    "node": _unpin,
    "mesh_version": _other_mesh_version,
    "python": _other_python,
    "software": lambda _fleet, shape, _rows: _allow_installing(shape),
    "isolation": _weaker_isolation,
    "network": lambda _fleet, shape, _rows: [
        _step("network", ("drop --net", "without network"), shape, cost=_COST_OTHER_SOFTWARE, network=False)
    ],
    "rule_label": _without_labels,
    "rule_gpu": lambda _fleet, shape, _rows: [_without_gpu("rule_gpu", shape)],
    "rule_minutes": _within("rule_minutes", "minutes"),
    "rule_ram": _within("rule_ram", "ram_mb"),
    "rule_disk": _within("rule_disk", "disk_mb"),
    "price": _higher_ceiling,
}
_GATES = {gate.name: gate for gate in GATES}


def _most(column: NDArray[np.int32], rows: Rows) -> int:
    """The most that one of these rows has, rounded down to whole GB or cores where there are any."""
    amount = int(column[rows].max())
    return amount // _STEP * _STEP if amount >= _STEP else amount


def _reduction(before: int, after: int) -> float:
    return 1 - after / max(before, 1)


def _commonest(fleet: Fleet, column: NDArray[np.int32]) -> str:
    numbers, counts = np.unique(column, return_counts=True)
    return fleet.words.word(int(numbers[counts.argmax()]))
