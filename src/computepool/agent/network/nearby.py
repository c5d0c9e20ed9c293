"""Networks near this node that a job must not reach, although their addresses look public.

Those are the networks of its interfaces and routes (a VPN leads to a company's public addresses), and the address at which
the hub sees the node: behind NAT that is the owner's router, which often serves its own network there.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from computepool.core.network import Network, unwrap

_log = logging.getLogger(__name__)

_REFRESH_S = 30.0
#: A wider network (a point-to-point link may have /0, a tunnel 0.0.0.0/1) would close the whole internet.
_BITS_MIN = 8
#: A node has few addresses at a time; a compromised hub must not fill the memory.
_PUBLIC_MAX = 64


class Nearby:
    def __init__(self, *, ipv6_site_bits: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._site_bits = ipv6_site_bits
        self._clock = clock
        self._public: OrderedDict[Network, None] = OrderedDict()
        self._local: tuple[Network, ...] = ()
        self._local_at = float("-inf")

    def note_public_address(self, text: str) -> None:
        """Remember the address at which the hub sees this node."""
        try:
            address = unwrap(ipaddress.ip_address(text.partition("%")[0]))
        except ValueError:
            _log.warning("the hub sees this node at %r, which is not an address", text)
            return
        # IPv6: the whole block that a provider assigns to one customer.
        bits = self._site_bits if address.version == 6 else 32
        network = ipaddress.ip_network((address, bits), strict=False)
        if network not in self._public:
            _log.info("the hub sees this node at %s: jobs cannot reach %s", address, network)
        self._public[network] = None
        self._public.move_to_end(network)
        if len(self._public) > _PUBLIC_MAX:
            self._public.popitem(last=False)

    def networks(self) -> tuple[Network, ...]:
        now = self._clock()
        if now - self._local_at > _REFRESH_S:
            self._local = tuple({self._widen(network) for network in (*interface_networks(), *route_networks())})
            self._local_at = now
        return (*self._local, *self._public)

    def _widen(self, network: Network) -> Network:
        """Other IPv6 networks of the same customer are near, too."""
        if network.version == 6 and network.prefixlen > self._site_bits and network.is_global:
            return network.supernet(new_prefix=self._site_bits)
        return network


def interface_networks() -> Iterator[Network]:
    for addresses in psutil.net_if_addrs().values():
        for entry in addresses:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            with contextlib.suppress(ValueError):
                own = ipaddress.ip_address(entry.address.partition("%")[0])
                bits = int(ipaddress.ip_address(entry.netmask)).bit_count() if entry.netmask else 0
                yield ipaddress.ip_network((own, bits if bits >= _BITS_MIN else own.max_prefixlen), strict=False)
                if entry.ptp:
                    yield ipaddress.ip_network(entry.ptp.partition("%")[0])


def route_networks(proc: Path = Path("/proc/net")) -> Iterator[Network]:
    """The networks of this machine's routes, except the default route; empty if the system cannot tell."""
    for name, parse in (("route", _route_v4), ("ipv6_route", _route_v6)):
        try:
            lines = (proc / name).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            with contextlib.suppress(ValueError, IndexError):
                network = parse(line.split())
                if network.prefixlen >= _BITS_MIN:
                    yield network


def _route_v4(fields: list[str]) -> Network:
    target, mask = (int.from_bytes(bytes.fromhex(fields[at]), "little") for at in (1, 7))
    return ipaddress.ip_network((target, mask.bit_count()))


def _route_v6(fields: list[str]) -> Network:
    return ipaddress.ip_network((bytes.fromhex(fields[0]), int(fields[1], 16)))
