"""Requests that wait for a second administrator, and reviews that wait for the first: kept as they were asked.

What happens when somebody agrees is in approvals/.
"""

from __future__ import annotations

import json

from computepool.hub.approvals import rows as approval_rows
from computepool.hub.clock import Clock, new_id
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import Principal

TOP_UP = "top-up"
GRANT = "sign-up grant"
ROLES = "roles"
REVIEW = "node review"


def ask(tx: Tx, clock: Clock, principal: Principal, *, kind: str, request: str) -> str:
    """Keep the request; its id."""
    approval_id, asker = new_id(clock, "approval"), principal.account_id
    approval_rows.insert(tx, id=approval_id, kind=kind, request=request, requested_by=asker)
    data = json.dumps({"approval_id": approval_id, "kind": kind, "request": json.loads(request)})
    tx.emit(actor=asker, action="approval.requested", account_id=asker, data=data)
    return approval_id
