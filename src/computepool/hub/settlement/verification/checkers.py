"""Owners who could check a result: those who had no hand in it, and had not disagreed about such results before.

Two owners whose nodes came to different results are a tie, and without a third nobody can tell who is right. A program
whose results tie again and again differs by nature, or somebody is always wrong: asking the same two once more proves
neither. So nobody is blamed, nobody is asked again, and pay is held until a further owner could break the tie.
"""

from __future__ import annotations

from collections.abc import Sequence

from computepool.hub.context import Hub, Tie
from computepool.hub.db.session import Tx
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.memory.shapes import shape_of
from computepool.hub.nodes import known_nodes
from computepool.protocol.jobs.jobs import JobSpec

_PROGRAMS_MAX = 10_000


def could_check(hub: Hub, tx: Tx, job: JobRow, *, owners: frozenset[str]) -> bool:
    """Whether a node of an owner beside these could run the job as it was submitted, if it had nothing else to do."""
    known = hub.specs.peek(job.spec_digest)
    if known is None:
        body = job_rows.get_specs(tx.connection, [job.spec_digest])[job.spec_digest]
        requirements = JobSpec.model_validate_json(body).requirements()
    else:
        requirements = known.requirements
    return known_nodes.could_others(hub, shape_of(requirements, job.account_id, ceiling=job.ceiling), owners)


def note_tie(hub: Hub, job: JobRow, owners: Sequence[str]) -> None:
    """Forgotten at a restart: that costs a few runs."""
    tie = hub.ties.setdefault((job.account_id, job.spec_digest), Tie())
    tie.count += 1
    tie.owners.update(owners)
    if len(hub.ties) > _PROGRAMS_MAX:
        hub.ties.pop(next(iter(hub.ties)))


def note_agreement(hub: Hub, job: JobRow) -> None:
    hub.ties.pop((job.account_id, job.spec_digest), None)


def tied_owners(hub: Hub, account_id: str, spec_digest: str) -> frozenset[str]:
    """Owners whose words about this program have tied too often to be asked for."""
    tie = hub.ties.get((account_id, spec_digest))
    if tie is None or tie.count < hub.settings.verify_ties_max:
        return frozenset()
    return frozenset(tie.owners)
