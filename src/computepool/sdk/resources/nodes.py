"""`pool.nodes`: list all nodes, and manage your own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from computepool.core.resources import NodeState
from computepool.protocol.nodes import nodes as wire
from computepool.protocol.nodes.evidence import EvidencePage, EvidenceRow, NodeWork
from computepool.protocol.nodes.joining import EnrolCodeReply, EnrolCodeRequest, JoinCodePage, JoinCodeView, JoinStatus
from computepool.protocol.nodes.rules import NodeRules, NodeRulesView
from computepool.protocol.references import ReferenceKind
from computepool.sdk.client.resource import Resource, find_id
from computepool.sdk.client.sizes import words

Nodes: TypeAlias = list[wire.NodeView]
JoinCodes: TypeAlias = list[JoinCodeView]
Outcomes: TypeAlias = list[EvidenceRow]
NODES_MAX = 100_000


class NodeApi(Resource):
    def list(self, *, mine: bool = False, software: str | Sequence[str] = (), limit: int = 100) -> Nodes:
        """`software`: packages such as "torch>=2.4", all of which one environment of the node has."""
        params = {"mine": mine or None, "software": words(software) or None}
        return list(self._each("/nodes", wire.NodePage, lambda page: page.nodes, limit=limit, params=params))

    def get(self, node_id: str) -> wire.NodeView:
        return self._transport.get(f"/nodes/{node_id}", wire.NodeView)

    def find(self, word: str) -> wire.NodeView:
        """By ID, ID prefix or name; your own nodes take precedence."""
        return self.get(find_id(self._transport, ReferenceKind.NODE, word))

    def why(self, node_id: str) -> wire.NodeWhyView:
        """Explain why a node gets no jobs, or which jobs it gets."""
        return self._transport.get(f"/nodes/{node_id}/why", wire.NodeWhyView)

    def rules(self, node_id: str) -> NodeRulesView:
        """What others may run on one of your nodes."""
        return self._transport.get(f"/nodes/{node_id}/rules", NodeRulesView)

    def set_rules(self, node_id: str, rules: NodeRules) -> NodeRulesView:
        """Replace the rules. They apply to jobs that start from now on."""
        return self._transport.put(f"/nodes/{node_id}/rules", NodeRulesView, body=rules)

    def pause(self, node_id: str) -> wire.NodeView:
        """Take no new jobs; running ones continue."""
        return self._become(node_id, NodeState.PAUSED)

    def resume(self, node_id: str) -> wire.NodeView:
        return self._become(node_id, NodeState.ACTIVE)

    def drain(self, node_id: str) -> wire.NodeView:
        """Like pause, but the agent also stops when its last job ends."""
        return self._become(node_id, NodeState.DRAINING)

    def revoke(self, node_id: str) -> wire.NodeView:
        """Revoke its key permanently."""
        return self._transport.post(f"/nodes/{node_id}/revoke", wire.NodeView)

    def pardon(self, node_id: str) -> wire.NodeView:
        """Lift its ban and clear its violations (admin only)."""
        return self._transport.post(f"/nodes/{node_id}/pardon", wire.NodeView)

    def review(self, node_id: str, *, note: str = "") -> wire.ReviewReply:
        """Ask an administrator to review its ban or probation."""
        return self._transport.post(f"/nodes/{node_id}/review", wire.ReviewReply, body=wire.ReviewRequest(note=note))

    def code(self, *, hosts: int | None = 1, lifetime: float | None = None) -> EnrolCodeReply:
        """Create a code for `hosts` new machines (None: as many as the hub allows), valid for `lifetime` seconds."""
        body = EnrolCodeRequest(hosts=hosts, lifetime_s=lifetime)
        return self._transport.post("/nodes/codes", EnrolCodeReply, body=body)

    def code_status(self, code_id: str) -> JoinStatus:
        """The machines that joined with a code, and the progress of each."""
        return self._transport.get(f"/nodes/codes/{code_id}", JoinStatus)

    def evidence(self, node_id: str, *, limit: int = 50) -> Outcomes:
        """The outcomes behind a node's reputation, newest first."""
        return list(self._each(f"/nodes/{node_id}/evidence", EvidencePage, lambda page: page.rows, limit=limit))

    def work(self, node_id: str) -> NodeWork:
        """The jobs running on one of your nodes, with their start and earnings."""
        return self._transport.get(f"/nodes/{node_id}/work", NodeWork)

    def codes(self) -> JoinCodes:
        """Your open codes for several hosts, without the codes themselves."""
        return self._transport.get("/nodes/codes", JoinCodePage).codes

    def end_code(self, code_id: str) -> None:
        """Revoke a code."""
        self._transport.call("DELETE", f"/nodes/codes/{code_id}")

    def _become(self, node_id: str, state: NodeState) -> wire.NodeView:
        body = wire.NodeStateRequest(state=state.value)
        return self._transport.post(f"/nodes/{node_id}/state", wire.NodeView, body=body)
