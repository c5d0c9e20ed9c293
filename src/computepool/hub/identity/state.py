"""In-memory state of identities."""

from __future__ import annotations

from dataclasses import dataclass

from computepool.hub.identity.authenticator import Authenticator
from computepool.hub.identity.signing.secrets import Secrets


@dataclass(slots=True)
class IdentityState:
    secrets: Secrets
    authenticator: Authenticator
    signed_in_before: bool = False  #: whether anyone ever has; once true, it is not read again
