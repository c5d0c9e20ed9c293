"""`pool.nodes`: the machines of the pool, and the owner's wishes for them."""

from __future__ import annotations

from typing import TypeAlias

from computepool.core.resources import NodeState
from computepool.protocol.nodes.evidence import EvidencePage, EvidenceRow, NodeWork
from computepool.protocol.nodes.joining import (
    EnrolCodeReply,
    EnrolCodeRequest,
    JoinCodePage,
    JoinCodeView,
    JoinStatus,
)
from computepool.protocol.nodes.nodes import (
    NodePage,
    NodeStateRequest,
    NodeView,
    NodeWhyView,
    ReviewReply,
    ReviewRequest,
)
from computepool.protocol.nodes.rules import NodeRules, NodeRulesView
from computepool.protocol.references import ReferenceKind
from computepool.sdk.client.paging import pages
from computepool.sdk.client.references import find_id
from computepool.sdk.client.transport import Transport

Nodes: TypeAlias = list[NodeView]
JoinCodes: TypeAlias = list[JoinCodeView]
Outcomes: TypeAlias = list[EvidenceRow]
NODES_MAX = 100_000


class NodeApi:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, mine: bool = False, limit: int = 100) -> Nodes:
        params = {"mine": "true" if mine else None}
        found = pages(self._transport, "/nodes", NodePage, limit=limit, params=params)
        return [node for page in found for node in page.nodes][:limit]

    def get(self, node_id: str) -> NodeView:
        return self._transport.get(f"/nodes/{node_id}", NodeView)

    def find(self, word: str) -> NodeView:
        """By id, its beginning, or a name: your own node of that name, or the only one that there is."""
        return self.get(find_id(self._transport, ReferenceKind.NODE, word))

    def why(self, node_id: str) -> NodeWhyView:
        """Why a node gets no work, or which work it gets."""
        return self._transport.get(f"/nodes/{node_id}/why", NodeWhyView)

    def rules(self, node_id: str) -> NodeRulesView:
        """What others may do on a node of yours."""
        return self._transport.get(f"/nodes/{node_id}/rules", NodeRulesView)

    def set_rules(self, node_id: str, rules: NodeRules) -> NodeRulesView:
        """In place of those before. Holds for jobs that start from now on."""
        return self._transport.put(f"/nodes/{node_id}/rules", NodeRulesView, body=rules)

    def pause(self, node_id: str) -> NodeView:
        """No new jobs; running ones go on."""
        return self._become(node_id, NodeState.PAUSED)

    def resume(self, node_id: str) -> NodeView:
        return self._become(node_id, NodeState.ACTIVE)

    def drain(self, node_id: str) -> NodeView:
        """As pause, and the agent stops when its last job ends."""
        return self._become(node_id, NodeState.DRAINING)

    def revoke(self, node_id: str) -> NodeView:
        """Its key is no longer accepted."""
        return self._transport.post(f"/nodes/{node_id}/revoke", NodeView)

    def pardon(self, node_id: str) -> NodeView:
        """Take its ban and strikes back; for administrators."""
        return self._transport.post(f"/nodes/{node_id}/pardon", NodeView)

    def review(self, node_id: str, *, note: str = "") -> ReviewReply:
        """Ask an administrator to look at its ban or probation."""
        return self._transport.post(f"/nodes/{node_id}/review", ReviewReply, body=ReviewRequest(note=note))

    def code(self, *, hosts: int | None = 1, lifetime: float | None = None) -> EnrolCodeReply:
        """A code for a new machine, or for several hosts (None: as many as the hub lets); for a limited time."""
        body = EnrolCodeRequest(hosts=hosts, life_s=lifetime)
        return self._transport.post("/nodes/codes", EnrolCodeReply, body=body)

    def joined(self, code_id: str) -> JoinStatus:
        """What became of a code of yours: which machines joined, and how far each has come."""
        return self._transport.get(f"/nodes/codes/{code_id}", JoinStatus)

    def evidence(self, node_id: str, *, limit: int = 50) -> Outcomes:
        """The outcomes behind a node's reputation, newest first."""
        found = pages(self._transport, f"/nodes/{node_id}/evidence", EvidencePage, limit=limit)
        return [row for page in found for row in page.rows][:limit]

    def work(self, node_id: str) -> NodeWork:
        """What a node of yours holds now, since when, and what it pays."""
        return self._transport.get(f"/nodes/{node_id}/work", NodeWork)

    def codes(self) -> JoinCodes:
        """Your codes that several hosts may still join with; never the codes themselves."""
        return self._transport.get("/nodes/codes", JoinCodePage).codes

    def end_code(self, code_id: str) -> None:
        """Nobody joins with it any more."""
        self._transport.call("DELETE", f"/nodes/codes/{code_id}")

    def _become(self, node_id: str, state: NodeState) -> NodeView:
        body = NodeStateRequest(state=state.value)
        return self._transport.post(f"/nodes/{node_id}/state", NodeView, body=body)
