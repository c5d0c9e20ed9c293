"""The evidence behind a node's reputation, outcome by outcome, and its current work. Others' jobs are never named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from computepool.core.jobs.lifecycle import JobKind
from computepool.core.money.pricing import charge_of
from computepool.core.resources import Requirements
from computepool.core.trust import reputation
from computepool.core.trust.reputation import WEIGHTS, Evidence
from computepool.hub.context import Hub
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.session import Connection
from computepool.hub.identity import access, cursors
from computepool.hub.identity.access import Principal
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.trust import outcome_rows
from computepool.hub.trust.outcome_rows import HeldAttempt
from computepool.protocol.nodes.evidence import EvidencePage, EvidenceRow, NodeAttempt, NodeWork

_HOUR_MS = 3_600_000
_SHOWN = 200
_QUARTERS = 4
_SENTENCES = {
    Evidence.VERIFIED: "A result that agreed with another owner's node.",
    Evidence.UNVERIFIED: "A completed job; its result was not checked.",
    Evidence.NARROW: "A completed job; its submitter left the pool no choice of nodes, so it counts only a quarter.",
    Evidence.CONFIRMED: "A result that was accepted earlier was checked, and agreed.",
    Evidence.REFUTED: "A result that was proven wrong, by nodes of other owners or by the node's own report.",
    Evidence.PADDED: "A result that agreed, but took far longer than on the other node; the streak starts again.",
    Evidence.PROBE_RIGHT: "On probation, it was right about a job with a known result.",
    Evidence.PROBE_WRONG: "On probation, it was wrong about a job with a known result.",
    Evidence.PARDONED: "An administrator cleared its violations.",
    Evidence.NODE_FAULT: "The node could not run a job.",
    Evidence.LEASE_LOST: "The node went silent, or restarted, with a job.",
    Evidence.JOB_FAULT: "The job itself failed, which says nothing about the node.",
}
_INHERITED = "It inherited what counts against an earlier node of its owner."
_TOGETHER = "Lost at the same moment as another job, which was counted."


async def page(hub: Hub, principal: Principal, node_id: str, *, after: str | None, limit: int) -> EvidencePage:
    """Newest first. Exact for the owner and administrators; others see what happened and roughly when."""
    before = None if after is None else cursors.read(hub, after, of=node_id) or 0

    def load(connection: Connection) -> tuple[NodeRow, list[EventRow], set[str], dict[str, str]]:
        node = access.require_found(node_rows.get_node(connection, node_id), what="node")
        rows = outcome_rows.of_node(connection, node_id, before=before, limit=limit + 1)
        job_ids = [row.job_id for row in rows if row.job_id]
        verified = outcome_rows.attempts_counted_at_once(connection, job_ids)
        return node, rows, verified, outcome_rows.kinds(connection, job_ids)

    node, rows, verified, kinds = await hub.store.read(load)
    exact = access.may_manage(principal, node.account_id)
    reader = _Reader(node=node, principal=principal, exact=exact, kinds=kinds, verified=verified)
    return EvidencePage(
        node_id=node_id,
        exact=exact,
        rows=list(reader.read(rows, limit=limit)),
        next=cursors.seal(hub, rows[limit - 1].seq, of=node_id) if len(rows) > limit else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    node: NodeRow
    principal: Principal
    exact: bool
    kinds: Mapping[str, str]
    verified: set[str]  #: attempts counted when they were verified: their job's success does not count again

    def read(self, rows: Sequence[EventRow], *, limit: int) -> Iterator[EvidenceRow]:
        """Of the first `limit` rows; each is judged with the row before it in time."""
        older = {row.seq: before for row, before in pairwise(rows)}
        for row in rows[:limit]:
            event, is_counted = row._asdict(), row.action == "job.succeeded" and row.attempt_id in self.verified
            if reputation.predecessor_of(event) is not None:
                yield self._row(row, "inherited", _INHERITED)
            elif reputation.node_of(event) == self.node.id and not is_counted:
                yield self._outcome(row, event, before=older.get(row.seq))

    def _outcome(self, row: EventRow, event: dict[str, Any], *, before: EventRow | None) -> EvidenceRow:
        outcome = reputation.read(event, owner=self.node.account_id)
        assert outcome is not None
        evidence = outcome.evidence
        lost = evidence is Evidence.LEASE_LOST
        counted = not (lost and before is not None and (before.action, before.at_ms) == (row.action, row.at_ms))
        weight = WEIGHTS[evidence]
        return self._row(
            row,
            evidence.value,
            _SENTENCES[evidence] if counted else _TOGETHER,
            weight=weight.quarters / _QUARTERS if counted else 0,
            success=weight.success if weight.quarters else None,
            counted=counted and bool(weight.quarters),
            verified=evidence in (Evidence.VERIFIED, Evidence.CONFIRMED),
            violation=evidence is Evidence.REFUTED,
            own=outcome.own,
        )

    def _row(self, row: EventRow, evidence: str, sentence: str, **given: Any) -> EvidenceRow:
        default = {"weight": 0, "success": None, "counted": False, "verified": False, "violation": False, "own": False}
        fields = {**default, **given, "evidence": evidence, "sentence": sentence}
        if not self.exact:
            # Neither the minute nor whose job: that would tell others what someone's jobs did, and where.
            fields |= {"own": False, "at_ms": row.at_ms - row.at_ms % _HOUR_MS}
            mine = row.account_id == self.principal.account_id and row.job_id is not None
            return EvidenceRow(**fields, job_id=row.job_id if mine else None)
        kind = self.kinds.get(row.job_id or "")
        return EvidenceRow(
            **fields,
            at_ms=row.at_ms,
            reason=row.reason,
            job_id=row.job_id,
            job_kind=None if kind is None else JobKind(kind),
        )


async def work(hub: Hub, principal: Principal, node_id: str) -> NodeWork:
    """The attempts that a node holds, for its owner: what for, since when, and what they pay."""

    def load(connection: Connection) -> tuple[NodeRow, list[HeldAttempt], tuple[int, int]]:
        node = access.require_owned(principal, node_rows.get_node(connection, node_id), what="node")
        held = outcome_rows.held_attempts(connection, node_id, limit=_SHOWN)
        return node, held, outcome_rows.count_held(connection, node_id)

    node, rows, (running, leased) = await hub.store.read(load)
    specs = await hub.jobs.specs.load({row.spec_digest for row in rows})
    shown = [
        _view(hub, row, owner=node.account_id, admin=principal.is_admin, needs=specs[row.spec_digest].requirements)
        for row in rows
    ]
    earns = sum(attempt.earns for attempt in shown)
    return NodeWork(node_id=node_id, running=running, leased=leased, attempts=shown, earns=earns)


def _view(hub: Hub, row: HeldAttempt, *, owner: str, admin: bool, needs: Requirements) -> NodeAttempt:
    own = row.shown_account == owner
    net = 0 if own else hub.money.market.table.net_of(row.price)
    ran_ms = 0 if row.started_at_ms is None else max(0, hub.now_ms() - row.started_at_ms)
    session = hub.nodes.registry.get(row.node_id)
    live = None if session is None else session.attempts.get(row.id)
    report = None if live is None else live.last_report
    load = None if report is None else report.load
    return NodeAttempt.from_attributes(
        row,
        attempt_id=row.id,
        job_name=row.name if (own or admin) and row.hub_job is None else None,
        own=own,
        cores=needs.cpu_milli / 1000,
        ram_mb=needs.ram_mb if session is None else needs.ram_on(session.profile.capacity),
        gpus=needs.gpus,
        earns=net,
        earned=charge_of(net, min(ran_ms, row.longest_ms)),
        ends_at_ms=None if row.started_at_ms is None else row.started_at_ms + row.longest_ms,
        progress=None if report is None else report.progress,
        cpu_percent=None if load is None else load.cpu_percent,
        rss_mb=None if load is None else load.rss_mb,
        cpu_ids=[] if report is None else report.cpu_ids,
    )
