"""Numbers about the hub as a whole."""

from __future__ import annotations

from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.nodes import rows as node_rows
from computepool.hub.observability import vital_rows
from computepool.hub.settlement import odd_reports

#: name → help text of every metric
MEASURES = {
    "nodes_online": "Nodes that poll this hub",
    "nodes_available": "Of these, nodes that take new work",
    "attempts_live": "Attempts leased or running on these nodes",
    "polls_parked": "Long polls waiting",
    "jobs_queued": "Jobs waiting for a node",
    "jobs_leased": "Jobs given to a node",
    "jobs_running": "Jobs running",
    "backlog_delayed": "Jobs that wait for a later time, such as the end of a back-off",
    "events_last": "Number of the newest event",
    "reports_foreign": "Reports about attempts that the node never had, since this hub started",
    "reports_conflicting": "Reports that contradict an earlier one, since this hub started",
}

SIGN_IN_HINT = (
    "Open the sign-in link that `pool up` printed, or run `pool hub link` on the hub's machine for a new one. "
    "Without access to that machine, ask an administrator for a link."
)


async def measures(hub: Hub) -> dict[str, int]:
    states = await hub.store.read(job_rows.count_states)
    sessions = hub.nodes.registry.sessions
    return {
        "nodes_online": len(sessions),
        "nodes_available": sum(1 for session in sessions if hub.nodes.registry.fleet.is_available(session.node_id)),
        "attempts_live": sum(len(session.attempts) for session in sessions),
        "polls_parked": sum(1 for session in sessions if session.waiter is not None),
        "jobs_queued": states.get("queued", 0),
        "jobs_leased": states.get("leased", 0),
        "jobs_running": states.get("running", 0),
        "backlog_delayed": hub.jobs.queue.backlog.delayed,
        "events_last": await hub.store.read(event_rows.last_event),
        "reports_foreign": hub.settlement.odd_reports[odd_reports.FOREIGN],
        "reports_conflicting": hub.settlement.odd_reports[odd_reports.CONFLICT],
    }


async def has_anybody_signed_in(hub: Hub) -> bool:
    """Whether any person ever signed in. Once true, it stays true."""
    if not hub.identity.signed_in_before:
        hub.identity.signed_in_before = await hub.store.read(vital_rows.anybody_signed_in)
    return hub.identity.signed_in_before


async def count_enrolled(hub: Hub) -> int:
    return await hub.store.read(node_rows.count_nodes)
