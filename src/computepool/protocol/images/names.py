"""Names of container images: where an image comes from, and what it is called there."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from computepool.core.network import literal, parse_target
from computepool.core.resources import ANY_REGISTRY, UPLOADED

NAME_CHARS_MAX: Final = 512
REGISTRIES_MAX: Final = 64
#: What a name without a registry means everywhere.
_DEFAULT = "docker.io"
#: Where its registry listens.
_HOSTS = {_DEFAULT: "registry-1.docker.io"}
_PART = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOW = "write NAME:TAG or NAME@sha256:DIGEST, as in python:3.12 or ghcr.io/acme/tool:1.4"


@dataclass(frozen=True, slots=True)
class ImageName:
    source: str  #: the registry, as host or host:port; or `artifact`
    repository: str
    tag: str = ""
    digest: str = ""  #: `sha256:…`

    def __str__(self) -> str:
        if self.source == UPLOADED:
            return f"{UPLOADED}:{self.digest.removeprefix('sha256:')}"
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.source}/{self.repository}{tag}{digest}"

    @property
    def short(self) -> str:
        """For people: as they would write it."""
        if self.source == UPLOADED:
            return f"{UPLOADED}:{self.digest[7:19]}…"
        repository = self.repository.removeprefix("library/")
        place = repository if self.source == _DEFAULT else f"{self.source}/{self.repository}"
        return f"{place}:{self.tag}" if self.tag else f"{place}@{self.digest[:19]}…"

    @property
    def hex_digest(self) -> str:
        return self.digest.removeprefix("sha256:")

    @property
    def url(self) -> str:
        """The registry's address. As with Docker, only one on this machine itself is used without TLS."""
        host = _HOSTS.get(self.source, self.source)
        return f"{'http' if is_local(self.source) else 'https'}://{host}"

    def at(self, digest: str) -> ImageName:
        return replace(self, digest=digest)


def parse_image(text: str) -> ImageName:
    """Raises a ValueError that says what to write instead."""
    if len(text) > NAME_CHARS_MAX:
        raise ValueError(f"a name has at most {NAME_CHARS_MAX} characters; {_HOW}")
    if text.startswith(f"{UPLOADED}:"):
        digest = f"sha256:{text.removeprefix(f'{UPLOADED}:')}"
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{text!a} does not name an uploaded image; `pool images push FILE` prints the name")
        return ImageName(UPLOADED, "", digest=digest)
    plain, at, digest = text.partition("@")
    first, slash, rest = plain.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, rest = _DEFAULT, plain
    repository, colon, tag = rest.partition(":")
    if first == _DEFAULT and "/" not in repository:
        repository = f"library/{repository}"
    if (
        not all(map(_PART.fullmatch, repository.split("/")))
        or (colon and not _TAG.fullmatch(tag))
        or (at and not _DIGEST.fullmatch(digest))
    ):
        raise ValueError(f"{text!a} is not the name of an image; {_HOW}")
    return ImageName(check_registry(first), repository, tag=tag or ("" if at else "latest"), digest=digest)


def check_image(text: str) -> str:
    """The name in full."""
    return str(parse_image(text))


def check_registry(text: str) -> str:
    """The registry in canonical form: a host, with its port unless that is the usual one. Raises ValueError."""
    name = text.strip().lower()
    has_port = ":" in name.rpartition("]")[2]
    if "." not in name and ":" not in name and name != "localhost":
        raise ValueError(f"{text!a} is not a registry such as {_DEFAULT} or registry.example.org:5000")
    try:
        target = parse_target(name if has_port else f"{name}:443")
    except ValueError as error:
        raise ValueError(f"the registry {error}") from None
    if target.below:
        raise ValueError(f"{text!a} is not one registry; write {ANY_REGISTRY} for all")
    return str(target) if has_port else str(target).removesuffix(":443")


def check_registries(text: str) -> str:
    """An entry of a list of registries."""
    return text if text in (ANY_REGISTRY, UPLOADED) else check_registry(text)


def is_allowed(source: str, registries: list[str] | tuple[str, ...]) -> bool:
    """Whether a list of registries has this source of images. Uploaded images are no registry's."""
    return source in registries or (source != UPLOADED and ANY_REGISTRY in registries)


def is_local(registry: str) -> bool:
    """A registry on this machine itself, as its name says."""
    host = registry.rpartition(":")[0] or registry
    address = literal(host.strip("[]"))
    return host == "localhost" or (address is not None and address.is_loopback)
