"""A client of image registries (the distribution API, v2): resolves tags, and reads manifests and blobs.

Registries, their token services and the hosts of their files are other people's machines. The caller says which addresses
may be reached; every connection goes to an address that was checked. Every answer is bounded, in bytes and in time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from ssl import SSLContext
from typing import Any, Final, Self
from urllib.parse import urlencode, urljoin, urlsplit, urlunsplit
from urllib.request import parse_http_list, parse_keqv_list

import httpx2

from computepool.core.network import Address, clean_host
from computepool.protocol.images.manifests import ACCEPTED, MANIFEST_BYTES_MAX, digest_of
from computepool.protocol.images.names import ImageName

#: Raises OSError or a ValueError with a reason if the host has no address that may be reached.
FindAddress = Callable[[str, int], Awaitable[Address]]
_PORTS = {"http": 80, "https": 443}
_REDIRECTS_MAX = 5
_TOKEN_BYTES_MAX = 256 * 1024
_CHALLENGE_CHARS_MAX = 4096
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_DIGEST_HEADER: Final = "docker-content-digest"


class RegistryUnavailable(Exception):
    """The registry cannot be reached, or fails; another machine, or a later try, may succeed."""


class UnknownImage(Exception):
    """The registry has no such image, or does not give it to us."""


@cache
def _tls() -> SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


#: User and password.
Login = tuple[str, str]


class RegistryClient:
    """One image's repository. `login`: user and password, for a private one."""

    def __init__(
        self, image: ImageName, *, find_address: FindAddress, timeout_s: float, login: Login | None = None
    ) -> None:
        self.image = image
        self._find_address = find_address
        self._basic = "" if login is None else f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"
        self._authorization = self._basic
        self._client = httpx2.AsyncClient(
            timeout=timeout_s,
            verify=_tls(),
            trust_env=False,
            follow_redirects=False,
            headers={"user-agent": "computepool", "accept-encoding": "identity"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def resolve(self) -> str:
        """The digest that the tag has now."""
        path = f"manifests/{self.image.digest or self.image.tag}"
        async with self._open("HEAD", path, accept=ACCEPTED) as reply:
            digest = str(reply.headers.get(_DIGEST_HEADER, ""))
        if digest.startswith("sha256:") and len(digest) == len("sha256:") + 64:
            return digest
        return digest_of(await self.manifest(self.image.tag))

    async def manifest(self, reference: str) -> bytes:
        """By tag or digest; a digest is verified."""
        data = await self._read(f"manifests/{reference}", most=MANIFEST_BYTES_MAX, accept=ACCEPTED)
        return self._check_digest(data, reference)

    async def small_blob(self, digest: str) -> bytes:
        """A blob such as a configuration, in memory and verified."""
        return self._check_digest(await self._read(f"blobs/{digest}", most=MANIFEST_BYTES_MAX), digest)

    @asynccontextmanager
    async def blob(self, digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a blob, which the caller verifies."""
        async with self._open("GET", f"blobs/{digest}") as reply:
            yield self._bytes_of(reply)

    async def _bytes_of(self, reply: httpx2.Response) -> AsyncIterator[bytes]:
        try:
            async for data in reply.aiter_raw(1024 * 1024):
                yield data
        except httpx2.HTTPError as error:
            raise self._unavailable(error) from error

    def _check_digest(self, data: bytes, reference: str) -> bytes:
        if reference.startswith("sha256:") and digest_of(data) != reference:
            raise RegistryUnavailable(f"the registry {self.image.source} sent something else than {reference[:19]}…")
        return data

    async def _read(self, path: str, *, most: int, accept: str = "") -> bytes:
        data = b""
        async with self._open("GET", path, accept=accept) as reply:
            async for part in self._bytes_of(reply):
                data += part
                if len(data) > most:
                    raise UnknownImage(f"the registry {self.image.source} sends a manifest of more than {most} bytes")
        return data

    @asynccontextmanager
    async def _open(self, method: str, path: str, *, accept: str = "") -> AsyncIterator[httpx2.Response]:
        """A successful reply of the repository, after authentication and redirects."""
        url = f"{self.image.url}/v2/{self.image.repository}/{path}"
        headers = {"accept": accept} if accept else {}
        reply = await self._follow(method, url, headers=headers)
        if reply.status_code == _UNAUTHORIZED and await self._authenticate(reply):
            await reply.aclose()
            reply = await self._follow(method, url, headers=headers)
        try:
            self._check_status(reply)
            yield reply
        finally:
            await reply.aclose()

    def _check_status(self, reply: httpx2.Response) -> None:
        status, name = reply.status_code, self.image.short
        if status == _NOT_FOUND:
            raise UnknownImage(f"there is no image {name}")
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            raise UnknownImage(f"there is no image {name}, or it is private")
        if not reply.is_success:
            raise RegistryUnavailable(f"the registry {self.image.source} answered {status}")

    async def _follow(self, method: str, url: str, *, headers: Mapping[str, str]) -> httpx2.Response:
        home = urlsplit(url).netloc
        for _ in range(_REDIRECTS_MAX):
            own = {"authorization": self._authorization} if self._authorization and urlsplit(url).netloc == home else {}
            reply = await self._send(method, url, headers={**headers, **own})
            if not reply.has_redirect_location:
                return reply
            await reply.aclose()
            url = urljoin(url, str(reply.headers["location"]))
        raise RegistryUnavailable(f"the registry {self.image.source} redirects in a circle")

    async def _send(self, method: str, url: str, *, headers: Mapping[str, str]) -> httpx2.Response:
        """One request, to an address that was checked; TLS verifies the name."""
        parts = urlsplit(url)
        try:
            if parts.scheme not in _PORTS or (parts.scheme == "http" and not self.image.url.startswith("http:")):
                raise ValueError(f"{url[:200]!a} is not a secure address")
            host = clean_host(parts.hostname or "")
            port = parts.port or _PORTS[parts.scheme]
            address = await self._find_address(host, port)
            place = f"[{address}]" if address.version == 6 else str(address)
            request = self._client.build_request(
                method,
                urlunsplit((parts.scheme, f"{place}:{port}", parts.path or "/", parts.query, "")),
                headers={"host": parts.netloc.rpartition("@")[2], **headers},
                extensions={"sni_hostname": host},
            )
            return await self._client.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> RegistryUnavailable:
        reason = " ".join(f"{error}".split())[:300] or type(error).__name__
        return RegistryUnavailable(f"the registry {self.image.source} does not answer: {reason}")

    async def _authenticate(self, reply: httpx2.Response) -> bool:
        """Get a token as the registry asks for. False if it asks for none that we can get."""
        scheme, _, rest = str(reply.headers.get("www-authenticate", ""))[:_CHALLENGE_CHARS_MAX].partition(" ")
        if scheme.lower() != "bearer":
            return False
        try:
            fields = parse_keqv_list(parse_http_list(rest))
        except ValueError:
            return False
        query: dict[str, str] = {name: fields[name] for name in ("service", "scope") if name in fields}
        query.setdefault("scope", f"repository:{self.image.repository}:pull")
        headers = {"authorization": self._basic} if self._basic else {}
        token_reply = await self._send("GET", f"{fields.get('realm', '')}?{urlencode(query)}", headers=headers)
        try:
            token = await _token_of(token_reply)
        finally:
            await token_reply.aclose()
        self._authorization = f"Bearer {token}"
        return bool(token)


async def _token_of(reply: httpx2.Response) -> str:
    """Empty if the service gives none."""
    data = b""
    try:
        async for part in reply.aiter_raw():
            data += part
            if len(data) > _TOKEN_BYTES_MAX:
                return ""
        found: Any = json.loads(data) if reply.is_success else {}
        token = found.get("token") or found.get("access_token") or ""
    except (httpx2.HTTPError, ValueError, AttributeError):
        return ""
    return token if isinstance(token, str) and token.isascii() and token.isprintable() else ""
