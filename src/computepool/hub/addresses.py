"""Addresses of hosts that users name, for connections that the hub itself makes: resolved here, and every one checked.

Who resolves a name again may get another answer, so connect to an address from here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil

from computepool.core import network
from computepool.core.network import Address, Network

#: A lookup cannot be cancelled, so it has threads of its own.
_lookups = ThreadPoolExecutor(4, thread_name_prefix="lookup")


class AddressRefused(Exception):
    """`forbidden`: there is an address, but it may not be reached."""

    def __init__(self, why: str, *, forbidden: bool) -> None:
        super().__init__(why)
        self.forbidden = forbidden


async def find(host: str, port: int, *, admitted: Sequence[Network]) -> Sequence[Address]:
    """The addresses of a (clean) host. If any of them is refused, all are."""
    plain = network.literal(host)
    found = [plain] if plain is not None else await resolve(host, port)
    near = own_addresses()
    for address in found:
        if why := network.refusal(address, admitted=admitted, near=near):
            raise AddressRefused(why, forbidden=True)
    return found


async def resolve(host: str, port: int) -> Sequence[Address]:
    loop = asyncio.get_running_loop()
    try:
        entries = await loop.run_in_executor(_lookups, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError:
        raise AddressRefused(f"{host} has no address", forbidden=False) from None
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries]


def own_addresses() -> tuple[Network, ...]:
    """This machine's own addresses, including public ones: services on them may not be meant for others."""
    found = {
        entry.address.partition("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    }
    return tuple(ipaddress.ip_network(address) for address in sorted(found))
