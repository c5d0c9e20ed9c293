"""Secrets of an attempt: fetched when it starts, kept in memory alone, and masked in everything that leaves the node."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import ValidationError

from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import AttemptResult, BadJob, StagingFailed
from computepool.agent.execution.attempts import Attempt
from computepool.agent.execution.masking import mask_text
from computepool.agent.hub_link.hub_client import retry
from computepool.core.errors import ComputePoolError
from computepool.protocol.sealing import SealError, public_text, unseal_text
from computepool.protocol.secrets import AttemptSecretsRequest, SecretBundle, bundle_about, signed_text


@dataclass(eq=False)
class SecretFetcher:
    node: Node

    async def fetch(self, attempt: Attempt) -> None:
        """Give the attempt its secrets. Raises BadJob if one is missing."""
        key = X25519PrivateKey.generate()
        seal_to, client = public_text(key), self.node.client
        signature = self.node.identity.sign(signed_text(attempt.id, seal_to))
        request = AttemptSecretsRequest(seal_to=seal_to, signature=signature)
        try:
            reply = await retry(lambda: client.secrets(attempt.id, request), client.backoff())
        except ComputePoolError as error:
            raise StagingFailed(f"the hub did not give this node the job's secrets: {error.detail}") from error
        if reply.missing:
            name = reply.missing[0]
            raise BadJob(
                f"The secret {name} does not exist any more, or the hub cannot read it; set it again with "
                f"`pool secrets set {name}`, then resubmit the job."
            )
        about = bundle_about(attempt.grant.job_id, attempt.id)
        try:
            text = unseal_text(reply.sealed, find_key=lambda _: key, about=about)
            attempt.receive_secrets(SecretBundle.model_validate_json(text))
        except (SealError, ValidationError):  # without the cause, which may quote a value
            raise StagingFailed("the hub's reply with the job's secrets cannot be opened") from None


def mask_result(attempt: Attempt, result: AttemptResult) -> None:
    """Mask secrets in the error. What the job returns or saves is its own, and is left as it is."""
    if attempt.secrets is not None and result.error:
        result.error = mask_text(result.error, attempt.secrets.values())
