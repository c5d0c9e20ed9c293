"""Wire models of secrets: values that an account stores at the hub and names in its jobs, which get them as variables.

A node fetches the secrets of an attempt when it starts the attempt. It makes a key for that one request and signs it with
its identity, so that only the agent that runs the attempt can open the reply.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from computepool.protocol.base import Count, Name, Reply, Request, Signature
from computepool.protocol.sealing import SECRETS, About

#: Secrets of one job.
SECRETS_MAX: Final = 32
#: Accounts, besides the submitter's own, whose nodes may get the secrets of a job.
SECRET_OWNERS_MAX: Final = 64
#: Bytes of a value that any hub accepts; a hub may accept fewer.
SECRET_BYTES_MAX: Final = 64 * 1024

SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
#: A public X25519 key in base64.
SealingKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{43}=$")]


def _check_value(value: str) -> str:
    if "\0" in value:
        raise ValueError("a secret cannot contain NUL characters, because variables cannot")
    return value


class WithSecrets(Request):
    """The part of a spec that says which secrets a job gets, and where. It has their names only."""

    #: secrets of its account, by the variables that hold their values
    secrets: dict[SecretName, SecretName] = Field(default={}, max_length=SECRETS_MAX)
    #: the secret that holds the login `USER:PASSWORD` of its image's registry
    registry_secret: SecretName | None = None
    #: accounts, besides its own, whose nodes may get its secrets; by id or name
    secret_owners: list[Name] = Field(default=[], max_length=SECRET_OWNERS_MAX)
    secrets_anywhere: bool = False  #: every node may get its secrets

    @property
    def has_secrets(self) -> bool:
        return bool(self.secrets or self.registry_secret)

    @property
    def secret_names(self) -> frozenset[str]:
        """All secrets that its node gets."""
        login = {self.registry_secret} if self.registry_secret else set()
        return frozenset(self.secrets.values()) | login

    @property
    def secret_readers(self) -> frozenset[str] | None:
        """The owners, besides its own account, whose nodes may run it; None if it does not matter."""
        return None if self.secrets_anywhere or not self.has_secrets else frozenset(self.secret_owners)


class SecretRequest(Request):
    """A new value of a secret."""

    model_config = ConfigDict(hide_input_in_errors=True)

    value: Annotated[str, StringConstraints(min_length=1, max_length=SECRET_BYTES_MAX), AfterValidator(_check_value)]


class SecretView(Reply):
    """A secret without its value, which is never shown."""

    name: str
    size: Count  #: bytes of the value
    created_at_ms: int
    changed_at_ms: int


class SecretList(Reply):
    secrets: list[SecretView]


class AttemptSecretsRequest(Request):
    """A request of a node for the secrets of an attempt that it is about to start."""

    seal_to: SealingKey  #: made for this request
    signature: Signature  #: by the node's key, over `signed_text`


class AttemptSecretsReply(Reply):
    sealed: str = ""  #: a SecretBundle, sealed to the key in the request
    missing: list[str] = []  #: secrets that no longer exist; then nothing is sealed


#: Shorter lines of a secret, such as a brace, are also part of harmless output.
LINE_MASKED_MIN = 8


class SecretBundle(Reply):
    """The secrets of an attempt. Exists in clear only in the memory of the hub and of the agent."""

    env: dict[str, str] = Field(default={}, repr=False)  #: values by variable
    registry: str | None = Field(default=None, repr=False)  #: the login `USER:PASSWORD` to pull its image

    def values(self) -> list[str]:
        """Everything to mask. The password of a login is a secret by itself, and so is each line of a longer text, such as a
        key, which programs read line by line."""
        login = [] if self.registry is None else [self.registry, self.registry.partition(":")[2]]
        whole = [*self.env.values(), *filter(None, login)]
        lines = [line.strip() for text in whole if "\n" in text.strip() for line in text.splitlines()]
        return [*whole, *(line for line in lines if len(line) >= LINE_MASKED_MIN)]


def signed_text(attempt_id: str, seal_to: str) -> bytes:
    """What the node signs."""
    return f"computepool secrets 1\n{attempt_id}\n{seal_to}".encode()


def bundle_about(job_id: str, attempt_id: str) -> About:
    return About(job_id, SECRETS, attempt_id)
