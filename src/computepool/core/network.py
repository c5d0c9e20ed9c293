"""Rules for the hosts that a job may reach, and the addresses that no job may reach. Enforced by agent/network/egress.py."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Entries in one job's list.
TARGETS_MAX = 32
HOST_CHARS_MAX = 253

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
#: Resolvers read names that end like this as numeric addresses: 127.1, 0x7f000001.
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9]\d{0,4}")
#: Mail: a job must not ruin the reputation of its node's address.
_PORTS_CLOSED = frozenset({25})
_WEB_PORTS = {"https": 443, "http": 80}
_HOW = "write host:port, for example files.example.org:443 or *.example.com:443"


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """One entry of a job's list: a host and a port. With `below`, all names under a domain."""

    host: str
    port: int
    below: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'*.' if self.below else ''}{host}:{self.port}"

    def covers(self, host: str, port: int) -> bool:
        if port != self.port:
            return False
        return host.endswith(f".{self.host}") if self.below else host == self.host


def parse_target(text: str) -> Target:
    """Raises a ValueError that says what to write instead."""
    host, _, port = text.strip().lower().rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) > 65_535:
        raise ValueError(f"{text!r} has no port from 1 to 65535; {_HOW}")
    if int(port) in _PORTS_CLOSED:
        raise ValueError(f"{text!r}: jobs may not use port {port}, which is for mail; {_HOW}")
    below = host.startswith("*.")
    try:
        name = clean_host(host[2:] if below else host)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; {_HOW}") from None
    if below and ("." not in name or literal(name) is not None):
        raise ValueError(f"{text!r} is too broad: *. must be followed by a domain with a dot, as in *.example.com:443")
    return Target(name, int(port), below)


def parse_targets(texts: Iterable[str]) -> tuple[Target, ...]:
    """In the given order, without duplicates."""
    targets = tuple(dict.fromkeys(parse_target(text) for text in texts))
    if len(targets) > TARGETS_MAX:
        raise ValueError(f"{len(targets)} hosts are listed; the maximum is {TARGETS_MAX}")
    return targets


def target_of(url: str) -> Target:
    """The host and port of a web address. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in _WEB_PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is not a web address such as https://packages.example.org/simple")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return parse_target(f"{host}:{parts.port or _WEB_PORTS[parts.scheme]}")


def clean_host(text: str) -> str:
    """The canonical form of a host: lower case, without a trailing dot; addresses in their standard notation.

    Raises ValueError for anything that is not a plain name or address, so that no text can be read in two ways.
    """
    host = text.lower()
    if host.startswith("[") and host.endswith("]"):
        return _address(host[1:-1], version=6)
    host = host.removesuffix(".")
    if not host.isascii():
        raise ValueError("write the name in its ASCII form (xn--…)")
    if not host or len(host) > HOST_CHARS_MAX or not all(map(_LABEL.fullmatch, host.split("."))):
        raise ValueError("this is not a host name")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return _address(host, version=4)
    return host


def _address(text: str, *, version: int) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("this is not an address") from None
    if address.version != version or "%" in text:
        raise ValueError("this is not an address")
    return str(address)


def literal(host: str) -> Address | None:
    """The address, if the (clean) host is one rather than a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_admitted(targets: Sequence[Target], host: str, port: int) -> bool:
    return any(target.covers(host, port) for target in targets)


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Raises ValueError."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text.strip()))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a network such as 192.168.7.0/24: {error}") from None
    return tuple(found)


#: With descriptions for people. `is_global` is checked as well, but differs between versions of Python.
_CLOSED = tuple(
    (ipaddress.ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a provider's inner network"),
        ("127.0.0.0/8", "this machine itself"),
        ("168.63.129.16/32", "a cloud's internal service"),  # a public address that Azure uses internally
        ("169.254.0.0/16", "a link-local or metadata address"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "a special network"),
        ("192.0.2.0/24", "a network for examples"),
        ("192.88.99.0/24", "a tunnel"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "a network for tests"),
        ("198.51.100.0/24", "a network for examples"),
        ("203.0.113.0/24", "a network for examples"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "a reserved network"),
        ("::/96", "this machine itself, or an old form of an IPv4 address"),
        ("::ffff:0:0:0/96", "another form of an IPv4 address"),
        ("64:ff9b:1::/48", "a private translation network"),
        ("100::/64", "a special network"),
        ("2001::/23", "a tunnel or a special network"),
        ("2001:db8::/32", "a network for examples"),
        ("2002::/16", "a tunnel"),
        ("3fff::/20", "a network for examples"),
        ("5f00::/16", "a special network"),
        ("fc00::/7", "a private network"),
        ("fe80::/10", "a link-local or metadata address"),
        ("fec0::/10", "a private network"),
        ("ff00::/8", "multicast"),
    )
)
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")


def refusal(address: Address, *, admitted: Sequence[Network] = (), near: Sequence[Network] = ()) -> str:
    """Why jobs may not reach this address; empty if they may.

    `admitted`: networks that the owner opened explicitly. `near`: the machine's own networks, whose public addresses are
    neighbours behind the same firewall.
    """
    address = unwrap(address)
    if any(address in network for network in admitted):
        return ""
    for network, what in _CLOSED:
        if address in network:
            return f"{address} is {what}"
    if any(address in network for network in near):
        return f"{address} is in a network of this machine"
    return "" if address.is_global and not address.is_multicast else f"{address} is not a public address"


def unwrap(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, if the system or a translator would use that."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    # without the zone: fe80::1%eth0 is fe80::1
    return ipaddress.IPv6Address(int(address))
