"""Explanations with numbers: why a job waits, where it would run, why a node gets no jobs, and what would help.

Built from the gates that place jobs, so an explanation cannot disagree with a decision. Placement itself never uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import NodeRecord
from computepool.core.placement import gate_messages, software_messages
from computepool.core.placement.allocator import list_scores, score_bands
from computepool.core.placement.counterfactual import Change, changes
from computepool.core.placement.gangs import most_together
from computepool.core.placement.gates import Verdicts, cheapest, judge
from computepool.core.placement.software_gates import rows_that_offer
from computepool.core.resources import NodeProfile, Shape
from computepool.core.words import pluralize

#: Queued shapes explained to a node's owner, those with the most jobs first.
SHAPES_EXPLAINED_MAX = 200
_PRICE = "price"
_AVAILABLE = "available"
_NODE = "node"
#: Gates about resources that running jobs use up.
_FILLED = frozenset({"cores", "ram", "disk", "gpu"})
_GPU_SOFTWARE = frozenset({"compute_capability", "cuda", "driver"})
_NAMED_MAX = 2
#: Reasons of a named host given in one sentence.
_REASONS_MAX = 2
#: Nodes examined individually for one sentence.
_EXAMINED_MAX = 200
#: The beginning of the sentence if no node could ever run the job.
IMPOSSIBLE = "No node can run this"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """One gate that concerns the job, over the whole fleet."""

    gate: str
    need: str
    failing: int  #: nodes that fail it now
    failing_even_if_idle: int  #: nodes that fail it permanently; the others are only busy or away
    passing_without: int  #: nodes that could start the job now if only this gate were dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    sentence: str
    nodes: int
    eligible_now: int
    able: int  #: nodes that could run it if they were online and idle
    gates: tuple[GateReport, ...]
    changes: tuple[Change, ...]  #: changes that would let it start now, smallest first; empty if it can start

    @property
    def unsatisfiable(self) -> bool:
        """There are nodes, but none of them could ever run it."""
        return self.nodes > 0 and self.able == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGate:
    gate: str
    need: str
    have: str
    busy: bool  #: it would pass if it were online and idle

    @property
    def text(self) -> str:
        return f"needs {self.need} ({self.have})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """Whether one node would take a job."""

    profile: NodeProfile
    ok: bool
    failed: tuple[FailedGate, ...] = ()
    score: float = 0.0
    terms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeVerdict:
    """Why a node does not run the waiting jobs of one shape."""

    shape: str  #: as text
    queued: int
    ok: bool
    failed: tuple[FailedGate, ...]
    reason: str


def without_moot_price(fleet: Fleet, shape: Shape) -> Shape:
    """Without the ceiling of 0 of a job pinned to the submitter's own node: other nodes' prices do not keep it waiting."""
    pinned = shape.requirements.node
    if not pinned or shape.ceiling != 0:
        return shape
    node = fleet.get(pinned)
    external = node is not None and node.profile.owner != shape.account
    return shape if external else replace(shape, ceiling=None)


def explain(fleet: Fleet, shape: Shape) -> Explanation:
    """Every gate's numbers, the smallest changes that would let the job start now, and one sentence."""
    verdicts = judge(fleet, shape)
    eligible_now = int(np.count_nonzero(verdicts.failures() == 0))
    explanation = Explanation(
        sentence="",
        nodes=len(fleet),
        eligible_now=eligible_now,
        able=int(np.count_nonzero(verdicts.ever())),
        gates=tuple(_reports(with_node_names(fleet, shape), verdicts)),
        changes=() if eligible_now else changes(fleet, shape, verdicts),
    )
    if shape.requirements.nodes > 1 and explanation.able:
        return _explain_gang(fleet, shape, explanation, verdicts=verdicts)
    sentence = _sentence(fleet, shape, explanation, verdicts=verdicts)
    more = _describe_offers(fleet, shape, verdicts.rows), _gpu_software(fleet, shape, verdicts)
    return replace(explanation, sentence="".join((sentence, *more)))


def _describe_offers(fleet: Fleet, shape: Shape, rows: NDArray[np.intp]) -> str:
    """` 3 of 40 nodes have torch>=2.4.` for a job with dependencies, if there are nodes."""
    needs = shape.requirements
    if not needs.software or not rows.size:
        return ""
    found = rows_that_offer(fleet, shape, rows)
    have = 0 if found is None else int(np.count_nonzero(found))
    verb = "has" if have == 1 else "have"
    others = "" if needs.offered_only or have == rows.size else "; others must install it"
    return f" {have} of {rows.size} nodes {verb} {software_messages.software(needs)}{others}."


def _explain_gang(fleet: Fleet, shape: Shape, why: Explanation, *, verdicts: Verdicts) -> Explanation:
    """That nodes are free is not enough: one owner, or the mesh that the job names, must have all of them at once."""
    count, mesh = shape.requirements.nodes, shape.requirements.mesh_version
    free, able = (
        most_together(fleet, shape, np.isin(np.arange(fleet.rows), verdicts.rows[mask]))
        for mask in (verdicts.failures() == 0, verdicts.ever())
    )
    if free >= count:
        return replace(why, sentence=f"Can start now on {count} of {pluralize(why.nodes, 'node')}.", changes=())
    needs = f"it needs {count} nodes of {f'mesh {mesh}' if mesh else 'one owner'} at once"
    who = f"mesh {mesh} has" if mesh else "the best owner has"
    if able < count:
        sentence, able_nodes = f"{IMPOSSIBLE}: {needs}; {who} {able} that could run it.", 0
    else:
        sentence, able_nodes = f"Waiting: {needs}; {who} {free} free.", why.able
    return replace(why, sentence=sentence, eligible_now=0, able=able_nodes, changes=())


def with_node_names(fleet: Fleet, shape: Shape) -> Shape:
    """The shape with names of nodes next to or in place of their ids, for wording only."""
    needs = shape.requirements
    if not needs.node and not needs.exclude_nodes:
        return shape
    excluded = frozenset(_name(fleet, word) for word in needs.exclude_nodes)
    return replace(
        shape, requirements=replace(needs, node=gate_messages.name_with_id(fleet, needs.node), exclude_nodes=excluded)
    )


def _name(fleet: Fleet, word: str) -> str:
    node = fleet.get(word)
    return word if node is None else node.profile.name


def preview(fleet: Fleet, shape: Shape, limit: int) -> list[NodeVerdict]:
    """Up to `limit` nodes: those that would take the job, best first, then the nearest misses."""
    verdicts = judge(fleet, shape)
    failures = verdicts.failures()
    bands = score_bands(fleet, shape, verdicts.rows)
    # The fewest failures first; nodes that pass in the allocator's order.
    order = np.lexsort((fleet.table.last_used[verdicts.rows], -bands.astype(np.int32), failures))[:limit]
    rows = verdicts.rows[order].tolist()
    passed = [row for row, failed in zip(rows, failures[order].tolist(), strict=True) if not failed]
    scores = dict(zip(passed, list_scores(fleet, shape, passed), strict=True))
    result = []
    for position, row in zip(order.tolist(), rows, strict=True):
        score, terms = scores.get(row, (0.0, {}))
        result.append(
            NodeVerdict(
                profile=fleet.node_at(row).profile,
                ok=row in scores,
                failed=_failed_gates(fleet, shape, verdicts, position=position),
                score=score,
                terms=terms,
            )
        )
    return result


def explain_node(fleet: Fleet, node_id: str, shapes: Mapping[Shape, int]) -> list[ShapeVerdict]:
    """Why this node does not run the waiting shapes, given their numbers of jobs. The most frequent shape comes first.

    Raises KeyError if the node is not in the fleet.
    """
    rows = np.array([fleet[node_id].row], np.intp)
    result = []
    for shape, queued in sorted(shapes.items(), key=lambda item: -item[1])[:SHAPES_EXPLAINED_MAX]:
        failed = _failed_gates(fleet, shape, judge(fleet, shape, rows), position=0)
        reason = "; ".join(gate.text for gate in failed)
        result.append(
            ShapeVerdict(
                shape=gate_messages.describe(with_node_names(fleet, shape).requirements),
                queued=queued,
                ok=not failed,
                failed=failed,
                reason=reason or "fits here: another node ranks higher, or it is about to start",
            )
        )
    return result


def _reports(shape: Shape, verdicts: Verdicts) -> Iterable[GateReport]:
    failures = verdicts.failures()
    for gate, passed in verdicts.now.items():
        yield GateReport(
            gate=gate,
            need=gate_messages.need(gate, shape),
            failing=int(np.count_nonzero(~passed)),
            failing_even_if_idle=int(np.count_nonzero(~verdicts.idle[gate])),
            passing_without=int(np.count_nonzero(failures == ~passed)),
        )


def _failed_gates(fleet: Fleet, shape: Shape, verdicts: Verdicts, *, position: int) -> tuple[FailedGate, ...]:
    return tuple(
        FailedGate(
            gate=gate,
            need=gate_messages.need(gate, with_node_names(fleet, shape)),
            have=gate_messages.have(gate, fleet, shape, row=int(verdicts.rows[position])),
            busy=bool(verdicts.idle[gate][position]),
        )
        for gate, passed in verdicts.now.items()
        if not passed[position]
    )


def _sentence(fleet: Fleet, shape: Shape, why: Explanation, *, verdicts: Verdicts) -> str:
    nodes = why.nodes
    if not nodes:
        return "Waiting: no node is connected."
    if why.eligible_now:
        return f"Can start now on {why.eligible_now} of {pluralize(nodes, 'node')}."
    host = _named_host(verdicts)
    if host is None:
        reason = _reason(fleet, shape, why, verdicts=verdicts)
    else:
        reason = _host_reason(fleet, shape, why, verdicts=verdicts, position=host)
    return f"{'Waiting' if why.able else IMPOSSIBLE}: {reason}."


def _reason(fleet: Fleet, shape: Shape, why: Explanation, *, verdicts: Verdicts) -> str:
    change = why.changes[0] if why.changes else None
    culprits = _culprits(why.gates, change, able=why.able)
    words = [_blame(fleet, with_node_names(fleet, shape), report, verdicts=verdicts) for report in culprits]
    blame = " and ".join([*words, *_explain_others(with_node_names(fleet, shape), culprits, verdicts=verdicts)])
    if all(report.failing == report.failing_even_if_idle for report in culprits):
        # The blame is permanent for some nodes; for the others, the job only has to wait.
        blame = "; ".join([*_able_but(fleet, verdicts), blame])
    if change:
        return f"{blame}; {change.clause} it could start now on {pluralize(change.nodes, 'node')}"
    if why.able:
        able = [fleet.node_at(row) for row in verdicts.rows[verdicts.ever()][:_EXAMINED_MAX].tolist()]
        who = "it could run this" if why.nodes == 1 else f"{pluralize(why.able, 'node')} could run it"
        return f"{blame}; {who} once {_once(culprits[0].gate, able) or 'free'}"
    return blame


def _gpu_software(fleet: Fleet, shape: Shape, verdicts: Verdicts) -> str:
    """` 5 of 12 GPU nodes have CUDA >=12.4.` for each condition on drivers and cards that only some meet."""
    cards = fleet.table.cards[verdicts.rows] > 0
    total, parts = int(np.count_nonzero(cards)), []
    for gate in _GPU_SOFTWARE & verdicts.now.keys() if total else ():
        count = int(np.count_nonzero(cards & verdicts.now[gate]))
        if count < total:
            verb = "has" if count == 1 else "have"
            parts.append(f" {count} of {pluralize(total, 'GPU node')} {verb} {gate_messages.need(gate, shape)}.")
    return "".join(sorted(parts))


def _named_host(verdicts: Verdicts) -> int | None:
    """The position of the one node that the job may run on, if it names one that is connected."""
    mask = verdicts.now.get(_NODE)
    positions = [] if mask is None else np.flatnonzero(mask).tolist()
    return positions[0] if len(positions) == 1 else None


def _host_reason(fleet: Fleet, shape: Shape, why: Explanation, *, verdicts: Verdicts, position: int) -> str:
    """The reason of the named host alone. That other nodes are not that host is no reason."""
    row = int(verdicts.rows[position])
    change = next((change for change in why.changes if _NODE not in change.gates), None)
    judged = verdicts.now if why.able else verdicts.idle
    failing = [gate for gate, passed in judged.items() if not passed[position]]
    gates = list(change.gates) if change else failing[:_REASONS_MAX]
    busy = {gate: bool(verdicts.idle[gate][position]) for gate in gates}
    blame = gate_messages.of_host(fleet, shape, row=row, busy=busy)
    if change:
        return f"{blame}; {change.clause} it would start now"
    once = _once(gates[0], [fleet.node_at(row)]) if why.able else ""
    return f"{blame}; it could run this once {once}" if once else blame


def _once(gate: str, nodes: Sequence[NodeRecord]) -> str:
    """What must happen before the able nodes can run it; empty if waiting alone does not help."""
    if gate == _PRICE:
        return "the price moves"
    if gate == _AVAILABLE:
        return gate_messages.describe_remedy(nodes)
    return "free" if gate in _FILLED else ""


def _explain_others(shape: Shape, culprits: Sequence[GateReport], *, verdicts: Verdicts) -> Iterable[str]:
    """Why most of the other nodes do not take it: those that pass the blamed gates, and that waiting would not help."""
    full, away = _full_and_away(verdicts)
    left = ~(verdicts.ever() & (full | away))
    for report in culprits:
        left &= verdicts.now[report.gate]
    # If some of them fail nothing permanently, name what they fail now.
    judged = verdicts.now if verdicts.ever()[left].any() else verdicts.idle
    failing = {gate: int(np.count_nonzero(left & ~passed)) for gate, passed in judged.items()}
    gate = max(failing, key=lambda gate: failing[gate])
    if failing[gate]:
        total = verdicts.rows.size
        yield gate_messages.describe_failing(gate, shape, count=failing[gate], total=total, busy=False)


def _full_and_away(verdicts: Verdicts) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The nodes that are full, and the nodes that are away."""
    full = np.zeros(verdicts.rows.size, np.bool_)
    for gate in _FILLED & verdicts.now.keys():
        full |= ~verdicts.now[gate]
    return full, ~verdicts.now[_AVAILABLE]


def _able_but(fleet: Fleet, verdicts: Verdicts) -> Iterable[str]:
    """The able nodes, and why they do not run it now: first those that are full."""
    able, (full, away) = verdicts.ever(), _full_and_away(verdicts)
    for mask, words in ((able & full & ~away, "busy"), (able & away, "")):
        nodes = [fleet.node_at(row) for row in verdicts.rows[mask].tolist()]
        if nodes:
            names = " and ".join(sorted(node.profile.name for node in nodes[:_NAMED_MAX]))
            who = names if len(nodes) <= _NAMED_MAX else pluralize(len(nodes), "node")
            state = words or gate_messages.rest_words(nodes[:_EXAMINED_MAX])
            yield f"{who} {'is' if len(nodes) == 1 else 'are'} {state}"


def _blame(fleet: Fleet, shape: Shape, report: GateReport, *, verdicts: Verdicts) -> str:
    if report.gate == _PRICE and report.passing_without:
        alone = ~verdicts.now[_PRICE] & (verdicts.failures() == 1)
        offer = cheapest(fleet, shape, verdicts.rows[alone])
        return gate_messages.describe_price(shape, offer)
    if report.gate == _AVAILABLE:
        away = [fleet.node_at(row) for row in verdicts.rows[~verdicts.now[_AVAILABLE]].tolist()]
        return gate_messages.describe_resting(away, total=verdicts.rows.size)
    if report.gate == _NODE and report.failing == verdicts.rows.size:
        return f"{shape.requirements.node} is not connected"
    busy = report.failing > report.failing_even_if_idle
    return gate_messages.describe_failing(report.gate, shape, count=report.failing, total=verdicts.rows.size, busy=busy)


def _culprits(gates: Sequence[GateReport], change: Change | None, *, able: int) -> list[GateReport]:
    """The gates to blame: those whose change would help, or else the one that fails the most nodes.

    If no node could ever run the job, busy nodes are not the reason.
    """
    if change:
        return [report for report in gates if report.gate in change.gates]

    def weight(report: GateReport) -> tuple[int, int, int]:
        return report.passing_without, 0 if able else report.failing_even_if_idle, report.failing

    return [max(gates, key=weight)]
