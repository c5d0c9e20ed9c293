"""An owner asks people to look at a ban, or at a probation: an administrator decides, as over everything that waits for one."""

from __future__ import annotations

import json

from computepool.core.errors import Conflict
from computepool.core.trust.reputation import NEWCOMER
from computepool.hub.approvals import rows as approval_rows
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, approval_requests
from computepool.hub.identity.access import Principal
from computepool.hub.nodes import rows as node_rows
from computepool.hub.trust import reputation_rows
from computepool.protocol.nodes.nodes import ReviewReply

_PENDING_MAX = 1_000


async def ask(hub: Hub, owner: Principal, node_id: str, *, note: str) -> ReviewReply:
    """Agreeing to it pardons the node. What it is accused of is in its evidence, and in the events."""
    clock, life_ms = hub.clock, round(hub.settings.approval_lifetime_s * 1000)

    def unit(tx: Tx) -> ReviewReply:
        node = access.owned(owner, node_rows.get_node(tx.connection, node_id), what="node")
        known = reputation_rows.load(tx.connection, [node_id]).get(node_id, NEWCOMER)
        if not (known.banned_at_ms or known.probation_at_ms):
            raise Conflict("There is nothing to review: this node is neither banned nor on probation.")
        if _is_pending(tx, node_id, life_ms=life_ms):
            raise Conflict("A review of this node was already requested and waits for an administrator.")
        details = {
            "node_id": node_id,
            "name": node.name,
            "wrong": known.violation_count,
            "banned": bool(known.banned_at_ms),
            "note": note,
        }
        kind, text = approval_requests.REVIEW, json.dumps(details)
        return ReviewReply(approval_id=approval_requests.ask(tx, clock, owner, kind=kind, request=text))

    return await hub.store.write(unit)


def _is_pending(tx: Tx, node_id: str, *, life_ms: int) -> bool:
    waiting = approval_rows.list_pending(tx.connection, since_ms=tx.now_ms - life_ms, limit=_PENDING_MAX)
    reviews = [row for row in waiting if row.kind == approval_requests.REVIEW]
    return any(json.loads(row.request)["node_id"] == node_id for row in reviews)
