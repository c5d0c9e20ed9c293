"""Reports that make no sense: about attempts a node never had, or contrary to what it said before.

They change nothing, so they must not cost anything either: each is counted, and an event says so now and then.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import NodePrincipal

logger = logging.getLogger(__name__)
FOREIGN = "report.foreign"
CONFLICT = "report.conflict"
Odd = tuple[str, str]  #: which of the two, and the attempt


async def note(hub: Hub, node: NodePrincipal, odd: Sequence[Odd]) -> None:
    """One event a kind, node and `odd_report_event_s`; the counters miss nothing."""
    now_ms, every_ms = hub.now_ms(), round(hub.settings.odd_report_event_s * 1000)
    for action, count in Counter(action for action, _ in odd).items():
        hub.settlement.odd_reports[action] += count
        logged_ms = hub.settlement.odd_reports_logged.get((node.node_id, action))
        if logged_ms is not None and now_ms - logged_ms < every_ms:
            continue
        hub.settlement.odd_reports_logged[node.node_id, action] = now_ms  # before anything is waited for
        first = next(attempt for kind, attempt in odd if kind == action)
        logger.warning("%s: %d from node %s, such as %s", action, count, node.node_id, first)
        event = {"action": action, "attempt_id": first, "data": json.dumps({"reports": count})}
        await hub.store.write(lambda tx, event=event: _emit(tx, node, event))  # type: ignore[misc]


def _emit(tx: Tx, node: NodePrincipal, event: dict[str, Any]) -> None:
    tx.emit(actor=node.node_id, node_id=node.node_id, **event)
