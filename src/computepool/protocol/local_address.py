"""Addresses of this machine: the one that others can reach, and those that only this machine can reach."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

#: Documentation addresses, outside of every network. Nothing is sent there.
_FAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def outgoing_address() -> str:
    """The address of the interface with the default route; empty without a network. Sends nothing."""
    for family, far in _FAR:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((far, 9))
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return ""


def url_of(host: str, port: int) -> str:
    """The URL of a hub that listens on this host. A wildcard becomes the address that other machines can reach."""
    if is_wildcard(host):
        host = outgoing_address() or "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")


def is_loopback(url: str) -> bool:
    """Whether only this machine can reach the URL."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
