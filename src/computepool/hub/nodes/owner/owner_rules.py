"""Owners' rules for other people's jobs on their nodes: stored, applied to the fleet, and sent to the agents, which enforce
them as well."""

from __future__ import annotations

from collections.abc import Iterable

from computepool.core.errors import NotFound
from computepool.core.words import memory_size
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.protocol.nodes.rules import NodeRules, NodeRulesView, rules_digest


async def get(hub: Hub, principal: Principal, node_id: str) -> NodeRulesView:
    row = await hub.store.read(_own, principal, node_id)
    return _view(node_id, rules_of(row))


async def set_(hub: Hub, principal: Principal, node_id: str, *, rules: NodeRules) -> NodeRulesView:
    """Replace the rules. They apply to placements from now on; running jobs continue."""

    def unit(tx: Tx) -> NodeRules:
        row = _own(tx.connection, principal, node_id)
        known = _with_ids(tx.connection, rules)
        before, after = rules_of(row).body(), known.body()
        if before != after:
            node_rows.set_node(tx, node_id, rules=after)
            node_rows.emit_change(tx, row, actor=principal.account_id, action="node.rules", before=before, after=after)
        return known

    known = await hub.store.write(unit)
    _push(hub, node_id, known)
    hub.jobs.queue.wake()
    return _view(node_id, known)


def follow(hub: Hub, row: NodeRow) -> None:
    """Apply the rules of a node's row."""
    _push(hub, row.id, rules_of(row))


def _push(hub: Hub, node_id: str, rules: NodeRules) -> None:
    session = hub.nodes.registry.get(node_id)
    if session is None:
        return
    hub.nodes.registry.fleet.set_rules(node_id, rules.rules())
    body = rules.body()
    if session.rules != body:
        session.rules, session.rules_digest = body, rules_digest(body)
        session.wake()


def _own(connection: Connection, principal: Principal, node_id: str) -> NodeRow:
    return access.require_owned(principal, node_rows.get_node(connection, node_id), what="node")


def rules_of(row: NodeRow) -> NodeRules:
    return NodeRules() if row.rules is None else NodeRules.model_validate_json(row.rules)


def _with_ids(connection: Connection, rules: NodeRules) -> NodeRules:
    """Rules with ids instead of names, which may pass to another account, in a fixed order, so that equal rules are equal
    texts."""
    return rules.model_copy(
        update={
            "allow_submitters": _ids(connection, rules.allow_submitters, field="allow_submitters"),
            "deny_submitters": _ids(connection, rules.deny_submitters, field="deny_submitters"),
            "allow_labels": sorted({label.lower() for label in rules.allow_labels}),
            "deny_labels": sorted({label.lower() for label in rules.deny_labels}),
        }
    )


def _ids(connection: Connection, names: Iterable[str], *, field: str) -> list[str]:
    found = set()
    for name in names:
        row = account_rows.find_account(connection, name)
        if row is None:
            # A rule with a wrong name would do nothing, and nobody would notice.
            raise NotFound(f"There is no account {name!r}; use its id or its exact name.", field=field)
        found.add(row.id)
    return sorted(found)


def _view(node_id: str, rules: NodeRules) -> NodeRulesView:
    return NodeRulesView(node_id=node_id, rules=rules, sentences=list(_sentences(rules)))


def _sentences(rules: NodeRules) -> Iterable[str]:
    for names, what in (
        (rules.allow_submitters, "Only jobs of"),
        (rules.deny_submitters, "No jobs of"),
        (rules.allow_labels, "Only jobs labelled"),
        (rules.deny_labels, "No jobs labelled"),
    ):
        if names:
            yield f"{what} {' or '.join(names)}."
    if not rules.network:
        yield "No jobs with network."
    if not rules.gpus:
        yield "No jobs with a GPU."
    if rules.minutes_max is not None:
        yield f"Jobs of at most {rules.minutes_max} minutes."
    if rules.ram_mb_max is not None:
        yield f"Jobs of at most {memory_size(rules.ram_mb_max)} RAM."
    if rules.disk_mb_max is not None:
        yield f"Jobs of at most {memory_size(rules.disk_mb_max)} disk."
    if rules.score_min:
        yield f"Submitters with a score of at least {rules.score_min:g}."
