"""Parses HTTP requests of jobs to the proxy, strictly, and makes the answer to a refused one."""

from __future__ import annotations

from dataclasses import dataclass

from computepool.core.network import clean_host

_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
#: Headers for the proxy only, or set by the proxy itself.
_NOT_PASSED_ON = frozenset(b"connection host keep-alive proxy-authorization proxy-connection te upgrade".split())
_DEFAULT_PORT = 80


class RequestRefused(Exception):
    """A refused request. The sentence is plain ASCII."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence.encode("ascii", "replace").decode().replace("\r", "?").replace("\n", "?")

    def response(self) -> bytes:
        body = f"{self.sentence}\n".encode()
        # The sentence is in the first line, too: that is all that most programs show of a refused CONNECT.
        head = (
            f"HTTP/1.1 {self.status} {self.sentence}\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


@dataclass(frozen=True, slots=True)
class EgressRequest:
    host: str
    port: int
    reply: bytes = b""  #: to the job, once connected
    head: bytes = b""  #: to the host


def parse_head(head: bytes) -> EgressRequest:
    """Parse a request head, which ends with an empty line. Raises RequestRefused."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    words = first.split(b" ")
    is_request = len(words) == 3 and words[0].isalpha() and all(byte > 0x20 for byte in words[1])
    if not is_request or words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise RequestRefused(400, "This is not an HTTP proxy request.")
    method, url, _ = words
    if method == b"CONNECT":
        host, port = _authority(url, default=None)
        return EgressRequest(host, port, reply=_CONNECTED)
    if not url.lower().startswith(b"http://"):
        raise RequestRefused(400, "Request http://host/path, or use CONNECT host:port.")
    rest = url[len(b"http://") :]
    end = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    host, port = _authority(rest[:end], default=_DEFAULT_PORT)
    path = rest[end:] if rest[end : end + 1] == b"/" else b"/" + rest[end:]
    return EgressRequest(host, port, head=_origin_head(method, path, lines, authority=rest[:end]))


def _authority(text: bytes, *, default: int | None) -> tuple[str, int]:
    host, separator, port = text.rpartition(b":")
    if default is not None and (not separator or port.endswith(b"]")):
        host, port = text, str(default).encode()
    try:
        if not port.isdigit() or not 0 < int(port[:6]) <= 65_535:
            raise ValueError
        return clean_host(host.decode("ascii")), int(port)
    except ValueError:
        raise RequestRefused(400, "The request does not name a host and port.") from None


def _origin_head(method: bytes, path: bytes, lines: list[bytes], *, authority: bytes) -> bytes:
    kept = [b"%s %s HTTP/1.1" % (method, path), b"Host: %s" % authority, b"Connection: close"]
    for line in lines:
        name, separator, _ = line.partition(b":")
        if not separator or not name or name != name.strip() or b"\n" in line or b"\r" in line:
            raise RequestRefused(400, "A header of the request is malformed.")
        if name.lower() not in _NOT_PASSED_ON:
            kept.append(line)
    return b"\r\n".join(kept) + b"\r\n\r\n"
