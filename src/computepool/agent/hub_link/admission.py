"""Admission of grants to this node. Nothing in the hub's reply is trusted before its signature was verified.

A grant that is not exactly what the hub signed is *refused*; a signed grant that the owner's rules do not allow is
*forbidden*.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import ValidationError

from computepool.agent.execution.specs import PreparedSpec, PreparedSpecCache
from computepool.agent.hub_link.identity import Identity
from computepool.agent.owner.manifest import demand
from computepool.agent.owner.owner_rules import OwnerRules
from computepool.core.errors import Unauthenticated
from computepool.core.isolation import Level
from computepool.protocol.gangs import NODES_MAX
from computepool.protocol.images.names import is_allowed
from computepool.protocol.jobs.jobs import JobSpec, spec_digest
from computepool.protocol.nodes.nodes import Grant, NextReply
from computepool.protocol.nodes.profile import Profile
from computepool.protocol.tokens import JobToken, verify_job_token


@dataclass(slots=True)
class Admission:
    accepted: list[tuple[Grant, PreparedSpec]] = field(default_factory=list)
    #: Attempt ids, each with a sentence that says why.
    refused: list[tuple[str, str]] = field(default_factory=list)
    forbidden: list[tuple[str, str]] = field(default_factory=list)


@dataclass(eq=False)
class Gatekeeper:
    identity: Identity
    profile: Profile  #: of this node
    rules: OwnerRules

    def __post_init__(self) -> None:
        self._level = Level.parse(self.profile.isolation)
        self._capacity = self.profile.capacity()
        self._specs = PreparedSpecCache(self._memory_mb)

    def update_rules(self, rules: str) -> None:
        self.rules.update(rules)
        self._specs.relimit()

    def _memory_mb(self, spec: JobSpec) -> int:
        """The memory that a job asks for. By default it gets its share of the node, within the owner's limit."""
        needs = spec.requirements()
        if not needs.ram_by_cores:
            return needs.ram_mb
        most, share = self.rules.ram_mb_max, needs.ram_on(self._capacity)
        return share if most is None else max(needs.ram_mb, min(share, most))

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
            if why := self._why_forbidden(grant, spec):
                admission.forbidden.append((grant.attempt_id, why))
            else:
                admission.accepted.append((grant, spec))
        return admission

    def _token(self, reply: NextReply, hub_now_s: int) -> JobToken:
        if reply.token is None:
            raise Unauthenticated("The hub granted work without a job token.")
        identity = self.identity
        return verify_job_token(reply.token, keys=identity.hub_keys, node_id=identity.node_id, now_s=hub_now_s)

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

    def _why_forbidden(self, grant: Grant, spec: PreparedSpec) -> str:
        """Empty if the owner's rules allow the job. The hub, which checks them too, may be wrong or compromised."""
        profile, level = self.profile, self._level
        trusted = {*profile.trusted, self.identity.owner}
        stranger = grant.account_id not in trusted and "*" not in trusted
        if stranger and level < Level.NAMESPACE:
            return (
                f"This node runs jobs unsandboxed ({level.label}) and its owner has not trusted "
                f"the account {grant.account_id}."
            )
        if spec.isolation is not None and level < spec.isolation:
            return f"The job asks for isolation {spec.isolation.label}; this node offers {level.label}."
        if grant.gpus and stranger and not profile.lends_gpus:
            return "This node lends its GPUs only to its owner and trusted accounts (pool node start --gpus lends them to all)."
        if any(not 0 <= index < len(profile.gpus) for index in grant.gpus):
            return f"The job was granted GPUs {grant.gpus}; this node has {len(profile.gpus)}."
        if grant.gang is not None and not (profile.gangs and 0 <= grant.item < grant.items <= NODES_MAX):
            return "The job runs on several nodes at once, and this node cannot join their network."
        if spec.net and not profile.network:
            return "The job needs network access, which this node does not give (pool node start --net)."
        source = spec.spec.requirements().image_source
        if source and not is_allowed(source, profile.registries):
            return f"The job needs an image from {source}, which this node does not use (pool node start --registries)."
        if grant.account_id == self.identity.owner:
            return ""
        return "; ".join(self.rules.refusals(demand(grant, spec)))
