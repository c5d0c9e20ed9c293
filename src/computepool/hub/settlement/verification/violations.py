"""Violations: results proven wrong, as events, with a sentence for the node's owner. The rules: core/trust/violations.py."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import REFUTED_ACTION, Reputation, read, refutation_data, update
from computepool.core.trust.violations import PROBES_RIGHT, VIOLATIONS_MAX
from computepool.hub.db.session import Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.trust import reputation_rows

PENALISED_ACTION = "node.penalised"
BANNED_ACTION = "node.banned"
PROBATION_ACTION = "node.probation"
CLEARED_ACTION = "node.cleared"
#: Owners who came to the other result, not counting the submitter.
_JUDGES_MIN = 2


def evidence(tx: JobTx, job: JobRow, *, refuters: Iterable[str]) -> str:
    """Whose job it was, and which owners refuted the result: that decides how much it counts against the node."""
    submitter = job.on_behalf_of or job.account_id
    account = account_rows.get_account(tx.connection, submitter)
    age_ms = 0 if account is None else tx.now_ms - account.created_at_ms
    others = set(refuters) - {submitter}
    old = age_ms >= tx.snapshot.settings.ban_submitter_days * DAY_MS and len(others) >= _JUDGES_MIN
    return refutation_data(others, submitter=submitter, old=old)


def notify_owner(tx: Tx, node_id: str) -> None:
    """Once for every violation, in its transaction: the violation's own event is for the job's submitter.

    Reputations are updated when the transaction ends, so this computes the update in advance. If another unit of the same
    commit also penalises the node, a ban may be announced as a mere violation; what the node may do is not decided here.
    """
    node = node_rows.get_node(tx.connection, node_id)
    if node is None:
        return
    reported = sum(
        1 for event in tx.events if _is_about(event, node_id, PENALISED_ACTION, BANNED_ACTION, PROBATION_ACTION)
    )
    wrong = [event for event in tx.events if _is_about(event, node_id, REFUTED_ACTION)]
    if reported >= len(wrong):
        return
    before = reputation_rows.of_node(tx.connection, node_id)
    for event in wrong[:reported]:
        before = _after(before, event, owner=node.account_id)
    now = _after(before, wrong[reported], owner=node.account_id)
    _emit(tx, node, action=_new_status(before, now) or PENALISED_ACTION, now=now, job_id=wrong[reported]["job_id"])


def notify_probed(tx: Tx, node_id: str, event: dict[str, Any]) -> None:
    """Announce what the result of a test decides about a node on probation, if anything."""
    node = node_rows.get_node(tx.connection, node_id)
    if node is None:
        return
    before = reputation_rows.of_node(tx.connection, node_id)
    now = _after(before, event, owner=node.account_id)
    if (action := _new_status(before, now)) is not None:
        _emit(tx, node, action=action, now=now)


def _new_status(before: Reputation, now: Reputation) -> str | None:
    if now.banned_at_ms and not before.banned_at_ms:
        return BANNED_ACTION
    if now.probation_at_ms and not before.probation_at_ms:
        return PROBATION_ACTION
    return CLEARED_ACTION if now.cleared_at_ms > before.cleared_at_ms else None


def _emit(tx: Tx, node: NodeRow, *, action: str, now: Reputation, job_id: str | None = None) -> None:
    data = {"sentence": sentence(node.name, now, tx.now_ms, action=action), "job_id": job_id}
    tx.emit(actor="hub", action=action, account_id=node.account_id, node_id=node.id, data=json.dumps(data))


def _is_about(event: dict[str, Any], node_id: str, *actions: str) -> bool:
    return event["node_id"] == node_id and event["action"] in actions


def _after(before: Reputation, event: dict[str, Any], *, owner: str) -> Reputation:
    outcome = read(event, owner=owner)
    return before if outcome is None else update(before, outcome)


def sentence(name: str, known: Reputation, now_ms: int, *, action: str) -> str:
    if action == CLEARED_ACTION:
        return (
            f"{name} was right in {PROBES_RIGHT} tests: it is no longer on probation. The accusations may have been made up; "
            "an administrator can see by whom."
        )
    wrong = f"A result of {name} was proven wrong; it is not paid."
    if action == BANNED_ACTION:
        return (
            f"{name} was wrong in a test, or again after it was cleared: from now on it runs only your own jobs. If its memory "
            "was faulty, or the programs cannot be compared, ask for a review: pool node review."
        )
    if action == PROBATION_ACTION:
        return (
            f"{wrong} The node is on probation: all its results are checked, and some jobs are tests whose results are known. "
            "If it fails them, it gets no more jobs of others; check its memory and its cooling."
        )
    if known.is_banned(now_ms):
        return f"{wrong} The node is banned already."
    return (
        f"{wrong} {VIOLATIONS_MAX} within 30 days, on jobs of more than one submitter, put it on probation; "
        "check its memory and its cooling."
    )
