"""The package index, which is the owner's choice or uv's default, and the hosts of its files.

An installation reaches these hosts and no others. uv and the index name them; they are not hard-coded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import subprocess
from collections.abc import Sequence

import httpx2

from computepool.core.network import Target, parse_targets, target_of

_log = logging.getLogger(__name__)

_OPTION = "--default-index"
_DEFAULT = re.compile(r"by\s+default:\s+<?(https?://[^\s>)]+)")
#: A project that public indexes have; its page shows where the index keeps its files.
_EXAMPLE = "pip"
#: An address without its path.
_ADDRESS = re.compile(r"""https?://[^\s"'<>#\\/]+""")
_PAGE_BYTES_MAX = 16 * 1024 * 1024
_ASK_S = 20.0
_HOSTS_MAX = 8


class PackageIndex:
    def __init__(
        self,
        uv: str | None,
        *,
        url: str = "",
        hosts: Sequence[str] = (),
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._uv = uv
        self._url = url.rstrip("/")
        self._given = parse_targets(hosts)
        self._hosts: tuple[Target, ...] = ()
        self._transport = transport
        self._asking = asyncio.Lock()

    async def url(self) -> str:
        """The address of the index. Raises OSError if uv does not name its default."""
        if not self._url:
            self._url = (await asyncio.to_thread(_default_index, self._uv or "uv")).rstrip("/")
        return self._url

    async def hosts(self) -> tuple[Target, ...]:
        """The hosts of the index and of its files, as named by the owner or else by the index."""
        async with self._asking:
            if not self._hosts:
                url = await self.url()
                named = self._given or await self._find_hosts(url)
                self._hosts = tuple(dict.fromkeys([target_of(url), *named]))[:_HOSTS_MAX]
                _log.info("packages come from %s", ", ".join(map(str, self._hosts)))
            return self._hosts

    async def _find_hosts(self, url: str) -> list[Target]:
        """Ask the index where its files are. Raises OSError if it does not answer; then the next installation asks again."""
        headers = {"accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}
        try:
            async with (
                httpx2.AsyncClient(timeout=_ASK_S, transport=self._transport, follow_redirects=True) as client,
                client.stream("GET", f"{url}/{_EXAMPLE}/", headers=headers) as reply,
            ):
                page = b""
                if reply.is_success:
                    async for part in reply.aiter_bytes():
                        page += part
                        if len(page) > _PAGE_BYTES_MAX:
                            break
        except httpx2.HTTPError as error:
            raise OSError(f"the package index does not answer: {error}") from error
        found = []
        for address in dict.fromkeys(_ADDRESS.findall(page.decode(errors="replace"))):
            with contextlib.suppress(ValueError):
                found.append(target_of(address))
        return found


def _default_index(uv: str) -> str:
    """The default index according to `uv --help`."""
    try:
        listed = subprocess.run(
            [uv, "pip", "install", "--help"], capture_output=True, text=True, timeout=_ASK_S, env={}, check=True
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"cannot run uv: {error}") from error
    found = _DEFAULT.search(listed.stdout.partition(_OPTION)[2])
    if found is None:
        raise OSError("uv does not name its default index; choose one with --package-index")
    return found[1]
