"""Resubmission: a job again as a new one, with the same spec and terms, submitted and priced like any other."""

from __future__ import annotations

from pydantic import ValidationError

from computepool.core.errors import Conflict, NotFound
from computepool.core.jobs.lifecycle import CALLED
from computepool.core.money import terms as core_terms
from computepool.core.trust import verification as verifying
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import dependency_rows, rows as job_rows
from computepool.hub.jobs.comparison import Comparison
from computepool.hub.jobs.rows import FullJobRow
from computepool.protocol.jobs.jobs import CompareFunction, Item, JobSpec, ResubmitRequest, SubmitRequest

_LONGEST_TTL_S = 90 * 24 * 3600


async def request_for(hub: Hub, principal: Principal, job_id: str, *, request: ResubmitRequest) -> SubmitRequest:
    """The request that would submit the same job again. It names no group, because each key exists once in a group."""
    row = await hub.store.read(job_rows.get_job_full, job_id)
    access.check_owner(principal, None if row is None or row.hub_job is not None else row.account_id, what="job")
    assert row is not None
    if row.account_id != principal.account_id:
        raise Conflict("Only its submitter can resubmit a job: the new one is charged to whoever submits it.")
    how = Comparison.of(row)
    digests = [row.spec_digest] + ([] if how.function is None else [how.function])
    specs = await hub.jobs.specs.load(digests)
    if len(specs) < len(set(digests)):
        raise NotFound("The program of this job is no longer stored.")
    spec = specs[row.spec_digest].spec
    compare = None if how.function is None else specs[how.function].spec
    uses = await hub.store.read(dependency_rows.argument_ids, row.id) if spec.takes_results else []
    await hub.store.read(_check_kept, row, spec=spec, compare=compare)
    try:
        return SubmitRequest(
            spec=spec,
            items=[
                Item(
                    key=row.key,
                    payload=row.payload,
                    payload_artifact=row.payload_artifact,
                    bundled=max(1, row.bundled, row.carried or 1),
                    uses=uses,
                )
            ],
            priority=row.priority,
            retries=row.retries,
            ttl_s=min(_LONGEST_TTL_S, max(1.0, job_rows.ttl_ms_of(row) / 1000)),
            verify=row.verify,
            compare=None if how.within is None else str(how),
            compare_function=None if compare is None else _function(compare),
            **(_same_terms(row) if request.terms == "same" else {}),
        )
    except ValidationError as error:
        raise Conflict("This job was accepted under earlier rules and would be refused now.") from error


def _same_terms(row: FullJobRow) -> dict[str, int]:
    """Its ceiling; and its budget, if it had one: then its hold was less than the ceiling requires."""
    full = core_terms.agree(
        ceiling=row.ceiling, timeout_ms=row.longest_ms, items=1, budget=None, policy=verifying.parse(row.verify)
    )
    limited = 0 < row.hold < full.hold_each
    return {"max_price": row.ceiling} | ({"budget": row.hold} if limited else {})


def _function(spec: JobSpec) -> CompareFunction:
    return CompareFunction(function=spec.function, function_artifact=spec.function_artifact, python=spec.needs.python)


def _check_kept(connection: Connection, row: FullJobRow, *, spec: JobSpec, compare: JobSpec | None) -> None:
    """Raises Conflict if its arguments or files were deleted, which happens some time after a job has finished."""
    if row.dropped_at_ms is not None and spec.kind in CALLED and row.payload_artifact is None:
        raise Conflict("It cannot be resubmitted: its arguments are no longer stored. Send them with a new submission.")
    needed = [(f"its input {file.name}", file.digest) for file in spec.inputs]
    needed += [("its arguments", row.payload_artifact)] if row.payload_artifact else []
    for called in (spec, compare):
        if called is not None and called.function_artifact:
            needed.append(("its function", called.function_artifact))
    for what, digest in needed:
        if not artifact_rows.may_read(connection, digest=digest, account_id=row.account_id):
            raise Conflict(
                f"It cannot be resubmitted: {what} is no longer stored. Send it again with a new submission."
            )
