"""Network access: real jobs in real sandboxes reach the hosts that they listed and nothing else, within limits."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import os
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from computepool.agent.config import AgentLimits
from computepool.agent.network.egress import SOCKET, Egress, EgressProxy
from computepool.agent.network.egress_requests import RequestRefused, parse_head
from computepool.core.isolation import Level
from computepool.core.network import Address, parse_networks, parse_targets
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import STRANGER, FakeHub, Outcome, Reason, function, payload, script, until

BODY = b"answered " * 10_000
BOXED = sorted(level.label for level in Level if level >= Level.NAMESPACE)
LOOPBACK = ("127.0.0.0/8",)


@dataclasses.dataclass
class Host:
    """A server on this machine's loopback, which a node may open for jobs. Never answers if it is `silent`."""

    silent: bool = False
    requests: list[bytes] = dataclasses.field(default_factory=list)
    connections: int = 0
    port: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            if self.silent:
                await reader.read()
            elif head.startswith(b"PUT"):
                await reader.readexactly(1_000_000)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
            await writer.drain()


@contextlib.asynccontextmanager
async def hosting(*, silent: bool = False) -> AsyncIterator[Host]:
    host = Host(silent=silent)
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
    host.port = server.sockets[0].getsockname()[1]
    yield host
    server.close()


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with hosting() as host:
        yield host


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="computepool-egress-") as name:
        # Deeper than a socket's address can be.
        deep = Path(name, "x" * 60, "y" * 60)
        deep.mkdir(parents=True)
        yield deep


class Names:
    """A resolver with these answers, one after the other; it repeats the last one."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = [list(map(ipaddress.ip_address, answer)) for answer in answers]
        self.lookups = 0

    async def __call__(self, host: str, port: int) -> list[Address]:
        self.lookups += 1
        return self.answers[min(self.lookups, len(self.answers)) - 1]


@contextlib.asynccontextmanager
async def proxied(
    folder: Path, *targets: str, names: Names | None = None, private: Sequence[str] = LOOPBACK, **limits: float
) -> AsyncIterator[EgressProxy]:
    egress = Egress(
        folder, limits=dataclasses.replace(AgentLimits(), **limits), private=parse_networks(private), resolve=names
    )
    proxy = await egress.open(parse_targets(targets))
    try:
        yield proxy
    finally:
        proxy.close()


async def connected(proxy: EgressProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    opened = os.open(proxy.folder, os.O_RDONLY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{opened}/{SOCKET}")
    finally:
        os.close(opened)


async def ask(proxy: EgressProxy, request: str) -> bytes:
    """The whole answer to one request."""
    reader, writer = await connected(proxy)
    writer.write(request.encode())
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


def connect(address: str) -> str:
    return f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"


def fetch(address: str) -> str:
    """A request through a tunnel."""
    return f"{connect(address)}GET / HTTP/1.1\r\nHost: site.test\r\n\r\n"


class TestTheProxy:
    async def test_connect_and_plain_http_reach_a_listed_host(self, folder: Path, host: Host) -> None:
        async with proxied(folder, f"site.test:{host.port}", names=Names(["127.0.0.1"])) as proxy:
            answer = await ask(proxy, fetch(f"site.test:{host.port}"))
            assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
            assert answer.endswith(BODY)
            plain = await ask(
                proxy,
                f"GET http://SITE.test:{host.port}/a?b HTTP/1.1\r\nHost: other.test\r\n"
                "Proxy-Authorization: Basic c2VjcmV0\r\nConnection: keep-alive, X-Other\r\nX-Kept: 1\r\n\r\n",
            )
            assert plain.startswith(b"HTTP/1.1 200 OK")
            assert plain.endswith(BODY)
            head = host.requests[1].decode()
            assert head.startswith(f"GET /a?b HTTP/1.1\r\nHost: SITE.test:{host.port}\r\nConnection: close\r\n")
            assert "X-Kept: 1" in head
            assert "other.test" not in head
            assert "Proxy-" not in head
            assert proxy.received > 2 * len(BODY)
            assert 0 < proxy.sent < 500
            proxy.restart_count()
            assert proxy.bytes_used() == (0, 0)

    @pytest.mark.parametrize(
        "where", ["other.test:{port}", "site.test:{other}", "127.0.0.1:{port}", "a.site.test:{port}"]
    )
    async def test_unlisted_hosts_are_refused_with_a_reason(self, folder: Path, host: Host, where: str) -> None:
        names = Names(["127.0.0.1"])
        async with proxied(folder, f"site.test:{host.port}", names=names) as proxy:
            unlisted = where.format(port=host.port, other=host.port % 65_535 + 1)
            for request in (connect(unlisted), f"GET http://{unlisted}/ HTTP/1.1\r\n\r\n"):
                answer = await ask(proxy, request)
                assert answer.startswith(b"HTTP/1.1 403 ")
                assert answer.endswith(f"{unlisted} is not in the job's list of hosts (--net).\n".encode())
        assert (host.connections, names.lookups) == (0, 0)

    @pytest.mark.parametrize(
        "addresses",
        [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], ["192.168.1.1"], ["169.254.169.254"], ["::1"]],
    )
    async def test_a_listed_host_with_a_private_address_is_refused(
        self, folder: Path, host: Host, addresses: list[str]
    ) -> None:
        listed = f"site.test:{host.port}", host.address
        async with proxied(folder, *listed, names=Names(addresses), private=()) as proxy:
            for target in listed:
                answer = await ask(proxy, connect(target))
                assert answer.startswith(b"HTTP/1.1 403 ")
                assert b"which jobs cannot reach" in answer
        assert host.connections == 0

    async def test_a_name_whose_address_changes_gains_nothing(self, folder: Path, host: Host) -> None:
        """It is resolved once for each connection, which goes to the address that was checked."""
        names = Names(["127.0.0.1"], ["10.0.0.1"])
        async with proxied(folder, f"site.test:{host.port}", names=names) as proxy:
            request = fetch(f"site.test:{host.port}")
            assert (await ask(proxy, request)).endswith(BODY)
            assert names.lookups == 1
            assert (await ask(proxy, request)).startswith(b"HTTP/1.1 403 ")
            assert (names.lookups, host.connections) == (2, 1)

    async def test_connections_are_limited(self, folder: Path) -> None:
        async with hosting(silent=True) as host, proxied(folder, host.address, net_connections_max=3) as proxy:
            tunnels = await self._tunnels(proxy, host)
            assert (await ask(proxy, connect(host.address))).startswith(
                b"HTTP/1.1 503 The job has reached its limit of 3"
            )
            for _, writer in tunnels:
                writer.close()
            await until(lambda: not proxy._tasks)

    async def _tunnels(self, proxy: EgressProxy, host: Host) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Three, to a host that never answers."""
        tunnels = [await connected(proxy) for _ in range(3)]
        for _, writer in tunnels:
            writer.write(fetch(host.address).encode())
        await until(lambda: host.connections == 3)
        return tunnels

    async def test_idle_connections_end(self, folder: Path) -> None:
        async with hosting(silent=True) as host, proxied(folder, host.address, net_idle_s=0.6) as proxy:
            for reader, writer in await self._tunnels(proxy, host):
                async with asyncio.timeout(60):
                    assert await reader.read() == b"HTTP/1.1 200 Connection established\r\n\r\n"
                writer.close()
            await until(lambda: not proxy._tasks)

    async def test_a_slow_request_ends(self, folder: Path) -> None:
        async with proxied(folder, "site.test:80", net_head_s=0.3) as proxy:
            reader, writer = await connected(proxy)
            writer.write(b"GET http://site.test/ HT")
            async with asyncio.timeout(60):
                assert (await reader.read()).startswith(b"HTTP/1.1 504 ")
            writer.close()

    async def test_a_request_that_is_too_long_is_refused(self, folder: Path) -> None:
        async with proxied(folder, "site.test:80") as proxy:
            answer = await ask(proxy, "GET http://site.test/ HTTP/1.1\r\nX: " + "y" * 20_000)
            assert answer.startswith(b"HTTP/1.1 431 ")

    async def test_a_connection_that_the_job_does_not_read_ends(self, folder: Path, host: Host) -> None:
        async with proxied(folder, host.address, net_idle_s=0.5) as proxy:
            stuck = socket.socket(socket.AF_UNIX)
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            opened = os.open(proxy.folder, os.O_RDONLY)
            stuck.connect(f"/proc/self/fd/{opened}/{SOCKET}")
            os.close(opened)
            stuck.sendall(fetch(host.address).encode())
            await until(lambda: proxy.received > 0)
            await until(lambda: not proxy._tasks)
            stuck.close()

    async def test_bytes_are_limited(self, folder: Path, host: Host) -> None:
        async with proxied(folder, host.address, net_bytes_max=50_000) as proxy:
            with contextlib.suppress(ConnectionError):
                assert len(await ask(proxy, fetch(host.address))) < len(BODY)
            assert b" 403 The job has used up its 50000 bytes" in await ask(proxy, fetch(host.address))
            assert host.connections == 1

    async def test_a_paused_proxy_has_no_connections_and_a_closed_one_leaves_nothing(self, folder: Path) -> None:
        async with hosting(silent=True) as host, proxied(folder, host.address) as proxy:
            reader, writer = await connected(proxy)
            writer.write(fetch(host.address).encode())
            await until(lambda: host.connections == 1)
            proxy.pause()
            async with asyncio.timeout(60):
                await reader.read()
            writer.close()
            with contextlib.suppress(ConnectionError):
                assert await ask(proxy, connect(host.address)) == b""
            proxy.resume()
            assert (await ask(proxy, connect("other.test:1"))).startswith(b"HTTP/1.1 403 ")
        await until(lambda: not proxy._tasks)
        assert not list(folder.iterdir())

    async def test_a_public_address_in_a_network_of_the_node_is_refused(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = parse_networks(["8.8.8.0/24"])
        monkeypatch.setattr("computepool.agent.network.nearby.interface_networks", lambda: own)
        async with proxied(folder, "site.test:443", names=Names(["8.8.8.8"])) as proxy:
            assert b"8.8.8.8 is in a network of this machine" in await ask(proxy, connect("site.test:443"))

    @pytest.mark.parametrize(
        ("seen", "target"),
        [
            ("8.8.4.4", "8.8.4.4"),
            ("8.8.4.4", "64:ff9b::8.8.4.4"),
            ("::ffff:8.8.4.4", "8.8.4.4"),
            # Another network of the same customer, in which the router has an address.
            ("2a00:1450:4001:8101::7", "2a00:1450:4001:8100::1"),
        ],
    )
    async def test_the_owners_router_is_not_reached_by_its_public_address(
        self, folder: Path, seen: str, target: str
    ) -> None:
        egress = Egress(folder, limits=AgentLimits(), resolve=Names([target]))
        egress.nearby.note_public_address("nonsense")
        for host in ("router.test", target):
            assert await egress.addresses(host, 443)
            egress.nearby.note_public_address(seen)
            with pytest.raises(RequestRefused, match="in a network of this machine"):
                await egress.addresses(host, 443)
            egress.nearby._public.clear()

    async def test_the_hub_tells_the_node_its_public_address(self, hub: FakeHub, start_node: StartNode) -> None:
        hub.seen_from = "8.8.4.4"
        node = await start_node()
        assert ipaddress.ip_network("8.8.4.4/32") in node.agent._egress.nearby.networks()


@pytest.mark.parametrize(
    "head",
    [
        "", "GET / HTTP/1.1", "GET /path HTTP/1.1", "GET https://a.test/ HTTP/1.1", "GET ftp://a.test/ HTTP/1.1",
        "CONNECT a.test HTTP/1.1", "CONNECT a.test:0 HTTP/1.1", "CONNECT a.test:99999 HTTP/1.1", "CONNECT :443 HTTP/1.1",
        "CONNECT a.test:443", "CONNECT a.test:443 HTTP/2", "CONNECT u@a.test:443 HTTP/1.1", "CONNECT 127.1:80 HTTP/1.1",
        "CONNECT a.test:443 x HTTP/1.1", "GET http://u@a.test/ HTTP/1.1", "GET http:///x HTTP/1.1",
        "GET http://a.test/\nX: HTTP/1.1",
        "GET http://a.test/ HTTP/1.1\r\n folded: 1", "GET http://a.test/ HTTP/1.1\r\nname : 1",
        "GET http://a.test/ HTTP/1.1\r\nX: 1\nHost: b", "GET http://a.test/ HTTP/1.1\r\nno colon",
    ],
)  # fmt: skip
def test_malformed_requests_are_refused(head: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_head(f"{head}\r\n\r\n".encode())
    assert refused.value.response().startswith(b"HTTP/1.1 400 ")


#: A job that tries several ways out, and prints what came of them.
TRIES = """
import json, os, socket, sys, urllib.request, urllib.error
allowed, other = sys.argv[1:3]
def get(url, **more):
    try:
        return len(urllib.request.urlopen(urllib.request.Request(url, **more), timeout=10).read())
    except urllib.error.HTTPError as error:
        return [error.code, error.read().decode()]
    except OSError as error:
        return str(error)
def dial(host, port):
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        return "reached"
    except OSError:
        return "no way"
found = {
    "allowed": get(f"http://{allowed}/"),
    "sent": get(f"http://{allowed}/", method="PUT", data=b"x" * 1_000_000),
    "other": get(f"http://{other}/"),
    "tunnel": get(f"https://{other}/"),
    "direct": dial(*allowed.split(":")),
    "outside": dial("1.1.1.1", 53),
    "variables": sorted(name for name in os.environ if "proxy" in name.lower()),
}
print(json.dumps(found))
"""


#: Otherwise urllib would not use the proxy for an address of loopback.
PROXY_LOOPBACK = {"no_proxy": "", "NO_PROXY": ""}


def fetching() -> Callable[[str], int]:
    def fetch(url: str) -> int:  # A closure is pickled by value.
        import urllib.request

        return len(urllib.request.urlopen(url, timeout=10).read())

    return fetch


@pytest.mark.parametrize("level", BOXED)
class TestJobs:
    async def test_a_job_reaches_its_hosts_and_no_others(
        self, hub: FakeHub, start_node: StartNode, level: str, host: Host
    ) -> None:
        node = await start_node(level=level, network=True, net_private=LOOPBACK)
        async with hosting() as other:
            listed, unlisted = host.address, other.address
            spec = script(TRIES, listed, unlisted, net=[listed], env=PROXY_LOOPBACK)
            report = await hub.run(spec, account=STRANGER)
            assert report.outcome is Outcome.SUCCEEDED, (report, hub.log_texts[report.attempt_id])
            found = json.loads(hub.log_texts[report.attempt_id]["stdout"])
            assert (found["allowed"], found["sent"]) == (len(BODY), len(BODY))
            assert found["other"] == [403, f"{unlisted} is not in the job's list of hosts (--net).\n"]
            assert "403" in found["tunnel"]
            assert (found["direct"], found["outside"]) == ("no way", "no way")
            assert (host.connections, other.connections) == (2, 0)
            assert len(found["variables"]) == 8
            usage = report.usage
            assert usage is not None
            assert 2 * len(BODY) <= usage.net_in_bytes < 2 * len(BODY) + 1_000
            assert 1_000_000 <= usage.net_out_bytes < 1_002_000
        assert not list(node.config.work_dir.glob("net-*")), "the proxy is gone with its job"

    @pytest.mark.soak
    async def test_the_shim_passes_on_how_a_job_ends(self, hub: FakeHub, start_node: StartNode, level: str) -> None:
        await start_node(level=level, network=True)
        net = ["site.test:443"]
        scripts = {
            "exit": "#!/bin/sh\necho out; echo err >&2; kill -0 $$; exit 3",
            "signal": "#!/bin/sh\nkill -SEGV $$",
            "missing": "#!/usr/bin/env no-such-interpreter\n",
            "group": "#!/bin/sh\ntrap '' TERM; kill -TERM 0; echo alive",
        }
        attempts = {word: hub.submit(script(source, net=net))[0] for word, source in scripts.items()}
        await until(lambda: len(hub.reports) == len(scripts))
        reports = {word: hub.reports[attempt] for word, attempt in attempts.items()}
        assert (reports["exit"].exit_code, reports["exit"].error) == (3, "exit code 3: err")
        assert hub.log_texts[attempts["exit"]] == {"stdout": "out\n", "stderr": "err\n"}
        assert (reports["signal"].reason, reports["signal"].exit_code) == (Reason.SIGNAL, -11)
        assert reports["missing"].reason is Reason.BAD_JOB, reports["missing"]
        assert hub.log_texts[attempts["group"]]["stdout"] == "alive\n"

    @pytest.mark.soak
    async def test_functions_with_other_lists_have_other_workers(
        self, hub: FakeHub, start_node: StartNode, level: str, host: Host
    ) -> None:
        node = await start_node(level=level, network=True, net_private=LOOPBACK)
        url = f"http://127.0.0.1:{host.port}/"
        listed = function(fetching(), net=[host.address], env=PROXY_LOOPBACK)
        attempts = hub.submit(listed, [payload(url)] * 2)
        for attempt in attempts:
            report = await hub.report(attempt)
            assert report.result == str(len(BODY)), report
            assert report.usage is not None
            assert report.usage.net_in_bytes >= len(BODY)
        (alone,) = hub.submit(function(fetching(), env=PROXY_LOOPBACK), [payload(url)])
        (elsewhere,) = hub.submit(function(fetching(), net=["site.test:80"], env=PROXY_LOOPBACK), [payload(url)])
        await until(lambda: len(hub.reports) == 4)
        assert re.search("Connection refused|unreachable", hub.reports[alone].error)
        assert "403" in (hub.reports[elsewhere].error or "")
        assert host.connections == 2
        await node.finish()
        assert not list(node.config.work_dir.glob("net-*"))


async def test_a_node_without_network_access_refuses_a_job_that_needs_it(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(level="namespace")
    report = await hub.run(script("print(1)", net=["site.test:443"]))
    assert report.outcome is Outcome.FAILED
    assert "network access, which this node does not give" in (report.error or "")


async def test_at_level_process_a_job_has_the_hosts_network(hub: FakeHub, start_node: StartNode, host: Host) -> None:
    await start_node(level="process", network=True, limits=QUICK)
    report = await hub.run(
        script(f"import socket; socket.create_connection(('127.0.0.1', {host.port}))", net=["site.test:443"])
    )
    assert report.outcome is Outcome.SUCCEEDED
    assert report.usage is not None
    assert report.usage.net_in_bytes == 0
