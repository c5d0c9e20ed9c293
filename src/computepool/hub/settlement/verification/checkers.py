"""Owners who could check a result: those who had no hand in it, and had not disagreed about such results before.

Two owners whose nodes came to different results are a tie, and without a third nobody can tell who is right. A program
whose results tie again and again differs by nature, or somebody is always wrong: asking the same two once more proves
neither. So nobody is blamed, nobody is asked again, and pay is held until a further owner could break the tie.
"""

from __future__ import annotations

from computepool.hub.db.session import Tx
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.nodes.known_nodes import AbleOwners
from computepool.hub.snapshot import Snapshot
from computepool.protocol.jobs.jobs import JobSpec


def could_check(tx: Tx, snapshot: Snapshot, job: JobRow, *, owners: frozenset[str]) -> bool:
    """Whether a node of an owner beside these could run the job as it was submitted, if it had nothing else to do."""
    known = snapshot.specs.peek(job.spec_digest)
    if known is None:
        body = job_rows.get_specs(tx.connection, [job.spec_digest])[job.spec_digest]
        requirements = JobSpec.model_validate_json(body).requirements()
    else:
        requirements = known.requirements
    return not snapshot.ask(AbleOwners(requirements, job.account_id, job.ceiling)) <= owners
