"""Rows for tests: each has valid defaults, any column can be given, and the store's own functions write them."""

from __future__ import annotations

import itertools
from typing import Any

from computepool.core.ids import make_id
from computepool.core.jobs.lifecycle import AttemptState, JobKind, JobState, Reason
from computepool.hub.db.session import Tx
from computepool.hub.groups import rows as group_rows
from computepool.hub.identity import rows as account_rows
from computepool.hub.jobs import attempt_rows, dependency_rows, rows as job_rows
from computepool.hub.nodes import rows as node_rows
from computepool.protocol.jobs.jobs import JobSpec, spec_digest
from computepool.protocol.nodes.profile import Profile
from computepool.testing.node import PROFILE

LEASE_MS = 60_000
TTL_MS = 7 * 24 * 3600 * 1000
ROLES = ("submitter", "provider")

_numbers = itertools.count(1)


def next_id(prefix: str, now_ms: int = 0) -> str:
    """An id. Ids of one moment sort in the order of their creation."""
    return make_id(prefix, now_ms, next(_numbers).to_bytes(10, "big"))


def spec(**fields: Any) -> JobSpec:
    defaults: dict[str, Any] = {"kind": JobKind.COMMAND, "name": "true", "argv": ["/bin/true"]}
    return JobSpec(**(defaults | fields))


def profile(**fields: Any) -> Profile:
    return Profile.model_validate(PROFILE | fields)


def add_account(tx: Tx, *, name: str = "") -> str:
    account_id = next_id("acc", tx.now_ms)
    account_rows.insert_account(tx, account_id=account_id, name=name or account_id, roles=ROLES)
    return account_id


def add_node(tx: Tx, *, account_id: str = "", **columns: Any) -> str:
    """A node, with a new owner unless one is given."""
    node_id = next_id("node", tx.now_ms)
    defaults: dict[str, Any] = {
        "id": node_id,
        "name": "test-node",
        "account_id": account_id or add_account(tx),
        "public_key": f"key of {node_id}",
        "state": "active",
        "profile": profile().model_dump_json(),
        "boot_id": "boot",
    }
    node_rows.insert_node(tx, **(defaults | columns))
    return node_id


def add_group(tx: Tx, *, account_id: str, kind: str = "group") -> str:
    group_id = next_id("grp", tx.now_ms)
    group_rows.insert_group(tx, group_id=group_id, account_id=account_id, name="group", kind=kind)
    return group_id


def add_jobs(tx: Tx, count: int = 1, *, account_id: str = "", after: tuple[str, ...] = (), **columns: Any) -> list[str]:
    """Queued jobs of one command, in order, with a new owner unless one is given."""
    body = spec().body()
    digest = spec_digest(body)
    owner = account_id or add_account(tx)
    job_rows.insert_spec(tx, digest=digest, body=body, account_id=owner)
    defaults: dict[str, Any] = {
        "account_id": owner,
        "item_count": 1,
        "name": "true",
        "kind": JobKind.COMMAND.value,
        "spec_digest": digest,
        "priority": 0,
        "retries": 0,
        "state": JobState.QUEUED.value,
        "reason": (Reason.WAITING_FOR_JOBS if after else Reason.WAITING_FOR_NODE).value,
        "attempt_no": 0,
        "job_faults": 0,
        "node_faults": 0,
        "deps_pending": len(after),
        "ready_at_ms": tx.now_ms,
        "queued_at_ms": tx.now_ms,
        "created_at_ms": tx.now_ms,
        "expires_at_ms": tx.now_ms + TTL_MS,
    }
    ids = [next_id("job", tx.now_ms) for _ in range(count)]
    job_rows.insert_jobs(tx, [defaults | columns | {"id": id_, "item": item} for item, id_ in enumerate(ids)])
    dependency_rows.insert(tx, [{"job_id": id_, "after_id": other} for id_ in ids for other in after])
    return ids


def add_attempt(tx: Tx, job_id: str, *, node_id: str, **columns: Any) -> str:
    """Lease a queued job to a node like the dispatcher."""
    job = job_rows.lease_jobs(tx, [job_id], node_id=node_id)[job_id]
    attempt_id = attempt_rows.attempt_id(job_id, job.attempt_no)
    defaults: dict[str, Any] = {
        "id": attempt_id,
        "job_id": job_id,
        "number": job.attempt_no,
        "node_id": node_id,
        "owner_id": "",
        "lane": f"lane of {attempt_id}",
        "gpus": "",
        "state": AttemptState.LEASED.value,
        "reason": Reason.PLACED.value,
        "lease_until_ms": tx.now_ms + LEASE_MS,
        "leased_at_ms": tx.now_ms,
    }
    attempt_rows.insert_attempts(tx, [defaults | columns])
    return attempt_id


def report_row(
    attempt_id: str, *, now_ms: int, state: AttemptState = AttemptState.SUCCEEDED, **columns: Any
) -> dict[str, Any]:
    """The row that a report writes into its attempt (see hub/jobs/attempt_rows.py)."""
    empty = "error usage billed_ms lane_billed_ms charge outcome result result_artifact outputs printed printed_chars"
    defaults: dict[str, Any] = {
        **{f"new_{name}": None for name in empty.split()},
        "attempt": attempt_id,
        "new_state": state.value,
        "new_reason": Reason.COMPLETED.value,
        "new_report_digest": "digest",
        "new_exit_code": 0,
        "new_started_at_ms": now_ms,
        "new_finished_at_ms": now_ms,
        "new_streak": 0,
        "new_items_failed": 0,
    }
    return defaults | columns


def acceptance_row(job: job_rows.JobRow, *, node_id: str, now_ms: int, **columns: Any) -> dict[str, Any]:
    """The row that an accepted result writes into its job (see hub/jobs/rows.py)."""
    defaults: dict[str, Any] = {
        "job": job.id,
        "account": job.account_id,
        "new_reason": Reason.COMPLETED.value,
        "new_accepted_attempt": 1,
        "new_node_id": node_id,
        "new_started_at_ms": now_ms,
        "new_finished_at_ms": now_ms,
        "new_exit_code": 0,
        "new_result": "1",
        "new_result_artifact": None,
        "new_charge": 0,
        "new_verdict": "unchecked",
        "new_held_until_ms": None,
        "new_items_failed": 0,
    }
    return defaults | columns
