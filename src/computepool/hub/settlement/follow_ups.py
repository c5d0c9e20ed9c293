"""Follow-ups, in the same transaction, of hub jobs that are over and from results that were proven wrong.

Called at the end of every unit that may end a job: what it does can end or begin others, so it goes on until nothing
is left to do.
"""

from __future__ import annotations

from computepool.hub.db.session import Tx
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs import transitions
from computepool.hub.jobs.transitions import Effects, Settlement
from computepool.hub.settlement import hub_jobs
from computepool.hub.settlement.verification import compare_jobs, probes, recheck_rows, rechecks, violations
from computepool.hub.snapshot import Snapshot


def follow(tx: Tx, snapshot: Snapshot, effects: Effects) -> Settlement:
    while effects.hub_jobs or effects.penalised or effects.ended_parents:
        if effects.ended_parents:
            parents, effects.ended_parents = effects.ended_parents, []
            transitions.end_children(tx, parents, effects)
            continue
        if effects.penalised:
            node_id = effects.penalised.pop(0)
            violations.notify_owner(tx, node_id)
            rechecks.start(tx, snapshot, node_id, effects=effects)
            continue
        hub_job = job_rows.get_job_full(tx.connection, effects.hub_jobs.pop(0))
        assert hub_job is not None
        kind, _, _ = hub_jobs.parts(hub_job.hub_job)
        if kind == compare_jobs.KIND:
            compare_jobs.on_answered(tx, snapshot, hub_job, effects=effects)
        elif kind == recheck_rows.KIND:
            rechecks.on_ended(tx, snapshot, hub_job, effects=effects)
        else:
            probes.on_ended(tx, snapshot, hub_job)
    return effects.settlement()
