"""Addresses of this machine: the one that others reach it by, and those that nobody else reaches."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

#: Far away, and in nobody's network: nothing is sent there.
_FAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def outgoing_address() -> str:
    """The address of the interface towards everything else; empty without a network. Nothing is sent to find it out."""
    for family, far in _FAR:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((far, 9))
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return ""


def url_of(host: str, port: int) -> str:
    """Of a hub that listens there. On every interface: by the address that other machines know this one by."""
    if is_wildcard(host):
        host = outgoing_address() or "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")


def is_loopback(url: str) -> bool:
    """Whether only this machine reaches it."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
