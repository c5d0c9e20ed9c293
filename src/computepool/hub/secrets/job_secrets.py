"""Secrets of jobs: checked when a job is submitted, and given to its node, sealed, when an attempt starts."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.errors import Forbidden, NotFound
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.identity.authenticator import is_signed_by_node
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.running import children
from computepool.hub.secrets import rows
from computepool.hub.secrets.encryption import Cipher
from computepool.protocol.jobs.jobs import JobSpec
from computepool.protocol.sealing import public_bytes, seal_text
from computepool.protocol.secrets import (
    AttemptSecretsReply,
    AttemptSecretsRequest,
    SecretBundle,
    bundle_about,
    signed_text,
)


async def resolve(hub: Hub, account_id: str, spec: JobSpec, *, is_child: bool) -> JobSpec:
    """The spec with ids instead of names of accounts. Raises NotFound if a secret or an account does not exist."""
    if is_child:  # its node could invent such a job, and read every secret of the account
        raise Forbidden(
            "A running job cannot submit jobs with secrets; submit them yourself, or pass on what they need as arguments.",
            field="spec.secrets",
        )
    names = spec.secret_names

    def load(connection: Connection) -> list[str]:
        if missing := sorted(names - rows.by_name(connection, account_id, names).keys()):
            raise NotFound(
                f"You have no secret {missing[0]}; store it with `pool secrets set {missing[0]}`.", field="spec.secrets"
            )
        return _owner_ids(connection, spec.secret_owners)

    owners = await hub.store.read(load)
    return spec if owners == spec.secret_owners else spec.model_copy(update={"secret_owners": owners})


async def owner_ids(hub: Hub, words: Sequence[str]) -> frozenset[str]:
    return frozenset(await hub.store.read(_owner_ids, words))


def _owner_ids(connection: Connection, words: Sequence[str]) -> list[str]:
    """Ids, because a name may pass to another account."""
    found = set()
    for word in words:
        row = account_rows.find_account(connection, word)
        if row is None:
            raise NotFound(f"There is no account {word!r}; use its id or its exact name.", field="spec.secret_owners")
        found.add(row.id)
    return sorted(found)


async def of_attempt(
    hub: Hub, node: NodePrincipal, attempt_id: str, *, request: AttemptSecretsRequest
) -> AttemptSecretsReply:
    """The current values, sealed to the key that the node made for this request."""
    if not is_signed_by_node(node, request.signature, signed_text(attempt_id, request.seal_to)):
        raise Forbidden("The request is not signed with this node's key.", field="signature")
    settings = hub.settings

    def unit(tx: Tx) -> tuple[str, SecretBundle, list[str]]:
        job = children.held_job(tx.connection, node, attempt_id)
        account = job.on_behalf_of or job.account_id
        body = job_rows.get_specs(tx.connection, {job.spec_digest})[job.spec_digest]
        spec = JobSpec.model_validate_json(body)
        _check_owner(spec, node.owner, account=account)
        values = Cipher(tx.connection, settings).decrypt_all(
            rows.by_name(tx.connection, account, spec.secret_names).values()
        )
        if missing := sorted(spec.secret_names - values.keys()):
            return job.id, SecretBundle(), missing
        if not rows.was_used(tx.connection, job.id, attempt_id):  # an agent may ask again, or as often as it likes
            tx.emit(
                actor="hub",
                action=rows.USED,
                account_id=account,
                job_id=job.id,
                attempt_id=attempt_id,
                node_id=node.node_id,
                data={"names": sorted(values)},
            )
        login = None if spec.registry_secret is None else values[spec.registry_secret]
        env = {variable: values[name] for variable, name in spec.secrets.items()}
        return job.id, SecretBundle(env=env, registry=login), []

    job_id, bundle, missing = await hub.store.write(unit)
    if missing:
        return AttemptSecretsReply(missing=missing)
    about = bundle_about(job_id, attempt_id)
    return AttemptSecretsReply(
        sealed=seal_text(bundle.model_dump_json(), to=public_bytes(request.seal_to), about=about)
    )


def _check_owner(spec: JobSpec, owner: str, *, account: str) -> None:
    """The gate of placement once more, because a mistake there must not reveal a secret."""
    owners = spec.secret_readers
    if not spec.secret_names:
        raise NotFound("This job has no secrets.")
    if owners is not None and owner != account and owner not in owners:
        raise Forbidden("The submitter does not let nodes of this owner see the secrets of this job.")
