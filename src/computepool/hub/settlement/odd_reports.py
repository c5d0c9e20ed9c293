"""Reports that make no sense: about attempts that the node never had, or contrary to an earlier report.

They change nothing, so they must not cost much: each is counted, and an event is written only now and then.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import NodePrincipal

logger = logging.getLogger(__name__)
FOREIGN = "report.foreign"
CONFLICT = "report.conflict"
OddReport = tuple[str, str]  #: which of the two, and the attempt


async def note(hub: Hub, node: NodePrincipal, odd: Sequence[OddReport]) -> None:
    """One event per kind, node and `odd_report_event_s`; the counters include every report."""
    now_ms, every_ms = hub.now_ms(), round(hub.settings.odd_report_event_s * 1000)
    for action, count in Counter(action for action, _ in odd).items():
        hub.settlement.odd_reports[action] += count
        logged_ms = hub.settlement.odd_reports_logged.get((node.node_id, action))
        if logged_ms is not None and now_ms - logged_ms < every_ms:
            continue
        hub.settlement.odd_reports_logged[node.node_id, action] = now_ms  # before anything is awaited
        first = next(attempt for kind, attempt in odd if kind == action)
        logger.warning("%s: %d from node %s, such as %s", action, count, node.node_id, first)
        await hub.store.write(_emit, node_id=node.node_id, action=action, attempt_id=first, count=count)


def _emit(tx: Tx, *, node_id: str, action: str, attempt_id: str, count: int) -> None:
    tx.emit(actor=node_id, node_id=node_id, action=action, attempt_id=attempt_id, data={"reports": count})
