"""The networks near this node: its interfaces, its routes, and the addresses at which the hub sees it."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.network import nearby
from computepool.agent.network.nearby import Nearby, interface_networks, route_networks
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, until

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0
tun0\t00004010\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
nonsense
"""
ROUTES_V6 = """\
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 0 0 0 0 eth0
2a001450400181010000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 0 0 0 0 tun0
"""


def test_this_machine_is_near_itself() -> None:
    assert any(ipaddress.ip_address("127.0.0.1") in network for network in interface_networks())


def test_routes_are_near_except_the_default_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "route").write_text(ROUTES)
    (tmp_path / "ipv6_route").write_text(ROUTES_V6)
    routes = list(route_networks(tmp_path))
    assert [str(network) for network in routes] == ["16.64.0.0/16", "2a00:1450:4001:8101::/64"]
    assert not list(route_networks(tmp_path / "none"))
    monkeypatch.setattr(nearby, "route_networks", lambda: iter(routes))
    near = Nearby(ipv6_site_bits=56).networks()
    assert ipaddress.ip_network("2a00:1450:4001:8100::/56") in near, "the customer's whole block"


def test_networks_of_this_machine_are_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    near = Nearby(ipv6_site_bits=56, clock=lambda: now)
    before = near.networks()
    joined = ipaddress.ip_network("8.8.8.0/24")
    monkeypatch.setattr(nearby, "interface_networks", lambda: iter([joined]))
    assert near.networks() == before
    now = 31.0
    assert joined in near.networks()


def test_a_hub_that_names_many_addresses_does_not_fill_the_memory() -> None:
    near = Nearby(ipv6_site_bits=56)
    mine = len(near.networks())
    for number in range(1_000):
        near.note_public_address(str(ipaddress.IPv4Address(0x08000000 + number)))
    assert len(near.networks()) <= mine + 64
    assert ipaddress.ip_network("8.0.3.231/32") in near.networks(), "the latest are kept"


async def test_a_node_learns_its_address_of_each_family_from_the_hub(
    hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's name has an address of each family, and polls go to one of them."""
    port = hub.port
    await hub.stop()
    await hub.start(port, besides=True)
    monkeypatch.setattr(socket, "getaddrinfo", _resolver("hub.test", ["::1", "127.0.0.1"]))
    hub.sees_callers = True
    node = await start_node(hub_url=f"http://hub.test:{port}")
    seen = node.agent._egress.nearby._public
    await until(lambda: {str(network) for network in seen} == {"127.0.0.1/32", "::/56"})


def _resolver(name: str, addresses: Sequence[str]) -> Callable[..., Any]:
    """A resolver like the system's that also knows this name."""
    system = socket.getaddrinfo

    def resolve(host: Any, port: Any, family: int = 0, *rest: Any, **options: Any) -> Any:
        if host not in (name, name.encode()):
            return system(host, port, family, *rest, **options)
        found = []
        for address in addresses:
            with contextlib.suppress(socket.gaierror):  # of the other family
                found += system(address, port, family, *rest, **options)
        if not found:
            raise socket.gaierror(f"{name} has no address of this family")
        return found

    return resolve
