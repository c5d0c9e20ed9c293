"""Admission of grants to this node. Nothing in the hub's reply is trusted before its signature was verified.

A grant that is not exactly what the hub signed is *refused*; a signed grant that the owner's rules forbid *fails*,
whatever the hub thinks of this node.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pydantic import ValidationError

from computepool.agent.execution.specs import PreparedSpec, PreparedSpecCache
from computepool.agent.hub_link.identity import Identity
from computepool.agent.owner.manifest import demand
from computepool.agent.owner.owner_rules import OwnerRules
from computepool.core.errors import Unauthenticated
from computepool.core.isolation import Level
from computepool.core.resources import Capacity
from computepool.protocol.jobs.jobs import JobSpec, spec_digest
from computepool.protocol.nodes.nodes import Grant, NextReply
from computepool.protocol.tokens import JobToken, verify_job_token


@dataclass(slots=True)
class Admission:
    accepted: list[tuple[Grant, PreparedSpec]] = field(default_factory=list)
    #: Attempt ids with the sentence that says why.
    refused: list[tuple[str, str]] = field(default_factory=list)
    forbidden: list[tuple[str, str]] = field(default_factory=list)


class Gatekeeper:
    def __init__(
        self,
        identity: Identity,
        *,
        level: Level,
        trusted: Collection[str],
        cards: int,
        network: bool = False,
        lends_gpus: bool = False,
        rules: OwnerRules | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        self._identity = identity
        self._level = level
        self._trusted = frozenset(trusted) | {identity.owner}
        self._cards = cards
        self._network = network
        self._lends_gpus = lends_gpus
        self._rules = rules
        self._capacity = capacity
        self._specs = PreparedSpecCache(self._memory_mb)

    @property
    def rules_digest(self) -> str:
        """Digest of the owner's rules in force."""
        return "" if self._rules is None else self._rules.digest

    def follow(self, rules: str) -> None:
        if self._rules is not None:
            self._rules.follow(rules)
            self._specs.relimit()

    def _memory_mb(self, spec: JobSpec) -> int:
        """The memory that a job asks for. By default it gets its share of the node, but not more than the owner
        lets any job ask for."""
        wanted = spec.requirements()
        if not wanted.ram_by_cores or self._capacity is None:
            return wanted.ram_mb
        most = None if self._rules is None else self._rules.ram_mb_max
        share = wanted.ram_on(self._capacity)
        return share if most is None else max(wanted.ram_mb, min(share, most))

    def admit(self, reply: NextReply, *, hub_now_s: int) -> Admission:
        admission = Admission()
        if not reply.grants:
            return admission
        try:
            token = self._token(reply, hub_now_s)
        except Unauthenticated as error:
            admission.refused = [(grant.attempt_id, error.detail) for grant in reply.grants]
            return admission
        for grant in reply.grants:
            if token.grants.get(grant.attempt_id) != grant.digest():
                admission.refused.append((grant.attempt_id, "The grant is not what the hub signed."))
                continue
            spec = self._spec(grant.spec, reply)
            if spec is None:
                problem = "The job spec is missing, changed or unreadable."
                admission.refused.append((grant.attempt_id, problem))
                continue
            forbidden = self._forbidden(grant, spec)
            if forbidden:
                admission.forbidden.append((grant.attempt_id, forbidden))
            else:
                admission.accepted.append((grant, spec))
        return admission

    def _token(self, reply: NextReply, hub_now_s: int) -> JobToken:
        if reply.token is None:
            raise Unauthenticated("The hub granted work without a job token.")
        identity = self._identity
        return verify_job_token(
            reply.token, keys=identity.hub_keys, node_id=identity.node_id, now_s=hub_now_s
        )

    def _spec(self, digest: str, reply: NextReply) -> PreparedSpec | None:
        known = self._specs.get(digest)
        if known is not None:
            return known
        body = reply.specs.get(digest)
        if body is None or spec_digest(body) != digest:
            return None
        try:
            return self._specs.add(digest, body)
        except ValidationError:
            return None

    def _forbidden(self, grant: Grant, spec: PreparedSpec) -> str:
        """Why the owner's rules forbid the job. Checked here too, because the hub may be wrong or compromised."""
        if (
            self._level < Level.NAMESPACE
            and grant.account_id not in self._trusted
            and "*" not in self._trusted
        ):
            return (
                f"This node runs jobs unsandboxed ({self._level.label}) and its owner has not trusted "
                f"the account {grant.account_id}."
            )
        if spec.isolation is not None and self._level < spec.isolation:
            return f"The job asks for isolation {spec.isolation.label}; this node offers {self._level.label}."
        stranger = grant.account_id not in self._trusted and "*" not in self._trusted
        if grant.gpus and stranger and not self._lends_gpus:
            return "This node's cards are for its owner and trusted accounts (lend them with pool node start --gpus)."
        if any(not 0 <= index < self._cards for index in grant.gpus):
            return f"The job was granted cards {grant.gpus}; this node has {self._cards}."
        if spec.net and not self._network:
            return "The job needs network access, which this node does not give (pool node start --net)."
        if self._rules is not None and grant.account_id != self._identity.owner:
            broken = self._rules.refusals(demand(grant, spec))
            return "; ".join(broken)
        return ""
