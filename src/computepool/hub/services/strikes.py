"""What the owner of a node is told when one of its results was proven wrong. What follows for it is in core/reputation.py."""

from __future__ import annotations

import json
from typing import Any

from computepool.core.reputation import NEWCOMER, REFUTED_ACTION, STRIKES_MAX, Reputation, read, update
from computepool.hub.store import nodes as node_rows
from computepool.hub.store import reputations as reputation_rows
from computepool.hub.store.session import Tx

STRUCK_ACTION = "node.struck"
BANNED_ACTION = "node.banned"


def tell_owner(tx: Tx, node_id: str) -> None:
    """Once for every strike, in its transaction: the strike's own event is for the job's submitter.

    Reputations are counted when the transaction ends, so this counts ahead of them. Should another unit of the very same
    commit strike the node too, a ban may be told as a strike; what the node may do is not decided here.
    """
    node = node_rows.get_node(tx.connection, node_id)
    if node is None:
        return
    told = sum(1 for event in tx.events if _about(event, node_id, STRUCK_ACTION, BANNED_ACTION))
    wrong = [event for event in tx.events if _about(event, node_id, REFUTED_ACTION)]
    if told >= len(wrong):
        return
    before = reputation_rows.load(tx.connection, [node_id]).get(node_id, NEWCOMER)
    for event in wrong[:told]:
        before = _after(before, event, owner=node.account_id)
    now = _after(before, wrong[told], owner=node.account_id)
    banned = bool(now.banned_at_ms and not before.banned_at_ms)
    data = {
        "sentence": sentence(node.name, now, tx.now_ms, banned=banned),
        "job_id": wrong[told]["job_id"],
    }
    tx.emit(
        actor="hub",
        action=BANNED_ACTION if banned else STRUCK_ACTION,
        account_id=node.account_id,
        node_id=node_id,
        data=json.dumps(data),
    )


def _about(event: dict[str, Any], node_id: str, *actions: str) -> bool:
    return event["node_id"] == node_id and event["action"] in actions


def _after(before: Reputation, event: dict[str, Any], *, owner: str) -> Reputation:
    outcome = read(event, owner=owner)
    return before if outcome is None else update(before, outcome)


def sentence(name: str, known: Reputation, now_ms: int, *, banned: bool) -> str:
    wrong = f"A result of {name} was proven wrong by nodes of other owners; it is not paid."
    if banned:
        return (
            f"{wrong} That is one too many: the node works for you alone from now on. If its memory was broken, or the "
            "program cannot be compared, ask an administrator for a pardon."
        )
    if known.banned(now_ms):
        return f"{wrong} The node is banned already."
    return (
        f"{wrong} {STRIKES_MAX} within 30 days, about jobs of more than one submitter, end its work for others; "
        "look at its memory and its cooling."
    )
