"""Enrolment of a machine as a node, by a code and the node's own key. A lost answer can be requested again."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from computepool.core import mesh_version
from computepool.core.errors import (
    BadRequest,
    ComputePoolError,
    Conflict,
    Forbidden,
    NotFound,
    RateLimited,
    Unauthenticated,
)
from computepool.core.placement.hosts import name_problem
from computepool.core.resources import NodeState
from computepool.core.trust.reputation import ENROLLED_ACTION, heir_of
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import authenticator, rows as account_rows, sign_in
from computepool.hub.identity.access import NodePrincipal, Principal, Role
from computepool.hub.identity.rows import AccountRow, CodeRow
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.joining import progress
from computepool.hub.nodes.joining.progress import CODE_ID, ENROL, JOIN
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.snapshot import take
from computepool.hub.trust import reputation
from computepool.protocol.base import PROTOCOL
from computepool.protocol.hub_keys import rekey_text
from computepool.protocol.nodes.joining import EnrolCodeReply, EnrolCodeRequest, JoinCodePage, JoinCodeView
from computepool.protocol.nodes.nodes import RegisterReply, RegisterRequest, RekeyReply, RekeyRequest
from computepool.protocol.nodes.profile import MESH_FIELD, Profile
from computepool.protocol.tokens import is_signed_by, public_key

Enrolled: TypeAlias = tuple[str, str]  #: the node, and its owner
_DAY_MS = 24 * 3600 * 1000


async def enrol_code(hub: Hub, principal: Principal, request: EnrolCodeRequest) -> EnrolCodeReply:
    settings = hub.settings
    hosts = settings.join_code_hosts if request.hosts is None else request.hosts
    many = hosts > 1
    if hosts > settings.join_code_hosts:
        raise BadRequest(f"A code of this hub is valid for {settings.join_code_hosts} hosts at most.", field="hosts")
    longest_s = settings.join_code_lifetime_s if many else settings.enrol_code_lifetime_s
    lifetime_s = min(longest_s, request.lifetime_s or longest_s)
    purpose, snapshot = JOIN if many else ENROL, take(hub)

    def unit(tx: Tx) -> tuple[str, int]:
        code, expires_at_ms = sign_in.issue_code(
            tx,
            snapshot,
            purpose=purpose,
            account_id=principal.account_id,
            lifetime_s=lifetime_s,
            uses_max=hosts if many else None,
        )
        tx.emit_own(principal.account_id, "node.code_issued", code_id=snapshot.secrets.digest(code)[:CODE_ID])
        return code, expires_at_ms

    code, expires_at_ms = await hub.store.write(unit)
    return EnrolCodeReply(
        id=hub.identity.secrets.digest(code)[:CODE_ID],
        code=code,
        expires_at_ms=expires_at_ms,
        command=progress.start_command(hub, code),
        hosts=hosts,
        commands=progress.commands(hub, code),
        warning=progress.unreachable(hub),
    )


async def join_codes(hub: Hub, principal: Principal) -> JoinCodePage:
    """The account's join codes that can still be used."""
    rows = await hub.store.read(account_rows.list_join_codes, account_id=principal.account_id, now_ms=hub.now_ms())
    return JoinCodePage(
        codes=[
            JoinCodeView(id=row.hash[:CODE_ID], expires_at_ms=row.expires_at_ms, used=row.uses, hosts=row.uses_max)
            for row in rows
        ]
    )


async def end_join_code(hub: Hub, principal: Principal, code_id: str) -> None:
    """Revoke a code. Hosts that joined with it stay."""

    def unit(tx: Tx) -> None:
        whose = None if principal.is_admin else principal.account_id
        code = account_rows.find_code(tx.connection, code_id, account_id=whose, purposes=(ENROL, JOIN))
        if len(code_id) != CODE_ID or code is None or not _works(code, tx.now_ms):
            raise NotFound("You have no such open code; `pool node codes` lists them.")
        account_rows.end_code(tx, code.hash)
        tx.emit_own(principal.account_id, "node.code_ended", code_id=code_id)

    await hub.store.write(unit)


def _works(code: CodeRow, now_ms: int) -> bool:
    left = code.used_at_ms is None if code.uses_max is None else code.uses < code.uses_max
    return bool(left and code.expires_at_ms > now_ms)


async def register(hub: Hub, request: RegisterRequest) -> RegisterReply:
    if request.protocol != PROTOCOL:
        raise BadRequest(
            f"This hub uses protocol {PROTOCOL}, and the agent {request.protocol}; install the same version of both.",
            field="protocol",
        )
    if not is_signed_by(public_key(request.public_key), request.proof, request.code.encode()):
        raise Forbidden("The proof does not match the public key.")
    check_profile(hub, request.profile)
    enrolled, owner = await hub.nodes.enrolling.ask(request.public_key, request, partial(_enrol_all, hub))
    return RegisterReply(node_id=enrolled, owner=owner, hub_keys=hub.identity.secrets.published.keys)


def check_profile(hub: Hub, profile: Profile) -> None:
    """Check a node's name and version whenever it sends its profile: both may have changed while it was away."""
    if problem := name_problem(profile.name):
        raise BadRequest(f"A node cannot be named {profile.name!r}: {problem}.", field="profile.name")
    if (reason := mesh_version.refusal(hub=hub.settings.mesh_version, node=profile.mesh_version)) is not None:
        raise Conflict(reason, field=MESH_FIELD)


async def _enrol_all(hub: Hub, requests: list[RegisterRequest]) -> list[Enrolled | Exception]:
    registry = hub.nodes.registry
    most, offline_ms = hub.settings.enrolments_per_day, registry.lease_ms
    # Only the names of hosts with a URL are compared with those online, who may be many.
    has_url = any(request.profile.url for request in requests)
    online = frozenset(session.node_id for session in (registry.sessions if has_url else ()))
    given = [(request, new_id(hub.clock, "node"), hub.identity.secrets.digest(request.code)) for request in requests]

    def unit(tx: Tx) -> list[Enrolled | Exception]:
        batch = _Batch(tx, enrolments_max=most, offline_ms=offline_ms, online=online)
        return [batch.enrol(request, node_id=node_id, code_hash=code_hash) for request, node_id, code_hash in given]

    return await hub.store.write(unit)


@dataclass(slots=True)
class _Batch:
    """Enrolments in one transaction. Each is refused before anything is written, so that it does not undo the others."""

    tx: Tx
    enrolments_max: int = field(kw_only=True)
    offline_ms: int = field(kw_only=True)
    online: frozenset[str] = field(kw_only=True)
    _accounts: dict[str, AccountRow | None] = field(default_factory=dict)
    _predecessors: dict[str, str | None] = field(default_factory=dict)

    def enrol(self, request: RegisterRequest, *, node_id: str, code_hash: str) -> Enrolled | Exception:
        try:
            known = node_rows.find_node_by_key(self.tx.connection, request.public_key)
            if known is not None and self._is_known(known, code_hash=code_hash):
                return known.id, known.account_id
            code = self._check(request, known, code_hash=code_hash)
        except ComputePoolError as refusal:
            return refusal
        if account_rows.use_code(self.tx, code_hash=code_hash, purpose=code.purpose) is None:
            return _wrong_code()  # it was just used at another hub
        self._insert(request, node_id, code)
        return node_id, code.account_id

    def _is_known(self, row: NodeRow, *, code_hash: str) -> bool:
        """Whether the same code and key were already used: the first answer was lost."""
        owner = account_rows.used_code_owner(self.tx.connection, code_hash=code_hash, purposes=(ENROL, JOIN))
        return row.account_id == owner and row.state != NodeState.REVOKED

    def _check(self, request: RegisterRequest, known: NodeRow | None, *, code_hash: str) -> CodeRow:
        """The code's row. A refusal does not use up the code."""
        code = account_rows.get_code(self.tx.connection, code_hash)
        if code is None or code.purpose not in (ENROL, JOIN) or not _works(code, self.tx.now_ms):
            raise _wrong_code()
        owner = code.account_id
        if owner not in self._accounts:
            self._accounts[owner] = account_rows.get_account(self.tx.connection, owner)
        _check_rate(self.tx, owner, self._accounts[owner], most=self.enrolments_max)
        if known is not None:
            raise Conflict("This key is already enrolled; start the agent without a code.", field="public_key")
        _check_name(self.tx, owner, profile=request.profile, online=self.online)
        return code

    def _insert(self, request: RegisterRequest, node_id: str, code: CodeRow) -> None:
        owner = code.account_id
        if owner not in self._predecessors:  # it reads all nodes of the owner
            worst = reputation.predecessor(self.tx, owner, offline_after_ms=self.offline_ms)
            self._predecessors[owner] = None if worst is None else heir_of(worst)
        node_rows.insert_node(
            self.tx,
            id=node_id,
            name=request.profile.name,
            account_id=owner,
            public_key=request.public_key,
            state=NodeState.ACTIVE.value,
            profile=request.profile.model_dump_json(),
            code=code.hash[:CODE_ID],
        )
        self.tx.emit(
            actor=node_id,
            action=ENROLLED_ACTION,
            account_id=owner,
            node_id=node_id,
            after=NodeState.ACTIVE.value,
            data=self._predecessors[owner],
        )


def _wrong_code() -> sign_in.WrongCode:
    return sign_in.WrongCode(
        "The enrolment code is wrong, used or expired; create one with `pool node code`.", field="code"
    )


def _check_name(tx: Tx, owner: str, *, profile: Profile, online: frozenset[str]) -> None:
    """Hosts of a mesh, which have a URL, are addressed by name, so it must not belong to another host that is online."""
    if not profile.url:
        return
    for row in node_rows.find_nodes(tx.connection, profile.name):
        if row.account_id == owner and row.id in online:
            raise Conflict(
                f"Another of your hosts is named {profile.name} and is online: choose another --name.",
                field="profile.name",
            )


def _check_rate(tx: Tx, owner: str, account: AccountRow | None, *, most: int) -> None:
    """Limit new nodes per day, or an owner could leave a bad reputation behind as often as they like."""
    if account is None or Role.ADMIN in account.roles.split(","):
        return
    recent = node_rows.enrolment_times(tx.connection, account_id=owner, since_ms=tx.now_ms - _DAY_MS)
    if len(recent) >= most:
        raise RateLimited(
            f"An account may enrol {most} nodes a day; ask the hub's operator for more.",
            retry_after_s=max(1.0, (recent[-most] + _DAY_MS - tx.now_ms) / 1000) if most else 86400,
        )


async def rekey(hub: Hub, node: NodePrincipal, request: RekeyRequest) -> RekeyReply:
    """Replace the node's key by one that the old key signed. Both are accepted for a while."""
    text = rekey_text(node.node_id, request.public_key)
    new = public_key(request.public_key)
    if not is_signed_by(new, request.proof, text) or not authenticator.is_signed_by_node(
        node, request.endorsement, text
    ):
        raise Forbidden("The new key must be signed by the old one, and by itself.")

    overlap_ms = round(hub.settings.node_key_overlap_s * 1000)

    def unit(tx: Tx) -> int:
        row = node_rows.get_node(tx.connection, node.node_id)
        if row is None or row.state == NodeState.REVOKED:
            raise Unauthenticated("This node's key was revoked by its owner or the operator.")
        if row.public_key == request.public_key:
            return int(row.previous_key_until_ms or tx.now_ms)  # the first answer was lost
        if node_rows.find_node_by_key(tx.connection, request.public_key) is not None:
            raise Conflict("This key already belongs to a node.", field="public_key")
        if not is_signed_by(public_key(row.public_key), request.endorsement, text):
            raise Forbidden("This key was already replaced; only the newest key can name its successor.")
        until_ms = tx.now_ms + overlap_ms
        node_rows.set_key(tx, row, public_key=request.public_key, until_ms=until_ms)
        tx.emit(actor=node.node_id, action="node.rekeyed", account_id=row.account_id, node_id=node.node_id)
        tx.touch(authenticator.KEYS_TOPIC)
        return until_ms

    return RekeyReply(node_id=node.node_id, old_accepted_until_ms=await hub.store.write(unit))
